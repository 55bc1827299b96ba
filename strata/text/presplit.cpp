#include "strata/text/presplit.h"

#include <cstdint>

namespace strata::text {
namespace {
enum class Kind : uint8_t { letter, digit, space, other };

Kind kind_of(char c) {
  const auto byte = static_cast<unsigned char>(c);
  if (byte >= 0x80 || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z')) return Kind::letter;
  if (byte >= '0' && byte <= '9') return Kind::digit;
  if (byte == ' ' || (byte >= '\t' && byte <= '\r') || (byte >= 0x1c && byte <= 0x1f)) return Kind::space;
  return Kind::other;
}

size_t contraction_length(std::string_view text) {
  for (const std::string_view c : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"})
    if (text.starts_with(c)) return c.size();
  return 0;
}

// End of the run of `kind` from `begin`, at most kMaxPiece.
size_t run_end(std::string_view text, size_t begin, Kind kind) {
  size_t end = begin;
  while (end < text.size() && end < kMaxPiece && kind_of(text[end]) == kind) ++end;
  if (end == kMaxPiece && end < text.size()) {
    // back to the start of a UTF-8 sequence, of at most 4 bytes
    size_t cut = end;
    while (end - cut < 3 && (static_cast<unsigned char>(text[cut]) & 0xc0) == 0x80) --cut;
    if ((static_cast<unsigned char>(text[cut]) & 0xc0) != 0x80) end = cut;
  }
  return end;
}
}  // namespace

size_t piece_length(std::string_view text) {
  if (text[0] == '\'') {
    if (const size_t n = contraction_length(text)) return n;
  }
  const size_t start = text[0] == ' ' && text.size() > 1 && kind_of(text[1]) != Kind::space ? 1 : 0;
  const Kind kind = kind_of(text[start]);
  const size_t end = run_end(text, start, kind);
  // The last blank of a run goes to the word after it.
  if (kind == Kind::space && end > 1 && end < text.size() && kind_of(text[end]) != Kind::space) return end - 1;
  return end;
}

}  // namespace strata::text
