// Attention of f32 by three products of TF32 for one, which lose what f32 loses.

#include "strata/ops/attention/mma_forward.cuh"

namespace strata::attention_cuda {

void forward_mma_f32(const AttentionCall& c, const Tensor& like_this) {
  mma_forward::forward_of<Singles<2>>(c, like_this);
}

}  // namespace strata::attention_cuda
