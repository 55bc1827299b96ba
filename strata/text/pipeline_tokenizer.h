#pragma once
// What a tokenizer.json describes (https://github.com/huggingface/tokenizers): added tokens, a normaliser, a
// pre-tokeniser, a model, a post-processor and a decoder, in a chain.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strata/text/tokenizer.h"

namespace strata::text {

namespace jinja {
struct Rendered;
}
namespace pipeline {
struct TokenizerParts;
struct Around;
}  // namespace pipeline

/// A token that stands beside the model's vocabulary and is found before it.
struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool special = false;      ///< a control token: not found in text that is data, left out by `skip_special_tokens`
  bool lstrip = false;       ///< takes the blanks before it with it
  bool rstrip = false;       ///< and those behind it
  bool single_word = false;  ///< only where no word character touches it
  bool normalized = true;    ///< found in the normalised text, as it is itself after normalising
};

/// How PipelineTokenizer encodes.
struct EncodeOptions {
  /// What the post-processor puts around a text ("<s>", "[CLS]").
  bool add_special_tokens = true;
  /// Whether text that spells a special token is that token. Added tokens that are not special are found either way.
  bool parse_special = true;
};

/// How PipelineTokenizer decodes.
struct DecodeOptions {
  bool skip_special_tokens = false;
  /// No blanks before punctuation and English contractions, as `transformers` does it.
  bool clean_up_tokenization_spaces = false;
};

/// A text's or two texts' ids.
struct Encoding {
  std::vector<int32_t> ids;
  /// Of each id, by the post-processor; without one, 0 for a first text and 1 for a second.
  std::vector<int32_t> type_ids;
  /// Of encode(Rendered): whether a token begins in what the assistant wrote (`Rendered::generated`). Else empty.
  std::vector<bool> generated;
};

/// A tokenizer.json: the same ids and the same text as the `tokenizers` library (0.23), whose objects cannot hold
/// invalid UTF-8; here every byte that is none becomes U+FFFD first. Truncation and padding are kept and written back,
/// and not applied. Time is bounded: an expression of the file that takes too long for a text is a ValueError.
///
/// decode(encode(text)) is the text where the file's parts lose nothing: byte-level tokenizers without a normaliser.
///
///     const auto tokenizer = parse_tokenizer(io::read_file("tokenizer.json"));
///     const auto& pipeline = dynamic_cast<const PipelineTokenizer&>(*tokenizer);
///     pipeline.encode("Hello <s>", EncodeOptions{.add_special_tokens = true, .parse_special = false});
class PipelineTokenizer final : public Tokenizer {
 public:
  /// From the text of a tokenizer.json. Throws IoError naming `source` and the JSON path that is wrong.
  static std::unique_ptr<PipelineTokenizer> parse(std::string_view json, std::string_view source = "tokenizer.json");
  ~PipelineTokenizer() override;

  /// The largest id and one; ids may have gaps.
  int64_t vocab_size() const override;
  /// Without special tokens; text that spells one is text. Throws ValueError where the model has no ids for a word and
  /// no unknown token, and where an expression takes too long.
  std::vector<int32_t> encode(std::string_view text) const override;
  std::vector<int32_t> encode_with_special(std::string_view text) const override;
  std::vector<int32_t> encode(std::string_view text, const EncodeOptions& options) const;
  /// Two texts, as for a question and its context.
  Encoding encode_pair(std::string_view first, std::string_view second, const EncodeOptions& options = {}) const;
  /// What a chat template made: special tokens are found in what the template says itself, and never where a byte came
  /// from its data. A template writes its special tokens itself, so by default none are put around.
  Encoding encode(const jinja::Rendered& rendered, bool add_special_tokens = false) const;
  /// encode() of each, on the process's threads.
  std::vector<std::vector<int32_t>> encode_batch(std::span<const std::string_view> texts,
                                                 const EncodeOptions& options = {}) const;

  std::string decode(std::span<const int32_t> ids) const override;
  /// Ids in gaps of the vocabulary are nothing. Throws IndexError for an id out of range.
  std::string decode(std::span<const int32_t> ids, const DecodeOptions& options) const;

  /// The id of a whole token.
  std::optional<int32_t> id(std::string_view token) const;
  /// The token of an id as the file spells it; empty for an id out of range or in a gap.
  std::string_view token(int32_t id) const;
  const std::map<std::string, int32_t>& special_tokens() const override;
  /// In the order of their ids.
  std::span<const AddedToken> added_tokens() const;
  /// "BPE", "Unigram", "WordPiece" or "WordLevel".
  std::string_view model_type() const;

  /// A tokenizer.json that means the same, defaults spelled out.
  std::string to_json() const override;
  /// 16 hexadecimal digits of everything that decides ids: added tokens, normaliser, pre-tokeniser, model,
  /// post-processor. Formatting and spelled defaults do not change it.
  std::string identity() const;

  /// A tokenizer as this one, whose post-processor puts these ids around each text, or nothing for absent ones (what
  /// `add_bos_token` and `add_eos_token` of tokenizer_config.json ask for). Throws ValueError for ids that are no
  /// tokens.
  std::unique_ptr<PipelineTokenizer> with_template(std::optional<int32_t> begin, std::optional<int32_t> end) const;

 private:
  friend class StreamDecoder;
  friend struct pipeline::TokenizerParts;
  PipelineTokenizer(std::shared_ptr<const pipeline::TokenizerParts> parts,
                    std::shared_ptr<const pipeline::Around> around);
  void check_post_processor(std::string_view source) const;
  std::shared_ptr<const pipeline::TokenizerParts> parts_;
  std::shared_ptr<const pipeline::Around> around_;
};

/// Decodes ids one by one, as a model makes them: what it returns together is what decode() of all ids returns, and
/// each piece ends with a whole character. The tokenizer must outlive it.
///
///     StreamDecoder decoder(tokenizer);
///     for (const int32_t id : ids) std::cout << decoder.add(id);
///     std::cout << decoder.finish();
class StreamDecoder {
 public:
  explicit StreamDecoder(const PipelineTokenizer& tokenizer, const DecodeOptions& options = {});
  ~StreamDecoder();
  StreamDecoder(StreamDecoder&&) noexcept;
  /// The text that is certain now and was not before; often empty. Throws IndexError for an id out of range.
  std::string add(int32_t id);
  /// What was still kept back. No more ids may follow.
  std::string finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace strata::text
