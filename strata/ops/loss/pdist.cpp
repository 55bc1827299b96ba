// Distances of all pairs of rows.

#include <cmath>
#include <vector>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/factory/ranges.h"
#include "strata/ops/index/index.h"
#include "strata/ops/loss/by_hand_inl.h"
#include "strata/ops/loss/loss.h"
#include "strata/ops/loss/pdist_kernel.h"
#include "strata/ops/loss/reduction.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using by_hand::Numbers;

// What has kernels.
template <class On>
bool has_kernel(On, double p) {
  return On::cuda ? p > 0 && std::isfinite(p) : p == 1 || p == 2;
}
int64_t pairs_of(int64_t rows) {
  return rows * (rows - 1) / 2;
}
Cost pairs_cost(const Tensor& x) {
  return {3 * static_cast<double>(pairs_of(x.size(0))) * static_cast<double>(x.size(1)),
          static_cast<double>(x.nbytes() + pairs_of(x.size(0)) * size_of(x.dtype()))};
}

// The differences of all pairs, and which they are.
struct Pairs {
  Tensor first, second, difference;
  explicit Pairs(const Tensor& x) {
    const DeviceScope there(x.device());
    const Tensor at = triu_indices(x.size(0), x.size(0), 1);
    first = at[0], second = at[1];
    difference = index_select(x, 0, first) - index_select(x, 0, second);
  }
};

using Backward4 = Op<Tensor(const Tensor&, const Tensor&, const Tensor&, double)>;
Tensor pdist_backward_composed(const Tensor& g, const Tensor& x, const Tensor& y, double p) {
  const Tensor wide = detail::widened(x);
  if (p == 0 || y.numel() == 0) return zeros_like(x);
  const Pairs pairs(wide);
  const Tensor d = unsqueeze(detail::widened(y), 1), size = abs(pairs.difference), none = d == 0;
  const Tensor safe = where(none, Scalar(1), d);
  Tensor share = unsqueeze(detail::widened(g), 1);
  if (std::isinf(p)) {
    const Tensor largest = (size == d).to(wide.dtype());
    share = share * sign(pairs.difference) * (largest / sum(largest, {1}, true));
  } else if (p == 2) {
    share = share / safe * pairs.difference;
  } else {
    const Tensor zero = size == 0, base = where(zero, Scalar(1), size);
    share = share * sign(pairs.difference) * where(zero, Scalar(0), pow(base, p - 1)) * pow(safe, 1 - p);
  }
  share = where(none, Scalar(0), share);
  const Tensor sums = index_add(zeros_like(wide), 0, pairs.first, share);
  return index_add(sums, 0, pairs.second, -share).to(x.dtype());
}

const Backward4 pdist_backward_op{{
    .schema = "pdist_backward(Tensor g, Tensor x, Tensor y, float p) -> Tensor",
    .shard = "whole",
    .internal = true,
    .doc = "The gradient of pdist: for y = pdist(x, p) the sum over the pairs of g times the derivative of y by x; "
           "nothing flows where y is 0, and equal largest differences share it.",
    .infer =
        [](const Tensor& g, const Tensor& x, const Tensor& y, double) {
          check<ShapeError>(x.dim() == 2 && g.shape() == Shape{pairs_of(x.size(0))} && y.shape() == g.shape(),
                            "pdist_backward", "g is ", g, ", y is ", y, " and x is ", x,
                            ", wanted a number for each pair of rows of [N, M]");
          check<DTypeError>(is_floating(x.dtype()) && g.dtype() == x.dtype() && y.dtype() == x.dtype(),
                            "pdist_backward", "needs one floating dtype, got ", g, ", ", x, " and ", y);
          return like(x);
        },
    .kernels = on_each_device([](auto on, Tensor& gx, const Tensor& g, const Tensor& x, const Tensor& y, double p) {
      if (!has_kernel(on, p)) return void(gx.copy_(pdist_backward_composed(g, x, y, p)));
      if constexpr (on.cuda)
        pdist_backward_cuda(gx, g, x, y, p);
      else
        pdist_backward_cpu(gx, g, x, y, p);
    }),
    .composed = pdist_backward_composed,
    .cost = [](const Tensor&, const Tensor& x, const Tensor&, double) { return pairs_cost(x); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({10}), s.distinct({5, 3}), s.uniform({10}, 1, 2), 2.0);
          s.add(s.tensor({3}), s.distinct({3, 37}), s.uniform({3}, 1, 2), 1.0);
          s.add(s.tensor({2415}), s.distinct({70, 5}), s.uniform({2415}, 1, 2), 2.0)
              .not_differentiable()
              .named("many rows");
          const Tensor lengths = s.uniform({3}, 1, 2);
          lengths.slice(0, 1, 2).fill_(0);
          s.add(s.tensor({3}), s.distinct({3, 4}), lengths, 2.0).not_differentiable().named("equal rows");
          s.add(s.tensor({3}), s.distinct({3, 4}), s.uniform({3}, 1, 2), 3.0).named("another norm");
          s.add(s.tensor({3}), s.distinct({3, 4}), s.uniform({3}, 1, 2), 0.5).named("below 1").not_differentiable();
          s.add(s.tensor({10}), s.distinct({5, 3}), s.uniform({10}, 1, 2), 2.4)
              .not_differentiable()
              .named("a fraction");
          s.add(s.tensor({3}), s.distinct({3, 4}), lengths, 1.5).not_differentiable().named("equal rows, another norm");
          s.invalid<ShapeError>("each pair", s.tensor({3}), s.tensor({5, 3}), s.tensor({3}), 2.0);
        },
    .reference =
        [](const Tensor& g, const Tensor& x, const Tensor& y, double p) {
          const Numbers w = g.to_vector<double>(), v = x.to_vector<double>(), d = y.to_vector<double>();
          const int64_t n = x.size(0), m = x.size(1);
          Numbers r(v.size());
          size_t at = 0;
          for (int64_t i = 0; i < n; ++i)
            for (int64_t j = i + 1; j < n; ++j, ++at)
              for (int64_t k = 0; k < m; ++k) {
                const auto a = static_cast<size_t>(i * m + k), b = static_cast<size_t>(j * m + k);
                if (d[at] == 0) continue;  // nothing flows
                const double e = v[a] - v[b];
                const double t = w[at] * (e < 0 ? -1 : 1) * std::pow(std::abs(e), p - 1) * std::pow(d[at], 1 - p);
                r[a] += t;
                r[b] -= t;
              }
          return from_span<double>(r, x.shape());
        },
}};

