#include <algorithm>
#include <array>

#include <utf8proc.h>

#include "strata/text/pipeline/normalizer_inl.h"
#include "strata/text/pipeline/regex_inl.h"
#include "strata/text/pipeline/unicode_inl.h"

namespace strata::text::pipeline {

void Rewriter::put_char(uint32_t code, size_t source) {
  std::string made;
  append_char(made, code);
  put(made, source);
}

Pattern parse_pattern(Fields& fields) {
  constexpr std::string_view wanted = "{\"String\": a string} or {\"Regex\": an expression}";
  const Json* found = fields.find("pattern");
  if (found == nullptr || !found->is_object() || found->size() != 1) fields.fail("pattern", wanted);
  const std::string& kind = found->begin().key();
  const Json& text = found->begin().value();
  if (!text.is_string() || (kind != "String" && kind != "Regex")) fields.fail("pattern", wanted);
  fields.keep("pattern", *found);
  if (kind == "String") return Pattern::of_string(text.get<std::string>());
  try {
    return Pattern::of_regex(text.get<std::string>());
  } catch (const ValueError& e) {
    fields.fail("pattern", cat("an expression that can be run (", e.what(), ")"));
  }
}

namespace {

/// Rewrites each character for itself: `each(code, append)`; ASCII characters for which `plain(c)` holds are copied in
/// runs.
template <class Plain, class Each>
void each_char(NormalText& text, Plain&& plain, Each&& each) {
  Rewriter out(text);
  const std::string_view in = out.in();
  size_t kept = 0, at = 0;
  while (at < in.size()) {
    const auto byte = static_cast<unsigned char>(in[at]);
    if (byte < 0x80 && plain(byte)) {
      ++at;
      continue;
    }
    const Char c = char_at(in, at);
    if (each.unchanged(c.code)) {
      at += c.bytes;
      continue;
    }
    out.keep(kept, at);
    each.write(c.code, at, out);
    at += c.bytes;
    kept = at;
  }
  if (kept == 0) return;  // nothing was written anew
  out.keep(kept, in.size());
  out.finish();
}

struct Form final : Normalizer {
  explicit Form(NormalForm f) : form(f) {}
  void apply(NormalText& text) const override { normal_form(text, form); }
  NormalForm form;
};
template <NormalForm kForm>
std::unique_ptr<const Normalizer> parse_form(Fields&) {
  return std::make_unique<Form>(kForm);
}

/// Lower case of each character by itself; U+0130 becomes two.
struct LowercaseEach {
  static bool unchanged(uint32_t c) {
    return c != 0x130 && static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))) == c;
  }
  static void write(uint32_t c, size_t at, Rewriter& out) {
    if (c == 0x130) {
      out.put("i\xcc\x87", at);
    } else {
      out.put_char(static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), at);
    }
  }
};
void lowercase(NormalText& text) {
  each_char(
      text, [](unsigned char c) { return c < 'A' || c > 'Z'; }, LowercaseEach());
}
struct Lowercase final : Normalizer {
  void apply(NormalText& text) const override { lowercase(text); }
};

/// Leaves out the characters of a set.
struct Without {
  const CharSet& set;
  bool unchanged(uint32_t c) const { return !set.contains(c); }
  static void write(uint32_t, size_t, Rewriter&) {}
};
struct StripAccents final : Normalizer {
  void apply(NormalText& text) const override {
    each_char(
        text, [](unsigned char) { return true; }, Without{combining_marks()});
  }
};

struct Strip final : Normalizer {
  bool left = true, right = true;
  void apply(NormalText& text) const override {
    Rewriter out(text);
    const std::string_view in = out.in();
    size_t begin = 0, end = in.size();
    const CharSet& spaces = space_chars();
    if (left)
      for (Char c{}; begin < end && spaces.contains((c = char_at(in, begin)).code); begin += c.bytes) {
      }
    if (right)
      for (Char c{}; end > begin && spaces.contains((c = char_before(in, end)).code); end -= c.bytes) {
      }
    if (begin == 0 && end == in.size()) return;
    out.keep(begin, end);
    out.finish();
  }
};

