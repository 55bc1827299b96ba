// Records of the Bessel and Airy functions and of sinc.

#include <cmath>

#include "strata/ops/elementwise/records.h"
#include "strata/ops/special/special.h"

namespace strata {
namespace {

using Real = long double;
using OrderOp = Op<Tensor(const Tensor&, int64_t)>;
using ScaledOrderOp = Op<Tensor(const Tensor&, int64_t, bool)>;

constexpr double kPi = 3.14159265358979323846;
constexpr int64_t kMostOrder = 16;

void check_order(std::string_view op, int64_t n) {
  check(n >= 0 && n <= kMostOrder, op, "the order must be from 0 to ", kMostOrder, ", got ", n);
}
/// A function of one argument whose kernel is a row with constants.
UnaryOp::Record of_order(UnaryOp::Record r) {
  r.infer = [](const Tensor& x) { return laid_like(x); };
  r.inplace = true;
  r.adapt = Adapt::promote_float;
  r.autocast = Autocast::full;
  r.cost = [](const Tensor& x) { return map_cost(50, x, x); };
  if (!r.samples) r.samples = samples_smooth;
  return r;
}
template <Map F, int N, int Option = 0>
constexpr auto row = on_each_device([](auto on, Tensor& y, const Tensor& x) {
  map(on, F, y, {&x}, {{N, Option}});
});

// ---- references: means over a period by the trapezoid rule, which is exact to the last bits with so many points

// With |x| waves in the period it takes as many points, and some to be exact.
template <class F>
Real mean_over_period(Real x, F&& f) {
  const int points = 64 + 2 * static_cast<int>(std::min(std::abs(x), 1e4L));
  Real sum = 0;
  for (int k = 0; k < points; ++k) sum += f(2 * M_PIl * (k + 0.5L) / points);
  return sum / points;
}
// DLMF 10.32.3, scaled by exp(-|x|) where asked.
Real reference_i(int64_t n, Real x, bool scaled) {
  const Real less = scaled ? std::abs(x) : 0;
  return mean_over_period(
      x, [&](Real t) { return std::exp(x * std::cos(t) - less) * std::cos(static_cast<Real>(n) * t); });
}
// DLMF 10.9.2
Real reference_j(int64_t n, Real x) {
  return mean_over_period(x, [&](Real t) { return std::cos(static_cast<Real>(n) * t - x * std::sin(t)); });
}
// The power series, DLMF 10.53.1, whatever x: long double has the digits that it loses.
Real reference_spherical(int64_t n, Real x) {
  Real first = 1, term = 1, sum = 0;
  for (int64_t k = 1; k <= n; ++k) first *= x / (2 * static_cast<Real>(k) + 1);
  for (int k = 1; k < 60; ++k) {
    sum += term;
    term *= -x * x / (2 * k * (2 * (static_cast<Real>(n) + k) + 1));
  }
  return first * sum;
}
// DLMF 10.32.9: the integral of exp(-x cosh t) cosh(n t), which the trapezoid rule takes as well.
Real reference_k(int64_t n, Real x, bool scaled) {
  if (x <= 0) return x == 0 ? HUGE_VALL : NAN;
  constexpr Real step = 1 / 16.0L;
  Real sum = 0.5L * std::exp(scaled ? 0 : -x);
  for (int k = 1; k < 16 * 6; ++k) {
    const Real t = k * step;
    sum += std::exp((scaled ? x : 0) - x * std::cosh(t)) * std::cosh(static_cast<Real>(n) * t);
  }
  return sum * step;
}
// Neumann's series, DLMF 10.8.1.
Real reference_y(int64_t n, Real x) {
  if (x <= 0) return x == 0 ? -HUGE_VALL : NAN;
  const Real square = x * x / 4;
  Real term = 1, sum = 0, psi = -0.57721566490153286061L;
  for (int k = 0; k < 80; ++k) {
    const Real next = psi + 1 / (k + 1.0L);
    sum += term * (n == 0 ? 2 * psi : psi + next);
    psi = next;
    term *= -square / ((k + 1.0L) * (k + 1.0L + static_cast<Real>(n)));
  }
  const Real logs = 2 / M_PIl * std::log(x / 2) * reference_j(n, x);
  return n == 0 ? logs - sum / M_PIl : logs - 2 / (M_PIl * x) - x / 2 * sum / M_PIl;
}
// Maclaurin's series of Ai, DLMF 9.4.1, or of its derivative.
Real reference_airy(Real x, bool derivative) {
  Real f = 1, g = x, df = 0, dg = 1, a = 1, b = x;
  for (int k = 1; k < 80; ++k) {
    a *= x * x * x / ((3 * k - 1.0L) * (3 * k));
    b *= x * x * x / ((3 * k) * (3 * k + 1.0L));
    f += a;
    g += b;
    df += x == 0 ? 0 : a * 3 * k / x;
    dg += x == 0 ? 0 : b * (3 * k + 1) / x;
  }
  constexpr Real c1 = 0.355028053887817239260063186004183L, c2 = 0.258819403792806798405183560189204L;
  return derivative ? c1 * df - c2 * dg : c1 * f - c2 * g;
}

// ---- the first kind ----

const OrderOp bessel_jn_op{{
    .schema = "bessel_jn(Tensor x, int n) -> Tensor",
    .doc = "The Bessel function of the first kind and order n, 0 to 16; ValueError for another. DLMF 10.2.",
    .infer =
        [](const Tensor& x, int64_t n) {
          check_order("bessel_jn", n);
          return laid_like(x);
        },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, int64_t n) {
      map(on, Map::bessel_j, y, {&x}, {{static_cast<double>(n)}});
    }),
    .saves = "x",
    .backward =
        [](Backward& b, const Tensor& x, int64_t n) {  // DLMF 10.6.1
          const Tensor above = bessel_jn_op(x, n + 1);
          b.set(0, b.gy() * (n == 0 ? -above : (bessel_jn_op(x, n - 1) - above) * 0.5));
        },
    .adapt = Adapt::promote_float,
    .autocast = Autocast::full,
    .cost = [](const Tensor& x, int64_t) { return map_cost(50, x, x); },
    .samples =
        [](Samples& s) {
          for (const int n : {0, 1, 4}) s.add(s.uniform({3, 5}, -9, 9), n);
          s.add(s.tensor({2, 0}), 2);
          s.invalid<ValueError>("from 0 to 16", s.tensor({2}), 17);
        },
    .reference = pointwise<([](double x, int64_t n) { return reference_j(n, x); })>,
}};

