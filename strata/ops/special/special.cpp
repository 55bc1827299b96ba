// Records of the gamma, zeta and error functions and what is near them.

#include "strata/ops/special/special.h"

#include <cmath>

#include "strata/core/layout.h"
#include "strata/core/op.h"
#include "strata/ops/copy/copy_kernels.h"
#include "strata/ops/elementwise/records.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/special/mvlgamma_kernel.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

constexpr double kSqrtPi = 1.77245385090551602730, kSqrtTwoPi = 2.50662827463100050242, kPi = 3.14159265358979323846;
constexpr double kSqrtHalf = 0.70710678118654752440;

/// A function of one argument, computed in double; its gradient is made in full precision too.
template <Map F>
UnaryOp::Record special(UnaryOp::Record r) {
  r.autocast = Autocast::full;
  r.cost = [](const Tensor& x) { return map_cost(50, x, x); };
  return unary<F>(r);
}

// ---- references: series, integrals and inversions in long double, slow and unlike the kernels

using Real = long double;

// Stirling's series from 30 on, after dividing the recurrence out; below 0 by reflection.
Real reference_lgamma(Real x) {
  if (x <= 0 && x == std::floor(x)) return HUGE_VALL;
  if (x < 0.5L) return std::log(std::abs(M_PIl / std::sin(M_PIl * x))) - reference_lgamma(1 - x);
  Real shift = 0;
  for (; x < 30; x += 1) shift += std::log(x);
  const Real r = 1 / (x * x);
  const Real tail = (1 / 12.0L - r * (1 / 360.0L - r * (1 / 1260.0L - r * (1 / 1680.0L - r / 1188.0L)))) / x;
  return (x - 0.5L) * std::log(x) - x + 0.5L * std::log(2 * M_PIl) + tail - shift;
}
// The sum over k of 1 / (x + k)^s, x > 0, with what 60 terms leave as an integral.
Real reference_zeta(Real s, Real x) {
  constexpr int terms = 60;
  Real sum = 0;
  for (int k = terms - 1; k >= 0; --k) sum += std::pow(x + k, -s);
  const Real end = x + terms;
  const Real last = std::pow(end, -s);
  return sum + last * (end / (s - 1) + 0.5L + s / (12 * end) - s * (s + 1) * (s + 2) / (720 * end * end * end) +
                       s * (s + 1) * (s + 2) * (s + 3) * (s + 4) / (30240 * std::pow(end, 5)));
}
// -euler + the sum of 1/(k+1) - 1/(k+x), DLMF 5.7.6; by reflection below 0.
Real reference_digamma(Real x) {
  if (x <= 0 && x == std::floor(x)) return x == 0 ? -HUGE_VALL : NAN;
  if (x < 0) return reference_digamma(1 - x) - M_PIl / std::tan(M_PIl * x);
  constexpr int terms = 60;
  Real sum = 0;
  for (int k = terms - 1; k >= 0; --k) sum += (x - 1) / ((k + 1.0L) * (k + x));
  const Real a = terms + 1, b = terms + x;
  return -0.57721566490153286061L + sum + std::log(b / a) + 0.5L * (1 / a - 1 / b) + (1 / (a * a) - 1 / (b * b)) / 12 -
         (std::pow(a, -4) - std::pow(b, -4)) / 120 + (std::pow(a, -6) - std::pow(b, -6)) / 252;
}
// P(a, x) by the power series: all terms positive.
Real reference_igamma(Real a, Real x) {
  Real term = 1, sum = 1;
  for (int n = 1; n < 600 && term > 1e-25L * sum; ++n) sum += term *= x / (a + n);
  return sum * std::exp(a * std::log(x) - x - reference_lgamma(a + 1));
}
// Halving an interval until it is one number.
template <class F>
Real bisect(Real low, Real high, F&& below) {
  for (int i = 0; i < 100; ++i) {
    const Real middle = low + (high - low) / 2;
    (below(middle) ? low : high) = middle;
  }
  return low;
}

// ---- gamma ----

const UnaryOp lgamma_op{special<Map::lgamma>({
    .schema = "lgamma(Tensor x) -> Tensor",
    .doc = "The logarithm of |Gamma(x)|; infinite at 0 and the negative integers. DLMF 5.2.",
    .example = "assert(std::abs(lgamma(full({1}, 5.0)).item() - std::log(24.0)) < 1e-6);",
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, b.gy() * digamma(x)); },
    .samples =
        [](Samples& s) {
          samples_positive(s);
          s.add(s.off_grid({3, 5}));
        },
    .reference = pointwise<([](double x) { return reference_lgamma(x); })>,
})};

