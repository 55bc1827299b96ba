// Records of arithmetic on two and three tensors.

#include <cmath>

#include "strata/ops/elementwise/records.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using ScaledOp = Op<Tensor(const Tensor&, const Tensor&, Scalar)>;
using TernaryOp = Op<Tensor(const Tensor&, const Tensor&, const Tensor&)>;
using ScaledTernaryOp = Op<Tensor(const Tensor&, const Tensor&, const Tensor&, Scalar)>;

Tensor scaled(const Tensor& g, Scalar by) { return by.to_double() == 1 ? g : g * by; }

constexpr DTypeSet kNumbers = kFloats | kInts;

// ---- sums and products ----

const ScaledOp add_op{{
    .schema = "add(Tensor a, Tensor b, Scalar alpha=1) -> Tensor",
    .doc = "a + alpha * b. Integers wrap around; bool adds as \"or\".",
    .example = "Tensor y = add(full({2}, 1.0), full({2}, 2.0), 10); assert(y.to_vector<float>() == std::vector<float>({21, 21}));",
    .infer = [](const Tensor& a, const Tensor&, Scalar) { return like(a); },
    .kernels = {.cpu = [](Tensor& y, const Tensor& a, const Tensor& b, Scalar alpha) { map(Map::add, y, {&a, &b}, {{alpha}}); }},
    .backward = [](Backward& b, const Tensor&, const Tensor&, Scalar alpha) {
      if (b.needs(0)) b.set(0, b.gy());
      if (b.needs(1)) b.set(1, scaled(b.gy(), alpha));
    },
    .inplace = true,
    .adapt = Adapt::promote,
    .dtypes = kAllTypes,
    .cost = [](const Tensor& a, const Tensor& b, Scalar) { return map_cost(1, a, a, b); },
    .samples = [](Samples& s) {
      samples_pair(s);
      s.add(s.tensor({3, 5}), s.tensor({3, 5}), 3);
    },
}};

const ScaledOp sub_op{{
    .schema = "sub(Tensor a, Tensor b, Scalar alpha=1) -> Tensor",
    .doc = "a - alpha * b. Integers wrap around; DTypeError for two bool tensors (use logical_xor).",
    .infer = [](const Tensor& a, const Tensor&, Scalar) { return like_if(a, kNumbers, "sub"); },
    .kernels = {.cpu = [](Tensor& y, const Tensor& a, const Tensor& b, Scalar alpha) { map(Map::sub, y, {&a, &b}, {{alpha}}); }},
    .backward = [](Backward& b, const Tensor&, const Tensor&, Scalar alpha) {
      if (b.needs(0)) b.set(0, b.gy());
      if (b.needs(1)) b.set(1, -scaled(b.gy(), alpha));
    },
    .inplace = true,
    .adapt = Adapt::promote,
    .dtypes = kNumbers,
    .cost = [](const Tensor& a, const Tensor& b, Scalar) { return map_cost(1, a, a, b); },
    .samples = [](Samples& s) {
      samples_pair(s);
      s.add(s.tensor({3, 5}), s.tensor({3, 5}), 2);
      s.invalid<DTypeError>("does not take bool", s.boolean({2}), s.boolean({2}));
    },
}};

const BinaryOp mul_op{binary<Map::mul>({
    .schema = "mul(Tensor a, Tensor b) -> Tensor",
    .doc = "a * b. Integers wrap around; bool multiplies as \"and\".",
    .saves = "a:b b:a",
    .backward = [](Backward& bw, const Tensor& a, const Tensor& b) {
      if (bw.needs(0)) bw.set(0, bw.gy() * b);
      if (bw.needs(1)) bw.set(1, bw.gy() * a);
    },
    .dtypes = kAllTypes,
})};

// ---- a floating tensor and a number ----
// The number is used as it is: a bf16 tensor times 0.1 is not first rounded to bf16(0.1), and no tensor is made for it.
// Integers take the way through promotion, as do numbers that would change the dtype.