const UnaryOp bessel_j0_op{of_order({
    .schema = "bessel_j0(Tensor x) -> Tensor",
    .doc = "The Bessel function of the first kind and order 0. DLMF 10.2.",
    .example = "assert(bessel_j0(zeros({1})).item() == 1);",
    .kernels = row<Map::bessel_j, 0>,
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, -(b.gy() * bessel_jn_op(x, 1))); },
    .reference = pointwise<([](double x) { return reference_j(0, x); })>,
})};
const UnaryOp bessel_j1_op{of_order({
    .schema = "bessel_j1(Tensor x) -> Tensor",
    .doc = "The Bessel function of the first kind and order 1. DLMF 10.2.",
    .example = "assert(bessel_j1(zeros({1})).item() == 0);",
    .kernels = row<Map::bessel_j, 1>,
    .saves = "x result",
    .backward =
        [](Backward& b, const Tensor& x) {  // DLMF 10.6.2; 1/2 at 0
          const Tensor none = x == 0, ratio = b.y() / where(none, Scalar(1), x);
          b.set(0, b.gy() * (bessel_jn_op(x, 0) - where(none, Scalar(0.5), ratio)));
        },
    .reference = pointwise<([](double x) { return reference_j(1, x); })>,
})};

// ---- the modified functions of the first kind ----

const ScaledOrderOp bessel_in_op{{
    .schema = "bessel_in(Tensor x, int n, bool scaled=false) -> Tensor",
    .doc =
        "The modified Bessel function of the first kind and order n, 0 to 16 (ValueError for another); scaled: times "
        "exp(-|x|). DLMF 10.25.2.",
    .infer =
        [](const Tensor& x, int64_t n, bool) {
          check_order("bessel_in", n);
          return laid_like(x);
        },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, int64_t n, bool scaled) {
      map(on, Map::bessel_i, y, {&x}, {{static_cast<double>(n), scaled}});
    }),
    .saves = "x result",
    .backward =
        [](Backward& b, const Tensor& x, int64_t n, bool scaled) {  // DLMF 10.29.1
          const Tensor above = bessel_in_op(x, n + 1, scaled);
          const Tensor slope = n == 0 ? above : (bessel_in_op(x, n - 1, scaled) + above) * 0.5;
          b.set(0, b.gy() * (scaled ? slope - sign(x) * b.y() : slope));
        },
    .adapt = Adapt::promote_float,
    .autocast = Autocast::full,
    .cost = [](const Tensor& x, int64_t, bool) { return map_cost(50, x, x); },
    .samples =
        [](Samples& s) {
          for (const int n : {0, 1, 4}) {
            s.add(s.uniform({3, 5}, -6, 6), n);
            s.add(s.off_grid({3, 5}), n, true);
          }
          for (const int n : {0, 1, 2})
            s.add(s.uniform({9}, -20, 20), n, true).named("both sides of 8").not_differentiable();
          s.add(s.tensor({2, 0}), 2);
          s.invalid<ValueError>("from 0 to 16", s.tensor({2}), 17);
        },
    .reference = pointwise<([](double x, int64_t n, bool scaled) { return reference_i(n, x, scaled); })>,
}};