const UnaryOp digamma_op{special<Map::digamma>({
    .schema = "digamma(Tensor x) -> Tensor",
    .doc = "The derivative of lgamma; NaN at the negative integers, -inf at 0 and inf at -0. DLMF 5.2, 5.11.2.",
    .example = "assert(std::abs(digamma(ones({1})).item() + 0.57721566) < 1e-6);",
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, b.gy() * polygamma(1, x)); },
    .samples =
        [](Samples& s) {
          samples_positive(s);
          s.add(s.off_grid({3, 5}));
        },
    .reference = pointwise<([](double x) { return reference_digamma(x); })>,
})};

using PolygammaOp = Op<Tensor(int64_t, const Tensor&)>;
const PolygammaOp polygamma_op{{
    .schema = "polygamma(int n, Tensor x) -> Tensor",
    .doc = "The n-th derivative of digamma: (-1)^(n+1) n! zeta(n + 1, x), DLMF 5.15.1. ValueError for a negative n.",
    .example = "assert(std::abs(polygamma(1, ones({1})).item() - 1.6449341) < 1e-6);",
    .infer =
        [](int64_t n, const Tensor& x) {
          check(n >= 0, "polygamma", "n is the number of derivatives and cannot be negative, got ", n);
          check(n < INT64_MAX, "polygamma", "its gradient is of order n + 1, which does not fit in 64 bits: n is ", n);
          return laid_like(x);
        },
    .kernels = on_each_device([](auto on, Tensor& y, int64_t n, const Tensor& x) {
      if (n == 0) return map(on, Map::digamma, y, {&x});
      map(on, Map::polygamma, y, {&x}, {{static_cast<double>(n), n % 2 == 1 ? 1.0 : -1.0}});
    }),
    .saves = "x",
    .backward = [](Backward& b, int64_t n, const Tensor& x) { b.set(0, b.gy() * polygamma(n + 1, x)); },
    .adapt = Adapt::promote_float,
    .autocast = Autocast::full,
    .cost = [](int64_t, const Tensor& x) { return map_cost(100, x, x); },
    .samples =
        [](Samples& s) {
          s.add(0, s.uniform({3, 5}, 0.5, 4));
          s.add(1, s.uniform({3, 5}, 0.5, 4));
          s.add(3, s.uniform({2, 37}, 0.8, 4));
          s.add(1, s.off_grid({3, 5}));
          s.add(2, s.uniform({9}, 90, 120)).named("both sides of 100");
          s.add(2, s.tensor({2, 0}));
          s.invalid<ValueError>("cannot be negative", -1, s.tensor({2}));
        },
    .reference = pointwise<([](int64_t n, double x) {
      if (n == 0) return reference_digamma(x);
      Real sum = 0, y = x, factorial = 1;
      for (; y < 0; y += 1) sum += std::pow(y, -n - 1.0L);
      for (int64_t k = 2; k <= n; ++k) factorial *= static_cast<Real>(k);
      return (n % 2 == 1 ? 1 : -1) * factorial * (sum + reference_zeta(n + 1.0L, y));
    })>,
}};

double constant_of_dimensions(int64_t p) {
  return static_cast<double>(p * (p - 1)) / 4 * std::log(kPi);
}
// mvlgamma in f64.
Tensor sum_of_dimensions(const Tensor& x, int64_t p) {
  const Tensor wide = x.to(DType::f64);
  Tensor sum = lgamma(wide) + constant_of_dimensions(p);
  for (int64_t j = 1; j < p; ++j) sum = sum + lgamma(wide - static_cast<double>(j) / 2);
  return sum;
}

