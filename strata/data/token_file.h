#pragma once
// Tokenised text as a file of 16- or 32-bit ids with checksums.
//
// Layout (little-endian), version 3: "STRATTOK", u32 version, u32 bytes per token (2 or 4), u64 vocabulary, u64 tokens,
// u64 checksum of the sources and the tokenizer, u64 bytes of a block, u64 checksum of the table of blocks, u64
// documents, i64 id of the token behind each document (-1: none), u64 bytes of the tokenizer's identity, u64 checksum
// of the 80 bytes before; the tokens, filled up with zeros to a multiple of 8 bytes; for each document u64 its first
// token; the tokenizer's identity, filled up likewise; the table: for each block of the bytes between header and table
// u64 its checksum. Version 2 has neither documents nor identity: after the table's checksum come that of the 56 bytes
// before, the tokens and the table. Version 1 has no blocks either: after the sources' checksum come that of the 40
// bytes before and the tokens. All checksums are XXH64.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "strata/data/text_reader.h"
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
  /// The tokenizer's identity (tokenizer_identity); empty in files of versions 1 and 2.
  const std::string& tokenizer() const { return identity_; }
  /// Throws ValueError that names both identities where the file was made with another tokenizer, or a vocabulary of
  /// another size where it does not say with which.
  void require_tokenizer(const text::Tokenizer& tokenizer) const;
  /// Documents whose beginnings the file knows; 0 in files of versions 1 and 2.
  int64_t documents() const { return documents_; }
  /// The first token of a document and the one behind its last (which is the separator, where there is one). From any
  /// thread. Throws IndexError out of range; IoError for a damaged file.
  std::pair<int64_t, int64_t> document(int64_t index) const;
  /// The token behind each document, where there is one.
  std::optional<int32_t> separator() const { return separator_; }
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
  int64_t size_ = 0, vocab_ = 0, documents_ = 0;
  int token_bytes_ = 0;
  uint64_t source_ = 0;
  std::string identity_;
  std::optional<int32_t> separator_;
  uint64_t data_begin_ = 0, starts_begin_ = 0, data_end_ = 0, block_bytes_ = 0;
  std::vector<uint64_t> blocks_;                   // their checksums
  std::unique_ptr<std::atomic<bool>[]> verified_;  // by block
};

/// What tells one tokenizer from another: the checksum of all that it is, as 16 hexadecimal digits.
std::string tokenizer_identity(const text::Tokenizer& tokenizer);

/// Whether the file begins like a token file. False where it cannot be read.
bool is_token_file(const std::string& path);

/// How texts become tokens.
struct TokenFileOptions {
  /// Name of a special token put after each document, e.g. "<|endoftext|>"; empty for none.
  std::string separator = {};
  /// What the documents are. Whole files are cut for tokenizers whose ids do not change by it.
  TextOptions text = {.format = TextFormat::whole, .utf8 = Utf8Policy::keep};
  /// Threads that encode; 0: num_threads(). The file does not depend on it.
  int threads = 0;
};

/// How far a build is.
struct BuildProgress {
  int64_t files = 0, files_read = 0;
  uint64_t bytes = 0, bytes_read = 0;  ///< as they are in the files, compressed or not: of all, of what is encoded
  uint64_t text_bytes = 0;             ///< encoded, those of an earlier build among them
  uint64_t reused_bytes = 0;           ///< of these
  int64_t documents = 0, tokens = 0;
  bool finished = false;  ///< the file is there
};

/// Is told of a build, in the thread that asked for it.
class BuildWatch {
 public:
  virtual ~BuildWatch() = default;
  /// After each piece of text, and several times a second.
  virtual void progress(const BuildProgress& progress) {}
  /// True: what is encoded is kept for the next build, and this one ends with an IoError.
  virtual bool stop_requested() { return false; }
  /// What was found on the way, for people.
  virtual void note(const std::string& text) {}
};

/// Tokenises files, folders and patterns (find_text_files) into a token file at `path`: 16 bits a token where the
/// vocabulary allows it. Works in pieces of a few MiB, by every core, so the text may be larger than memory; the file
/// depends on the texts, the tokenizer and the options alone. Finished pieces are kept in the folder `path`.parts until
/// the file is there: a build that was killed goes on from them. Throws IoError: a source is missing, has no text or
/// changes meanwhile, `path` cannot be written, another process builds the same file; ValueError: the tokenizer has no
/// such separator.
BuildProgress build_token_file(std::span<const std::string> sources, const text::Tokenizer& tokenizer,
                               const std::string& path, const TokenFileOptions& options = {},
                               BuildWatch* watch = nullptr);
/// The same for one source.
void build_token_file(const std::string& source, const text::Tokenizer& tokenizer, const std::string& path,
                      const TokenFileOptions& options = {});
/// The token file at `path` where it is whole, every byte of it, and was made from just this source and tokenizer; else
/// it is built. `notes` is told where that is because it is damaged or of version 1. Throws IoError as
/// build_token_file does, and where a damaged one cannot be built because its source is gone.
TokenFile open_or_build_token_file(const std::string& source, const text::Tokenizer& tokenizer, const std::string& path,
                                   const TokenFileOptions& options = {}, std::vector<std::string>* notes = nullptr);

}  // namespace strata::data
