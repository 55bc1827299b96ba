#include "strata/data/text_reader.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/data/json_rows_inl.h"
#include "strata/data/names_inl.h"
#include "strata/io/files.h"
#include "strata/text/utf8.h"

namespace strata::data {
using io::quote;
namespace {

constexpr size_t kBlock = size_t{1} << 20;  // of several documents
constexpr size_t kWhole = size_t{4} << 20;  // of a part of a whole file
constexpr size_t kRead = size_t{256} << 10;
constexpr std::string_view kFormats[] = {"auto", "whole", "paragraphs", "lines", "jsonl"};
constexpr std::string_view kPolicies[] = {"refuse", "replace", "keep"};

TextFormat format_of(std::string_view path, TextFormat wanted) {
  if (wanted != TextFormat::automatic) return wanted;
  for (const std::string_view packed : {".gz", ".zz", ".zst"})
    if (path.ends_with(packed)) {
      path.remove_suffix(packed.size());
      break;
    }
  return path.ends_with(".jsonl") || path.ends_with(".ndjson") ? TextFormat::jsonl : TextFormat::whole;
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r\v\f") == std::string_view::npos;
}

}  // namespace

std::span<const std::string_view> text_formats() {
  return kFormats;
}
std::string_view to_string(TextFormat format) {
  return kFormats[static_cast<size_t>(format)];
}
TextFormat parse_text_format(std::string_view name) {
  return parse_name<TextFormat>(kFormats, name, "format of texts");
}
std::span<const std::string_view> utf8_policies() {
  return kPolicies;
}
std::string_view to_string(Utf8Policy policy) {
  return kPolicies[static_cast<size_t>(policy)];
}
Utf8Policy parse_utf8_policy(std::string_view name) {
  return parse_name<Utf8Policy>(kPolicies, name, "way with bytes that are not UTF-8");
}

struct TextReader::Impl {
  io::ByteStream stream;
  TextOptions options;
  TextFormat format;
  std::string buffer;  // read and not yet given
  size_t at = 0;       // of the buffer: where the next document begins
  uint64_t line = 1;   // there
  uint64_t byte = 0;   // there
  bool ended = false;  // of the file
  bool started = false;

  Impl(io::ByteStream s, const TextOptions& o)
      : stream(std::move(s)), options(o), format(format_of(stream.name(), o.format)) {}

  // More of the file behind what is there. False at its end.
  bool fill(size_t bytes) {
    if (ended) return false;
    if (at > 0) {
      buffer.erase(0, at);
      at = 0;
    }
    const size_t old = buffer.size();
    buffer.resize(old + bytes);
    const size_t n = stream.read(buffer.data() + old, bytes);
    buffer.resize(old + n);
    ended = n < bytes;
    if (!started) {
      started = true;
      if (options.utf8 != Utf8Policy::keep && buffer.starts_with("\xef\xbb\xbf")) take(3);
    }
    return n > 0;
  }

  void take(size_t bytes) {
    at += bytes;
    byte += bytes;
  }

  [[noreturn]] void too_long() const {
    if (format == TextFormat::whole)
      throw IoError("", cat(quote(stream.name()), " has more than ", options.max_document,
                            " bytes, too many for one document; its lines or paragraphs can be documents"));
    throw IoError("", cat(quote(stream.name()), ": line ", line, ", byte ", byte, ": the ",
                          format == TextFormat::paragraphs ? "paragraph" : "line", " that begins here has more than ",
                          options.max_document, " bytes"));
  }

  void add(TextBlock& block, size_t bytes, bool ends) {
    const size_t begin = block.bytes.size();
    block.bytes.append(buffer, at, bytes);
    block.parts.push_back({begin, begin + bytes, format == TextFormat::whole ? 0 : line, byte, ends});
  }

  // Length of the line at `from` of the buffer, its break included; nothing where the file has no more.
  std::optional<size_t> line_at(size_t from) {
    size_t searched = at + from;  // what is before it has no break
    for (;;) {
      const char* end = static_cast<const char*>(std::memchr(buffer.data() + searched, '\n', buffer.size() - searched));
      if (end) return static_cast<size_t>(end + 1 - buffer.data()) - at - from;
      if (buffer.size() - at > options.max_document + 2) too_long();
      const size_t known = buffer.size() - at;
      if (!fill(std::max(kRead, known))) break;
      searched = at + known;
    }
    const size_t rest = buffer.size() - at - from;
    return rest > 0 ? std::optional(rest) : std::nullopt;
  }

