// The forward kernels for Hopper, one for each dtype and head size.

#include "strata/ops/attention/hopper_forward.cuh"

namespace strata::attention_cuda {

void forward_hopper(const AttentionCall& c, const Tensor& like_this) {
  using namespace hopper;
  // Sizes between fill up with zeros in the copies.
  const auto with = [&]<class T>() {
    if (c.d <= 64) return queue_forward<T, ForwardShape<64, 3, 128, 2, 2, 1, true, true>>(c, like_this);
    if (c.d <= 80) return queue_forward<T, ForwardShape<80, 3, 96, 2, 1, 1, true, true>>(c, like_this);
    if (c.d <= 96) return queue_forward<T, ForwardShape<96, 3, 96, 2, 1, 1, true, true>>(c, like_this);
    if (c.d <= 128) return queue_forward<T, ForwardShape<128, 2, 128, 2, 1, 1, true, true>>(c, like_this);
    queue_forward<T, ForwardShape<256, 2, 80, 2, 1, 1, true, true>>(c, like_this);
  };
  if (has_options(c))
    return c.dtype == DType::bf16 ? forward_options_bf16(c, like_this) : forward_options_f16(c, like_this);
  c.dtype == DType::bf16 ? with.template operator()<BFloat16>() : with.template operator()<Half>();
}

}  // namespace strata::attention_cuda
