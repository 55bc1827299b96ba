// Products of f16 whose sums the blocks of clusters share.

#include "strata/ops/matmul/gemm_split_launch.cuh"

namespace strata::cuda {

template bool gemm_split_of<Half>(const SplitGemm&, const TileJob&);

}  // namespace strata::cuda