using MvlgammaOp = Op<Tensor(const Tensor&, int64_t)>;
const MvlgammaOp mvlgamma_op{{
    .schema = "mvlgamma(Tensor x, int p) -> Tensor",
    .shard = "elementwise",
    .inplace_by_copy = true,
    .doc = "The logarithm of the gamma function of p dimensions: p (p - 1) / 4 log(pi) plus the sum of "
           "lgamma(x - j / 2) for j from 0 to p - 1; DLMF 35.3.4. ValueError unless 1 <= p <= 1024.",
    .example = "Tensor x = full({1}, 3.0); assert(std::abs(mvlgamma(x, 1).item() - lgamma(x).item()) < 1e-6);",
    .infer =
        [](const Tensor& x, int64_t p) {
          check(p >= 1 && p <= 1024, "mvlgamma", "p must be from 1 to 1024, got ", p);
          return laid_like(x).with_dtype(is_floating(x.dtype()) ? x.dtype() : default_dtype());
        },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, int64_t p) {
      const auto given = [&] { return x.to(y.dtype()); };
      if (p == 1) {
        const Tensor v = given();
        return map(on, Map::lgamma, y, {&v});
      }
      if constexpr (on.cuda)
        mvlgamma_cuda(y, given(), p, constant_of_dimensions(p));
      else
        copy_elements(on, y, sum_of_dimensions(x, p));
    }),
    .composed =
        [](const Tensor& x, int64_t p) {
          const DType t = is_floating(x.dtype()) ? x.dtype() : default_dtype();
          return p == 1 ? lgamma(x.to(t)) : sum_of_dimensions(x, p).to(t);
        },
    .samples =
        [](Samples& s) {
          s.add(s.uniform({3, 5}, 2, 6), 1);
          s.add(s.uniform({3, 5}, 2, 6), 3);
          s.add(s.tensor({2, 0}), 2);
          s.invalid<ValueError>("from 1 to 1024", s.tensor({2}), 0);
        },
    .reference = pointwise<([](double x, int64_t p) {
      Real sum = static_cast<Real>(p * (p - 1)) / 4 * std::log(M_PIl);
      for (int64_t j = 0; j < p; ++j) sum += reference_lgamma(x - static_cast<Real>(j) / 2);
      return sum;
    })>,
}};

const BinaryOp zeta_op{{
    .schema = "zeta(Tensor a, Tensor b) -> Tensor",
    .doc = "Hurwitz's zeta function: the sum of (b + k)^-a over k >= 0, by Euler and Maclaurin's formula, DLMF 25.11. "
           "Infinite at a = 1 and where b is 0 or a negative integer; NaN for a < 1, and for other negative b unless "
           "a is whole. The gradient is that in b; AutogradError where a wants one.",
    .example = "assert(std::abs(zeta(full({1}, 2.0), ones({1})).item() - 1.6449341) < 1e-6);",
    .infer = [](const Tensor& x, const Tensor& b) { return laid_like(x, b); },
    .kernels = map_binary<Map::zeta>,
    .saves = "a:b b:b",
    .backward =
        [](Backward& b, const Tensor& x, const Tensor& q) {
          if (b.needs(0)) throw AutogradError("zeta", "there is no rule for the gradient in a, only for that in b");
          b.set(1, b.gy() * -x * zeta(x + 1, q));
        },
    .adapt = Adapt::promote_float,
    .autocast = Autocast::full,
    .cost = [](const Tensor& x, const Tensor& q) { return map_cost(200, x, x, q); },
    .samples =
        [](Samples& s) {
          s.add(s.uniform({3, 5}, 2, 6), s.uniform({3, 5}, 0.8, 4)).not_differentiable();
          s.add(s.uniform({2, 37}, 1.5, 3), s.uniform({2, 1}, 0.8, 4)).not_differentiable();
          s.add(s.tensor({0, 3}), s.tensor({3})).not_differentiable();
          s.invalid<ShapeError>("do not broadcast", s.tensor({2}), s.tensor({3}));
        },
    .reference = pointwise<([](double x, double q) { return reference_zeta(x, q); })>,
}};

