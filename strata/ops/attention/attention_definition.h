#pragma once
// What scaled dot-product attention is, for its records: the arguments, which of them are wrong, the definition in
// double precision and the gradient written with ordinary ops.

#include "strata/core/rng.h"
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
};

/// Throws what scaled_dot_product_attention() throws.
void check_attention_inputs(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                            const AttentionArguments& a, std::string_view op);

/// (out, lse) in double.
std::tuple<Tensor, Tensor> attention_by_loops(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask,
                                              const AttentionArguments& a);

/// With ordinary ops, which can be differentiated: (gq, gk, gv).
std::tuple<Tensor, Tensor, Tensor> attention_composed_backward(const Tensor& gout, const Tensor& glse, const Tensor& q,
                                                               const Tensor& k, const Tensor& v, const Tensor& mask,
                                                               const Tensor& out, const Tensor& lse,
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
