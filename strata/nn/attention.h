#pragma once
// Attention layers, and the cache of keys and values that generation needs.

#include <memory>
#include <optional>
#include <utility>

#include "strata/nn/layers.h"

namespace strata::nn {

/// Of MultiheadAttention; the defaults are PyTorch's.
struct MultiheadAttentionOptions {
  double dropout = 0;  ///< on the attention weights
  bool bias = true;
  bool batch_first = false;    ///< [B, T, E] instead of PyTorch's default [T, B, E]
  bool add_bias_kv = false;    ///< one more key and value, learned: bias_k and bias_v [1, 1, E]
  bool add_zero_attn = false;  ///< one more key and value of zeros
  int64_t kdim = 0, vdim = 0;  ///< columns of key and value; 0 for embed_dim
};

/// What hides keys from queries, in a call of MultiheadAttention.
struct AttentionMasks {
  /// Broadcasts to [B, H, Tq, Tk]: boolean (true: seen, which is the opposite of PyTorch's layer and equal to its
  /// function) or added to the scores.
  Tensor attn_mask = {};
  Tensor key_padding_mask = {};  ///< [B, Tk]: boolean (true: padding, as in PyTorch) or added to the scores
  bool is_causal = false;
};

/// Attention of `num_heads` heads of size embed_dim / num_heads. Parameters as in PyTorch: in_proj_weight [3 E, E]
/// (q_proj_weight, k_proj_weight and v_proj_weight where kdim or vdim differ), in_proj_bias [3 E], out_proj.weight
/// [E, E], out_proj.bias [E].
class MultiheadAttention : public Module {
 public:
  /// Throws ValueError unless num_heads divides embed_dim.
  MultiheadAttention(int64_t embed_dim, int64_t num_heads, const MultiheadAttentionOptions& options = {});
  /// query [Tq, B, E], key and value [Tk, B, E]; the result has query's shape. The mask is AttentionMasks'.
  Tensor forward(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& attn_mask = {},
                 bool is_causal = false) const {
    return forward(query, key, value, {attn_mask, {}, is_causal});
  }
  Tensor forward(const Tensor& query, const Tensor& key, const Tensor& value, const AttentionMasks& masks) const {
    return attend(query, key, value, masks, false, false).first;
  }
  /// Also the weights: their mean over the heads [B, Tq, Tk], or with `average` false each head's [B, H, Tq, Tk].
  std::pair<Tensor, Tensor> forward_with_weights(const Tensor& query, const Tensor& key, const Tensor& value,
                                                 const AttentionMasks& masks = {}, bool average = true) const {
    return attend(query, key, value, masks, true, average);
  }
  Tensor operator()(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& attn_mask = {},
                    bool is_causal = false) const {
    return called(*this, query, [&](const Tensor& t) { return forward(t, key, value, attn_mask, is_causal); });
  }
  Tensor operator()(const Tensor& query, const Tensor& key, const Tensor& value, const AttentionMasks& masks) const {
    return called(*this, query, [&](const Tensor& t) { return forward(t, key, value, masks); });
  }

  Tensor in_proj_weight, in_proj_bias;
  Tensor q_proj_weight, k_proj_weight, v_proj_weight, bias_k, bias_v;
  Linear out_proj;

 private:
  std::pair<Tensor, Tensor> attend(const Tensor& query, const Tensor& key, const Tensor& value,
                                   const AttentionMasks& masks, bool need_weights, bool average) const;
  int64_t dim_, heads_;
  MultiheadAttentionOptions options_;
};

/// Keys and values of the positions seen so far, of one layer: [B, kv_heads, capacity, head size] each.
struct KvCache {
  Tensor k, v;
  int64_t length = 0;  ///< positions filled

  /// An empty one with room for `capacity` positions.
  static KvCache create(int64_t batch, int64_t kv_heads, int64_t capacity, int64_t head_size, DType dtype);
};

/// Of SelfAttention.
struct SelfAttentionOptions {
  int64_t kv_heads = 0;  ///< a divisor of heads; 0 takes heads
  bool bias = true;
  double dropout = 0;               ///< on the attention weights
  std::optional<double> rope_base;  ///< rotary positions with this base
  bool causal = true;
};

/// Self-attention of decoders. Queries, keys and values come from one product and are read in place. Parameters:
/// qkv.weight [(heads + 2 kv_heads) D, dim], out.weight [dim, dim], and their biases, D = dim / heads.
class SelfAttention : public Module {
 public:
  /// Throws ValueError unless heads divides dim and kv_heads divides heads.
  SelfAttention(int64_t dim, int64_t heads, const SelfAttentionOptions& options = {});
  /// x [B, T, dim]; with `cache`, x continues the positions in it and is added to it (not recorded for gradients).
  /// Throws ValueError where the cache has no room.
  Tensor forward(const Tensor& x, KvCache* cache = nullptr) const;
  Tensor operator()(const Tensor& x, KvCache* cache = nullptr) const {
    return called(*this, x, [&](const Tensor& t) { return forward(t, cache); });
  }

  Linear qkv, out;

 private:
  Tensor rotate(const Tensor& x, int64_t offset) const;

  struct RotaryTables;
  int64_t heads_, kv_heads_, head_size_;
  SelfAttentionOptions options_;
  std::shared_ptr<RotaryTables> tables_;  // with rope_base; made when first needed, then kept
};

}  // namespace strata::nn
