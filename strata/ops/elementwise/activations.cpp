// Records of the activations and of their fused gradients.

#include <algorithm>
#include <cmath>
#include <utility>

#include "strata/ops/elementwise/records.h"

namespace strata {
namespace {

using OneNumber = Op<Tensor(const Tensor&, double)>;
using TwoNumbers = Op<Tensor(const Tensor&, double, double)>;
using PairOneNumber = Op<Tensor(const Tensor&, const Tensor&, double)>;
using PairTwoNumbers = Op<Tensor(const Tensor&, const Tensor&, double, double)>;

// Gradients: g and the argument (or result) have one shape. Off the kinks, of both signs.
void samples_gradient(Samples& s) {
  s.add(s.tensor({3, 5}), s.off_grid({3, 5}));
  s.add(s.tensor({2, 37}), s.off_grid({2, 37}));
  s.add(s.tensor({0}), s.tensor({0}));
  s.invalid<DTypeError>("does not take", s.boolean({3}), s.boolean({3}));
  if (s.benchmarking()) s.bench(s.tensor({4096, 4096}), s.tensor({4096, 4096}));
}
void samples_gradient_of_result(Samples& s) {
  s.add(s.tensor({3, 5}), s.uniform({3, 5}, -0.9, 0.9));
  s.add(s.tensor({2, 37}), s.uniform({2, 37}, -0.9, 0.9));
  s.invalid<DTypeError>("does not take", s.boolean({3}), s.boolean({3}));
  if (s.benchmarking()) s.bench(s.tensor({4096, 4096}), s.uniform({4096, 4096}, -0.9, 0.9));
}

// ---- sigmoid and tanh: gradients from the result ----

const UnaryOp sigmoid_op{unary<Map::sigmoid>({
    .schema = "sigmoid(Tensor x) -> Tensor",
    .doc = "1 / (1 + exp(-x)).",
    .example = "assert(sigmoid(zeros({1})).item() == 0.5);",
    .saves = "result",
    .backward = [](Backward& b, const Tensor&) { b.set(0, sigmoid_backward(b.gy(), b.y())); },
    .cost = [](const Tensor& x) { return map_cost(10, x, x); },
    .reference = pointwise<([](double x) { return 1 / (1 + std::exp(-x)); })>,
})};

const BinaryOp sigmoid_backward_op{binary<Map::sigmoid_backward>({
    .schema = "sigmoid_backward(Tensor g, Tensor y) -> Tensor",
    .internal = true,
    .doc = "g * y * (1 - y): the gradient of y = sigmoid(x).",
    .infer = [](const Tensor& g, const Tensor& x) { return like_if(g, kFloats, "sigmoid_backward", x); },
    .saves = "g:y y",
    .backward =
        [](Backward& b, const Tensor& g, const Tensor& y) {
          if (b.needs(0)) b.set(0, sigmoid_backward(b.gy(), y));
          if (b.needs(1)) b.set(1, b.gy() * g * (1 - y * 2));
        },
    .samples = samples_gradient_of_result,
    .reference = pointwise<([](double g, double y) { return g * y * (1 - y); })>,
})};

const UnaryOp tanh_op{unary<Map::tanh>({
    .schema = "tanh(Tensor x) -> Tensor",
    .doc = "The hyperbolic tangent.",
    .saves = "result",
    .backward = [](Backward& b, const Tensor&) { b.set(0, tanh_backward(b.gy(), b.y())); },
    .cost = [](const Tensor& x) { return map_cost(10, x, x); },
    .reference = pointwise<([](double x) { return std::tanh(x); })>,
})};

const BinaryOp tanh_backward_op{binary<Map::tanh_backward>({
    .schema = "tanh_backward(Tensor g, Tensor y) -> Tensor",
    .internal = true,
    .doc = "g * (1 - y^2): the gradient of y = tanh(x).",
    .infer = [](const Tensor& g, const Tensor& x) { return like_if(g, kFloats, "tanh_backward", x); },
    .saves = "g:y y",
    .backward =
        [](Backward& b, const Tensor& g, const Tensor& y) {
          if (b.needs(0)) b.set(0, tanh_backward(b.gy(), y));
          if (b.needs(1)) b.set(1, b.gy() * g * y * -2);
        },
    .samples = samples_gradient_of_result,
    .reference = pointwise<([](double g, double y) { return g * (1 - y * y); })>,
})};

const UnaryOp logsigmoid_op{unary<Map::logsigmoid>({
    .schema = "logsigmoid(Tensor x) -> Tensor",
    .doc = "log(sigmoid(x)), without overflow.",
    .saves = "x",
    // In one pass: logsigmoid(x) is -softplus(-x).
    .backward = [](Backward& b, const Tensor& x) { b.set(0, softplus_backward(b.gy(), x, -1, HUGE_VAL)); },
    .cost = [](const Tensor& x) { return map_cost(20, x, x); },
    .reference = pointwise<([](double x) { return -std::log(1 + std::exp(-static_cast<long double>(x))); })>,
})};

// ---- relu and its relatives ----

const UnaryOp relu_op{
    unary<Map::relu>({
                         .schema = "relu(Tensor x) -> Tensor",
                         .doc = "max(x, 0). The gradient at 0 is 0. DTypeError for bool.",
                         .example = "assert(relu(full({2}, -3.0)).sum().item() == 0);",
                         .infer = [](const Tensor& x) { return like_if(x, kFloats | kInts, "relu"); },
                         .saves = "result",
                         .backward = [](Backward& b, const Tensor&) { b.set(0, relu_backward(b.gy(), b.y())); },
                         .dtypes = kFloats | kInts,
                         .samples = samples_kinked,
                         .reference = pointwise<([](double x) { return x > 0 ? x : 0; })>,
                     },
                     Adapt::none)};

const BinaryOp relu_backward_op{binary<Map::relu_backward>({
    .schema = "relu_backward(Tensor g, Tensor y) -> Tensor",
    .internal = true,
    .doc = "g where y > 0, else 0: the gradient of relu from its result or its argument.",
    .infer = [](const Tensor& g, const Tensor& x) { return like_if(g, kFloats, "relu_backward", x); },
    .saves = "y",
    .backward =
        [](Backward& b, const Tensor&, const Tensor& y) {
          if (b.needs(0)) b.set(0, relu_backward(b.gy(), y));
          if (b.needs(1)) b.set(1, no_slope(b.gy()));
        },
    .samples = samples_gradient,
    .reference = pointwise<([](double g, double y) { return y > 0 ? g : 0; })>,
})};

const OneNumber leaky_relu_op{{
    .schema = "leaky_relu(Tensor x, float negative_slope=0.01) -> Tensor",
    .doc = "x where positive, else negative_slope * x.",
    .infer = [](const Tensor& x, double) { return laid_like(x); },
    .kernels = on_each_device(
        [](auto on, Tensor& y, const Tensor& x, double slope) { map(on, Map::leaky_relu, y, {&x}, {{slope}}); }),
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x, double slope) { b.set(0, leaky_relu_backward(b.gy(), x, slope)); },
    .inplace = true,
    .adapt = Adapt::promote_float,
    .cost = [](const Tensor& x, double) { return map_cost(2, x, x); },
    .samples =
        [](Samples& s) {
          s.add(s.off_grid({3, 5}), 0.1);
          s.add(s.off_grid({2, 37}));
        },
    .reference = pointwise<([](double x, double slope) { return x > 0 ? x : slope * x; })>,
}};

const PairOneNumber leaky_relu_backward_op{{
    .schema = "leaky_relu_backward(Tensor g, Tensor x, float negative_slope) -> Tensor",
    .internal = true,
    .doc = "g where x > 0, else negative_slope * g: the gradient of leaky_relu.",
    .infer = [](const Tensor& g, const Tensor& x, double) { return like_if(g, kFloats, "leaky_relu_backward", x); },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& g, const Tensor& x, double slope) {
      map(on, Map::leaky_relu_backward, y, {&g, &x}, {{slope}});
    }),
    .saves = "x",
    .backward =
        [](Backward& b, const Tensor&, const Tensor& x, double slope) {
          if (b.needs(0)) b.set(0, leaky_relu_backward(b.gy(), x, slope));
          if (b.needs(1)) b.set(1, no_slope(b.gy()));
        },
    .adapt = Adapt::promote,
    .cost = [](const Tensor& g, const Tensor& x, double) { return map_cost(2, g, g, x); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), s.off_grid({3, 5}), 0.1);
        },
    .reference = pointwise<([](double g, double x, double slope) { return x > 0 ? g : slope * g; })>,
}};

