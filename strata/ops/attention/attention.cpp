// The records of scaled dot-product attention.

#include "strata/ops/attention/attention.h"

#include <vector>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/attention/attention_definition_record.h"
#include "strata/ops/attention/attention_kernel.h"
#include "strata/ops/attention/head_sharding_inl.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using detail::attention_view;
using detail::dense_rows;
using Triple = std::tuple<Tensor, Tensor, Tensor>;
using Plain = detail::AttentionArguments;

// [B, H, T, D] laid out as [B, T, H, D].
TensorMeta heads_inside(const Tensor& like_this, int64_t heads, int64_t time, int64_t size) {
  const int64_t b = like_this.shape()[0];
  return {Shape{b, heads, time, size}, like_this.dtype(), like_this.device(),
          Strides{time * heads * size, size, heads * size, 1}};
}

// Dropout's bits [B, H, Tq, words] as forward leaves them to backward; without words where it leaves none.
TensorMeta kept_meta(const Tensor& q, const Tensor& k, const Tensor& v, double dropout_p) {
  const int64_t tq = q.shape()[2];
  return {Shape{q.shape()[0], q.shape()[1], tq, kept_words(dropout_p, tq, k.shape()[2], q.shape()[3], v.shape()[3])},
          DType::i32, q.device(), std::nullopt};
}

void take_kept(AttentionCall& c, const Tensor& kept) {
  if (!kept.defined() || kept.numel() == 0) return;
  c.kept = static_cast<const uint32_t*>(kept.raw_data());
  c.kept_words = kept.shape()[3];
}

template <class On>
void forward_kernel(On on, Tensor& out, Tensor& lse, Tensor& kept, const Tensor& q, const Tensor& k, const Tensor& v,
                    const Tensor& mask, const Plain& a) {
  const Tensor qd = dense_rows(q), kd = dense_rows(k), vd = dense_rows(v);
  detail::DescribedAttention call = detail::describe_attention(qd, kd, vd, mask, a);
  AttentionCall& c = call.c;
  c.out = attention_view(out);
  c.lse = lse.raw_data();
  take_kept(c, kept);
  auto* const bits = c.kept != nullptr ? static_cast<uint32_t*>(kept.raw_data()) : nullptr;
  if constexpr (on.cuda) {
    if (bits != nullptr) attention_draw_kept_cuda(c, bits);
    attention_forward_cuda(c, q);
  } else {
    if (bits != nullptr) attention_draw_kept_cpu(c, bits);
    attention_forward_cpu(c);
  }
}

