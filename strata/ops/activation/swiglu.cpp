// The records of SwiGLU, of two tensors and of the halves of one, and of GEGLU of halves.

#include <cmath>
#include <numbers>
#include <string>
#include <vector>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/core/sharding.h"
#include "strata/cuda/magnitudes.h"
#include "strata/ops/activation/activation.h"
#include "strata/ops/activation/swiglu_kernel.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/join/join.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using Pair = std::tuple<Tensor, Tensor>;

void check_alike(const Tensor& a, const Tensor& b, std::string_view op) {
  check<DTypeError>(is_floating(a.dtype()) && a.dtype() == b.dtype(), op,
                    "needs two tensors of one floating dtype, got ", a.dtype(), " and ", b.dtype());
  check<ShapeError>(a.shape() == b.shape(), op, "shapes differ: a is ", a, ", b is ", b);
}

// What both records need beside the places of their operands.
SwigluCall flat(const Tensor& a) {
  SwigluCall c;
  c.dtype = a.dtype();
  c.n = c.a_row = c.b_row = c.grad_a_row = c.grad_b_row = a.numel();
  c.rows = 1;
  return c;
}

// x [..., 2 N] as rows of 2 N.
SwigluCall halves(const Tensor& x) {
  SwigluCall c;
  c.dtype = x.dtype();
  c.a_row = c.b_row = c.grad_a_row = c.grad_b_row = x.shape().back();
  c.n = c.a_row / 2;
  c.rows = c.a_row > 0 ? x.numel() / c.a_row : 0;
  c.a = x.raw_data();
  c.b = static_cast<const std::byte*>(c.a) + c.n * size_of(x.dtype());
  return c;
}

double silu(double v) {
  return v / (1 + std::exp(-v));
}

// d silu(a) / da = sigmoid(a) (1 + a (1 - sigmoid(a))).
Pair composed_backward(const Tensor& gy, const Tensor& a, const Tensor& b) {
  const Tensor s = a.sigmoid();
  return Pair(gy * b * s * (a * (s * -1 + 1) + 1), gy * a * s);
}

const Op<Pair(const Tensor&, const Tensor&, const Tensor&)> swiglu_backward_op{{
    .schema = "swiglu_backward(Tensor gy, Tensor a, Tensor b) -> (Tensor ga, Tensor gb)",
    .shard = "elementwise",
    .internal = true,
    .doc = "The gradients of swiglu for a and b from the gradient gy of its result, in one pass.",
    .infer =
        [](const Tensor& gy, const Tensor& a, const Tensor& b) {
          check_alike(a, b, "swiglu_backward");
          check_alike(gy, a, "swiglu_backward");
          return std::array<TensorMeta, 2>{like(a), like(b)};
        },
    .kernels = on_each_device([](auto on, Tensor& ga, Tensor& gb, const Tensor& gy, const Tensor& a, const Tensor& b) {
      const Tensor gc = gy.contiguous(), ac = a.contiguous(), bc = b.contiguous();
      SwigluCall c = flat(a);
      c.a = ac.raw_data();
      c.b = bc.raw_data();
      c.grad_y = gc.raw_data();
      c.grad_a = ga.raw_data();
      c.grad_b = gb.raw_data();
      if constexpr (on.cuda)
        swiglu_backward_cuda(c);
      else
        swiglu_backward_cpu(c);
    }),
    .composed = composed_backward,
    .cost =
        [](const Tensor& gy, const Tensor&, const Tensor&) {
          return Cost{14.0 * gy.numel(), 5.0 * gy.nbytes()};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), s.tensor({3, 5}), s.tensor({3, 5}));
          s.invalid<ShapeError>("shapes differ", s.tensor({3, 5}), s.tensor({3, 5}), s.tensor({3, 4}));
        },
}};