using NumberOp = Op<Tensor(const Tensor&, Scalar)>;

template <Map F>
NumberOp::Record with_number(NumberOp::Record r) {
  r.infer = [](const Tensor& x, Scalar) { return like_if(x, kFloats, "arithmetic with a number"); };
  r.kernels.cpu = [](Tensor& y, const Tensor& x, Scalar v) { map(F, y, {&x}, {{v}}); };
  r.inplace = true;
  r.cost = [](const Tensor& x, Scalar) { return map_cost(1, x, x); };
  r.samples = [](Samples& s) {
    s.add(s.tensor({3, 5}), Scalar(1.7));
    s.add(s.tensor({2, 37}), Scalar(-3));
    s.add(s.tensor({0}), Scalar(2));
    if (s.benchmarking()) s.bench(s.tensor({4096, 4096}), Scalar(1.7));
  };
  return r;
}

const NumberOp add_scalar_op{with_number<Map::add_scalar>({
    .schema = "add_scalar(Tensor x, Scalar value) -> Tensor",
    .doc = "x + value for a floating tensor; add(x, value).",
    .backward = [](Backward& b, const Tensor&, Scalar) { b.set(0, b.gy()); },
})};
const NumberOp rsub_scalar_op{with_number<Map::rsub_scalar>({
    .schema = "rsub_scalar(Tensor x, Scalar value) -> Tensor",
    .doc = "value - x for a floating tensor; rsub(x, value).",
    .backward = [](Backward& b, const Tensor&, Scalar) { b.set(0, -b.gy()); },
})};
const NumberOp mul_scalar_op{with_number<Map::mul_scalar>({
    .schema = "mul_scalar(Tensor x, Scalar value) -> Tensor",
    .doc = "x * value for a floating tensor; mul(x, value).",
    .backward = [](Backward& b, const Tensor&, Scalar v) { b.set(0, b.gy() * v); },
})};
const NumberOp div_scalar_op{with_number<Map::div_scalar>({
    .schema = "div_scalar(Tensor x, Scalar value) -> Tensor",
    .doc = "x / value for a floating tensor; div(x, value).",
    .backward = [](Backward& b, const Tensor&, Scalar v) { b.set(0, b.gy() / v); },
})};

// ---- division ----

const BinaryOp div_op{binary<Map::div>({
    .schema = "div(Tensor a, Tensor b) -> Tensor",
    .doc = "a / b; integers become default_dtype(). floor_divide and trunc_divide round.",
    .saves = "a:b b",
    .backward = [](Backward& bw, const Tensor& a, const Tensor& b) {
      const Tensor ga = bw.gy() / b;
      if (bw.needs(0)) bw.set(0, ga);
      if (bw.needs(1)) bw.set(1, -(ga * (a / b)));
    },
    .samples = samples_quotient,
}, Adapt::promote_float)};

// Quotients off the whole numbers, where the rounded ones jump; no zero among the integers.
void samples_rounded_quotient(Samples& s) {
  if (is_floating(s.dtype())) {
    s.add(s.off_grid({3, 5}), s.integers({3, 5}, 0, 2, s.dtype()) * 2 - 1);
    s.add(s.off_grid({2, 37}), full({}, -1, s.dtype()));
    s.add(s.uniform({2, 37}, -9, 9), s.off_grid({2, 37})).not_differentiable();
  } else {
    s.add(s.tensor({3, 5}), s.integers({3, 5}, 1, 4, s.dtype()));
    s.add(s.tensor({2, 37}), s.integers({}, 1, 4, s.dtype()));
    if (s.dtype() != DType::u8) s.add(s.tensor({2, 37}), s.integers({2, 37}, -3, 0, s.dtype()));
    s.invalid<ValueError>("division by zero", s.tensor({3}), full({3}, 0, s.dtype()));
  }
  s.add(s.tensor({0, 3}), s.tensor({3}));
}