// The density of the gamma distribution, which is what P's gradient in x is.
Tensor gamma_density(const Tensor& a, const Tensor& x) {
  return exp(xlogy(a - 1, x) - x - lgamma(a));
}
template <bool Upper>
BinaryOp::Record incomplete_gamma(BinaryOp::Record r) {
  r.infer = [](const Tensor& a, const Tensor& b) { return laid_like(a, b); };
  r.kernels = on_each_device([](auto on, Tensor& y, const Tensor& a, const Tensor& x) {
    map(on, Map::igamma, y, {&a, &x}, {{Upper}});
  });
  r.saves = "a:b b:b";
  r.backward = [](Backward& b, const Tensor& a, const Tensor& x) {
    if (b.needs(0))
      throw AutogradError(Upper ? "igammac" : "igamma", "there is no rule for the gradient in a, only for that in b");
    const Tensor g = b.gy() * gamma_density(a, x);
    b.set(1, Upper ? -g : g);
  };
  r.adapt = Adapt::promote_float;
  r.autocast = Autocast::full;
  r.cost = [](const Tensor& a, const Tensor& x) { return map_cost(200, a, a, x); };
  r.samples = [](Samples& s) {
    s.add(s.uniform({3, 5}, 0.3, 6), s.uniform({3, 5}, 0.2, 8)).not_differentiable();
    s.add(s.uniform({2, 37}, 15, 60), s.uniform({2, 1}, 10, 70)).named("large").not_differentiable();
    s.add(s.tensor({0, 3}), s.tensor({3})).not_differentiable();
    s.invalid<ShapeError>("do not broadcast", s.tensor({2}), s.tensor({3}));
  };
  return r;
}
const BinaryOp igamma_op{incomplete_gamma<false>({
    .schema = "igamma(Tensor a, Tensor b) -> Tensor",
    .inplace_by_copy = true,
    .doc = "The regularised lower incomplete gamma function P(a, b), DLMF 8.2.4. NaN for negative arguments. The "
           "gradient is that in b; AutogradError where a wants one.",
    .example =
        "Tensor p = igamma(ones({1}), full({1}, 2.0)); assert(std::abs(p.item() - (1 - std::exp(-2.0))) < 1e-6);",
    .reference = pointwise<([](double a, double x) { return reference_igamma(a, x); })>,
})};
const BinaryOp igammac_op{incomplete_gamma<true>({
    .schema = "igammac(Tensor a, Tensor b) -> Tensor",
    .inplace_by_copy = true,
    .doc = "The regularised upper incomplete gamma function Q(a, b) = 1 - P(a, b), DLMF 8.2.4. NaN for negative "
           "arguments. The gradient is that in b; AutogradError where a wants one.",
    .example = "assert(std::abs(igammac(ones({1}), full({1}, 2.0)).item() - std::exp(-2.0)) < 1e-6);",
    .reference = pointwise<([](double a, double x) { return 1 - reference_igamma(a, x); })>,
})};

// ---- error functions ----

const UnaryOp erfinv_op{special<Map::erfinv>({
    .schema = "erfinv(Tensor x) -> Tensor",
    .doc = "The inverse of erf; infinite at -1 and 1, NaN beyond. DLMF 7.17.",
    .example = "assert(std::abs(erfinv(erf(full({1}, 0.5))).item() - 0.5) < 1e-6);",
    .saves = "result",
    .backward = [](Backward& b, const Tensor&) { b.set(0, b.gy() * exp(square(b.y())) * (kSqrtPi / 2)); },
    .samples = samples_between<-90, 90>,
    .reference = pointwise<([](double x) {
      if (std::abs(x) >= 1) return std::abs(x) == 1 ? x * HUGE_VALL : Real(NAN);
      return bisect(-7, 7, [&](Real y) { return std::erf(y) < x; });
    })>,
})};

const UnaryOp erfcx_op{special<Map::erfcx>({
    .schema = "erfcx(Tensor x) -> Tensor",
    .doc = "exp(x^2) erfc(x), accurate where the factors overflow and underflow. DLMF 7.2.3.",
    .example = "assert(erfcx(zeros({1})).item() == 1);",
    .saves = "x result",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, b.gy() * (x * b.y() * 2 - 2 / kSqrtPi)); },
    .samples =
        [](Samples& s) {
          samples_between<-200, 400>(s);
          s.add(s.uniform({40}, 4, 100)).named("large");
        },
    .reference =
        pointwise<([](double x) { return std::exp(static_cast<Real>(x) * x) * std::erfc(static_cast<Real>(x)); })>,
})};

const UnaryOp ndtr_op{special<Map::ndtr>({
    .schema = "ndtr(Tensor x) -> Tensor",
    .doc = "The share of a standard normal distribution below x: erfc(-x / sqrt(2)) / 2.",
    .example = "assert(ndtr(zeros({1})).item() == 0.5);",
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, b.gy() * exp(square(x) * -0.5) / kSqrtTwoPi); },
    .reference = pointwise<([](double x) { return std::erfc(-x / std::sqrt(2.0L)) / 2; })>,
})};

const UnaryOp ndtri_op{special<Map::ndtri>({
    .schema = "ndtri(Tensor x) -> Tensor",
    .doc = "The inverse of ndtr, the normal distribution's quantile; infinite at 0 and 1, NaN beyond.",
    .example = "assert(ndtri(full({1}, 0.5)).item() == 0);",
    .saves = "result",
    .backward = [](Backward& b, const Tensor&) { b.set(0, b.gy() * exp(square(b.y()) * 0.5) * kSqrtTwoPi); },
    .samples = samples_between<5, 95>,
    .reference = pointwise<([](double x) {
      if (x <= 0 || x >= 1) return x == 0 ? -HUGE_VALL : x == 1 ? HUGE_VALL : Real(NAN);
      return bisect(-40, 40, [&](Real y) { return std::erfc(-y / std::sqrt(2.0L)) / 2 < x; });
    })>,
})};

