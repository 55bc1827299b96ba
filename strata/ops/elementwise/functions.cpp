// Records of the functions of one argument: arithmetic, exponentials, trigonometry.

#include <cmath>

#include "strata/ops/elementwise/records.h"

namespace strata {
namespace {

constexpr double kLn2 = 0.69314718055994530942, kLn10 = 2.30258509299404568402, kTwoOverSqrtPi = 1.12837916709551257390;

const UnaryOp neg_op{unary<Map::neg>({
                                         .schema = "neg(Tensor x) -> Tensor",
                                         .shard = "elementwise linear",
                                         .aliases = "negative",
                                         .doc = "-x. Integers wrap around; DTypeError for bool (use logical_not).",
                                         .infer = [](const Tensor& x) { return like_if(x, kFloats | kInts, "neg"); },
                                         .backward = [](Backward& b, const Tensor&) { b.set(0, -b.gy()); },
                                         .dtypes = kFloats | kInts,
                                         .samples =
                                             [](Samples& s) {
                                               samples_smooth(s);
                                               s.invalid<DTypeError>("does not take bool", s.boolean({2}));
                                             },
                                         .reference = pointwise<([](double x) { return -x; })>,
                                     },
                                     Adapt::none)};

const UnaryOp abs_op{unary<Map::abs>({
                                         .schema = "abs(Tensor x) -> Tensor",
                                         .aliases = "absolute",
                                         .doc = "The absolute value of x. The gradient at 0 is 0. DTypeError for bool.",
                                         .infer = [](const Tensor& x) { return like_if(x, kFloats | kInts, "abs"); },
                                         .saves = "x",
                                         .backward = [](Backward& b, const Tensor& x) { b.set(0, b.gy() * sign(x)); },
                                         .dtypes = kFloats | kInts,
                                         .samples = samples_kinked,
                                         .reference = pointwise<([](double x) { return x < 0 ? -x : x; })>,
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
                         .reference = pointwise<([](double x) { return x > 0   ? 1.0
                                                                       : x < 0 ? -1.0
                                                                               : x; })>,
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
                           .reference = pointwise<([](double x) { return x * x; })>,
                       },
                       Adapt::none)};

const UnaryOp reciprocal_op{unary<Map::reciprocal>({
    .schema = "reciprocal(Tensor x) -> Tensor",
    .doc = "1 / x.",
    .saves = "result",
    .backward = [](Backward& b, const Tensor&) { b.set(0, -b.gy() * square(b.y())); },
    .autocast = Autocast::full,
    .samples = samples_kinked,
    .reference = pointwise<([](double x) { return 1 / x; })>,
})};

const UnaryOp sqrt_op{unary<Map::sqrt>({
    .schema = "sqrt(Tensor x) -> Tensor",
    .doc = "The square root; NaN for negative x.",
    .saves = "result",
    .backward = [](Backward& b, const Tensor&) { b.set(0, b.gy() / (b.y() * 2)); },
    .samples = samples_positive,
    .reference = pointwise<([](double x) { return std::sqrt(x); })>,
})};

Tensor rsqrt_backward(const Tensor& g, const Tensor& y);
const BinaryOp rsqrt_backward_op{binary<Map::rsqrt_backward>({
    .schema = "rsqrt_backward(Tensor g, Tensor y) -> Tensor",
    .internal = true,
    .doc = "-g y^3 / 2: the gradient of y = 1 / sqrt(x).",
    .infer = [](const Tensor& g, const Tensor& y) { return like_if(g, kFloats, "rsqrt_backward", y); },
    .saves = "g:y y",
    .backward =
        [](Backward& b, const Tensor& g, const Tensor& y) {
          if (b.needs(0)) b.set(0, rsqrt_backward(b.gy(), y));
          if (b.needs(1)) b.set(1, b.gy() * g * square(y) * -1.5);
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), s.uniform({3, 5}, 0.3, 2));
          s.add(s.tensor({2, 37}), s.uniform({2, 37}, 0.3, 2));
        },
    .reference = pointwise<([](double g, double y) { return -0.5 * g * y * y * y; })>,
})};
Tensor rsqrt_backward(const Tensor& g, const Tensor& y) {
  return rsqrt_backward_op(g, y);
}

