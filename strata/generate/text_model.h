#pragma once
// A folder's model with its tokenizer: what the command line, Python, Node and C call.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "strata/generate/text_generator.h"
#include "strata/generate/transcribe.h"
#include "strata/models/pretrained.h"
#include "strata/models/sentence_folder.h"
#include "strata/text/tokenizer_folder.h"

namespace strata {

/// A model that exists, and all that it reads and writes text with. Of models of images, and of folders without a
/// tokenizer, what wants text throws ValueError.
///
///     const auto model = TextModel::load("Qwen2.5-0.5B-Instruct");
///     const std::vector<Generated> out = model->generate({{model->encode("The sea")}}, R"({"max_new_tokens": 40})");
///     const std::vector<int64_t> talk = model->chat_prompt(R"([{"role": "user", "content": "Hello"}])");
///
/// Calls of generate() from several threads are made one after another.
class TextModel {
 public:
  /// Both parts of a folder; of one without a tokenizer's files the model alone. Throws what load_pretrained() and
  /// load_tokenizer_folder() do.
  static std::shared_ptr<TextModel> load(const std::string& folder, const PretrainedOptions& options = {});
  /// Of parts that are there; `folder` may be nullptr.
  explicit TextModel(Pretrained model, std::shared_ptr<const text::TokenizerFolder> folder = nullptr);
  TextModel(const TextModel&) = delete;

  const Pretrained& pretrained() const { return model_; }
  /// nullptr where there is none.
  const text::TokenizerFolder* folder() const { return folder_.get(); }
  std::shared_ptr<const text::Tokenizer> tokenizer() const;
  /// "decoder", "encoder", "encoder_decoder", "image_encoder" or "pair".
  const char* kind() const;
  /// The most positions that it was made for, and ids that its embedding has; of a pair its text encoder's.
  int64_t context() const;
  int64_t vocab() const;
  /// JSON of what is known of it: {"family", "title", "kind", "context", "vocab_size", "special_ids", "config",
  /// "generation_config", "tokenizer", "chat_template"}, the last two whether there are such.
  std::string describe() const;
  /// Moves the weights.
  void to(Device device);

  /// @name The module that it is
  /// Throws ValueError naming `what` for a model of another kind.
  /// @{
  LanguageModel& decoder(std::string_view what) const;
  TextEncoder& text_encoder(std::string_view what) const;
  ImageEncoder& image_encoder(std::string_view what) const;
  ContrastivePair& pair(std::string_view what) const;
  EncoderDecoder& encoder_decoder(std::string_view what) const;
  /// @}
  /// Logits of tokens i64 [B, T] (or pixels), hidden states of an encoder without a head. `padding` [B, T] is true at
  /// what is no token; `types`, of encoders, says of which part a token is.
  Tensor forward(const Tensor& x, const Tensor& padding = {}, const Tensor& types = {}) const;
  /// Of an encoder-decoder: logits [B, T, vocab] of the token after each of `tokens` i64 [B, T], for what it reads,
  /// tokens i64 [B, S] or frames of sound; `padding` [B, S] of tokens that are read.
  Tensor forward_source(const Tensor& source, const Tensor& tokens, const Tensor& padding = {}) const;
  /// What the last block gives, [B, T, dim].
  Tensor hidden(const Tensor& x, const Tensor& padding = {}, const Tensor& types = {}) const;

  /// A text's ids with the special tokens that its makers put around one; text that spells one is that token.
  std::vector<int64_t> encode(std::string_view text) const;
  /// The text of ids. Throws IndexError for one that the tokenizer does not have.
  std::string decode(std::span<const int64_t> ids, bool skip_special_tokens = true) const;
  /// strata::chat_prompt() with the folder's template.
  std::vector<int64_t> chat_prompt(std::string_view messages, std::string_view variables = "{}") const;

  /// What a call's JSON says (parse_generation_options()) over the folder's generation_config.json. Where neither says
  /// what ends a text, the tokenizer's end does.
  GenerationOptions options(std::string_view call) const;
  /// Continues lists of ids, as TextGenerator does; of an encoder-decoder they are what it reads, and what is written
  /// begins as the folder says (DecoderStart). A model that trains goes on training afterwards. Throws ValueError where
  /// its own callback calls it, and for a model that reads sound.
  std::vector<Generated> generate(std::span<const std::vector<int64_t>> prompts, const GenerationOptions& options,
                                  const TextGenerator::Callback& callback = {});
  std::vector<Generated> generate(std::span<const std::vector<int64_t>> prompts, std::string_view options = "{}",
                                  const TextGenerator::Callback& callback = {});
  /// Calls `f` while no generate() or transcribe() runs: what it calls of these throws ValueError, in the name of
  /// `what`. A model that trains goes on training afterwards.
  void in_turn(std::string_view what, const std::function<void()>& f);
  /// Of the last generate().
  GenerationStatistics statistics() const;

  /// What a call's JSON says: {"language", "task", "timestamps"}, "word_timestamps", "prompt" (a text, of which nothing
  /// is a control token), "prompt_condition_type" ("first-segment" or "all-segments"), "condition_on_prev_tokens",
  /// "compression_ratio_threshold", "logprob_threshold", "no_speech_threshold" (these four also of the folder's
  /// generation_config.json; null turns one off), "temperature" as a list that is tried in turn, and what options()
  /// takes.
  TranscriptionOptions transcription_options(std::string_view call) const;
  /// What is said in sound, as strata::transcribe() has it, with the folder's preprocessor_config.json. Throws
  /// ValueError for a model that reads none, IoError for a folder without that file.
  Transcription transcribe(const data::Sound& sound, const TranscriptionOptions& options);
  Transcription transcribe(const data::Sound& sound, std::string_view options = "{}");

  /// One vector [texts, dim] of each text, on the model's device: the hidden states of its tokens pooled as `how` says.
  /// What a text spells is text; a text that is too long is cut before its last token, as sentence-transformers does.
  /// Throws ValueError for a text without tokens.
  Tensor embed(std::span<const std::string> texts, const SentenceOptions& how) const;
  /// As the folder says (read_sentence_options()), where the call's JSON {"pooling", "normalize"} does not say else.
  Tensor embed(std::span<const std::string> texts, std::string_view call = "{}") const;

 private:
  Device device() const;
  std::unique_lock<std::mutex> alone(std::string_view what) const;
  DecoderStart decoder_start() const;
  struct Writing;
  std::vector<int32_t> embedded_ids(const std::string& text, int64_t longest) const;

  Pretrained model_;
  std::shared_ptr<const text::TokenizerFolder> folder_;
  mutable std::mutex mutex_;               // of the writer
  std::atomic<std::thread::id> writing_;   // who holds it
  std::unique_ptr<TextGenerator> writer_;  // made when first needed, then kept
};

/// Texts as JSON, a list of {"completions": [{"text", "tokens", "finish", "score", "logprobs", "top_logprobs"}, ..],
/// "prompt_logprobs", "top_prompt_logprobs"}; bytes of a text that are no UTF-8 become U+FFFD.
std::string to_json(std::span<const Generated> generated);

}  // namespace strata