/// What sentencepiece's "nmt" rules do to control characters and blanks.
struct NmtEach {
  static bool removed(uint32_t c) {
    return (c >= 1 && c <= 8) || c == 0xb || (c >= 0xe && c <= 0x1f) || c == 0x7f || c == 0x8f || c == 0x9f;
  }
  static bool blank(uint32_t c) {
    return c == 9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 || (c >= 0x200b && c <= 0x200f) || c == 0x2028 ||
           c == 0x2029 || c == 0x2581 || c == 0xfeff || c == 0xfffd;
  }
  static bool unchanged(uint32_t c) { return !removed(c) && !blank(c); }
  static void write(uint32_t c, size_t at, Rewriter& out) {
    if (blank(c)) out.put(" ", at);
  }
};
struct Nmt final : Normalizer {
  void apply(NormalText& text) const override {
    each_char(
        text, [](unsigned char c) { return c >= 0x20 && c != 0x7f; }, NmtEach());
  }
};

struct Replace final : Normalizer {
  explicit Replace(Fields& f) : pattern(parse_pattern(f)), content(f.string("content")) {}
  void apply(NormalText& text) const override {
    Rewriter out(text);
    Pattern::Matches matches(pattern, out.in());
    size_t at = 0;
    bool any = false;
    for (Match m{}; matches.next(m); at = m.end, any = true) {
      out.keep(at, m.begin);
      out.put(content, m.begin);
    }
    if (!any) return;
    out.keep(at, out.in().size());
    out.finish();
  }
  Pattern pattern;
  std::string content;
};

struct Prepend final : Normalizer {
  explicit Prepend(Fields& f) : content(f.string("prepend")) {}
  void apply(NormalText& text) const override {
    if (text.bytes.empty()) return;
    text.check_size(text.bytes.size() + content.size());
    text.bytes.insert(0, content);
    if (text.tracked) text.origin.insert(text.origin.begin(), content.size(), text.origin.front());
  }
  std::string content;
};

struct ByteLevelNormalizer final : Normalizer {
  void apply(NormalText& text) const override {
    Rewriter out(text);
    const std::string_view in = out.in();
    std::string made;
    for (size_t at = 0; at < in.size(); at += char_at(in, at).bytes) {
      made.clear();
      append_bytes_spelled(made, in.substr(at, char_at(in, at).bytes));
      out.put(made, at);
    }
    out.finish();
  }
};

/// The CJK blocks that BERT's own tokenizer put blanks around.
bool is_chinese(uint32_t c) {
  constexpr CharRange blocks[] = {{0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xf900, 0xfaff},   {0x20000, 0x2a6df},
                                  {0x2a700, 0x2b73f}, {0x2b740, 0x2b81f}, {0x2b920, 0x2ceaf}, {0x2f800, 0x2fa1f}};
  return std::any_of(std::begin(blocks), std::end(blocks), [&](CharRange b) { return c >= b.first && c <= b.last; });
}
struct CleanEach {
  static bool removed(uint32_t c) { return c == 0 || c == 0xfffd || control_chars().contains(c); }
  static bool unchanged(uint32_t c) { return !removed(c) && (c == ' ' || !space_chars().contains(c)); }
  static void write(uint32_t c, size_t at, Rewriter& out) {
    if (!removed(c)) out.put(" ", at);
  }
};
struct SpacedEach {
  static bool unchanged(uint32_t c) { return !is_chinese(c); }
  static void write(uint32_t c, size_t at, Rewriter& out) {
    std::string made = " ";
    append_char(made, c);
    out.put(made + ' ', at);
  }
};