constexpr double kSeluScale = 1.0507009873554804934, kSeluAlpha = 1.6732632423543772848;

using ThreeNumbers = Op<Tensor(const Tensor&, double, double, double)>;
using PairThreeNumbers = Op<Tensor(const Tensor&, const Tensor&, double, double, double)>;
Tensor elu_slope(const Tensor& g, const Tensor& x, double alpha, double scale, double input_scale);

// elu, selu and celu are one function of three numbers.
const ThreeNumbers elu_op{{
    .schema = "elu(Tensor x, float alpha=1, float scale=1, float input_scale=1) -> Tensor",
    .doc =
        "scale * x where positive, else scale * alpha * (exp(input_scale * x) - 1); arXiv:1511.07289. selu is elu with "
        "the constants of arXiv:1706.02515, celu elu with input_scale 1 / alpha.",
    .infer = [](const Tensor& x, double, double, double) { return laid_like(x); },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, double alpha, double scale, double input_scale) {
      map(on, Map::elu, y, {&x}, {{alpha, scale, input_scale}});
    }),
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x, double alpha, double scale,
                   double input_scale) { b.set(0, elu_slope(b.gy(), x, alpha, scale, input_scale)); },
    .inplace = true,
    .adapt = Adapt::promote_float,
    .cost = [](const Tensor& x, double, double, double) { return map_cost(10, x, x); },
    .samples =
        [](Samples& s) {
          s.add(s.off_grid({3, 5}), 0.5);
          s.add(s.off_grid({2, 37}), kSeluAlpha, kSeluScale);
          s.add(s.off_grid({2, 37}), 0.5, 1.5, 2.0);
          s.add(s.tensor({0}));
        },
    .reference = pointwise<([](double x, double alpha, double scale, double input_scale) {
      return scale * (x > 0 ? x : alpha * (std::exp(static_cast<long double>(x * input_scale)) - 1));
    })>,
}};

