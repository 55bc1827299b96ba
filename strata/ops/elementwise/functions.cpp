// Records of the functions of one argument: arithmetic, exponentials, trigonometry, rounding.

#include <cmath>

#include "strata/ops/elementwise/records.h"

namespace strata {
namespace {

constexpr double kLn2 = 0.69314718055994530942, kLn10 = 2.30258509299404568402, kTwoOverSqrtPi = 1.12837916709551257390;

const UnaryOp neg_op{unary<Map::neg>({
                                         .schema = "neg(Tensor x) -> Tensor",
                                         .doc = "-x. Integers wrap around; DTypeError for bool (use logical_not).",
                                         .infer = [](const Tensor& x) { return like_if(x, kFloats | kInts, "neg"); },
                                         .backward = [](Backward& b, const Tensor&) { b.set(0, -b.gy()); },
                                         .dtypes = kFloats | kInts,
                                         .samples =
                                             [](Samples& s) {
                                               samples_smooth(s);
                                               s.invalid<DTypeError>("does not take bool", s.boolean({2}));
                                             },
                                     },
                                     Adapt::none)};

const UnaryOp abs_op{unary<Map::abs>({
                                         .schema = "abs(Tensor x) -> Tensor",
                                         .doc = "The absolute value of x. The gradient at 0 is 0. DTypeError for bool.",
                                         .infer = [](const Tensor& x) { return like_if(x, kFloats | kInts, "abs"); },
                                         .saves = "x",
                                         .backward = [](Backward& b, const Tensor& x) { b.set(0, b.gy() * sign(x)); },
                                         .dtypes = kFloats | kInts,
                                         .samples = samples_kinked,
                                     },
                                     Adapt::none)};

const UnaryOp sign_op{
    unary<Map::sign>({
                         .schema = "sign(Tensor x) -> Tensor",
                         .doc = "-1, 0 or 1 as x is negative, 0 or positive; NaN stays. DTypeError for bool.",
                         .infer = [](const Tensor& x) { return like_if(x, kFloats | kInts, "sign"); },
                         .backward = [](Backward& b, const Tensor&) { b.set(0, no_slope(b.gy())); },
                         .dtypes = kFloats | kInts,
                         .samples = samples_kinked,
                     },
                     Adapt::none)};

const UnaryOp square_op{
    unary<Map::square>({
                           .schema = "square(Tensor x) -> Tensor",
                           .doc = "x * x. DTypeError for bool.",
                           .infer = [](const Tensor& x) { return like_if(x, kFloats | kInts, "square"); },
                           .saves = "x",
                           .backward = [](Backward& b, const Tensor& x) { b.set(0, b.gy() * x * 2); },
                           .dtypes = kFloats | kInts,
                       },
                       Adapt::none)};

const UnaryOp reciprocal_op{unary<Map::reciprocal>({
    .schema = "reciprocal(Tensor x) -> Tensor",
    .doc = "1 / x.",
    .saves = "result",
    .backward = [](Backward& b, const Tensor&) { b.set(0, -b.gy() * square(b.y())); },
    .autocast = Autocast::full,
    .samples = samples_kinked,
})};

const UnaryOp sqrt_op{unary<Map::sqrt>({
    .schema = "sqrt(Tensor x) -> Tensor",
    .doc = "The square root; NaN for negative x.",
    .saves = "result",
    .backward = [](Backward& b, const Tensor&) { b.set(0, b.gy() / (b.y() * 2)); },
    .samples = samples_positive,
})};

const UnaryOp rsqrt_op{unary<Map::rsqrt>({
    .schema = "rsqrt(Tensor x) -> Tensor",
    .doc = "1 / sqrt(x).",
    .saves = "result",
    .backward = [](Backward& b, const Tensor&) { b.set(0, b.gy() * b.y() * square(b.y()) * -0.5); },
    .autocast = Autocast::full,
    .samples = samples_positive,
})};

const UnaryOp exp_op{unary<Map::exp>({
    .schema = "exp(Tensor x) -> Tensor",
    .doc = "e to the power x.",
    .example = "assert(exp(zeros({2})).to_vector<float>() == std::vector<float>({1, 1}));",
    .saves = "result",
    .backward = [](Backward& b, const Tensor&) { b.set(0, b.gy() * b.y()); },
    .autocast = Autocast::full,
})};

const UnaryOp exp2_op{unary<Map::exp2>({
    .schema = "exp2(Tensor x) -> Tensor",
    .doc = "2 to the power x.",
    .saves = "result",
    .backward = [](Backward& b, const Tensor&) { b.set(0, b.gy() * b.y() * kLn2); },
})};

const UnaryOp expm1_op{unary<Map::expm1>({
    .schema = "expm1(Tensor x) -> Tensor",
    .doc = "exp(x) - 1, accurate also near 0.",
    .saves = "result",
    .backward = [](Backward& b, const Tensor&) { b.set(0, b.gy() * (b.y() + 1)); },
    .autocast = Autocast::full,
})};

const UnaryOp log_op{unary<Map::log>({
    .schema = "log(Tensor x) -> Tensor",
    .doc = "The natural logarithm: -inf at 0, NaN for negative x.",
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, b.gy() / x); },
    .autocast = Autocast::full,
    .samples = samples_positive,
})};

