#include "strata/ops/matmul/mlp.h"

#include "strata/core/autocast_fp8.h"
#include "strata/core/by_device.h"
#include "strata/core/dry_run.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/matmul/linear_fp8_way.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/matmul/matmul_inl.h"
#include "strata/ops/matmul/matmul_kernels.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

// [rows, last] from [.., last].
Tensor as_rows(const Tensor& t) {
  int64_t rows = 1;
  for (int64_t d = 0; d + 1 < t.dim(); ++d) rows *= t.shape()[d];
  return reshape(t, {rows, t.shape().back()});
}

void check_layer(std::string_view op, const Tensor& x, const Tensor& weight, std::string_view name, int64_t in,
                 const Tensor& bias) {
  check<ShapeError>(weight.dim() == 2 && weight.shape()[1] == in, op, name, " is ", weight, ", wants [.., ", in, "]");
  check<DTypeError>(weight.dtype() == x.dtype(), op, name, " is ", weight, ", wants the dtype of x ", x);
  if (!bias.defined()) return;
  check<ShapeError>(bias.dim() == 1 && bias.shape()[0] == weight.shape()[0], op, "the bias of ", name, " ", weight,
                    " is ", bias);
  check<DTypeError>(bias.dtype() == x.dtype(), op, "the bias of ", name, " is ", bias, ", wants the dtype of x ", x);
}

void check_input(std::string_view op, const Tensor& x) {
  check<ShapeError>(x.dim() > 0, op, "x needs at least one dimension");
  check<DTypeError>(is_floating(x.dtype()), op, "needs a floating dtype, got ", x);
}

TensorMeta with_last(const Tensor& x, int64_t last) {
  Shape s = x.shape();
  s[s.size() - 1] = last;
  return like(x).with_shape(s);
}

double product(const Tensor& x, const Tensor& weight) {
  const int64_t rows = x.numel() / std::max<int64_t>(1, x.shape().back());
  return 2.0 * static_cast<double>(rows) * static_cast<double>(weight.numel());
}

// GELU's and its derivative's operations for one element, as counted for the cost.
constexpr double kGeluFlops = 12;

using Pair = std::tuple<Tensor, Tensor>;

std::array<TensorMeta, 2> linear_gelu_infer(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check_input("linear_gelu", x);
  check_layer("linear_gelu", x, weight, "weight", x.shape().back(), bias);
  const TensorMeta y = with_last(x, weight.shape()[0]);
  return {y, y};
}

const Op<Pair(const Tensor&, const Tensor&, const Tensor&)> linear_gelu_op{{
    .schema = "linear_gelu(Tensor x, Tensor weight, Tensor? bias=None) -> (Tensor y, Tensor pre)",
    .shard = "... k!, n k!, n -> ... n, ... n",
    .shown = 1,
    .doc = "pre = linear(x, weight, bias) and y = gelu(pre, \"tanh\"), computed together: the activation happens while "
           "the product's "
           "results are at hand.",
    .infer = linear_gelu_infer,
    .kernels = on_each_device([](auto on, auto&&... all) { linear_gelu_kernel(on, all...); }),
    .composed =
        [](const Tensor& x, const Tensor& weight, const Tensor& bias) {
          const Tensor pre = linear(x, weight, bias);
          return Pair(gelu(pre, "tanh"), pre);
        },
    .saves = "x:weight weight:x pre",
    .backward =
        [](Backward& b, const Tensor& x, const Tensor& weight, const Tensor&) {
          Tensor g;
          if (b.has_gy(0)) g = gelu_backward(b.gy(0), b.y(1), "tanh");
          if (b.has_gy(1)) g = g.defined() ? g + b.gy(1) : b.gy(1);
          if (b.needs(0)) b.set(0, matmul(g, weight));
          if (b.needs(1)) set_weight_gradient(b, 1, as_rows(g), as_rows(x));
          if (b.needs(2)) b.set(2, as_rows(g).sum({0}));
        },
    .autocast = Autocast::low,
    .cost =
        [](const Tensor& x, const Tensor& weight, const Tensor& bias) {
          const auto y = static_cast<double>(linear_gelu_infer(x, weight, bias)[0].shape.product());
          return Cost{product(x, weight) + kGeluFlops * y, static_cast<double>(x.nbytes() + weight.nbytes()) +
                                                               2 * y * static_cast<double>(size_of(x.dtype()))};
        },
    .samples =
        [](Samples& s) {
          s.add(s.uniform({4, 3}, -1, 1), s.uniform({5, 3}, -1, 1), s.uniform({5}, -1, 1));
          s.add(s.uniform({2, 4, 3}, -1, 1), s.uniform({5, 3}, -1, 1)).named("no bias");
          s.add(transpose(s.uniform({3, 4}, -1, 1), 0, 1), transpose(s.uniform({3, 5}, -1, 1), 0, 1))
              .named("transposed");
          s.add(s.uniform({0, 3}, -1, 1), s.uniform({5, 3}, -1, 1)).named("no rows");
          s.add(s.uniform({192, 64}, -0.5, 0.5), s.uniform({128, 64}, -0.5, 0.5), s.uniform({128}, -1, 1))
              .named("medium");
          s.invalid<ShapeError>("weight is", s.tensor({4, 3}), s.tensor({3, 5}));
          s.invalid<ShapeError>("bias", s.tensor({4, 3}), s.tensor({5, 3}), s.tensor({3}));
        },
    .tolerance = 2,
    .tolerance_reason = "the activation may read pre after it was rounded to its dtype",
}};