const Op<Tensor(const Tensor&, const Tensor&)> swiglu_op{{
    .schema = "swiglu(Tensor a, Tensor b) -> Tensor",
    .shard = "elementwise",
    .doc = "silu(a) * b = a * sigmoid(a) * b in one pass, for a and b of one shape and dtype: the gated activation of "
           "feed-forward blocks (Shazeer, arXiv:2002.05202). ShapeError, DTypeError when they differ.",
    .example = "assert(swiglu(zeros({2}), ones({2})).to_vector<float>() == std::vector<float>({0, 0}));",
    .infer =
        [](const Tensor& a, const Tensor& b) {
          check_alike(a, b, "swiglu");
          return like(a);
        },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& a, const Tensor& b) {
      const Tensor ac = a.contiguous(), bc = b.contiguous();
      SwigluCall c = flat(a);
      c.a = ac.raw_data();
      c.b = bc.raw_data();
      c.y = y.raw_data();
      if constexpr (on.cuda) {
        c.most = cuda::magnitudes_beside(y);
        swiglu_cuda(c);
      } else {
        swiglu_cpu(c);
      }
    }),
    .saves = "a b",
    .backward =
        [](Backward& bw, const Tensor& a, const Tensor& b) {
          auto [ga, gb] = swiglu_backward_op(bw.gy(), a, b);
          bw.set(0, ga);
          bw.set(1, gb);
        },
    .cost =
        [](const Tensor& a, const Tensor&) {
          return Cost{9.0 * a.numel(), 3.0 * a.nbytes()};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), s.tensor({3, 5}));
          s.add(s.tensor({2, 3, 40}), s.tensor({2, 3, 40}));
          s.add(s.uniform({8}, -100, 100), s.tensor({8})).not_differentiable().named("large");
          s.add(s.tensor({0}), s.tensor({0}));
          s.invalid<ShapeError>("shapes differ", s.tensor({3, 5}), s.tensor({3, 4}));
          s.invalid<DTypeError>("floating", s.tensor({3}, DType::i64), s.tensor({3}, DType::i64));
          if (s.benchmarking()) s.bench(s.tensor({8192, 2048}), s.tensor({8192, 2048}));
        },
    .reference =
        [](const Tensor& a, const Tensor& b) {
          std::vector<double> y = a.to_vector<double>();
          const std::vector<double> w = b.to_vector<double>();
          for (size_t i = 0; i < y.size(); ++i) y[i] = silu(y[i]) * w[i];
          return from_span<double>(y, a.shape());
        },
}};

TensorMeta infer_halves(const Tensor& x, std::string_view op) {
  check<DTypeError>(is_floating(x.dtype()), op, "needs a floating dtype, got ", x.dtype());
  check<ShapeError>(x.dim() >= 1 && x.shape().back() % 2 == 0, op, "the last dimension of x must be even, got ", x);
  Shape s = x.shape();
  s[s.size() - 1] /= 2;
  return like(x).with_shape(s);
}

// Both halves may be cut, each for itself. Argument `packed` has both, and so has the result of the gradient.
void shard_halves(Sharding& s, const ShardRule& rule, size_t packed) {
  detail::apply_rule(rule, s);
  const Shape& x = s.args[packed].shape;
  const int last = x.size() - 1;
  const int64_t half = x[last] / 2;
  if (half == 0) return;
  Placement both = Placement::sharded(last), one = both;
  both.segments = {half, half};
  const Placement& now = s.args[packed].now;
  if (now.is_shard() && now.dim == last && now.segments == both.segments) both.unit = one.unit = now.unit;
  Sharding::Possibility p = s.whole();
  p.args[packed] = both;
  if (packed == 1) p.args[0] = one;
  p.results[0] = packed == 1 ? both : one;
  s.add(std::move(p));
}

const Op<Tensor(const Tensor&, const Tensor&)> swiglu_packed_backward_op{{
    .schema = "swiglu_packed_backward(Tensor gy, Tensor x) -> Tensor",
    .shard = [](Sharding& s) { shard_halves(s, "... a!, ... b! -> ... b!", 1); },
    .internal = true,
    .doc = "The gradient of swiglu_packed for x from the gradient gy of its result, in one pass.",
    .infer =
        [](const Tensor& gy, const Tensor& x) {
          const TensorMeta y = infer_halves(x, "swiglu_packed_backward");
          check<ShapeError>(gy.shape() == y.shape && gy.dtype() == y.dtype, "swiglu_packed_backward", "gy is ", gy,
                            ", x is ", x);
          return like(x);
        },
    .kernels = on_each_device([](auto on, Tensor& gx, const Tensor& gy, const Tensor& x) {
      const Tensor gc = gy.contiguous(), xc = x.contiguous();
      SwigluCall c = halves(xc);
      c.grad_y = gc.raw_data();
      c.grad_a = gx.raw_data();
      c.grad_b = static_cast<std::byte*>(c.grad_a) + c.n * size_of(x.dtype());
      if constexpr (on.cuda) {
        c.most = cuda::magnitudes_beside(gx);
        swiglu_backward_cuda(c);
      } else {
        swiglu_backward_cpu(c);
      }
    }),
    .composed =
        [](const Tensor& gy, const Tensor& x) {
          const int64_t n = x.shape().back() / 2;
          auto [ga, gb] = composed_backward(gy, slice(x, -1, 0, n), slice(x, -1, n, 2 * n));
          return slice_backward(ga, x.shape(), x.dim() - 1, 0, n, 1) +
                 slice_backward(gb, x.shape(), x.dim() - 1, n, 2 * n, 1);
        },
    .cost =
        [](const Tensor& gy, const Tensor&) {
          return Cost{14.0 * gy.numel(), 5.0 * gy.nbytes()};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), s.tensor({3, 10}));
          s.invalid<ShapeError>("gy is", s.tensor({3, 5}), s.tensor({3, 8}));
        },
}};

