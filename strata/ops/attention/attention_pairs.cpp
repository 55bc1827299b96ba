// What attention has for each query and key, in records of their own: the gradient of an additive mask, and the
// weights.

#include <vector>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/attention/attention_definition_record.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using detail::dense_rows;

// On a card: false where the call is left to ordinary ops.
[[maybe_unused]] bool on_card(Tensor& y, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                              const Tensor& lse, const Tensor* gout, const Tensor* glse, const Tensor* out,
                              const Shape& shape, double factor, const detail::AttentionArguments& a) {
#ifdef STRATA_WITH_CUDA
  if (y.numel() == 0) return true;
  const Tensor qd = dense_rows(q), kd = dense_rows(k), vd = dense_rows(v), lc = lse.contiguous();
  const Tensor od = out ? dense_rows(*out) : Tensor(), gd = gout ? dense_rows(*gout) : Tensor();
  const Tensor gl = glse && glse->defined() ? glse->contiguous() : Tensor();
  detail::DescribedAttention call = detail::describe_attention(qd, kd, vd, mask, a);
  call.c.lse = lc.raw_data();
  if (out) call.c.out = detail::attention_view(od), call.c.grad_out = detail::attention_view(gd);
  if (gl.defined()) call.c.grad_lse = gl.raw_data();
  AttentionPairs what{.to = y.raw_data(), .dtype = y.dtype(), .gradient = gout != nullptr, .factor = factor};
  const auto dims = static_cast<int64_t>(shape.size());
  for (int64_t i = 0; i < dims; ++i) what.shape[4 - dims + i] = shape[i];
  return attention_pairs_cuda(call.c, what, q);
#else
  return false;
#endif
}

Cost pairs_cost(const Tensor& q, const Tensor& k, double products, double passes) {
  const double pairs =
      static_cast<double>(q.shape()[0] * q.shape()[1] * q.shape()[2]) * static_cast<double>(k.shape()[2]);
  return {2 * products * pairs * static_cast<double>(q.shape()[3]),
          passes * static_cast<double>(q.nbytes() + k.nbytes())};
}

Tensor lengths_for_samples(std::vector<int64_t> values) {
  return from_span<int64_t>(values, {static_cast<int64_t>(values.size())});
}

using MaskSignature = Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                             const Tensor&, const Tensor&, bool, std::optional<double>, int64_t, int64_t, double,
                             std::optional<RngKey>, const Tensor&, double, const Tensor&);

Tensor composed_mask_gradient(const Tensor& gout, const Tensor& glse, const Tensor& q, const Tensor& k, const Tensor& v,
                              const Tensor& mask, const Tensor& out, const Tensor& lse,
                              const detail::AttentionArguments& a) {
  return sum_to(detail::attention_bias_gradient(gout, glse, q, k, v, mask, out, lse, a), mask.shape()).to(mask.dtype());
}

