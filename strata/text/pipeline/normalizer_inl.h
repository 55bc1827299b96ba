#pragma once
// "normalizer" of tokenizer.json: what is done to a text before it is split.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "strata/text/pipeline/fields_inl.h"

namespace strata::text::pipeline {

/// A text that normalisers change, and where each of its bytes comes from.
struct NormalText {
  std::string bytes;             ///< valid UTF-8
  bool starts_at_zero = true;    ///< whether its first character comes from the first of the original
  bool tracked = false;          ///< whether `origin` is kept
  std::vector<uint32_t> origin;  ///< for each byte, where in the original its character (or the one it was made of) is
  size_t limit = 0;              ///< bytes that it may grow to

  /// Throws ValueError past the limit: a file's own replacements could multiply a text without end.
  void check_size(size_t bytes) const {
    check(bytes <= limit, "tokenizer", "normalising makes more than ", limit, " bytes of the text");
  }
};
/// What a text of so many bytes may grow to.
inline size_t growth_limit(size_t bytes) {
  return (size_t{1} << 20) + 16 * bytes;
}

/// Writes a text anew, from left to right, and takes its place when finished.
class Rewriter {
 public:
  explicit Rewriter(NormalText& text) : text_(text) { out_.reserve(text.bytes.size() + 8); }
  std::string_view in() const { return text_.bytes; }
  /// Copies in()[begin, end).
  void keep(size_t begin, size_t end) {
    if (begin == end) return;
    begins(begin);
    out_.append(text_.bytes, begin, end - begin);
    if (text_.tracked)
      origin_.insert(origin_.end(), text_.origin.begin() + static_cast<ptrdiff_t>(begin),
                     text_.origin.begin() + static_cast<ptrdiff_t>(end));
  }
  /// Writes what was made of in()[source..].
  void put(std::string_view made, size_t source) {
    if (made.empty()) return;
    begins(source);
    text_.check_size(out_.size() + made.size());
    out_ += made;
    if (text_.tracked) origin_.resize(out_.size(), source < text_.origin.size() ? text_.origin[source] : 0);
  }
  void put_char(uint32_t code, size_t source);
  void finish() {
    text_.bytes.swap(out_);
    if (text_.tracked) text_.origin.swap(origin_);
    text_.starts_at_zero = text_.starts_at_zero && at_zero_;
  }

 private:
  void begins(size_t source) {
    if (out_.empty()) at_zero_ = source == 0;
  }
  NormalText& text_;
  std::string out_;
  std::vector<uint32_t> origin_;
  bool at_zero_ = true;
};

class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(NormalText& text) const = 0;
};

Parsed<Normalizer> parse_normalizer(const Json& node, std::string path, std::string_view source);

/// Unicode's normal forms (UAX 15) of a text.
enum class NormalForm { kNFC, kNFD, kNFKC, kNFKD };
void normal_form(NormalText& text, NormalForm form);

/// "pattern": {"String": ..} or {"Regex": ..}.
class Pattern;
Pattern parse_pattern(Fields& fields);

/// sentencepiece's table of replacements (its "precompiled_charsmap": a double array and the replacements), base64.
std::unique_ptr<const Normalizer> parse_precompiled(Fields& fields);

}  // namespace strata::text::pipeline