const BinaryOp floor_divide_op{binary<Map::floor_divide>({
    .schema = "floor_divide(Tensor a, Tensor b) -> Tensor",
    .doc = "floor(a / b), keeping integer dtypes. ValueError for an integer division by zero. Its gradient is 0.",
    .example = "assert(floor_divide(full({1}, -7), 2).item<int>() == -4);",
    .infer = [](const Tensor& a, const Tensor&) { return like_if(a, kNumbers, "floor_divide"); },
    .backward = [](Backward& b, const Tensor&, const Tensor&) {
      for (int i = 0; i < 2; ++i)
        if (b.needs(i)) b.set(i, no_slope(b.gy()));
    },
    .dtypes = kNumbers,
    .samples = samples_rounded_quotient,
})};

const BinaryOp trunc_divide_op{binary<Map::trunc_divide>({
    .schema = "trunc_divide(Tensor a, Tensor b) -> Tensor",
    .doc = "a / b without its fraction, keeping integer dtypes. ValueError for an integer division by zero. Its gradient is 0.",
    .infer = [](const Tensor& a, const Tensor&) { return like_if(a, kNumbers, "trunc_divide"); },
    .backward = [](Backward& b, const Tensor&, const Tensor&) {
      for (int i = 0; i < 2; ++i)
        if (b.needs(i)) b.set(i, no_slope(b.gy()));
    },
    .dtypes = kNumbers,
    .samples = samples_rounded_quotient,
})};

const BinaryOp remainder_op{binary<Map::remainder>({
    .schema = "remainder(Tensor a, Tensor b) -> Tensor",
    .doc = "a - b * floor(a / b): it has the sign of b, as Python's %. ValueError for an integer division by zero.",
    .infer = [](const Tensor& a, const Tensor&) { return like_if(a, kNumbers, "remainder"); },
    .saves = "a:b b:b",
    .backward = [](Backward& bw, const Tensor& a, const Tensor& b) {
      if (bw.needs(0)) bw.set(0, bw.gy());
      if (bw.needs(1)) bw.set(1, -(bw.gy() * floor_divide(a, b)));
    },
    .dtypes = kNumbers,
    .samples = samples_rounded_quotient,
})};

const BinaryOp fmod_op{binary<Map::fmod>({
    .schema = "fmod(Tensor a, Tensor b) -> Tensor",
    .doc = "a - b * trunc(a / b): it has the sign of a, as C's fmod. ValueError for an integer division by zero.",
    .infer = [](const Tensor& a, const Tensor&) { return like_if(a, kNumbers, "fmod"); },
    .saves = "a:b b:b",
    .backward = [](Backward& bw, const Tensor& a, const Tensor& b) {
      if (bw.needs(0)) bw.set(0, bw.gy());
      if (bw.needs(1)) bw.set(1, -(bw.gy() * trunc_divide(a, b)));
    },
    .dtypes = kNumbers,
    .samples = samples_rounded_quotient,
})};

// ---- powers ----

const BinaryOp pow_op{binary<Map::pow>({
    .schema = "pow(Tensor a, Tensor b) -> Tensor",
    .doc = "a to the power b, elementwise. An integer to a negative integer power is 0 unless the base is 1 or -1.",
    .infer = [](const Tensor& a, const Tensor&) { return like_if(a, kNumbers, "pow"); },
    .saves = "a b result",
    .backward = [](Backward& bw, const Tensor& a, const Tensor& b) {
      if (bw.needs(0)) bw.set(0, bw.gy() * where(b == 0, 0, b * pow(a, b - 1)));
      // 0^b stays 0 for every b > 0, although log(0) is infinite.
      if (bw.needs(1)) bw.set(1, bw.gy() * where(a == 0, where(b > 0, zeros_like(b), full_like(b, -INFINITY)), bw.y() * log(a)));
    },
    .autocast = Autocast::full,
    .cost = [](const Tensor& a, const Tensor& b) { return map_cost(30, a, a, b); },
    .samples = [](Samples& s) {
      s.add(s.uniform({3, 5}, 0.3, 3), s.tensor({3, 5}));
      s.add(s.uniform({3, 1}, 0.3, 3), s.tensor({37}));
      s.add(s.tensor({0, 3}), s.tensor({3}));
      s.invalid<ShapeError>("do not broadcast", s.tensor({2, 3}), s.tensor({4}));
    },
})};