const UnaryOp rsqrt_op{unary<Map::rsqrt>({
    .schema = "rsqrt(Tensor x) -> Tensor",
    .doc = "1 / sqrt(x).",
    .saves = "result",
    .backward = [](Backward& b, const Tensor&) { b.set(0, rsqrt_backward(b.gy(), b.y())); },
    .autocast = Autocast::full,
    .samples = samples_positive,
    .reference = pointwise<([](double x) { return std::pow(x, -0.5); })>,
})};

const UnaryOp exp_op{unary<Map::exp>({
    .schema = "exp(Tensor x) -> Tensor",
    .doc = "e to the power x.",
    .example = "assert(exp(zeros({2})).to_vector<float>() == std::vector<float>({1, 1}));",
    .saves = "result",
    .backward = [](Backward& b, const Tensor&) { b.set(0, b.gy() * b.y()); },
    .autocast = Autocast::full,
    .reference = pointwise<([](double x) { return std::exp(x); })>,
})};

const UnaryOp exp2_op{unary<Map::exp2>({
    .schema = "exp2(Tensor x) -> Tensor",
    .doc = "2 to the power x.",
    .saves = "result",
    .backward = [](Backward& b, const Tensor&) { b.set(0, b.gy() * b.y() * kLn2); },
    .reference = pointwise<([](double x) { return std::exp2(x); })>,
})};

const UnaryOp expm1_op{unary<Map::expm1>({
    .schema = "expm1(Tensor x) -> Tensor",
    .doc = "exp(x) - 1, accurate also near 0.",
    .saves = "result",
    .backward = [](Backward& b, const Tensor&) { b.set(0, b.gy() * (b.y() + 1)); },
    .autocast = Autocast::full,
    .reference = pointwise<([](double x) { return std::expm1(x); })>,
})};

const UnaryOp log_op{unary<Map::log>({
    .schema = "log(Tensor x) -> Tensor",
    .doc = "The natural logarithm: -inf at 0, NaN for negative x.",
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, b.gy() / x); },
    .autocast = Autocast::full,
    .samples = samples_positive,
    .reference = pointwise<([](double x) { return std::log(x); })>,
})};

const UnaryOp log2_op{unary<Map::log2>({
    .schema = "log2(Tensor x) -> Tensor",
    .doc = "The logarithm to base 2.",
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, b.gy() / (x * kLn2)); },
    .autocast = Autocast::full,
    .samples = samples_positive,
    .reference = pointwise<([](double x) { return std::log2(x); })>,
})};

const UnaryOp log10_op{unary<Map::log10>({
    .schema = "log10(Tensor x) -> Tensor",
    .doc = "The logarithm to base 10.",
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, b.gy() / (x * kLn10)); },
    .autocast = Autocast::full,
    .samples = samples_positive,
    .reference = pointwise<([](double x) { return std::log10(x); })>,
})};

const UnaryOp log1p_op{unary<Map::log1p>({
    .schema = "log1p(Tensor x) -> Tensor",
    .doc = "log(1 + x), accurate also near 0.",
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, b.gy() / (x + 1)); },
    .autocast = Autocast::full,
    .samples = samples_between<-80, 300>,
    .reference = pointwise<([](double x) { return std::log1p(x); })>,
})};

const UnaryOp sin_op{unary<Map::sin>({
    .schema = "sin(Tensor x) -> Tensor",
    .doc = "The sine of x in radians.",
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, b.gy() * cos(x)); },
    .reference = pointwise<([](double x) { return std::sin(x); })>,
})};

const UnaryOp cos_op{unary<Map::cos>({
    .schema = "cos(Tensor x) -> Tensor",
    .doc = "The cosine of x in radians.",
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, -(b.gy() * sin(x))); },
    .reference = pointwise<([](double x) { return std::cos(x); })>,
})};

const UnaryOp tan_op{unary<Map::tan>({
    .schema = "tan(Tensor x) -> Tensor",
    .doc = "The tangent of x in radians.",
    .saves = "result",
    .backward = [](Backward& b, const Tensor&) { b.set(0, b.gy() * (square(b.y()) + 1)); },
    .autocast = Autocast::full,
    .samples = samples_between<-120, 120>,
    .reference = pointwise<([](double x) { return std::tan(x); })>,
})};

