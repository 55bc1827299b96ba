// Records of gelu and its gradient.

#include <cmath>

#include "strata/ops/elementwise/records.h"

namespace strata {
namespace {

// Op text arguments are std::string: "none" or "tanh".
using GeluOp = Op<Tensor(const Tensor&, const std::string&)>;
using GeluBackwardOp = Op<Tensor(const Tensor&, const Tensor&, const std::string&)>;
constexpr double kSqrtTwoOverPi = 0.79788456080286535588, kInvSqrtTwoPi = 0.39894228040143267794, kCubic = 0.044715;

bool is_tanh_form(std::string_view approximate) {
  check(approximate == "none" || approximate == "tanh", "gelu", "approximate is \"", approximate,
        "\", it can be \"none\" or \"tanh\"");
  return approximate == "tanh";
}

const GeluOp gelu_op{{
    .schema = "gelu(Tensor x, str approximate=\"none\") -> Tensor",
    .doc = "x * Phi(x), Phi the standard normal distribution: x / 2 * (1 + erf(x / sqrt(2))), or with approximate "
           "\"tanh\" "
           "x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))); arXiv:1606.08415. ValueError for another form.",
    .infer =
        [](const Tensor& x, const std::string& approximate) {
          is_tanh_form(approximate);
          return laid_like(x);
        },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, const std::string& approximate) {
      map(on, is_tanh_form(approximate) ? Map::gelu_tanh : Map::gelu, y, {&x});
    }),
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x,
                   const std::string& approximate) { b.set(0, gelu_backward(b.gy(), x, approximate)); },
    .inplace = true,
    .adapt = Adapt::promote_float,
    .cost = [](const Tensor& x, const std::string&) { return map_cost(20, x, x); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}));
          s.add(s.tensor({3, 5}), "tanh");
          s.add(s.uniform({2, 37}, -8, 8));
          s.add(s.uniform({2, 37}, -8, 8), "tanh");
          s.add(s.tensor({0}));
          s.invalid<ValueError>("can be", s.tensor({2}), "exact");
          if (s.benchmarking()) {
            s.bench(s.tensor({4096, 4096}));
            s.bench(s.tensor({4096, 4096}), "tanh");
          }
        },
    .reference = pointwise<([](double x, const std::string& approximate) {
      const double u = kSqrtTwoOverPi * (x + kCubic * x * x * x);
      return approximate == "none" ? x * std::erfc(-x / std::sqrt(2.0)) / 2 : x / (1 + std::exp(-2 * u));
    })>,
}};

const GeluBackwardOp gelu_backward_op{{
    .schema = "gelu_backward(Tensor g, Tensor x, str approximate=\"none\") -> Tensor",
    .internal = true,
    .doc =
        "g times the derivative of gelu at x: Phi(x) + x * phi(x), phi the normal density, or that of the tanh form.",
    .infer =
        [](const Tensor& g, const Tensor& x, const std::string& approximate) {
          is_tanh_form(approximate);
          return like_if(g, kFloats, "gelu_backward", x);
        },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& g, const Tensor& x, const std::string& approximate) {
      map(on, is_tanh_form(approximate) ? Map::gelu_tanh_backward : Map::gelu_backward, y, {&g, &x});
    }),
    .saves = "g:x x",
    .backward =
        [](Backward& b, const Tensor& g, const Tensor& x, const std::string& approximate) {
          if (b.needs(0)) b.set(0, gelu_backward(b.gy(), x, approximate));
          if (!b.needs(1)) return;
          Tensor second;  // the second derivative of gelu
          if (is_tanh_form(approximate)) {
            const Tensor x2 = square(x), t = tanh(x * (x2 * kCubic + 1) * kSqrtTwoOverPi);
            const Tensor du = (x2 * (3 * kCubic) + 1) * kSqrtTwoOverPi, ddu = x * (6 * kCubic * kSqrtTwoOverPi);
            second = (1 - square(t)) * (du + x * (ddu * 0.5 - t * square(du)));
          } else {
            second = exp(square(x) * -0.5) * (2 - square(x)) * kInvSqrtTwoPi;
          }
          b.set(1, b.gy() * g * second);
        },
    .adapt = Adapt::promote,
    .cost = [](const Tensor& g, const Tensor& x, const std::string&) { return map_cost(25, g, g, x); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), s.tensor({3, 5}));
          s.add(s.tensor({3, 5}), s.tensor({3, 5}), "tanh");
          s.add(s.tensor({2, 37}), s.uniform({2, 37}, -8, 8));
          s.add(s.tensor({2, 37}), s.uniform({2, 37}, -8, 8), "tanh");
          if (s.benchmarking()) {
            s.bench(s.tensor({4096, 4096}), s.tensor({4096, 4096}));
            s.bench(s.tensor({4096, 4096}), s.tensor({4096, 4096}), "tanh");
          }
        },
    .reference = pointwise<([](double g, double x, const std::string& approximate) {
      if (approximate == "none")
        return g * (std::erfc(-x / std::sqrt(2.0)) / 2 + x * std::exp(-x * x / 2) * kInvSqrtTwoPi);
      const double u = kSqrtTwoOverPi * (x + kCubic * x * x * x), du = kSqrtTwoOverPi * (1 + 3 * kCubic * x * x);
      const double s = 1 / (1 + std::exp(-2 * u));
      return g * (s + 2 * x * s * (1 - s) * du);
    })>,
}};

}  // namespace

Tensor gelu(const Tensor& x, std::string_view approximate) {
  return gelu_op(x, std::string(approximate));
}
Tensor gelu_backward(const Tensor& g, const Tensor& x, std::string_view approximate) {
  return gelu_backward_op(g, x, std::string(approximate));
}

}  // namespace strata
