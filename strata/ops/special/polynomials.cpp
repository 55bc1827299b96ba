// Records of the orthogonal polynomials: one op behind twelve names.

#include <cmath>

#include "strata/ops/elementwise/records.h"
#include "strata/ops/special/polynomials_kernel.h"
#include "strata/ops/special/special.h"

namespace strata {
namespace {

using Real = long double;
using PolynomialOp = Op<Tensor(const Tensor&, const Tensor&, const std::string&, int64_t)>;

// In the order of polynomials_inl.h's families.
constexpr std::string_view kFamilies[] = {
    "chebyshev_t", "chebyshev_u", "chebyshev_v", "chebyshev_w", "shifted_t",  "shifted_u",
    "shifted_v",   "shifted_w",   "hermite_h",   "hermite_he",  "laguerre_l", "legendre_p",
};
constexpr int64_t kMostDerivatives = 8;  // of the kernel, counting the polynomial itself

int family_of(std::string_view name) {
  for (int i = 0; i < 12; ++i)
    if (kFamilies[i] == name) return i;
  throw ValueError("orthogonal_polynomial", cat("there is no family \"", name, "\""));
}

// ---- references ----

// By the angle, DLMF 18.5, for |x| < 1, and by their values at the ends, DLMF 18.6.
template <class F>
Real of_angle(Real x, Real at_one, Real at_minus_one, F&& f) {
  return x == 1 ? at_one : x == -1 ? at_minus_one : f(std::acos(x));
}
Real reference_t(Real x, Real n) {
  const Real sign = std::fmod(n, 2) == 0 ? 1 : -1;
  return of_angle(x, 1, sign, [&](Real t) { return std::cos(n * t); });
}
Real reference_u(Real x, Real n) {
  const Real sign = std::fmod(n, 2) == 0 ? 1 : -1;
  return of_angle(x, n + 1, sign * (n + 1), [&](Real t) { return std::sin((n + 1) * t) / std::sin(t); });
}
Real reference_v(Real x, Real n) {
  const Real sign = std::fmod(n, 2) == 0 ? 1 : -1;
  return of_angle(x, 1, sign * (2 * n + 1), [&](Real t) { return std::cos((n + 0.5L) * t) / std::cos(t / 2); });
}
Real reference_w(Real x, Real n) {
  const Real sign = std::fmod(n, 2) == 0 ? 1 : -1;
  return of_angle(x, 2 * n + 1, sign, [&](Real t) { return std::sin((n + 0.5L) * t) / std::sin(t / 2); });
}
// Sums of powers, DLMF 18.5.13 and 18.5.12.
Real binomial(Real n, int k) {
  Real c = 1;
  for (int i = 1; i <= k; ++i) c *= (n - k + i) / i;
  return c;
}
Real reference_hermite(Real x, Real n, bool physicists) {
  Real sum = 0;
  for (int m = 0; 2 * m <= n; ++m)
    sum += std::pow(physicists ? -1.0L : -0.5L, m) / std::tgamma(m + 1.0L) / std::tgamma(n - 2 * m + 1) *
           std::pow(physicists ? 2 * x : x, n - 2 * m);
  return sum * std::tgamma(n + 1);
}
Real reference_laguerre(Real x, Real n) {
  Real sum = 0;
  for (int k = 0; k <= n; ++k) sum += binomial(n, k) * std::pow(-x, k) / std::tgamma(k + 1.0L);
  return sum;
}
Real reference_legendre(Real x, Real n) {
  Real sum = 0;
  for (int k = 0; k <= n; ++k) sum += std::pow(binomial(n, k), 2) * std::pow(x - 1, n - k) * std::pow(x + 1, k);
  return sum / std::pow(2.0L, n);
}

void samples_polynomial(Samples& s, double low, double high) {
  s.add(s.uniform({4, 5}, low, high), s.integers({4, 5}, 0, 7));
  s.add(s.uniform({2, 37}, low, high), s.integers({37}, 0, 7));
  s.add(s.tensor({0, 3}), s.integers({3}, 0, 7));
  s.invalid<ShapeError>("do not broadcast", s.tensor({2}), s.integers({3}, 0, 7));
}

// Of each family itself, and its derivative of that number, with orders of that shape.
void samples_of_families(Samples& s, const Shape& orders, int64_t derivative) {
  for (const std::string_view family : kFamilies) {
    s.add(s.uniform({2, 5}, 0.1, 0.9), s.integers({5}, 0, 6), std::string(family));
    s.add(s.uniform({2, 5}, 0.1, 0.9), s.integers(orders, 0, 6), std::string(family), derivative);
  }
}

// Differences of the closed forms of order 0 would be too coarse: the polynomial's own coefficients, from its values at
// n + 1 points (Newton's form), differentiated.
Real reference_of(double x, double order, const std::string& family, int64_t derivative) {
  const int n = static_cast<int>(order), f = family_of(family);
  const auto value = [&](Real at) {
    const Real y = f >= 4 && f < 8 ? 2 * at - 1 : at, o = n;
    switch (f < 8 ? f % 4 : f) {
      case 0:
        return reference_t(y, o);
      case 1:
        return reference_u(y, o);
      case 2:
        return reference_v(y, o);
      case 3:
        return reference_w(y, o);
      case 8:
        return reference_hermite(y, o, true);
      case 9:
        return reference_hermite(y, o, false);
      case 10:
        return reference_laguerre(y, o);
      default:
        return reference_legendre(y, o);
    }
  };
  Real points[8], divided[8], power[8] = {};
  for (int i = 0; i <= n; ++i) divided[i] = value(points[i] = 0.07L + 0.9L * i / (n + 1));
  for (int k = 1; k <= n; ++k)
    for (int i = n; i >= k; --i) divided[i] = (divided[i] - divided[i - 1]) / (points[i] - points[i - k]);
  for (int i = n; i >= 0; --i) {  // power = power * (x - points[i]) + divided[i]
    for (int k = n; k >= 0; --k)
      power[k] = (k > 0 ? power[k - 1] : 0) - points[i] * power[k] + (k == 0 ? divided[i] : 0);
  }
  Real sum = 0;
  for (int k = n; k >= derivative; --k) {
    Real c = power[k];
    for (int64_t i = 0; i < derivative; ++i) c *= k - static_cast<Real>(i);
    sum = sum * x + c;
  }
  return sum;
}

#ifdef STRATA_WITH_CUDA
void whole_order(Tensor& y, const Tensor& x, const Tensor& n, const std::string& family, int64_t derivative) {
  const int of = family_of(family);
  if (derivative > 0 || !polynomials_cuda(y, x, n, of)) map_cuda(Map::polynomial, y, {&x, &n}, {{of, derivative}});
}
#endif

extern const PolynomialOp polynomial_op;

const PolynomialOp polynomial_op{{
    .schema = "orthogonal_polynomial(Tensor x, Tensor n, str family, int derivative=0) -> Tensor",
    .doc =
        "The derivative of that number (0 to 7) in x of the polynomial of order n, of the family chebyshev_t, _u, _v "
        "or _w, shifted_t, _u, _v or _w (of 2x - 1), hermite_h, hermite_he, laguerre_l or legendre_p, by the "
        "recurrence of DLMF 18.9.1. The fraction of n is dropped; a negative order gives 0. ValueError for another "
        "family or number.",
    .infer =
        [](const Tensor& x, const Tensor&, const std::string& family, int64_t derivative) {
          family_of(family);
          check(derivative >= 0 && derivative < kMostDerivatives, "orthogonal_polynomial",
                "the number of derivatives must be from 0 to 7, got ", derivative);
          return like(x);
        },
    .kernels = on_each_device(
        [](auto on, Tensor& y, const Tensor& x, const Tensor& n, const std::string& family, int64_t derivative) {
          map(on, Map::polynomial, y, {&x, &n}, {{family_of(family), derivative}});
        }),
    .saves = "x n",
    .backward =
        [](Backward& b, const Tensor& x, const Tensor& n, const std::string& family, int64_t derivative) {
          if (b.needs(0)) b.set(0, b.gy() * polynomial_op(x, n, family, derivative + 1));
          if (b.needs(1)) b.set(1, no_slope(b.gy()));
        },
    .adapt = Adapt::promote_float,
    .autocast = Autocast::full,
    .cost = [](const Tensor& x, const Tensor& n, const std::string&, int64_t) { return map_cost(100, x, x, n); },
    .samples =
        [](Samples& s) {
          samples_of_families(s, {5}, 2);
          s.invalid<ValueError>("no family", s.tensor({2}), s.integers({2}, 0, 3), "bernstein");
          s.invalid<ValueError>("from 0 to 7", s.tensor({2}), s.integers({2}, 0, 3), "hermite_h", 8);
        },
    .reference = pointwise<reference_of>,
    .tolerance = 8,
    .tolerance_reason = "the recurrence's rounding errors grow with its steps and with the derivatives' factors",
}};

extern const PolynomialOp whole_order_op;
const PolynomialOp whole_order_op{{
    .schema = "orthogonal_polynomial_of_whole(Tensor x, Tensor n, str family, int derivative=0) -> Tensor",
    .internal = true,
    .doc = "orthogonal_polynomial for a floating x and i64 orders, which a card reads as they are.",
    .infer =
        [](const Tensor& x, const Tensor& n, const std::string& family, int64_t derivative) {
          constexpr std::string_view op = "orthogonal_polynomial_of_whole";
          family_of(family);
          check<DTypeError>(is_floating(x.dtype()) && n.dtype() == DType::i64, op, "x is ", x, " and n ", n);
          check(derivative >= 0 && derivative < kMostDerivatives, op,
                "the number of derivatives must be from 0 to 7, got ", derivative);
          return laid_like(x, n);
        },
    .kernels = {.cuda = STRATA_CUDA_KERNEL(whole_order)},
    .composed = [](const Tensor& x, const Tensor& n, const std::string& family,
                   int64_t derivative) { return polynomial_op(x, n, family, derivative); },
    .saves = "x n",
    .backward = [](Backward& b, const Tensor& x, const Tensor& n, const std::string& family,
                   int64_t derivative) { b.set(0, b.gy() * whole_order_op(x, n, family, derivative + 1)); },
    .adapt = Adapt::broadcast,
    .autocast = Autocast::full,
    .cost = [](const Tensor& x, const Tensor& n, const std::string&, int64_t) { return map_cost(100, x, x, n); },
    .samples =
        [](Samples& s) {
          samples_of_families(s, {2, 1}, 1);
          s.add(s.uniform({3, 2}, 0.1, 0.9).t(), s.integers({3}, 0, 6), "hermite_h", 2).named("strided");
          s.invalid<DTypeError>("and n", s.tensor({2}), s.tensor({2}), "hermite_h");
        },
    .reference = pointwise<reference_of>,
    .tolerance = 8,
    .tolerance_reason = "the recurrence's rounding errors grow with its steps and with the derivatives' factors",
}};

template <int Family>
BinaryOp::Record polynomial(BinaryOp::Record r) {
  r.composed = [](const Tensor& x, const Tensor& n) {
    const bool whole = x.device().is_cuda() && is_floating(x.dtype()) && n.dtype() == DType::i64;
    return (whole ? whole_order_op : polynomial_op)(x, n, std::string(kFamilies[Family]), 0);
  };
  r.tolerance = 8;
  r.tolerance_reason = "the recurrence's rounding errors grow with its steps";
  return r;
}
constexpr auto samples_inside = [](Samples& s) { samples_polynomial(s, -0.95, 0.95); };
constexpr auto samples_shifted = [](Samples& s) { samples_polynomial(s, 0.05, 0.95); };
constexpr auto samples_outside = [](Samples& s) { samples_polynomial(s, -2, 2); };

const BinaryOp chebyshev_t_op{polynomial<0>({
    .schema = "chebyshev_polynomial_t(Tensor x, Tensor n) -> Tensor",
    .doc = "Chebyshev's polynomial of the first kind and order n: cos(n acos x). DLMF 18.5.1. The fraction of n is "
           "dropped; a negative order gives 0.",
    .example = "assert(chebyshev_polynomial_t(full({1}, 0.5), full({1}, 2)).item() == -0.5);",
    .samples = samples_inside,
    .reference = pointwise<([](double x, double n) { return reference_t(x, n); })>,
})};
const BinaryOp chebyshev_u_op{polynomial<1>({
    .schema = "chebyshev_polynomial_u(Tensor x, Tensor n) -> Tensor",
    .doc = "Chebyshev's polynomial of the second kind and order n: sin((n + 1) t) / sin(t), x = cos(t). DLMF 18.5.2. "
           "The fraction of n is dropped; a negative order gives 0.",
    .example = "assert(chebyshev_polynomial_u(full({1}, 0.5), full({1}, 1)).item() == 1);",
    .samples = samples_inside,
    .reference = pointwise<([](double x, double n) { return reference_u(x, n); })>,
})};
const BinaryOp chebyshev_v_op{polynomial<2>({
    .schema = "chebyshev_polynomial_v(Tensor x, Tensor n) -> Tensor",
    .doc = "Chebyshev's polynomial of the third kind and order n: cos((n + 1/2) t) / cos(t / 2), x = cos(t). DLMF "
           "18.5.3. The fraction of n is dropped; a negative order gives 0.",
    .example = "assert(chebyshev_polynomial_v(full({1}, 0.5), full({1}, 1)).item() == 0);",
    .samples = samples_inside,
    .reference = pointwise<([](double x, double n) { return reference_v(x, n); })>,
})};
const BinaryOp chebyshev_w_op{polynomial<3>({
    .schema = "chebyshev_polynomial_w(Tensor x, Tensor n) -> Tensor",
    .doc = "Chebyshev's polynomial of the fourth kind and order n: sin((n + 1/2) t) / sin(t / 2), x = cos(t). DLMF "
           "18.5.4. The fraction of n is dropped; a negative order gives 0.",
    .example = "assert(chebyshev_polynomial_w(full({1}, 0.5), full({1}, 1)).item() == 2);",
    .samples = samples_inside,
    .reference = pointwise<([](double x, double n) { return reference_w(x, n); })>,
})};
const BinaryOp shifted_t_op{polynomial<4>({
    .schema = "shifted_chebyshev_polynomial_t(Tensor x, Tensor n) -> Tensor",
    .doc = "chebyshev_polynomial_t of 2x - 1.",
    .example = "assert(shifted_chebyshev_polynomial_t(full({1}, 0.75), full({1}, 1)).item() == 0.5);",
    .samples = samples_shifted,
    .reference = pointwise<([](double x, double n) { return reference_t(2 * static_cast<Real>(x) - 1, n); })>,
})};
const BinaryOp shifted_u_op{polynomial<5>({
    .schema = "shifted_chebyshev_polynomial_u(Tensor x, Tensor n) -> Tensor",
    .doc = "chebyshev_polynomial_u of 2x - 1.",
    .example = "assert(shifted_chebyshev_polynomial_u(full({1}, 0.75), full({1}, 1)).item() == 1);",
    .samples = samples_shifted,
    .reference = pointwise<([](double x, double n) { return reference_u(2 * static_cast<Real>(x) - 1, n); })>,
})};
const BinaryOp shifted_v_op{polynomial<6>({
    .schema = "shifted_chebyshev_polynomial_v(Tensor x, Tensor n) -> Tensor",
    .doc = "chebyshev_polynomial_v of 2x - 1.",
    .example = "assert(shifted_chebyshev_polynomial_v(full({1}, 0.75), full({1}, 1)).item() == 0);",
    .samples = samples_shifted,
    .reference = pointwise<([](double x, double n) { return reference_v(2 * static_cast<Real>(x) - 1, n); })>,
})};
const BinaryOp shifted_w_op{polynomial<7>({
    .schema = "shifted_chebyshev_polynomial_w(Tensor x, Tensor n) -> Tensor",
    .doc = "chebyshev_polynomial_w of 2x - 1.",
    .example = "assert(shifted_chebyshev_polynomial_w(full({1}, 0.75), full({1}, 1)).item() == 2);",
    .samples = samples_shifted,
    .reference = pointwise<([](double x, double n) { return reference_w(2 * static_cast<Real>(x) - 1, n); })>,
})};
const BinaryOp hermite_h_op{polynomial<8>({
    .schema = "hermite_polynomial_h(Tensor x, Tensor n) -> Tensor",
    .doc = "The physicists' Hermite polynomial of order n. DLMF 18.3. The fraction of n is dropped; a negative order "
           "gives 0.",
    .example = "assert(hermite_polynomial_h(full({1}, 0.5), full({1}, 2)).item() == -1);",
    .samples = samples_outside,
    .reference = pointwise<([](double x, double n) { return reference_hermite(x, n, true); })>,
})};
const BinaryOp hermite_he_op{polynomial<9>({
    .schema = "hermite_polynomial_he(Tensor x, Tensor n) -> Tensor",
    .doc = "The probabilists' Hermite polynomial of order n. DLMF 18.3. The fraction of n is dropped; a negative order "
           "gives 0.",
    .example = "assert(hermite_polynomial_he(full({1}, 2.0), full({1}, 2)).item() == 3);",
    .samples = samples_outside,
    .reference = pointwise<([](double x, double n) { return reference_hermite(x, n, false); })>,
})};
const BinaryOp laguerre_l_op{polynomial<10>({
    .schema = "laguerre_polynomial_l(Tensor x, Tensor n) -> Tensor",
    .doc = "Laguerre's polynomial of order n. DLMF 18.3. The fraction of n is dropped; a negative order gives 0.",
    .example = "assert(laguerre_polynomial_l(full({1}, 2.0), full({1}, 1)).item() == -1);",
    .samples = samples_outside,
    .reference = pointwise<([](double x, double n) { return reference_laguerre(x, n); })>,
})};
const BinaryOp legendre_p_op{polynomial<11>({
    .schema = "legendre_polynomial_p(Tensor x, Tensor n) -> Tensor",
    .doc = "Legendre's polynomial of order n. DLMF 18.3. The fraction of n is dropped; a negative order gives 0.",
    .example = "assert(legendre_polynomial_p(full({1}, 0.5), full({1}, 1)).item() == 0.5);",
    .samples = samples_outside,
    .reference = pointwise<([](double x, double n) { return reference_legendre(x, n); })>,
})};

}  // namespace

Tensor chebyshev_polynomial_t(const Tensor& x, const Tensor& n) {
  return chebyshev_t_op(x, n);
}
Tensor chebyshev_polynomial_u(const Tensor& x, const Tensor& n) {
  return chebyshev_u_op(x, n);
}
Tensor chebyshev_polynomial_v(const Tensor& x, const Tensor& n) {
  return chebyshev_v_op(x, n);
}
Tensor chebyshev_polynomial_w(const Tensor& x, const Tensor& n) {
  return chebyshev_w_op(x, n);
}
Tensor shifted_chebyshev_polynomial_t(const Tensor& x, const Tensor& n) {
  return shifted_t_op(x, n);
}
Tensor shifted_chebyshev_polynomial_u(const Tensor& x, const Tensor& n) {
  return shifted_u_op(x, n);
}
Tensor shifted_chebyshev_polynomial_v(const Tensor& x, const Tensor& n) {
  return shifted_v_op(x, n);
}
Tensor shifted_chebyshev_polynomial_w(const Tensor& x, const Tensor& n) {
  return shifted_w_op(x, n);
}
Tensor hermite_polynomial_h(const Tensor& x, const Tensor& n) {
  return hermite_h_op(x, n);
}
Tensor hermite_polynomial_he(const Tensor& x, const Tensor& n) {
  return hermite_he_op(x, n);
}
Tensor laguerre_polynomial_l(const Tensor& x, const Tensor& n) {
  return laguerre_l_op(x, n);
}
Tensor legendre_polynomial_p(const Tensor& x, const Tensor& n) {
  return legendre_p_op(x, n);
}

}  // namespace strata
