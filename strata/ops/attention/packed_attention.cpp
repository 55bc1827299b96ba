// The record of attention over heads that lie packed in one tensor.

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/attention/attention.h"
#include "strata/ops/attention/attention_kernel.h"
#include "strata/ops/attention/attention_record.h"
#include "strata/ops/attention/head_sharding_inl.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/join/segments_inl.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using detail::dense_rows;
using Pair = std::tuple<Tensor, Tensor>;

int64_t head_size(const Tensor& qkv, int64_t heads, int64_t kv_heads, std::string_view op) {
  check<DTypeError>(is_floating(qkv.dtype()), op, "needs a floating dtype, got ", qkv.dtype());
  check(heads >= 1 && heads <= INT32_MAX && kv_heads >= 1 && heads % kv_heads == 0, op, "heads ", heads,
        " must be a multiple of kv_heads ", kv_heads, " and below 2^31");
  check<ShapeError>(qkv.dim() == 3 && qkv.shape()[2] % (heads + 2 * kv_heads) == 0, op, "qkv is ", qkv,
                    ", wanted [B, T, (heads + 2 * kv_heads) * D] with heads ", heads, " and kv_heads ", kv_heads);
  return qkv.shape()[2] / (heads + 2 * kv_heads);
}

// The part of [B, T, parts * D] that begins at head `first`, as [B, heads, T, D].
AttentionView part(const Tensor& t, int64_t first, int64_t d) {
  return {static_cast<std::byte*>(t.raw_data()) + first * d * size_of(t.dtype()), t.strides()[0], d, t.strides()[1]};
}

AttentionCall describe_call(const Tensor& qkv, int64_t heads, int64_t kv_heads, bool is_causal,
                            std::optional<double> scale, int64_t window) {
  AttentionCall c;
  c.dtype = qkv.dtype();
  c.batch = qkv.shape()[0];
  c.heads = heads;
  c.kv_heads = kv_heads;
  c.tq = c.tk = c.lse_head = qkv.shape()[1];
  c.d = c.dv = qkv.shape()[2] / (heads + 2 * kv_heads);
  c.scale = detail::AttentionPlain{is_causal, scale, window, 0}.scale_for(c.d);
  c.causal = is_causal;
  c.window = window;
  c.q = part(qkv, 0, c.d);
  c.k = part(qkv, heads, c.d);
  c.v = part(qkv, heads + kv_heads, c.d);
  return c;
}

