// The records of the samplers.

#include "strata/ops/distributions/distributions.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/distributions/distributions_kernel.h"
#include "strata/ops/distributions/distributions_reference_inl.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/naive_inl.h"
#include "strata/ops/reduce/reduce.h"

namespace strata {
namespace {

using sampler::Kind;

constexpr RngKey kSampleKey{42, 7};

// Every element draws from a stretch of a stream that the key names; the generator moves on as for uniform numbers.
uint64_t one_each(const Tensor& x, RngKey) {
  return random_blocks(x.numel());
}

void check_floating(const Tensor& x, std::string_view op) {
  check<DTypeError>(is_floating(x.dtype()), op, "needs a floating dtype, got ", x.dtype());
}

// In f64 whatever y's dtype is, then rounded once. y is row-major.
template <class On>
void sample(On on, Kind kind, RngKey key, Tensor& y, const Tensor& a, const Tensor& b) {
  const auto as = [](const Tensor& t, DType type) { return t.defined() ? t.to(type).contiguous() : t; };
  if constexpr (on.cuda) {
    if (kind == Kind::gamma_slope && y.dtype() != DType::f64)
      sample_cuda(kind, key, y, a.to(y.dtype()), b.to(y.dtype()));  // in any strides
    else
      sample_cuda(kind, key, y, as(a, y.dtype()), as(b, y.dtype()));
  } else {
    Tensor out = empty({y.shape(), DType::f64, y.device(), std::nullopt});
    sample_cpu(kind, key, out, as(a, DType::f64), as(b, DType::f64));
    copy_elements(y, out);
  }
}

template <Kind kind>
constexpr auto of_one = on_each_device([](auto on, Tensor& y, const Tensor& a, RngKey key) {
  sample(on, kind, key, y, a, {});
});

const Op<Tensor(const Tensor&, const Tensor&)> standard_gamma_grad_op{{
    .schema = "standard_gamma_grad(Tensor concentration, Tensor sample) -> Tensor",
    .shard = "elementwise",
    .doc =
        "The derivative of gamma numbers (of rate 1) for their concentration at a fixed share below them: -(dP / da) / "
        "(dP / dx), P being the distribution function (Figurnov et al., arXiv:1805.08498). The arguments broadcast and "
        "promote. NaN for a concentration that is not positive.",
    .example = "assert(std::abs(standard_gamma_grad(ones({1}), ones({1})).item() - 1.1736) < 1e-3);",
    .infer =
        [](const Tensor& a, const Tensor& x) {
          check_floating(a, "standard_gamma_grad");
          return like(a);
        },
    .kernels = on_each_device(
        [](auto on, Tensor& y, const Tensor& a, const Tensor& x) { sample(on, Kind::gamma_slope, {}, y, a, x); }),
    .adapt = Adapt::promote,
    .cost =
        [](const Tensor& a, const Tensor&) {
          return Cost{500.0 * a.numel(), 3.0 * a.nbytes()};
        },
    .samples =
        [](Samples& s) {
          s.add(s.uniform({3, 5}, 1.5, 6), s.uniform({3, 5}, 0.5, 8));
          s.add(s.uniform({4}, 2, 3), s.uniform({4}, 0.01, 0.1)).named("small");
          s.invalid<DTypeError>("floating", s.tensor({3}, DType::i64), s.tensor({3}, DType::i64));
        },
    .reference =
        [](const Tensor& a, const Tensor& x) {
          const std::vector<double> p = a.to_vector<double>(), v = x.to_vector<double>();
          std::vector<double> r;
          for (size_t i = 0; i < p.size(); ++i) {
            const auto central = [&](double h) {
              return (by_distribution::gamma_below(p[i] + h, v[i]) - by_distribution::gamma_below(p[i] - h, v[i])) /
                     (2 * h);
            };
            const double slope = (4 * central(5e-4) - central(1e-3)) / 3;  // Richardson's extrapolation
            r.push_back(-slope / std::exp((p[i] - 1) * std::log(v[i]) - v[i] - std::lgamma(p[i])));
          }
          return from_span<double>(r, a.shape());
        },
    .tolerance = 2e5,
    .tolerance_reason = "the reference differentiates an integral numerically",
}};

extern const Op<Tensor(const Tensor&, RngKey)> standard_gamma_op;
const Op<Tensor(const Tensor&, RngKey)> standard_gamma_op{{
    .schema = "standard_gamma(Tensor concentration, RngKey key) -> Tensor",
    .shard = "whole",
    .doc =
        "Gamma numbers of rate 1 (Marsaglia and Tsang, ACM TOMS 26, 2000); NaN where the concentration is negative or "
        "NaN, 0 where it is 0. Element i depends on key, i and its concentration alone. The gradient is "
        "standard_gamma_grad. DTypeError.",
    .example = "Tensor x = standard_gamma(full({1000}, 3.0)); assert(std::abs(x.mean().item() - 3) < 0.3);",
    .infer =
        [](const Tensor& a, RngKey) {
          check_floating(a, "standard_gamma");
          return like(a);
        },
    .kernels = of_one<Kind::gamma>,
    .saves = "concentration result",
    .backward = [](Backward& b, const Tensor& a, RngKey) { b.set(0, b.gy() * standard_gamma_grad(a, b.y())); },
    .draws = one_each,
    .cost =
        [](const Tensor& a, RngKey) {
          return Cost{300.0 * a.numel(), 2.0 * a.nbytes()};
        },
    .samples =
        [](Samples& s) {
          // The gradient is that at a fixed share, not at fixed draws: differences of two calls do not show it.
          s.add(s.uniform({3, 5}, 0.2, 4), kSampleKey).not_differentiable();
          s.add(s.uniform({0}, 0, 1), kSampleKey).not_differentiable();
          s.invalid<DTypeError>("floating", s.tensor({3}, DType::i64), kSampleKey);
        },
    .reference =
        [](const Tensor& a, RngKey key) {
          const std::vector<double> shape = a.to_vector<double>();
          return by_distribution::tested(
              a, "standard_gamma", [&](const Shape& s) { return standard_gamma_op(expand(a, s), key); },
              [&](double x, size_t i, double) { return by_distribution::gamma_below(shape[i], x); });
        },
}};

extern const Op<Tensor(const Tensor&, RngKey)> poisson_op;
const Op<Tensor(const Tensor&, RngKey)> poisson_op{{
    .schema = "poisson(Tensor rate, RngKey key) -> Tensor",
    .shard = "whole",
    .doc =
        "Numbers of events where `rate` are expected, in rate's dtype: by products of uniform numbers below 10, from "
        "there by transformed rejection (Hoermann, 1993). NaN where the rate is negative or NaN. Element i depends on "
        "key, i and its rate alone. The gradient is taken as 0. DTypeError.",
    .example = "Tensor x = poisson(full({1000}, 4.0)); assert(std::abs(x.mean().item() - 4) < 0.5);",
    .infer =
        [](const Tensor& rate, RngKey) {
          check_floating(rate, "poisson");
          return like(rate);
        },
    .kernels = of_one<Kind::poisson>,
    .draws = one_each,
    .cost =
        [](const Tensor& rate, RngKey) {
          return Cost{300.0 * rate.numel(), 2.0 * rate.nbytes()};
        },
    .samples =
        [](Samples& s) {
          s.add(s.uniform({3, 5}, 0, 30), kSampleKey).not_differentiable();
          s.invalid<DTypeError>("floating", s.tensor({3}, DType::i64), kSampleKey);
        },
    .reference =
        [](const Tensor& rate, RngKey key) {
          const std::vector<double> rates = rate.to_vector<double>();
          return by_distribution::tested(
              rate, "poisson", [&](const Shape& s) { return poisson_op(expand(rate, s), key); },
              [&](double k, size_t i, double part) {
                return by_distribution::whole_below(k, part,
                                                    [&](double j) { return by_distribution::poisson_of(rates[i], j); });
              });
        },
}};

extern const Op<Tensor(const Tensor&, const Tensor&, RngKey)> binomial_op;
const Op<Tensor(const Tensor&, const Tensor&, RngKey)> binomial_op{{
    .schema = "binomial(Tensor count, Tensor prob, RngKey key) -> Tensor",
    .shard = "whole",
    .doc = "Successes of `count` trials of probability `prob`, which broadcast and promote: by waiting times where few "
           "are expected, else by transformed rejection (Hoermann, 1993). NaN where the count is negative or prob no "
           "probability. Element i depends on key, i and its arguments alone. The gradient is taken as 0. DTypeError.",
    .example =
        "Tensor x = binomial(full({1000}, 10.0), full({1000}, 0.5)); assert(std::abs(x.mean().item() - 5) < 0.5);",
    .infer =
        [](const Tensor& count, const Tensor&, RngKey) {
          check_floating(count, "binomial");
          return like(count);
        },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& count, const Tensor& prob, RngKey key) {
      sample(on, Kind::binomial, key, y, count, prob);
    }),
    .draws = [](const Tensor& count, const Tensor& prob,
                RngKey) { return random_blocks(std::max(count.numel(), prob.numel())); },
    .adapt = Adapt::promote,
    .cost =
        [](const Tensor& count, const Tensor&, RngKey) {
          return Cost{300.0 * count.numel(), 3.0 * count.nbytes()};
        },
    .samples =
        [](Samples& s) {
          s.add(s.integers({3, 5}, 0, 40, s.dtype()), s.uniform({3, 5}, 0, 1), kSampleKey).not_differentiable();
          s.invalid<DTypeError>("floating", s.tensor({3}, DType::i64), s.tensor({3}, DType::i64), kSampleKey);
        },
    .reference =
        [](const Tensor& count, const Tensor& prob, RngKey key) {
          const std::vector<double> n = count.to_vector<double>(), p = prob.to_vector<double>();
          return by_distribution::tested(
              count, "binomial", [&](const Shape& s) { return binomial_op(expand(count, s), expand(prob, s), key); },
              [&](double k, size_t i, double part) {
                return by_distribution::whole_below(
                    k, part, [&](double j) { return by_distribution::binomial_of(n[i], p[i], j); });
              });
        },
}};

