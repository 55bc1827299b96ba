// The record of rotary position embedding.

#include <algorithm>
#include <cmath>
#include <vector>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/attention/attention.h"
#include "strata/ops/attention/head_sharding_inl.h"
#include "strata/ops/attention/rotary_kernel.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

// x's sizes without the last two, padded with ones to three.
Shape outer_sizes(const Tensor& x) {
  Shape s;
  for (int64_t i = 0; i < x.dim() - 2; ++i) s.push_back(x.shape()[i]);
  while (s.size() < 3) s.insert(0, 1);
  return s;
}

void strides_of(const Tensor& t, int64_t* to) {
  const int64_t lead = 5 - t.dim();
  for (int64_t i = 0; i < 4; ++i) to[i] = i < lead ? 0 : t.strides()[i - lead];
}

// Results keep the order of x's dimensions in memory, so that heads between batch and time stay where they are.
Strides dense_like(const Tensor& x) {
  Dims order;
  for (int64_t i = 0; i < x.dim(); ++i) order.push_back(i);
  std::stable_sort(order.begin(), order.end() - 1,
                   [&](int64_t a, int64_t b) { return x.strides()[a] > x.strides()[b]; });
  Strides s = Strides::filled(static_cast<int>(x.dim()), 1);
  int64_t step = 1;
  for (int i = order.size() - 1; i >= 0; --i) {
    s[order[i]] = step;
    step *= std::max<int64_t>(1, x.shape()[order[i]]);
  }
  return s;
}

TensorMeta infer(const Tensor& x, const Tensor& cos, const Tensor& sin) {
  check<DTypeError>(is_floating(x.dtype()), "rotary", "needs a floating dtype, got ", x.dtype());
  check<ShapeError>(x.dim() >= 2 && x.dim() <= 5, "rotary", "x must have 2 to 5 dimensions [..., T, D], got ", x);
  const int64_t time = x.shape()[x.dim() - 2], size = x.shape()[x.dim() - 1];
  check<ShapeError>(
      cos.dim() == 2 && cos.shape() == sin.shape() && cos.shape()[0] == time && 2 * cos.shape()[1] <= size, "rotary",
      "cos is ", cos, ", sin is ", sin, ", wanted [", time, ", P] with 2 P <= ", size, " for x ", x);
  check<DTypeError>(cos.dtype() == statistic_dtype(x.dtype()) && sin.dtype() == cos.dtype(), "rotary", "cos is ",
                    cos.dtype(), ", sin is ", sin.dtype(), ", wanted ", statistic_dtype(x.dtype()), " for x of ",
                    x.dtype());
  return {x.shape(), x.dtype(), x.device(), dense_like(x)};
}

template <class On>
void kernel(On on, Tensor& y, const Tensor& x, const Tensor& cos, const Tensor& sin, bool interleaved, bool inverse) {
  const Tensor xd = x.strides().back() == 1 || x.shape().back() <= 1 ? x : x.contiguous();
  const Tensor cc = cos.contiguous(), sc = sin.contiguous();
  if (x.numel() == 0) return;
  const Shape outer = outer_sizes(x);
  RotaryCall c;
  c.dtype = x.dtype();
  for (int i = 0; i < 3; ++i) c.outer[i] = outer[i];
  c.time = x.shape()[x.dim() - 2];
  c.d = x.shape().back();
  c.pairs = cos.shape()[1];
  strides_of(xd, c.x_stride);
  strides_of(y, c.y_stride);
  c.interleaved = interleaved;
  c.inverse = inverse;
  c.x = xd.raw_data();
  c.cos = cc.raw_data();
  c.sin = sc.raw_data();
  c.y = y.raw_data();
  if constexpr (on.cuda)
    rotary_cuda(c);
  else
    rotary_cpu(c);
}