using PowScalarOp = Op<Tensor(const Tensor&, Scalar)>;
const PowScalarOp pow_scalar_op{{
    .schema = "pow_scalar(Tensor x, Scalar exponent) -> Tensor",
    .doc = "x to a fixed power; pow(x, exponent). ValueError for an integer tensor to a negative integer power.",
    .infer = [](const Tensor& x, Scalar e) {
      check(is_floating(x.dtype()) || e.to_double() >= 0, "pow", "integers to a negative integer power (", e.to_double(),
            ") are not integers; convert to a floating dtype");
      return like_if(x, kNumbers, "pow");
    },
    .kernels = {.cpu = [](Tensor& y, const Tensor& x, Scalar e) {
      const double p = is_floating(x.dtype()) ? e.to_double() : NAN;
      if (p == 2) map(Map::square, y, {&x});
      else if (p == 0.5) map(Map::sqrt, y, {&x});
      else if (p == -0.5) map(Map::rsqrt, y, {&x});
      else if (p == -1) map(Map::reciprocal, y, {&x});
      else map(Map::pow_scalar, y, {&x}, {{e}});
    }},
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x, Scalar e) {
      if (e.to_double() == 0) return b.set(0, no_slope(b.gy()));
      const Scalar less = e.kind() == DType::f64 ? Scalar(e.to_double() - 1) : Scalar(e.to_int() - 1);
      b.set(0, b.gy() * (less.to_double() == 1 ? x : pow(x, less)) * e);
    },
    .inplace = true,
    .autocast = Autocast::full,
    .dtypes = kNumbers,
    .cost = [](const Tensor& x, Scalar) { return map_cost(30, x, x); },
    .samples = [](Samples& s) {
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
}};

using ScalarPowOp = Op<Tensor(Scalar, const Tensor&)>;
const ScalarPowOp scalar_pow_op{{
    .schema = "scalar_pow(Scalar base, Tensor x) -> Tensor",
    .doc = "A fixed base to the power x; pow(base, x).",
    .infer = [](Scalar, const Tensor& x) { return like(x); },
    .kernels = {.cpu = [](Tensor& y, Scalar base, const Tensor& x) {
      if (base.to_double() == 2) map(Map::exp2, y, {&x});
      else map(Map::scalar_pow, y, {&x}, {{base}});
    }},
    .saves = "result",
    .backward = [](Backward& b, Scalar base, const Tensor&) {
      const double v = base.to_double();
      b.set(0, v == 0 ? no_slope(b.gy()) : b.gy() * b.y() * std::log(v));
    },
    .adapt = Adapt::promote_float,
    .autocast = Autocast::full,
    .cost = [](Scalar, const Tensor& x) { return map_cost(30, x, x); },
    .samples = [](Samples& s) {
      s.add(Scalar(2), s.tensor({3, 5}));
      s.add(Scalar(1.5), s.tensor({2, 37}));
    },
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
    .backward = [](Backward& bw, const Tensor& a, const Tensor& b) {
      if (bw.needs(0)) bw.set(0, winner(bw.gy(), a, b, true));
      if (bw.needs(1)) bw.set(1, winner(bw.gy(), b, a, true));
    },
    .dtypes = kAllTypes,
    .samples = samples_distinct,
})};

