#pragma once
// What a language model is made like.

#include <cstdint>
#include <string>

namespace strata {

/// The shape of a decoder-only language model: section [model] of a run's settings, where `strata train --help` and
/// docs/reference/settings.md say more of each.
struct ModelConfig {
  std::string family = "gpt";   ///< "gpt" (learned positions, GELU) or "llama" (rotary positions, SwiGLU)
  int64_t layers = 4;           ///< blocks
  int64_t dim = 256;            ///< width of the residual stream
  int64_t heads = 8;            ///< query heads
  int64_t kv_heads = 0;         ///< key and value heads; 0: as many as query heads
  int64_t context = 256;        ///< most positions
  int64_t vocab = 0;            ///< tokens; 0: the tokenizer's
  int64_t ffn_dim = 0;          ///< width inside the feed-forward part; 0: the family's usual
  double dropout = 0.0;         ///< probability, while training
  bool tied_embeddings = true;  ///< the output layer uses the token embedding's weight
  double rope_theta = 10000.0;  ///< base of the rotary positions' wavelengths
  double norm_eps = 1e-5;       ///< added to a variance
  /// What attention and feed-forward parts read: "plain", or "ladder", x before what the last of them added
  /// (nn::NormPlacement::ladder)
  std::string residual = "plain";

  /// @name Experts in the feed-forward parts (nn::ExpertsSpec), of which ffn_dim is one's width
  int64_t experts = 0;                   ///< 0: none, one feed-forward part for all tokens
  int64_t experts_per_token = 2;         ///< that a token goes to
  int64_t shared_dim = 0;                ///< width of one more that all tokens pass; 0: none
  std::string router = "softmax";        ///< what makes weights of the router's logits: "softmax" or "sigmoid"
  double expert_capacity = 0;            ///< places of an expert, of its even share; 0: as many as come
  std::string expert_overflow = "drop";  ///< choices past them: "drop" or "reroute"
  double balance_loss = 0.01;            ///< factor of what uneven loads add to the loss
  double z_loss = 0;                     ///< of what large logits of the router do
  /// @}

  bool operator==(const ModelConfig&) const = default;
};

}  // namespace strata
