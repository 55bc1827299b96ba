// Activations composed of elementwise functions. bf16 and f16 are computed in f32 and rounded once.

#include "strata/ops/activation/activation.h"

#include <cmath>
#include <vector>

#include "strata/core/layout.h"
#include "strata/core/node.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/activation/gates_kernel.h"
#include "strata/ops/copy/copy_kernels.h"
#include "strata/ops/elementwise/records.h"
#include "strata/ops/index/index.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/softmax/softmax.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

// f of x in f32 or f64, in x's dtype; integers as the default dtype.
template <class F>
Tensor computed(const Tensor& x, F&& f) {
  if (!is_floating(x.dtype())) return f(x.to(default_dtype()));
  return is_reduced_floating(x.dtype()) ? f(x.to(DType::f32)).to(x.dtype()) : f(x);
}
// f at each element, by hand.
template <class F>
Tensor by_hand(const Tensor& x, F&& f) {
  std::vector<double> v = x.to_vector<double>();
  for (double& a : v) a = f(a);
  return from_span<double>(v, x.shape());
}

DType floating_of(const Tensor& x) {
  return is_floating(x.dtype()) ? x.dtype() : default_dtype();
}
// Calls f(r) with a tensor of y's shape in f32 or f64, which is what y is to hold: y itself where it has that dtype.
template <class F>
void in_wide(const auto& on, Tensor& y, F&& f) {
  if (!is_reduced_floating(y.dtype())) return f(y);
  Tensor wide = empty(laid_like(y).with_dtype(DType::f32));
  f(wide);
  copy_elements(on, y, wide);
}

using Plain = Op<Tensor(const Tensor&)>;
using OneNumber = Op<Tensor(const Tensor&, double)>;
using TwoNumbers = Op<Tensor(const Tensor&, double, double)>;

const OneNumber celu_op{{
    .schema = "celu(Tensor input, float alpha=1.0) -> Tensor",
    .doc = "input where positive, else alpha (exp(input / alpha) - 1); arXiv:1704.07483. ValueError where alpha is 0.",
    .example = "assert(celu(full({1}, 2.0)).item() == 2 && celu(full({1}, -50.0), 3).item() < -2.9999);",
    .composed =
        [](const Tensor& x, double alpha) {
          check(alpha != 0, "celu", "alpha must not be 0");
          return elu_of(x, alpha, 1, 1 / alpha);
        },
    .samples =
        [](Samples& s) {
          s.add(s.off_grid({3, 5}));
          s.add(s.off_grid({2, 37}), 0.5);
          s.invalid<ValueError>("alpha", s.tensor({2}), 0.0);
        },
    .reference =
        [](const Tensor& x, double alpha) {
          return by_hand(x, [&](double v) { return v > 0 ? v : alpha * std::expm1(v / alpha); });
        },
}};

// As elementwise.h has it: elu with constants.
const Plain selu_op{{
    .schema = "selu(Tensor input) -> Tensor",
    .doc =
        "scale input where positive, else scale alpha (exp(input) - 1) with alpha 1.67326.. and scale 1.05070.., which "
        "keep mean 0 and variance 1 (Klambauer et al., arXiv:1706.02515).",
    .composed = [](const Tensor& x) { return selu(x); },
    .samples =
        [](Samples& s) {
          s.add(s.off_grid({3, 5}));
          s.add(s.off_grid({2, 37}));
        },
    .reference =
        [](const Tensor& x) {
          return by_hand(
              x, [](double v) { return 1.0507009873554805 * (v > 0 ? v : 1.6732632423543772 * std::expm1(v)); });
        },
}};

const Plain relu6_op{{
    .schema = "relu6(Tensor input) -> Tensor",
    .doc = "input limited to [0, 6]; the gradient at the bounds is 0.",
    .composed = [](const Tensor& x) { return relu6(x); },
    .samples =
        [](Samples& s) {
          s.add(s.off_grid({3, 5}));
          s.add(s.uniform({2, 37}, 3, 9)).not_differentiable();
        },
    .reference = [](const Tensor& x) { return by_hand(x, [](double v) { return v < 0   ? 0
                                                                               : v > 6 ? 6
                                                                                       : v; }); },
}};

