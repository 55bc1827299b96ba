#pragma once
// Models of two parts, of which one reads a text or a sound and the other writes a text (T5, Whisper).

#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "strata/models/spec.h"
#include "strata/models/token_decoder.h"
#include "strata/nn/container.h"
#include "strata/nn/conv.h"
#include "strata/nn/cross_attention.h"
#include "strata/nn/relative_positions.h"

namespace strata {

/// An encoder and a decoder that attends to what it gave. Built from a spec of ModelKind::encoder_decoder. What is read
/// is tokens i64 [B, S], or with AudioSpec frames [B, bins, 2 S] of sound.
///
///     const EncoderDecoder model(spec);
///     const Tensor logits = model.forward(source, tokens);                   // [B, T, vocab]
///     const Tensor encoded = model.encode(source);                          // once, and then token by token:
///     ModelCache cache = model.make_cache(1, 64, encoded.size(1));
///     model.read_source(cache, encoded);
///     const Tensor next = model.next_logits(tokens, cache);                  // [B, vocab]
///
/// Parameters in order: token_embedding.weight [vocab, dim] (of both parts, where the encoder reads tokens), conv1 and
/// conv2, encoder_relative.weight, encoder.N.* (nn::TransformerBlock), encoder_norm.*, position_embedding.weight,
/// decoder_relative.weight, decoder.N.* (nn::CrossBlock), decoder_norm.*, head.weight [vocab, dim] unless tied. Buffer:
/// encoder_positions [S, dim], the table of sines of a model that reads sound.
class EncoderDecoder : public nn::Module, public TokenDecoder {
 public:
  /// Throws what check_spec does, and ValueError for a spec that is no encoder-decoder's.
  explicit EncoderDecoder(const ModelSpec& spec);
  const ModelSpec& spec() const { return spec_; }
  /// Most positions of the decoder; with relative positions a longer text is taken too.
  int64_t context() const override { return spec_.parts[1].context; }
  int64_t vocab() const override { return spec_.parts[1].vocab; }
  Device device() const override { return token_embedding.weight.device(); }
  nn::Module& as_module() override { return *this; }
  /// Whether the encoder reads sound.
  bool reads_sound() const { return spec_.parts[0].audio.has_value(); }

  /// Places that the encoder gives for a source: S. Throws ShapeError for one of another shape, DTypeError for tokens
  /// that are none.
  int64_t source_places(const Tensor& source) const;
  /// What the encoder gives, [B, S, dim]. `padding` [B, S], boolean, where given: true at what is no token, which no
  /// place sees. Throws ShapeError, IndexError, ValueError for padding of sound, of which silence is a part.
  Tensor encode(const Tensor& source, const Tensor& padding = {}) const;
  /// What the output layer reads, [B, T, dim], for the decoder's `tokens` i64 [B, T]; `padding` is encoded's. Throws
  /// ShapeError, IndexError.
  Tensor hidden(const Tensor& tokens, const Tensor& encoded, const Tensor& padding = {}) const;
  /// Logits [B, T, vocab] of the token after each of `tokens`.
  Tensor forward(const Tensor& source, const Tensor& tokens, const Tensor& padding = {}) const;
  /// Mean cross entropy (nats per token, a f32 scalar) of `targets` [B, T], the tokens that follow `tokens`; targets of
  /// -100 count nothing.
  Tensor loss(const Tensor& source, const Tensor& tokens, const Tensor& targets, const Tensor& padding = {}) const;

  /// How much each of `tokens` i64 [B, T] reads of each place of `encoded` [B, S, dim], by attention heads given as
  /// (layer of the decoder, head): [B, heads, T, S] in f32, rows that sum to 1. Throws ShapeError, IndexError, which
  /// also is for a head that is not there.
  Tensor source_weights(const Tensor& tokens, const Tensor& encoded,
                        std::span<const std::pair<int64_t, int64_t>> heads) const;

  /// @name With a cache: as TokenDecoder says
  /// @{
  ModelCache make_cache(int64_t batch, int64_t capacity = 0, int64_t source = 0) const override;
  void read_source(ModelCache& cache, const Tensor& encoded, const Tensor& padding = {}) const override;
  Tensor hidden(const Tensor& tokens, ModelCache& cache, const Tensor& counts = {}) const override;
  Tensor logits(const Tensor& hidden) const override;
  /// @}

  nn::Embedding token_embedding;
  std::optional<nn::Conv1d> conv1, conv2;  ///< of sound
  Tensor encoder_positions;
  std::optional<nn::RelativePositions> encoder_relative, decoder_relative;
  nn::ModuleList<nn::TransformerBlock> encoder;
  std::optional<nn::Norm> encoder_norm;
  std::optional<nn::Embedding> position_embedding;  ///< the decoder's
  nn::ModuleList<nn::CrossBlock> decoder;
  std::optional<nn::Norm> decoder_norm;
  nn::Dropout encoder_dropout, decoder_dropout;  ///< of what goes into the blocks
  std::optional<nn::Linear> head;                ///< unless tied

 private:
  Tensor read(const Tensor& source) const;
  Tensor run(const Tensor& x, const nn::Places& places, const std::vector<nn::KvCache>& source, const Tensor& seen,
             ModelCache* cache, std::vector<Tensor>* readers = nullptr) const;
  Tensor hidden(const Tensor& tokens, const Tensor& encoded, const Tensor& padding, std::vector<nn::KvCache>& keys,
                std::vector<Tensor>* readers) const;

  ModelSpec spec_;
};

}  // namespace strata
