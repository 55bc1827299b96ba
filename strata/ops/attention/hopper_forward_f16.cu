// The forward kernels for Hopper with masks and dropout, for f16.

#include "strata/ops/attention/hopper_forward.cuh"

namespace strata::attention_cuda::hopper {

void forward_options_f16(const AttentionCall& c, const Tensor& like_this) {
  forward_options<Half>(c, like_this);
}

}  // namespace strata::attention_cuda::hopper