const Plain softsign_op{{
    .schema = "softsign(Tensor input) -> Tensor",
    .doc = "input / (1 + |input|).",
    .example = "assert(softsign(full({1}, -1.0)).item() == -0.5);",
    .composed = [](const Tensor& x) { return computed(x, [](const Tensor& v) { return v / (abs(v) + 1); }); },
    .samples =
        [](Samples& s) {
          s.add(s.off_grid({3, 5}));
          s.add(s.off_grid({2, 37}));
        },
    .reference = [](const Tensor& x) { return by_hand(x, [](double v) { return v / (1 + std::abs(v)); }); },
}};

// What cuts a band out of the line: one pass over x, and one over the gradient.
Tensor replace_between_backward(const Tensor& g, const Tensor& x, double low, double high);
const Op<Tensor(const Tensor&, const Tensor&, double, double)> replace_between_backward_op{{
    .schema = "replace_between_backward(Tensor g, Tensor x, float low, float high) -> Tensor",
    .shard = "elementwise",
    .internal = true,
    .doc = "0 where low <= x <= high, else g: the gradient of replace_between.",
    .infer = [](const Tensor& g, const Tensor&, double,
                double) { return like_if(g, kFloats, "replace_between_backward"); },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& g, const Tensor& x, double low, double high) {
      map(on, Map::replace_between_backward, y, {&g, &x}, {{low, high}});
    }),
    .saves = "x",
    .backward =
        [](Backward& b, const Tensor&, const Tensor& x, double low, double high) {
          if (b.needs(0)) b.set(0, replace_between_backward(b.gy(), x, low, high));
          if (b.needs(1)) b.set(1, no_slope(b.gy()));
        },
    .adapt = Adapt::promote,
    .cost = [](const Tensor& g, const Tensor& x, double, double) { return map_cost(2, g, g, x); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), s.off_grid({3, 5}), -1.0, 1.0);
          s.add(s.tensor({2, 37}), s.off_grid({2, 37}), -static_cast<double>(INFINITY), 0.0);
        },
    .reference = pointwise<([](double g, double x, double low, double high) { return x >= low && x <= high ? 0 : g; })>,
}};
Tensor replace_between_backward(const Tensor& g, const Tensor& x, double low, double high) {
  return replace_between_backward_op(g, x, low, high);
}
const Op<Tensor(const Tensor&, double, double, double)> replace_between_op{{
    .schema = "replace_between(Tensor x, float low, float high, float value) -> Tensor",
    .shard = "elementwise",
    .internal = true,
    .doc = "value where low <= x <= high, else x: what threshold and hardshrink are.",
    .infer = [](const Tensor& x, double, double, double) { return like_if(x, kFloats, "replace_between"); },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, double low, double high, double value) {
      map(on, Map::replace_between, y, {&x}, {{low, high, value}});
    }),
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x, double low, double high,
                   double) { b.set(0, replace_between_backward(b.gy(), x, low, high)); },
    .cost = [](const Tensor& x, double, double, double) { return map_cost(2, x, x); },
    .samples =
        [](Samples& s) {
          s.add(s.off_grid({3, 5}), -1.0, 1.0, 0.0);
          s.add(s.off_grid({2, 37}), -static_cast<double>(INFINITY), 0.5, 7.0);
          s.invalid<DTypeError>("does not take", s.boolean({3}), 0.0, 1.0, 0.0);
        },
    .reference =
        pointwise<([](double x, double low, double high, double value) { return x >= low && x <= high ? value : x; })>,
}};