const Op<MaskSignature> mask_gradient_op{{
    .schema = "scaled_dot_product_attention_mask_backward(Tensor gout, Tensor? glse, Tensor q, Tensor k, Tensor v, "
              "Tensor attn_mask, Tensor out, Tensor lse, bool is_causal, float? scale, int window, int query_offset, "
              "float dropout_p, RngKey? key, Tensor? alibi_slopes=None, float logit_soft_cap=0.0, "
              "Tensor? key_lengths=None) -> Tensor",
    .shard = "whole",
    .internal = true,
    .doc =
        "The gradient of scaled_dot_product_attention for a floating attn_mask, of its shape, from the gradients gout "
        "and (where given) glse of its results out and lse. On tensor cores a block has a tile of the mask and sums "
        "over what the mask is broadcast along, in one order: nothing of [H, Tq, Tk] is stored that the mask has not.",
    .infer =
        [](const Tensor& gout, const Tensor& glse, const Tensor& q, const Tensor& k, const Tensor& v,
           const Tensor& mask, const Tensor& out, const Tensor& lse, STRATA_ATTENTION_ARGUMENTS,
           const Tensor& lengths) {
          const std::string_view op = "scaled_dot_product_attention_mask_backward";
          detail::check_attention_inputs(q, k, v, mask,
                                         detail::attention_arguments(STRATA_ATTENTION_NAMES, {}, lengths), op);
          check<DTypeError>(is_floating(mask.dtype()), op, "attn_mask must be floating, got ", mask.dtype());
          const Shape rows{q.shape()[0], q.shape()[1], q.shape()[2]};
          detail::check_attention_results(gout, glse, out, lse, {rows[0], rows[1], rows[2], v.shape()[3]}, rows,
                                          q.dtype(), op);
          return TensorMeta{mask.shape(), mask.dtype(), mask.device(), std::nullopt};
        },
    .kernels = on_each_device([](auto on, Tensor& g, const Tensor& gout, const Tensor& glse, const Tensor& q,
                                 const Tensor& k, const Tensor& v, const Tensor& mask, const Tensor& out,
                                 const Tensor& lse, STRATA_ATTENTION_ARGUMENTS, const Tensor& lengths) {
      const auto a = detail::attention_arguments(STRATA_ATTENTION_NAMES, {}, lengths);
      if constexpr (on.cuda) {
        if (on_card(g, q, k, v, mask, lse, &gout, &glse, &out, mask.shape(), 1, a)) return;
      }
      g.copy_(composed_mask_gradient(gout, glse, q, k, v, mask, out, lse, a));
    }),
    .composed =
        [](const Tensor& gout, const Tensor& glse, const Tensor& q, const Tensor& k, const Tensor& v,
           const Tensor& mask, const Tensor& out, const Tensor& lse, STRATA_ATTENTION_ARGUMENTS,
           const Tensor& lengths) {
          return composed_mask_gradient(gout, glse, q, k, v, mask, out, lse,
                                        detail::attention_arguments(STRATA_ATTENTION_NAMES, {}, lengths));
        },
    .cost = [](const Tensor&, const Tensor&, const Tensor& q, const Tensor& k, const Tensor&, const Tensor&,
               const Tensor&, const Tensor&, STRATA_ATTENTION_ARGUMENTS,
               const Tensor&) { return pairs_cost(q, k, 2, 2); },
    .samples =
        [](Samples& s) {
          const DType st = statistic_dtype(s.dtype());
          const auto none = std::nullopt;
          const auto add = [&](const Shape& mask, bool causal, double p, const Tensor& lengths, const char* name) {
            s.add(s.tensor({2, 4, 5, 8}), s.tensor({2, 4, 5}, st), s.tensor({2, 4, 5, 8}), s.tensor({2, 2, 7, 8}),
                  s.tensor({2, 2, 7, 8}), s.tensor(mask), s.tensor({2, 4, 5, 8}), s.uniform({2, 4, 5}, 2, 4, st),
                  causal, none, 0, 1, p, RngKey{5, 1}, s.uniform({4}, 0.1, 0.4), 0.0, lengths)
                .named(name);
          };
          const Tensor lengths = lengths_for_samples({7, 3});
          add({5, 7}, true, 0.0, lengths, "one matrix");
          add({2, 4, 5, 7}, false, 0.0, lengths, "a matrix each");
          add({2, 1, 1, 7}, false, 0.25, lengths, "one query, dropout");
          add({4, 5, 1}, false, 0.0, lengths, "one key");
          add({1, 4, 1, 1}, true, 0.0, lengths, "a number a head");
          s.add(s.tensor({1, 2, 5, 4}), none, s.tensor({1, 2, 5, 4}), s.tensor({1, 2, 7, 4}), s.tensor({1, 2, 7, 4}),
                s.tensor({2, 1, 7}), s.tensor({1, 2, 5, 4}), s.uniform({1, 2, 5}, 2, 4, st), false, 0.4, 3, 0, 0.0,
                RngKey{}, none, 1.5)
              .named("soft cap");
          s.add(s.tensor({2, 2, 150, 64}), none, s.tensor({2, 2, 150, 64}), s.tensor({2, 2, 140, 64}),
                s.tensor({2, 2, 140, 64}), s.tensor({150, 140}), s.tensor({2, 2, 150, 64}),
                s.uniform({2, 2, 150}, 6, 8, st), true, 0.1, 0, 0, 0.0, RngKey{})
              .named("several tiles")
              .not_differentiable();
        },
    .tolerance = 64,
    .tolerance_reason = "the sum over heads and queries of terms of both signs, of operands that have been rounded",
}};

using WeightsSignature = Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&, bool, bool,
                                std::optional<double>, int64_t, int64_t, double, std::optional<RngKey>, const Tensor&,
                                double, const Tensor&);

Tensor composed_weights(const Tensor& q, const Tensor& k, const Tensor& mask, const Tensor& lse, bool average,
                        const detail::AttentionArguments& a) {
  const Tensor p = detail::attention_composed_weights(q, k, mask, lse, a);
  return (average ? mean(p, {1}) : p).to(q.dtype());
}