const BinaryOp minimum_op{binary<Map::minimum>({
    .schema = "minimum(Tensor a, Tensor b) -> Tensor",
    .doc = "The smaller of a and b; NaN if either is. At a tie each gets half the gradient.",
    .saves = "a b",
    .backward = [](Backward& bw, const Tensor& a, const Tensor& b) {
      if (bw.needs(0)) bw.set(0, winner(bw.gy(), a, b, false));
      if (bw.needs(1)) bw.set(1, winner(bw.gy(), b, a, false));
    },
    .dtypes = kAllTypes,
    .samples = samples_distinct,
})};

const BinaryOp fmax_op{binary<Map::fmax>({
    .schema = "fmax(Tensor a, Tensor b) -> Tensor",
    .doc = "The larger of a and b, ignoring NaN where the other is a number. At a tie a gets the gradient.",
    .infer = [](const Tensor& a, const Tensor&) { return like_if(a, kNumbers, "fmax"); },
    .saves = "a b",
    .backward = [](Backward& bw, const Tensor& a, const Tensor& b) {
      const Tensor first = logical_or(ge(a, b), isnan(b));
      if (bw.needs(0)) bw.set(0, where(first, bw.gy(), 0));
      if (bw.needs(1)) bw.set(1, where(first, 0, bw.gy()));
    },
    .dtypes = kNumbers,
    .samples = samples_distinct,
})};

const BinaryOp fmin_op{binary<Map::fmin>({
    .schema = "fmin(Tensor a, Tensor b) -> Tensor",
    .doc = "The smaller of a and b, ignoring NaN where the other is a number. At a tie a gets the gradient.",
    .infer = [](const Tensor& a, const Tensor&) { return like_if(a, kNumbers, "fmin"); },
    .saves = "a b",
    .backward = [](Backward& bw, const Tensor& a, const Tensor& b) {
      const Tensor first = logical_or(le(a, b), isnan(b));
      if (bw.needs(0)) bw.set(0, where(first, bw.gy(), 0));
      if (bw.needs(1)) bw.set(1, where(first, 0, bw.gy()));
    },
    .dtypes = kNumbers,
    .samples = samples_distinct,
})};

// ---- functions of two ----

const BinaryOp atan2_op{binary<Map::atan2>({
    .schema = "atan2(Tensor a, Tensor b) -> Tensor",
    .doc = "The angle of the point (b, a) in (-pi, pi].",
    .saves = "a b",
    .backward = [](Backward& bw, const Tensor& a, const Tensor& b) {
      const Tensor scaled = bw.gy() / (square(a) + square(b));
      if (bw.needs(0)) bw.set(0, scaled * b);
      if (bw.needs(1)) bw.set(1, -(scaled * a));
    },
    .autocast = Autocast::promote,
    .samples = samples_quotient,
}, Adapt::promote_float)};

const BinaryOp hypot_op{binary<Map::hypot>({
    .schema = "hypot(Tensor a, Tensor b) -> Tensor",
    .doc = "sqrt(a^2 + b^2), without overflow on the way.",
    .saves = "a:a b:b result",
    .backward = [](Backward& bw, const Tensor& a, const Tensor& b) {
      const Tensor scaled = bw.gy() / bw.y();
      if (bw.needs(0)) bw.set(0, scaled * a);
      if (bw.needs(1)) bw.set(1, scaled * b);
    },
    .samples = samples_quotient,
}, Adapt::promote_float)};

const BinaryOp logaddexp_op{binary<Map::logaddexp>({
    .schema = "logaddexp(Tensor a, Tensor b) -> Tensor",
    .doc = "log(exp(a) + exp(b)), without overflow on the way.",
    .saves = "a b",
    .backward = [](Backward& bw, const Tensor& a, const Tensor& b) {
      const Tensor d = a - b;
      if (bw.needs(0)) bw.set(0, bw.gy() * sigmoid(d));
      if (bw.needs(1)) bw.set(1, bw.gy() * sigmoid(-d));
    },
}, Adapt::promote_float)};

