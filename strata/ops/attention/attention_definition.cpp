#include "strata/ops/attention/attention_definition_record.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "strata/ops/attention/attention.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/view/view.h"

namespace strata::detail {
namespace {

using Plain = AttentionArguments;

// Whether query i sees key j, masks and lengths aside.
bool sees(const Plain& a, int64_t i, int64_t j) {
  const int64_t at = i + a.query_offset;
  return (!a.is_causal || j <= at) && (a.window == 0 || std::abs(at - j) < a.window);
}

// How far query i lies from key j.
double distance(const Plain& a, int64_t i, int64_t j) {
  return static_cast<double>(std::abs(i + a.query_offset - j));
}

// The multiplier under dropout of weight `at` of all [B, H, Tq, Tk].
double kept(const Plain& a, const Shape& all, int64_t at) {
  if (a.dropout_p == 0) return 1;
  const int64_t h = all[1], tq = all[2], tk = all[3];
  const uint64_t n = a.numbers_for(h, tq, tk).of(at / (h * tq * tk), at / (tq * tk) % h, at / tk % tq, at % tk);
  return uniform_f32(philox(a.key, n / 4)[n % 4]) < static_cast<float>(a.dropout_p) ? 0 : 1 / (1 - a.dropout_p);
}

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

std::vector<int64_t> lengths_of(const Plain& a) {
  return a.key_lengths.is_meta() ? std::vector<int64_t>() : a.key_lengths.to(DType::i64).to_vector<int64_t>();
}

// [H] or [B, H] as [.., H, 1, 1].
Tensor slopes_column(const Plain& a, DType dtype) {
  return a.alibi_slopes.to(dtype).unsqueeze(-1).unsqueeze(-1);
}

struct Scores {
  Tensor complete;  // [B, H, Tq, Tk], -inf where a query does not see a key
  Tensor slope;     // of the soft cap at each, or undefined
};

Scores scores_of(const Tensor& q, const Tensor& k, const Tensor& mask, const Plain& a) {
  const int64_t tq = q.shape()[2], tk = k.shape()[2];
  Scores r;
  Tensor s = q.matmul(repeat_heads(k, q.shape()[1]).transpose(2, 3)) * a.scale_for(q.shape()[3]);
  if (a.logit_soft_cap > 0) {
    const Tensor u = (s * (1 / a.logit_soft_cap)).tanh();
    s = u * a.logit_soft_cap;
    r.slope = u * u * -1 + 1;
  }
  if (a.alibi_slopes.defined()) {
    const Tensor far = host_tensor({tq, tk}, s, [&](int64_t i) { return distance(a, i / tk, i % tk); });
    s = add(s, slopes_column(a, s.dtype()) * far, -1);
  }
  if (mask.defined() && mask.dtype() == DType::boolean) {
    const std::vector<double> seen = mask.to_vector<double>();
    s = s + host_tensor(mask.shape(), s, [&](int64_t i) { return seen[i] != 0 ? 0 : -INFINITY; });
  } else if (mask.defined()) {
    s = s + mask.to(s.dtype());
  }
  if (a.is_causal || a.window > 0)
    s = s + host_tensor({tq, tk}, s, [&](int64_t i) { return sees(a, i / tk, i % tk) ? 0 : -INFINITY; });
  if (a.key_lengths.defined()) {
    const std::vector<int64_t> n = lengths_of(a);
    s = s + host_tensor({q.shape()[0], 1, 1, tk}, s, [&](int64_t i) { return i % tk < n[i / tk] ? 0 : -INFINITY; });
  }
  r.complete = s;
  return r;
}

Tensor dropped(const Tensor& p, const Plain& a) {
  return a.dropout_p > 0 ? p * host_tensor(p.shape(), p, [&](int64_t i) { return kept(a, p.shape(), i); }) : p;
}

struct ScoreGradient {
  Tensor p, ds;   // weights (before dropout) and the gradient of the complete scores
  Tensor of_raw;  // and that of the scores before the soft cap
};

ScoreGradient score_gradient(const Tensor& gout, const Tensor& glse, const Tensor& q, const Tensor& k, const Tensor& v,
                             const Tensor& mask, const Tensor& out, const Tensor& lse, const Plain& a) {
  const Scores s = scores_of(q, k, mask, a);
  // A query that sees nothing has lse -inf and weights 0, not exp(-inf + inf).
  const Tensor p = add(s.complete, lse.unsqueeze(-1).clamp(-1e30, std::nullopt), -1).exp();
  const Tensor dp = dropped(gout.matmul(repeat_heads(v, q.shape()[1]).transpose(2, 3)), a);
  Tensor delta = sum(gout * out, Dims{-1}, true);
  if (glse.defined()) delta = add(delta, glse.unsqueeze(-1), -1);
  const Tensor ds = p * add(dp, delta, -1);
  return {p, ds, s.slope.defined() ? ds * s.slope : ds};
}

// Sums the query heads that share a key head.
Tensor sum_heads(const Tensor& g, int64_t kv) {
  const int64_t b = g.shape()[0], h = g.shape()[1], t = g.shape()[2], d = g.shape()[3];
  return h == kv ? g : sum(g.reshape({b, kv, h / kv, t, d}), Dims{2}, false);
}

}  // namespace

void check_attention_inputs(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, const Plain& a,
                            std::string_view op) {
  check_attention_dtypes(q, k, v, op);
  check<ShapeError>(q.dim() == 4 && k.dim() == 4 && v.dim() == 4, op, "q, k and v must be [B, H, T, D], got ", q, ", ",
                    k, ", ", v);
  check<ShapeError>(k.shape()[0] == q.shape()[0] && v.shape()[0] == q.shape()[0], op, "batch sizes differ: q is ", q,
                    ", k is ", k, ", v is ", v);
  check<ShapeError>(k.shape()[3] == q.shape()[3], op, "sizes of q and k differ: q is ", q, ", k is ", k);
  check<ShapeError>(k.shape()[1] == v.shape()[1] && k.shape()[2] == v.shape()[2], op,
                    "heads or lengths of k and v differ: k is ", k, ", v is ", v);
  check_attention_heads(q.shape()[1], k.shape()[1], op);
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
  check_attention_window(a.window, a.query_offset, op);
  check(a.dropout_p >= 0 && a.dropout_p < 1, op, "dropout_p must be in [0, 1), got ", a.dropout_p);
  check(a.numbers.empty() || a.numbers.size() == 4, op, "numbers are those of first, batch, head and query, got ",
        a.numbers);
  check(a.numbers.empty() || !mask.defined() || mask.dtype() == DType::boolean, op,
        "numbers and a floating attn_mask are not for one call");
  check(a.logit_soft_cap >= 0 && std::isfinite(a.logit_soft_cap), op,
        "logit_soft_cap must be 0 (none) or positive, got ", a.logit_soft_cap);
  const int64_t batch = q.shape()[0], heads = q.shape()[1];
  if (a.alibi_slopes.defined()) {
    const Tensor& t = a.alibi_slopes;
    check<DTypeError>(is_floating(t.dtype()), op, "alibi_slopes must be floating, got ", t.dtype());
    check<ShapeError>(t.shape() == Shape{heads} || t.shape() == Shape{batch, heads}, op, "alibi_slopes is ", t,
                      ", wanted [", heads, "] or [", batch, ", ", heads, "]");
  }
  if (a.sinks.defined()) {
    check<DTypeError>(is_floating(a.sinks.dtype()), op, "sinks must be floating, got ", a.sinks.dtype());
    check<ShapeError>(a.sinks.shape() == Shape{heads}, op, "sinks is ", a.sinks, ", wanted [", heads, "]");
  }
  if (a.key_lengths.defined()) {
    const DType t = a.key_lengths.dtype();
    check<DTypeError>(t == DType::i64 || t == DType::i32, op, "key_lengths must be i64 or i32, got ", t);
    check<ShapeError>(a.key_lengths.shape() == Shape{batch}, op, "key_lengths is ", a.key_lengths, ", wanted [", batch,
                      "]");
  }
}

std::tuple<Tensor, Tensor> attention_by_loops(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                                              const Plain& a) {
  const int64_t B = q.shape()[0], H = q.shape()[1], Tq = q.shape()[2], D = q.shape()[3];
  const int64_t Hkv = k.shape()[1], Tk = k.shape()[2], Dv = v.shape()[3];
  const std::vector<double> qs = q.to_vector<double>(), ks = k.to_vector<double>(), vs = v.to_vector<double>();
  std::vector<double> ms, slopes, sinks;
  std::vector<int64_t> lengths;
  if (mask.defined()) ms = mask.expand({B, H, Tq, Tk}).to_vector<double>();
  if (a.alibi_slopes.defined()) slopes = a.alibi_slopes.expand({B, H}).to_vector<double>();
  if (a.sinks.defined()) sinks = a.sinks.to_vector<double>();
  if (a.key_lengths.defined()) lengths = lengths_of(a);
  std::vector<double> out(static_cast<size_t>(B * H * Tq * Dv)), lse(static_cast<size_t>(B * H * Tq)),
      s(static_cast<size_t>(Tk));
  for (int64_t row = 0; row < B * H * Tq; ++row) {
    const int64_t i = row % Tq, kv_head = row / Tq / H * Hkv + row / Tq % H / (H / Hkv), head = row / Tq;
    double top = sinks.empty() ? -INFINITY : sinks[static_cast<size_t>(head % H)], total = 0;
    for (int64_t j = 0; j < Tk; ++j) {
      double dot = 0;
      for (int64_t d = 0; d < D; ++d) dot += qs[row * D + d] * ks[(kv_head * Tk + j) * D + d];
      s[j] = dot * a.scale_for(D);
      if (a.logit_soft_cap > 0) s[j] = a.logit_soft_cap * std::tanh(s[j] / a.logit_soft_cap);
      if (!slopes.empty()) s[j] -= slopes[static_cast<size_t>(head)] * distance(a, i, j);
      if (mask.defined() && mask.dtype() != DType::boolean) s[j] += ms[row * Tk + j];
      if (!sees(a, i, j) || (mask.defined() && mask.dtype() == DType::boolean && ms[row * Tk + j] == 0) ||
          (!lengths.empty() && j >= lengths[static_cast<size_t>(head / H)]))
        s[j] = -INFINITY;
      top = std::max(top, s[j]);
    }
    if (top > -INFINITY)
      for (double& x : s) total += x = std::exp(x - top);
    if (!sinks.empty() && top > -INFINITY) total += std::exp(sinks[static_cast<size_t>(head % H)] - top);
    lse[row] = std::log(total) + (total > 0 ? top : 0);
    for (int64_t j = 0; j < Tk && total > 0; ++j)
      for (int64_t d = 0; d < Dv; ++d)
        out[row * Dv + d] += s[j] / total * kept(a, {B, H, Tq, Tk}, row * Tk + j) * vs[(kv_head * Tk + j) * Dv + d];
  }
  return {from_span<double>(out, {B, H, Tq, Dv}), from_span<double>(lse, {B, H, Tq})};
}

Tensor attention_kept_by_loops(const Shape& shape, int64_t tk, const Plain& a) {
  const int64_t tq = shape[2], words = shape[3];
  const Shape weights{shape[0], shape[1], tq, tk};
  const int64_t count = words > 0 ? shape[0] * shape[1] * tq * tk : 0;
  const Tensor bits = zeros(shape, DType::i32);
  int32_t* const to = bits.data<int32_t>();
  for (int64_t at = 0; at < count; ++at)
    if (const int64_t i = at / tk % tq, j = at % tk; sees(a, i, j) && kept(a, weights, at) != 0)
      to[at / tk * words + j / 32] |= static_cast<int32_t>(1u << (j % 32));
  return bits;
}

std::tuple<Tensor, Tensor, Tensor> attention_composed_backward(const Tensor& gout, const Tensor& glse, const Tensor& q,
                                                               const Tensor& k, const Tensor& v, const Tensor& mask,
                                                               const Tensor& out, const Tensor& lse, const Plain& a) {
  const ScoreGradient s = score_gradient(gout, glse, q, k, v, mask, out, lse, a);
  const int64_t kv = k.shape()[1];
  const double scale = a.scale_for(q.shape()[3]);
  const Tensor ds = s.of_raw.to(q.dtype());
  const Tensor gq = ds.matmul(repeat_heads(k, q.shape()[1])) * scale;
  const Tensor gk = sum_heads(ds.transpose(2, 3).matmul(q), kv) * scale;
  const Tensor gv = sum_heads(dropped(s.p, a).to(q.dtype()).transpose(2, 3).matmul(gout), kv);
  return {gq.to(q.dtype()), gk.to(q.dtype()), gv.to(q.dtype())};
}

Tensor attention_composed_weights(const Tensor& q, const Tensor& k, const Tensor& mask, const Tensor& lse,
                                  const Plain& a) {
  const Tensor p = add(scores_of(q, k, mask, a).complete, lse.unsqueeze(-1).clamp(-1e30, std::nullopt), -1).exp();
  return dropped(p, a);
}

Tensor attention_bias_gradient(const Tensor& gout, const Tensor& glse, const Tensor& q, const Tensor& k,
                               const Tensor& v, const Tensor& mask, const Tensor& out, const Tensor& lse,
                               const Plain& a) {
  return score_gradient(gout, glse, q, k, v, mask, out, lse, a).ds;
}

Tensor attention_slopes_gradient(const Tensor& bias_gradient, const Plain& a) {
  const int64_t tq = bias_gradient.shape()[2], tk = bias_gradient.shape()[3];
  const Tensor far = host_tensor({tq, tk}, bias_gradient, [&](int64_t i) { return -distance(a, i / tk, i % tk); });
  Tensor g = sum(bias_gradient * far, Dims{-2, -1}, false);
  if (a.alibi_slopes.dim() == 1) g = sum(g, Dims{0}, false);
  return g.to(a.alibi_slopes.dtype());
}

// A sink's weight takes no value: its share of the gradient is what delta takes off each score.
Tensor attention_sinks_gradient(const Tensor& gout, const Tensor& glse, const Tensor& out, const Tensor& lse,
                                const Plain& a) {
  const Tensor weight = add(a.sinks.to(lse.dtype()).unsqueeze(-1), lse.clamp(-1e30, std::nullopt), -1).exp();
  Tensor delta = sum(gout * out, Dims{-1}, false).to(lse.dtype()) * -1;
  if (glse.defined()) delta = delta + glse;
  return sum(weight * delta, Dims{0, 2}, false).to(a.sinks.dtype());
}

std::tuple<Tensor, Tensor> attention_reference(const Tensor& q, const Tensor& k, const Tensor& v, bool is_causal,
                                               std::optional<double> scale, int64_t window, int64_t query_offset) {
  Plain a;
  a.is_causal = is_causal, a.scale = scale, a.window = window, a.query_offset = query_offset;
  return attention_by_loops(q, k, v, {}, a);
}

std::tuple<Tensor, Tensor, Tensor> attention_gradient(const Tensor& gout, const Tensor& glse, const Tensor& q,
                                                      const Tensor& k, const Tensor& v, const Tensor& out,
                                                      const Tensor& lse, bool is_causal, std::optional<double> scale,
                                                      int64_t window, int64_t query_offset) {
  Plain a;
  a.is_causal = is_causal, a.scale = scale, a.window = window, a.query_offset = query_offset;
  return attention_composed_backward(gout, glse, q, k, v, {}, out, lse, a);
}

}  // namespace strata::detail
