#pragma once
// What a request asks of generation: plain data.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace strata {

/// When beam search ends, beside a full context and the most tokens.
enum class EarlyStopping : uint8_t {
  likely,   ///< when a better text is unlikely, judged at the length so far (transformers' False)
  at_once,  ///< when there are as many whole texts as beams (True)
  never,    ///< when there cannot be a better text ("never")
};

/// Of a text that says when its parts are spoken (Whisper): some ids are times, and these stand in pairs around what is
/// said, as transformers' WhisperTimeStampLogitsProcessor has it. The first token is a time; behind two times comes
/// text, behind one behind text another or the end; times do not decrease; and where the times together are likelier
/// than any text, a time is next.
struct TimestampRules {
  int64_t begin = 0;  ///< the id of time 0; the ids from there on are times, and the one before it is never drawn
  int64_t end = 0;    ///< the id that ends a text; those below it are text
  int64_t most_initial = -1;  ///< the first time is no later than begin + this; -1: any
};

/// How texts are continued. The defaults draw from the model's own distribution until the context is full.
///
///     GenerationOptions options{.max_tokens = 200, .temperature = 0.8, .top_p = 0.95, .seed = 1};
///     options.stop_strings = {"\n\n"};
struct GenerationOptions {
  int64_t max_tokens = 0;  ///< most tokens to write; 0: as many as the context has room for
  int64_t max_length = 0;  ///< most tokens with the prompt; 0: no such limit
  int64_t min_tokens = 0;  ///< before as many are written no stop id is drawn
  int64_t min_length = 0;  ///< the same, the prompt counted

  double temperature = 1;  ///< logits are divided by it; 0 takes the likeliest token
  int64_t top_k = 0;       ///< only the k likeliest; 0: all
  double top_p = 1;        ///< only the likeliest that together have this probability
  double min_p = 0;        ///< only those at least this share as likely as the likeliest
  double typical_p = 1;    ///< only those nearest to the entropy that together have this probability
  uint64_t seed = 0;       ///< the same seed, prompt and model write the same, whatever else is in the batch

  double repetition_penalty = 1;  ///< logits of all tokens so far are divided by it, negative ones multiplied
  double frequency_penalty = 0;   ///< times how often a token was written, taken off its logit
  double presence_penalty = 0;    ///< taken off the logits of tokens that were written
  std::vector<std::pair<int64_t, double>> logit_bias = {};  ///< id, and what is added; minus infinity forbids it

  std::vector<int64_t> not_first = {};         ///< ids that are not the first to be written
  std::vector<int64_t> stop_ids = {};          ///< ids that end a text
  std::vector<std::string> stop_strings = {};  ///< texts that end a text, and are not part of it; wants a tokenizer

  std::optional<TimestampRules> timestamps = {};  ///< some ids are times

  int64_t n = 1;      ///< texts for each prompt; of beams the best
  int64_t beams = 1;  ///< above 1: beam search
  /// Of beam search: continuations are drawn, by temperature, filters and seed; else the likeliest are taken, and
  /// temperature and the filters must be off.
  bool draw_beams = false;
  double length_penalty = 1;  ///< of beam search: scores are divided by the number of tokens to this power
  EarlyStopping early_stopping = EarlyStopping::likely;

  bool logprobs = false;         ///< of each token written, under the model itself
  int64_t top_logprobs = 0;      ///< and of the likeliest so many at its place
  bool prompt_logprobs = false;  ///< the same of the prompt's tokens but the first
  /// Of each token written (of beams, too) under what it was drawn by: behind penalties, biases and rules of times,
  /// before temperature and filters.
  bool adjusted_logprobs = false;
};

/// Throws ValueError naming the field that is out of range. `vocab`: ids there are.
void check_options(const GenerationOptions& options, int64_t vocab);

}  // namespace strata
