// Attention over sequences of different lengths that lie one after another: the records.

#include <algorithm>
#include <vector>

#include "strata/core/error.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/attention/attention.h"
#include "strata/ops/attention/attention_kernel.h"
#include "strata/ops/attention/attention_record.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

constexpr std::string_view kName = "varlen_attention";

using detail::dense_rows;
using Pair = std::tuple<Tensor, Tensor>;
using Triple = std::tuple<Tensor, Tensor, Tensor>;

using Plain = detail::AttentionPlain;

void check_ends(std::span<const int64_t> ends, int64_t rows, std::string_view name) {
  check<ShapeError>(!ends.empty() && ends.front() == 0 && ends.back() <= rows, kName, name,
                    " must go from 0 to at most the ", rows, " rows");
  for (size_t i = 1; i < ends.size(); ++i)
    check<ShapeError>(ends[i] >= ends[i - 1], kName, name, " must not decrease, but ", ends[i - 1], " comes before ",
                      ends[i]);
}

void check_inputs(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& q_ends, const Tensor& k_ends,
                  const Plain& a, std::string_view op) {
  detail::check_attention_dtypes(q, k, v, op);
  check<ShapeError>(q.dim() == 3 && k.dim() == 3 && v.dim() == 3, op, "q, k and v must be [total, H, D], got ", q, ", ",
                    k, ", ", v);
  check<ShapeError>(k.shape()[0] == v.shape()[0] && k.shape()[1] == v.shape()[1], op, "k is ", k, ", v is ", v);
  check<ShapeError>(k.shape()[2] == q.shape()[2], op, "sizes of q and k differ: q is ", q, ", k is ", k);
  detail::check_attention_heads(q.shape()[1], k.shape()[1], op);
  check<ShapeError>(q.shape()[0] <= INT32_MAX && k.shape()[0] <= INT32_MAX, op, "wants fewer than 2^31 rows, got ", q,
                    ", ", k);
  check<DTypeError>(q_ends.dtype() == DType::i64 && k_ends.dtype() == DType::i64, op,
                    "cu_seqlens_q and cu_seqlens_k must be i64, got ", q_ends, ", ", k_ends);
  check<ShapeError>(
      q_ends.dim() == 1 && q_ends.shape() == k_ends.shape() && q_ends.numel() > 1 && q_ends.numel() <= (1 << 24), op,
      "cu_seqlens_q and cu_seqlens_k must both be [sequences + 1], at least one sequence and at most 2^24, got ",
      q_ends, ", ", k_ends);
  detail::check_attention_window(a.window, a.query_offset, op);
}

AttentionView view_of(const Tensor& t) {
  return {t.raw_data(), 0, t.strides()[1], t.strides()[0]};
}

AttentionCall describe_call(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& q_ends,
                            const Tensor& k_ends, const Plain& a) {
  AttentionCall c;
  c.dtype = q.dtype();
  c.batch = 1;
  c.tq = c.lse_head = q.shape()[0];
  c.tk = k.shape()[0];
  c.heads = q.shape()[1];
  c.kv_heads = k.shape()[1];
  c.d = q.shape()[2];
  c.dv = v.shape()[2];
  c.scale = a.scale_for(c.d);
  c.causal = a.is_causal;
  c.window = a.window;
  c.offset = a.query_offset;
  c.q = view_of(q);
  c.k = view_of(k);
  c.v = view_of(v);
  c.sequences = q_ends.numel() - 1;
  c.cu_seqlens_q = static_cast<const int64_t*>(q_ends.raw_data());
  c.cu_seqlens_k = static_cast<const int64_t*>(k_ends.raw_data());
  return c;
}

