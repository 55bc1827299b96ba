// Attention of 16 bits on mma.sync.

#include "strata/ops/attention/mma_forward.cuh"

namespace strata::attention_cuda {

void forward_mma(const AttentionCall& c, const Tensor& like_this) {
  c.dtype == DType::bf16 ? mma_forward::forward_of<Sixteen<BFloat16>>(c, like_this)
                         : mma_forward::forward_of<Sixteen<Half>>(c, like_this);
}

}  // namespace strata::attention_cuda
