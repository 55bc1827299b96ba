// Gradients of attention of 16 bits on mma.sync.

#include "strata/ops/attention/mma_backward.cuh"

namespace strata::attention_cuda {

void backward_mma(const AttentionCall& c, RowTerms<float> terms, const Tensor& like_this) {
  c.dtype == DType::bf16 ? mma_backward::backward_of<Sixteen<BFloat16>>(c, terms, like_this)
                         : mma_backward::backward_of<Sixteen<Half>>(c, terms, like_this);
}

}  // namespace strata::attention_cuda
