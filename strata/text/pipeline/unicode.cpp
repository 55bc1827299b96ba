#include <algorithm>
#include <array>
#include <utility>

#include "strata/text/pipeline/unicode_inl.h"

namespace strata::text::pipeline {

void append_char(std::string& out, uint32_t c) {
  const auto put = [&](uint32_t b) { out += static_cast<char>(b); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xc0 | c >> 6);
    put(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    put(0xe0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3f));
    put(0x80 | (c & 0x3f));
  } else {
    put(0xf0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3f));
    put(0x80 | (c >> 6 & 0x3f));
    put(0x80 | (c & 0x3f));
  }
}

size_t count_chars(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

CharSet::CharSet(std::span<const CharRange> ranges) : bits_(ranges.back().last / 64 + 1) {
  for (const CharRange& r : ranges)
    for (uint32_t c = r.first; c <= r.last; ++c) bits_[c >> 6] |= uint64_t{1} << (c & 63);
}

const CharSet& space_chars() {
  static const CharSet set(kSpaceChars);
  return set;
}
const CharSet& control_chars() {
  static const CharSet set(kControlChars);
  return set;
}
const CharSet& punctuation_chars() {
  static const CharSet set(kPunctuationChars);
  return set;
}
const CharSet& numeric_chars() {
  static const CharSet set(kNumericChars);
  return set;
}
const CharSet& nonspacing_marks() {
  static const CharSet set(kNonspacingMarks);
  return set;
}
const CharSet& combining_marks() {
  static const CharSet set(kCombiningMarks);
  return set;
}
const CharSet& word_chars() {
  static const CharSet set(kWordChars);
  return set;
}
const CharSet& not_decomposed() {
  static const CharSet set(kNotDecomposed);
  return set;
}

int script_of(uint32_t code) {
  const auto* after = std::upper_bound(std::begin(kScripts), std::end(kScripts), code,
                                       [](uint32_t c, const ScriptRange& r) { return c < r.first; });
  return after != std::begin(kScripts) && code <= after[-1].last ? after[-1].script : 0;
}

namespace {

constexpr bool is_printable(uint32_t b) {
  return (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b != 0xad);
}

/// Printable bytes are spelled as the character of the same number, the others in their order from U+0100 on.
constexpr std::array<uint32_t, 256> byte_codes() {
  std::array<uint32_t, 256> codes{};
  uint32_t next = 256;
  for (uint32_t b = 0; b < 256; ++b) codes[b] = is_printable(b) ? b : next++;
  return codes;
}
constexpr std::array<uint32_t, 256> kByteCodes = byte_codes();

constexpr std::array<int16_t, 324> bytes_of_codes() {
  std::array<int16_t, 324> bytes{};
  for (auto& b : bytes) b = -1;
  for (uint32_t b = 0; b < 256; ++b) bytes[kByteCodes[b]] = static_cast<int16_t>(b);
  return bytes;
}
constexpr std::array<int16_t, 324> kBytesOfCodes = bytes_of_codes();

struct ByteSpelling {
  char text[2];
  uint8_t size;
};
constexpr ByteSpelling spelling(uint32_t b) {
  const uint32_t c = kByteCodes[b];
  if (c < 0x80) return {{static_cast<char>(c), 0}, 1};
  return {{static_cast<char>(0xc0 | c >> 6), static_cast<char>(0x80 | (c & 0x3f))}, 2};
}

template <size_t... I>
constexpr std::array<ByteSpelling, 256> spellings(std::index_sequence<I...>) {
  return {spelling(I)...};
}
constexpr std::array<ByteSpelling, 256> kSpelled = spellings(std::make_index_sequence<256>());

}  // namespace

void append_bytes_spelled(std::string& out, std::string_view text) {
  const size_t old = out.size();
  out.resize(old + 2 * text.size());
  char* at = out.data() + old;
  for (const char c : text) {
    const ByteSpelling& s = kSpelled[static_cast<unsigned char>(c)];
    at[0] = s.text[0];
    at[1] = s.text[1];
    at += s.size;
  }
  out.resize(static_cast<size_t>(at - out.data()));
}

int byte_spelled(uint32_t code) {
  return code < kBytesOfCodes.size() ? kBytesOfCodes[code] : -1;
}

}  // namespace strata::text::pipeline
