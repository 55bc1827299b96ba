// Records of powers, extremes and other functions of two and three tensors.

#include <cmath>

#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/records.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

// An expanded gradient, as a mean's is, has few numbers of its own: they are multiplied once each.
bool is_spread(const Tensor& g) {
  for (int64_t d = 0; d < g.dim(); ++d)
    if (g.strides()[d] == 0 && g.shape()[d] > 1) return true;
  return false;
}
Tensor scaled_then_spread(const Tensor& g, Scalar by) {
  Tensor own = g;
  for (int64_t d = 0; d < g.dim(); ++d)
    if (g.strides()[d] == 0 && g.shape()[d] > 1) own = slice(own, d, 0, 1);
  return expand(own * by, g.shape());
}

using TernaryOp = Op<Tensor(const Tensor&, const Tensor&, const Tensor&)>;
using ScaledTernaryOp = Op<Tensor(const Tensor&, const Tensor&, const Tensor&, Scalar)>;

// ---- powers ----

const BinaryOp pow_op{binary<Map::pow>({
    .schema = "pow(Tensor a, Tensor b) -> Tensor",
    .doc = "a to the power b, elementwise. An integer to a negative integer power is 0 unless the base is 1 or -1.",
    .infer = [](const Tensor& a, const Tensor& b) { return like_if(a, kNumbers, "pow", b); },
    .saves = "a b result",
    .backward =
        [](Backward& bw, const Tensor& a, const Tensor& b) {
          if (bw.needs(0)) bw.set(0, bw.gy() * where(b == 0, 0, b * pow(a, b - 1)));
          // 0^b stays 0 for every b > 0, although log(0) is infinite; and at b = 0, too, the slope is that of the right
          // side.
          if (bw.needs(1))
            bw.set(1, bw.gy() * where(a == 0, where(b >= 0, zeros_like(b), full_like(b, -INFINITY)), bw.y() * log(a)));
        },
    .autocast = Autocast::full,
    .cost = [](const Tensor& a, const Tensor& b) { return map_cost(30, a, a, b); },
    .samples =
        [](Samples& s) {
          s.add(s.uniform({3, 5}, 0.3, 3), s.tensor({3, 5}));
          s.add(s.uniform({3, 1}, 0.3, 3), s.tensor({37}));
          s.add(s.tensor({0, 3}), s.tensor({3}));
          s.invalid<ShapeError>("do not broadcast", s.tensor({2, 3}), s.tensor({4}));
        },
    .reference = pointwise<([](double a, double b) { return std::pow(a, b); })>,
})};

using PowScalarOp = Op<Tensor(const Tensor&, Scalar)>;
const PowScalarOp pow_scalar_op{{
    .schema = "pow_scalar(Tensor x, Scalar exponent) -> Tensor",
    .doc = "x to a fixed power; pow(x, exponent). ValueError for an integer tensor to a negative integer power.",
    .infer =
        [](const Tensor& x, Scalar e) {
          check(is_floating(x.dtype()) || e.to_double() >= 0, "pow", "integers to a negative integer power (",
                e.to_double(), ") are not integers; convert to a floating dtype");
          return like_if(x, kNumbers, "pow");
        },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, Scalar e) {
      const double p = is_floating(x.dtype()) ? e.to_double() : NAN;
      if (p == 0)
        fill_elements(y, 1);
      else if (p == 2)
        map(on, Map::square, y, {&x});
      else if (p == 0.5)
        map(on, Map::sqrt, y, {&x});
      else if (p == -0.5)
        map(on, Map::rsqrt, y, {&x});
      else if (p == -1)
        map(on, Map::reciprocal, y, {&x});
      else
        map(on, Map::pow_scalar, y, {&x}, {{e}});
    }),
    .saves = "x",
    .backward =
        [](Backward& b, const Tensor& x, Scalar e) {
          if (e.to_double() == 0) return b.set(0, no_slope(b.gy()));
          const Scalar less = e.to_double() - 1;
          const Tensor slope = less.to_double() == 1 ? x : pow(x, less);
          if (is_spread(b.gy())) return b.set(0, scaled_then_spread(b.gy(), e) * slope);
          b.set(0, b.gy() * slope * e);
        },
    .inplace = true,
    .autocast = Autocast::full,
    .dtypes = kNumbers,
    .cost = [](const Tensor& x, Scalar) { return map_cost(30, x, x); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), Scalar(2));
          s.add(s.tensor({3, 5}), Scalar(3));
          if (is_floating(s.dtype())) {
            s.add(s.off_grid({3, 5}), Scalar(-1));
            for (double e : {0.5, -0.5, 1.7}) s.add(s.uniform({2, 37}, 0.3, 3), Scalar(e));
            s.add(s.tensor({3}), Scalar(0));
          } else {
            s.invalid<ValueError>("negative integer power", s.tensor({2}), Scalar(-1));
          }
        },
    .reference = pointwise<([](double x, Scalar e) { return std::pow(x, e.to_double()); })>,
}};