// The two halves of the pairs of x, each [..., T, P].
std::pair<Tensor, Tensor> halves(const Tensor& x, int64_t pairs, bool interleaved) {
  if (interleaved) return {slice(x, -1, 0, 2 * pairs, 2), slice(x, -1, 1, 2 * pairs, 2)};
  return {slice(x, -1, 0, pairs, 1), slice(x, -1, pairs, 2 * pairs, 1)};
}

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&, bool, bool)> rotary_op{{
    .schema = "rotary(Tensor x, Tensor cos, Tensor sin, bool interleaved=false, bool inverse=false) -> Tensor",
    .shard = "... t! d!, _, _ -> ... t! d!",
    .doc = "Turns pairs of elements of each row of x [..., T, D] by angles: (a, b) becomes (a cos - b sin, a sin + b "
           "cos); with "
           "inverse, by the opposite angles. cos and sin are [T, P], 2 P <= D, f32 (f64 where x is f64); pair i is (i, "
           "i + P), "
           "or (2i, 2i + 1) where interleaved; elements from 2P on stay (Su et al., RoFormer, arXiv:2104.09864). The "
           "result's "
           "dimensions lie in memory in x's order. ShapeError, DTypeError when the tables do not fit.",
    .example = "auto [c, s] = rotary_tables(4, 8); Tensor y = rotary(ones({2, 4, 8}), c, s); assert(y.shape() == "
               "Shape({2, 4, 8}));",
    .infer = [](const Tensor& x, const Tensor& cos, const Tensor& sin, bool, bool) { return infer(x, cos, sin); },
    .kernels = on_each_device([](auto on, auto&&... all) { kernel(on, all...); }),
    .saves = "x:cos,sin cos sin",
    .backward =
        [](Backward& b, const Tensor& x, const Tensor& cos, const Tensor& sin, bool interleaved, bool inverse) {
          if (b.needs(0)) b.set(0, rotary_op(b.gy(), cos, sin, interleaved, !inverse));
          if (!b.needs(1) && !b.needs(2)) return;
          const auto [xa, xb] = halves(x, cos.shape()[1], interleaved);
          const auto [ga, gb] = halves(b.gy(), cos.shape()[1], interleaved);
          b.set(1, sum_to(xa * ga + xb * gb, cos.shape()).to(cos.dtype()));
          const Tensor across = sum_to(add(xa * gb, xb * ga, -1), sin.shape()).to(sin.dtype());
          b.set(2, inverse ? -across : across);
        },
    .cost =
        [](const Tensor& x, const Tensor& cos, const Tensor&, bool, bool) {
          return Cost{3.0 * x.numel(), 2.0 * x.nbytes() + 2.0 * cos.nbytes()};
        },
    .samples =
        [](Samples& s) {
          const DType t = statistic_dtype(s.dtype());
          s.add(s.tensor({2, 3, 5, 8}), s.tensor({5, 4}, t), s.tensor({5, 4}, t));
          s.add(s.tensor({2, 5, 8}), s.tensor({5, 4}, t), s.tensor({5, 4}, t), true).named("interleaved");
          s.add(s.tensor({5, 48}), s.tensor({5, 20}, t), s.tensor({5, 20}, t), false, true)
              .named("inverse, elements that stay");
          s.add(s.tensor({2, 0, 4}), s.tensor({0, 2}, t), s.tensor({0, 2}, t)).named("empty");
          s.invalid<ShapeError>("wanted [", s.tensor({5, 8}), s.tensor({4, 4}, t), s.tensor({4, 4}, t));
          s.invalid<ShapeError>("wanted [", s.tensor({5, 8}), s.tensor({5, 5}, t), s.tensor({5, 5}, t));
          s.invalid<DTypeError>("floating", s.tensor({5, 8}, DType::i64), s.tensor({5, 4}, t), s.tensor({5, 4}, t));
          if (s.benchmarking()) s.bench(s.tensor({8, 8, 1024, 64}), s.tensor({1024, 32}, t), s.tensor({1024, 32}, t));
        },
    .reference =
        [](const Tensor& x, const Tensor& cos, const Tensor& sin, bool interleaved, bool inverse) {
          std::vector<double> v = x.to_vector<double>();
          const std::vector<double> c = cos.to_vector<double>(), s = sin.to_vector<double>();
          const int64_t d = x.shape().back(), time = x.shape()[x.dim() - 2], p = cos.shape()[1];
          for (int64_t r = 0; r * d < x.numel(); ++r)
            for (int64_t i = 0; i < p; ++i) {
              double& a = v[r * d + (interleaved ? 2 * i : i)];
              double& b = v[r * d + (interleaved ? 2 * i + 1 : i + p)];
              const double ci = c[r % time * p + i], si = inverse ? -s[r % time * p + i] : s[r % time * p + i];
              const double turned = a * ci - b * si;
              b = a * si + b * ci;
              a = turned;
            }
          return from_span<double>(v, x.shape());
        },
}};

// The heads of packed [B, T, (heads + 2 * kv_heads) * D] that are turned, as [B, heads + kv_heads, T, D].
Tensor turned_heads(const Tensor& qkv, int64_t heads, int64_t kv_heads) {
  const int64_t d = qkv.shape()[2] / (heads + 2 * kv_heads);
  return qkv.narrow(2, 0, (heads + kv_heads) * d)
      .reshape({qkv.shape()[0], qkv.shape()[1], heads + kv_heads, d})
      .transpose(1, 2);
}