const OneNumber softshrink_op{{
    .schema = "softshrink(Tensor input, float lambd=0.5) -> Tensor",
    .shard = "elementwise",
    .doc = "input nearer to 0 by lambd, 0 where |input| <= lambd. ValueError where lambd is negative.",
    .example = "assert(softshrink(full({1}, 2.0)).item() == 1.5);",
    .infer =
        [](const Tensor& x, double lambd) {
          check(lambd >= 0, "softshrink", "lambd must not be negative, got ", lambd);
          return laid_like(x);
        },
    .kernels = on_each_device(
        [](auto on, Tensor& y, const Tensor& x, double lambd) { map(on, Map::softshrink, y, {&x}, {{lambd}}); }),
    .saves = "input",
    .backward = [](Backward& b, const Tensor& x,
                   double lambd) { b.set(0, replace_between_backward(b.gy(), x, -lambd, lambd)); },
    .adapt = Adapt::promote_float,
    .cost = [](const Tensor& x, double) { return map_cost(3, x, x); },
    .samples =
        [](Samples& s) {
          s.add(s.off_grid({3, 5}), 1.0);
          s.add(s.off_grid({2, 37}, 0.5));
          s.invalid<ValueError>("lambd", s.tensor({2}), -1.0);
        },
    .reference =
        [](const Tensor& x, double lambd) {
          return by_hand(x, [&](double v) { return v > lambd ? v - lambd : v < -lambd ? v + lambd : v == v ? 0 : v; });
        },
}};

const OneNumber hardshrink_op{{
    .schema = "hardshrink(Tensor input, float lambd=0.5) -> Tensor",
    .doc = "input, 0 where |input| <= lambd.",
    .example = "assert(hardshrink(full({1}, 0.25)).item() == 0 && hardshrink(full({1}, 2.0)).item() == 2);",
    .composed =
        [](const Tensor& x, double lambd) {
          return is_floating(x.dtype()) ? replace_between_op(x, -lambd, lambd, 0.0)
                                        : where(abs(x) <= lambd, Scalar(0), x);
        },
    .samples =
        [](Samples& s) {
          s.add(s.off_grid({3, 5}), 1.0);
          s.add(s.off_grid({2, 37}, 0.5));
        },
    .reference = [](const Tensor& x,
                    double lambd) { return by_hand(x, [&](double v) { return v >= -lambd && v <= lambd ? 0 : v; }); },
}};

const Plain tanhshrink_op{{
    .schema = "tanhshrink(Tensor input) -> Tensor",
    .shard = "elementwise",
    .doc = "input - tanh(input).",
    .example = "assert(tanhshrink(zeros({1})).item() == 0);",
    .infer = [](const Tensor& x) { return laid_like(x).with_dtype(floating_of(x)); },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x) {
      if constexpr (on.cuda)
        tanhshrink_cuda(y, x.to(y.dtype()));
      else
        in_wide(on, y, [&](Tensor& r) {
          const Tensor v = x.to(r.dtype());
          map(on, Map::tanh, r, {&v});
          map(on, Map::sub, r, {&v, &r}, {Scalar(1)});
        });
    }),
    .composed = [](const Tensor& x) { return computed(x, [](const Tensor& v) { return v - tanh(v); }); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}));
          s.add(s.tensor({2, 37}));
        },
    .reference = [](const Tensor& x) { return by_hand(x, [](double v) { return v - std::tanh(v); }); },
}};

const TwoNumbers threshold_op{{
    .schema = "threshold(Tensor input, float threshold, float value) -> Tensor",
    .doc = "input where it is above threshold (or NaN), else value.",
    .example = "assert(threshold(full({1}, 0.25), 0.5, 7).item() == 7);",
    .composed =
        [](const Tensor& x, double limit, double value) {
          return is_floating(x.dtype()) ? replace_between_op(x, -static_cast<double>(INFINITY), limit, value)
                                        : masked_fill(x, x <= limit, value);
        },
    .samples =
        [](Samples& s) {
          s.add(s.off_grid({3, 5}), 0.0, 20.0);
          s.add(s.off_grid({2, 37}), 1.0, -1.0);
        },
    .reference = [](const Tensor& x, double limit,
                    double value) { return by_hand(x, [&](double v) { return v <= limit ? value : v; }); },
}};

// ---- those of two tensors, or of halves ---------------------------------------------------------------------------