using ScalarPowOp = Op<Tensor(Scalar, const Tensor&)>;
const ScalarPowOp scalar_pow_op{{
    .schema = "scalar_pow(Scalar base, Tensor x) -> Tensor",
    .doc = "A fixed base to the power x; pow(base, x). The gradient of 0^x is 0 for x >= 0, and infinite below.",
    .infer = [](Scalar, const Tensor& x) { return laid_like(x); },
    .kernels = on_each_device([](auto on, Tensor& y, Scalar base, const Tensor& x) {
      if (base.to_double() == 2)
        map(on, Map::exp2, y, {&x});
      else
        map(on, Map::scalar_pow, y, {&x}, {{base}});
    }),
    .saves = "result",
    .backward =
        [](Backward& b, Scalar base, const Tensor&) {
          const double v = base.to_double();
          if (v != 0) return b.set(0, b.gy() * b.y() * std::log(v));
          // 0^x is 0 or 1 for x >= 0, where its slope is that of the right side, as pow's of tensors is; below it grows
          // without a bound.
          b.set(0, b.gy() * where(strata::abs(b.y()) <= 1, 0, b.y() * std::log(v)));
        },
    .adapt = Adapt::promote_float,
    .autocast = Autocast::full,
    .cost = [](Scalar, const Tensor& x) { return map_cost(30, x, x); },
    .samples =
        [](Samples& s) {
          s.add(Scalar(2), s.tensor({3, 5}));
          s.add(Scalar(1.5), s.tensor({2, 37}));
        },
    .reference = pointwise<([](Scalar base, double x) { return std::pow(base.to_double(), x); })>,
}};

// ---- the larger, the smaller ----

// The share of each at a tie is one half.
Tensor winner(const Tensor& g, const Tensor& mine, const Tensor& other, bool largest) {
  const Tensor wins = largest ? gt(mine, other) : lt(mine, other);
  return where(wins, g, where(eq(mine, other), g * 0.5, 0));
}

const BinaryOp maximum_op{binary<Map::maximum>({
    .schema = "maximum(Tensor a, Tensor b) -> Tensor",
    .doc = "The larger of a and b; NaN if either is. At a tie each gets half the gradient.",
    .saves = "a b",
    .backward =
        [](Backward& bw, const Tensor& a, const Tensor& b) {
          if (bw.needs(0)) bw.set(0, winner(bw.gy(), a, b, true));
          if (bw.needs(1)) bw.set(1, winner(bw.gy(), b, a, true));
        },
    .dtypes = kAllTypes,
    .samples = samples_distinct,
    .reference = pointwise<([](double a, double b) { return a < b ? b : a; })>,
})};

const BinaryOp minimum_op{binary<Map::minimum>({
    .schema = "minimum(Tensor a, Tensor b) -> Tensor",
    .doc = "The smaller of a and b; NaN if either is. At a tie each gets half the gradient.",
    .saves = "a b",
    .backward =
        [](Backward& bw, const Tensor& a, const Tensor& b) {
          if (bw.needs(0)) bw.set(0, winner(bw.gy(), a, b, false));
          if (bw.needs(1)) bw.set(1, winner(bw.gy(), b, a, false));
        },
    .dtypes = kAllTypes,
    .samples = samples_distinct,
    .reference = pointwise<([](double a, double b) { return a < b ? a : b; })>,
})};

