// The rows of multilabel_margin_loss, and their gradient.

#include <cmath>
#include <vector>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/loss/by_hand_inl.h"
#include "strata/ops/loss/multilabel_margin_kernel.h"
#include "strata/ops/reduce/reduce.h"

namespace strata {
namespace {

using by_hand::Numbers;

void check_rows(const Tensor& x, const Tensor& target, std::string_view op) {
  check<ShapeError>(x.dim() == 2 && target.shape() == x.shape(), op, "x is ", x, " and target ", target,
                    ", wanted both [N, C]");
  check<ShapeError>(x.size(1) <= kMostPairedClasses, op, "x is ", x, ", wanted at most ", kMostPairedClasses,
                    " classes");
  check<DTypeError>((x.dtype() == DType::f32 || x.dtype() == DType::f64) && target.dtype() == DType::i64, op,
                    "needs f32 or f64 scores and i64 targets, got ", x, " and ", target);
}
Cost rows_cost(const Tensor& x) {
  return {2 * static_cast<double>(x.numel()) * std::sqrt(static_cast<double>(x.size(1))),
          static_cast<double>(x.nbytes() + 8 * x.numel())};
}
// f(row, class of a target, other class, 1 - score + other score) for each pair where that is positive.
template <class F>
void each_pair(const Tensor& x, const Tensor& target, F&& f) {
  const Numbers v = x.to_vector<double>();
  const std::vector<int64_t> t = target.to_vector<int64_t>();
  const auto classes = static_cast<size_t>(x.size(1));
  for (size_t row = 0; row < static_cast<size_t>(x.size(0)); ++row) {
    std::vector<size_t> labels;
    for (size_t k = 0; k < classes && t[row * classes + k] >= 0; ++k)
      labels.push_back(static_cast<size_t>(t[row * classes + k]));
    for (const size_t label : labels)
      for (size_t c = 0; c < classes; ++c) {
        bool other = true;
        for (const size_t l : labels) other = other && l != c;
        const double above = 1 - v[row * classes + label] + v[row * classes + c];
        if (other && above > 0) f(row, label, c, above);
      }
  }
}
void add_samples(Samples& s, const auto& add) {
  add(s.uniform({3, 5}, -0.4, 0.4), s.integers({3, 5}, -1, 5));
  add(s.uniform({2, 200}, -0.4, 0.4), s.integers({2, 200}, 0, 200));
  const Tensor few = s.integers({3, 150}, 0, 150);
  few.slice(1, 4, 5).fill_(-1);
  add(s.uniform({3, 150}, -0.4, 0.4), few);
  add(s.uniform({1, 1}, -1, 1), s.integers({1, 1}, 0, 1));
  add(s.tensor({0, 3}), s.integers({0, 3}, 0, 3));
}

extern const Op<Tensor(const Tensor&, const Tensor&, const Tensor&)> multilabel_margin_rows_backward_op;
const Op<Tensor(const Tensor&, const Tensor&, const Tensor&)> multilabel_margin_rows_backward_op{{
    .schema = "multilabel_margin_rows_backward(Tensor g, Tensor x, Tensor target) -> Tensor",
    .shard = "n, n c!, n c! -> n c!",
    .internal = true,
    .doc = "The gradient of multilabel_margin_rows: g of a row times, for a class that is no target, how many targets "
           "it comes near, and less that number for those.",
    .infer =
        [](const Tensor& g, const Tensor& x, const Tensor& target) {
          check_rows(x, target, "multilabel_margin_rows_backward");
          check<ShapeError>(g.shape() == Shape{x.size(0)} && g.dtype() == x.dtype(), "multilabel_margin_rows_backward",
                            "g is ", g, ", wanted a number for each row of ", x);
          return TensorMeta{x.shape(), x.dtype(), x.device(), std::nullopt};
        },
    .kernels = on_each_device([](auto on, Tensor& gx, const Tensor& g, const Tensor& x, const Tensor& target) {
      if constexpr (on.cuda)
        multilabel_margin_rows_backward_cuda(gx, g, x, target);
      else
        multilabel_margin_rows_backward_cpu(gx, g, x, target);
    }),
    .saves = "x target",
    .backward =
        [](Backward& b, const Tensor&, const Tensor& x, const Tensor& target) {
          if (!b.needs(0)) return;
          // Steps have no slope of their own.
          const DeviceScope there(x.device());
          const Tensor one = ones({x.size(0)}, x.dtype());
          b.set(0, sum(b.gy() * multilabel_margin_rows_backward_op(one, x, target), {1}));
        },
    .dtypes = dtype_bit(DType::f32) | dtype_bit(DType::f64),
    .cost = [](const Tensor&, const Tensor& x, const Tensor&) { return rows_cost(x); },
    .samples =
        [](Samples& s) {
          add_samples(s, [&](const Tensor& x, const Tensor& target) { s.add(s.tensor({x.size(0)}), x, target); });
          s.invalid<ShapeError>("for each row", s.tensor({2}), s.tensor({3, 4}), s.integers({3, 4}, 0, 4));
        },
    .reference =
        [](const Tensor& g, const Tensor& x, const Tensor& target) {
          const Numbers by = g.to_vector<double>();
          const auto classes = static_cast<size_t>(x.size(1));
          Numbers r(static_cast<size_t>(x.numel()));
          each_pair(x, target, [&](size_t row, size_t label, size_t c, double) {
            r[row * classes + c] += by[row];
            r[row * classes + label] -= by[row];
          });
          return from_span<double>(r, x.shape());
        },
}};

const Op<Tensor(const Tensor&, const Tensor&)> multilabel_margin_rows_op{{
    .schema = "multilabel_margin_rows(Tensor x, Tensor target) -> Tensor",
    .shard = "n c!, n c! -> n",
    .internal = true,
    .doc = "For scores x [N, C] and targets [N, C], which end where a negative one stands, the sums over pairs of a "
           "target t and a class c that is none of max(0, 1 - x[t] + x[c]): what multilabel_margin_loss takes the "
           "mean of. A row with NaN is NaN.",
    .infer =
        [](const Tensor& x, const Tensor& target) {
          check_rows(x, target, "multilabel_margin_rows");
          return like(x).with_shape({x.size(0)});
        },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, const Tensor& target) {
      if constexpr (on.cuda)
        multilabel_margin_rows_cuda(y, x, target);
      else
        multilabel_margin_rows_cpu(y, x, target);
    }),
    .saves = "x target",
    .backward = [](Backward& b, const Tensor& x,
                   const Tensor& target) { b.set(0, multilabel_margin_rows_backward_op(b.gy(), x, target)); },
    .dtypes = dtype_bit(DType::f32) | dtype_bit(DType::f64),
    .cost = [](const Tensor& x, const Tensor&) { return rows_cost(x); },
    .samples =
        [](Samples& s) {
          add_samples(s, [&](const Tensor& x, const Tensor& target) { s.add(x, target); });
          s.add(s.uniform({5, 3}, -0.4, 0.4).t(), s.integers({5, 3}, -1, 5).t()).named("strided");
          s.add(s.uniform({2, 150}, -0.4, 0.4), s.integers({2, 150}, -1, 150)).named("many classes");
          s.invalid<ShapeError>("wanted both", s.tensor({3, 4}), s.integers({3, 5}, 0, 4));
          s.invalid<ShapeError>("at most", s.tensor({1, 4097}), s.integers({1, 4097}, 0, 4));
          s.invalid<IndexError>("out of range", s.tensor({2, 3}), s.integers({2, 3}, 3, 4));
          if (s.benchmarking()) s.bench(s.tensor({512, 512}), s.integers({512, 512}, 0, 512));
        },
    .reference =
        [](const Tensor& x, const Tensor& target) {
          Numbers r(static_cast<size_t>(x.size(0)));
          each_pair(x, target, [&](size_t row, size_t, size_t, double above) { r[row] += above; });
          return from_span<double>(r, {x.size(0)});
        },
}};

}  // namespace

Tensor detail::multilabel_margin_rows(const Tensor& x, const Tensor& target) {
  return multilabel_margin_rows_op(x, target);
}

}  // namespace strata
