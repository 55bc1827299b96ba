#pragma once
// What scaled dot-product attention is, for its records: the arguments, which of them are wrong, the definition in
// double precision and the gradient written with ordinary ops.

#include "strata/core/rng.h"
#include "strata/ops/attention/attention_kernel.h"
#include "strata/ops/attention/attention_record.h"

namespace strata::detail {

/// The arguments behind q, k, v and the mask.
struct AttentionArguments : AttentionPlain {
  double dropout_p = 0;
  RngKey key;
  Tensor alibi_slopes;  ///< [H] or [B, H], or undefined
  double logit_soft_cap = 0;
  Tensor sinks;        ///< [H], or undefined
  Tensor key_lengths;  ///< [B] of integers, or undefined
  /// Dropout's numbers: those of WeightNumbers in its order, or empty: a whole call's.
  Dims numbers;
  WeightNumbers numbers_for(int64_t heads, int64_t tq, int64_t tk) const {
    if (numbers.empty()) return WeightNumbers::whole(heads, tq, tk);
    return {numbers[0], numbers[1], numbers[2], numbers[3]};
  }
};

// The records' arguments behind the mask (gradient: behind lse), in the schemas' order; not all have sinks.
#define STRATA_ATTENTION_ARGUMENTS                                                               \
  bool is_causal, std::optional<double> scale, int64_t window, int64_t offset, double dropout_p, \
      std::optional<RngKey> key, const Tensor &slopes, double soft_cap
#define STRATA_ATTENTION_NAMES is_causal, scale, window, offset, dropout_p, key, slopes, soft_cap

inline AttentionArguments attention_arguments(STRATA_ATTENTION_ARGUMENTS, const Tensor& sinks, const Tensor& lengths,
                                              const Dims& numbers = {}) {
  return {
      {is_causal, scale, window, offset}, dropout_p, key.value_or(RngKey{}), slopes, soft_cap, sinks, lengths, numbers};
}

/// A call of the kernels, and what it points to beside its operands, whose rows are dense.
struct DescribedAttention {
  AttentionCall c;
  Tensor slopes, sinks, lengths;
};
AttentionView attention_view(const Tensor& t);
DescribedAttention describe_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                                      const AttentionArguments& a);

/// scaled_dot_product_attention()'s record with its key and both results.
std::tuple<Tensor, Tensor> attention_with_lse(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                                              const AttentionArguments& a);
/// The gradients of that for q, k and v, where out and lse are of more keys than k has: those of these keys alone.
std::tuple<Tensor, Tensor, Tensor> attention_gradients(const Tensor& gout, const Tensor& glse, const Tensor& q,
                                                       const Tensor& k, const Tensor& v, const Tensor& out,
                                                       const Tensor& lse, const AttentionArguments& a);
/// The gradient of an additive mask, of its shape.
Tensor attention_mask_gradient(const Tensor& gout, const Tensor& glse, const Tensor& q, const Tensor& k,
                               const Tensor& v, const Tensor& mask, const Tensor& out, const Tensor& lse,
                               const AttentionArguments& a);
/// The weights as dropout leaves them, from lse: [B, H, Tq, Tk], or their mean over the heads [B, Tq, Tk].
Tensor attention_weights(const Tensor& q, const Tensor& k, const Tensor& mask, const Tensor& lse, bool average,
                         const AttentionArguments& a);

/// Throws what scaled_dot_product_attention() throws.
void check_attention_inputs(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                            const AttentionArguments& a, std::string_view op);

/// (out, lse) in double.
std::tuple<Tensor, Tensor> attention_by_loops(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                                              const AttentionArguments& a);

/// Dropout's bits of a call with `tk` keys, of i32 and `shape` [B, H, Tq, words], as the record says.
Tensor attention_kept_by_loops(const Shape& shape, int64_t tk, const AttentionArguments& a);

/// With ordinary ops, which can be differentiated: (gq, gk, gv).
std::tuple<Tensor, Tensor, Tensor> attention_composed_backward(const Tensor& gout, const Tensor& glse, const Tensor& q,
                                                               const Tensor& k, const Tensor& v, const Tensor& mask,
                                                               const Tensor& out, const Tensor& lse,
                                                               const AttentionArguments& a);
/// Likewise the weights that lse makes of the scores, as dropout leaves them, in lse's dtype: [B, H, Tq, Tk].
Tensor attention_composed_weights(const Tensor& q, const Tensor& k, const Tensor& mask, const Tensor& lse,
                                  const AttentionArguments& a);
/// Likewise the gradient of what is added to the scores, [B, H, Tq, Tk].
Tensor attention_bias_gradient(const Tensor& gout, const Tensor& glse, const Tensor& q, const Tensor& k,
                               const Tensor& v, const Tensor& mask, const Tensor& out, const Tensor& lse,
                               const AttentionArguments& a);
/// The gradient of the slopes from that of what is added, and of the sinks.
Tensor attention_slopes_gradient(const Tensor& bias_gradient, const AttentionArguments& a);
Tensor attention_sinks_gradient(const Tensor& gout, const Tensor& glse, const Tensor& out, const Tensor& lse,
                                const AttentionArguments& a);

}  // namespace strata::detail