const UnaryOp log2_op{unary<Map::log2>({
    .schema = "log2(Tensor x) -> Tensor",
    .doc = "The logarithm to base 2.",
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, b.gy() / (x * kLn2)); },
    .autocast = Autocast::full,
    .samples = samples_positive,
})};

const UnaryOp log10_op{unary<Map::log10>({
    .schema = "log10(Tensor x) -> Tensor",
    .doc = "The logarithm to base 10.",
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, b.gy() / (x * kLn10)); },
    .autocast = Autocast::full,
    .samples = samples_positive,
})};

const UnaryOp log1p_op{unary<Map::log1p>({
    .schema = "log1p(Tensor x) -> Tensor",
    .doc = "log(1 + x), accurate also near 0.",
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, b.gy() / (x + 1)); },
    .autocast = Autocast::full,
    .samples = samples_between<-80, 300>,
})};

const UnaryOp sin_op{unary<Map::sin>({
    .schema = "sin(Tensor x) -> Tensor",
    .doc = "The sine of x in radians.",
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, b.gy() * cos(x)); },
})};

const UnaryOp cos_op{unary<Map::cos>({
    .schema = "cos(Tensor x) -> Tensor",
    .doc = "The cosine of x in radians.",
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, -(b.gy() * sin(x))); },
})};

const UnaryOp tan_op{unary<Map::tan>({
    .schema = "tan(Tensor x) -> Tensor",
    .doc = "The tangent of x in radians.",
    .saves = "result",
    .backward = [](Backward& b, const Tensor&) { b.set(0, b.gy() * (square(b.y()) + 1)); },
    .autocast = Autocast::full,
    .samples = samples_between<-120, 120>,
})};

const UnaryOp asin_op{unary<Map::asin>({
    .schema = "asin(Tensor x) -> Tensor",
    .doc = "The inverse sine, in [-pi/2, pi/2]; NaN outside [-1, 1].",
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, b.gy() * rsqrt(1 - square(x))); },
    .samples = samples_between<-80, 80>,
})};

const UnaryOp acos_op{unary<Map::acos>({
    .schema = "acos(Tensor x) -> Tensor",
    .doc = "The inverse cosine, in [0, pi]; NaN outside [-1, 1].",
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, -(b.gy() * rsqrt(1 - square(x)))); },
    .autocast = Autocast::full,
    .samples = samples_between<-80, 80>,
})};

const UnaryOp atan_op{unary<Map::atan>({
    .schema = "atan(Tensor x) -> Tensor",
    .doc = "The inverse tangent, in [-pi/2, pi/2].",
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, b.gy() / (square(x) + 1)); },
})};