// [B, T, n D] as [B, n, T, D].
Tensor split_heads(const Tensor& x, int64_t first, int64_t n, int64_t d) {
  const Tensor s = x.narrow(2, first * d, n * d);
  return s.reshape({x.shape()[0], x.shape()[1], n, d}).transpose(1, 2);
}

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, int64_t, int64_t, bool,
                std::optional<double>, int64_t)>
    packed_attention_backward_op{{
        .schema = "packed_attention_backward(Tensor gout, Tensor? glse, Tensor qkv, Tensor out, Tensor lse, int heads, "
                  "int kv_heads, bool is_causal, float? scale, int window) -> Tensor",
        .shard =
            [](Sharding& s) {
              detail::shard_heads(s, "b ...!, b ...!, b ...!, b ...!, b ...! -> b ...!", "olpol", "p");
            },
        .internal = true,
        .doc = "The gradient of packed_attention for qkv, from the gradients of its results out and (where given) lse. "
               "The same "
               "bits for any number of threads.",
        .infer =
            [](const Tensor& gout, const Tensor& glse, const Tensor& qkv, const Tensor& out, const Tensor& lse,
               int64_t heads, int64_t kv_heads, bool, std::optional<double>, int64_t window) {
              const std::string_view op = "packed_attention_backward";
              const int64_t d = head_size(qkv, heads, kv_heads, op);
              detail::check_attention_window(window, 0, op);
              detail::check_attention_results(gout, glse, out, lse, {qkv.shape()[0], qkv.shape()[1], heads * d},
                                              {qkv.shape()[0], heads, qkv.shape()[1]}, qkv.dtype(), op);
              return like(qkv);
            },
        .kernels = on_each_device([](auto on, Tensor& g, const Tensor& gout, const Tensor& glse, const Tensor& qkv,
                                     const Tensor& out, const Tensor& lse, int64_t heads, int64_t kv_heads,
                                     bool is_causal, std::optional<double> scale, int64_t window) {
          const Tensor x = dense_rows(qkv), o = dense_rows(out), go = dense_rows(gout), lc = lse.contiguous();
          const Tensor gl = glse.defined() ? glse.contiguous() : glse;
          AttentionCall c = describe_call(x, heads, kv_heads, is_causal, scale, window);
          c.out = part(o, 0, c.d);
          c.grad_out = part(go, 0, c.d);
          c.lse = lc.raw_data();
          c.grad_lse = gl.defined() ? gl.raw_data() : nullptr;
          c.grad_q = part(g, 0, c.d);
          c.grad_k = part(g, heads, c.d);
          c.grad_v = part(g, heads + kv_heads, c.d);
          if constexpr (on.cuda)
            attention_backward_cuda(c, qkv);
          else
            attention_backward_cpu(c);
        }),
        .composed =
            [](const Tensor& gout, const Tensor& glse, const Tensor& qkv, const Tensor& out, const Tensor& lse,
               int64_t heads, int64_t kv_heads, bool is_causal, std::optional<double> scale, int64_t window) {
              const int64_t d = head_size(qkv, heads, kv_heads, "packed_attention_backward");
              const int64_t b = qkv.shape()[0], t = qkv.shape()[1];
              auto [gq, gk, gv] = detail::attention_gradient(
                  split_heads(gout, 0, heads, d), glse, split_heads(qkv, 0, heads, d),
                  split_heads(qkv, heads, kv_heads, d), split_heads(qkv, heads + kv_heads, kv_heads, d),
                  split_heads(out, 0, heads, d), lse, is_causal, scale, window);
              // Each part goes to its place in zeros of qkv's shape: the gradient of narrow.
              const auto place = [&](const Tensor& g, int64_t first, int64_t n) {
                return slice_backward(g.transpose(1, 2).reshape({b, t, n * d}), qkv.shape(), 2, first * d,
                                      (first + n) * d, 1);
              };
              return place(gq, 0, heads) + place(gk, heads, kv_heads) + place(gv, heads + kv_heads, kv_heads);
            },
        .cost =
            [](const Tensor& gout, const Tensor&, const Tensor& qkv, const Tensor&, const Tensor&, int64_t, int64_t,
               bool is_causal, std::optional<double>, int64_t window) {
              const double t = static_cast<double>(qkv.shape()[1]);
              const double seen = window > 0 ? std::min(t, static_cast<double>(window)) : is_causal ? t / 2 : t;
              return Cost{10.0 * static_cast<double>(gout.numel()) * seen, 2.0 * qkv.nbytes() + 2.0 * gout.nbytes()};
            },
        .samples =
            [](Samples& s) {
              const DType st = statistic_dtype(s.dtype());
              s.add(s.tensor({1, 5, 8}), std::nullopt, s.tensor({1, 5, 16}), s.tensor({1, 5, 8}),
                    s.uniform({1, 2, 5}, 2, 4, st), 2, 1, true, std::nullopt, 0);
            },
        .tolerance = 32,
        .tolerance_reason =
            "weights and gradients of scores are rounded to the operands' dtype between two products: the error "
            "is that of the largest term, however small the sum",
    }};

