#pragma once
// What identifies texts and a tokenizer: the checksum that stands in a token file.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "strata/data/token_file.h"
#include "strata/io/hash.h"

namespace strata::data {

class SourceHash {
 public:
  SourceHash(const text::Tokenizer& tokenizer, const TokenFileOptions& options);
  /// The name and the length of a text; its bytes as they are in the file follow. The name is relative: a moved
  /// directory is the same data.
  void begin(const TextFile& file, uint64_t bytes);
  io::Hasher& bytes() { return hash_; }
  uint64_t digest() const { return hash_.digest(); }

 private:
  void add(std::string_view text);

  io::Hasher hash_;
};

/// Of all files, read now.
uint64_t source_checksum(std::span<const TextFile> files, const text::Tokenizer& tokenizer,
                         const TokenFileOptions& options);

}  // namespace strata::data
