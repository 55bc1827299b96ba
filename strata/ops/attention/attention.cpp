// The records of scaled dot-product attention.

#include "strata/ops/attention/attention.h"

#include <cmath>
#include <vector>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/attention/attention_kernel.h"
#include "strata/ops/attention/attention_record.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using detail::dense_rows;
using Pair = std::tuple<Tensor, Tensor>;
using Triple = std::tuple<Tensor, Tensor, Tensor>;

// The plain arguments of the records.
struct Plain : detail::AttentionPlain {
  double dropout_p;
  RngKey key;
};

void check_inputs(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, const Plain& a,
                  std::string_view op) {
  detail::check_attention_dtypes(q, k, v, op);
  check<ShapeError>(q.dim() == 4 && k.dim() == 4 && v.dim() == 4, op, "q, k and v must be [B, H, T, D], got ", q, ", ",
                    k, ", ", v);
  check<ShapeError>(k.shape()[0] == q.shape()[0] && v.shape()[0] == q.shape()[0], op, "batch sizes differ: q is ", q,
                    ", k is ", k, ", v is ", v);
  check<ShapeError>(k.shape()[3] == q.shape()[3], op, "sizes of q and k differ: q is ", q, ", k is ", k);
  check<ShapeError>(k.shape()[1] == v.shape()[1] && k.shape()[2] == v.shape()[2], op,
                    "heads or lengths of k and v differ: k is ", k, ", v is ", v);
  detail::check_attention_heads(q.shape()[1], k.shape()[1], op);
  if (mask.defined()) {
    check<DTypeError>(mask.dtype() == DType::boolean || is_floating(mask.dtype()), op,
                      "attn_mask must be bool or floating, got ", mask.dtype());
    const Shape full{q.shape()[0], q.shape()[1], q.shape()[2], k.shape()[2]};
    bool fits = mask.dim() <= 4;
    for (int64_t i = 0; fits && i < mask.dim(); ++i) {
      const int64_t have = mask.shape()[i], wanted = full[4 - mask.dim() + i];
      fits = have == 1 || have == wanted;
    }
    check<ShapeError>(fits, op, "attn_mask is ", mask, ", which does not broadcast to ", full);
  }
  detail::check_attention_window(a.window, a.query_offset, op);
  check(a.dropout_p >= 0 && a.dropout_p < 1, op, "dropout_p must be in [0, 1), got ", a.dropout_p);
}

// [B, H, T, D] laid out as [B, T, H, D].
TensorMeta heads_inside(const Tensor& like_this, int64_t heads, int64_t time, int64_t size) {
  const int64_t b = like_this.shape()[0];
  return {Shape{b, heads, time, size}, like_this.dtype(), like_this.device(),
          Strides{time * heads * size, size, heads * size, 1}};
}

AttentionView view_of(const Tensor& t) {
  return {t.raw_data(), t.strides()[0], t.strides()[1], t.strides()[2]};
}

AttentionCall describe_call(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, const Plain& a) {
  AttentionCall c;
  c.dtype = q.dtype();
  c.batch = q.shape()[0];
  c.heads = q.shape()[1];
  c.kv_heads = k.shape()[1];
  c.tq = q.shape()[2];
  c.tk = k.shape()[2];
  c.lse_head = c.tq;
  c.d = q.shape()[3];
  c.dv = v.shape()[3];
  c.scale = a.scale_for(c.d);
  c.causal = a.is_causal;
  c.window = a.window;
  c.offset = a.query_offset;
  c.dropout = a.dropout_p;
  c.key = a.key;
  c.q = view_of(q);
  c.k = view_of(k);
  c.v = view_of(v);
  if (mask.defined()) {
    c.mask = mask.raw_data();
    c.mask_dtype = mask.dtype();
    for (int64_t i = 0; i < mask.dim(); ++i)
      c.mask_stride[4 - mask.dim() + i] = mask.shape()[i] == 1 ? 0 : mask.strides()[i];
  }
  return c;
}

template <class On>
void forward_kernel(On on, Tensor& out, Tensor& lse, const Tensor& q, const Tensor& k, const Tensor& v,
                    const Tensor& mask, const Plain& a) {
  const Tensor qd = dense_rows(q), kd = dense_rows(k), vd = dense_rows(v);
  AttentionCall c = describe_call(qd, kd, vd, mask, a);
  c.out = view_of(out);
  c.lse = lse.raw_data();
  if constexpr (on.cuda)
    attention_forward_cuda(c, q);
  else
    attention_forward_cpu(c);
}