const PairThreeNumbers elu_backward_op{{
    .schema = "elu_backward(Tensor g, Tensor x, float alpha, float scale=1, float input_scale=1) -> Tensor",
    .internal = true,
    .doc = "g scale where x > 0, else g scale alpha input_scale exp(input_scale x): the gradient of elu.",
    .infer = [](const Tensor& g, const Tensor& x, double, double,
                double) { return like_if(g, kFloats, "elu_backward", x); },
    .kernels = on_each_device(
        [](auto on, Tensor& y, const Tensor& g, const Tensor& x, double alpha, double scale, double input_scale) {
          map(on, Map::elu_backward, y, {&g, &x}, {{alpha, scale, input_scale}});
        }),
    .saves = "g:x x",
    .backward =
        [](Backward& b, const Tensor& g, const Tensor& x, double alpha, double scale, double input_scale) {
          if (b.needs(0)) b.set(0, elu_slope(b.gy(), x, alpha, scale, input_scale));
          if (b.needs(1)) b.set(1, where(x > 0, 0, elu_slope(b.gy() * g, x, alpha * input_scale, scale, input_scale)));
        },
    .adapt = Adapt::promote,
    .cost = [](const Tensor& g, const Tensor& x, double, double, double) { return map_cost(10, g, g, x); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), s.off_grid({3, 5}), 0.5);
          s.add(s.tensor({2, 37}), s.off_grid({2, 37}), 0.5, 1.5, 2.0);
        },
    .reference = pointwise<([](double g, double x, double alpha, double scale, double input_scale) {
      return g * scale * (x > 0 ? 1 : alpha * input_scale * std::exp(x * input_scale));
    })>,
}};
Tensor elu_slope(const Tensor& g, const Tensor& x, double alpha, double scale, double input_scale) {
  return elu_backward_op(g, x, alpha, scale, input_scale);
}

// The integers of a dtype in [min, max].
std::pair<int64_t, int64_t> whole_bounds(double min, double max, DType t) {
  const int bits = static_cast<int>(8 * size_of(t));
  const double least = t == DType::u8 ? 0 : -std::exp2(bits - 1), most = t == DType::u8 ? 255 : std::exp2(bits - 1) - 1;
  const auto fit = [&](double v) {
    return v >= 0x1p63 ? INT64_MAX : static_cast<int64_t>(std::min(std::max(v, least), most));
  };
  return {fit(std::ceil(min)), fit(std::floor(max))};
}