const Op<WeightsSignature> weights_op{{
    .schema =
        "scaled_dot_product_attention_weights(Tensor q, Tensor k, Tensor? attn_mask, Tensor lse, bool average, bool "
        "is_causal, float? scale, int window, int query_offset, float dropout_p, RngKey? key, Tensor? "
        "alibi_slopes=None, float logit_soft_cap=0.0, Tensor? key_lengths=None) -> Tensor",
    .shard = "b h! t! d!, b h! s! d!, ~ b h! t! s!, b h! t!, ~ b h!, b -> b ...!",
    .internal = true,
    .doc = "The weights of scaled_dot_product_attention from its lse, as dropout leaves them, in q's dtype: [B, H, Tq, "
           "Tk], "
           "or with average their mean over the heads [B, Tq, Tk], for which no head's weights are stored on tensor "
           "cores.",
    .infer =
        [](const Tensor& q, const Tensor& k, const Tensor& mask, const Tensor& lse, bool average,
           STRATA_ATTENTION_ARGUMENTS, const Tensor& lengths) {
          const std::string_view op = "scaled_dot_product_attention_weights";
          detail::check_attention_inputs(q, k, k, mask,
                                         detail::attention_arguments(STRATA_ATTENTION_NAMES, {}, lengths), op);
          const int64_t b = q.shape()[0], h = q.shape()[1], tq = q.shape()[2], tk = k.shape()[2];
          check<ShapeError>(lse.shape() == Shape{b, h, tq} && lse.dtype() == statistic_dtype(q.dtype()), op,
                            "lse must be [", b, ", ", h, ", ", tq, "] ", statistic_dtype(q.dtype()), ", got ", lse);
          return TensorMeta{average ? Shape{b, tq, tk} : Shape{b, h, tq, tk}, q.dtype(), q.device(), std::nullopt};
        },
    .kernels = on_each_device([](auto on, Tensor& y, const Tensor& q, const Tensor& k, const Tensor& mask,
                                 const Tensor& lse, bool average, STRATA_ATTENTION_ARGUMENTS, const Tensor& lengths) {
      const auto a = detail::attention_arguments(STRATA_ATTENTION_NAMES, {}, lengths);
      if constexpr (on.cuda) {
        const int64_t b = q.shape()[0], h = q.shape()[1], tq = q.shape()[2], tk = k.shape()[2];
        const double factor = average ? 1 / static_cast<double>(h) : 1;
        if (on_card(y, q, k, k, mask, lse, nullptr, nullptr, nullptr, {b, average ? 1 : h, tq, tk}, factor, a)) return;
      }
      y.copy_(composed_weights(q, k, mask, lse, average, a));
    }),
    .composed =
        [](const Tensor& q, const Tensor& k, const Tensor& mask, const Tensor& lse, bool average,
           STRATA_ATTENTION_ARGUMENTS, const Tensor& lengths) {
          return composed_weights(q, k, mask, lse, average,
                                  detail::attention_arguments(STRATA_ATTENTION_NAMES, {}, lengths));
        },
    .cost = [](const Tensor& q, const Tensor& k, const Tensor&, const Tensor&, bool, STRATA_ATTENTION_ARGUMENTS,
               const Tensor&) { return pairs_cost(q, k, 1, 1); },
    .samples =
        [](Samples& s) {
          const DType st = statistic_dtype(s.dtype());
          const auto none = std::nullopt;
          s.add(s.tensor({2, 4, 5, 8}), s.tensor({2, 2, 7, 8}), none, s.uniform({2, 4, 5}, 2, 4, st), true, true, none,
                0, 2, 0.0, RngKey{})
              .named("mean, causal");
          s.add(s.tensor({2, 4, 5, 8}), s.tensor({2, 2, 7, 8}), s.boolean({2, 1, 5, 7}), s.uniform({2, 4, 5}, 2, 4, st),
                true, false, none, 0, 0, 0.25, RngKey{4, 4}, none, 0.0, lengths_for_samples({3, 6}))
              .named("mean, dropout, boolean mask, lengths");
          s.add(s.tensor({1, 2, 5, 8}), s.tensor({1, 2, 7, 8}), s.tensor({5, 7}), s.uniform({1, 2, 5}, 2, 4, st), false,
                false, 0.3, 4, 0, 0.0, RngKey{}, s.uniform({2}, 0.1, 0.4), 2.0)
              .named("each head's");
          s.add(s.tensor({2, 3, 150, 64}), s.tensor({2, 3, 140, 64}), none, s.uniform({2, 3, 150}, 6, 8, st), true,
                true, 0.1, 0, 0, 0.0, RngKey{})
              .named("several tiles")
              .not_differentiable();
          s.invalid<ShapeError>("lse must be", s.tensor({1, 2, 5, 8}), s.tensor({1, 2, 7, 8}), none,
                                s.tensor({1, 2, 7}, st), false, false, none, 0, 0, 0.0, RngKey{});
        },
    .tolerance = 16,
    .tolerance_reason = "products of operands that have been rounded are exponents",
}};

}  // namespace

Tensor detail::attention_mask_gradient(const Tensor& gout, const Tensor& glse, const Tensor& q, const Tensor& k,
                                       const Tensor& v, const Tensor& mask, const Tensor& out, const Tensor& lse,
                                       const AttentionArguments& a) {
  return mask_gradient_op(gout, glse, q, k, v, mask, out, lse, a.is_causal, a.scale, a.window, a.query_offset,
                          a.dropout_p, a.key, a.alibi_slopes, a.logit_soft_cap, a.key_lengths);
}

Tensor detail::attention_weights(const Tensor& q, const Tensor& k, const Tensor& mask, const Tensor& lse, bool average,
                                 const AttentionArguments& a) {
  return weights_op(q, k, mask, lse, average, a.is_causal, a.scale, a.window, a.query_offset, a.dropout_p, a.key,
                    a.alibi_slopes, a.logit_soft_cap, a.key_lengths);
}

}  // namespace strata