const BinaryOp prelu_of_op{binary<Map::prelu>({
    .schema = "prelu_of(Tensor x, Tensor slope) -> Tensor",
    .shard = "elementwise",
    .internal = true,
    .doc = "x where positive, else slope x: what prelu is.",
    .infer = [](const Tensor& x, const Tensor&) { return like_if(x, kFloats, "prelu_of"); },
    .saves = "x slope",
    .backward =
        [](Backward& b, const Tensor& x, const Tensor& slope) {
          const Tensor above = x > 0;
          if (b.needs(0)) b.set(0, where(above, b.gy(), b.gy() * slope));
          if (b.needs(1)) b.set(1, where(above, Scalar(0), b.gy() * x));
        },
    .samples =
        [](Samples& s) {
          s.add(s.off_grid({3, 5}), s.tensor({3, 5}));
          s.add(s.off_grid({2, 3, 37}), s.tensor({3, 1}));
          s.invalid<ShapeError>("do not broadcast", s.tensor({2, 3}), s.tensor({4}));
        },
    .reference = pointwise<([](double x, double slope) { return x > 0 ? x : slope * x; })>,
})};

const Op<Tensor(const Tensor&, const Tensor&)> prelu_op{{
    .schema = "prelu(Tensor input, Tensor weight) -> Tensor",
    .doc =
        "input where positive, else weight input: weight has one element, or one for each channel input.size(1) (He et "
        "al., arXiv:1502.01852). The gradient at 0 is that of the negative side. ShapeError.",
    .example = "assert(prelu(full({1, 2}, -2.0), full({1}, 0.5)).sum().item() == -2);",
    .composed =
        [](const Tensor& x, const Tensor& weight) {
          const int64_t channels = x.dim() > 1 ? x.size(1) : 1;
          check<ShapeError>(weight.dim() <= 1 && (weight.numel() == 1 || weight.numel() == channels), "prelu",
                            "weight is ", weight, ", wanted [1] or [", channels, "] for an input of ", x);
          check<DTypeError>(is_floating(x.dtype()) && is_floating(weight.dtype()), "prelu",
                            "needs floating arguments, got ", x.dtype(), " and ", weight.dtype());
          Shape spread = Shape::filled(x.dim(), 1);
          if (weight.numel() > 1) spread[1] = channels;
          return prelu_of_op(x, weight.reshape(spread).to(x.dtype()));
        },
    .autocast = Autocast::promote,
    .samples =
        [](Samples& s) {
          s.add(s.off_grid({3, 5}), s.tensor({1}));
          s.add(s.off_grid({2, 3, 4}), s.tensor({3})).named("channels");
          s.add(s.off_grid({4}), s.tensor({}));
          s.invalid<ShapeError>("weight is", s.tensor({2, 3}), s.tensor({2}));
          s.invalid<ShapeError>("weight is", s.tensor({2, 3}), s.tensor({1, 3}));
        },
    .reference =
        [](const Tensor& x, const Tensor& weight) {
          const std::vector<double> w = weight.to_vector<double>();
          int64_t inner = 1, at = 0;
          for (int64_t d = 2; d < x.dim(); ++d) inner *= x.size(d);
          return by_hand(x, [&](double v) {
            const double slope = w.size() > 1 ? w[static_cast<size_t>(at / inner % x.size(1))] : w[0];
            ++at;
            return v > 0 ? v : slope * v;
          });
        },
}};

// The dimension that glu cuts into halves.
int64_t glu_dim(const Tensor& x, int64_t dim) {
  check<ShapeError>(x.dim() > 0, "glu", "input is ", x, "; it has no halves");
  const int64_t at = wrap_dim(dim, x.dim(), "glu");
  check<ShapeError>(x.size(at) % 2 == 0, "glu", "dimension ", dim, " of ", x, " has no two halves");
  return at;
}