const UnaryOp asin_op{unary<Map::asin>({
    .schema = "asin(Tensor x) -> Tensor",
    .aliases = "arcsin",
    .doc = "The inverse sine, in [-pi/2, pi/2]; NaN outside [-1, 1].",
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, b.gy() * rsqrt(1 - square(x))); },
    .samples = samples_between<-80, 80>,
    .reference = pointwise<([](double x) { return std::asin(x); })>,
})};

const UnaryOp acos_op{unary<Map::acos>({
    .schema = "acos(Tensor x) -> Tensor",
    .aliases = "arccos",
    .doc = "The inverse cosine, in [0, pi]; NaN outside [-1, 1].",
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, -(b.gy() * rsqrt(1 - square(x)))); },
    .autocast = Autocast::full,
    .samples = samples_between<-80, 80>,
    .reference = pointwise<([](double x) { return std::acos(x); })>,
})};

const UnaryOp atan_op{unary<Map::atan>({
    .schema = "atan(Tensor x) -> Tensor",
    .aliases = "arctan",
    .doc = "The inverse tangent, in [-pi/2, pi/2].",
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, b.gy() / (square(x) + 1)); },
    .reference = pointwise<([](double x) { return std::atan(x); })>,
})};

const UnaryOp sinh_op{unary<Map::sinh>({
    .schema = "sinh(Tensor x) -> Tensor",
    .doc = "The hyperbolic sine.",
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, b.gy() * cosh(x)); },
    .autocast = Autocast::full,
    .reference = pointwise<([](double x) { return std::sinh(x); })>,
})};

const UnaryOp cosh_op{unary<Map::cosh>({
    .schema = "cosh(Tensor x) -> Tensor",
    .doc = "The hyperbolic cosine.",
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, b.gy() * sinh(x)); },
    .autocast = Autocast::full,
    .reference = pointwise<([](double x) { return std::cosh(x); })>,
})};

const UnaryOp asinh_op{unary<Map::asinh>({
    .schema = "asinh(Tensor x) -> Tensor",
    .aliases = "arcsinh",
    .doc = "The inverse hyperbolic sine.",
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, b.gy() * rsqrt(square(x) + 1)); },
    .reference = pointwise<([](double x) { return std::asinh(x); })>,
})};

const UnaryOp acosh_op{unary<Map::acosh>({
    .schema = "acosh(Tensor x) -> Tensor",
    .aliases = "arccosh",
    .doc = "The inverse hyperbolic cosine; NaN below 1.",
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, b.gy() * rsqrt(square(x) - 1)); },
    .samples = samples_between<130, 400>,
    .reference = pointwise<([](double x) { return std::acosh(x); })>,
})};

const UnaryOp atanh_op{unary<Map::atanh>({
    .schema = "atanh(Tensor x) -> Tensor",
    .aliases = "arctanh",
    .doc = "The inverse hyperbolic tangent; NaN outside [-1, 1].",
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, b.gy() / (1 - square(x))); },
    .samples = samples_between<-80, 80>,
    .reference = pointwise<([](double x) { return std::atanh(x); })>,
})};

const UnaryOp erf_op{unary<Map::erf>({
    .schema = "erf(Tensor x) -> Tensor",
    .doc = "The error function, 2/sqrt(pi) times the integral of exp(-t^2) from 0 to x.",
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, b.gy() * exp(-square(x)) * kTwoOverSqrtPi); },
    .reference = pointwise<([](double x) { return std::erf(x); })>,
})};

const UnaryOp erfc_op{unary<Map::erfc>({
    .schema = "erfc(Tensor x) -> Tensor",
    .doc = "1 - erf(x), accurate where that is small.",
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, b.gy() * exp(-square(x)) * -kTwoOverSqrtPi); },
    .reference = pointwise<([](double x) { return std::erfc(x); })>,
})};

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
Tensor Tensor::neg() const {
  return strata::neg(*this);
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
}  // namespace strata