const TwoNumbers hardtanh_op{{
    .schema = "hardtanh(Tensor x, float min=-1, float max=1) -> Tensor",
    .doc = "x limited to [min, max]; the gradient at the bounds is 0. Integers stay, the bounds rounded inwards. "
           "ValueError "
           "unless min <= max; DTypeError for bool.",
    .infer =
        [](const Tensor& x, double min, double max) {
          check(min <= max, "hardtanh", "min ", min, " is above max ", max);
          return like_if(x, kNumbers, "hardtanh");
        },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, double min, double max) {
      if (is_floating(x.dtype())) return map(on, Map::hardtanh, y, {&x}, {{min, max}});
      const auto [low, high] = whole_bounds(min, max, x.dtype());
      map(on, Map::clamp, y, {&x}, {{low, high}});
    }),
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x, double min,
                   double max) { b.set(0, hardtanh_backward(b.gy(), x, min, max)); },
    .inplace = true,
    .dtypes = kNumbers,
    .cost = [](const Tensor& x, double, double) { return map_cost(2, x, x); },
    .samples =
        [](Samples& s) {
          s.add(s.off_grid({3, 5}));
          s.add(s.off_grid({2, 37}), 0.0, 6.0);
          s.add(s.off_grid({2, 37}), -1.5, 2.5);
          s.invalid<ValueError>("above max", s.tensor({2}), 1.0, 0.0);
        },
    .reference = pointwise<([](double x, double min, double max) { return std::min(std::max(x, min), max); })>,
}};

const PairTwoNumbers hardtanh_backward_op{{
    .schema = "hardtanh_backward(Tensor g, Tensor x, float min, float max) -> Tensor",
    .internal = true,
    .doc = "g where min < x < max, else 0: the gradient of hardtanh.",
    .infer = [](const Tensor& g, const Tensor& x, double,
                double) { return like_if(g, kFloats, "hardtanh_backward", x); },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& g, const Tensor& x, double min, double max) {
      map(on, Map::hardtanh_backward, y, {&g, &x}, {{min, max}});
    }),
    .saves = "x",
    .backward =
        [](Backward& b, const Tensor&, const Tensor& x, double min, double max) {
          if (b.needs(0)) b.set(0, hardtanh_backward(b.gy(), x, min, max));
          if (b.needs(1)) b.set(1, no_slope(b.gy()));
        },
    .adapt = Adapt::promote,
    .cost = [](const Tensor& g, const Tensor& x, double, double) { return map_cost(2, g, g, x); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), s.off_grid({3, 5}), -1.0, 1.0);
        },
    .reference = pointwise<([](double g, double x, double min, double max) { return min < x && x < max ? g : 0; })>,
}};

const UnaryOp hardsigmoid_op{unary<Map::hardsigmoid>({
    .schema = "hardsigmoid(Tensor x) -> Tensor",
    .doc = "x / 6 + 1/2 limited to [0, 1]; arXiv:1905.02244.",
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, hardtanh_backward(b.gy() / 6.0, x, -3, 3)); },
    .samples = samples_kinked,
    .reference = pointwise<([](double x) { return std::min(std::max(x / 6 + 0.5, 0.0), 1.0); })>,
})};

const UnaryOp hardswish_op{unary<Map::hardswish>({
    .schema = "hardswish(Tensor x) -> Tensor",
    .doc = "x * hardsigmoid(x); arXiv:1905.02244.",
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, hardswish_backward(b.gy(), x)); },
    .samples = samples_kinked,
    .reference = pointwise<([](double x) { return x * std::min(std::max(x / 6 + 0.5, 0.0), 1.0); })>,
})};

const BinaryOp hardswish_backward_op{binary<Map::hardswish_backward>({
    .schema = "hardswish_backward(Tensor g, Tensor x) -> Tensor",
    .internal = true,
    .doc = "g times the derivative of hardswish at x: 0 up to -3, 1 from 3 on, between them x / 3 + 1/2.",
    .infer = [](const Tensor& g, const Tensor& x) { return like_if(g, kFloats, "hardswish_backward", x); },
    .saves = "g:x x",
    .backward =
        [](Backward& b, const Tensor& g, const Tensor& x) {
          if (b.needs(0)) b.set(0, hardswish_backward(b.gy(), x));
          if (b.needs(1)) b.set(1, hardtanh_backward(b.gy() * g / 3.0, x, -3, 3));
        },
    .samples = samples_gradient,
    .reference = pointwise<([](double g, double x) { return x <= -3  ? 0
                                                            : x >= 3 ? g
                                                                     : g * (2 * x + 3) / 6; })>,
})};

// ---- smooth ones ----