TensorMeta packed_infer(const Tensor& qkv, const Tensor& cos, const Tensor& sin, int64_t heads, int64_t kv_heads) {
  constexpr std::string_view op = "packed_rotary";
  check<DTypeError>(is_floating(qkv.dtype()), op, "needs a floating dtype, got ", qkv.dtype());
  check(heads >= 1 && kv_heads >= 1 && heads <= INT32_MAX && kv_heads <= INT32_MAX, op, "heads ", heads,
        " and kv_heads ", kv_heads, " must be positive and below 2^31");
  check<ShapeError>(qkv.dim() == 3 && qkv.shape()[2] % (heads + 2 * kv_heads) == 0, op, "qkv is ", qkv,
                    ", wanted [B, T, (heads + 2 * kv_heads) * D] with heads ", heads, " and kv_heads ", kv_heads);
  const int64_t time = qkv.shape()[1], size = qkv.shape()[2] / (heads + 2 * kv_heads);
  check<ShapeError>(
      cos.dim() == 2 && cos.shape() == sin.shape() && cos.shape()[0] == time && 2 * cos.shape()[1] <= size, op,
      "cos is ", cos, ", sin is ", sin, ", wanted [", time, ", P] with 2 P <= ", size, " for qkv ", qkv);
  check<DTypeError>(cos.dtype() == statistic_dtype(qkv.dtype()) && sin.dtype() == cos.dtype(), op, "cos is ",
                    cos.dtype(), ", sin is ", sin.dtype(), ", wanted ", statistic_dtype(qkv.dtype()), " for qkv of ",
                    qkv.dtype());
  return like(qkv);
}