const UnaryOp i0_op{of_order({
    .schema = "i0(Tensor x) -> Tensor",
    .doc = "The modified Bessel function of the first kind and order 0. DLMF 10.25.2.",
    .example = "assert(i0(zeros({1})).item() == 1);",
    .kernels = row<Map::bessel_i, 0>,
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, b.gy() * bessel_in_op(x, 1, false)); },
    .reference = pointwise<([](double x) { return reference_i(0, x, false); })>,
})};
const UnaryOp i0e_op{of_order({
    .schema = "i0e(Tensor x) -> Tensor",
    .doc = "exp(-|x|) i0(x). The gradient at 0 is 0.",
    .example = "assert(i0e(zeros({1})).item() == 1);",
    .kernels = row<Map::bessel_i, 0, 1>,
    .saves = "x result",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, b.gy() * (bessel_in_op(x, 1, true) - sign(x) * b.y())); },
    .samples = samples_kinked,
    .reference = pointwise<([](double x) { return reference_i(0, x, true); })>,
})};
const UnaryOp i1_op{of_order({
    .schema = "i1(Tensor x) -> Tensor",
    .doc = "The modified Bessel function of the first kind and order 1. DLMF 10.25.2.",
    .example = "assert(i1(zeros({1})).item() == 0);",
    .kernels = row<Map::bessel_i, 1>,
    .saves = "x",
    .backward =
        [](Backward& b, const Tensor& x) {
          b.set(0, b.gy() * (bessel_in_op(x, 0, false) + bessel_in_op(x, 2, false)) * 0.5);
        },
    .reference = pointwise<([](double x) { return reference_i(1, x, false); })>,
})};
const UnaryOp i1e_op{of_order({
    .schema = "i1e(Tensor x) -> Tensor",
    .doc = "exp(-|x|) i1(x).",
    .example = "assert(i1e(zeros({1})).item() == 0);",
    .kernels = row<Map::bessel_i, 1, 1>,
    .saves = "x result",
    .backward =
        [](Backward& b, const Tensor& x) {
          const Tensor slope = (bessel_in_op(x, 0, true) + bessel_in_op(x, 2, true)) * 0.5;
          b.set(0, b.gy() * (slope - sign(x) * b.y()));
        },
    .samples = samples_kinked,
    .reference = pointwise<([](double x) { return reference_i(1, x, true); })>,
})};
const UnaryOp modified_bessel_i0_op{{
    .schema = "modified_bessel_i0(Tensor x) -> Tensor",
    .doc = "i0 by its other name.",
    .example = "assert(modified_bessel_i0(zeros({1})).item() == 1);",
    .composed = [](const Tensor& x) { return i0(x); },
    .samples = samples_smooth,
    .reference = pointwise<([](double x) { return reference_i(0, x, false); })>,
}};
const UnaryOp modified_bessel_i1_op{{
    .schema = "modified_bessel_i1(Tensor x) -> Tensor",
    .doc = "i1 by its other name.",
    .example = "assert(modified_bessel_i1(zeros({1})).item() == 0);",
    .composed = [](const Tensor& x) { return i1(x); },
    .samples = samples_smooth,
    .reference = pointwise<([](double x) { return reference_i(1, x, false); })>,
}};

// ---- the second kind ----