template <class On>
void backward_kernel(On on, Tensor& gq, Tensor& gk, Tensor& gv, const Tensor& gout, const Tensor& glse, const Tensor& q,
                     const Tensor& k, const Tensor& v, const Tensor& mask, const Tensor& out, const Tensor& lse,
                     const Plain& a) {
  const Tensor qd = dense_rows(q), kd = dense_rows(k), vd = dense_rows(v), od = dense_rows(out), gd = dense_rows(gout);
  const Tensor lc = lse.contiguous(), glc = glse.defined() ? glse.contiguous() : glse;
  AttentionCall c = describe_call(qd, kd, vd, mask, a);
  c.out = view_of(od);
  c.lse = lc.raw_data();
  c.grad_out = view_of(gd);
  c.grad_lse = glc.defined() ? glc.raw_data() : nullptr;
  c.grad_q = view_of(gq);
  c.grad_k = view_of(gk);
  c.grad_v = view_of(gv);
  if constexpr (on.cuda)
    attention_backward_cuda(c, q);
  else
    attention_backward_cpu(c);
}

// ---- reference ---------------------------------------------------------------------------------------------------

// Whether query i sees key j, a mask aside.
bool sees(const Plain& a, int64_t i, int64_t j) {
  const int64_t at = i + a.query_offset;
  return (!a.is_causal || j <= at) && (a.window == 0 || std::abs(at - j) < a.window);
}

// Each weight's multiplier under dropout.
double kept(const Plain& a, int64_t index) {
  if (a.dropout_p == 0) return 1;
  const auto numbers = philox(a.key, static_cast<uint64_t>(index / 4));
  return uniform_f32(numbers[static_cast<size_t>(index % 4)]) < static_cast<float>(a.dropout_p) ? 0
                                                                                                : 1 / (1 - a.dropout_p);
}

Pair reference(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, const Plain& a) {
  const int64_t B = q.shape()[0], H = q.shape()[1], Tq = q.shape()[2], D = q.shape()[3];
  const int64_t Hkv = k.shape()[1], Tk = k.shape()[2], Dv = v.shape()[3];
  const std::vector<double> qs = q.to_vector<double>(), ks = k.to_vector<double>(), vs = v.to_vector<double>();
  std::vector<double> ms;
  if (mask.defined()) ms = mask.expand({B, H, Tq, Tk}).to_vector<double>();
  std::vector<double> out(static_cast<size_t>(B * H * Tq * Dv)), lse(static_cast<size_t>(B * H * Tq)),
      s(static_cast<size_t>(Tk));
  for (int64_t row = 0; row < B * H * Tq; ++row) {
    const int64_t i = row % Tq, kv_head = row / Tq / H * Hkv + row / Tq % H / (H / Hkv);
    double top = -INFINITY, total = 0;
    for (int64_t j = 0; j < Tk; ++j) {
      double dot = 0;
      for (int64_t d = 0; d < D; ++d) dot += qs[row * D + d] * ks[(kv_head * Tk + j) * D + d];
      s[j] = dot * a.scale_for(D);
      if (mask.defined() && mask.dtype() != DType::boolean) s[j] += ms[row * Tk + j];
      if (!sees(a, i, j) || (mask.defined() && mask.dtype() == DType::boolean && ms[row * Tk + j] == 0))
        s[j] = -INFINITY;
      top = std::max(top, s[j]);
    }
    if (top > -INFINITY)
      for (double& x : s) total += x = std::exp(x - top);
    lse[row] = std::log(total) + (total > 0 ? top : 0);
    for (int64_t j = 0; j < Tk && total > 0; ++j)
      for (int64_t d = 0; d < Dv; ++d)
        out[row * Dv + d] += s[j] / total * kept(a, row * Tk + j) * vs[(kv_head * Tk + j) * Dv + d];
  }
  return Pair(from_span<double>(out, {B, H, Tq, Dv}), from_span<double>(lse, {B, H, Tq}));
}