const Op<Tensor(const Tensor&, int64_t)> glu_op{{
    .schema = "glu(Tensor input, int dim=-1) -> Tensor",
    .shard = "along dim",
    .doc =
        "a sigmoid(b) of the two halves a, b of input along `dim` (Dauphin et al., arXiv:1612.08083). ShapeError where "
        "there are no two halves, IndexError.",
    .example = "assert(glu(full({1, 2}, 0.0)).item() == 0);",
    .infer =
        [](const Tensor& x, int64_t dim) {
          Shape shape = x.shape();
          shape[static_cast<int>(glu_dim(x, dim))] /= 2;
          return like(x).with_shape(shape).with_dtype(floating_of(x));
        },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, int64_t dim) {
      const int64_t at = glu_dim(x, dim), half = x.size(at) / 2;
      const auto halves = [&](const Tensor& v, auto&& f) { f(narrow(v, at, 0, half), narrow(v, at, half, half)); };
      if constexpr (on.cuda)
        halves(x.to(y.dtype()), [&](const Tensor& a, const Tensor& b) { glu_cuda(y, a, b); });
      else
        in_wide(on, y, [&](Tensor& r) {
          halves(x.to(r.dtype()), [&](const Tensor& a, const Tensor& b) {
            map(on, Map::sigmoid, r, {&b});
            map(on, Map::mul, r, {&a, &r});
          });
        });
    }),
    .composed =
        [](const Tensor& x, int64_t dim) {
          const int64_t at = glu_dim(x, dim), half = x.size(at) / 2;
          return computed(x,
                          [&](const Tensor& v) { return narrow(v, at, 0, half) * sigmoid(narrow(v, at, half, half)); });
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 6}));
          s.add(s.tensor({4, 3, 2}), 0);
          s.invalid<ShapeError>("two halves", s.tensor({3, 5}));
          s.invalid<IndexError>("", s.tensor({4}), 1);
        },
    .reference =
        [](const Tensor& x, int64_t dim) {
          const int64_t at = dim < 0 ? dim + x.dim() : dim, half = x.size(at) / 2;
          int64_t inner = 1;
          for (int64_t d = at + 1; d < x.dim(); ++d) inner *= x.size(d);
          const std::vector<double> v = x.to_vector<double>();
          Shape shape = x.shape();
          shape[at] = half;
          std::vector<double> r(static_cast<size_t>(shape.product()));
          for (size_t i = 0; i < r.size(); ++i) {
            const auto n = static_cast<int64_t>(i), block = half * inner, first = n / block * 2 * block + n % block;
            r[i] = v[static_cast<size_t>(first)] / (1 + std::exp(-v[static_cast<size_t>(first + block)]));
          }
          return from_span<double>(r, shape);
        },
}};

const Op<Tensor(const Tensor&, int64_t)> softmin_op{{
    .schema = "softmin(Tensor input, int dim) -> Tensor",
    .doc = "softmax(-input) along `dim`. IndexError, DTypeError.",
    .example = "assert(softmin(zeros({4}), 0).max().item() == 0.25);",
    .composed = [](const Tensor& x, int64_t dim) { return softmax(-x, dim); },
    .autocast = Autocast::full,
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), 1);
          s.add(s.tensor({3, 5}), -2);
          s.invalid<IndexError>("", s.tensor({3}), 1);
        },
    .reference =
        [](const Tensor& x, int64_t dim) {
          const int64_t at = dim < 0 ? dim + x.dim() : dim, n = x.size(at);
          int64_t inner = 1;
          for (int64_t d = at + 1; d < x.dim(); ++d) inner *= x.size(d);
          const std::vector<double> v = x.to_vector<double>();
          std::vector<double> r(v.size());
          for (size_t i = 0; i < r.size(); ++i) {
            const auto k = static_cast<int64_t>(i), first = k / (n * inner) * n * inner + k % inner;
            double mass = 0;  // of exp(v[i] - v[j]): the inverse of the share
            for (int64_t j = 0; j < n; ++j) mass += std::exp(v[i] - v[static_cast<size_t>(first + j * inner)]);
            r[i] = 1 / mass;
          }
          return from_span<double>(r, x.shape());
        },
}};

}  // namespace

Tensor celu(const Tensor& x, double alpha) {
  return celu_op(x, alpha);
}
Tensor softsign(const Tensor& x) {
  return softsign_op(x);
}
Tensor softshrink(const Tensor& x, double lambd) {
  return softshrink_op(x, lambd);
}
Tensor hardshrink(const Tensor& x, double lambd) {
  return hardshrink_op(x, lambd);
}
Tensor tanhshrink(const Tensor& x) {
  return tanhshrink_op(x);
}
Tensor threshold(const Tensor& x, double limit, double value) {
  return threshold_op(x, limit, value);
}
Tensor prelu(const Tensor& x, const Tensor& weight) {
  return prelu_op(x, weight);
}
Tensor glu(const Tensor& x, int64_t dim) {
  return glu_op(x, dim);
}
Tensor softmin(const Tensor& x, int64_t dim) {
  return softmin_op(x, dim);
}

}  // namespace strata