const UnaryOp sinh_op{unary<Map::sinh>({
    .schema = "sinh(Tensor x) -> Tensor",
    .doc = "The hyperbolic sine.",
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, b.gy() * cosh(x)); },
    .autocast = Autocast::full,
})};

const UnaryOp cosh_op{unary<Map::cosh>({
    .schema = "cosh(Tensor x) -> Tensor",
    .doc = "The hyperbolic cosine.",
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, b.gy() * sinh(x)); },
    .autocast = Autocast::full,
})};

const UnaryOp asinh_op{unary<Map::asinh>({
    .schema = "asinh(Tensor x) -> Tensor",
    .doc = "The inverse hyperbolic sine.",
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, b.gy() * rsqrt(square(x) + 1)); },
})};

const UnaryOp acosh_op{unary<Map::acosh>({
    .schema = "acosh(Tensor x) -> Tensor",
    .doc = "The inverse hyperbolic cosine; NaN below 1.",
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, b.gy() * rsqrt(square(x) - 1)); },
    .samples = samples_between<130, 400>,
})};

const UnaryOp atanh_op{unary<Map::atanh>({
    .schema = "atanh(Tensor x) -> Tensor",
    .doc = "The inverse hyperbolic tangent; NaN outside [-1, 1].",
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, b.gy() / (1 - square(x))); },
    .samples = samples_between<-80, 80>,
})};

const UnaryOp erf_op{unary<Map::erf>({
    .schema = "erf(Tensor x) -> Tensor",
    .doc = "The error function, 2/sqrt(pi) times the integral of exp(-t^2) from 0 to x.",
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, b.gy() * exp(-square(x)) * kTwoOverSqrtPi); },
})};

const UnaryOp erfc_op{unary<Map::erfc>({
    .schema = "erfc(Tensor x) -> Tensor",
    .doc = "1 - erf(x), accurate where that is small.",
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, b.gy() * exp(-square(x)) * -kTwoOverSqrtPi); },
})};

// Rounding: integers are returned as they are, so only floats reach the kernels.
TensorMeta floats_only(const Tensor& x, std::string_view op) {
  return like_if(x, kFloats, op);
}

const UnaryOp floor_op{unary<Map::floor>({
    .schema = "floor(Tensor x) -> Tensor",
    .doc = "The largest integer not above x, in x's dtype; integers stay.",
    .backward = [](Backward& b, const Tensor&) { b.set(0, no_slope(b.gy())); },
    .samples = samples_kinked,
})};

const UnaryOp ceil_op{unary<Map::ceil>({
    .schema = "ceil(Tensor x) -> Tensor",
    .doc = "The smallest integer not below x, in x's dtype; integers stay.",
    .backward = [](Backward& b, const Tensor&) { b.set(0, no_slope(b.gy())); },
    .samples = samples_kinked,
})};

const UnaryOp round_op{unary<Map::round>({
    .schema = "round(Tensor x) -> Tensor",
    .doc = "The nearest integer, halves to even, in x's dtype; integers stay.",
    .backward = [](Backward& b, const Tensor&) { b.set(0, no_slope(b.gy())); },
    .samples =
        [](Samples& s) {
          // off_grid stays away from multiples of 2 and of 1; halves are the kinks here.
          s.add(s.uniform({3, 5}, 0.6, 1.4));
          s.add(s.uniform({3, 5}, -1.4, -0.6));
          s.add(s.uniform({2, 37}, -8, 8)).not_differentiable();
          s.add(s.tensor({2, 0}));
          bench_unary(s);
        },
})};

const UnaryOp trunc_op{unary<Map::trunc>({
    .schema = "trunc(Tensor x) -> Tensor",
    .doc = "x without its fraction, in x's dtype; integers stay.",
    .backward = [](Backward& b, const Tensor&) { b.set(0, no_slope(b.gy())); },
    .samples = samples_kinked,
})};

