#pragma once
// Documents of text files, one after another: JSONL, lines, paragraphs, whole files; compressed or not.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strata/io/byte_stream.h"

namespace strata::data {

/// What a document of a file is.
enum class TextFormat : uint8_t {
  automatic,   ///< jsonl where the name (without .gz, .zz, .zst) ends with .jsonl or .ndjson, else whole
  whole,       ///< the file
  paragraphs,  ///< lines up to an empty one, or one of blanks
  lines,       ///< a line that is not empty
  jsonl,       ///< a field of a JSON object, one object a line
};
/// Every format by its name, for command lines and their errors.
std::span<const std::string_view> text_formats();
std::string_view to_string(TextFormat format);
/// Throws ValueError that lists the formats.
TextFormat parse_text_format(std::string_view name);

/// What is done about bytes that are not UTF-8.
enum class Utf8Policy : uint8_t {
  refuse,   ///< IoError that names the byte
  replace,  ///< each becomes U+FFFD
  keep,     ///< they stay, for tokenizers of bytes; JSONL, being JSON, is refused all the same
};
std::span<const std::string_view> utf8_policies();
std::string_view to_string(Utf8Policy policy);
/// Throws ValueError that lists the policies.
Utf8Policy parse_utf8_policy(std::string_view name);

/// How files become documents.
struct TextOptions {
  TextFormat format = TextFormat::automatic;
  /// Of JSONL: the member that is the text; of an object within objects "meta.body".
  std::string field = "text";
  /// A byte-order mark at a file's start is dropped, unless they are kept.
  Utf8Policy utf8 = Utf8Policy::refuse;
  /// Bytes of a document, or of a line of JSON, at most: more is an error. A whole file may be longer where it is
  /// `cut`.
  size_t max_document = size_t{1} << 28;
  /// Whole files come in parts of about 4 MiB, cut where encodable_prefix() says: for tokenizers that give the same ids
  /// then. A part may have bytes that are no UTF-8 at its ends where the text has no line break.
  bool cut = false;
};

/// The bytes of several documents, as they are in the file.
struct TextBlock {
  /// A document, or a part of one.
  struct Part {
    size_t begin = 0, end = 0;  ///< of `bytes`
    uint64_t line = 0;          ///< from 1; 0 in whole files
    uint64_t byte = 0;          ///< where it begins in the unpacked file
    bool ends_document = true;
  };
  std::string bytes;
  std::vector<Part> parts;
  TextFormat format = TextFormat::whole;

  std::string_view part(const Part& p) const { return std::string_view(bytes).substr(p.begin, p.end - p.begin); }
  void clear() {
    bytes.clear();
    parts.clear();
  }
};

/// Finds the documents of one file. Does no more than that, so that many threads can do what takes time: document_of().
/// \code
///   data::TextReader reader("corpus.jsonl.gz", {.field = "text"});
///   data::TextBlock block;
///   std::string text;
///   while (reader.next(block))
///     for (const auto& part : block.parts)
///       if (data::document_of(block, part, reader.name(), {}, text)) use(text);
/// \endcode
class TextReader {
 public:
  /// As io::ByteStream's constructor.
  TextReader(const std::string& path, const TextOptions& options, io::Hasher* raw = nullptr);
  TextReader(io::ByteStream stream, const TextOptions& options);
  ~TextReader();
  TextReader(TextReader&&) noexcept;
  TextReader& operator=(TextReader&&) noexcept;

  /// The next documents, about a MiB of them, or one that is larger; false where there are no more. Where blocks end
  /// depends on the text alone. Throws IoError naming file, line and byte for a document that is too long, or
  /// compressed data that are damaged.
  bool next(TextBlock& block);
  const std::string& name() const;
  const io::ByteStream& stream() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The text of a part: the field of a line of JSON taken out, UTF-8 looked at. False where it is empty, or JSON's
/// field is null. Throws IoError naming file, line and byte: not JSON, no such field, or one that is no text.
bool document_of(const TextBlock& block, const TextBlock::Part& part, std::string_view file, const TextOptions& options,
                 std::string& text);

/// A file to read, and what it is called where the place of all of them does not matter.
struct TextFile {
  std::string path, name;
};
/// The files that are meant: a file itself; of a folder all under it that hold text, also compressed (hidden ones,
/// empty ones and those with a zero byte in their first 8 KiB are left out); what a pattern with * ? [ ] matches, a
/// folder again as such. In the order of the sources, within one in that of their paths. Throws IoError: a source is
/// missing, or has no text.
std::vector<TextFile> find_text_files(std::span<const std::string> sources);

/// The first documents of files (find_text_files), until they have `most` bytes: the one that passes it is cut there, at
/// a character. Throws IoError as TextReader and document_of do, and where there are none.
std::vector<std::string> read_documents(std::span<const std::string> sources, const TextOptions& options,
                                        uint64_t most = UINT64_MAX);

/// How much of `text` can be encoded on its own with the same result as within the whole: up to a single line break
/// between words, `wanted` to 2 * `wanted` bytes in, else all of a shorter text. Where a longer text has no such place,
/// `wanted`: the tokens around the cut may then differ (their text never does).
size_t encodable_prefix(std::string_view text, size_t wanted);

}  // namespace strata::data
