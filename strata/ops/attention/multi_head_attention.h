#pragma once
// Multi-head attention with its projections: what torch.nn.functional.multi_head_attention_forward does.

#include <tuple>

#include "strata/core/tensor.h"

namespace strata {

/// Of multi_head_attention_forward(); the names are PyTorch's. Undefined tensors stand for None.
struct MultiHeadAttentionArguments {
  int64_t num_heads = 1;
  Tensor in_proj_weight = {};  ///< [3 E, E]: of query, key and value, one below the other
  Tensor in_proj_bias = {};    ///< [3 E]
  /// Where in_proj_weight is undefined: [E, E], [E, kdim] and [E, vdim].
  Tensor q_proj_weight = {}, k_proj_weight = {}, v_proj_weight = {};
  Tensor out_proj_weight = {}, out_proj_bias = {};  ///< [E, E] and [E]
  Tensor bias_k = {}, bias_v = {};                  ///< [1, 1, E]: one more key and its value
  bool add_zero_attn = false;                       ///< one more key and value of zeros
  double dropout_p = 0;                             ///< on the attention weights, where `training` is set
  bool training = false;
  /// [B, Tk] ([Tk] without a batch): boolean (true: hidden) or added to the scores.
  Tensor key_padding_mask = {};
  /// [Tq, Tk], [B heads, Tq, Tk], or four dimensions that broadcast to [B, heads, Tq, Tk]: boolean (true: hidden) or
  /// added to the scores.
  Tensor attn_mask = {};
  bool is_causal = false;  ///< besides attn_mask: query i sees no key behind i
  bool need_weights = false;
  bool average_attn_weights = true;     ///< the weights' mean over the heads instead of each head's
  Tensor static_k = {}, static_v = {};  ///< [B heads, Tk, E / heads]: in the place of the projected ones
};

/// softmax(q k^T / sqrt(E / heads) + masks) v of each head, between the projections of query [Tq, B, E], key
/// [Tk, B, ..] and value [Tk, B, ..] (or without B) and that of the result, which has query's shape (Vaswani et al.,
/// arXiv:1706.03762). With need_weights also the weights, [B, Tq, Tk] or [B, heads, Tq, Tk], else an empty tensor, [0].
/// Throws ShapeError, ValueError.
std::tuple<Tensor, Tensor> multi_head_attention_forward(const Tensor& query, const Tensor& key, const Tensor& value,
                                                        const MultiHeadAttentionArguments& arguments);

}  // namespace strata