const UnaryOp frac_op{unary<Map::frac>({
                                           .schema = "frac(Tensor x) -> Tensor",
                                           .doc = "x - trunc(x). DTypeError for integers.",
                                           .infer = [](const Tensor& x) { return floats_only(x, "frac"); },
                                           .backward = [](Backward& b, const Tensor&) { b.set(0, b.gy()); },
                                           .samples =
                                               [](Samples& s) {
                                                 samples_kinked(s);
                                                 s.invalid<DTypeError>("does not take i32",
                                                                       s.integers({2}, 0, 5, DType::i32));
                                               },
                                       },
                                       Adapt::none)};

using ClampOp = Op<Tensor(const Tensor&, std::optional<Scalar>, std::optional<Scalar>)>;
using ClampBackwardOp = Op<Tensor(const Tensor&, const Tensor&, std::optional<Scalar>, std::optional<Scalar>)>;

// Open sides become bounds that no element passes.
MapParams bounds(std::optional<Scalar> min, std::optional<Scalar> max, DType t) {
  const double inf = HUGE_VAL;
  Scalar low = -inf, high = inf;
  if (!is_floating(t)) {
    const int bits = static_cast<int>(8 * size_of(t));
    low = t == DType::u8 ? int64_t{0} : INT64_MIN >> (64 - bits);
    high = t == DType::u8 ? int64_t{255} : INT64_MAX >> (64 - bits);
  }
  // Bounds outside the dtype's range do not bind.
  const auto fit = [&](Scalar v) {
    if (is_floating(t)) return v;
    return Scalar(std::min(std::max(v.to_int(), low.to_int()), high.to_int()));
  };
  return {{min ? fit(*min) : low, max ? fit(*max) : high, 0}};
}

extern const ClampBackwardOp clamp_backward_op;

const ClampOp clamp_op{{
    .schema = "clamp(Tensor x, Scalar? min=None, Scalar? max=None) -> Tensor",
    .doc = "x limited to [min, max]; max wins where min is above it, NaN stays. The gradient passes where min <= x <= "
           "max. "
           "ValueError when neither bound is given.",
    .infer =
        [](const Tensor& x, std::optional<Scalar> min, std::optional<Scalar> max) {
          check(min.has_value() || max.has_value(), "clamp", "at least one of min and max must be given");
          return like_if(x, kFloats | kInts, "clamp");
        },
    .kernels = {.everywhere = [](Tensor& y, const Tensor& x, std::optional<Scalar> min,
                                 std::optional<Scalar> max) { map(Map::clamp, y, {&x}, bounds(min, max, x.dtype())); }},
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x, std::optional<Scalar> min,
                   std::optional<Scalar> max) { b.set(0, clamp_backward_op(b.gy(), x, min, max)); },
    .inplace = true,
    .dtypes = kFloats | kInts,
    .cost = [](const Tensor& x, std::optional<Scalar>, std::optional<Scalar>) { return map_cost(2, x, x); },
    .samples =
        [](Samples& s) {
          s.add(s.off_grid({3, 5}), -1, 1);
          s.add(s.off_grid({3, 5}), 0, std::nullopt);
          s.add(s.off_grid({2, 37}), std::nullopt, 1);
          s.add(s.tensor({0}), 0, 1);
          s.invalid<ValueError>("at least one", s.tensor({2}), std::nullopt, std::nullopt);
        },
}};