template <class On>
void packed_kernel(On on, Tensor& y, const Tensor& qkv, const Tensor& cos, const Tensor& sin, int64_t heads,
                   int64_t kv_heads, bool inverse) {
  if (qkv.numel() == 0) return;
  const Tensor x = qkv.strides()[2] == 1 ? qkv : qkv.contiguous(), cc = cos.contiguous(), sc = sin.contiguous();
  RotaryCall c;
  c.dtype = x.dtype();
  c.outer[1] = x.shape()[0];
  c.outer[2] = heads + 2 * kv_heads;
  c.time = x.shape()[1];
  c.d = x.shape()[2] / c.outer[2];
  c.pairs = cos.shape()[1];
  c.turned = heads + kv_heads;
  const auto strides = [&](const Tensor& t, int64_t* to) {
    to[1] = t.strides()[0];
    to[2] = c.d;
    to[3] = t.strides()[1];
  };
  strides(x, c.x_stride);
  strides(y, c.y_stride);
  c.inverse = inverse;
  c.x = x.raw_data();
  c.cos = cc.raw_data();
  c.sin = sc.raw_data();
  c.y = y.raw_data();
  if constexpr (on.cuda)
    rotary_cuda(c);
  else
    rotary_cpu(c);
}

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&, int64_t, int64_t, bool)> packed_rotary_op{{
    .schema =
        "packed_rotary(Tensor qkv, Tensor cos, Tensor sin, int heads, int kv_heads, bool inverse=false) -> Tensor",
    .shard = [](Sharding& s) { detail::shard_heads(s, "b ...!, _, _ -> b ...!", "p__", "p"); },
    .doc = "rotary() of the queries and keys that lie packed in qkv [B, T, (heads + 2 * kv_heads) * D], as "
           "packed_attention reads them; the values are copied. cos and sin are [T, P], 2 P <= D. With inverse, by the "
           "opposite angles. ShapeError, DTypeError when the tables do not fit.",
    .example = "auto [c, s] = rotary_tables(4, 8); Tensor y = packed_rotary(ones({2, 4, 32}), c, s, 2, 1); "
               "assert(y.shape() == Shape({2, 4, 32}));",
    .infer = [](const Tensor& qkv, const Tensor& cos, const Tensor& sin, int64_t heads, int64_t kv_heads,
                bool) { return packed_infer(qkv, cos, sin, heads, kv_heads); },
    .kernels = on_each_device([](auto on, auto&&... all) { packed_kernel(on, all...); }),
    .saves = "qkv:cos,sin cos sin",
    .backward =
        [](Backward& b, const Tensor& qkv, const Tensor& cos, const Tensor& sin, int64_t heads, int64_t kv_heads,
           bool inverse) {
          if (b.needs(0)) b.set(0, packed_rotary_op(b.gy(), cos, sin, heads, kv_heads, !inverse));
          if (!b.needs(1) && !b.needs(2)) return;
          const auto [xa, xb] = halves(turned_heads(qkv, heads, kv_heads), cos.shape()[1], false);
          const auto [ga, gb] = halves(turned_heads(b.gy(), heads, kv_heads), cos.shape()[1], false);
          b.set(1, sum_to(xa * ga + xb * gb, cos.shape()).to(cos.dtype()));
          const Tensor across = sum_to(add(xa * gb, xb * ga, -1), sin.shape()).to(sin.dtype());
          b.set(2, inverse ? -across : across);
        },
    .cost =
        [](const Tensor& qkv, const Tensor& cos, const Tensor&, int64_t, int64_t, bool) {
          return Cost{3.0 * qkv.numel(), 2.0 * qkv.nbytes() + 2.0 * cos.nbytes()};
        },
    .samples =
        [](Samples& s) {
          const DType t = statistic_dtype(s.dtype());
          s.add(s.tensor({2, 5, 32}), s.tensor({5, 4}, t), s.tensor({5, 4}, t), 2, 1);
          s.add(s.tensor({2, 3, 30}), s.tensor({3, 2}, t), s.tensor({3, 2}, t), 1, 1, true)
              .named("inverse, elements that stay");
          s.add(s.tensor({2, 40, 256}), s.tensor({40, 16}, t), s.tensor({40, 16}, t), 4, 2).named("vectors");
          s.add(s.tensor({0, 5, 32}), s.tensor({5, 4}, t), s.tensor({5, 4}, t), 2, 1).named("empty");
          s.invalid<ShapeError>("wanted [", s.tensor({2, 5, 30}), s.tensor({5, 4}, t), s.tensor({5, 4}, t), 2, 1);
          s.invalid<ShapeError>("wanted [", s.tensor({2, 5, 32}), s.tensor({4, 4}, t), s.tensor({4, 4}, t), 2, 1);
          s.invalid<ValueError>("positive", s.tensor({2, 5, 32}), s.tensor({5, 4}, t), s.tensor({5, 4}, t), 0, 1);
          if (s.benchmarking())
            s.bench(s.tensor({4, 2048, 3072}), s.tensor({2048, 32}, t), s.tensor({2048, 32}, t), 32, 8);
        },
    .reference =
        [](const Tensor& qkv, const Tensor& cos, const Tensor& sin, int64_t heads, int64_t kv_heads, bool inverse) {
          const Tensor y = qkv.contiguous().clone();
          const int64_t d = qkv.shape()[2] / (heads + 2 * kv_heads);
          const Tensor turned = rotary_op(turned_heads(qkv, heads, kv_heads), cos, sin, false, inverse);
          y.narrow(2, 0, (heads + kv_heads) * d).copy_(turned.transpose(1, 2).flatten(2));
          return y;
        },
}};

}  // namespace

Tensor packed_rotary(const Tensor& qkv, const Tensor& cos, const Tensor& sin, int64_t heads, int64_t kv_heads) {
  return packed_rotary_op(qkv, cos, sin, heads, kv_heads, false);
}
Tensor rotary(const Tensor& x, const Tensor& cos, const Tensor& sin, bool interleaved) {
  return rotary_op(x, cos, sin, interleaved, false);
}

std::tuple<Tensor, Tensor> rotary_tables(int64_t time, int64_t dim, double base, int64_t offset, DType dtype) {
  check<ShapeError>(time >= 0 && dim >= 0 && dim % 2 == 0, "rotary_tables", "time is ", time, ", dim is ", dim,
                    "; dim must be even and neither negative");
  check<DTypeError>(dtype == DType::f32 || dtype == DType::f64, "rotary_tables", "tables are f32 or f64, got ", dtype);
  const int64_t pairs = dim / 2;
  std::vector<double> c(static_cast<size_t>(time * pairs)), s(c.size());
  for (int64_t i = 0; i < pairs; ++i) {
    const double frequency = std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(dim));
    for (int64_t t = 0; t < time; ++t) {
      c[t * pairs + i] = std::cos(static_cast<double>(t + offset) * frequency);
      s[t * pairs + i] = std::sin(static_cast<double>(t + offset) * frequency);
    }
  }
  const Device device = default_device();
  return {from_span<double>(c, {time, pairs}).to(dtype).to(device),
          from_span<double>(s, {time, pairs}).to(dtype).to(device)};
}

}  // namespace strata