// Calls f(first query, queries, first key, keys) for every sequence, then for the queries and for the keys behind the
// last.
template <class F>
void each_sequence(std::span<const int64_t> q_ends, std::span<const int64_t> k_ends, int64_t queries, int64_t keys,
                   F&& f) {
  check_ends(q_ends, queries, "cu_seqlens_q");
  check_ends(k_ends, keys, "cu_seqlens_k");
  for (size_t i = 0; i + 1 < q_ends.size(); ++i)
    f(q_ends[i], q_ends[i + 1] - q_ends[i], k_ends[i], k_ends[i + 1] - k_ends[i]);
  if (q_ends.back() < queries) f(q_ends.back(), queries - q_ends.back(), int64_t{0}, int64_t{0});
  if (k_ends.back() < keys) f(int64_t{0}, int64_t{0}, k_ends.back(), keys - k_ends.back());
}

// Runs kernel(call) for each sequence of a call on the CPU.
void on_cpu(const AttentionCall& all, void (*kernel)(const AttentionCall&)) {
  const size_t ends = static_cast<size_t>(all.sequences) + 1, size = size_of(all.dtype);
  const size_t lse_size = size_of(statistic_dtype(all.dtype));
  const auto moved = [](auto* p, int64_t n, size_t bytes) {
    using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(p)>>, const std::byte, std::byte>;
    return p ? static_cast<Byte*>(p) + n * static_cast<int64_t>(bytes) : nullptr;
  };
  each_sequence({all.cu_seqlens_q, ends}, {all.cu_seqlens_k, ends}, all.tq, all.tk,
                [&](int64_t q0, int64_t tq, int64_t k0, int64_t tk) {
                  AttentionCall c = all;
                  c.sequences = 0;
                  c.tq = tq, c.tk = tk;
                  for (AttentionView* v : {&c.q, &c.out, &c.grad_out, &c.grad_q})
                    v->data = moved(v->data, q0 * v->time, size);
                  for (AttentionView* v : {&c.k, &c.v, &c.grad_k, &c.grad_v})
                    v->data = moved(v->data, k0 * v->time, size);
                  c.lse = moved(c.lse, q0, lse_size);
                  c.grad_lse = moved(c.grad_lse, q0, lse_size);
                  kernel(c);
                });
}

// [T, H, D] as [1, H, T, D], rows [first, first + n).
Tensor heads_first(const Tensor& x, int64_t first, int64_t n) {
  return x.narrow(0, first, n).transpose(0, 1).unsqueeze(0);
}
Tensor heads_last(const Tensor& x) {
  return x.squeeze(0).transpose(0, 1);
}

// The sequences' parts put one after another; without any, the whole of `none`.
Tensor joined(const TensorList& parts, const Tensor& none) {
  return parts.empty() ? none : cat(parts, 0);
}

Pair reference(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& q_ends, const Tensor& k_ends,
               const Plain& a) {
  TensorList out, lse;
  each_sequence(q_ends.to_vector<int64_t>(), k_ends.to_vector<int64_t>(), q.shape()[0], k.shape()[0],
                [&](int64_t q0, int64_t tq, int64_t k0, int64_t tk) {
                  if (tq == 0) return;
                  auto [y, l] = detail::attention_reference(heads_first(q, q0, tq), heads_first(k, k0, tk),
                                                            heads_first(v, k0, tk), a.is_causal, a.scale, a.window,
                                                            a.query_offset);
                  out.push_back(heads_last(y));
                  lse.push_back(l.squeeze(0).t());
                });
  const int64_t h = q.shape()[1];
  return Pair(joined(out, zeros({0, h, v.shape()[2]}, DType::f64)), joined(lse, zeros({0, h}, DType::f64)).t());
}