const ClampBackwardOp clamp_backward_op{{
    .schema = "clamp_backward(Tensor g, Tensor x, Scalar? min=None, Scalar? max=None) -> Tensor",
    .doc = "g where min <= x <= max, else 0: the gradient of clamp.",
    .infer = [](const Tensor& g, const Tensor&, std::optional<Scalar>,
                std::optional<Scalar>) { return like_if(g, kNumbers, "clamp_backward"); },
    .kernels = {.everywhere =
                    [](Tensor& y, const Tensor& g, const Tensor& x, std::optional<Scalar> min,
                       std::optional<Scalar> max) {
                      map(Map::clamp_backward, y, {&g, &x}, bounds(min, max, x.dtype()));
                    }},
    .saves = "x",
    .backward =
        [](Backward& b, const Tensor&, const Tensor& x, std::optional<Scalar> min, std::optional<Scalar> max) {
          if (b.needs(0)) b.set(0, clamp_backward_op(b.gy(), x, min, max));
          if (b.needs(1)) b.set(1, no_slope(b.gy()));
        },
    .adapt = Adapt::promote,
    .cost = [](const Tensor& g, const Tensor& x, std::optional<Scalar>,
               std::optional<Scalar>) { return map_cost(2, g, g, x); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), s.off_grid({3, 5}), -1, 1);
          s.add(s.tensor({3, 5}), s.off_grid({3, 5}), 0, std::nullopt);
        },
}};

using NanToNumOp = Op<Tensor(const Tensor&, double, std::optional<double>, std::optional<double>)>;
const NanToNumOp nan_to_num_op{{
    .schema = "nan_to_num(Tensor x, float nan=0, float? posinf=None, float? neginf=None) -> Tensor",
    .doc =
        "NaN replaced by nan, infinities by posinf and neginf, or by the dtype's largest finite numbers. The gradient "
        "passes where x is finite. Integers stay.",
    .infer = [](const Tensor& x, double, std::optional<double>, std::optional<double>) { return like(x); },
    .kernels = {.everywhere =
                    [](Tensor& y, const Tensor& x, double nan, std::optional<double> posinf,
                       std::optional<double> neginf) {
                      const double most = x.dtype() == DType::f64    ? 1.7976931348623157e308
                                          : x.dtype() == DType::f16  ? 65504.0
                                          : x.dtype() == DType::bf16 ? 3.3895313892515355e38
                                                                     : 3.4028234663852886e38;
                      map(Map::nan_to_num, y, {&x}, {{nan, posinf.value_or(most), neginf.value_or(-most)}});
                    }},
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x, double, std::optional<double>,
                   std::optional<double>) { b.set(0, where(isfinite(x), b.gy(), 0)); },
    .inplace = true,
    .adapt = Adapt::promote_float,
    .cost = [](const Tensor& x, double, std::optional<double>, std::optional<double>) { return map_cost(3, x, x); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}));
          const Tensor x = s.tensor({4});
          const double values[] = {NAN, INFINITY, -INFINITY, 1};
          for (int i = 0; i < 4; ++i) x.select(0, i).fill_(values[i]);
          s.add(x, 1.5, 7.0, -7.0).not_differentiable();
        },
}};

// Integers are their own floor: no copy, and no change of dtype as in the floating functions.
bool whole(const Tensor& x) {
  return !is_floating(x.dtype());
}

}  // namespace

