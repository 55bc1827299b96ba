#pragma once
// Text from a trained model: its tokenizer and a sampler together.

#include <string>
#include <string_view>

#include "strata/generate/sampling.h"
#include "strata/train/run.h"

namespace strata {

/// Continues a prompt, one token's text at a time.
///
///     const TrainedModel trained = load_trained_model("runs/quickstart");
///     TextWriter writer(trained, "Tensor ", {.temperature = 0.8});
///     for (int i = 0; i < 100; ++i) std::fputs(writer.next().c_str(), stdout);
class TextWriter {
 public:
  /// Draws tokens that the tokenizer knows, whatever the size of the model's vocabulary. Throws ValueError for a prompt
  /// without tokens or options out of range, and what encoding throws.
  TextWriter(const TrainedModel& trained, std::string_view prompt, const SampleOptions& options = {});
  /// The bytes of the next token: a character may begin in one and end in the next.
  std::string next();

 private:
  std::shared_ptr<text::Tokenizer> tokenizer_;
  TokenSampler sampler_;
};

/// What a run's report shows: `train.sample_tokens` tokens after `train.sample_prompt` (a line's end where that is
/// empty), or as an answer to it, of temperature 0.8 and top-p 0.95, by the run's seed. The model is in evaluation mode
/// afterwards.
std::string sample_text(const TrainedModel& trained);

}  // namespace strata
