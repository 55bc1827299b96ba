// Unicode's normal forms: utf8proc's tables, with what the `tokenizers` library's older tables do not know left as it
// is.

#include <algorithm>
#include <array>

#include <utf8proc.h>

#include "strata/text/pipeline/normalizer_inl.h"
#include "strata/text/pipeline/unicode_inl.h"

namespace strata::text::pipeline {
namespace {

bool composes(NormalForm form) {
  return form == NormalForm::kNFC || form == NormalForm::kNFKC;
}
utf8proc_option_t options(NormalForm form) {
  const bool compatible = form == NormalForm::kNFKC || form == NormalForm::kNFKD;
  return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | (composes(form) ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                                        (compatible ? UTF8PROC_COMPAT : 0));
}
// Marks that the older tables do not know are characters of their own: none passes them.
int combining_class(utf8proc_int32_t c) {
  return combining_marks().contains(static_cast<uint32_t>(c)) ? utf8proc_get_property(c)->combining_class : 0;
}

constexpr int kMostOfOne = 32;  // characters that one decomposes to: 18 by the standard
int decompose(uint32_t c, utf8proc_int32_t* out, NormalForm form) {
  int boundary = UTF8PROC_BOUNDCLASS_START;
  const auto n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), out, kMostOfOne, options(form), &boundary);
  check(n >= 0 && n <= kMostOfOne, "tokenizer", "the normal form of character ", c, ": ", utf8proc_errmsg(n));
  return static_cast<int>(n);
}

/// The characters that a form may change where they stand alone, or that may join or pass the one before them.
std::vector<uint64_t> unstable_chars(NormalForm form) {
  constexpr uint32_t kEnd = 0x110000;
  std::vector<uint64_t> bits(kEnd / 64);
  const auto mark = [&](utf8proc_int32_t c) { bits[static_cast<size_t>(c) >> 6] |= uint64_t{1} << (c & 63); };
  std::array<utf8proc_int32_t, kMostOfOne> made{};
  for (uint32_t code = 0x80; code < kEnd; ++code) {
    const auto c = static_cast<utf8proc_int32_t>(code);
    const auto category = utf8proc_category(c);
    if (category == UTF8PROC_CATEGORY_CN || category == UTF8PROC_CATEGORY_CS || category == UTF8PROC_CATEGORY_CO)
      continue;
    if (not_decomposed().contains(code)) continue;
    if (combining_class(c) != 0) mark(c);
    int n = decompose(code, made.data(), form);
    if (n == 1 && made[0] == c) continue;
    if (composes(form)) {
      // What is whole again after composing is stable, but its parts join what is before them.
      for (int i = 1; i < n; ++i) mark(made[static_cast<size_t>(i)]);
      n = static_cast<int>(utf8proc_normalize_utf32(made.data(), n, options(form)));
      if (n == 1 && made[0] == c) continue;
    }
    mark(c);
  }
  return bits;
}

const std::vector<uint64_t>& unstable(NormalForm form) {
  static const auto nfc = unstable_chars(NormalForm::kNFC), nfd = unstable_chars(NormalForm::kNFD),
                    nfkc = unstable_chars(NormalForm::kNFKC), nfkd = unstable_chars(NormalForm::kNFKD);
  switch (form) {
    case NormalForm::kNFC:
      return nfc;
    case NormalForm::kNFD:
      return nfd;
    case NormalForm::kNFKC:
      return nfkc;
    default:
      return nfkd;
  }
}

/// The form of a run of characters that nothing outside of it touches.
void form_of_run(std::string_view run, NormalForm form, std::vector<utf8proc_int32_t>& chars, std::string& out) {
  chars.clear();
  for (size_t at = 0; at < run.size();) {
    const Char c = char_at(run, at);
    const size_t old = chars.size();
    chars.resize(old + kMostOfOne);
    chars.resize(old + static_cast<size_t>(decompose(c.code, chars.data() + old, form)));
    at += c.bytes;
  }
  for (size_t b = 0; b < chars.size();) {
    size_t e = b;
    while (e < chars.size() && combining_class(chars[e]) != 0) ++e;
    std::stable_sort(chars.begin() + static_cast<ptrdiff_t>(b), chars.begin() + static_cast<ptrdiff_t>(e),
                     [](auto x, auto y) { return combining_class(x) < combining_class(y); });
    b = e + 1;
  }
  auto n = static_cast<utf8proc_ssize_t>(chars.size());
  if (composes(form)) n = utf8proc_normalize_utf32(chars.data(), n, options(form));
  out.clear();
  for (utf8proc_ssize_t i = 0; i < n; ++i) append_char(out, static_cast<uint32_t>(chars[static_cast<size_t>(i)]));
}

}  // namespace

void normal_form(NormalText& text, NormalForm form) {
  const std::string_view in = text.bytes;
  const std::vector<uint64_t>* bits = nullptr;
  const auto is_unstable = [&](uint32_t c) {
    if (bits == nullptr) bits = &unstable(form);
    return ((*bits)[c >> 6] >> (c & 63) & 1) != 0;
  };
  Rewriter out(text);
  std::vector<utf8proc_int32_t> chars;
  std::string made;
  size_t kept = 0, previous = 0;  // `previous`: where the last stable character begins
  bool changed = false;
  for (size_t at = 0; at < in.size();) {
    if (static_cast<unsigned char>(in[at]) < 0x80) {
      previous = at++;
      continue;
    }
    const Char c = char_at(in, at);
    if (!is_unstable(c.code)) {
      previous = at;
      at += c.bytes;
      continue;
    }
    size_t begin = at;
    if (composes(form) && previous < at && previous >= kept && !not_decomposed().contains(char_at(in, previous).code))
      begin = previous;
    size_t end = at;
    while (end < in.size() && is_unstable(char_at(in, end).code)) end += char_at(in, end).bytes;
    form_of_run(in.substr(begin, end - begin), form, chars, made);
    out.keep(kept, begin);
    out.put(made, begin);
    kept = previous = at = end;
    changed = true;
  }
  if (!changed) return;
  out.keep(kept, in.size());
  out.finish();
}

}  // namespace strata::text::pipeline