Tensor neg(const Tensor& x) {
  return neg_op(x);
}
Tensor abs(const Tensor& x) {
  return abs_op(x);
}
Tensor sign(const Tensor& x) {
  return sign_op(x);
}
Tensor reciprocal(const Tensor& x) {
  return reciprocal_op(x);
}
Tensor square(const Tensor& x) {
  return square_op(x);
}
Tensor sqrt(const Tensor& x) {
  return sqrt_op(x);
}
Tensor rsqrt(const Tensor& x) {
  return rsqrt_op(x);
}
Tensor exp(const Tensor& x) {
  return exp_op(x);
}
Tensor exp2(const Tensor& x) {
  return exp2_op(x);
}
Tensor expm1(const Tensor& x) {
  return expm1_op(x);
}
Tensor log(const Tensor& x) {
  return log_op(x);
}
Tensor log2(const Tensor& x) {
  return log2_op(x);
}
Tensor log10(const Tensor& x) {
  return log10_op(x);
}
Tensor log1p(const Tensor& x) {
  return log1p_op(x);
}
Tensor sin(const Tensor& x) {
  return sin_op(x);
}
Tensor cos(const Tensor& x) {
  return cos_op(x);
}
Tensor tan(const Tensor& x) {
  return tan_op(x);
}
Tensor asin(const Tensor& x) {
  return asin_op(x);
}
Tensor acos(const Tensor& x) {
  return acos_op(x);
}
Tensor atan(const Tensor& x) {
  return atan_op(x);
}
Tensor sinh(const Tensor& x) {
  return sinh_op(x);
}
Tensor cosh(const Tensor& x) {
  return cosh_op(x);
}
Tensor asinh(const Tensor& x) {
  return asinh_op(x);
}
Tensor acosh(const Tensor& x) {
  return acosh_op(x);
}
Tensor atanh(const Tensor& x) {
  return atanh_op(x);
}
Tensor erf(const Tensor& x) {
  return erf_op(x);
}
Tensor erfc(const Tensor& x) {
  return erfc_op(x);
}
Tensor floor(const Tensor& x) {
  return whole(x) ? x : floor_op(x);
}
Tensor ceil(const Tensor& x) {
  return whole(x) ? x : ceil_op(x);
}
Tensor round(const Tensor& x) {
  return whole(x) ? x : round_op(x);
}
Tensor trunc(const Tensor& x) {
  return whole(x) ? x : trunc_op(x);
}
Tensor frac(const Tensor& x) {
  return frac_op(x);
}

Tensor clamp(const Tensor& x, std::optional<Scalar> min, std::optional<Scalar> max) {
  const bool floating = (min && min->kind() == DType::f64) || (max && max->kind() == DType::f64);
  return clamp_op(floating && whole(x) ? x.to(default_dtype()) : x, min, max);
}
Tensor clamp_min(const Tensor& x, Scalar min) {
  return clamp(x, min);
}
Tensor clamp_max(const Tensor& x, Scalar max) {
  return clamp(x, std::nullopt, max);
}
Tensor clamp(const Tensor& x, const Tensor& min, const Tensor& max) {
  check(min.defined() || max.defined(), "clamp", "at least one of min and max must be given");
  const Tensor low = min.defined() ? maximum(x, min) : x;
  return max.defined() ? minimum(low, max) : low;
}
Tensor nan_to_num(const Tensor& x, double nan, std::optional<double> posinf, std::optional<double> neginf) {
  return whole(x) ? x : nan_to_num_op(x, nan, posinf, neginf);
}

Tensor& neg_(Tensor& x) {
  return neg_op.inplace(x);
}
Tensor& abs_(Tensor& x) {
  return abs_op.inplace(x);
}
Tensor& sqrt_(Tensor& x) {
  return sqrt_op.inplace(x);
}
Tensor& rsqrt_(Tensor& x) {
  return rsqrt_op.inplace(x);
}
Tensor& reciprocal_(Tensor& x) {
  return reciprocal_op.inplace(x);
}
Tensor& exp_(Tensor& x) {
  return exp_op.inplace(x);
}
Tensor& log_(Tensor& x) {
  return log_op.inplace(x);
}
Tensor& sin_(Tensor& x) {
  return sin_op.inplace(x);
}
Tensor& cos_(Tensor& x) {
  return cos_op.inplace(x);
}
Tensor& floor_(Tensor& x) {
  return whole(x) ? x : floor_op.inplace(x);
}
Tensor& round_(Tensor& x) {
  return whole(x) ? x : round_op.inplace(x);
}
Tensor& clamp_(Tensor& x, std::optional<Scalar> min, std::optional<Scalar> max) {
  return clamp_op.inplace(x, min, max);
}

Tensor Tensor::exp() const {
  return strata::exp(*this);
}
Tensor Tensor::log() const {
  return strata::log(*this);
}
Tensor Tensor::sqrt() const {
  return strata::sqrt(*this);
}
Tensor Tensor::abs() const {
  return strata::abs(*this);
}
Tensor Tensor::clamp(std::optional<Scalar> min, std::optional<Scalar> max) const {
  return strata::clamp(*this, min, max);
}

}  // namespace strata
