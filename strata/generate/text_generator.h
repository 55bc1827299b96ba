#pragma once
// Requests in, texts out: what generate, chat and evaluations call, and a server will.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "strata/generate/options.h"
#include "strata/models/token_decoder.h"
#include "strata/text/tokenizer.h"

namespace strata {

class EncoderDecoder;
class LanguageModel;

/// A prompt, and how it is continued.
struct GenerationRequest {
  std::vector<int64_t> prompt;  ///< ids, at least one; of an encoder-decoder its decoder's first
  GenerationOptions options = {};
  /// Of an encoder-decoder, what it reads: ids i64 [S], or frames of sound [bins, 2 S].
  Tensor source = {};
  /// In the place of a source what the encoder gave for it, [S, dim], where that is known.
  Tensor encoded = {};
};

/// Why a text ended.
enum class Finish : uint8_t {
  length,       ///< max_tokens, max_length, or the context is full
  stop_id,      ///< one of stop_ids was drawn: the last of the tokens
  stop_string,  ///< one of stop_strings was written
  cancelled,    ///< the callback returned false
};
/// "length", "stop_id", "stop_string", "cancelled".
const char* to_string(Finish finish);

/// A token, and how likely it was.
struct TokenLogprob {
  int64_t id = 0;
  double logprob = 0;  ///< under the model itself, over its whole vocabulary, before penalties and filters
};

/// A text that was written.
struct Completion {
  std::vector<int64_t> tokens = {};  ///< all that were drawn, a stop id included
  std::string text = {};             ///< of the tokens, without stop id and stop string; empty without a tokenizer
  Finish finish = Finish::length;
  int64_t stop = -1;                  ///< which of stop_ids or stop_strings
  double score = 0;                   ///< of beam search: the sum of logprobs over the length penalty
  std::vector<double> logprobs = {};  ///< of each token, where asked for
  std::vector<std::vector<TokenLogprob>> top_logprobs = {};  ///< the likeliest at each token's place, likeliest first
  std::vector<double> adjusted_logprobs = {};                ///< of each token, where asked for
};

/// What came of a request.
struct Generated {
  std::vector<Completion> completions = {};  ///< options.n of them; of beams the best first
  std::vector<double> prompt_logprobs = {};  ///< of the prompt's tokens but the first, where asked for
  std::vector<std::vector<TokenLogprob>> top_prompt_logprobs = {};  ///< with top_logprobs
};

/// A piece of a text as it is written.
struct GenerationPiece {
  int64_t request = 0;     ///< which of those given
  int64_t completion = 0;  ///< which of its texts
  int64_t token = 0;       ///< that was drawn now
  std::string_view text;   ///< that is decided now: of this token, of earlier ones held back, or nothing yet
  bool last = false;       ///< nothing of this text follows
};

/// How long it took.
struct GenerationStatistics {
  int64_t prompt_tokens = 0;       ///< of prompts: read, not reused
  int64_t output_tokens = 0;       ///< written
  int64_t steps = 0;               ///< each a token of every running text
  double prompt_seconds = 0;       ///< reading prompts
  double output_seconds = 0;       ///< writing
  double first_token_seconds = 0;  ///< from the call to the first token of any text
  double prompt_rate() const { return prompt_seconds > 0 ? static_cast<double>(prompt_tokens) / prompt_seconds : 0; }
  double output_rate() const { return output_seconds > 0 ? static_cast<double>(output_tokens) / output_seconds : 0; }
};

/// Of TextGenerator.
struct TextGeneratorOptions {
  int64_t batch = 8;            ///< texts that are written at a time; more requests wait for a place
  int64_t capacity = 0;         ///< tokens of a text, its prompt included; 0: the model's context
  int64_t prefill_chunk = 512;  ///< tokens of a prompt that are read at once
  bool graph = true;            ///< on a CUDA device: steps are captured and replayed
  /// A prompt that goes on where a text of the last call ended, or began with the same tokens, is read from there on: a
  /// conversation's next turn. What was read in other parts differs in the last bits.
  bool reuse = false;
  bool skip_special_tokens = true;  ///< special tokens have no text
  /// Texts end at no full context: its second half is read again, as the start of a new one, and of a prompt that is
  /// longer its end is read. What fell out is not seen any more; penalties count what is read again as the prompt.
  /// Wants a max_tokens or max_length.
  bool roll = false;
};

/// Continues prompts of any lengths, many at a time. A request's tokens do not depend on the others. Ids that the
/// tokenizer does not have are never drawn.
///
///     TextGenerator writer(model, tokenizer);
///     const std::vector<Generated> out = writer.generate({{.prompt = ids, .options = {.max_tokens = 50}}});
///     std::puts(out[0].completions[0].text.c_str());
///
/// One call at a time.
class TextGenerator {
 public:
  /// Called with every token as it is drawn; false ends the text. Of beams once for each text, with all of it: which it
  /// will be is known at the end alone.
  using Callback = std::function<bool(const GenerationPiece&)>;

  /// Without a tokenizer there are tokens and no texts. Throws ValueError for options out of range.
  explicit TextGenerator(std::shared_ptr<LanguageModel> model,
                         std::shared_ptr<const text::Tokenizer> tokenizer = nullptr,
                         const TextGeneratorOptions& options = {});
  /// Of a model that writes for what it reads: requests have a source.
  explicit TextGenerator(std::shared_ptr<EncoderDecoder> model,
                         std::shared_ptr<const text::Tokenizer> tokenizer = nullptr,
                         const TextGeneratorOptions& options = {});
  ~TextGenerator();
  TextGenerator(const TextGenerator&) = delete;

  /// Throws ValueError for options out of range, an empty prompt and one without room for a token, IndexError for
  /// tokens that the model does not have, ShapeError for a source of another shape: naming the request, before anything
  /// is computed.
  std::vector<Generated> generate(const std::vector<GenerationRequest>& requests, const Callback& callback = {});
  /// Of the last call.
  const GenerationStatistics& statistics() const { return statistics_; }

 private:
  struct Run;
  std::shared_ptr<TokenDecoder> model_;
  std::shared_ptr<EncoderDecoder> reader_;  // the same, where there is an encoder
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  TextGeneratorOptions options_;
  GenerationStatistics statistics_;
  std::unique_ptr<class Sequences> rows_;    // made when first needed, then kept
  std::vector<std::vector<int64_t>> texts_;  // by row: what it read last
};

}  // namespace strata
