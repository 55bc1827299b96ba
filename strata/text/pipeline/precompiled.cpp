// sentencepiece's precompiled_charsmap (https://github.com/google/sentencepiece, normalizer.cc): a length, a double
// array (https://github.com/s-yata/darts-clone) from characters to places in the text of replacements that follows,
// each ended by a NUL.

#include <array>
#include <cstring>
#include <optional>

#include <utf8proc.h>

#include "strata/core/base64_inl.h"
#include "strata/text/pipeline/normalizer_inl.h"
#include "strata/text/pipeline/unicode_inl.h"
#include "strata/text/utf8.h"

namespace strata::text::pipeline {
namespace {

class Precompiled final : public Normalizer {
 public:
  explicit Precompiled(Fields& f) {
    const std::optional<std::string> blob = strata::detail::from_base64(f.string("precompiled_charsmap"));
    if (!blob) f.fail("precompiled_charsmap", "base64");
    uint32_t bytes = 0;
    const bool sized = blob->size() >= 4 && (std::memcpy(&bytes, blob->data(), 4),
                                             bytes % 4 == 0 && bytes >= 4 && bytes <= blob->size() - 4);
    if (!sized) f.fail("precompiled_charsmap", "the size of a double array, and that");
    units_.resize(bytes / 4);
    std::memcpy(units_.data(), blob->data() + 4, bytes);
    texts_ = blob->substr(4 + bytes);
    if (valid_utf8(texts_) != texts_) f.fail("precompiled_charsmap", "replacements in UTF-8");
    for (uint32_t c = 0; c < ascii_.size(); ++c) {
      const char text[] = {static_cast<char>(c)};
      ascii_[c] = replacement({text, 1}).has_value();
    }
  }

  void apply(NormalText& text) const override {
    Rewriter out(text);
    const std::string_view in = out.in();
    size_t kept = 0, at = 0;
    const auto replace = [&](size_t begin, size_t end, std::string_view made) {
      out.keep(kept, begin);
      out.put(made, begin);
      kept = end;
    };
    while (at < in.size()) {
      const auto plain = [&](size_t i) { return i >= in.size() || (in[i] & 0x80) == 0; };
      // A character between two of ASCII is no part of a longer cluster, CR LF apart.
      if (plain(at) && plain(at + 1) && in[at] != '\r') {
        if (ascii_[static_cast<size_t>(in[at])]) replace(at, at + 1, *replacement(in.substr(at, 1)));
        ++at;
        continue;
      }
      const size_t end = cluster_end(in, at);
      if (end - at < 6) {
        if (const auto made = replacement(in.substr(at, end - at))) {
          replace(at, end, *made);
          at = end;
          continue;
        }
      }
      for (; at < end; at += char_at(in, at).bytes) {
        const size_t bytes = char_at(in, at).bytes;
        if (const auto made = replacement(in.substr(at, bytes))) replace(at, at + bytes, *made);
      }
    }
    if (kept == 0) return;
    out.keep(kept, in.size());
    out.finish();
  }

 private:
  /// Ignorable characters that are not assigned break clusters as control characters do; utf8proc has none of them.
  static bool breaks(uint32_t c) {
    return c == 0x2065 || (c >= 0xfff0 && c <= 0xfff8) || c == 0xe0000 || (c >= 0xe0002 && c <= 0xe001f) ||
           (c >= 0xe0080 && c <= 0xe00ff) || (c >= 0xe01f0 && c <= 0xe0fff);
  }
  static size_t cluster_end(std::string_view in, size_t at) {
    Char c = char_at(in, at);
    if (breaks(c.code)) return at + c.bytes;
    utf8proc_int32_t state = 0;
    for (at += c.bytes; at < in.size(); at += c.bytes) {
      const auto before = static_cast<utf8proc_int32_t>(c.code);
      c = char_at(in, at);
      if (breaks(c.code)) break;
      if (utf8proc_grapheme_break_stateful(before, static_cast<utf8proc_int32_t>(c.code), &state)) break;
    }
    return at;
  }

  /// Of the shortest key that `text` begins with.
  std::optional<std::string_view> replacement(std::string_view text) const {
    const auto offset = [](uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); };
    size_t node = offset(units_[0]);
    for (const char c : text) {
      if (c == 0) return {};
      const auto label = static_cast<uint32_t>(static_cast<unsigned char>(c));
      node ^= label;
      if (node >= units_.size()) return {};
      const uint32_t unit = units_[node];
      if ((unit & (1u << 31 | 0xff)) != label) return {};
      node ^= offset(unit);
      if ((unit >> 8 & 1) == 0) continue;
      if (node >= units_.size()) return {};
      const size_t begin = units_[node] & ~(1u << 31);
      if (begin > texts_.size() || (begin < texts_.size() && (texts_[begin] & 0xc0) == 0x80)) return {};
      const size_t end = texts_.find('\0', begin);
      return std::string_view(texts_).substr(begin, (end == std::string::npos ? texts_.size() : end) - begin);
    }
    return {};
  }

  std::vector<uint32_t> units_;
  std::string texts_;
  std::array<bool, 128> ascii_{};
};

}  // namespace

std::unique_ptr<const Normalizer> parse_precompiled(Fields& fields) {
  return std::make_unique<Precompiled>(fields);
}

}  // namespace strata::text::pipeline
