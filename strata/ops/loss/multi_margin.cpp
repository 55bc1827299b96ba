// The rows of multi_margin_loss, and their gradient.

#include <cmath>
#include <vector>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/factory/ranges.h"
#include "strata/ops/index/index.h"
#include "strata/ops/loss/by_hand_inl.h"
#include "strata/ops/loss/multi_margin_kernel.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using by_hand::Numbers;

void check_rows(const Tensor& x, const Tensor& target, int64_t p, std::string_view op) {
  check<ShapeError>(x.dim() == 2 && x.size(1) > 0 && target.shape() == Shape{x.size(0)}, op, "x is ", x, " and target ",
                    target, ", wanted [N, C] and [N]");
  check<DTypeError>((x.dtype() == DType::f32 || x.dtype() == DType::f64) && target.dtype() == DType::i64, op,
                    "needs f32 or f64 scores and i64 targets, got ", x, " and ", target);
  check(p == 1 || p == 2, op, "p must be 1 or 2, got ", p);
}
Cost rows_cost(const Tensor& x) {
  return {4 * static_cast<double>(x.numel()), static_cast<double>(x.nbytes())};
}
// Where x has the row's target, and how far the others are above their bound, which counts nothing there.
Tensor is_target(const Tensor& x, const Tensor& target) {
  const DeviceScope there(x.device());
  return target.unsqueeze(1) == arange(x.size(1), DType::i64);
}
Tensor above(const Tensor& x, const Tensor& target, double margin) {
  return margin - gather(x, 1, target.unsqueeze(1)) + x;
}
// f(row, target, class, margin - score + the class's) for each pair where that is positive.
template <class F>
void each_pair(const Tensor& x, const Tensor& target, double margin, F&& f) {
  const Numbers v = x.to_vector<double>();
  const std::vector<int64_t> t = target.to_vector<int64_t>();
  const auto classes = static_cast<size_t>(x.size(1));
  for (size_t row = 0; row < t.size(); ++row)
    for (size_t c = 0; c < classes; ++c) {
      const auto at = static_cast<size_t>(t[row]);
      const double far = margin - v[row * classes + at] + v[row * classes + c];
      if (c != at && far > 0) f(row, at, c, far);
    }
}

extern const Op<Tensor(const Tensor&, const Tensor&, const Tensor&, int64_t, double)> multi_margin_rows_backward_op;
const Op<Tensor(const Tensor&, const Tensor&, const Tensor&, int64_t, double)> multi_margin_rows_backward_op{{
    .schema = "multi_margin_rows_backward(Tensor g, Tensor x, Tensor target, int p, float margin) -> Tensor",
    .shard = "n, n c!, n -> n c!",
    .internal = true,
    .doc = "The gradient of multi_margin_rows: g of a row times the slopes of its classes, and less their sum for the "
           "target.",
    .infer =
        [](const Tensor& g, const Tensor& x, const Tensor& target, int64_t p, double) {
          check_rows(x, target, p, "multi_margin_rows_backward");
          check<ShapeError>(g.shape() == Shape{x.size(0)} && g.dtype() == x.dtype(), "multi_margin_rows_backward",
                            "g is ", g, ", wanted a number for each row of ", x);
          return TensorMeta{x.shape(), x.dtype(), x.device(), std::nullopt};
        },
    .kernels = {.cpu = multi_margin_rows_backward_cpu, .cuda = STRATA_CUDA_KERNEL(multi_margin_rows_backward_cuda)},
    .composed =
        [](const Tensor& g, const Tensor& x, const Tensor& target, int64_t p, double margin) {
          const Tensor named = is_target(x, target), far = above(x, target, margin);
          const Tensor counts = logical_and(far > 0, logical_not(named)).to(x.dtype());
          const Tensor slopes = p == 1 ? counts : 2 * far * counts;
          return (slopes - named.to(x.dtype()) * sum(slopes, {1}, true)) *
                 (g / static_cast<double>(x.size(1))).unsqueeze(1);
        },
    .dtypes = dtype_bit(DType::f32) | dtype_bit(DType::f64),
    .cost = [](const Tensor&, const Tensor& x, const Tensor&, int64_t, double) { return rows_cost(x); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3}), s.tensor({3, 5}), s.integers({3}, 0, 5), 1, 6.0);
          s.add(s.tensor({3}), s.tensor({3, 200}), s.integers({3}, 0, 200), 2, 6.0);
          s.add(s.tensor({2}), s.tensor({7, 2}).t(), s.integers({2}, 0, 7), 2, 6.0).named("strided");
          s.invalid<ShapeError>("for each row", s.tensor({2}), s.tensor({3, 4}), s.integers({3}, 0, 4), 1, 1.0);
        },
    .reference =
        [](const Tensor& g, const Tensor& x, const Tensor& target, int64_t p, double margin) {
          const Numbers by = g.to_vector<double>();
          const auto classes = static_cast<size_t>(x.size(1));
          Numbers r(static_cast<size_t>(x.numel()));
          each_pair(x, target, margin, [&](size_t row, size_t at, size_t c, double far) {
            const double slope = (p == 1 ? 1 : 2 * far) * by[row] / static_cast<double>(classes);
            r[row * classes + c] += slope;
            r[row * classes + at] -= slope;
          });
          return from_span<double>(r, x.shape());
        },
}};

