#pragma once
// Texts that are read, and what is to be written for each: what encoder-decoders learn from.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "strata/data/dataset.h"
#include "strata/text/tokenizer.h"

namespace strata::data {

/// How rows become tokens.
struct SourceTargetOptions {
  int64_t context = 512;             ///< most tokens of a text, of either side
  std::vector<int64_t> start = {0};  ///< what a written text begins with (decoder_start_token_id)
  std::optional<int32_t> end = {};   ///< put behind a text that does not end with it; none: texts end as they do
};

/// Pairs of texts in memory. Sample i is {source, padding, tokens, targets}: what is read, i64 [S]; true at what of it
/// is no token, [S]; what the decoder reads, its start and the target but for its last token, i64 [T]; and the target,
/// i64 [T], -100 where nothing is learned: behind its end, and for all but the last token of the start. S and T are the
/// same in every batch, those of the longest, so that a step is one graph.
class SourceTargets final : public Dataset {
 public:
  SourceTargets(std::vector<std::vector<int32_t>> sources, std::vector<std::vector<int32_t>> targets,
                const SourceTargetOptions& options);
  int64_t size() const override { return static_cast<int64_t>(sources_.size()); }
  Batch get_batch(std::span<const Sample> samples) const override;
  /// How many rows had a text that was cut; its last token is kept.
  int64_t truncated() const { return truncated_; }
  /// S and T.
  int64_t source_tokens() const { return source_tokens_; }
  int64_t target_tokens() const { return target_tokens_; }
  /// Both become at least these: those of another set that shares a model's graph.
  void widen(int64_t source_tokens, int64_t target_tokens);
  /// Of all its tokens: another text or tokenizer has another.
  uint64_t checksum() const;

 private:
  std::vector<std::vector<int32_t>> sources_, targets_;
  SourceTargetOptions options_;
  int64_t source_tokens_ = 1, target_tokens_ = 1, truncated_ = 0;
};

/// JSON lines with the texts "input" and "target", each tokenised as the model's makers do: control tokens that a text
/// spells stay text. Throws IoError naming the file and line: for what is no such row, and an empty text.
///
///     const auto pairs = data::load_source_targets(sources, tokenizer, {.context = 256, .end = 1});
std::shared_ptr<SourceTargets> load_source_targets(std::span<const std::string> sources,
                                                   const text::Tokenizer& tokenizer,
                                                   const SourceTargetOptions& options);

}  // namespace strata::data