const BinaryOp fmax_op{binary<Map::fmax>({
    .schema = "fmax(Tensor a, Tensor b) -> Tensor",
    .doc = "The larger of a and b, ignoring NaN where the other is a number. At a tie a gets the gradient.",
    .infer = [](const Tensor& a, const Tensor& b) { return like_if(a, kNumbers, "fmax", b); },
    .saves = "a b",
    .backward =
        [](Backward& bw, const Tensor& a, const Tensor& b) {
          const Tensor first = logical_or(ge(a, b), isnan(b));
          if (bw.needs(0)) bw.set(0, where(first, bw.gy(), 0));
          if (bw.needs(1)) bw.set(1, where(first, 0, bw.gy()));
        },
    .dtypes = kNumbers,
    .samples = samples_distinct,
    .reference = pointwise<([](double a, double b) { return std::fmax(a, b); })>,
})};

const BinaryOp fmin_op{binary<Map::fmin>({
    .schema = "fmin(Tensor a, Tensor b) -> Tensor",
    .doc = "The smaller of a and b, ignoring NaN where the other is a number. At a tie a gets the gradient.",
    .infer = [](const Tensor& a, const Tensor& b) { return like_if(a, kNumbers, "fmin", b); },
    .saves = "a b",
    .backward =
        [](Backward& bw, const Tensor& a, const Tensor& b) {
          const Tensor first = logical_or(le(a, b), isnan(b));
          if (bw.needs(0)) bw.set(0, where(first, bw.gy(), 0));
          if (bw.needs(1)) bw.set(1, where(first, 0, bw.gy()));
        },
    .dtypes = kNumbers,
    .samples = samples_distinct,
    .reference = pointwise<([](double a, double b) { return std::fmin(a, b); })>,
})};

// ---- functions of two ----

const BinaryOp atan2_op{binary<Map::atan2>(
    {
        .schema = "atan2(Tensor a, Tensor b) -> Tensor",
        .aliases = "arctan2",
        .doc = "The angle of the point (b, a) in (-pi, pi]. Its gradient at (0, 0) is 0.",
        .saves = "a b",
        .backward =
            [](Backward& bw, const Tensor& a, const Tensor& b) {
              const Tensor length = square(a) + square(b);
              const Tensor scaled = bw.gy() / where(length == 0, 1, length);  // at (0, 0), which has no slope: 0
              if (bw.needs(0)) bw.set(0, scaled * b);
              if (bw.needs(1)) bw.set(1, -(scaled * a));
            },
        .autocast = Autocast::promote,
        .samples = samples_quotient,
        .reference = pointwise<([](double a, double b) { return std::atan2(a, b); })>,
    },
    Adapt::promote_float)};

const BinaryOp hypot_op{binary<Map::hypot>(
    {
        .schema = "hypot(Tensor a, Tensor b) -> Tensor",
        .doc = "sqrt(a^2 + b^2), without overflow on the way.",
        .saves = "a:a b:b result",
        .backward =
            [](Backward& bw, const Tensor& a, const Tensor& b) {
              const Tensor scaled = bw.gy() / bw.y();
              if (bw.needs(0)) bw.set(0, scaled * a);
              if (bw.needs(1)) bw.set(1, scaled * b);
            },
        .samples = samples_quotient,
        .reference = pointwise<([](double a, double b) {
          return std::sqrt(static_cast<long double>(a) * a + static_cast<long double>(b) * b);
        })>,
    },
    Adapt::promote_float)};

const BinaryOp logaddexp_op{binary<Map::logaddexp>(
    {
        .schema = "logaddexp(Tensor a, Tensor b) -> Tensor",
        .doc = "log(exp(a) + exp(b)), without overflow on the way.",
        .saves = "a b",
        .backward =
            [](Backward& bw, const Tensor& a, const Tensor& b) {
              const Tensor d = a - b;
              if (bw.needs(0)) bw.set(0, bw.gy() * sigmoid(d));
              if (bw.needs(1)) bw.set(1, bw.gy() * sigmoid(-d));
            },
        .reference = pointwise<([](double a, double b) {
          return std::log(std::exp(static_cast<long double>(a)) + std::exp(static_cast<long double>(b)));
        })>,
    },
    Adapt::promote_float)};