const Op<Tensor(const Tensor&, const Tensor&, int64_t, double)> multi_margin_rows_op{{
    .schema = "multi_margin_rows(Tensor x, Tensor target, int p=1, float margin=1.0) -> Tensor",
    .shard = "n c!, n -> n",
    .internal = true,
    .doc = "For scores x [N, C] and classes target [N] the sums over the other classes c of max(0, margin - x[target] "
           "+ x[c])^p over the number of classes, which multi_margin_loss takes the mean of.",
    .infer =
        [](const Tensor& x, const Tensor& target, int64_t p, double) {
          check_rows(x, target, p, "multi_margin_rows");
          return like(x).with_shape({x.size(0)});
        },
    .kernels = {.cpu = multi_margin_rows_cpu, .cuda = STRATA_CUDA_KERNEL(multi_margin_rows_cuda)},
    .composed =
        [](const Tensor& x, const Tensor& target, int64_t p, double margin) {
          Tensor each = clamp_min(above(x, target, margin), 0);
          if (p == 2) each = each * each;
          each = where(is_target(x, target), Scalar(0.0), each);
          return sum(each, {1}) / static_cast<double>(x.size(1));
        },
    .saves = "x target",
    .backward = [](Backward& b, const Tensor& x, const Tensor& target, int64_t p,
                   double margin) { b.set(0, multi_margin_rows_backward_op(b.gy(), x, target, p, margin)); },
    .dtypes = dtype_bit(DType::f32) | dtype_bit(DType::f64),
    .cost = [](const Tensor& x, const Tensor&, int64_t, double) { return rows_cost(x); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), s.integers({3}, 0, 5), 1, 6.0);
          s.add(s.tensor({3, 200}), s.integers({3}, 0, 200), 2, 6.0);
          s.add(s.tensor({7, 2}).t(), s.integers({2}, 0, 7), 2, 6.0).named("strided");
          s.add(s.tensor({3, 5}), s.integers({3}, 0, 5)).not_differentiable();
          s.add(s.tensor({0, 5}), s.integers({0}, 0, 5));
          s.add(s.tensor({5, 1}), s.integers({5}, 0, 1), 2, 6.0).named("one class");
          s.invalid<ShapeError>("wanted [N, C]", s.tensor({3, 4}), s.integers({2}, 0, 4));
          s.invalid<ValueError>("p must be", s.tensor({3, 4}), s.integers({3}, 0, 4), 3);
          if (s.benchmarking()) s.bench(s.tensor({512, 512}), s.integers({512}, 0, 512));
        },
    .reference =
        [](const Tensor& x, const Tensor& target, int64_t p, double margin) {
          Numbers r(static_cast<size_t>(x.size(0)));
          each_pair(x, target, margin, [&](size_t row, size_t, size_t, double far) {
            r[row] += (p == 1 ? far : far * far) / static_cast<double>(x.size(1));
          });
          return from_span<double>(r, {x.size(0)});
        },
}};

}  // namespace

Tensor detail::multi_margin_rows(const Tensor& x, const Tensor& target, int64_t p, double margin) {
  return multi_margin_rows_op(x, target, p, margin);
}

}  // namespace strata
