#pragma once
// What decoders of an encoder-decoder have beside a decoder's own: attention to what the encoder gave.

#include <optional>

#include "strata/nn/transformer.h"

namespace strata::nn {

/// Attention of one sequence to the places of another. Parameters: q.weight [heads head_size, dim], kv.weight
/// [kv_heads (head_size + value_size), dim], out.weight [dim, heads value_size], and their biases.
///
///     const CrossAttention attention(64, {.heads = 4, .kv_heads = 4, .head_size = 16, .value_size = 16});
///     const Tensor y = attention(x, attention.keys(source));      // x [B, T, 64], source [B, S, 64]
class CrossAttention : public Module {
 public:
  /// Of the spec, `causal`, `window` and `rotary` are not used. Throws ValueError unless kv_heads divides heads and
  /// sizes are positive, and for norms and latents, which are not had.
  CrossAttention(int64_t dim, const AttentionSpec& spec);
  /// Keys and values of the places of source [B, S, dim]: the same for all x.
  KvCache keys(const Tensor& source) const;
  /// x [B, T, dim] to the same shape. `seen`, where given: boolean, broadcasts to [B, 1, T, S], true where a place of
  /// the source is seen.
  Tensor forward(const Tensor& x, const KvCache& source, const Tensor& seen = {}) const;
  Tensor operator()(const Tensor& x, const KvCache& source, const Tensor& seen = {}) const {
    return called(*this, x, [&](const Tensor& t) { return forward(t, source, seen); });
  }
  /// How much each query reads of each place of the source, where all are seen: [B, heads, T, S], rows that sum to 1.
  /// forward() makes no such matrix.
  Tensor weights(const Tensor& x, const KvCache& source) const;

  Linear q, kv, out;

 private:
  AttentionSpec spec_;
};

/// What a CrossBlock attends to.
struct Source {
  KvCache keys;              ///< CrossAttention::keys()
  Tensor seen = {};          ///< as CrossAttention::forward() has it
  Tensor* reader = nullptr;  ///< where given, what attention to the source is called with [B, T, dim] is left there
};

/// A decoder's block: attention to itself, then to a source, then a feed-forward part, with a norm before each.
/// Parameters in order: norm1, attn, norm2, cross, norm3, mlp.
///
///     const CrossBlock block(64, layer);
///     const Tensor y = block(x, {block.cross.keys(encoded)});    // x [B, T, 64], encoded [B, S, 64]
class CrossBlock : public Module {
 public:
  /// `spec.attention` is both attentions'. Throws ValueError for norms elsewhere than before, and for layer_scale.
  CrossBlock(int64_t dim, const LayerSpec& spec);
  Tensor forward(const Tensor& x, const Source& source, const Places& places = {}, KvCache* cache = nullptr) const {
    return step({x, {}}, source, places, cache).sum();
  }
  Tensor operator()(const Tensor& x, const Source& source, const Places& places = {}, KvCache* cache = nullptr) const {
    return called(*this, x, [&](const Tensor& t) { return forward(t, source, places, cache); });
  }
  /// The same without the last addition, for a stack of blocks.
  Residual step(const Residual& r, const Source& source, const Places& places = {}, KvCache* cache = nullptr) const;

  Norm norm1;
  SelfAttention attn;
  Norm norm2;
  CrossAttention cross;
  Norm norm3;
  FeedForward mlp;
  Dropout dropout;
};

}  // namespace strata::nn