TensorMeta matmul_gelu_grad_infer(const Tensor& g, const Tensor& weight, const Tensor& pre) {
  constexpr std::string_view op = "matmul_gelu_grad";
  check_input(op, g);
  check<ShapeError>(weight.dim() == 2 && weight.shape()[0] == g.shape().back(), op, "weight is ", weight, ", wants [",
                    g.shape().back(), ", ..]");
  const TensorMeta y = with_last(g, weight.shape()[1]);
  check<ShapeError>(pre.shape() == y.shape, op, "pre is ", pre, ", wants the product's shape ", y.shape);
  check<DTypeError>(weight.dtype() == g.dtype() && pre.dtype() == g.dtype(), op, "operands have different dtypes: ", g,
                    ", ", weight, " and ", pre);
  return y;
}

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&)> matmul_gelu_grad_op{{
    .schema = "matmul_gelu_grad(Tensor g, Tensor weight, Tensor pre) -> Tensor",
    .shard = "... n!, n! k, ... k -> ... k",
    .internal = true,
    .doc = "gelu_backward(matmul(g, weight), pre, \"tanh\") in one step: the gradient of gelu's argument when gelu's "
           "result goes "
           "through linear with that weight. g [.., n], weight [n, k], pre [.., k] -> [.., k].",
    .infer = matmul_gelu_grad_infer,
    .kernels = on_each_device([](auto on, auto&&... all) { matmul_gelu_grad_kernel(on, all...); }),
    .composed = [](const Tensor& g, const Tensor& weight,
                   const Tensor& pre) { return gelu_backward(matmul(g, weight), pre, "tanh"); },
    .autocast = Autocast::low,
    .cost =
        [](const Tensor& g, const Tensor& weight, const Tensor& pre) {
          return Cost{product(g, transpose(weight, 0, 1)) + kGeluFlops * static_cast<double>(pre.numel()),
                      static_cast<double>(g.nbytes() + weight.nbytes() + 2 * pre.nbytes())};
        },
    .samples =
        [](Samples& s) {
          s.add(s.uniform({4, 3}, -1, 1), s.uniform({3, 5}, -1, 1), s.tensor({4, 5}));
          s.add(s.uniform({2, 4, 3}, -1, 1), transpose(s.uniform({5, 3}, -1, 1), 0, 1), s.tensor({2, 4, 5}))
              .named("batch, transposed");
          s.add(s.uniform({4, 3}, -1, 1), s.uniform({3, 5}, -1, 1), transpose(s.tensor({5, 4}), 0, 1))
              .named("pre transposed");
          s.add(s.uniform({192, 64}, -0.5, 0.5), s.uniform({64, 128}, -0.5, 0.5), s.tensor({192, 128})).named("medium");
          s.invalid<ShapeError>("pre is", s.tensor({4, 3}), s.tensor({3, 5}), s.tensor({4, 4}));
          s.invalid<ShapeError>("weight is", s.tensor({4, 3}), s.tensor({5, 3}), s.tensor({4, 5}));
        },
}};

using Triple = std::tuple<Tensor, Tensor, Tensor>;

std::array<TensorMeta, 3> mlp_infer(const Tensor& x, const Tensor& up, const Tensor& up_bias, const Tensor& down,
                                    const Tensor& down_bias) {
  check_input("gelu_mlp", x);
  check_layer("gelu_mlp", x, up, "up_weight", x.shape().back(), up_bias);
  check_layer("gelu_mlp", x, down, "down_weight", up.shape()[0], down_bias);
  const TensorMeta hidden = with_last(x, up.shape()[0]);
  return {with_last(x, down.shape()[0]), hidden, hidden};
}

