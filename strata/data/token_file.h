#pragma once
// Tokenised text as a memory-mapped file of 16- or 32-bit ids.
//
// Layout (little-endian): "STRATTOK", u32 version, u32 bytes per token (2 or 4), u64 vocabulary, u64 tokens,
// u64 checksum of the sources and the tokenizer, u64 checksum of the 40 bytes before; then the tokens.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "strata/io/mapped_file.h"
#include "strata/text/tokenizer.h"

namespace strata::data {

/// Token ids in a file, mapped into memory.
class TokenFile {
 public:
  /// Opens and validates. Throws IoError naming the file and the field that is wrong.
  explicit TokenFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  /// Tokens in the file; at least 1.
  int64_t size() const { return size_; }
  int64_t vocab_size() const { return vocab_; }
  int token_bytes() const { return token_bytes_; }
  /// Identifies the texts and the tokenizer that it was made from.
  uint64_t source_checksum() const { return source_; }
  /// Copies tokens [begin, begin + out.size()). Throws IndexError out of range, IoError for an id >= vocab_size().
  void read(int64_t begin, std::span<int32_t> out) const;
  void read(int64_t begin, std::span<int64_t> out) const;

 private:
  template <class T>
  void read_as(int64_t begin, std::span<T> out) const;

  io::MappedFile file_;
  int64_t size_ = 0, vocab_ = 0;
  int token_bytes_ = 0;
  uint64_t source_ = 0;
};

/// How texts become tokens.
struct TokenFileOptions {
  /// Name of a special token put after each text, e.g. "<|endoftext|>"; empty for none.
  std::string separator;
};

/// Tokenises a file, or all text files under a directory in the order of their paths (hidden ones, empty ones and those
/// with a zero byte in their first 8 KiB are left out), into a token file at `path`: 16 bits a token where the
/// vocabulary allows it. Works in pieces of a few MiB, so the text may be larger than memory. Throws IoError: the
/// source is missing or has no text, `path` cannot be written; ValueError: the tokenizer has no such separator.
void build_token_file(const std::string& source, const text::Tokenizer& tokenizer, const std::string& path,
                      const TokenFileOptions& options = {});
/// The token file at `path` where it is whole and was made from just this source and tokenizer; else it is built.
TokenFile open_or_build_token_file(const std::string& source, const text::Tokenizer& tokenizer, const std::string& path,
                                   const TokenFileOptions& options = {});
/// How much of `text` can be encoded on its own with the same result as within the whole: up to a single line break
/// between words, `wanted` to 2 * `wanted` bytes in, else all of a shorter text. Where a longer text has no such place,
/// `wanted`: the tokens around the cut may then differ (their text never does).
size_t encodable_prefix(std::string_view text, size_t wanted);

}  // namespace strata::data
