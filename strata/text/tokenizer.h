#pragma once
// Text to token ids and back.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace strata::text {

/// Any bytes to ids in [0, vocab_size()) and back. Const functions may be called from several threads.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;
  /// How many ids there are.
  virtual int64_t vocab_size() const = 0;
  /// decode(encode(text)) == text, for any bytes (but see IdTokenizer and PipelineTokenizer). Text that spells a
  /// special token is ordinary text here.
  virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  /// The bytes of the ids; a special token is its own name. Throws IndexError for an id out of range.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;
  /// Special tokens, e.g. "<|endoftext|>", with their ids.
  virtual const std::map<std::string, int32_t>& special_tokens() const = 0;
  /// Everything about the tokenizer as JSON; parse_tokenizer reads it back.
  virtual std::string to_json() const = 0;

  /// As encode, but a special token's name becomes its id (the longest one where several fit).
  virtual std::vector<int32_t> encode_with_special(std::string_view text) const;
  /// Throws IoError where the file cannot be written.
  void save(const std::string& path) const;
};

/// One token per byte: 256 ids.
class ByteTokenizer final : public Tokenizer {
 public:
  int64_t vocab_size() const override { return 256; }
  std::vector<int32_t> encode(std::string_view text) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  const std::map<std::string, int32_t>& special_tokens() const override { return special_; }
  std::string to_json() const override;

 private:
  std::map<std::string, int32_t> special_;
};

/// Text that is ids already, decimal numbers between blanks, as another program wrote them.
class IdTokenizer final : public Tokenizer {
 public:
  /// Ids 0 to vocab_size - 1. Throws ValueError for vocab_size < 1 or past 2^31 - 1.
  explicit IdTokenizer(int64_t vocab_size);
  int64_t vocab_size() const override { return vocab_; }
  /// Throws ValueError for anything but numbers and blanks, IndexError for an id out of range.
  std::vector<int32_t> encode(std::string_view text) const override;
  /// The numbers, each followed by a space.
  std::string decode(std::span<const int32_t> ids) const override;
  const std::map<std::string, int32_t>& special_tokens() const override { return special_; }
  std::string to_json() const override;

 private:
  int64_t vocab_;
  std::map<std::string, int32_t> special_;
};

/// Makes a tokenizer from to_json()'s text, or a PipelineTokenizer from a tokenizer.json; its members tell which.
/// Throws IoError naming `source` and the field that is wrong.
std::unique_ptr<Tokenizer> parse_tokenizer(std::string_view json, std::string_view source = "tokenizer");
/// Reads a file that save() wrote, or a tokenizer.json.
std::unique_ptr<Tokenizer> load_tokenizer(const std::string& path);

}  // namespace strata::text