// ---- the gradient with ordinary ops, which is differentiated for gradients of gradients

Tensor repeat_heads(const Tensor& x, int64_t heads) {
  const int64_t b = x.shape()[0], kv = x.shape()[1], t = x.shape()[2], d = x.shape()[3];
  if (kv == heads) return x;
  return x.unsqueeze(2).expand({b, kv, heads / kv, t, d}).reshape({b, heads, t, d});
}

// A host tensor of f(index) on the device of `where`.
template <class F>
Tensor host_tensor(const Shape& shape, const Tensor& where, F&& f) {
  if (where.is_meta()) return empty(like(where).with_shape(shape));
  const Tensor t = empty({shape, DType::f64, Device::cpu(), std::nullopt});
  double* values = t.data<double>();
  for (int64_t i = 0; i < t.numel(); ++i) values[i] = f(i);
  return t.to(where.dtype()).to(where.device());
}

// Scaled scores [B, H, Tq, Tk], -inf where a query does not see a key.
Tensor scores_of(const Tensor& q, const Tensor& k, const Tensor& mask, const Plain& a) {
  const int64_t tq = q.shape()[2], tk = k.shape()[2];
  Tensor s = q.matmul(repeat_heads(k, q.shape()[1]).transpose(2, 3)) * a.scale_for(q.shape()[3]);
  if (mask.defined() && mask.dtype() == DType::boolean) {
    const std::vector<double> seen = mask.to_vector<double>();
    s = s + host_tensor(mask.shape(), s, [&](int64_t i) { return seen[i] != 0 ? 0 : -INFINITY; });
  } else if (mask.defined()) {
    s = s + mask.to(s.dtype());
  }
  if (a.is_causal || a.window > 0)
    s = s + host_tensor({tq, tk}, s, [&](int64_t i) { return sees(a, i / tk, i % tk) ? 0 : -INFINITY; });
  return s;
}

Tensor dropped(const Tensor& p, const Plain& a) {
  return a.dropout_p > 0 ? p * host_tensor(p.shape(), p, [&](int64_t i) { return kept(a, i); }) : p;
}

struct ScoreGradient {
  Tensor p, ds;  // weights (before dropout) and the gradient of the scores
};

ScoreGradient score_gradient(const Tensor& gout, const Tensor& glse, const Tensor& q, const Tensor& k, const Tensor& v,
                             const Tensor& mask, const Tensor& out, const Tensor& lse, const Plain& a) {
  // A query that sees nothing has lse -inf and weights 0, not exp(-inf + inf).
  const Tensor p = add(scores_of(q, k, mask, a), lse.unsqueeze(-1).clamp(-1e30, std::nullopt), -1).exp();
  const Tensor dp = dropped(gout.matmul(repeat_heads(v, q.shape()[1]).transpose(2, 3)), a);
  Tensor delta = sum(gout * out, Dims{-1}, true);
  if (glse.defined()) delta = add(delta, glse.unsqueeze(-1), -1);
  return {p, p * add(dp, delta, -1)};
}

// Sums the query heads that share a key head.
Tensor sum_heads(const Tensor& g, int64_t kv) {
  const int64_t b = g.shape()[0], h = g.shape()[1], t = g.shape()[2], d = g.shape()[3];
  return h == kv ? g : sum(g.reshape({b, kv, h / kv, t, d}), Dims{2}, false);
}

Triple composed_backward(const Tensor& gout, const Tensor& glse, const Tensor& q, const Tensor& k, const Tensor& v,
                         const Tensor& mask, const Tensor& out, const Tensor& lse, const Plain& a) {
  const ScoreGradient s = score_gradient(gout, glse, q, k, v, mask, out, lse, a);
  const int64_t kv = k.shape()[1];
  const double scale = a.scale_for(q.shape()[3]);
  const Tensor ds = s.ds.to(q.dtype());
  const Tensor gq = ds.matmul(repeat_heads(k, q.shape()[1])) * scale;
  const Tensor gk = sum_heads(ds.transpose(2, 3).matmul(q), kv) * scale;
  const Tensor gv = sum_heads(dropped(s.p, a).to(q.dtype()).transpose(2, 3).matmul(gout), kv);
  return Triple(gq.to(q.dtype()), gk.to(q.dtype()), gv.to(q.dtype()));
}

