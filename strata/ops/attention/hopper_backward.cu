// The backward kernels for Hopper, one for each dtype and head size.

#include "strata/ops/attention/hopper_backward.cuh"

namespace strata::attention_cuda {

void backward_hopper(const AttentionCall& c, const Tensor& like_this) {
  using namespace hopper;
  const Tensor space = empty({Shape{backward_floats(c)}, DType::f32, like_this.device(), std::nullopt});
  const BackwardSpace parts = backward_space(c, static_cast<float*>(space.raw_data()));
  const auto with = [&]<class T>() {
    c.d == 64 ? queue_backward<T, BackwardShape<64, 128, 2, 2>>(c, parts)
              : queue_backward<T, BackwardShape<128, 64, 2, 1>>(c, parts);
  };
  c.dtype == DType::bf16 ? with.template operator()<BFloat16>() : with.template operator()<Half>();
}

}  // namespace strata::attention_cuda
