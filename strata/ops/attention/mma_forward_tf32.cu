// Attention of f32 by TF32.

#include "strata/ops/attention/mma_forward.cuh"

namespace strata::attention_cuda {

void forward_mma_tf32(const AttentionCall& c, const Tensor& like_this) {
  mma_forward::forward_of<Singles<1>>(c, like_this);
}

}  // namespace strata::attention_cuda
