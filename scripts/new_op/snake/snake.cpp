#include "strata/ops/snake/snake.h"

#include <cmath>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/snake/snake_kernel.h"

namespace strata {
namespace {
const Op<Tensor(const Tensor&, double)> snake_op{{
    .schema = "snake(Tensor x, float a=1.0) -> Tensor",
    .shard = "elementwise",
    .doc = "x + sin(a x)^2 / a, elementwise (Ziyin et al., 2020).",
    .example = "assert(snake(zeros({2})).to_vector<float>() == std::vector<float>({0, 0}));",
    .infer =
        [](const Tensor& x, double a) {
          check<DTypeError>(is_floating(x.dtype()), "snake", "needs a floating dtype, got ", x);
          check(std::isfinite(a) && a != 0, "snake", "a must be finite and not 0, got ", a);
          return like(x);
        },
    .kernels = {.cpu = snake_cpu, .cuda = STRATA_CUDA_KERNEL(snake_cuda)},
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x, double a) { b.set(0, b.gy() * (1 + sin(x * (2 * a)))); },
    .cost =
        [](const Tensor& x, double) {
          return Cost{10.0 * static_cast<double>(x.numel()), 2.0 * static_cast<double>(x.nbytes())};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}));
          s.add(s.tensor({4}), 0.5);
          s.add(s.tensor({0, 2}));
          s.invalid<ValueError>("not 0", s.tensor({3}), 0.0);
          if (s.benchmarking()) s.bench(s.tensor({1024, 1024}));
        },
    .reference =
        [](const Tensor& x, double a) {
          std::vector<double> v = x.to_vector<double>();
          for (double& e : v) e += std::pow(std::sin(a * e), 2) / a;
          return from_span<double>(v, x.shape());
        },
}};
}  // namespace

Tensor snake(const Tensor& x, double a) {
  return snake_op(x, a);
}
}  // namespace strata