const Op<Tensor(const Tensor&, double)> pdist_op{{
    .schema = "pdist(Tensor input, float p=2.0) -> Tensor",
    .shard = "whole",
    .doc =
        "The p-norms of the differences of all pairs of rows i < j of input [N, M], in the order (0, 1), (0, 2), ..: "
        "[N (N - 1) / 2]. ShapeError, and ValueError where p is negative.",
    .example = "assert(pdist(eye(3), 1.0).sum().item() == 6);",
    .infer =
        [](const Tensor& x, double p) {
          check<ShapeError>(x.dim() == 2, "pdist", "input is ", x, ", wanted [N, M]");
          check<DTypeError>(is_floating(x.dtype()), "pdist", "needs a floating input, got ", x);
          check(p >= 0, "pdist", "p must not be negative, got ", p);
          return like(x).with_shape({pairs_of(x.size(0))});
        },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, double p) {
      if (!has_kernel(on, p)) return void(y.copy_(norm(Pairs(detail::widened(x)).difference, p, {1})));
      if constexpr (on.cuda)
        pdist_cuda(y, x, p);
      else
        pdist_cpu(y, x, p);
    }),
    .composed = [](const Tensor& x,
                   double p) { return norm(Pairs(detail::widened(x)).difference, p, {1}).to(x.dtype()); },
    .saves = "input result",
    .backward = [](Backward& b, const Tensor& x, double p) { b.set(0, pdist_backward_op(b.gy(), x, b.y(), p)); },
    .adapt = Adapt::promote_float,
    .autocast = Autocast::full,
    .cost = [](const Tensor& x, double) { return pairs_cost(x); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({5, 3}));
          s.add(s.distinct({4, 3}), 1.0);
          s.add(s.tensor({9, 150})).named("long rows");
          s.add(s.distinct({37, 3})).named("many rows").not_differentiable();
          s.add(s.distinct({3, 18}).t(), 1.0).named("strided");
          s.add(s.distinct({4, 3}), 3.0).named("another norm");
          for (const double p : {0.5, 1.5, 2.4}) s.add(s.distinct({4, 3}), p).not_differentiable();
          s.add(s.distinct({37, 3}), 3.0).named("another norm, many rows").not_differentiable();
          s.add(s.tensor({1, 3})).named("no pair");
          s.invalid<ShapeError>("wanted [N, M]", s.tensor({3}));
          s.invalid<ValueError>("negative", s.tensor({3, 2}), -1.0);
        },
    .reference =
        [](const Tensor& x, double p) {
          const Numbers v = x.to_vector<double>();
          const int64_t n = x.size(0), m = x.size(1);
          Numbers r;
          for (int64_t i = 0; i < n; ++i)
            for (int64_t j = i + 1; j < n; ++j) {
              double sum = 0;
              for (int64_t k = 0; k < m; ++k) sum += std::pow(std::abs(v[i * m + k] - v[j * m + k]), p);
              r.push_back(std::pow(sum, 1 / p));
            }
          return from_span<double>(r, {static_cast<int64_t>(r.size())});
        },
}};

}  // namespace

Tensor pdist(const Tensor& input, double p) {
  return pdist_op(input, p);
}

}  // namespace strata
