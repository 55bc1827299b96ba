#pragma once
// Characters of valid UTF-8 and sets of them.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "strata/text/pipeline/unicode_sets_inl.h"

namespace strata::text::pipeline {

/// A character and how many bytes it takes.
struct Char {
  uint32_t code;
  uint32_t bytes;
};

/// The character at `at` of valid UTF-8, at < text.size().
inline Char char_at(std::string_view text, size_t at) {
  const auto b = [&](size_t i) { return static_cast<uint32_t>(static_cast<unsigned char>(text[at + i])); };
  const uint32_t first = b(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xe0) return {(first & 0x1f) << 6 | (b(1) & 0x3f), 2};
  if (first < 0xf0) return {(first & 0xf) << 12 | (b(1) & 0x3f) << 6 | (b(2) & 0x3f), 3};
  return {(first & 7) << 18 | (b(1) & 0x3f) << 12 | (b(2) & 0x3f) << 6 | (b(3) & 0x3f), 4};
}
/// The character that ends at `end` of valid UTF-8, end > 0.
inline Char char_before(std::string_view text, size_t end) {
  size_t at = end - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80) --at;
  return char_at(text, at);
}
void append_char(std::string& out, uint32_t code);
/// How many characters valid UTF-8 has.
size_t count_chars(std::string_view text);

/// A set of characters, one bit each up to the last.
class CharSet {
 public:
  explicit CharSet(std::span<const CharRange> ranges);
  bool contains(uint32_t c) const { return c < 64 * bits_.size() && (bits_[c >> 6] >> (c & 63) & 1) != 0; }

 private:
  std::vector<uint64_t> bits_;
};

// The sets of unicode_sets_inl.h, made when first asked for.
const CharSet& space_chars();
const CharSet& control_chars();
const CharSet& punctuation_chars();
const CharSet& numeric_chars();
const CharSet& nonspacing_marks();
const CharSet& combining_marks();
const CharSet& word_chars();
const CharSet& not_decomposed();
/// The script of a character as UnicodeScripts counts them, 0 for any.
int script_of(uint32_t code);

/// Appends every byte of `text` in the alphabet of byte-level tokenizers (GPT-2): a printable character for each byte.
void append_bytes_spelled(std::string& out, std::string_view text);
/// The byte that a character of the alphabet stands for, -1 for others.
int byte_spelled(uint32_t code);

}  // namespace strata::text::pipeline