const UnaryOp log_ndtr_op{special<Map::log_ndtr>({
    .schema = "log_ndtr(Tensor x) -> Tensor",
    .doc = "log ndtr(x), also where ndtr underflows or is all but 1.",
    .example = "assert(std::abs(log_ndtr(zeros({1})).item() + std::log(2.0)) < 1e-6);",
    .saves = "x",
    .backward =
        [](Backward& b, const Tensor& x) {
          // The density over the share below is 2 / sqrt(2 pi) over erfcx(-x / sqrt(2)), which neither underflows on
          // the left nor loses digits on the right; where it overflows, the slope is 0.
          const Tensor wide = is_reduced_floating(x.dtype()) ? x.to(DType::f32) : x;
          const Tensor none = wide > (wide.dtype() == DType::f64 ? 37.5 : 13.0);
          const Tensor scaled = erfcx(where(none, 0, wide) * -kSqrtHalf);
          b.set(0, where(none, 0, b.gy().to(wide.dtype()) / scaled * (2 / kSqrtTwoPi)).to(x.dtype()));
        },
    .samples =
        [](Samples& s) {
          samples_smooth(s);
          s.add(s.uniform({40}, -30, -6)).named("tail");
        },
    .reference = pointwise<([](double x) { return std::log(std::erfc(-x / std::sqrt(2.0L)) / 2); })>,
})};

// ---- logarithms ----

const UnaryOp entr_op{special<Map::entr>({
    .schema = "entr(Tensor x) -> Tensor",
    .doc = "-x log x; 0 at 0, -inf below.",
    .example = "assert(entr(ones({2})).sum().item() == 0);",
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, b.gy() * (-log(x) - 1)); },
    .samples = samples_positive,
    .reference =
        pointwise<([](double x) { return x < 0    ? -HUGE_VALL
                                         : x == 0 ? 0
                                                  : -x * std::log(static_cast<Real>(x)); })>,
})};

using LogitBackwardOp = Op<Tensor(const Tensor&, const Tensor&, double)>;
const LogitBackwardOp logit_backward_op{{
    .schema = "logit_backward(Tensor g, Tensor x, float eps) -> Tensor",
    .internal = true,
    .doc =
        "g / (x (1 - x)), the gradient of logit: 0 outside [eps, 1 - eps], or for a negative eps NaN outside [0, 1].",
    .infer = [](const Tensor& g, const Tensor& x, double) { return like_if(g, kFloats, "logit_backward", x); },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& g, const Tensor& x, double eps) {
      map(on, Map::logit_backward, y, {&g, &x}, {{eps}});
    }),
    .saves = "g:x x",
    .backward =
        [](Backward& b, const Tensor& g, const Tensor& x, double eps) {
          if (b.needs(0)) b.set(0, logit_backward(b.gy(), x, eps));
          // The derivative of 1 / (x (1 - x)) is (2 x - 1) / (x (1 - x))^2: the gradient of the gradient once more.
          if (b.needs(1)) b.set(1, logit_backward(logit_backward(b.gy() * g * (2 * x - 1), x, eps), x, eps));
        },
    .adapt = Adapt::promote,
    .cost = [](const Tensor& g, const Tensor& x, double) { return map_cost(5, g, g, x); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), s.uniform({3, 5}, 0.05, 0.95), -1.0);
          s.add(s.tensor({2, 37}), s.uniform({2, 37}, 0.05, 0.95), 0.01);
          s.add(s.tensor({2, 37}), s.uniform({2, 37}, -0.5, 1.5), 0.1).not_differentiable();
        },
    .reference = pointwise<([](double g, double x, double eps) {
      if (eps >= 0) return x >= eps && x <= 1 - eps ? g / (x * (1 - x)) : 0;
      return x >= 0 && x <= 1 ? g / (x * (1 - x)) : NAN;
    })>,
}};

