// Largest elements of windows, without their places.

#include "strata/ops/pool/pool_common_inl.h"

namespace strata {
namespace {
using namespace pool;

TensorMeta infer(const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding, const Dims& dilation,
                 bool ceil_mode) {
  check_floating("max_pool", x);
  const Dims in = spatial_of("max_pool", x, kernel.size());
  check_window("max_pool", kernel, stride, padding, dilation);
  return pooled_meta(x, pooled_sizes("max_pool", in, kernel, stride, padding, dilation, ceil_mode));
}

const Op<Tensor(const Tensor&, const Dims&, const Dims&, const Dims&, const Dims&, bool)> max_pool_values_op{{
    .schema = "max_pool_values(Tensor x, int[] kernel, int[] stride, int[] padding, int[] dilation, bool "
              "ceil_mode=false) -> Tensor",
    .shard = "n ...! -> n ...!",
    .internal = true,
    .doc = "The values of max_pool, for where nobody asks for the positions.",
    .infer = infer,
    .kernels = {.cpu =
                    [](Tensor& y, const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding,
                       const Dims& dilation, bool ceil_mode) {
                      const Axes axes = max_axes(x, kernel, stride, padding, dilation, ceil_mode);
                      if (both_last(x, y, kernel.size()) &&
                          cpu::window_max_last(axes, x.shape()[0], x.shape()[1], x.dtype(), x.raw_data(), y.raw_data(),
                                               nullptr))
                        return;
                      dense(y, x, [&](const Tensor& from, Tensor& to) {
                        cpu::window_max(axes, planes_of(from, kernel.size()), from.dtype(), from.raw_data(),
                                        to.raw_data(), nullptr);
                      });
                    }},
    .composed = [](const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding, const Dims& dilation,
                   bool ceil_mode) { return std::get<0>(max_pool(x, kernel, stride, padding, dilation, ceil_mode)); },
    .cost =
        [](const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding, const Dims& dilation,
           bool ceil_mode) {
          return move_cost(x, infer(x, kernel, stride, padding, dilation, ceil_mode).shape, window_size(kernel));
        },
    .samples =
        [](Samples& s) {
          s.add(s.distinct({2, 3, 6, 7}), Dims{2, 3}, Dims{2, 2}, Dims{0, 1}, Dims{1, 1});
          s.add(s.distinct({2, 3, 37}), Dims{3}, Dims{2}, Dims{1}, Dims{2}, true).named("one dimension, dilated, ceil");
          s.add(s.distinct({2, 2, 5, 4, 3}), Dims{3, 2, 2}, Dims{2, 1, 2}, Dims{1, 0, 1}, Dims{1, 2, 1}, true)
              .named("three dimensions");
          s.add(s.distinct({2, 6, 7, 9}).permute({0, 3, 1, 2}), Dims{2, 3}, Dims{2, 2}, Dims{0, 1}, Dims{1, 1})
              .named("channels innermost");
          s.add(s.distinct({2, 3, 5, 4, 17}).permute({0, 4, 1, 2, 3}), Dims{2, 3, 2}, Dims{1, 2, 2}, Dims{1, 1, 0},
                Dims{1, 1, 2}, true)
              .named("volumes with channels innermost");
          s.invalid<ShapeError>("does not fit", s.tensor({1, 2, 2}), Dims{3}, Dims{1}, Dims{0}, Dims{1});
        },
}};

}  // namespace

Tensor pool::max_pool_values(const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding,
                             const Dims& dilation, bool ceil_mode) {
  return max_pool_values_op(x, kernel, stride, padding, dilation, ceil_mode);
}

}  // namespace strata