// The gradient with ordinary ops, which is differentiated for gradients of gradients.
Triple composed_backward(const Tensor& gout, const Tensor& glse, const Tensor& q, const Tensor& k, const Tensor& v,
                         const Tensor& q_ends, const Tensor& k_ends, const Tensor& out, const Tensor& lse,
                         const Plain& a) {
  TensorList gq, gk, gv;
  each_sequence(q_ends.to_vector<int64_t>(), k_ends.to_vector<int64_t>(), q.shape()[0], k.shape()[0],
                [&](int64_t q0, int64_t tq, int64_t k0, int64_t tk) {
                  const Tensor qs = heads_first(q, q0, tq), ks = heads_first(k, k0, tk), vs = heads_first(v, k0, tk);
                  Triple g(qs * 0, ks * 0, vs * 0);
                  if (tq > 0 && tk > 0)
                    g = detail::attention_gradient(heads_first(gout, q0, tq),
                                                   glse.defined() ? glse.narrow(1, q0, tq).unsqueeze(0) : glse, qs, ks,
                                                   vs, heads_first(out, q0, tq), lse.narrow(1, q0, tq).unsqueeze(0),
                                                   a.is_causal, a.scale, a.window, a.query_offset);
                  if (tq > 0) gq.push_back(heads_last(std::get<0>(g)));
                  if (tk > 0) gk.push_back(heads_last(std::get<1>(g))), gv.push_back(heads_last(std::get<2>(g)));
                });
  return Triple(joined(gq, q * 0), joined(gk, k * 0), joined(gv, v * 0));
}

// As if all sequences were of one length: the lengths may be the device's alone.
Cost varlen_cost(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& ends, const Plain& a, double products,
                 double passes) {
  const double n = static_cast<double>(ends.numel() - 1), tq = static_cast<double>(q.shape()[0]);
  const double tk = static_cast<double>(k.shape()[0]) / n;
  const double whole = a.is_causal ? tk / 2 : tk;
  const double seen = a.window > 0 ? std::min(whole, static_cast<double>(a.window) * (a.is_causal ? 1 : 2)) : whole;
  return {products * tq * seen * static_cast<double>(q.shape()[1] * (q.shape()[2] + v.shape()[2])),
          passes * static_cast<double>(q.nbytes() + k.nbytes() + v.nbytes())};
}

Tensor ends_of(std::initializer_list<int64_t> ends) {
  return from_span<int64_t>(std::vector<int64_t>(ends), {static_cast<int64_t>(ends.size())});
}

using BackwardSignature = Triple(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                 const Tensor&, const Tensor&, const Tensor&, const Tensor&, bool,
                                 std::optional<double>, int64_t, int64_t);

