#include "strata/ops/activation/leaky_relu_kernel.h"

#include "strata/core/layout.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/elementwise/kernels.h"
#include "strata/ops/elementwise/records.h"
#include "strata/ops/elementwise/reference_inl.h"

namespace strata {
namespace {

const Op<Tensor(const Tensor&, double)> leaky_relu_over_op{{
    .schema = "leaky_relu_over(Tensor x, float negative_slope=0.01) -> Tensor",
    .shard = "elementwise",
    .internal = true,
    .doc = "leaky_relu whose gradient reads its result: in place it needs no copy of x. ValueError for a negative "
           "slope, with which the result does not tell where x was positive.",
    .infer =
        [](const Tensor& x, double slope) {
          check(slope >= 0, "leaky_relu_over", "negative_slope is ", slope, ", wants at least 0");
          return like_if(x, kFloats, "leaky_relu_over");
        },
    .kernels = on_each_device(
        [](auto on, Tensor& y, const Tensor& x, double slope) { map(on, Map::leaky_relu, y, {&x}, {{slope}}); }),
    .saves = "result",
    .backward = [](Backward& b, const Tensor&, double slope) { b.set(0, leaky_relu_backward(b.gy(), b.y(), slope)); },
    .inplace = true,
    .cost = [](const Tensor& x, double) { return map_cost(2, x, x); },
    .samples =
        [](Samples& s) {
          s.add(s.off_grid({3, 5}), 0.1);
          s.add(s.off_grid({2, 37}));
          s.add(s.off_grid({7}), 0.0).named("relu");
          s.add(s.tensor({0}), 0.1).named("empty");
          s.invalid<ValueError>("at least 0", s.tensor({3}), -0.1);
        },
    .reference = pointwise<([](double x, double slope) { return x > 0 ? x : slope * x; })>,
}};

}  // namespace

Tensor& leaky_relu_over(Tensor& x, double negative_slope) {
  return leaky_relu_over_op.inplace(x, negative_slope);
}

}  // namespace strata