const Op<Pair(const Tensor&, int64_t, int64_t, bool, std::optional<double>, int64_t)> packed_attention_op{{
    .schema =
        "packed_attention(Tensor qkv, int heads, int kv_heads, bool is_causal=false, float? scale=None, int window=0) "
        "-> (Tensor out, Tensor lse)",
    .shard = [](Sharding& s) { detail::shard_heads(s, "b ...! -> b ...!, b ...!", "p", "ol"); },
    .shown = 1,
    .doc = "Self-attention of heads that lie packed in one tensor: qkv is [B, T, (heads + 2 * kv_heads) * D], the "
           "queries of all "
           "heads first, then the keys, then the values; out is [B, T, heads * D]. Otherwise as "
           "scaled_dot_product_attention. "
           "Neither direction copies the parts out: the gradient is written straight into one tensor of qkv's shape. "
           "ShapeError, DTypeError, ValueError when the sizes do not fit.",
    .example = "Tensor y = packed_attention(zeros({1, 4, 24}), 2, 2); assert(y.shape() == Shape({1, 4, 8}));",
    .infer =
        [](const Tensor& qkv, int64_t heads, int64_t kv_heads, bool, std::optional<double>, int64_t window) {
          const int64_t d = head_size(qkv, heads, kv_heads, "packed_attention");
          detail::check_attention_window(window, 0, "packed_attention");
          const int64_t b = qkv.shape()[0], t = qkv.shape()[1];
          return std::array<TensorMeta, 2>{
              like(qkv).with_shape({b, t, heads * d}),
              TensorMeta{Shape{b, heads, t}, statistic_dtype(qkv.dtype()), qkv.device(), std::nullopt}};
        },
    .kernels = on_each_device([](auto on, Tensor& out, Tensor& lse, const Tensor& qkv, int64_t heads, int64_t kv_heads,
                                 bool is_causal, std::optional<double> scale, int64_t window) {
      const Tensor x = dense_rows(qkv);
      AttentionCall c = describe_call(x, heads, kv_heads, is_causal, scale, window);
      c.out = part(out, 0, c.d);
      c.lse = lse.raw_data();
      if constexpr (on.cuda)
        attention_forward_cuda(c, qkv);
      else
        attention_forward_cpu(c);
    }),
    .saves = "qkv out lse",
    .backward =
        [](Backward& b, const Tensor& qkv, int64_t heads, int64_t kv_heads, bool is_causal, std::optional<double> scale,
           int64_t window) {
          b.set(0, packed_attention_backward_op(b.has_gy(0) ? b.gy(0) : b.y(0) * 0, b.has_gy(1) ? b.gy(1) : Tensor(),
                                                qkv, b.y(0), b.y(1), heads, kv_heads, is_causal, scale, window));
        },
    .autocast = Autocast::low,
    .cost =
        [](const Tensor& qkv, int64_t heads, int64_t kv_heads, bool is_causal, std::optional<double>, int64_t window) {
          const double t = static_cast<double>(qkv.shape()[1]);
          const double seen = window > 0 ? std::min(t, static_cast<double>(window)) : is_causal ? t / 2 : t;
          const double out =
              static_cast<double>(qkv.numel()) * static_cast<double>(heads) / static_cast<double>(heads + 2 * kv_heads);
          return Cost{4.0 * out * seen,
                      static_cast<double>(qkv.nbytes()) + out * static_cast<double>(size_of(qkv.dtype()))};
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 5, 24}), 2, 2, true);
          s.add(s.tensor({1, 37, 16}), 2, 1, true, 0.4, 9).named("grouped heads, window");
          s.add(s.tensor({1, 6, 12}), 1, 1).named("not causal");
          s.invalid<ShapeError>("wanted [B, T", s.tensor({1, 6, 13}), 1, 1);
          s.invalid<ValueError>("multiple", s.tensor({1, 6, 14}), 3, 2);
          if (s.benchmarking()) s.bench(s.tensor({8, 256, 768}), 8, 8, true);
        },
    .reference =
        [](const Tensor& qkv, int64_t heads, int64_t kv_heads, bool is_causal, std::optional<double> scale,
           int64_t window) {
          const int64_t d = qkv.shape()[2] / (heads + 2 * kv_heads);
          auto [out, lse] =
              detail::attention_reference(split_heads(qkv, 0, heads, d), split_heads(qkv, heads, kv_heads, d),
                                          split_heads(qkv, heads + kv_heads, kv_heads, d), is_causal, scale, window);
          return Pair(out.transpose(1, 2).reshape({qkv.shape()[0], qkv.shape()[1], heads * d}), lse);
        },
    .tolerance = 16,
    .tolerance_reason =
        "weights are rounded to the operands' dtype before the second product: the error is that of the largest "
        "value, however small the result",
}};

}  // namespace

Tensor packed_attention(const Tensor& qkv, int64_t heads, int64_t kv_heads, const AttentionOptions& o) {
  if (o.dropout_p > 0 || o.query_offset != 0 || o.alibi_slopes.defined() || o.logit_soft_cap != 0 ||
      o.sinks.defined() || o.key_lengths.defined()) {
    const int64_t d = head_size(qkv, heads, kv_heads, "packed_attention");
    const TensorList parts = detail::segments_of(qkv, {heads * d, kv_heads * d, kv_heads * d}, 2);
    const auto split = [&](size_t i, int64_t n) { return split_heads(parts[i], 0, n, d); };
    const Tensor y = scaled_dot_product_attention(split(0, heads), split(1, kv_heads), split(2, kv_heads), {}, o);
    return y.transpose(1, 2).reshape({qkv.shape()[0], qkv.shape()[1], heads * d});
  }
  return std::get<0>(packed_attention_op(qkv, heads, kv_heads, o.is_causal, o.scale, o.window));
}

}  // namespace strata