const Op<Tensor(const Tensor&)> swiglu_packed_op{{
    .schema = "swiglu_packed(Tensor x) -> Tensor",
    .shard = [](Sharding& s) { shard_halves(s, "... a! -> ... b!", 0); },
    .doc = "swiglu of the two halves of x's last dimension: silu(x[..., :N]) * x[..., N:] for x [..., 2 N]. ShapeError "
           "when that "
           "dimension is odd. The C++ function is swiglu(x).",
    .infer = [](const Tensor& x) { return infer_halves(x, "swiglu_packed"); },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x) {
      const Tensor xc = x.contiguous();
      SwigluCall c = halves(xc);
      c.y = y.raw_data();
      if constexpr (on.cuda) {
        c.most = cuda::magnitudes_beside(y);
        swiglu_cuda(c);
      } else {
        swiglu_cpu(c);
      }
    }),
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x) { b.set(0, swiglu_packed_backward_op(b.gy(), x)); },
    .cost =
        [](const Tensor& x) {
          return Cost{4.5 * x.numel(), 1.5 * x.nbytes()};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 10}));
          s.add(s.tensor({2, 3, 80}));
          s.add(s.tensor({0, 4}));
          s.invalid<ShapeError>("even", s.tensor({3, 5}));
          s.invalid<DTypeError>("floating", s.tensor({4}, DType::i64));
          if (s.benchmarking()) s.bench(s.tensor({8192, 4096}));
        },
    .reference =
        [](const Tensor& x) {
          const std::vector<double> v = x.to_vector<double>();
          const int64_t n = x.shape().back() / 2;
          std::vector<double> y;
          for (int64_t r = 0; n > 0 && r < x.numel() / (2 * n); ++r)
            for (int64_t i = 0; i < n; ++i) y.push_back(silu(v[r * 2 * n + i]) * v[r * 2 * n + n + i]);
          return from_span<double>(y, infer_halves(x, "swiglu_packed").shape);
        },
}};

// ---- GEGLU: on a card one pass, elsewhere composed ----

using Text = const std::string&;

Gate gelu_gate(Text approximate, std::string_view op) {
  check(approximate == "none" || approximate == "tanh", op, "approximate is none or tanh, got '", approximate, "'");
  return approximate == "tanh" ? Gate::gelu_tanh : Gate::gelu;
}

double gelu_of(double v, Text approximate) {
  if (approximate == "none") return 0.5 * v * (1 + std::erf(v * std::numbers::sqrt2 / 2));
  return 0.5 * v * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (v + 0.044715 * v * v * v)));
}

