#pragma once
// Attention layers, and the cache of keys and values that generation needs.

#include <optional>
#include <utility>
#include <vector>

#include "strata/dist/context_parallel.h"
#include "strata/nn/layer_spec.h"
#include "strata/nn/layers.h"
#include "strata/nn/norm.h"
#include "strata/nn/rotary.h"

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

/// Keys and values of the positions seen so far, of one layer: [B, kv_heads, capacity, head size] and [B, kv_heads,
/// capacity, value size].
struct KvCache {
  Tensor k, v;

  /// An empty one with room for `capacity` positions.
  static KvCache create(int64_t batch, int64_t kv_heads, int64_t capacity, int64_t head_size, int64_t value_size,
                        DType dtype);
};

/// Where the tokens of a call stand and what they see: the same for all layers of a model. By default they are at
/// positions 0, 1, .., and see what AttentionSpec lets them.
struct Places {
  /// Turns of this call's tokens for each RotarySpec of the model.
  std::vector<Turns> turns = {};
  /// Whether turns are [B * T, P], those of each row, instead of [T, P], the same for all.
  bool turns_by_row = false;
  /// Boolean, broadcasts to [B, 1, T, keys]: true where a query may see a key, beside what the spec says. Or numbers
  /// that are added to the scores, which broadcast to [B, heads, T, keys]; with a cache that was not empty these alone
  /// say what is seen.
  Tensor seen = {};
  /// Where given: x is this rank's part of the positions, whose queries see the other ranks' keys, too
  /// (distributed::context_attention()). Not with `seen` or a KvCache.
  std::optional<distributed::ContextParallel> context = {};

  /// @name With a KvCache
  /// @{
  Tensor starts = {};   ///< [B] i64: keys of each text before this call, whose keys follow them
  Tensor counts = {};   ///< [B] i64: only the first so many tokens of a row are any; undefined: all
  Tensor queries = {};  ///< [B] i64: the place of each text's first query: starts, but below reach for rows that rest
  int64_t reach = 0;    ///< the first so many places of the cache are looked at
  bool first = false;   ///< the cache was empty: this call's keys are all there are
  /// @}
};

/// Self-attention of transformers. Queries, keys and values come from one product and are read in place. Parameters:
/// qkv.weight [(heads + kv_heads) head_size + kv_heads value_size, dim], out.weight [dim, heads value_size], and their
/// biases; q_norm and k_norm where the spec has them. With LatentSpec: qkv gives what queries are made from (q_rank
/// numbers, or the queries themselves), kv_rank numbers and rope_size more; q_norm and k_norm are over the first two,
/// q_up [heads head_size, q_rank] and kv_up [heads (head_size - rope_size + value_size), kv_rank] make heads of them.
///
///     const SelfAttention attention(64, {.heads = 4, .kv_heads = 2, .head_size = 16, .value_size = 16});
///     const Tensor y = attention(x);                        // x [B, T, 64]
class SelfAttention : public Module {
 public:
  /// Throws ValueError unless kv_heads divides heads and sizes are positive.
  SelfAttention(int64_t dim, const AttentionSpec& spec);
  /// x [B, T, dim] to the same shape. With `cache`, x continues what is in it and is added to it (not recorded for
  /// gradients).
  Tensor forward(const Tensor& x, const Places& places = {}, KvCache* cache = nullptr) const;
  Tensor operator()(const Tensor& x, const Places& places = {}, KvCache* cache = nullptr) const {
    return called(*this, x, [&](const Tensor& t) { return forward(t, places, cache); });
  }
  const AttentionSpec& spec() const { return spec_; }
  /// An empty cache of its sizes.
  KvCache make_cache(int64_t batch, int64_t capacity, DType dtype) const;

  Linear qkv, out;
  std::optional<Norm> q_norm, k_norm;
  std::optional<Linear> q_up, kv_up;  ///< with LatentSpec; q_up where q_rank is not 0

 private:
  Tensor latent(const Tensor& x, const Places& places, KvCache* cache) const;
  const Turns* turns_of(const Places& places) const;
  Tensor attend(const Tensor& q, const Tensor& k, const Tensor& v, const Places& places, bool cached) const;
  AttentionSpec spec_;
};

}  // namespace strata::nn