const BinaryOp xlogy_op{binary<Map::xlogy>({
    .schema = "xlogy(Tensor a, Tensor b) -> Tensor",
    .doc = "a * log(b), 0 where a is 0; NaN where b is NaN.",
    .saves = "a:b b",
    .backward = [](Backward& bw, const Tensor& a, const Tensor& b) {
      if (bw.needs(0)) bw.set(0, bw.gy() * log(b));
      if (bw.needs(1)) bw.set(1, bw.gy() * a / b);
    },
    .samples = [](Samples& s) {
      s.add(s.tensor({3, 5}), s.uniform({3, 5}, 0.3, 4));
      s.add(s.tensor({2, 37}), s.uniform({}, 0.3, 4));
    },
}, Adapt::promote_float)};

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
    .infer = [](const Tensor& a, const Tensor&, const Tensor&) { return like_if(a, kFloats, "lerp"); },
    .kernels = {.cpu = [](Tensor& y, const Tensor& a, const Tensor& b, const Tensor& w) { map(Map::lerp, y, {&a, &b, &w}); }},
    .saves = "a:weight b:weight weight",
    .backward = [](Backward& bw, const Tensor& a, const Tensor& b, const Tensor& w) {
      if (bw.needs(0)) bw.set(0, bw.gy() * (1 - w));
      if (bw.needs(1)) bw.set(1, bw.gy() * w);
      if (bw.needs(2)) bw.set(2, bw.gy() * (b - a));
    },
    .inplace = true,
    .adapt = Adapt::promote,
    .cost = [](const Tensor& a, const Tensor& b, const Tensor& w) { return map_cost(3, a, a, b, w); },
    .samples = samples_three,
}};

const ScaledTernaryOp addcmul_op{{
    .schema = "addcmul(Tensor x, Tensor a, Tensor b, Scalar value=1) -> Tensor",
    .doc = "x + value * a * b.",
    .infer = [](const Tensor& x, const Tensor&, const Tensor&, Scalar) { return like_if(x, kNumbers, "addcmul"); },
    .kernels = {.cpu = [](Tensor& y, const Tensor& x, const Tensor& a, const Tensor& b, Scalar v) {
      map(Map::addcmul, y, {&x, &a, &b}, {{v}});
    }},
    .saves = "a:b b:a",
    .backward = [](Backward& bw, const Tensor&, const Tensor& a, const Tensor& b, Scalar v) {
      if (bw.needs(0)) bw.set(0, bw.gy());
      if (bw.needs(1)) bw.set(1, scaled(bw.gy() * b, v));
      if (bw.needs(2)) bw.set(2, scaled(bw.gy() * a, v));
    },
    .inplace = true,
    .adapt = Adapt::promote,
    .autocast = Autocast::promote,
    .dtypes = kNumbers,
    .cost = [](const Tensor& x, const Tensor& a, const Tensor& b, Scalar) { return map_cost(3, x, x, a, b); },
    .samples = [](Samples& s) {
      samples_three(s);
      s.add(s.tensor({3, 5}), s.tensor({3, 5}), s.tensor({3, 5}), 2);
    },
}};

const ScaledTernaryOp addcdiv_op{{
    .schema = "addcdiv(Tensor x, Tensor a, Tensor b, Scalar value=1) -> Tensor",
    .doc = "x + value * a / b. DTypeError for integers.",
    .infer = [](const Tensor& x, const Tensor&, const Tensor&, Scalar) { return like_if(x, kFloats, "addcdiv"); },
    .kernels = {.cpu = [](Tensor& y, const Tensor& x, const Tensor& a, const Tensor& b, Scalar v) {
      map(Map::addcdiv, y, {&x, &a, &b}, {{v}});
    }},
    .saves = "a:b b",
    .backward = [](Backward& bw, const Tensor&, const Tensor& a, const Tensor& b, Scalar v) {
      if (bw.needs(0)) bw.set(0, bw.gy());
      const Tensor ga = scaled(bw.gy() / b, v);
      if (bw.needs(1)) bw.set(1, ga);
      if (bw.needs(2)) bw.set(2, -(ga * (a / b)));
    },
    .inplace = true,
    .adapt = Adapt::promote,
    .autocast = Autocast::promote,
    .cost = [](const Tensor& x, const Tensor& a, const Tensor& b, Scalar) { return map_cost(3, x, x, a, b); },
    .samples = [](Samples& s) {
      s.add(s.tensor({3, 5}), s.tensor({3, 5}), s.off_grid({3, 5}));
      s.add(s.tensor({3, 1}), s.tensor({37}), s.off_grid({}), 0.5);
      s.invalid<DTypeError>("does not take i64", s.integers({2}, 0, 5), s.integers({2}, 0, 5), s.integers({2}, 1, 5));
    },
}};