Cost attention_cost(const Tensor& q, const Tensor& k, const Tensor& v, const Plain& a, double products, double passes) {
  const double tq = static_cast<double>(q.shape()[2]), tk = static_cast<double>(k.shape()[2]);
  // Pairs of a query and a key that are seen, masks aside.
  double seen = 0;
  for (int64_t i = 0; i < q.shape()[2]; ++i) {
    const int64_t at = i + a.query_offset;
    const int64_t last = std::min(k.shape()[2] - 1, a.is_causal    ? at
                                                    : a.window > 0 ? at + a.window - 1
                                                                   : k.shape()[2] - 1);
    const int64_t first = a.window > 0 ? std::max<int64_t>(0, at - a.window + 1) : 0;
    seen += static_cast<double>(std::max<int64_t>(0, last - first + 1));
  }
  if (!a.is_causal && a.window == 0) seen = tq * tk;
  const double per_pair = products * 2.0 * 0.5 * static_cast<double>(q.shape()[3] + v.shape()[3]);
  const double bytes = passes * static_cast<double>(q.nbytes() + k.nbytes() + v.nbytes());
  return {static_cast<double>(q.shape()[0] * q.shape()[1]) * seen * per_pair, bytes};
}

// ---- records -----------------------------------------------------------------------------------------------------

using BackwardSignature = Triple(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                 const Tensor&, const Tensor&, const Tensor&, bool, std::optional<double>, int64_t,
                                 int64_t, double, std::optional<RngKey>);

const Op<BackwardSignature> attention_backward_op{{
    .schema = "scaled_dot_product_attention_backward(Tensor gout, Tensor? glse, Tensor q, Tensor k, Tensor v, Tensor? "
              "attn_mask, "
              "Tensor out, Tensor lse, bool is_causal, float? scale, int window, int query_offset, float dropout_p, "
              "RngKey? key) "
              "-> (Tensor gq, Tensor gk, Tensor gv)",
    .internal = true,
    .doc =
        "The gradients of scaled_dot_product_attention for q, k and v, from the gradients gout and (where given) glse "
        "of its "
        "results out and lse. The weights are computed again block by block. The same bits for any number of threads.",
    .infer =
        [](const Tensor& gout, const Tensor& glse, const Tensor& q, const Tensor& k, const Tensor& v,
           const Tensor& mask, const Tensor& out, const Tensor& lse, bool is_causal, std::optional<double> scale,
           int64_t window, int64_t offset, double dropout_p, std::optional<RngKey> key) {
          const std::string_view op = "scaled_dot_product_attention_backward";
          check_inputs(q, k, v, mask, Plain{{is_causal, scale, window, offset}, dropout_p, key.value_or(RngKey{})}, op);
          const Shape rows{q.shape()[0], q.shape()[1], q.shape()[2]};
          detail::check_attention_results(gout, glse, out, lse, {rows[0], rows[1], rows[2], v.shape()[3]}, rows,
                                          q.dtype(), op);
          return std::array<TensorMeta, 3>{heads_inside(q, q.shape()[1], q.shape()[2], q.shape()[3]),
                                           heads_inside(k, k.shape()[1], k.shape()[2], k.shape()[3]),
                                           heads_inside(v, v.shape()[1], v.shape()[2], v.shape()[3])};
        },
    .kernels = on_each_device([](auto on, Tensor& gq, Tensor& gk, Tensor& gv, const Tensor& gout, const Tensor& glse,
                                 const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                                 const Tensor& out, const Tensor& lse, bool is_causal, std::optional<double> scale,
                                 int64_t window, int64_t offset, double dropout_p, std::optional<RngKey> key) {
      backward_kernel(on, gq, gk, gv, gout, glse, q, k, v, mask, out, lse,
                      Plain{{is_causal, scale, window, offset}, dropout_p, key.value_or(RngKey{})});
    }),
    .composed =
        [](const Tensor& gout, const Tensor& glse, const Tensor& q, const Tensor& k, const Tensor& v,
           const Tensor& mask, const Tensor& out, const Tensor& lse, bool is_causal, std::optional<double> scale,
           int64_t window, int64_t offset, double dropout_p, std::optional<RngKey> key) {
          return composed_backward(gout, glse, q, k, v, mask, out, lse,
                                   Plain{{is_causal, scale, window, offset}, dropout_p, key.value_or(RngKey{})});
        },
    .cost =
        [](const Tensor&, const Tensor&, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor&,
           const Tensor&, const Tensor&, bool is_causal, std::optional<double> scale, int64_t window, int64_t offset,
           double dropout_p, std::optional<RngKey> key) {
          return attention_cost(q, k, v, Plain{{is_causal, scale, window, offset}, dropout_p, key.value_or(RngKey{})},
                                5, 3);
        },
    .samples =
        [](Samples& s) {
          const DType st = statistic_dtype(s.dtype());
          s.add(s.tensor({1, 2, 5, 4}), std::nullopt, s.tensor({1, 2, 5, 4}), s.tensor({1, 2, 7, 4}),
                s.tensor({1, 2, 7, 4}), std::nullopt, s.tensor({1, 2, 5, 4}), s.uniform({1, 2, 5}, 2, 4, st), false,
                std::nullopt, 0, 0, 0.0, RngKey{});
          s.add(s.tensor({1, 4, 6, 3}), s.tensor({1, 4, 6}, st), s.tensor({1, 4, 6, 2}), s.tensor({1, 2, 6, 2}),
                s.tensor({1, 2, 6, 3}), std::nullopt, s.tensor({1, 4, 6, 3}), s.uniform({1, 4, 6}, 2, 4, st), true, 0.5,
                0, 0, 0.0, RngKey{});
        },
    .tolerance = 32,
    .tolerance_reason =
        "weights and gradients of scores are rounded to the operands' dtype between two products: the error is that "
        "of the largest term, however small the sum",
}};