const Op<Triple(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&)> gelu_mlp_op{{
    .schema = "gelu_mlp(Tensor x, Tensor up_weight, Tensor? up_bias, Tensor down_weight, Tensor? down_bias=None) "
              "-> (Tensor y, Tensor pre, Tensor hidden)",
    .shard = "... k!, h k!, h, o! h, + o! -> ... o!, ... h, ... h",
    .shown = 1,
    .doc = "GPT's feed-forward layer: hidden = gelu(pre, \"tanh\") of pre = linear(x, up_weight, up_bias), y = "
           "linear(hidden, "
           "down_weight, down_bias). GELU and its derivative happen inside the products. pre and hidden are what the "
           "gradient needs.",
    .example = "Tensor y = gelu_mlp(ones({2, 3}), ones({8, 3}), ones({8}), ones({3, 8}), {}); assert(y.shape() == "
               "Shape({2, 3}));",
    .infer = mlp_infer,
    .kernels = on_each_device([](auto on, Tensor& y, Tensor& pre, Tensor& hidden, const Tensor& x, const Tensor& up,
                                 const Tensor& up_bias, const Tensor& down, const Tensor& down_bias) {
      linear_gelu_kernel(on, hidden, pre, x, up, up_bias);
      linear_kernel(on, y, hidden, down, down_bias);
    }),
    .composed =
        [](const Tensor& x, const Tensor& up, const Tensor& up_bias, const Tensor& down, const Tensor& down_bias) {
          const Tensor pre = linear(x, up, up_bias), hidden = gelu(pre, "tanh");
          return Triple(linear(hidden, down, down_bias), pre, hidden);
        },
    .saves = "x:up_weight up_weight:x down_weight pre hidden",
    .backward =
        [](Backward& b, const Tensor& x, const Tensor& up, const Tensor&, const Tensor& down, const Tensor&) {
          const bool into_hidden = b.needs(0) || b.needs(1) || b.needs(2);
          if (into_hidden) {
            Tensor g;
            if (b.has_gy(0) && !b.has_gy(2)) {
              g = matmul_gelu_grad(b.gy(0), down, b.y(1));
            } else if (b.has_gy(2)) {
              g = gelu_backward(b.has_gy(0) ? matmul(b.gy(0), down) + b.gy(2) : b.gy(2), b.y(1), "tanh");
            }
            if (b.has_gy(1)) g = g.defined() ? g + b.gy(1) : b.gy(1);
            if (b.needs(0)) b.set(0, matmul(g, up));
            if (b.needs(1)) set_weight_gradient(b, 1, as_rows(g), as_rows(x));
            if (b.needs(2)) b.set(2, as_rows(g).sum({0}));
          }
          if (!b.has_gy(0)) return;
          if (b.needs(3)) set_weight_gradient(b, 3, as_rows(b.gy(0)), as_rows(b.y(2)));
          if (b.needs(4)) b.set(4, as_rows(b.gy(0)).sum({0}));
        },
    .autocast = Autocast::low,
    .cost =
        [](const Tensor& x, const Tensor& up, const Tensor& up_bias, const Tensor& down, const Tensor& down_bias) {
          const auto m = mlp_infer(x, up, up_bias, down, down_bias);
          const auto hidden = static_cast<double>(m[1].shape.product()), size = static_cast<double>(size_of(x.dtype()));
          const double rows = hidden / static_cast<double>(std::max<int64_t>(1, up.shape()[0]));
          return Cost{product(x, up) + 2 * rows * static_cast<double>(down.numel()) + kGeluFlops * hidden,
                      static_cast<double>(x.nbytes() + up.nbytes() + down.nbytes()) +
                          size * (2 * hidden + static_cast<double>(m[0].shape.product()))};
        },
    .samples =
        [](Samples& s) {
          const auto u = [&](const Shape& shape) { return s.uniform(shape, -1, 1); };
          s.add(u({4, 3}), u({6, 3}), u({6}), u({5, 6}), u({5}));
          s.add(u({2, 4, 3}), u({6, 3}), std::nullopt, u({3, 6})).named("no biases");
          s.add(u({0, 3}), u({6, 3}), u({6}), u({3, 6}), u({3})).named("no rows");
          s.add(s.uniform({128, 64}, -0.5, 0.5), s.uniform({96, 64}, -0.5, 0.5), u({96}),
                s.uniform({64, 96}, -0.5, 0.5), u({64}))
              .named("medium");
          s.invalid<ShapeError>("down_weight is", u({4, 3}), u({6, 3}), u({6}), u({5, 5}), u({5}));
          s.invalid<ShapeError>("up_weight is", u({4, 3}), u({6, 4}), u({6}), u({5, 6}), u({5}));
          s.invalid<ShapeError>("bias", u({4, 3}), u({6, 3}), u({5}), u({5, 6}), u({5}));
          if (s.benchmarking()) s.bench(u({2048, 256}), u({1024, 256}), u({1024}), u({256, 1024}), u({256}));
        },
    .tolerance = 16,
    .tolerance_reason = "hidden is rounded to the dtype between the two products",
}};