// The value of alpha * b, where it can be used without promotion.
std::optional<Scalar> as_number(const Tensor& a, Scalar b, Scalar alpha = 1) {
  if (!a.defined() || !is_floating(a.dtype()) || a.impl().wrapped_number) return std::nullopt;
  return alpha.to_double() == 1 ? b : Scalar(b.to_double() * alpha.to_double());
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b, Scalar alpha) { return add_op(a, b, alpha); }
Tensor add(const Tensor& a, Scalar b, Scalar alpha) {
  const auto v = as_number(a, b, alpha);
  return v ? add_scalar_op(a, *v) : add_op(a, number(b, a), alpha);
}
Tensor sub(const Tensor& a, const Tensor& b, Scalar alpha) { return sub_op(a, b, alpha); }
Tensor sub(const Tensor& a, Scalar b, Scalar alpha) {
  const auto v = as_number(a, b, alpha);
  return v ? add_scalar_op(a, -v->to_double()) : sub_op(a, number(b, a), alpha);
}
Tensor rsub(const Tensor& a, Scalar b, Scalar alpha) {
  const bool plain = alpha.to_double() == 1 && as_number(a, b);
  return plain ? rsub_scalar_op(a, b) : sub_op(number(b, a), a, alpha);
}
Tensor mul(const Tensor& a, const Tensor& b) { return mul_op(a, b); }
Tensor mul(const Tensor& a, Scalar b) { return as_number(a, b) ? mul_scalar_op(a, b) : mul_op(a, number(b, a)); }
Tensor div(const Tensor& a, const Tensor& b) { return div_op(a, b); }
Tensor div(const Tensor& a, Scalar b) { return as_number(a, b) ? div_scalar_op(a, b) : div_op(a, number(b, a)); }
Tensor div(const Tensor& a, const Tensor& b, std::string_view rounding_mode) {
  if (rounding_mode.empty()) return div_op(a, b);
  check(rounding_mode == "floor" || rounding_mode == "trunc", "div", "rounding_mode is \"", rounding_mode,
        "\", it can be \"floor\", \"trunc\" or empty");
  return rounding_mode == "floor" ? floor_divide_op(a, b) : trunc_divide_op(a, b);
}
Tensor floor_divide(const Tensor& a, const Tensor& b) { return floor_divide_op(a, b); }
Tensor floor_divide(const Tensor& a, Scalar b) { return floor_divide_op(a, number(b, a)); }
Tensor trunc_divide(const Tensor& a, const Tensor& b) { return trunc_divide_op(a, b); }
Tensor remainder(const Tensor& a, const Tensor& b) { return remainder_op(a, b); }
Tensor remainder(const Tensor& a, Scalar b) { return remainder_op(a, number(b, a)); }
Tensor fmod(const Tensor& a, const Tensor& b) { return fmod_op(a, b); }
Tensor fmod(const Tensor& a, Scalar b) { return fmod_op(a, number(b, a)); }
Tensor pow(const Tensor& a, const Tensor& b) { return pow_op(a, b); }
Tensor pow(const Tensor& a, Scalar b) {
  // A floating exponent makes integers floating, as in every promotion.
  const bool convert = !is_floating(a.dtype()) && b.kind() == DType::f64;
  return pow_scalar_op(convert ? a.to(default_dtype()) : a, b);
}
Tensor pow(Scalar a, const Tensor& b) {
  if (!is_floating(b.dtype()) && a.kind() != DType::f64) return pow_op(number(a, b), b);
  return scalar_pow_op(a, b);
}
Tensor maximum(const Tensor& a, const Tensor& b) { return maximum_op(a, b); }
Tensor minimum(const Tensor& a, const Tensor& b) { return minimum_op(a, b); }
Tensor fmax(const Tensor& a, const Tensor& b) { return fmax_op(a, b); }
Tensor fmin(const Tensor& a, const Tensor& b) { return fmin_op(a, b); }
Tensor atan2(const Tensor& a, const Tensor& b) { return atan2_op(a, b); }
Tensor hypot(const Tensor& a, const Tensor& b) { return hypot_op(a, b); }
Tensor logaddexp(const Tensor& a, const Tensor& b) { return logaddexp_op(a, b); }
Tensor xlogy(const Tensor& a, const Tensor& b) { return xlogy_op(a, b); }
Tensor lerp(const Tensor& a, const Tensor& b, const Tensor& weight) { return lerp_op(a, b, weight); }
Tensor lerp(const Tensor& a, const Tensor& b, Scalar weight) { return lerp_op(a, b, number(weight, a)); }
Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b, Scalar value) { return addcmul_op(x, a, b, value); }
Tensor addcdiv(const Tensor& x, const Tensor& a, const Tensor& b, Scalar value) { return addcdiv_op(x, a, b, value); }