using ForwardSignature = Pair(const Tensor&, const Tensor&, const Tensor&, const Tensor&, bool, std::optional<double>,
                              int64_t, int64_t, double, std::optional<RngKey>);

const Op<ForwardSignature> attention_op{{
    .schema =
        "scaled_dot_product_attention(Tensor q, Tensor k, Tensor v, Tensor? attn_mask=None, bool is_causal=false, "
        "float? scale=None, int window=0, int query_offset=0, float dropout_p=0.0, RngKey? key=None) "
        "-> (Tensor out, Tensor lse)",
    .shown = 1,
    .doc =
        "softmax(q k^T * scale + mask) v for q [B, H, Tq, D], k [B, Hkv, Tk, D] and v [B, Hkv, Tk, Dv]; Hkv divides H, "
        "and "
        "query head h reads key head h / (H / Hkv). scale is 1 / sqrt(D) where not given. attn_mask broadcasts to "
        "[B, H, Tq, Tk]: boolean (true: seen) or floating (added). is_causal: query i sees key j only where "
        "j <= i + query_offset; window > 0: only where |i + query_offset - j| < window. A query that sees nothing "
        "gives "
        "zeros. out [B, H, Tq, Dv] is laid out so that transpose(1, 2) of it is contiguous; lse [B, H, Tq] is the "
        "logarithm "
        "of the sum of exponentials of the scores, in f32 (f64 for f64). Computed in tiles with an online softmax: no "
        "[Tq, Tk] matrix is stored (Dao, arXiv:2307.08691), unless a floating mask or a gradient of the gradient is "
        "differentiated. Weight (b, h, i, j) is dropped by number ((b H + h) Tq + i) Tk + j of the key's stream. "
        "ShapeError, DTypeError when q, k, v and the mask do not fit.",
    .example =
        "Tensor q = ones({1, 2, 4, 8}); Tensor y = scaled_dot_product_attention(q, q, q, {}, {.is_causal = true}); "
        "assert(y.shape() == q.shape());",
    .infer =
        [](const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, bool is_causal,
           std::optional<double> scale, int64_t window, int64_t offset, double dropout_p, std::optional<RngKey> key) {
          check_inputs(q, k, v, mask, Plain{{is_causal, scale, window, offset}, dropout_p, key.value_or(RngKey{})},
                       "scaled_dot_product_attention");
          return std::array<TensorMeta, 2>{heads_inside(q, q.shape()[1], q.shape()[2], v.shape()[3]),
                                           TensorMeta{Shape{q.shape()[0], q.shape()[1], q.shape()[2]},
                                                      statistic_dtype(q.dtype()), q.device(), std::nullopt}};
        },
    .kernels = on_each_device([](auto on, Tensor& out, Tensor& lse, const Tensor& q, const Tensor& k, const Tensor& v,
                                 const Tensor& mask, bool is_causal, std::optional<double> scale, int64_t window,
                                 int64_t offset, double dropout_p, std::optional<RngKey> key) {
      forward_kernel(on, out, lse, q, k, v, mask,
                     Plain{{is_causal, scale, window, offset}, dropout_p, key.value_or(RngKey{})});
    }),
    .saves = "q k v attn_mask out lse",
    .backward =
        [](Backward& b, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, bool is_causal,
           std::optional<double> scale, int64_t window, int64_t offset, double dropout_p, std::optional<RngKey> key) {
          const Plain a{{is_causal, scale, window, offset}, dropout_p, key.value_or(RngKey{})};
          const Tensor gout = b.has_gy(0) ? b.gy(0) : b.y(0) * 0;
          const Tensor glse = b.has_gy(1) ? b.gy(1) : Tensor();
          if (b.needs(0) || b.needs(1) || b.needs(2)) {
            auto [gq, gk, gv] = attention_backward_op(gout, glse, q, k, v, mask, b.y(0), b.y(1), is_causal, scale,
                                                      window, offset, dropout_p, key);
            b.set(0, gq);
            b.set(1, gk);
            b.set(2, gv);
          }
          if (mask.defined() && b.needs(3))
            b.set(
                3,
                sum_to(score_gradient(gout, glse, q, k, v, mask, b.y(0), b.y(1), a).ds, mask.shape()).to(mask.dtype()));
        },
    .draws =
        [](const Tensor& q, const Tensor& k, const Tensor&, const Tensor&, bool, std::optional<double>, int64_t,
           int64_t, double dropout_p, std::optional<RngKey>) {
          return dropout_p > 0 ? random_blocks(q.size(0) * q.size(1) * q.size(2) * k.size(2)) : 0;
        },
    .autocast = Autocast::low,
    .cost =
        [](const Tensor& q, const Tensor& k, const Tensor& v, const Tensor&, bool is_causal,
           std::optional<double> scale, int64_t window, int64_t offset, double dropout_p, std::optional<RngKey> key) {
          return attention_cost(q, k, v, Plain{{is_causal, scale, window, offset}, dropout_p, key.value_or(RngKey{})},
                                2, 1.34);
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 2, 5, 8}), s.tensor({2, 2, 5, 8}), s.tensor({2, 2, 5, 8}));
          s.add(s.tensor({1, 2, 37, 4}), s.tensor({1, 2, 37, 4}), s.tensor({1, 2, 37, 4}), std::nullopt, true)
              .named("causal");
          s.add(s.tensor({1, 4, 5, 3}), s.tensor({1, 2, 9, 3}), s.tensor({1, 2, 9, 6}), std::nullopt, true, 0.3, 0, 4)
              .named("grouped heads, earlier keys");
          s.add(s.tensor({1, 1, 12, 4}), s.tensor({1, 1, 12, 4}), s.tensor({1, 1, 12, 4}), std::nullopt, true,
                std::nullopt, 5)
              .named("causal window");
          s.add(s.tensor({1, 1, 12, 4}), s.tensor({1, 1, 12, 4}), s.tensor({1, 1, 12, 4}), std::nullopt, false,
                std::nullopt, 3)
              .named("window");
          s.add(s.tensor({2, 2, 4, 4}), s.tensor({2, 2, 6, 4}), s.tensor({2, 2, 6, 4}), s.tensor({4, 6}))
              .named("additive mask");
          s.add(s.tensor({2, 2, 4, 4}), s.tensor({2, 2, 6, 4}), s.tensor({2, 2, 6, 4}), s.boolean({2, 1, 4, 6}))
              .named("boolean mask");
          s.add(s.tensor({1, 2, 6, 4}), s.tensor({1, 2, 6, 4}), s.tensor({1, 2, 6, 4}), std::nullopt, true,
                std::nullopt, 0, 0, 0.25, RngKey{7, 3})
              .named("dropout");
          s.add(s.tensor({1, 2, 0, 4}), s.tensor({1, 2, 3, 4}), s.tensor({1, 2, 3, 4})).named("no queries");
          s.add(s.tensor({1, 2, 70, 64}), s.tensor({1, 1, 131, 64}), s.tensor({1, 1, 131, 64}), std::nullopt, true, 0.2,
                90, 61)
              .named("several tiles of a size for tensor cores")
              .not_differentiable();
          s.add(s.tensor({1, 1, 5, 8}), s.tensor({1, 1, 3, 8}), s.tensor({1, 1, 3, 8}), std::nullopt, true,
                std::nullopt, 4, 41)
              .named("windows behind the last key")
              .not_differentiable();  // lse is -inf everywhere
          s.invalid<ShapeError>("[B, H, T, D]", s.tensor({2, 5, 8}), s.tensor({2, 5, 8}), s.tensor({2, 5, 8}));
          s.invalid<ShapeError>("no multiple", s.tensor({1, 3, 5, 8}), s.tensor({1, 2, 5, 8}), s.tensor({1, 2, 5, 8}));
          s.invalid<ShapeError>("sizes of q and k", s.tensor({1, 2, 5, 8}), s.tensor({1, 2, 5, 4}),
                                s.tensor({1, 2, 5, 8}));
          s.invalid<ShapeError>("broadcast", s.tensor({1, 2, 5, 8}), s.tensor({1, 2, 5, 8}), s.tensor({1, 2, 5, 8}),
                                s.boolean({4, 5}));
          s.invalid<DTypeError>("bool or floating", s.tensor({1, 2, 5, 8}), s.tensor({1, 2, 5, 8}),
                                s.tensor({1, 2, 5, 8}), s.tensor({5, 5}, DType::i64));
          s.invalid<ValueError>("dropout_p", s.tensor({1, 2, 5, 8}), s.tensor({1, 2, 5, 8}), s.tensor({1, 2, 5, 8}),
                                std::nullopt, false, std::nullopt, 0, 0, 1.5, RngKey{});
          if (s.benchmarking())
            s.bench(s.tensor({8, 8, 256, 32}), s.tensor({8, 8, 256, 32}), s.tensor({8, 8, 256, 32}), std::nullopt,
                    true);
        },
    .reference =
        [](const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, bool is_causal,
           std::optional<double> scale, int64_t window, int64_t offset, double dropout_p, std::optional<RngKey> key) {
          return reference(q, k, v, mask, Plain{{is_causal, scale, window, offset}, dropout_p, key.value_or(RngKey{})});
        },
    .tolerance = 16,
    .tolerance_reason =
        "weights are rounded to the operands' dtype before the second product: the error is that of the largest "
        "value, however small the result",
}};

}  // namespace