const Op<Tensor(const Tensor&, RngKey)> dirichlet_op{{
    .schema = "dirichlet(Tensor concentration, RngKey key) -> Tensor",
    .doc =
        "Shares that sum to 1 over the last dimension, of density proportional to the product of x_i^(a_i - 1): gamma "
        "numbers over their sum. ShapeError, DTypeError.",
    .example = "Tensor x = dirichlet(ones({4, 3})); assert(allclose(sum(x, {-1}), ones({4})));",
    .composed =
        [](const Tensor& a, RngKey key) {
          check_floating(a, "dirichlet");
          check<ShapeError>(a.dim() > 0, "dirichlet", "concentration is ", a, "; it needs a dimension");
          const Tensor wide = is_reduced_floating(a.dtype()) ? a.to(DType::f32) : a;
          const Tensor g = clamp_min(standard_gamma_op(wide, key), 1e-37);
          return (g / sum(g, {-1}, true)).to(a.dtype());
        },
    .draws = one_each,
    .samples =
        [](Samples& s) {
          s.add(s.uniform({3, 5}, 0.5, 4), kSampleKey).not_differentiable();
          s.invalid<ShapeError>("needs a dimension", s.uniform({}, 1, 2), kSampleKey);
        },
    .reference =
        [](const Tensor& a, RngKey key) {
          naive::Array y(standard_gamma_op(a, key));
          naive::rows(naive::Array(y), -1, [&](const std::vector<double>& row, const Dims& place) {
            double total = 0;
            for (const double v : row) total += v;
            for (size_t i = 0; i < row.size(); ++i)
              y[naive::moved(place, a.dim() - 1, static_cast<int64_t>(i))] = row[i] / total;
          });
          return Tensor(y);
        },
}};

}  // namespace

Tensor standard_gamma(const Tensor& concentration, Generator& g) {
  return standard_gamma_op.drawn(g, concentration, {});
}
Tensor standard_gamma_grad(const Tensor& concentration, const Tensor& sample) {
  return standard_gamma_grad_op(concentration, sample);
}
Tensor poisson(const Tensor& rate, Generator& g) {
  return poisson_op.drawn(g, rate, {});
}
Tensor binomial(const Tensor& count, const Tensor& prob, Generator& g) {
  return binomial_op.drawn(g, count, prob, {});
}
Tensor dirichlet(const Tensor& concentration, Generator& g) {
  return dirichlet_op.drawn(g, concentration, {});
}

}  // namespace strata
