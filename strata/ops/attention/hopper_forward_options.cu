// The forward kernels for Hopper with masks and dropout, which take registers: two warpgroups of queries, not three.

#include "strata/ops/attention/hopper_forward.cuh"

namespace strata::attention_cuda {

void forward_hopper_options(const AttentionCall& c, const Tensor& like_this) {
  using namespace hopper;
  const auto with = [&]<class T>() {
    if (c.d <= 64) return queue_forward<T, ForwardShape<64, 2, 128, 2, 2, 1, true, true>, true>(c, like_this);
    if (c.d <= 96) return queue_forward<T, ForwardShape<96, 2, 128, 2, 1, 1, true, true>, true>(c, like_this);
    if (c.d <= 128) return queue_forward<T, ForwardShape<128, 2, 128, 2, 1, 1, true, true>, true>(c, like_this);
    queue_forward<T, ForwardShape<256, 2, 80, 2, 1, 1, true, true>, true>(c, like_this);
  };
  c.dtype == DType::bf16 ? with.template operator()<BFloat16>() : with.template operator()<Half>();
}

}  // namespace strata::attention_cuda