  static std::string_view without_break(std::string_view line) {
    if (line.ends_with('\n')) line.remove_suffix(1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    return line;
  }

  bool next_lines(TextBlock& block) {
    while (block.bytes.size() < kBlock) {
      const std::optional<size_t> n = line_at(0);
      if (!n) break;
      const std::string_view text = without_break(std::string_view(buffer).substr(at, *n));
      if (text.size() > options.max_document) too_long();
      if (!is_blank(text)) add(block, text.size(), true);
      take(*n);
      ++line;
    }
    return !block.parts.empty();
  }

  bool next_paragraphs(TextBlock& block) {
    while (block.bytes.size() < kBlock) {
      size_t bytes = 0, lines = 0, text = 0;  // text: without the break behind it
      for (;;) {
        const std::optional<size_t> n = line_at(bytes);
        if (!n) break;
        const std::string_view one = without_break(std::string_view(buffer).substr(at + bytes, *n));
        if (is_blank(one)) {
          if (lines > 0) break;
          take(*n);
          ++line;
          continue;
        }
        text = bytes + one.size();
        bytes += *n;
        ++lines;
        if (text > options.max_document) too_long();
      }
      if (lines == 0) break;
      add(block, text, true);
      take(bytes);
      line += lines;
    }
    return !block.parts.empty();
  }

  bool next_whole(TextBlock& block) {
    // With `cut`, what encodable_prefix looks at, and one byte that says that there is more.
    const size_t window = options.cut ? 2 * kWhole + 1 : options.max_document + 1;
    while (buffer.size() - at < window) {
      const size_t missing = window - (buffer.size() - at);
      if (!fill(options.cut ? missing : std::min(missing, std::max(kRead, buffer.size() - at)))) break;
    }
    const std::string_view rest = std::string_view(buffer).substr(at);
    if (rest.empty()) return false;
    if (!options.cut && rest.size() > options.max_document) too_long();
    size_t n = options.cut ? encodable_prefix(rest, kWhole) : rest.size();
    // Where there was no line break, not within a character either.
    if (options.utf8 != Utf8Policy::keep)
      for (size_t back = 0; back < 3 && n < rest.size() && n > 1 && (rest[n] & 0xc0) == 0x80; ++back) --n;
    add(block, n, ended && n == rest.size());
    take(n);
    return true;
  }
};

TextReader::TextReader(const std::string& path, const TextOptions& options, io::Hasher* raw)
    : impl_(std::make_unique<Impl>(io::ByteStream(path, raw), options)) {}
TextReader::TextReader(io::ByteStream stream, const TextOptions& options)
    : impl_(std::make_unique<Impl>(std::move(stream), options)) {}
TextReader::~TextReader() = default;
TextReader::TextReader(TextReader&&) noexcept = default;
TextReader& TextReader::operator=(TextReader&&) noexcept = default;

bool TextReader::next(TextBlock& block) {
  block.clear();
  block.format = impl_->format;
  switch (impl_->format) {
    case TextFormat::paragraphs:
      return impl_->next_paragraphs(block);
    case TextFormat::lines:
    case TextFormat::jsonl:
      return impl_->next_lines(block);
    default:
      return impl_->next_whole(block);
  }
}

const std::string& TextReader::name() const {
  return impl_->stream.name();
}
const io::ByteStream& TextReader::stream() const {
  return impl_->stream;
}

size_t encodable_prefix(std::string_view text, size_t wanted) {
  if (text.size() <= wanted) return text.size();
  const auto blank = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r') || (c >= 0x1c && c <= 0x1f); };
  const size_t last = std::min(text.size(), 2 * wanted);
  for (size_t at = std::max<size_t>(wanted, 2); at < last; ++at)
    if (text[at - 1] == '\n' && !blank(text[at - 2]) && !blank(text[at])) return at;
  return text.size() <= 2 * wanted ? text.size() : wanted;
}

bool document_of(const TextBlock& block, const TextBlock::Part& part, std::string_view file, const TextOptions& options,
                 std::string& text) {
  const std::string_view bytes = block.part(part);
  const bool json = block.format == TextFormat::jsonl;
  const bool keep = options.utf8 == Utf8Policy::keep && !json;
  const size_t wrong = keep ? bytes.size() : text::invalid_utf8(bytes);
  if (wrong < bytes.size() && options.utf8 != Utf8Policy::replace) {
    const auto line = part.line + static_cast<uint64_t>(std::ranges::count(bytes.substr(0, wrong), '\n'));
    throw IoError("", cat(quote(file), ": ", part.line > 0 ? cat("line ", line, ", ") : std::string(), "byte ",
                          part.byte + wrong, ": the text is not UTF-8 here, and what is not is to be refused"));
  }
  if (json) {
    if (wrong == bytes.size()) return json_text({bytes, file, part.line, part.byte}, options.field, text);
    const std::string valid = text::valid_utf8(bytes);
    return json_text({valid, file, part.line, part.byte}, options.field, text);
  }
  text = wrong == bytes.size() ? std::string(bytes) : text::valid_utf8(bytes);
  return !text.empty();
}

}  // namespace strata::data
