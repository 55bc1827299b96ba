#pragma once
// Writing text with a language model, one token at a time.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "strata/generate/options.h"
#include "strata/models/language_model.h"

namespace strata {

class Sequences;

/// How the next token is chosen from the logits.
struct SampleOptions {
  double temperature = 1.0;  ///< logits are divided by it; 0 takes the likeliest token
  int64_t top_k = 0;         ///< only the k likeliest tokens; 0 for all
  double top_p = 1.0;  ///< only the likeliest tokens that together have this probability (Holtzman et al., 1904.09751)
  uint64_t seed = 0;   ///< the same seed, prompt and model give the same text
  int64_t vocab = 0;   ///< only ids below it; 0 for all. A model's vocabulary may be larger than its tokenizer's
};

/// A token drawn from `logits` under the options; `draw` is the number of tokens drawn before. Throws ValueError for no
/// logits, options out of range, or logits among which there is no
/// number.
int64_t sample_token(std::span<const float> logits, const SampleOptions& options, uint64_t draw);

/// Continues a prompt.
///
///     TokenSampler sampler(model, prompt, {.temperature = 0.8});
///     for (int i = 0; i < 100; ++i) std::cout << tokenizer.decode({{sampler.next()}});
///
/// A row of Sequences, whose step draws. Where the context is full, the second half of it is read again, as the start
/// of a new one. The model is put into evaluation mode.
class TokenSampler {
 public:
  /// Of a prompt longer than the context, its end is read. Throws ValueError for an empty prompt or options out of
  /// range.
  TokenSampler(std::shared_ptr<LanguageModel> model, std::vector<int32_t> prompt, const SampleOptions& options = {});
  int32_t next();

 private:
  std::vector<int64_t> tokens_;  // all so far
  GenerationOptions options_;
  std::shared_ptr<Sequences> row_;
  int64_t drawn_ = 0;
};

}  // namespace strata