const TwoNumbers softplus_op{{
    .schema = "softplus(Tensor x, float beta=1, float threshold=20) -> Tensor",
    .doc = "log(1 + exp(beta * x)) / beta, or x where beta * x > threshold (the difference is then below rounding).",
    .infer = [](const Tensor& x, double, double) { return laid_like(x); },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, double beta, double threshold) {
      map(on, Map::softplus, y, {&x}, {{beta, threshold}});
    }),
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x, double beta,
                   double threshold) { b.set(0, softplus_backward(b.gy(), x, beta, threshold)); },
    .inplace = true,
    .adapt = Adapt::promote_float,
    .autocast = Autocast::full,
    .cost = [](const Tensor& x, double, double) { return map_cost(20, x, x); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}));
          s.add(s.tensor({2, 37}), 2.0, 3.0).not_differentiable();
          s.add(s.uniform({2, 37}, -30, 30));
        },
    .reference = pointwise<([](double x, double beta, double threshold) {
      return beta * x > threshold ? x : std::log(1 + std::exp(static_cast<long double>(beta) * x)) / beta;
    })>,
}};

const PairTwoNumbers softplus_backward_op{{
    .schema = "softplus_backward(Tensor g, Tensor x, float beta, float threshold) -> Tensor",
    .internal = true,
    .doc = "g * sigmoid(beta * x), or g where beta * x > threshold: the gradient of softplus.",
    .infer = [](const Tensor& g, const Tensor& x, double,
                double) { return like_if(g, kFloats, "softplus_backward", x); },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& g, const Tensor& x, double beta, double threshold) {
      map(on, Map::softplus_backward, y, {&g, &x}, {{beta, threshold}});
    }),
    .saves = "g:x x",
    .backward =
        [](Backward& b, const Tensor& g, const Tensor& x, double beta, double threshold) {
          if (b.needs(0)) b.set(0, softplus_backward(b.gy(), x, beta, threshold));
          if (b.needs(1)) {
            const Tensor s = sigmoid(x * beta);
            b.set(1, where(x * beta > threshold, 0, sigmoid_backward(b.gy() * g * beta, s)));
          }
        },
    .adapt = Adapt::promote,
    .cost = [](const Tensor& g, const Tensor& x, double, double) { return map_cost(10, g, g, x); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), s.tensor({3, 5}), 2.0, 20.0);
        },
    .reference = pointwise<([](double g, double x, double beta, double threshold) {
      return beta * x > threshold ? g : g / (1 + std::exp(-beta * x));
    })>,
}};

const UnaryOp mish_op{unary<Map::mish>({
    .schema = "mish(Tensor x) -> Tensor",
    .doc = "x * tanh(softplus(x)); arXiv:1908.08681.",
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, mish_backward(b.gy(), x)); },
    .cost = [](const Tensor& x) { return map_cost(30, x, x); },
    .reference = pointwise<([](double x) {
      const long double e = std::exp(static_cast<long double>(x)), square = e * (2 + e);
      return x * square / (square + 2);
    })>,
})};

const BinaryOp mish_backward_op{binary<Map::mish_backward>({
    .schema = "mish_backward(Tensor g, Tensor x) -> Tensor",
    .internal = true,
    .doc = "g times the derivative of mish at x: with t = tanh(softplus(x)), t + x * sigmoid(x) * (1 - t^2).",
    .infer = [](const Tensor& g, const Tensor& x) { return like_if(g, kFloats, "mish_backward", x); },
    .saves = "g:x x",
    .backward =
        [](Backward& b, const Tensor& g, const Tensor& x) {
          if (b.needs(0)) b.set(0, mish_backward(b.gy(), x));
          if (b.needs(1)) {
            const Tensor s = sigmoid(x), t = tanh(softplus(x)), u = 1 - square(t);
            b.set(1, b.gy() * g * s * u * (2 + x * (1 - s - t * s * 2)));
          }
        },
    .samples = samples_gradient,
    .reference = pointwise<([](double g, double x) {
      const long double e = std::exp(static_cast<long double>(x)), square = e * (2 + e), all = square + 2;
      return g * (square / all + x * 4 * e * (1 + e) / (all * all));
    })>,
})};

const UnaryOp silu_op{unary<Map::silu>({
    .schema = "silu(Tensor x) -> Tensor",
    .doc = "x * sigmoid(x), also known as swish; arXiv:1606.08415.",
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, silu_backward(b.gy(), x)); },
    .cost = [](const Tensor& x) { return map_cost(11, x, x); },
    .reference = pointwise<([](double x) { return x / (1 + std::exp(-x)); })>,
})};