const Op<BackwardSignature> varlen_backward_op{{
    .schema = "varlen_attention_backward(Tensor gout, Tensor? glse, Tensor q, Tensor k, Tensor v, Tensor cu_seqlens_q, "
              "Tensor cu_seqlens_k, Tensor out, Tensor lse, bool is_causal, float? scale, int window, "
              "int query_offset) -> (Tensor gq, Tensor gk, Tensor gv)",
    .shard = "whole",
    .internal = true,
    .doc = "The gradients of varlen_attention for q, k and v, from the gradients gout and (where given) glse of its "
           "results out and lse; zeros behind the last sequence. The same bits for any number of threads.",
    .infer =
        [](const Tensor& gout, const Tensor& glse, const Tensor& q, const Tensor& k, const Tensor& v,
           const Tensor& q_ends, const Tensor& k_ends, const Tensor& out, const Tensor& lse, bool is_causal,
           std::optional<double> scale, int64_t window, int64_t offset) {
          const std::string_view op = "varlen_attention_backward";
          check_inputs(q, k, v, q_ends, k_ends, Plain{is_causal, scale, window, offset}, op);
          detail::check_attention_results(gout, glse, out, lse, {q.shape()[0], q.shape()[1], v.shape()[2]},
                                          {q.shape()[1], q.shape()[0]}, q.dtype(), op);
          return std::array<TensorMeta, 3>{like(q), like(k), like(v)};
        },
    .kernels = on_each_device([](auto on, Tensor& gq, Tensor& gk, Tensor& gv, const Tensor& gout, const Tensor& glse,
                                 const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& q_ends,
                                 const Tensor& k_ends, const Tensor& out, const Tensor& lse, bool is_causal,
                                 std::optional<double> scale, int64_t window, int64_t offset) {
      const Tensor qd = dense_rows(q), kd = dense_rows(k), vd = dense_rows(v), od = dense_rows(out),
                   gd = dense_rows(gout), lc = lse.contiguous(), qe = q_ends.contiguous(), ke = k_ends.contiguous(),
                   glc = glse.defined() ? glse.contiguous() : glse;
      AttentionCall c = describe_call(qd, kd, vd, qe, ke, Plain{is_causal, scale, window, offset});
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
        on_cpu(c, attention_backward_cpu);
    }),
    .composed =
        [](const Tensor& gout, const Tensor& glse, const Tensor& q, const Tensor& k, const Tensor& v,
           const Tensor& q_ends, const Tensor& k_ends, const Tensor& out, const Tensor& lse, bool is_causal,
           std::optional<double> scale, int64_t window, int64_t offset) {
          return composed_backward(gout, glse, q, k, v, q_ends, k_ends, out, lse,
                                   Plain{is_causal, scale, window, offset});
        },
    .cost =
        [](const Tensor&, const Tensor&, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& ends,
           const Tensor&, const Tensor&, const Tensor&, bool is_causal, std::optional<double> scale, int64_t window,
           int64_t offset) {
          return varlen_cost(q, k, v, ends, Plain{is_causal, scale, window, offset}, 5, 3);
        },
    .samples =
        [](Samples& s) {
          const DType st = statistic_dtype(s.dtype());
          s.add(s.tensor({6, 4, 3}), s.tensor({4, 6}, st), s.tensor({6, 4, 2}), s.tensor({7, 2, 2}),
                s.tensor({7, 2, 3}), ends_of({0, 2, 2, 5}), ends_of({0, 3, 4, 6}), s.tensor({6, 4, 3}),
                s.uniform({4, 6}, 2, 4, st), true, 0.5, 0, 0);
        },
    .tolerance = 32,
    .tolerance_reason =
        "weights and gradients of scores are rounded to the operands' dtype between two products: the error is that "
        "of the largest term, however small the sum",
}};

using ForwardSignature = Pair(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, bool,
                              std::optional<double>, int64_t, int64_t);