template <class On>
void backward_kernel(On on, Tensor& gq, Tensor& gk, Tensor& gv, const Tensor& gout, const Tensor& glse, const Tensor& q,
                     const Tensor& k, const Tensor& v, const Tensor& mask, const Tensor& out, const Tensor& lse,
                     const Tensor& kept, const Plain& a) {
  const Tensor qd = dense_rows(q), kd = dense_rows(k), vd = dense_rows(v), od = dense_rows(out), gd = dense_rows(gout);
  const Tensor lc = lse.contiguous(), glc = glse.defined() ? glse.contiguous() : glse;
  detail::DescribedAttention call = detail::describe_attention(qd, kd, vd, mask, a);
  AttentionCall& c = call.c;
  c.out = attention_view(od);
  c.lse = lc.raw_data();
  c.grad_out = attention_view(gd);
  c.grad_lse = glc.defined() ? glc.raw_data() : nullptr;
  c.grad_q = attention_view(gq);
  c.grad_k = attention_view(gk);
  c.grad_v = attention_view(gv);
  const Tensor bits = kept.defined() ? kept.contiguous() : kept;
  take_kept(c, bits);
  if constexpr (on.cuda)
    attention_backward_cuda(c, q);
  else
    attention_backward_cpu(c);
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

// Whole numbers for samples.
Tensor integers(std::initializer_list<int64_t> values, DType dtype = DType::i64) {
  return from_span<int64_t>(std::vector<int64_t>(values), {static_cast<int64_t>(values.size())}).to(dtype);
}

using BackwardSignature = Triple(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                                 const Tensor&, const Tensor&, const Tensor&, bool, std::optional<double>, int64_t,
                                 int64_t, double, std::optional<RngKey>, const Tensor&, double, const Tensor&,
                                 const Dims&, const Tensor&);

const Op<BackwardSignature> attention_backward_op{{
    .schema = "scaled_dot_product_attention_backward(Tensor gout, Tensor? glse, Tensor q, Tensor k, Tensor v, Tensor? "
              "attn_mask, Tensor out, Tensor lse, bool is_causal, float? scale, int window, int query_offset, float "
              "dropout_p, RngKey? key, Tensor? alibi_slopes=None, float logit_soft_cap=0.0, Tensor? key_lengths=None, "
              "int[] numbers=[], Tensor? kept=None) "
              "-> (Tensor gq, Tensor gk, Tensor gv)",
    .shard =
        [](Sharding& s) {
          detail::shard_with_dropout(s,
                                     "b h t! d!, b h t!, b h t! d!, b h s! d!, b h s! d!, ~ b h t! s!, b h t! d!, "
                                     "b h t!, ~ b h, b, b h t! w! -> b h t! d!, b h s! d!, b h s! d!");
        },
    .internal = true,
    .doc =
        "The gradients of scaled_dot_product_attention for q, k and v, from the gradients gout and (where given) glse "
        "of its "
        "results out and lse. The weights are computed again block by block. The same bits for any number of threads. "
        "Dropout's bits are read from kept, its third result, where that is given and has any, and drawn again else.",
    .infer =
        [](const Tensor& gout, const Tensor& glse, const Tensor& q, const Tensor& k, const Tensor& v,
           const Tensor& mask, const Tensor& out, const Tensor& lse, STRATA_ATTENTION_ARGUMENTS, const Tensor& lengths,
           const Dims& numbers, const Tensor& kept) {
          const std::string_view op = "scaled_dot_product_attention_backward";
          detail::check_attention_inputs(q, k, v, mask,
                                         detail::attention_arguments(STRATA_ATTENTION_NAMES, {}, lengths, numbers), op);
          const Shape rows{q.shape()[0], q.shape()[1], q.shape()[2]};
          detail::check_attention_results(gout, glse, out, lse, {rows[0], rows[1], rows[2], v.shape()[3]}, rows,
                                          q.dtype(), op);
          if (kept.defined() && kept.numel() > 0) {
            const TensorMeta bits = kept_meta(q, k, v, dropout_p);
            check<ShapeError>(kept.shape() == bits.shape, op, "kept is ", kept, ", wanted ", bits.shape);
            check<DTypeError>(kept.dtype() == bits.dtype, op, "kept is ", kept.dtype(), ", wanted ", bits.dtype);
          }
          return std::array<TensorMeta, 3>{heads_inside(q, q.shape()[1], q.shape()[2], q.shape()[3]),
                                           heads_inside(k, k.shape()[1], k.shape()[2], k.shape()[3]),
                                           heads_inside(v, v.shape()[1], v.shape()[2], v.shape()[3])};
        },
    .kernels = on_each_device([](auto on, Tensor& gq, Tensor& gk, Tensor& gv, const Tensor& gout, const Tensor& glse,
                                 const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                                 const Tensor& out, const Tensor& lse, STRATA_ATTENTION_ARGUMENTS,
                                 const Tensor& lengths, const Dims& numbers, const Tensor& kept) {
      backward_kernel(on, gq, gk, gv, gout, glse, q, k, v, mask, out, lse, kept,
                      detail::attention_arguments(STRATA_ATTENTION_NAMES, {}, lengths, numbers));
    }),
    .composed =
        [](const Tensor& gout, const Tensor& glse, const Tensor& q, const Tensor& k, const Tensor& v,
           const Tensor& mask, const Tensor& out, const Tensor& lse, STRATA_ATTENTION_ARGUMENTS, const Tensor& lengths,
           const Dims& numbers, const Tensor&) {
          return detail::attention_composed_backward(
              gout, glse, q, k, v, mask, out, lse,
              detail::attention_arguments(STRATA_ATTENTION_NAMES, {}, lengths, numbers));
        },
    .cost =
        [](const Tensor&, const Tensor&, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor&,
           const Tensor&, const Tensor&, STRATA_ATTENTION_ARGUMENTS, const Tensor& lengths, const Dims& numbers,
           const Tensor&) {
          return attention_cost(q, k, v, detail::attention_arguments(STRATA_ATTENTION_NAMES, {}, lengths, numbers), 5,
                                3);
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
          s.add(s.tensor({2, 2, 5, 8}), std::nullopt, s.tensor({2, 2, 5, 8}), s.tensor({2, 1, 7, 8}),
                s.tensor({2, 1, 7, 8}), std::nullopt, s.tensor({2, 2, 5, 8}), s.uniform({2, 2, 5}, 2, 4, st), false,
                std::nullopt, 0, 1, 0.0, RngKey{}, s.uniform({2}, 0.1, 0.5), 2.5, integers({7, 3}))
              .named("distances, soft cap, lengths");
          s.add(s.tensor({1, 2, 6, 4}), std::nullopt, s.tensor({1, 2, 6, 4}), s.tensor({1, 2, 6, 4}),
                s.tensor({1, 2, 6, 4}), std::nullopt, s.tensor({1, 2, 6, 4}), s.uniform({1, 2, 6}, 2, 4, st), true,
                std::nullopt, 0, 0, 0.25, RngKey{7, 3})
              .named("dropout, drawn again");
          s.invalid<ShapeError>("kept is", s.tensor({1, 2, 6, 4}), std::nullopt, s.tensor({1, 2, 6, 4}),
                                s.tensor({1, 2, 6, 4}), s.tensor({1, 2, 6, 4}), std::nullopt, s.tensor({1, 2, 6, 4}),
                                s.uniform({1, 2, 6}, 2, 4, st), true, std::nullopt, 0, 0, 0.25, RngKey{7, 3},
                                std::nullopt, 0.0, std::nullopt, Dims{}, s.tensor({1, 2, 6, 1}, DType::i32));
          // Sizes that have kernels of their own.
          for (const int64_t d : {64, 72, 128, 136})
            s.add(s.tensor({1, 2, 5, d}), std::nullopt, s.tensor({1, 2, 5, d}), s.tensor({1, 1, 19, d}),
                  s.tensor({1, 1, 19, d}), std::nullopt, s.tensor({1, 2, 5, d}), s.uniform({1, 2, 5}, 2, 4, st), true,
                  0.1, 0, 12, 0.0, RngKey{})
                .named("larger heads")
                .not_differentiable();
        },
    .tolerance = 32,
    .tolerance_reason =
        "weights and gradients of scores are rounded to the operands' dtype between two products: the error is that "
        "of the largest term, however small the sum",
}};

using ForwardSignature = Triple(const Tensor&, const Tensor&, const Tensor&, const Tensor&, bool, std::optional<double>,
                                int64_t, int64_t, double, std::optional<RngKey>, const Tensor&, double, const Tensor&,
                                const Tensor&, const Dims&);

void add_samples(Samples& s) {
  const auto none = std::nullopt;
  s.add(s.tensor({2, 2, 5, 8}), s.tensor({2, 2, 5, 8}), s.tensor({2, 2, 5, 8}));
  s.add(s.tensor({1, 2, 37, 4}), s.tensor({1, 2, 37, 4}), s.tensor({1, 2, 37, 4}), none, true).named("causal");
  s.add(s.tensor({1, 4, 5, 3}), s.tensor({1, 2, 9, 3}), s.tensor({1, 2, 9, 6}), none, true, 0.3, 0, 4)
      .named("grouped heads, earlier keys");
  s.add(s.tensor({1, 1, 12, 4}), s.tensor({1, 1, 12, 4}), s.tensor({1, 1, 12, 4}), none, true, none, 5)
      .named("causal window");
  s.add(s.tensor({1, 1, 12, 4}), s.tensor({1, 1, 12, 4}), s.tensor({1, 1, 12, 4}), none, false, none, 3)
      .named("window");
  s.add(s.tensor({2, 2, 4, 4}), s.tensor({2, 2, 6, 4}), s.tensor({2, 2, 6, 4}), s.tensor({4, 6}))
      .named("additive mask");
  s.add(s.tensor({2, 2, 4, 4}), s.tensor({2, 2, 6, 4}), s.tensor({2, 2, 6, 4}), s.boolean({2, 1, 4, 6}))
      .named("boolean mask");
  s.add(s.tensor({1, 2, 6, 4}), s.tensor({1, 2, 6, 4}), s.tensor({1, 2, 6, 4}), none, true, none, 0, 0, 0.25,
        RngKey{7, 3})
      .named("dropout");
  s.add(s.tensor({2, 2, 5, 4}), s.tensor({2, 1, 6, 4}), s.tensor({2, 1, 6, 4}), none, true, none, 0, 1, 0.25,
        RngKey{7, 3}, none, 0.0, none, none, Dims{451, 2000, 400, 20})
      .named("dropout of a part of a larger call");
  s.add(s.tensor({1, 1, 3, 4}), s.tensor({1, 1, 40, 4}), s.tensor({1, 1, 40, 4}), none, false, none, 0, 0, 0.5,
        RngKey{7, (int64_t{1} << 32) - 6})
      .named("dropout whose counters pass 32 bits");
  s.add(s.tensor({1, 1, 9, 4}), s.tensor({1, 1, 70, 4}), s.tensor({1, 1, 70, 4}), none, true, none, 40, 55, 0.5,
        RngKey{7, 3})
      .named("dropout under a causal window");
  s.add(s.tensor({1, 1, 2100, 1}), s.tensor({1, 1, 40, 1}), s.tensor({1, 1, 40, 1}), none, false, none, 0, 0, 0.5,
        RngKey{7, 3})
      .named("dropout whose bits are not kept")
      .not_differentiable();
  s.add(s.tensor({1, 2, 0, 4}), s.tensor({1, 2, 3, 4}), s.tensor({1, 2, 3, 4})).named("no queries");
  s.add(s.tensor({1, 2, 70, 64}), s.tensor({1, 1, 131, 64}), s.tensor({1, 1, 131, 64}), none, true, 0.2, 90, 61)
      .named("several tiles of a size for tensor cores")
      .not_differentiable();
  for (const int64_t d : {72, 128, 136})
    s.add(s.tensor({1, 2, 5, d}), s.tensor({1, 1, 19, d}), s.tensor({1, 1, 19, d}), none, true, none, 0, 12)
        .named("larger heads")
        .not_differentiable();
  s.add(s.tensor({1, 1, 5, 8}), s.tensor({1, 1, 3, 8}), s.tensor({1, 1, 3, 8}), none, true, none, 4, 41)
      .named("windows behind the last key")
      .not_differentiable();  // lse is -inf everywhere
  // Behind the mask: is_causal, scale, window, query_offset, dropout_p, key, alibi_slopes, logit_soft_cap, sinks,
  // key_lengths.
  const auto q = [&] { return s.tensor({2, 4, 6, 8}); };
  const auto k = [&] { return s.tensor({2, 2, 9, 8}); };
  s.add(q(), k(), k(), none, true, none, 0, 3, 0.0, none, s.uniform({4}, 0.05, 0.6)).named("distances");
  s.add(q(), k(), k(), none, false, none, 0, 0, 0.0, none, s.uniform({2, 4}, 0.05, 0.6))
      .named("distances, each batch's");
  s.add(q(), k(), k(), none, false, none, 0, 0, 0.0, none, none, 1.5).named("soft cap");
  s.add(q(), k(), k(), none, true, none, 0, 0, 0.0, none, none, 0.0, s.tensor({4})).named("sinks");
  s.add(q(), k(), k(), none, false, none, 0, 0, 0.0, none, none, 0.0, none, integers({5, 9})).named("lengths of keys");
  s.add(q(), k(), k(), s.tensor({4, 1, 9}), true, 0.4, 5, 2, 0.3, RngKey{3, 9}, s.uniform({4}, 0.05, 0.6), 2.0,
        s.tensor({4}), integers({7, 4}, DType::i32))
      .named("all at once");
  s.add(q(), k(), k(), s.boolean({2, 1, 6, 9}), false, none, 0, 0, 0.0, none, none, 0.0, s.tensor({4}),
        integers({0, 8}))
      .named("sinks, and nothing else to see");
  s.add(s.tensor({2, 2, 150, 64}), s.tensor({2, 1, 270, 64}), s.tensor({2, 1, 270, 64}), none, false, 0.1, 0, 61, 0.0,
        none, s.uniform({2}, 0.01, 0.1), 3.0, s.tensor({2}), integers({131, 260}))
      .named("several tiles with distances, soft cap, sinks and lengths")
      .not_differentiable();
  s.invalid<ShapeError>("[B, H, T, D]", s.tensor({2, 5, 8}), s.tensor({2, 5, 8}), s.tensor({2, 5, 8}));
  s.invalid<ShapeError>("no multiple", s.tensor({1, 3, 5, 8}), s.tensor({1, 2, 5, 8}), s.tensor({1, 2, 5, 8}));
  s.invalid<ShapeError>("sizes of q and k", s.tensor({1, 2, 5, 8}), s.tensor({1, 2, 5, 4}), s.tensor({1, 2, 5, 8}));
  s.invalid<ShapeError>("broadcast", s.tensor({1, 2, 5, 8}), s.tensor({1, 2, 5, 8}), s.tensor({1, 2, 5, 8}),
                        s.boolean({4, 5}));
  s.invalid<DTypeError>("bool or floating", s.tensor({1, 2, 5, 8}), s.tensor({1, 2, 5, 8}), s.tensor({1, 2, 5, 8}),
                        s.tensor({5, 5}, DType::i64));
  s.invalid<ValueError>("dropout_p", s.tensor({1, 2, 5, 8}), s.tensor({1, 2, 5, 8}), s.tensor({1, 2, 5, 8}), none,
                        false, none, 0, 0, 1.5, RngKey{});
  s.invalid<ValueError>("numbers are", q(), k(), k(), none, false, none, 0, 0, 0.5, RngKey{}, none, 0.0, none, none,
                        Dims{1, 2});
  s.invalid<ShapeError>("alibi_slopes is", q(), k(), k(), none, false, none, 0, 0, 0.0, none, s.tensor({2}));
  s.invalid<ValueError>("logit_soft_cap", q(), k(), k(), none, false, none, 0, 0, 0.0, none, none, -1.0);
  s.invalid<ShapeError>("sinks is", q(), k(), k(), none, false, none, 0, 0, 0.0, none, none, 0.0, s.tensor({2, 4}));
  s.invalid<ShapeError>("key_lengths is", q(), k(), k(), none, false, none, 0, 0, 0.0, none, none, 0.0, none,
                        integers({1, 2, 3}));
  s.invalid<DTypeError>("key_lengths must be", q(), k(), k(), none, false, none, 0, 0, 0.0, none, none, 0.0, none,
                        s.tensor({2}, DType::f32));
  if (s.benchmarking())
    s.bench(s.tensor({8, 8, 256, 32}), s.tensor({8, 8, 256, 32}), s.tensor({8, 8, 256, 32}), none, true);
}

const Op<ForwardSignature> attention_op{{
    .schema =
        "scaled_dot_product_attention(Tensor q, Tensor k, Tensor v, Tensor? attn_mask=None, bool is_causal=false, "
        "float? scale=None, int window=0, int query_offset=0, float dropout_p=0.0, RngKey? key=None, Tensor? "
        "alibi_slopes=None, float logit_soft_cap=0.0, Tensor? sinks=None, Tensor? key_lengths=None, int[] numbers=[]) "
        "-> (Tensor out, Tensor lse, Tensor kept)",
    .shard =
        [](Sharding& s) {
          detail::shard_with_dropout(s,
                                     "b h t! d!, b h s! d!, b h s! d!, ~ b h t! s!, ~ b h, h, b -> b h t! d!, b h t!, "
                                     "b h t! w!");
        },
    .shown = 1,
    .doc =
        "softmax(q k^T * scale + mask) v for q [B, H, Tq, D], k [B, Hkv, Tk, D] and v [B, Hkv, Tk, Dv]; Hkv divides H, "
        "and "
        "query head h reads key head h / (H / Hkv). scale is 1 / sqrt(D) where not given. attn_mask broadcasts to "
        "[B, H, Tq, Tk]: boolean (true: seen) or floating (added). is_causal: query i sees key j only where "
        "j <= i + query_offset; window > 0: only where |i + query_offset - j| < window; key_lengths [B] of i64 or i32: "
        "only where j < key_lengths[b], which the host does not read. logit_soft_cap > 0 makes a scaled score s that "
        "times tanh(s / logit_soft_cap) (Gemma Team, arXiv:2408.00118); alibi_slopes [H] or [B, H] then take slope * "
        "|i + query_offset - j| off it (Press et al., arXiv:2108.12409), and the mask is added. sinks [H] are one more "
        "score for every query, of a key that has no value (Xiao et al., arXiv:2309.17453; as a learnt number in "
        "gpt-oss, arXiv:2508.10925). A query that sees nothing "
        "gives "
        "zeros. out [B, H, Tq, Dv] is laid out so that transpose(1, 2) of it is contiguous; lse [B, H, Tq] is the "
        "logarithm "
        "of the sum of exponentials of the scores and the sink, in f32 (f64 for f64). Computed in tiles with an online "
        "softmax: no "
        "[Tq, Tk] matrix is stored (Dao, arXiv:2307.08691), unless slopes or a gradient of the gradient are "
        "differentiated; the gradient of a floating mask has the mask's size. Weight (b, h, i, j) is dropped by number "
        "((b H + h) Tq + i) Tk + j of the key's stream; numbers [first, batch, head, query] make it first + b batch + "
        "h head + "
        "i query + j, so that a part of a larger call drops what that does. kept [B, H, Tq, words] of i32 are "
        "dropout's "
        "bits for the gradient: bit j % 32 of word j / 32 is 1 where is_causal and window let query i see key j and "
        "its "
        "weight is kept; without words where there is no dropout, or they would take more than 5/4 of what queries, "
        "keys, values and results of as many heads take in 16 bits, and more than 64 KiB a head. "
        "ShapeError, DTypeError, ValueError when the arguments do not fit.",
    .example =
        "Tensor q = ones({1, 2, 4, 8}); Tensor y = scaled_dot_product_attention(q, q, q, {}, {.is_causal = true}); "
        "assert(y.shape() == q.shape());",
    .infer =
        [](const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, STRATA_ATTENTION_ARGUMENTS,
           const Tensor& sinks, const Tensor& lengths, const Dims& numbers) {
          detail::check_attention_inputs(q, k, v, mask,
                                         detail::attention_arguments(STRATA_ATTENTION_NAMES, sinks, lengths, numbers),
                                         "scaled_dot_product_attention");
          return std::array<TensorMeta, 3>{heads_inside(q, q.shape()[1], q.shape()[2], v.shape()[3]),
                                           TensorMeta{Shape{q.shape()[0], q.shape()[1], q.shape()[2]},
                                                      statistic_dtype(q.dtype()), q.device(), std::nullopt},
                                           kept_meta(q, k, v, dropout_p)};
        },
    .kernels = on_each_device([](auto on, Tensor& out, Tensor& lse, Tensor& kept, const Tensor& q, const Tensor& k,
                                 const Tensor& v, const Tensor& mask, STRATA_ATTENTION_ARGUMENTS, const Tensor& sinks,
                                 const Tensor& lengths, const Dims& numbers) {
      forward_kernel(on, out, lse, kept, q, k, v, mask,
                     detail::attention_arguments(STRATA_ATTENTION_NAMES, sinks, lengths, numbers));
    }),
    .saves = "q k v attn_mask out lse alibi_slopes sinks key_lengths kept",
    .backward =
        [](Backward& b, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
           STRATA_ATTENTION_ARGUMENTS, const Tensor& sinks, const Tensor& lengths, const Dims& numbers) {
          const Plain a = detail::attention_arguments(STRATA_ATTENTION_NAMES, sinks, lengths, numbers);
          const Tensor gout = b.has_gy(0) ? b.gy(0) : b.y(0) * 0;
          const Tensor glse = b.has_gy(1) ? b.gy(1) : Tensor();
          if (b.needs(0) || b.needs(1) || b.needs(2)) {
            auto [gq, gk, gv] = attention_backward_op(gout, glse, q, k, v, mask, b.y(0), b.y(1), STRATA_ATTENTION_NAMES,
                                                      lengths, numbers, b.y(2));
            b.set(0, gq);
            b.set(1, gk);
            b.set(2, gv);
          }
          if (mask.defined() && b.needs(3))
            b.set(3, detail::attention_mask_gradient(gout, glse, q, k, v, mask, b.y(0), b.y(1), a));
          if (slopes.defined() && b.needs(4))
            b.set(4, detail::attention_slopes_gradient(
                         detail::attention_bias_gradient(gout, glse, q, k, v, mask, b.y(0), b.y(1), a), a));
          if (sinks.defined() && b.needs(5)) b.set(5, detail::attention_sinks_gradient(gout, glse, b.y(0), b.y(1), a));
        },
    .draws =
        [](const Tensor& q, const Tensor& k, const Tensor&, const Tensor&, bool, std::optional<double>, int64_t,
           int64_t, double dropout_p, std::optional<RngKey>, const Tensor&, double, const Tensor&, const Tensor&,
           const Dims&) { return dropout_p > 0 ? random_blocks(q.size(0) * q.size(1) * q.size(2) * k.size(2)) : 0; },
    .autocast = Autocast::low,
    .cost =
        [](const Tensor& q, const Tensor& k, const Tensor& v, const Tensor&, STRATA_ATTENTION_ARGUMENTS,
           const Tensor& sinks, const Tensor& lengths, const Dims& numbers) {
          return attention_cost(q, k, v, detail::attention_arguments(STRATA_ATTENTION_NAMES, sinks, lengths, numbers),
                                2, 1.34);
        },
    .samples = add_samples,
    .reference =
        [](const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask, STRATA_ATTENTION_ARGUMENTS,
           const Tensor& sinks, const Tensor& lengths, const Dims& numbers) {
          const Plain a = detail::attention_arguments(STRATA_ATTENTION_NAMES, sinks, lengths, numbers);
          const auto [out, lse] = detail::attention_by_loops(q, k, v, mask, a);
          return Triple{out, lse,
                        detail::attention_kept_by_loops(kept_meta(q, k, v, dropout_p).shape, k.shape()[2], a)};
        },
    .tolerance = 16,
    .tolerance_reason =
        "weights are rounded to the operands' dtype before the second product: the error is that of the largest "
        "value, however small the result",
}};

}  // namespace