const UnaryOp bessel_y0_op{of_order({
    .schema = "bessel_y0(Tensor x) -> Tensor",
    .doc = "The Bessel function of the second kind and order 0; -inf at 0, NaN below. DLMF 10.2.",
    .example = "assert(std::abs(bessel_y0(ones({1})).item() - 0.08825696) < 1e-6);",
    .kernels = row<Map::bessel_y, 0>,
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, -(b.gy() * bessel_y1(x))); },
    .samples = samples_between<50, 900>,
    .reference = pointwise<([](double x) { return reference_y(0, x); })>,
})};
const UnaryOp bessel_y1_op{of_order({
    .schema = "bessel_y1(Tensor x) -> Tensor",
    .doc = "The Bessel function of the second kind and order 1; -inf at 0, NaN below. DLMF 10.2.",
    .example = "assert(std::abs(bessel_y1(ones({1})).item() + 0.78121282) < 1e-6);",
    .kernels = row<Map::bessel_y, 1>,
    .saves = "x result",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, b.gy() * (bessel_y0(x) - b.y() / x)); },
    .samples = samples_between<50, 900>,
    .reference = pointwise<([](double x) { return reference_y(1, x); })>,
})};
const UnaryOp modified_bessel_k0_op{of_order({
    .schema = "modified_bessel_k0(Tensor x) -> Tensor",
    .doc = "The modified Bessel function of the second kind and order 0; inf at 0, NaN below. DLMF 10.25.3.",
    .example = "assert(std::abs(modified_bessel_k0(ones({1})).item() - 0.42102444) < 1e-6);",
    .kernels = row<Map::bessel_k, 0>,
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, -(b.gy() * modified_bessel_k1(x))); },
    .samples = samples_between<50, 900>,
    .reference = pointwise<([](double x) { return reference_k(0, x, false); })>,
})};
const UnaryOp modified_bessel_k1_op{of_order({
    .schema = "modified_bessel_k1(Tensor x) -> Tensor",
    .doc = "The modified Bessel function of the second kind and order 1; inf at 0, NaN below. DLMF 10.25.3.",
    .example = "assert(std::abs(modified_bessel_k1(ones({1})).item() - 0.60190723) < 1e-6);",
    .kernels = row<Map::bessel_k, 1>,
    .saves = "x result",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, -(b.gy() * (modified_bessel_k0(x) + b.y() / x))); },
    .samples = samples_between<50, 900>,
    .reference = pointwise<([](double x) { return reference_k(1, x, false); })>,
})};
const UnaryOp scaled_modified_bessel_k0_op{of_order({
    .schema = "scaled_modified_bessel_k0(Tensor x) -> Tensor",
    .doc = "exp(x) modified_bessel_k0(x).",
    .example = "assert(std::abs(scaled_modified_bessel_k0(ones({1})).item() - 1.14446308) < 1e-6);",
    .kernels = row<Map::bessel_k, 0, 1>,
    .saves = "x result",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, b.gy() * (b.y() - scaled_modified_bessel_k1(x))); },
    .samples = samples_between<50, 3000>,
    .reference = pointwise<([](double x) { return reference_k(0, x, true); })>,
})};
const UnaryOp scaled_modified_bessel_k1_op{of_order({
    .schema = "scaled_modified_bessel_k1(Tensor x) -> Tensor",
    .doc = "exp(x) modified_bessel_k1(x).",
    .example = "assert(std::abs(scaled_modified_bessel_k1(ones({1})).item() - 1.63615349) < 1e-6);",
    .kernels = row<Map::bessel_k, 1, 1>,
    .saves = "x result",
    .backward = [](Backward& b,
                   const Tensor& x) { b.set(0, b.gy() * (b.y() - scaled_modified_bessel_k0(x) - b.y() / x)); },
    .samples = samples_between<50, 3000>,
    .reference = pointwise<([](double x) { return reference_k(1, x, true); })>,
})};

// ---- sin(x) / x ----

const OrderOp spherical_bessel_jn_op{{
    .schema = "spherical_bessel_jn(Tensor x, int n) -> Tensor",
    .doc =
        "The spherical Bessel function of the first kind and order n, 0 to 16; ValueError for another. DLMF 10.47.3.",
    .infer =
        [](const Tensor& x, int64_t n) {
          check_order("spherical_bessel_jn", n);
          return laid_like(x);
        },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, int64_t n) {
      map(on, Map::spherical_bessel_j, y, {&x}, {{static_cast<double>(n)}});
    }),
    .saves = "x",
    .backward =
        [](Backward& b, const Tensor& x, int64_t n) {  // DLMF 10.51.2
          const Tensor above = spherical_bessel_jn_op(x, n + 1);
          if (n == 0) return b.set(0, -(b.gy() * above));
          const double all = 2 * static_cast<double>(n) + 1, share = static_cast<double>(n) / all;
          b.set(0, b.gy() * (spherical_bessel_jn_op(x, n - 1) * share - above * (1 - share)));
        },
    .adapt = Adapt::promote_float,
    .autocast = Autocast::full,
    .cost = [](const Tensor& x, int64_t) { return map_cost(50, x, x); },
    .samples =
        [](Samples& s) {
          for (const int n : {0, 1, 4}) s.add(s.uniform({3, 5}, -9, 9), n);
          s.add(s.tensor({2, 0}), 2);
          s.invalid<ValueError>("from 0 to 16", s.tensor({2}), 17);
        },
    .reference = pointwise<([](double x, int64_t n) { return reference_spherical(n, x); })>,
}};

