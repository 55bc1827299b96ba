#pragma once
// The finished pieces of a token file that is being built: the journal of a build, from which a killed one goes on.

#include <cstdint>
#include <string>
#include <vector>

#include "strata/io/descriptor.h"
#include "strata/io/files.h"
#include "strata/io/hash.h"

namespace strata::data {

/// What a piece holds.
struct Section {
  uint64_t blocks = 0;                                 ///< of text, from the first of all to the last in this piece
  uint64_t digest = 0;                                 ///< of the sources (SourceHash) when that last one had been read
  uint64_t tokens = 0, documents = 0, text_bytes = 0;  ///< of this piece
};

/// A folder of pieces, locked while this lives. A piece is a file that is there whole or not at all: header, tokens,
/// and for each document that ends in it u64 the tokens before its end.
class SectionFolder {
 public:
  /// `job` identifies sources, tokenizer and options. Keeps the pieces of this job that are whole, from the first on,
  /// and removes all else. Throws IoError: it cannot be made, or another process has it.
  SectionFolder(std::string path, uint64_t job, uint32_t token_bytes);

  const std::vector<Section>& sections() const { return sections_; }
  /// One piece more.
  void add(const Section& section, const std::vector<std::string>& tokens, const std::vector<uint64_t>& ends);
  /// Removes all pieces.
  void clear();
  /// Removes the folder.
  void remove();
  /// The path of a piece, and where in it the tokens and the ends begin.
  std::string file(size_t index) const;
  uint64_t tokens_begin() const;
  uint64_t ends_begin(size_t index) const;

 private:
  bool read(size_t index);

  std::string path_;
  uint64_t job_;
  uint32_t token_bytes_;
  io::Descriptor lock_;
  std::vector<Section> sections_;
};

/// Writes the bytes between a token file's header and its table, and remembers the checksum of each block of them.
class BlockWriter {
 public:
  explicit BlockWriter(io::FileWriter& out) : out_(out) {}
  void write(std::string_view bytes);
  /// Fills up with zeros to a multiple of 8 bytes.
  void pad();
  std::vector<uint64_t> finish();

 private:
  io::FileWriter& out_;
  io::Hasher hash_;
  uint64_t filled_ = 0;  // of the block
  std::vector<uint64_t> blocks_;
};

}  // namespace strata::data