struct BertNormalizer final : Normalizer {
  explicit BertNormalizer(Fields& f) : clean(f.boolean("clean_text")), chinese(f.boolean("handle_chinese_chars")) {
    const std::optional<bool> strip = f.optional_boolean("strip_accents");
    lower = f.boolean("lowercase");
    accents = strip.value_or(lower);
    for (int c = 0; c < 128; ++c) {
      const auto code = static_cast<uint32_t>(c);
      const bool upper = c >= 'A' && c <= 'Z';
      ascii[static_cast<size_t>(c)] = static_cast<char>(clean && CleanEach::removed(code)      ? 0
                                                        : clean && !CleanEach::unchanged(code) ? ' '
                                                        : lower && upper                       ? c + 32
                                                                                               : c);
    }
  }
  void apply(NormalText& text) const override {
    const auto is_ascii = [](char c) { return static_cast<signed char>(c) >= 0; };
    if (!text.tracked && std::all_of(text.bytes.begin(), text.bytes.end(), is_ascii)) return apply_ascii(text);
    const auto plain = [](unsigned char c) { return c >= 0x20 && c < 0x7f; };
    const auto any = [](unsigned char) { return true; };
    if (clean) each_char(text, plain, CleanEach());
    if (chinese) each_char(text, any, SpacedEach());
    if (accents) {
      normal_form(text, NormalForm::kNFD);
      each_char(text, any, Without{nonspacing_marks()});
    }
    if (lower) lowercase(text);
  }
  void apply_ascii(NormalText& text) const {
    if (text.bytes.empty()) return;
    // Without clean_text a NUL stays, and stands for itself in the table.
    const bool drops = clean;
    text.starts_at_zero = text.starts_at_zero && (!drops || ascii[static_cast<unsigned char>(text.bytes[0])] != 0);
    size_t n = 0;
    for (const char c : text.bytes) {
      const char made = ascii[static_cast<unsigned char>(c)];
      text.bytes[n] = made;
      n += !drops || made != 0 ? 1 : 0;
    }
    text.bytes.resize(n);
  }
  bool clean, chinese, lower, accents;
  std::array<char, 128> ascii;  // what becomes of each, 0: nothing
};

struct Sequence final : Normalizer {
  void apply(NormalText& text) const override {
    for (const auto& part : parts) part->apply(text);
  }
  std::vector<std::unique_ptr<const Normalizer>> parts;
};
std::unique_ptr<const Normalizer> parse_sequence(Fields& f) {
  auto sequence = std::make_unique<Sequence>();
  f.list("normalizers", kMaxParts, [&](const Json& node, std::string path) {
    Parsed<Normalizer> parsed = parse_normalizer(node, std::move(path), f.source());
    sequence->parts.push_back(std::move(parsed.part));
    return std::move(parsed.json);
  });
  return sequence;
}

std::unique_ptr<const Normalizer> parse_strip(Fields& f) {
  auto strip = std::make_unique<Strip>();
  strip->left = f.boolean("strip_left");
  strip->right = f.boolean("strip_right");
  return strip;
}

template <class T>
std::unique_ptr<const Normalizer> parse_plain(Fields&) {
  return std::make_unique<T>();
}
template <class T>
std::unique_ptr<const Normalizer> parse_fields(Fields& f) {
  return std::make_unique<T>(f);
}

constexpr Kind<Normalizer> kNormalizers[] = {
    {"Sequence", parse_sequence},
    {"BertNormalizer", parse_fields<BertNormalizer>},
    {"NFC", parse_form<NormalForm::kNFC>},
    {"NFD", parse_form<NormalForm::kNFD>},
    {"NFKC", parse_form<NormalForm::kNFKC>},
    {"NFKD", parse_form<NormalForm::kNFKD>},
    {"Lowercase", parse_plain<Lowercase>},
    {"Strip", parse_strip},
    {"StripAccents", parse_plain<StripAccents>},
    {"Nmt", parse_plain<Nmt>},
    {"Precompiled", parse_precompiled},
    {"Replace", parse_fields<Replace>},
    {"Prepend", parse_fields<Prepend>},
    {"ByteLevel", parse_plain<ByteLevelNormalizer>},
};

}  // namespace

Parsed<Normalizer> parse_normalizer(const Json& node, std::string path, std::string_view source) {
  return parse_part<Normalizer>(node, std::move(path), source, kNormalizers);
}

}  // namespace strata::text::pipeline