Tensor layer_by_layer(const Tensor& x, const Tensor& up, const Tensor& up_bias, const Tensor& down,
                      const Tensor& down_bias) {
  return linear(gelu(linear(x, up, up_bias), "tanh"), down, down_bias);
}

// Under the fp8 policy the layers go their own ways: GELU happens inside of no fp8 product.
const detail::Fp8Way mlp_way(gelu_mlp_op, [](detail::ArgsAt at, const detail::Results& into) {
  const auto arg = [&](int i) -> const Tensor& { return *static_cast<const Tensor*>(at[i]); };
  if (!detail::linear_may_be_fp8(arg(1)) && !detail::linear_may_be_fp8(arg(3))) return false;
  into[1] = linear(arg(0), arg(1), arg(2));
  into[2] = gelu(into[1], "tanh");
  into[0] = linear(into[2], arg(3), arg(4));
  return true;
});

constexpr ByDevice<Tensor (*)(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&)> kFeedForward{
    .cuda = gelu_mlp, .everywhere = layer_by_layer};

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&)> gelu_feed_forward_op{{
    .schema = "gelu_feed_forward(Tensor x, Tensor up_weight, Tensor? up_bias, Tensor down_weight, Tensor? "
              "down_bias=None) -> Tensor",
    .doc =
        "linear(gelu(linear(x, up_weight, up_bias), \"tanh\"), down_weight, down_bias), GPT's feed-forward layer, in "
        "the way that suits the device: gelu_mlp on a card, one layer after the other on the CPU.",
    .example =
        "Tensor y = gelu_feed_forward(ones({2, 3}), ones({8, 3}), ones({8}), ones({3, 8}), {}); assert(y.shape() "
        "== Shape({2, 3}));",
    .composed =
        [](const Tensor& x, const Tensor& up, const Tensor& up_bias, const Tensor& down, const Tensor& down_bias) {
          return kFeedForward.on(way_of(x.device()))(x, up, up_bias, down, down_bias);
        },
    .samples =
        [](Samples& s) {
          const auto u = [&](const Shape& shape) { return s.uniform(shape, -1, 1); };
          s.add(u({4, 3}), u({6, 3}), u({6}), u({5, 6}), u({5}));
          s.add(u({2, 4, 3}), u({6, 3}), std::nullopt, u({3, 6})).named("no biases");
          s.add(u({0, 3}), u({6, 3}), u({6}), u({3, 6}), u({3})).named("no rows");
          s.invalid<ShapeError>("", u({4, 3}), u({6, 4}), u({6}), u({5, 6}), u({5}));
        },
    .reference = layer_by_layer,
    .tolerance = 16,
    .tolerance_reason = "hidden is rounded to the dtype between the two products",
}};

}  // namespace

Tensor gelu_feed_forward(const Tensor& x, const Tensor& up_weight, const Tensor& up_bias, const Tensor& down_weight,
                         const Tensor& down_bias) {
  return gelu_feed_forward_op(x, up_weight, up_bias, down_weight, down_bias);
}
Tensor gelu_mlp(const Tensor& x, const Tensor& up_weight, const Tensor& up_bias, const Tensor& down_weight,
                const Tensor& down_bias) {
  return std::get<0>(gelu_mlp_op(x, up_weight, up_bias, down_weight, down_bias));
}
std::tuple<Tensor, Tensor> linear_gelu(const Tensor& x, const Tensor& weight, const Tensor& bias) {
  return linear_gelu_op(x, weight, bias);
}
Tensor matmul_gelu_grad(const Tensor& g, const Tensor& weight, const Tensor& pre) {
  return matmul_gelu_grad_op(g, weight, pre);
}

}  // namespace strata