using LogitOp = Op<Tensor(const Tensor&, std::optional<double>)>;
const LogitOp logit_op{{
    .schema = "logit(Tensor x, float? eps=None) -> Tensor",
    .doc =
        "log(x / (1 - x)), the inverse of sigmoid, x limited to [eps, 1 - eps] where eps is given (the gradient is 0 "
        "where that changes x); NaN outside [0, 1] without it. ValueError for a negative eps.",
    .example = "assert(logit(full({1}, 0.5)).item() == 0);",
    .infer =
        [](const Tensor& x, std::optional<double> eps) {
          check(!eps || *eps >= 0, "logit", "eps must not be negative, got ", eps.value_or(0));
          return laid_like(x);
        },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, std::optional<double> eps) {
      map(on, Map::logit, y, {&x}, {{eps.value_or(-1)}});
    }),
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x,
                   std::optional<double> eps) { b.set(0, logit_backward(b.gy(), x, eps.value_or(-1))); },
    .inplace = true,
    .adapt = Adapt::promote_float,
    .autocast = Autocast::full,
    .cost = [](const Tensor& x, std::optional<double>) { return map_cost(50, x, x); },
    .samples =
        [](Samples& s) {
          s.add(s.uniform({3, 5}, 0.05, 0.95));
          s.add(s.uniform({2, 37}, 0.05, 0.95), 0.01);
          s.add(s.uniform({2, 37}, -0.5, 1.5), 0.1).not_differentiable();
          s.add(s.tensor({2, 0}));
          s.invalid<ValueError>("must not be negative", s.tensor({2}), -0.1);
        },
    .reference = pointwise<([](double x, std::optional<double> eps) {
      const Real v = eps ? std::min(std::max<Real>(x, *eps), 1 - static_cast<Real>(*eps)) : x;
      return std::log(v / (1 - v));
    })>,
}};

const BinaryOp xlog1py_op{{
    .schema = "xlog1py(Tensor a, Tensor b) -> Tensor",
    .doc = "a * log1p(b), 0 where a is 0; NaN where b is NaN.",
    .example = "assert(xlog1py(zeros({1}), full({1}, -1.0)).item() == 0);",
    .infer = [](const Tensor& a, const Tensor& b) { return laid_like(a, b); },
    .kernels = map_binary<Map::xlog1py>,
    .saves = "a b",
    .backward =
        [](Backward& bw, const Tensor& a, const Tensor& b) {
          if (bw.needs(0)) bw.set(0, where(logical_and(a == 0, b <= -1), 0, bw.gy() * log1p(b)));
          if (bw.needs(1)) bw.set(1, bw.gy() * a / (b + 1));
        },
    .inplace = true,
    .adapt = Adapt::promote_float,
    .autocast = Autocast::full,
    .cost = [](const Tensor& a, const Tensor& b) { return map_cost(30, a, a, b); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), s.uniform({3, 5}, -0.7, 4));
          s.add(s.tensor({2, 37}), s.uniform({}, -0.7, 4));
          s.add(s.tensor({0, 3}), s.tensor({3}));
        },
    .reference = pointwise<([](double a, double b) { return a == 0 ? 0 : a * std::log(1 + static_cast<Real>(b)); })>,
}};

}  // namespace

Tensor lgamma(const Tensor& x) {
  return lgamma_op(x);
}
Tensor digamma(const Tensor& x) {
  return digamma_op(x);
}
Tensor polygamma(int64_t n, const Tensor& x) {
  return polygamma_op(n, x);
}
Tensor mvlgamma(const Tensor& x, int64_t p) {
  return mvlgamma_op(x, p);
}
Tensor zeta(const Tensor& x, const Tensor& q) {
  return zeta_op(x, q);
}
Tensor igamma(const Tensor& a, const Tensor& x) {
  return igamma_op(a, x);
}
Tensor igammac(const Tensor& a, const Tensor& x) {
  return igammac_op(a, x);
}
Tensor erfinv(const Tensor& x) {
  return erfinv_op(x);
}
Tensor erfcx(const Tensor& x) {
  return erfcx_op(x);
}
Tensor ndtr(const Tensor& x) {
  return ndtr_op(x);
}
Tensor ndtri(const Tensor& x) {
  return ndtri_op(x);
}
Tensor log_ndtr(const Tensor& x) {
  return log_ndtr_op(x);
}
Tensor entr(const Tensor& x) {
  return entr_op(x);
}
Tensor logit_backward(const Tensor& g, const Tensor& x, double eps) {
  return logit_backward_op(g, x, eps);
}
Tensor logit(const Tensor& x, std::optional<double> eps) {
  return logit_op(x, eps);
}
Tensor xlog1py(const Tensor& a, const Tensor& b) {
  return xlog1py_op(a, b);
}

}  // namespace strata
