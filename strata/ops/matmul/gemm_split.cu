// Products of bf16 whose sums the blocks of clusters share.

#include "strata/ops/matmul/gemm_split_launch.cuh"

namespace strata::cuda {

extern template bool gemm_split_of<Half>(const SplitGemm&, const TileJob&);  // gemm_split_f16.cu

bool gemm_split(const SplitGemm& g, const TileJob& j) {
  return g.in == DType::bf16 ? gemm_split_of<BFloat16>(g, j) : gemm_split_of<Half>(g, j);
}

}  // namespace strata::cuda
