#pragma once
// Tokenised text as a file of 16- or 32-bit ids with checksums.
//
// Layout (little-endian), version 2: "STRATTOK", u32 version, u32 bytes per token (2 or 4), u64 vocabulary, u64 tokens,
// u64 checksum of the sources and the tokenizer, u64 bytes of a block, u64 checksum of the table of blocks, u64
// checksum of the 56 bytes before; the tokens, filled up with zeros to a multiple of 8 bytes; the table: for each block
// of those bytes u64 its checksum. Version 1 has no blocks: after the sources' checksum come that of the 40 bytes
// before and the tokens. All checksums are XXH64.

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strata/io/input_file.h"
#include "strata/text/tokenizer.h"

namespace strata::data {

/// Token ids in a file.
class TokenFile {
 public:
  /// Opens and validates all but the tokens. Throws IoError naming the file and the byte that is wrong.
  explicit TokenFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  /// Tokens in the file; at least 1.
  int64_t size() const { return size_; }
  int64_t vocab_size() const { return vocab_; }
  int token_bytes() const { return token_bytes_; }
  /// Identifies the texts and the tokenizer that it was made from.
  uint64_t source_checksum() const { return source_; }
  /// Whether the tokens have checksums: those of files of version 1 have none.
  bool has_checksums() const { return !blocks_.empty(); }
  /// Copies tokens [begin, begin + out.size()), from any thread. A block's checksum is computed when it is first read.
  /// Throws IndexError out of range; IoError for a damaged block, an id >= vocab_size(), or a file that was cut.
  void read(int64_t begin, std::span<int32_t> out) const;
  void read(int64_t begin, std::span<int64_t> out) const;
  /// Reads all of it now, so that read() need not look at checksums any more. Throws IoError naming the first byte of
  /// what is damaged.
  void verify() const;

 private:
  template <class T>
  void read_as(int64_t begin, std::span<T> out) const;
  void verify_bytes(uint64_t begin, uint64_t end) const;

  io::InputFile file_;
  int64_t size_ = 0, vocab_ = 0;
  int token_bytes_ = 0;
  uint64_t source_ = 0;
  uint64_t data_begin_ = 0, data_end_ = 0, block_bytes_ = 0;
  std::vector<uint64_t> blocks_;                   // their checksums
  std::unique_ptr<std::atomic<bool>[]> verified_;  // by block
};

/// How texts become tokens.
struct TokenFileOptions {
  /// Name of a special token put after each text, e.g. "<|endoftext|>"; empty for none.
  std::string separator;
};

/// Tokenises a file, or all text files under a directory in the order of their paths (hidden ones, empty ones and those
/// with a zero byte in their first 8 KiB are left out), into a token file at `path`: 16 bits a token where the
/// vocabulary allows it. Works in pieces of a few MiB, so the text may be larger than memory. Throws IoError: the
/// source is missing, has no text or changes meanwhile, `path` cannot be written; ValueError: the tokenizer has no such
/// separator.
void build_token_file(const std::string& source, const text::Tokenizer& tokenizer, const std::string& path,
                      const TokenFileOptions& options = {});
/// The token file at `path` where it is whole, every byte of it, and was made from just this source and tokenizer; else
/// it is built. `notes` is told where that is because it is damaged or of version 1. Throws IoError as
/// build_token_file does, and where a damaged one cannot be built because its source is gone.
TokenFile open_or_build_token_file(const std::string& source, const text::Tokenizer& tokenizer, const std::string& path,
                                   const TokenFileOptions& options = {}, std::vector<std::string>* notes = nullptr);
/// How much of `text` can be encoded on its own with the same result as within the whole: up to a single line break
/// between words, `wanted` to 2 * `wanted` bytes in, else all of a shorter text. Where a longer text has no such place,
/// `wanted`: the tokens around the cut may then differ (their text never does).
size_t encodable_prefix(std::string_view text, size_t wanted);

}  // namespace strata::data