const UnaryOp spherical_bessel_j0_op{of_order({
    .schema = "spherical_bessel_j0(Tensor x) -> Tensor",
    .doc = "sin(x) / x, the spherical Bessel function of order 0; 1 at 0.",
    .example = "assert(spherical_bessel_j0(zeros({1})).item() == 1);",
    .kernels = row<Map::spherical_bessel_j, 0>,
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, -(b.gy() * spherical_bessel_jn_op(x, 1))); },
    .reference = pointwise<([](double x) { return x == 0 ? 1 : std::sin(static_cast<Real>(x)) / x; })>,
})};
const UnaryOp sinc_op{of_order({
    .schema = "sinc(Tensor x) -> Tensor",
    .doc = "sin(pi x) / (pi x); 1 at 0, and 0 exactly at the other integers.",
    .example = "assert(sinc(zeros({1})).item() == 1 && sinc(full({1}, 3.0)).item() == 0);",
    .kernels = map_unary<Map::sinc>,
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, b.gy() * spherical_bessel_jn_op(x * kPi, 1) * -kPi); },
    .reference = pointwise<([](double x) { return x == 0 ? 1 : std::sin(M_PIl * x) / (M_PIl * x); })>,
})};

// ---- Airy's function ----

const UnaryOp airy_ai_derivative_op{of_order({
    .schema = "airy_ai_derivative(Tensor x) -> Tensor",
    .doc = "The derivative of Airy's Ai: the gradient of airy_ai. DLMF 9.2.",
    .kernels = row<Map::airy, 1>,
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, b.gy() * x * airy_ai(x)); },  // y'' = x y
    .reference = pointwise<([](double x) { return reference_airy(x, true); })>,
})};
const UnaryOp airy_ai_op{of_order({
    .schema = "airy_ai(Tensor x) -> Tensor",
    .doc = "Airy's function Ai. DLMF 9.2.",
    .example = "assert(std::abs(airy_ai(zeros({1})).item() - 0.35502805) < 1e-6);",
    .kernels = row<Map::airy, 0>,
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, b.gy() * airy_ai_derivative_op(x)); },
    .reference = pointwise<([](double x) { return reference_airy(x, false); })>,
})};

}  // namespace

Tensor bessel_j0(const Tensor& x) {
  return bessel_j0_op(x);
}
Tensor bessel_j1(const Tensor& x) {
  return bessel_j1_op(x);
}
Tensor bessel_y0(const Tensor& x) {
  return bessel_y0_op(x);
}
Tensor bessel_y1(const Tensor& x) {
  return bessel_y1_op(x);
}
Tensor i0(const Tensor& x) {
  return i0_op(x);
}
Tensor i0e(const Tensor& x) {
  return i0e_op(x);
}
Tensor i1(const Tensor& x) {
  return i1_op(x);
}
Tensor i1e(const Tensor& x) {
  return i1e_op(x);
}
Tensor modified_bessel_i0(const Tensor& x) {
  return modified_bessel_i0_op(x);
}
Tensor modified_bessel_i1(const Tensor& x) {
  return modified_bessel_i1_op(x);
}
Tensor modified_bessel_k0(const Tensor& x) {
  return modified_bessel_k0_op(x);
}
Tensor modified_bessel_k1(const Tensor& x) {
  return modified_bessel_k1_op(x);
}
Tensor scaled_modified_bessel_k0(const Tensor& x) {
  return scaled_modified_bessel_k0_op(x);
}
Tensor scaled_modified_bessel_k1(const Tensor& x) {
  return scaled_modified_bessel_k1_op(x);
}
Tensor spherical_bessel_j0(const Tensor& x) {
  return spherical_bessel_j0_op(x);
}
Tensor sinc(const Tensor& x) {
  return sinc_op(x);
}
Tensor airy_ai(const Tensor& x) {
  return airy_ai_op(x);
}

}  // namespace strata
