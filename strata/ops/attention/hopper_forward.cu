// The forward kernels for Hopper, one for each dtype and head size.

#include "strata/ops/attention/hopper_forward.cuh"

namespace strata::attention_cuda {

void forward_hopper(const AttentionCall& c, const Tensor& like_this) {
  using namespace hopper;
  const auto with = [&]<class T>() {
    switch (c.d) {
      case 64:
        return queue_forward<T, ForwardShape<64, 3, 128, 2, 2, 1, true, true>>(c, like_this);
      case 80:
        return queue_forward<T, ForwardShape<80, 3, 96, 2, 1, 1, true, true>>(c, like_this);
      case 96:
        return queue_forward<T, ForwardShape<96, 3, 96, 2, 1, 1, true, true>>(c, like_this);
      case 256:
        return queue_forward<T, ForwardShape<256, 2, 80, 2, 1, 1, true, true>>(c, like_this);
      default:
        return queue_forward<T, ForwardShape<128, 2, 128, 2, 1, 1, true, true>>(c, like_this);
    }
  };
  c.dtype == DType::bf16 ? with.template operator()<BFloat16>() : with.template operator()<Half>();
}

}  // namespace strata::attention_cuda
