#pragma once
// Encoders of text: tokens to vectors that have seen the whole text (BERT and its kin).

#include <optional>

#include "strata/models/spec.h"
#include "strata/nn/container.h"
#include "strata/nn/transformer.h"

namespace strata {

/// Tokens i64 [B, T] to hidden states [B, T, dim], a pooled vector, logits. Built from a spec of ModelKind::encoder.
///
///     const TextEncoder model(spec);
///     const Tensor h = model.hidden(tokens, padding);        // [B, T, dim]
///     const Tensor vectors = text_embeddings(h, padding, {.pooling = Pooling::mean});
///
/// Parameters in order: token_embedding.weight, position_embedding.weight, type_embedding.weight, embedding_norm.*,
/// blocks.N.*, norm.*, pooler.*, head_dense.*, head_norm.*, head.weight (not of logits over tokens that are tied), and
/// head_bias.
class TextEncoder : public nn::Module {
 public:
  /// Throws what check_spec does, and ValueError for a spec that is no encoder's of text.
  explicit TextEncoder(const ModelSpec& spec);
  const ModelSpec& spec() const { return spec_; }
  /// Most positions.
  int64_t context() const { return spec_.context; }

  /// What the last block (and norm) gives, [B, T, dim]. `padding` [B, T], boolean, where given: true at what is no
  /// token, which no place sees. `types` i64 [B, T]: which part of the text a token is of; all 0 where not given.
  /// Throws ShapeError, IndexError.
  Tensor hidden(const Tensor& tokens, const Tensor& padding = {}, const Tensor& types = {}) const;
  /// The pooled vector [B, dim] of hidden(). Throws ValueError for a spec without a pooler.
  Tensor pooled(const Tensor& hidden) const;
  /// Logits of hidden(): [B, T, vocab] of EncoderHeadSpec::Kind::tokens, else [B, labels]. Throws ValueError for a spec
  /// without a head.
  Tensor logits(const Tensor& hidden) const;
  /// logits() where there is a head, else hidden().
  Tensor forward(const Tensor& tokens, const Tensor& padding = {}, const Tensor& types = {}) const;

  nn::Embedding token_embedding;
  std::optional<nn::Embedding> position_embedding, type_embedding;
  std::optional<nn::Norm> embedding_norm;
  nn::Dropout dropout;
  nn::ModuleList<nn::TransformerBlock> blocks;
  std::optional<nn::Norm> norm;
  std::optional<nn::Linear> pooler, head_dense;
  std::optional<nn::Norm> head_norm;
  Tensor head, head_bias;

 private:
  ModelSpec spec_;
};

/// How vectors of places become one of the text.
enum class Pooling : uint8_t {
  first,          ///< the first place's
  last,           ///< the last token's
  mean,           ///< of all tokens
  max,            ///< the largest of each number
  weighted_mean,  ///< the i-th token counts i times
  root_mean,      ///< their sum divided by the root of their number
};

/// Of text_embeddings().
struct EmbeddingOptions {
  Pooling pooling = Pooling::mean;
  bool normalize = false;  ///< to length 1
};

/// One vector [B, dim] for each text of hidden [B, T, dim]; places where `padding` [B, T] is true count nothing. Throws
/// ShapeError.
Tensor text_embeddings(const Tensor& hidden, const Tensor& padding, const EmbeddingOptions& options = {});

}  // namespace strata