std::tuple<Tensor, Tensor> detail::attention_with_lse(const Tensor& q, const Tensor& k, const Tensor& v,
                                                      const Tensor& mask, const AttentionArguments& a) {
  const auto [out, lse, kept] =
      attention_op(q, k, v, mask, a.is_causal, a.scale, a.window, a.query_offset, a.dropout_p, a.key, a.alibi_slopes,
                   a.logit_soft_cap, a.sinks, a.key_lengths, a.numbers);
  return {out, lse};
}

Triple detail::attention_gradients(const Tensor& gout, const Tensor& glse, const Tensor& q, const Tensor& k,
                                   const Tensor& v, const Tensor& out, const Tensor& lse, const AttentionArguments& a) {
  return attention_backward_op(gout, glse, q, k, v, {}, out, lse, a.is_causal, a.scale, a.window, a.query_offset,
                               a.dropout_p, a.key, a.alibi_slopes, a.logit_soft_cap, a.key_lengths, a.numbers, {});
}

Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                                    const AttentionOptions& o) {
  if (o.dropout_p > 0) {
    return std::get<0>(attention_op.drawn(default_generator(), q, k, v, mask, o.is_causal, o.scale, o.window,
                                          o.query_offset, o.dropout_p, {}, o.alibi_slopes, o.logit_soft_cap, o.sinks,
                                          o.key_lengths, {}));
  }
  return std::get<0>(attention_op(q, k, v, mask, o.is_causal, o.scale, o.window, o.query_offset, o.dropout_p, {},
                                  o.alibi_slopes, o.logit_soft_cap, o.sinks, o.key_lengths, {}));
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
