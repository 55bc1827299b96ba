// Gradients of attention of f32 by TF32.

#include "strata/ops/attention/mma_backward.cuh"

namespace strata::attention_cuda {

void backward_mma_tf32(const AttentionCall& c, RowTerms<float> terms, const Tensor& like_this) {
  mma_backward::backward_of<Singles<1>>(c, terms, like_this);
}

}  // namespace strata::attention_cuda