std::tuple<Tensor, Tensor> detail::attention_reference(const Tensor& q, const Tensor& k, const Tensor& v,
                                                       bool is_causal, std::optional<double> scale, int64_t window,
                                                       int64_t query_offset) {
  return reference(q, k, v, {}, Plain{{is_causal, scale, window, query_offset}, 0, {}});
}

std::tuple<Tensor, Tensor, Tensor> detail::attention_gradient(const Tensor& gout, const Tensor& glse, const Tensor& q,
                                                              const Tensor& k, const Tensor& v, const Tensor& out,
                                                              const Tensor& lse, bool is_causal,
                                                              std::optional<double> scale, int64_t window,
                                                              int64_t query_offset) {
  return composed_backward(gout, glse, q, k, v, {}, out, lse, Plain{{is_causal, scale, window, query_offset}, 0, {}});
}

Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                                    const AttentionOptions& o) {
  if (o.dropout_p > 0) {
    return std::get<0>(attention_op.drawn(default_generator(), q, k, v, mask, o.is_causal, o.scale, o.window,
                                          o.query_offset, o.dropout_p, {}));
  }
  return std::get<0>(attention_op(q, k, v, mask, o.is_causal, o.scale, o.window, o.query_offset, o.dropout_p, {}));
}

Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                                    double dropout_p, bool is_causal, std::optional<double> scale) {
  AttentionOptions o;
  o.dropout_p = dropout_p;
  o.is_causal = is_causal;
  o.scale = scale;
  return scaled_dot_product_attention(q, k, v, mask, o);
}

}  // namespace strata