const Op<Tensor(const Tensor&, const Tensor&, Text)> geglu_backward_op{{
    .schema = "geglu_backward(Tensor gy, Tensor x, str approximate) -> Tensor",
    .shard = [](Sharding& s) { shard_halves(s, "... a!, ... b! -> ... b!", 1); },
    .internal = true,
    .doc = "The gradient of geglu for x from the gradient gy of its result.",
    .infer =
        [](const Tensor& gy, const Tensor& x, Text approximate) {
          gelu_gate(approximate, "geglu_backward");
          const TensorMeta y = infer_halves(x, "geglu_backward");
          check<ShapeError>(gy.shape() == y.shape && gy.dtype() == y.dtype, "geglu_backward", "gy is ", gy, ", x is ",
                            x);
          return like(x);
        },
    .kernels = {.cuda = STRATA_CUDA_KERNEL([](Tensor& gx, const Tensor& gy, const Tensor& x, Text approximate) {
                  const Tensor gc = gy.contiguous(), xc = x.contiguous();
                  SwigluCall c = halves(xc);
                  c.gate = gelu_gate(approximate, "geglu_backward");
                  c.grad_y = gc.raw_data();
                  c.grad_a = gx.raw_data();
                  c.grad_b = static_cast<std::byte*>(c.grad_a) + c.n * size_of(x.dtype());
                  c.most = cuda::magnitudes_beside(gx);
                  swiglu_backward_cuda(c);
                })},
    .composed =
        [](const Tensor& gy, const Tensor& x, Text approximate) {
          const int64_t n = x.shape().back() / 2;
          const Tensor a = slice(x, -1, 0, n), b = slice(x, -1, n, 2 * n);
          return cat({gelu_backward(gy * b, a, approximate), gy * gelu(a, approximate)}, -1);
        },
    .cost =
        [](const Tensor& gy, const Tensor&, Text) {
          return Cost{30.0 * gy.numel(), 5.0 * gy.nbytes()};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}), s.tensor({3, 10}), "none");
          s.add(s.tensor({3, 8}), s.tensor({3, 16}), "tanh");
          s.invalid<ShapeError>("gy is", s.tensor({3, 5}), s.tensor({3, 8}), "none");
        },
}};

const Op<Tensor(const Tensor&, Text)> geglu_op{{
    .schema = "geglu(Tensor x, str approximate=\"none\") -> Tensor",
    .shard = [](Sharding& s) { shard_halves(s, "... a! -> ... b!", 0); },
    .doc =
        "gelu(x[..., :N]) * x[..., N:] for x [..., 2 N], as feed-forward blocks are gated (Shazeer, "
        "arXiv:2002.05202); approximate is gelu's, \"none\" or \"tanh\". On a card one pass, rounded once. ShapeError "
        "when the last dimension is odd.",
    .example = "assert(geglu(zeros({2, 6})).shape() == Shape({2, 3}));",
    .infer =
        [](const Tensor& x, Text approximate) {
          gelu_gate(approximate, "geglu");
          return infer_halves(x, "geglu");
        },
    .kernels = {.cuda = STRATA_CUDA_KERNEL([](Tensor& y, const Tensor& x, Text approximate) {
                  const Tensor xc = x.contiguous();
                  SwigluCall c = halves(xc);
                  c.gate = gelu_gate(approximate, "geglu");
                  c.y = y.raw_data();
                  c.most = cuda::magnitudes_beside(y);
                  swiglu_cuda(c);
                })},
    .composed =
        [](const Tensor& x, Text approximate) {
          const int64_t n = x.shape().back() / 2;
          return gelu(slice(x, -1, 0, n), approximate) * slice(x, -1, n, 2 * n);
        },
    .saves = "x",
    .backward = [](Backward& b, const Tensor& x,
                   Text approximate) { b.set(0, geglu_backward_op(b.gy(), x, approximate)); },
    .cost =
        [](const Tensor& x, Text) {
          return Cost{10.0 * x.numel(), 1.5 * x.nbytes()};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 10}));
          s.add(s.tensor({2, 3, 80}), "tanh");
          s.add(s.tensor({0, 4}));
          s.invalid<ShapeError>("even", s.tensor({3, 5}));
          s.invalid<DTypeError>("floating", s.tensor({4}, DType::i64));
          s.invalid<ValueError>("approximate is", s.tensor({4}), "erf");
          if (s.benchmarking()) s.bench(s.tensor({8192, 4096}));
        },
    .reference =
        [](const Tensor& x, Text approximate) {
          const std::vector<double> v = x.to_vector<double>();
          const int64_t n = x.shape().back() / 2;
          std::vector<double> y;
          for (int64_t r = 0; n > 0 && r < x.numel() / (2 * n); ++r)
            for (int64_t i = 0; i < n; ++i) y.push_back(gelu_of(v[r * 2 * n + i], approximate) * v[r * 2 * n + n + i]);
          return from_span<double>(y, infer_halves(x, "geglu").shape);
        },
}};

}  // namespace

Tensor geglu(const Tensor& x, std::string_view approximate) {
  return geglu_op(x, std::string(approximate));
}
Tensor swiglu(const Tensor& a, const Tensor& b) {
  return swiglu_op(a, b);
}
Tensor swiglu(const Tensor& x) {
  return swiglu_packed_op(x);
}

}  // namespace strata