const BinaryOp silu_backward_op{binary<Map::silu_backward>({
    .schema = "silu_backward(Tensor g, Tensor x) -> Tensor",
    .internal = true,
    .doc = "g times the derivative of silu at x: with s = sigmoid(x), s * (1 + x * (1 - s)).",
    .infer = [](const Tensor& g, const Tensor& x) { return like_if(g, kFloats, "silu_backward", x); },
    .saves = "g:x x",
    .backward =
        [](Backward& b, const Tensor& g, const Tensor& x) {
          if (b.needs(0)) b.set(0, silu_backward(b.gy(), x));
          if (b.needs(1)) {
            const Tensor s = sigmoid(x);
            b.set(1, b.gy() * g * s * (1 - s) * (2 + x * (1 - s * 2)));
          }
        },
    .samples = samples_gradient,
    .reference = pointwise<([](double g, double x) {
      const double e = std::exp(-x);
      return g * (1 + e + x * e) / ((1 + e) * (1 + e));
    })>,
})};

}  // namespace

Tensor sigmoid(const Tensor& x) {
  return sigmoid_op(x);
}
Tensor tanh(const Tensor& x) {
  return tanh_op(x);
}
Tensor logsigmoid(const Tensor& x) {
  return logsigmoid_op(x);
}
Tensor relu(const Tensor& x) {
  return relu_op(x);
}
Tensor leaky_relu(const Tensor& x, double negative_slope) {
  return leaky_relu_op(x, negative_slope);
}
Tensor elu(const Tensor& x, double alpha) {
  return elu_of(x, alpha, 1, 1);
}
Tensor selu(const Tensor& x) {
  return elu_of(x, kSeluAlpha, kSeluScale, 1);
}
Tensor elu_of(const Tensor& x, double alpha, double scale, double input_scale) {
  return elu_op(x, alpha, scale, input_scale);
}
Tensor relu6(const Tensor& x) {
  return hardtanh_op(x, 0, 6);
}
Tensor hardtanh(const Tensor& x, double min, double max) {
  return hardtanh_op(x, min, max);
}
Tensor hardsigmoid(const Tensor& x) {
  return hardsigmoid_op(x);
}
Tensor hardswish(const Tensor& x) {
  return hardswish_op(x);
}
Tensor mish(const Tensor& x) {
  return mish_op(x);
}
Tensor softplus(const Tensor& x, double beta, double threshold) {
  return softplus_op(x, beta, threshold);
}
Tensor silu(const Tensor& x) {
  return silu_op(x);
}

Tensor sigmoid_backward(const Tensor& g, const Tensor& y) {
  return sigmoid_backward_op(g, y);
}
Tensor tanh_backward(const Tensor& g, const Tensor& y) {
  return tanh_backward_op(g, y);
}
Tensor relu_backward(const Tensor& g, const Tensor& y) {
  return relu_backward_op(g, y);
}
Tensor leaky_relu_backward(const Tensor& g, const Tensor& x, double slope) {
  return leaky_relu_backward_op(g, x, slope);
}
Tensor elu_backward(const Tensor& g, const Tensor& x, double alpha) {
  return elu_backward_op(g, x, alpha, 1, 1);
}
Tensor hardtanh_backward(const Tensor& g, const Tensor& x, double min, double max) {
  return hardtanh_backward_op(g, x, min, max);
}
Tensor hardswish_backward(const Tensor& g, const Tensor& x) {
  return hardswish_backward_op(g, x);
}
Tensor mish_backward(const Tensor& g, const Tensor& x) {
  return mish_backward_op(g, x);
}
Tensor softplus_backward(const Tensor& g, const Tensor& x, double beta, double threshold) {
  return softplus_backward_op(g, x, beta, threshold);
}
Tensor silu_backward(const Tensor& g, const Tensor& x) {
  return silu_backward_op(g, x);
}

Tensor& sigmoid_(Tensor& x) {
  return sigmoid_op.inplace(x);
}
Tensor& tanh_(Tensor& x) {
  return tanh_op.inplace(x);
}
Tensor& relu_(Tensor& x) {
  return relu_op.inplace(x);
}

Tensor Tensor::tanh() const {
  return strata::tanh(*this);
}
Tensor Tensor::sigmoid() const {
  return strata::sigmoid(*this);
}
Tensor Tensor::relu() const {
  return strata::relu(*this);
}

}  // namespace strata
