#pragma once
// What generation asks of a model: tokens that continue those of a cache, and the logits of the next.

#include <cstdint>
#include <vector>

#include "strata/nn/attention.h"
#include "strata/nn/module.h"

namespace strata {

/// What generation keeps between steps, for a batch of texts of different lengths: keys and values of every layer.
struct ModelCache {
  std::vector<nn::KvCache> layers;
  Tensor lengths;        ///< [B] i64 on the model's device: positions filled of each text
  int64_t capacity = 0;  ///< room for so many positions
  int64_t length = 0;    ///< no text has more, as far as the host counts: calls of `tokens` [B, T] add T
  /// Whether the host counts. Where not (a step that a graph replays), attention looks at the whole capacity up to each
  /// text's length, and the caller sees to it that no text outgrows it.
  bool host_counts = true;
  /// @name Of an encoder-decoder: what it reads beside the tokens
  /// @{
  std::vector<nn::KvCache> source = {};  ///< of every layer, keys and values of the encoder's places [B, .., S, ..]
  Tensor source_seen = {};               ///< [B, 1, 1, S], boolean: true at places of the source
  /// @}

  /// All that has a row for each text, `lengths` among it.
  std::vector<Tensor> rows() const;
  /// The text of one row alone, in the same memory. The host counts what is filled from `length` on.
  ModelCache row(int64_t row) const;
};

/// A model that continues texts: LanguageModel, and an EncoderDecoder's decoder.
class TokenDecoder {
 public:
  virtual ~TokenDecoder() = default;
  /// Itself.
  virtual nn::Module& as_module() = 0;
  /// Ids that it knows.
  virtual int64_t vocab() const = 0;
  /// Most positions.
  virtual int64_t context() const = 0;
  /// Where its parameters are.
  virtual Device device() const = 0;
  /// An empty cache for `batch` texts, with room for `capacity` positions; 0: context(). `source`: places of what an
  /// encoder gave, 0 where there is no encoder.
  virtual ModelCache make_cache(int64_t batch, int64_t capacity = 0, int64_t source = 0) const = 0;
  /// What the texts in `cache` are written for: `encoded` [B, S, dim] with S up to the cache's places, and what of it
  /// is `padding` [B, S], boolean. Throws ValueError of a model without an encoder, ShapeError.
  virtual void read_source(ModelCache& cache, const Tensor& encoded, const Tensor& padding = {}) const = 0;
  /// What the output layer reads, [B, T, dim], for `tokens` [B, T] which continue the texts in the cache and are added
  /// to it. `counts` [B], i64 on the model's device, where given: only the first counts[b] of row b are tokens, the
  /// rest is padding whose results mean nothing. Nothing is recorded, and nothing waits for the device. Throws
  /// ShapeError where the cache has no room that the host counts.
  virtual Tensor hidden(const Tensor& tokens, ModelCache& cache, const Tensor& counts = {}) const = 0;
  /// Logits [.., vocab] of what hidden() gave, any part of it.
  virtual Tensor logits(const Tensor& hidden) const = 0;
  /// Logits [B, vocab] after the last token of each row: logits() of hidden() there.
  Tensor next_logits(const Tensor& tokens, ModelCache& cache, const Tensor& counts = {}) const;

 protected:
  TokenDecoder() = default;
  TokenDecoder(const TokenDecoder&) = default;
  TokenDecoder& operator=(const TokenDecoder&) = default;
  /// Where `tokens` stand that continue a cache, and their positions [B, T]: all of Places but turns and what is seen.
  /// Throws ShapeError where they do not fit.
  static std::pair<nn::Places, Tensor> places_of(std::string_view op, const Tensor& tokens, const ModelCache& cache,
                                                 const Tensor& counts);
  /// The cache's lengths behind them.
  static void advance(ModelCache& cache, int64_t time, const Tensor& counts);
};

}  // namespace strata