const BinaryOp xlogy_op{
    binary<Map::xlogy>({
                           .schema = "xlogy(Tensor a, Tensor b) -> Tensor",
                           .doc = "a * log(b), 0 where a is 0; NaN where b is NaN.",
                           .saves = "a b",
                           .backward =
                               [](Backward& bw, const Tensor& a, const Tensor& b) {
                                 // 0 where a is 0 and b has no logarithm, as the function is there.
                                 if (bw.needs(0)) bw.set(0, where(logical_and(a == 0, b <= 0), 0, bw.gy() * log(b)));
                                 if (bw.needs(1)) bw.set(1, bw.gy() * a / b);
                               },
                           .samples =
                               [](Samples& s) {
                                 s.add(s.tensor({3, 5}), s.uniform({3, 5}, 0.3, 4));
                                 s.add(s.tensor({2, 37}), s.uniform({}, 0.3, 4));
                               },
                           .reference = pointwise<([](double a, double b) { return a == 0 ? 0 : a * std::log(b); })>,
                       },
                       Adapt::promote_float)};

// ---- functions of three ----

void samples_three(Samples& s) {
  s.add(s.tensor({3, 5}), s.tensor({3, 5}), s.tensor({3, 5}));
  s.add(s.tensor({3, 1}), s.tensor({37}), s.tensor({}));
  s.add(s.tensor({0, 2}), s.tensor({2}), s.tensor({0, 2}));
  s.invalid<ShapeError>("do not broadcast", s.tensor({2}), s.tensor({3}), s.tensor({3}));
}

const TernaryOp lerp_op{{
    .schema = "lerp(Tensor a, Tensor b, Tensor weight) -> Tensor",
    .doc = "a + weight * (b - a), exact at weight 0 and 1.",
    .infer = [](const Tensor& a, const Tensor& b, const Tensor& c) { return like_if(a, kFloats, "lerp", b, c); },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& a, const Tensor& b, const Tensor& w) {
      map(on, Map::lerp, y, {&a, &b, &w});
    }),
    .saves = "a:weight b:weight weight",
    .backward =
        [](Backward& bw, const Tensor& a, const Tensor& b, const Tensor& w) {
          if (bw.needs(0)) bw.set(0, bw.gy() * (1 - w));
          if (bw.needs(1)) bw.set(1, bw.gy() * w);
          if (bw.needs(2)) bw.set(2, bw.gy() * (b - a));
        },
    .inplace = true,
    .adapt = Adapt::promote,
    .cost = [](const Tensor& a, const Tensor& b, const Tensor& w) { return map_cost(3, a, a, b, w); },
    .samples = samples_three,
    .reference = pointwise<([](double a, double b, double w) { return a + w * (b - a); })>,
}};

const ScaledTernaryOp addcmul_op{{
    .schema = "addcmul(Tensor x, Tensor a, Tensor b, Scalar value=1) -> Tensor",
    .doc = "x + value * a * b.",
    .infer = [](const Tensor& x, const Tensor& a, const Tensor& b,
                Scalar) { return like_if(x, kNumbers, "addcmul", a, b); },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, const Tensor& a, const Tensor& b, Scalar v) {
      map(on, Map::addcmul, y, {&x, &a, &b}, {{v}});
    }),
    .saves = "a:b b:a",
    .backward =
        [](Backward& bw, const Tensor&, const Tensor& a, const Tensor& b, Scalar v) {
          if (bw.needs(0)) bw.set(0, bw.gy());
          if (bw.needs(1)) bw.set(1, scaled(bw.gy() * b, v));
          if (bw.needs(2)) bw.set(2, scaled(bw.gy() * a, v));
        },
    .inplace = true,
    .adapt = Adapt::promote,
    .autocast = Autocast::promote,
    .dtypes = kNumbers,
    .cost = [](const Tensor& x, const Tensor& a, const Tensor& b, Scalar) { return map_cost(3, x, x, a, b); },
    .samples =
        [](Samples& s) {
          samples_three(s);
          s.add(s.tensor({3, 5}), s.tensor({3, 5}), s.tensor({3, 5}), 2);
        },
    .reference = pointwise<([](double x, double a, double b, Scalar v) { return x + v.to_double() * a * b; })>,
}};