const Op<ForwardSignature> varlen_op{{
    .schema = "varlen_attention(Tensor q, Tensor k, Tensor v, Tensor cu_seqlens_q, Tensor cu_seqlens_k, "
              "bool is_causal=false, float? scale=None, int window=0, int query_offset=0) -> (Tensor out, Tensor lse)",
    .shard = "whole",
    .shown = 1,
    .doc = "Attention over sequences of different lengths that lie one after another: q [total of queries, H, D], k "
           "[total of keys, Hkv, D], v [total of keys, Hkv, Dv]; sequence i has the rows from cu_seqlens[i] up to "
           "cu_seqlens[i + 1], and its queries see its keys alone. cu_seqlens are i64 [sequences + 1], from 0 on, "
           "never falling; behind the last, queries see nothing and keys are not seen. is_causal, scale, window and "
           "query_offset are those of scaled_dot_product_attention, within each sequence. out [total of queries, H, "
           "Dv]; lse [H, total of queries] is the logarithm of the sum of exponentials of the scores, in f32 (f64 for "
           "f64). One launch on a CUDA device, for which the host does not read the lengths: wrong ones give wrong "
           "results there, a ShapeError on the CPU.",
    .example = "Tensor q = ones({10, 2, 8}); std::vector<int64_t> ends{0, 3, 10}; "
               "Tensor y = varlen_attention(q, q, q, ends, ends, {.is_causal = true}); assert(y.shape() == q.shape());",
    .infer =
        [](const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& q_ends, const Tensor& k_ends,
           bool is_causal, std::optional<double> scale, int64_t window, int64_t offset) {
          check_inputs(q, k, v, q_ends, k_ends, Plain{is_causal, scale, window, offset}, kName);
          return std::array<TensorMeta, 2>{
              like(q).with_shape({q.shape()[0], q.shape()[1], v.shape()[2]}),
              TensorMeta{Shape{q.shape()[1], q.shape()[0]}, statistic_dtype(q.dtype()), q.device(), std::nullopt}};
        },
    .kernels = on_each_device([](auto on, Tensor& out, Tensor& lse, const Tensor& q, const Tensor& k, const Tensor& v,
                                 const Tensor& q_ends, const Tensor& k_ends, bool is_causal,
                                 std::optional<double> scale, int64_t window, int64_t offset) {
      const Tensor qd = dense_rows(q), kd = dense_rows(k), vd = dense_rows(v), qe = q_ends.contiguous(),
                   ke = k_ends.contiguous();
      AttentionCall c = describe_call(qd, kd, vd, qe, ke, Plain{is_causal, scale, window, offset});
      c.out = view_of(out);
      c.lse = lse.raw_data();
      if constexpr (on.cuda)
        attention_forward_cuda(c, q);
      else
        on_cpu(c, attention_forward_cpu);
    }),
    .saves = "q k v cu_seqlens_q cu_seqlens_k out lse",
    .backward =
        [](Backward& b, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& q_ends, const Tensor& k_ends,
           bool is_causal, std::optional<double> scale, int64_t window, int64_t offset) {
          auto [gq, gk, gv] =
              varlen_backward_op(b.has_gy(0) ? b.gy(0) : b.y(0) * 0, b.has_gy(1) ? b.gy(1) : Tensor(), q, k, v, q_ends,
                                 k_ends, b.y(0), b.y(1), is_causal, scale, window, offset);
          b.set(0, gq);
          b.set(1, gk);
          b.set(2, gv);
        },
    .autocast = Autocast::low,
    .cost =
        [](const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& ends, const Tensor&, bool is_causal,
           std::optional<double> scale, int64_t window, int64_t offset) {
          return varlen_cost(q, k, v, ends, Plain{is_causal, scale, window, offset}, 2, 1.34);
        },
    .samples =
        [](Samples& s) {
          const Tensor ends = ends_of({0, 3, 4, 4, 11});
          s.add(s.tensor({11, 2, 8}), s.tensor({11, 2, 8}), s.tensor({11, 2, 8}), ends, ends, true).named("causal");
          s.add(s.tensor({7, 4, 3}), s.tensor({12, 2, 3}), s.tensor({12, 2, 6}), ends_of({0, 2, 7}),
                ends_of({0, 7, 12}), true, 0.3, 4, 1)
              .named("grouped heads, window, earlier keys");
          s.add(s.tensor({9, 1, 4}), s.tensor({8, 1, 4}), s.tensor({8, 1, 4}), ends_of({0, 4, 6}), ends_of({0, 3, 6}))
              .named("rows behind the last sequence")
              .not_differentiable();  // lse is -inf there
          s.add(s.tensor({211, 2, 64}), s.tensor({270, 1, 64}), s.tensor({270, 1, 64}), ends_of({0, 140, 141, 211}),
                ends_of({0, 131, 133, 270}), false, 0.2, 90, 5)
              .named("several tiles of a size for tensor cores")
              .not_differentiable();
          s.invalid<ShapeError>("[total, H, D]", s.tensor({1, 2, 5, 8}), s.tensor({5, 2, 8}), s.tensor({5, 2, 8}), ends,
                                ends);
          s.invalid<ShapeError>("no multiple", s.tensor({11, 3, 8}), s.tensor({11, 2, 8}), s.tensor({11, 2, 8}), ends,
                                ends);
          s.invalid<ShapeError>("sequences + 1", s.tensor({11, 2, 8}), s.tensor({11, 2, 8}), s.tensor({11, 2, 8}), ends,
                                ends_of({0, 11}));
          s.invalid<DTypeError>("i64", s.tensor({11, 2, 8}), s.tensor({11, 2, 8}), s.tensor({11, 2, 8}), ends,
                                s.tensor({5}, DType::f32));
          if (s.benchmarking())
            s.bench(s.tensor({2048, 8, 64}), s.tensor({2048, 8, 64}), s.tensor({2048, 8, 64}),
                    ends_of({0, 500, 501, 900, 2048}), ends_of({0, 500, 501, 900, 2048}), true);
        },
    .reference =
        [](const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& q_ends, const Tensor& k_ends,
           bool is_causal, std::optional<double> scale, int64_t window, int64_t offset) {
          return reference(q, k, v, q_ends, k_ends, Plain{is_causal, scale, window, offset});
        },
    .tolerance = 16,
    .tolerance_reason =
        "weights are rounded to the operands' dtype before the second product: the error is that of the largest "
        "value, however small the result",
}};

