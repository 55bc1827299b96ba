// Gradients of attention of f32 by three products of TF32 for one, which lose what f32 loses.

#include "strata/ops/attention/mma_backward.cuh"

namespace strata::attention_cuda {

void backward_mma_f32(const AttentionCall& c, RowTerms<float> terms, const Tensor& like_this) {
  mma_backward::backward_of<Singles<2>>(c, terms, like_this);
}

}  // namespace strata::attention_cuda