const ScaledTernaryOp addcdiv_op{{
    .schema = "addcdiv(Tensor x, Tensor a, Tensor b, Scalar value=1) -> Tensor",
    .doc = "x + value * a / b. DTypeError for integers.",
    .infer = [](const Tensor& x, const Tensor& a, const Tensor& b,
                Scalar) { return like_if(x, kFloats, "addcdiv", a, b); },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, const Tensor& a, const Tensor& b, Scalar v) {
      map(on, Map::addcdiv, y, {&x, &a, &b}, {{v}});
    }),
    .saves = "a:b b",
    .backward =
        [](Backward& bw, const Tensor&, const Tensor& a, const Tensor& b, Scalar v) {
          if (bw.needs(0)) bw.set(0, bw.gy());
          const Tensor ga = scaled(bw.gy() / b, v);
          if (bw.needs(1)) bw.set(1, ga);
          if (bw.needs(2)) bw.set(2, -(ga * (a / b)));
        },
    .inplace = true,
    .adapt = Adapt::promote,
    .autocast = Autocast::promote,
    .cost = [](const Tensor& x, const Tensor& a, const Tensor& b, Scalar) { return map_cost(3, x, x, a, b); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), s.tensor({3, 5}), s.off_grid({3, 5}));
          s.add(s.tensor({3, 1}), s.tensor({37}), s.off_grid({}), 0.5);
          s.invalid<DTypeError>("does not take i64", s.integers({2}, 0, 5), s.integers({2}, 0, 5),
                                s.integers({2}, 1, 5));
        },
    .reference = pointwise<([](double x, double a, double b, Scalar v) { return x + v.to_double() * a / b; })>,
}};

}  // namespace

Tensor pow(const Tensor& a, const Tensor& b) {
  return pow_op(a, b);
}
Tensor pow(const Tensor& a, Scalar b) {
  // A floating exponent makes integers floating, as in every promotion.
  const bool convert = !is_floating(a.dtype()) && b.kind() == DType::f64;
  return pow_scalar_op(convert ? a.to(default_dtype()) : a, b);
}
Tensor pow(Scalar a, const Tensor& b) {
  if (!is_floating(b.dtype()) && a.kind() != DType::f64) return pow_op(number(a, b), b);
  return scalar_pow_op(a, b);
}
Tensor maximum(const Tensor& a, const Tensor& b) {
  return maximum_op(a, b);
}
Tensor minimum(const Tensor& a, const Tensor& b) {
  return minimum_op(a, b);
}
Tensor fmax(const Tensor& a, const Tensor& b) {
  return fmax_op(a, b);
}
Tensor fmin(const Tensor& a, const Tensor& b) {
  return fmin_op(a, b);
}
Tensor atan2(const Tensor& a, const Tensor& b) {
  return atan2_op(a, b);
}
Tensor hypot(const Tensor& a, const Tensor& b) {
  return hypot_op(a, b);
}
Tensor logaddexp(const Tensor& a, const Tensor& b) {
  return logaddexp_op(a, b);
}
Tensor xlogy(const Tensor& a, const Tensor& b) {
  return xlogy_op(a, b);
}
Tensor lerp(const Tensor& a, const Tensor& b, const Tensor& weight) {
  return lerp_op(a, b, weight);
}
Tensor lerp(const Tensor& a, const Tensor& b, Scalar weight) {
  return lerp_op(a, b, number(weight, a));
}
Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, Scalar value) {
  return addcmul_op(x, a, b, value);
}
Tensor addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, Scalar value) {
  return addcdiv_op(x, a, b, value);
}
Tensor& pow_(Tensor& x, Scalar exponent) {
  return pow_scalar_op.inplace(x, exponent);
}
Tensor& lerp_(Tensor& x, const Tensor& end, Scalar weight) {
  return lerp_op.inplace(x, end, number(weight, x));
}
Tensor& addcmul_(Tensor& x, const Tensor& a, const Tensor& b, Scalar value) {
  return addcmul_op.inplace(x, a, b, value);
}
Tensor& addcdiv_(Tensor& x, const Tensor& a, const Tensor& b, Scalar value) {
  return addcdiv_op.inplace(x, a, b, value);
}
Tensor Tensor::pow(Scalar exponent) const {
  return strata::pow(*this, exponent);
}

}  // namespace strata