// With dropout each sequence draws its own weights; the kernels of all sequences lack the other options.
Tensor one_by_one(const Tensor& q, const Tensor& k, const Tensor& v, std::span<const int64_t> q_ends,
                  std::span<const int64_t> k_ends, const AttentionOptions& o) {
  TensorList parts;
  each_sequence(q_ends, k_ends, q.shape()[0], k.shape()[0], [&](int64_t q0, int64_t tq, int64_t k0, int64_t tk) {
    if (tq > 0)
      parts.push_back(heads_last(
          scaled_dot_product_attention(heads_first(q, q0, tq), heads_first(k, k0, tk), heads_first(v, k0, tk), {}, o)));
  });
  return joined(parts, q.narrow(0, 0, 0));
}

}  // namespace

Tensor varlen_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& cu_seqlens_q,
                        const Tensor& cu_seqlens_k, const AttentionOptions& o) {
  check(!o.key_lengths.defined(), kName, "takes no key_lengths: cu_seqlens_k has the lengths");
  check<ShapeError>(!o.alibi_slopes.defined() || o.alibi_slopes.dim() == 1, kName, "alibi_slopes must be [H], got ",
                    o.alibi_slopes);
  if (o.dropout_p > 0 || o.alibi_slopes.defined() || o.logit_soft_cap != 0 || o.sinks.defined()) {
    check_inputs(q, k, v, cu_seqlens_q, cu_seqlens_k, Plain{o.is_causal, o.scale, o.window, o.query_offset}, kName);
    return one_by_one(q, k, v, cu_seqlens_q.to_vector<int64_t>(), cu_seqlens_k.to_vector<int64_t>(), o);
  }
  check(o.dropout_p == 0, kName, "dropout_p must be in [0, 1), got ", o.dropout_p);
  return std::get<0>(varlen_op(q, k, v, cu_seqlens_q, cu_seqlens_k, o.is_causal, o.scale, o.window, o.query_offset));
}

Tensor varlen_attention(const Tensor& q, const Tensor& k, const Tensor& v, std::span<const int64_t> cu_seqlens_q,
                        std::span<const int64_t> cu_seqlens_k, const AttentionOptions& options) {
  check<ShapeError>(q.dim() == 3 && k.dim() == 3 && v.dim() == 3, kName, "q, k and v must be [total, H, D], got ", q,
                    ", ", k, ", ", v);
  const auto on_device = [&](std::span<const int64_t> ends, const Tensor& x, std::string_view name) {
    check_ends(ends, x.shape()[0], name);
    check<ShapeError>(ends.back() == x.shape()[0], kName, name, " ends at ", ends.back(), ", wanted the rows of ", x);
    return from_span<int64_t>(ends, {static_cast<int64_t>(ends.size())}).to(q.device());
  };
  const Tensor q_ends = on_device(cu_seqlens_q, q, "cu_seqlens_q"), k_ends = on_device(cu_seqlens_k, k, "cu_seqlens_k");
  return varlen_attention(q, k, v, q_ends, k_ends, options);
}

}  // namespace strata
