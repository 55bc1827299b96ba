#pragma once
// The Transformer of Vaswani et al. (arXiv:1706.03762): encoder, decoder and both. Module and parameter names are
// PyTorch's, so that its state dictionaries load. In masks, see AttentionMasks for what true means.

#include <string>

#include "strata/nn/attention.h"
#include "strata/nn/container.h"
#include "strata/nn/norm.h"

namespace strata::nn {

/// Of the Transformer and its layers; the defaults are PyTorch's.
struct TransformerOptions {
  int64_t d_model = 512;
  int64_t nhead = 8;
  int64_t num_encoder_layers = 6;
  int64_t num_decoder_layers = 6;
  int64_t dim_feedforward = 2048;
  double dropout = 0.1;
  std::string activation = "relu";  ///< or "gelu"
  double layer_norm_eps = 1e-5;
  bool batch_first = false;  ///< [B, T, E] instead of [T, B, E]
  bool norm_first = false;   ///< norms before each part instead of behind it
};

/// Self-attention and a feed-forward network, each with a residual and a norm.
class TransformerEncoderLayer : public Module {
 public:
  /// Throws ValueError for an unknown activation, and as MultiheadAttention.
  explicit TransformerEncoderLayer(const TransformerOptions& options);
  /// x [T, B, E] -> the same shape.
  Tensor forward(const Tensor& x, const AttentionMasks& masks = {}) const;
  Tensor operator()(const Tensor& x, const AttentionMasks& masks = {}) const {
    return called(*this, x, [&](const Tensor& t) { return forward(t, masks); });
  }

  MultiheadAttention self_attn;
  Linear linear1, linear2;
  LayerNorm norm1, norm2;
  Dropout dropout, dropout1, dropout2;

 private:
  bool norm_first_, gelu_;
};

/// Self-attention, attention to what an encoder gave, and a feed-forward network, each with a residual and a norm.
class TransformerDecoderLayer : public Module {
 public:
  explicit TransformerDecoderLayer(const TransformerOptions& options);
  /// x [T, B, E] and memory [S, B, E] -> x's shape.
  Tensor forward(const Tensor& x, const Tensor& memory, const AttentionMasks& masks = {},
                 const AttentionMasks& memory_masks = {}) const;
  Tensor operator()(const Tensor& x, const Tensor& memory, const AttentionMasks& masks = {},
                    const AttentionMasks& memory_masks = {}) const {
    return called(*this, x, [&](const Tensor& t) { return forward(t, memory, masks, memory_masks); });
  }

  MultiheadAttention self_attn, multihead_attn;
  Linear linear1, linear2;
  LayerNorm norm1, norm2, norm3;
  Dropout dropout, dropout1, dropout2, dropout3;

 private:
  bool norm_first_, gelu_;
};

/// num_encoder_layers layers, then (with `norm`) a norm.
class TransformerEncoder : public Module {
 public:
  explicit TransformerEncoder(const TransformerOptions& options, bool norm = true);
  Tensor forward(const Tensor& x, const AttentionMasks& masks = {}) const;
  Tensor operator()(const Tensor& x, const AttentionMasks& masks = {}) const {
    return called(*this, x, [&](const Tensor& t) { return forward(t, masks); });
  }

  ModuleList<TransformerEncoderLayer> layers;
  std::optional<LayerNorm> norm;
};

/// num_decoder_layers layers, then (with `norm`) a norm.
class TransformerDecoder : public Module {
 public:
  explicit TransformerDecoder(const TransformerOptions& options, bool norm = true);
  Tensor forward(const Tensor& x, const Tensor& memory, const AttentionMasks& masks = {},
                 const AttentionMasks& memory_masks = {}) const;
  Tensor operator()(const Tensor& x, const Tensor& memory, const AttentionMasks& masks = {},
                    const AttentionMasks& memory_masks = {}) const {
    return called(*this, x, [&](const Tensor& t) { return forward(t, memory, masks, memory_masks); });
  }

  ModuleList<TransformerDecoderLayer> layers;
  std::optional<LayerNorm> norm;
};

/// An encoder and a decoder. Matrices are drawn by xavier_uniform_.
///     nn::Transformer model({.d_model = 64, .nhead = 4});
///     Tensor y = model(source, target, {}, {.is_causal = true});
class Transformer : public Module {
 public:
  explicit Transformer(const TransformerOptions& options = {});
  /// src [S, B, E] and tgt [T, B, E] -> tgt's shape.
  Tensor forward(const Tensor& src, const Tensor& tgt, const AttentionMasks& src_masks = {},
                 const AttentionMasks& tgt_masks = {}, const AttentionMasks& memory_masks = {}) const;
  Tensor operator()(const Tensor& src, const Tensor& tgt, const AttentionMasks& src_masks = {},
                    const AttentionMasks& tgt_masks = {}, const AttentionMasks& memory_masks = {}) const {
    return called(*this, src, [&](const Tensor& t) { return forward(t, tgt, src_masks, tgt_masks, memory_masks); });
  }

  TransformerEncoder encoder;
  TransformerDecoder decoder;
};

}  // namespace strata::nn
