#pragma once
// Conversations and instructions as tokens, with marks of what the model is to learn to write.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strata/data/dataset.h"
#include "strata/data/sequences.h"
#include "strata/text/tokenizer.h"

namespace strata::data {

struct ChatOptions {
  /// The model's own variables for its template, a JSON object: {"bos_token": "<s>", "eos_token": "</s>"}.
  std::string variables = "{}";
  /// The special token that is put, and learned, behind an answer that is plain text; empty for none.
  std::string end_token = {};
  /// Everything is learned, the user's words and the template's marks too.
  bool learn_all = false;
};

/// A better and a worse answer to the same.
struct PreferencePair {
  MarkedTokens chosen, rejected;
};

/// Rows of JSON to tokens, through a model's chat template. A row is an object with
///   "messages": [{"role", "content", ..}, ..], or
///   "conversations": [{"from", "value"}, ..], where from is human, user, gpt, assistant, system or tool, or
///   "prompt" and "completion", each a text or a list of messages, or
///   "text", which is learned as a whole;
/// of a pair
///   "chosen" and "rejected", and "prompt" where these do not hold it, each a text or a list of messages.
/// "tools" and "documents" reach the template, and the members of "chat_template_kwargs". Texts, as against lists of
/// messages, do not go through the template.
///
/// Learned is what the assistant wrote: the template's `generation` blocks, where it has some. Where it has none, the
/// conversation is rendered up to each of the assistant's messages, with add_generation_prompt, and again with that
/// message: what the second has more is learned, the mark of the message's end too. A template that renders the
/// beginning of a conversation otherwise than the whole is refused there. Behind a prompt, the completion alone is
/// learned; of a pair, what stands behind the messages that both share.
///
/// Control tokens are found in what the template wrote; where a message spells one, it is text.
/// \code
///   data::ChatEncoder encoder(tokenizer, chat_template, {.variables = R"({"bos_token": "<s>"})"});
///   const data::MarkedTokens row = encoder.encode(R"({"messages": [{"role": "user", "content": "Hi"}]})");
/// \endcode
class ChatEncoder {
 public:
  /// The template may be empty where no row has messages. Throws ValueError: it is no template, the variables are no
  /// JSON object, or the tokenizer has no such end token.
  ChatEncoder(std::shared_ptr<const text::Tokenizer> tokenizer, std::string_view chat_template,
              const ChatOptions& options = {});
  ~ChatEncoder();
  ChatEncoder(ChatEncoder&&) noexcept;
  ChatEncoder& operator=(ChatEncoder&&) noexcept;

  /// A row's tokens; from any thread. `file`, `line` and `byte` are where it stands, for messages. Throws IoError: not
  /// JSON, or of none of the forms; ValueError: the template does not take it.
  MarkedTokens encode(std::string_view row, std::string_view file = "row", uint64_t line = 1, uint64_t byte = 0) const;
  PreferencePair encode_pair(std::string_view row, std::string_view file = "row", uint64_t line = 1,
                             uint64_t byte = 0) const;

 private:
  struct Impl;
  std::unique_ptr<const Impl> impl_;
};

/// All rows of JSONL files (find_text_files, compressed or not) in their order, by every core. Throws as
/// find_text_files and ChatEncoder::encode, and IoError where there are none.
std::shared_ptr<StoredSequences> load_chats(std::span<const std::string> sources, const ChatEncoder& encoder);

/// Pairs for preference training. A batch is {chosen tokens, chosen targets, rejected tokens, rejected targets}, each
/// [B, T] i64, one text a row: a text of n tokens takes n - 1 places, as in PackedRows; behind it stand token 0 and
/// target -100.
class PreferenceDataset final : public Dataset {
 public:
  /// Texts are cut behind `context` + 1 tokens. Throws ValueError: there are not as many of one as of the other, none,
  /// or context < 1.
  PreferenceDataset(std::shared_ptr<const Sequences> chosen, std::shared_ptr<const Sequences> rejected,
                    int64_t context);
  int64_t size() const override { return chosen_->size(); }
  Batch get_batch(std::span<const Sample> samples) const override;
  /// Pairs of which a text was cut.
  int64_t truncated() const { return truncated_; }

 private:
  std::shared_ptr<const Sequences> chosen_, rejected_;
  int64_t context_, truncated_ = 0;
};

/// All pairs of JSONL files, as load_chats.
std::shared_ptr<PreferenceDataset> load_preferences(std::span<const std::string> sources, const ChatEncoder& encoder,
                                                    int64_t context);

}  // namespace strata::data