Tensor& Tensor::add_(const Tensor& other, Scalar alpha) { return add_op.inplace(*this, other, alpha); }
Tensor& Tensor::sub_(const Tensor& other, Scalar alpha) { return sub_op.inplace(*this, other, alpha); }
Tensor& Tensor::mul_(const Tensor& other) { return mul_op.inplace(*this, other); }
Tensor& Tensor::div_(const Tensor& other) { return div_op.inplace(*this, other); }
Tensor& Tensor::add_(Scalar other) {
  return as_number(*this, other) ? add_scalar_op.inplace(*this, other) : add_(number(other, *this));
}
Tensor& Tensor::mul_(Scalar other) {
  return as_number(*this, other) ? mul_scalar_op.inplace(*this, other) : mul_(number(other, *this));
}
Tensor& sub_(Tensor& x, const Tensor& other, Scalar alpha) { return sub_op.inplace(x, other, alpha); }
Tensor& sub_(Tensor& x, Scalar other) {
  return as_number(x, other) ? add_scalar_op.inplace(x, Scalar(-other.to_double())) : sub_op.inplace(x, number(other, x), Scalar(1));
}
Tensor& div_(Tensor& x, const Tensor& other) { return div_op.inplace(x, other); }
Tensor& div_(Tensor& x, Scalar other) {
  return as_number(x, other) ? div_scalar_op.inplace(x, other) : div_op.inplace(x, number(other, x));
}
Tensor& pow_(Tensor& x, Scalar exponent) { return pow_scalar_op.inplace(x, exponent); }
Tensor& lerp_(Tensor& x, const Tensor& end, Scalar weight) { return lerp_op.inplace(x, end, number(weight, x)); }
Tensor& addcmul_(Tensor& x, const Tensor& a, const Tensor& b, Scalar value) { return addcmul_op.inplace(x, a, b, value); }
Tensor& addcdiv_(Tensor& x, const Tensor& a, const Tensor& b, Scalar value) { return addcdiv_op.inplace(x, a, b, value); }

Tensor Tensor::pow(Scalar exponent) const { return strata::pow(*this, exponent); }

Tensor detail::add_tensors(const Tensor& a, const Tensor& b) { return add(a, b); }

}  // namespace strata
