#include "strata/text/pipeline/decoder_inl.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>

#include "strata/text/pipeline/normalizer_inl.h"
#include "strata/text/pipeline/regex_inl.h"
#include "strata/text/pipeline/unicode_inl.h"
#include "strata/text/utf8.h"

namespace strata::text::pipeline {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

/// `text` with each `from` replaced; an empty `from` stands between all characters.
std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  for (size_t at = 0;;) {
    if (from.empty()) {
      out += to;
      if (at == text.size()) return out;
      const size_t bytes = char_at(text, at).bytes;
      out += text.substr(at, bytes);
      at += bytes;
      continue;
    }
    const size_t found = text.find(from, at);
    out += text.substr(at, found - at);
    if (found == std::string_view::npos) return out;
    out += to;
    at = found + from.size();
  }
}

struct Pair {
  std::string_view from, to;
};
/// In this order, by WordPiece and CTC.
constexpr Pair kCleanUp[] = {{" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
                             {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
                             {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
std::string cleaned_up(std::string text) {
  for (const Pair& p : kCleanUp) text = replaced(text, p.from, p.to);
  return text;
}

/// A stage that looks at whole tokens: `token` is called with each.
class WholeTokens : public DecodeStage {
 public:
  using DecodeStage::DecodeStage;
  void part(std::string_view text) override { open_ += text; }
  void end() override {
    token(open_);
    open_.clear();
  }
  void finish() override { next_.finish(); }

 protected:
  virtual void token(std::string& text) = 0;

 private:
  std::string open_;
};

/// Bytes of the longest begin of a character (Unicode, table 3-7) that `text` begins with, at least one; it begins with
/// no whole one.
size_t begun_char(std::string_view text) {
  const auto at = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0; };
  const int first = at(0), second = at(1);
  const int low = first == 0xe0   ? 0xa0
                  : first == 0xf0 ? 0x90
                                  : 0x80,
            high = first == 0xed   ? 0x9f
                   : first == 0xf4 ? 0x8f
                                   : 0xbf;
  if (first < 0xe0 || first > 0xf4 || second < low || second > high) return 1;
  return first >= 0xf0 && (at(2) & 0xc0) == 0x80 ? 3 : 2;
}
bool may_go_on(std::string_view begun) {
  const auto first = static_cast<unsigned char>(begun[0]);
  return first >= 0xc2 && first <= 0xf4;
}

/// The bytes of tokens in the byte alphabet, together one token; others stand for themselves. What is no UTF-8 becomes
/// U+FFFD, one for each longest begin of a character.
class ByteLevelStage final : public WholeTokens {
 public:
  using WholeTokens::WholeTokens;
  void token(std::string& text) override {
    const size_t old = bytes_.size();
    for (size_t at = 0; at < text.size();) {
      const Char c = char_at(text, at);
      const int byte = byte_spelled(c.code);
      if (byte < 0) {
        bytes_.resize(old);
        bytes_ += text;
        break;
      }
      bytes_ += static_cast<char>(byte);
      at += c.bytes;
    }
    give(false);
  }
  void finish() override {
    give(true);
    next_.end();
    next_.finish();
  }

 private:
  /// Passes on the characters that are complete, at the end all.
  void give(bool all) {
    std::string out;
    size_t at = 0;
    while (at < bytes_.size()) {
      const std::string_view rest = std::string_view(bytes_).substr(at);
      if (const size_t n = utf8_length(rest); n > 0) {
        out += rest.substr(0, n);
        at += n;
        continue;
      }
      const size_t begun = begun_char(rest);
      if (begun == rest.size() && may_go_on(rest) && !all) break;
      out += kReplacement;
      at += begun;
    }
    bytes_.erase(0, at);
    if (!out.empty()) next_.part(out);
  }
  std::string bytes_;
};

/// Pieces that begin with the prefix go on with the word before them; other words get a blank.
class WordPieceStage final : public WholeTokens {
 public:
  WordPieceStage(TokenSink& next, const std::string& prefix, bool cleanup)
      : WholeTokens(next), prefix_(prefix), cleanup_(cleanup) {}
  void token(std::string& text) override {
    if (!std::exchange(first_, false)) {
      if (text.starts_with(prefix_))
        text.erase(0, prefix_.size());
      else
        text.insert(0, 1, ' ');
    }
    pass(cleanup_ ? cleaned_up(std::move(text)) : text);
  }

 private:
  const std::string& prefix_;
  bool cleanup_, first_ = true;
};

/// The mark becomes a blank; in the first token nothing, unless no mark was ever put in front.
class MetaspaceStage final : public DecodeStage {
 public:
  MetaspaceStage(TokenSink& next, const std::string& mark, bool prepended)
      : DecodeStage(next), mark_(mark), prepended_(prepended) {}
  void part(std::string_view text) override { next_.part(replaced(text, mark_, first_ && prepended_ ? "" : " ")); }
  void end() override {
    first_ = false;
    next_.end();
  }
  void finish() override { next_.finish(); }

 private:
  const std::string& mark_;
  bool prepended_, first_ = true;
};

/// The suffix of a word's last piece becomes a blank, in the last token nothing.
class BpeStage final : public WholeTokens {
 public:
  BpeStage(TokenSink& next, const std::string& suffix) : WholeTokens(next), suffix_(suffix) {}
  void token(std::string& text) override {
    if (held_any_) pass(replaced(held_, suffix_, " "));
    held_ = text;
    held_any_ = true;
  }
  void finish() override {
    if (held_any_) pass(replaced(held_, suffix_, ""));
    next_.finish();
  }

 private:
  const std::string& suffix_;
  std::string held_;
  bool held_any_ = false;
};

/// Of equal neighbours one stays; padding goes.
class CtcStage final : public WholeTokens {
 public:
  CtcStage(TokenSink& next, const std::string& pad, const std::string& delimiter, bool cleanup)
      : WholeTokens(next), pad_(pad), delimiter_(delimiter), cleanup_(cleanup) {}
  void token(std::string& text) override {
    if (any_ && text == last_) return;
    any_ = true;
    last_ = text;
    std::string made = replaced(text, pad_, "");
    if (cleanup_) made = replaced(cleaned_up(std::move(made)), delimiter_, " ");
    if (!made.empty()) pass(made);
  }

 private:
  const std::string &pad_, &delimiter_;
  std::string last_;
  bool cleanup_, any_ = false;
};

class ReplaceStage final : public DecodeStage {
 public:
  ReplaceStage(TokenSink& next, const Pattern& pattern, const std::string& content)
      : DecodeStage(next), pattern_(pattern), content_(content) {}
  void part(std::string_view text) override {
    open_ += text;
    // An expression may look at anything; of a string, what may be the begin of one more is kept back.
    if (pattern_.string().empty()) return;
    const size_t keep = begun_match();
    std::string rest = open_.substr(open_.size() - keep);
    open_.resize(open_.size() - keep);
    give();
    open_ = std::move(rest);
  }
  void end() override {
    give();
    open_.clear();
    next_.end();
  }
  void finish() override { next_.finish(); }

 private:
  /// The bytes at the end that are no part of a whole match and a proper begin of the string.
  size_t begun_match() const {
    const std::string& wanted = pattern_.string();
    size_t behind = 0;  // behind the last whole match
    Pattern::Matches matches(pattern_, open_);
    for (Match m{}; matches.next(m);) behind = m.end;
    const std::string_view rest = std::string_view(open_).substr(behind);
    for (size_t n = std::min(rest.size(), wanted.size() - 1); n > 0; --n)
      if (wanted.starts_with(rest.substr(rest.size() - n))) return n;
    return 0;
  }
  void give() {
    if (open_.empty()) return;
    NormalText bound;
    bound.limit = growth_limit(open_.size());
    std::string out;
    size_t at = 0;
    Pattern::Matches matches(pattern_, open_);
    for (Match m{}; matches.next(m); at = m.end) {
      out.append(open_, at, m.begin - at);
      out += content_;
      bound.check_size(out.size());
    }
    out.append(open_, at, std::string::npos);
    if (!out.empty()) next_.part(out);
  }
  const Pattern& pattern_;
  const std::string& content_;
  std::string open_;
};

class FuseStage final : public DecodeStage {
 public:
  using DecodeStage::DecodeStage;
  void part(std::string_view text) override { next_.part(text); }
  void end() override {}
  void finish() override {
    next_.end();
    next_.finish();
  }
};

/// Tokens like <0x41> are bytes; a run of them is text where all of it is UTF-8, else U+FFFD for each.
class ByteFallbackStage final : public WholeTokens {
 public:
  using WholeTokens::WholeTokens;
  void token(std::string& text) override {
    if (text.size() == 6 && text.starts_with("<0x") && text[5] == '>') {
      unsigned byte = 0;
      const auto [end, error] = std::from_chars(text.data() + 3, text.data() + 5, byte, 16);
      // As the library reads numbers, a sign may stand in front.
      const bool plus =
          text[3] == '+' && std::from_chars(text.data() + 4, text.data() + 5, byte, 16).ptr == text.data() + 5;
      if (plus || (error == std::errc() && end == text.data() + 5)) {
        run_ += static_cast<char>(byte);
        return;
      }
    }
    give();
    pass(text);
  }
  void finish() override {
    give();
    next_.finish();
  }

 private:
  void give() {
    if (run_.empty()) return;
    size_t at = 0;
    while (at < run_.size()) {
      const size_t n = utf8_length(std::string_view(run_).substr(at));
      if (n == 0) break;
      at += n;
    }
    if (at == run_.size()) {
      pass(run_);
    } else {
      for (size_t i = 0; i < run_.size(); ++i) pass(kReplacement);
    }
    run_.clear();
  }
  std::string run_;
};

/// Up to so many of one character go from the begin and from the end of each token.
class StripStage final : public DecodeStage {
 public:
  StripStage(TokenSink& next, const std::string& content, size_t start, size_t stop)
      : DecodeStage(next), content_(content), start_(start), stop_(stop) {}
  void part(std::string_view text) override {
    while (leading_ && cut_ < start_ && text.starts_with(content_)) {
      text.remove_prefix(content_.size());
      ++cut_;
    }
    if (text.empty()) return;
    leading_ = false;
    // The last `stop` of them, if they stay the last, go.
    size_t end = text.size(), trailing = 0;
    for (; text.substr(0, end).ends_with(content_); ++trailing) end -= content_.size();
    if (end > 0) {
      give(held_);
      next_.part(text.substr(0, end));
      held_ = 0;
    }
    held_ += trailing;
    if (held_ > stop_) {
      give(held_ - stop_);
      held_ = stop_;
    }
  }
  void end() override {
    held_ = 0;
    leading_ = true;
    cut_ = 0;
    next_.end();
  }
  void finish() override { next_.finish(); }

 private:
  void give(size_t times) {
    std::string made;
    for (size_t i = 0; i < times; ++i) made += content_;
    if (times > 0) next_.part(made);
  }
  const std::string& content_;
  size_t start_, stop_;
  bool leading_ = true;
  size_t cut_ = 0, held_ = 0;
};

class BlanksStage final : public DecodeStage {
 public:
  using DecodeStage::DecodeStage;
  void part(std::string_view text) override {
    begin();
    next_.part(text);
  }
  void end() override {
    begin();
    open_ = false;
    next_.end();
  }
  void finish() override { next_.finish(); }

 private:
  void begin() {
    if (!std::exchange(open_, true) && !std::exchange(first_, false)) next_.part(" ");
  }
  bool open_ = false, first_ = true;
};

using Stages = std::vector<std::unique_ptr<TokenSink>>;
template <class Stage, class... Args>
void put_in_front(Stages& stages, const Args&... args) {
  stages.push_back(std::make_unique<Stage>(*stages.back(), args...));
}

struct ByteLevel final : Decoder {
  explicit ByteLevel(Fields& f) {
    f.boolean("add_prefix_space", true);
    f.boolean("trim_offsets", true);
    f.boolean("use_regex", true);
  }
  void start(Stages& stages) const override { put_in_front<ByteLevelStage>(stages); }
};
struct WordPiece final : Decoder {
  explicit WordPiece(Fields& f) : prefix(f.string("prefix")), cleanup(f.boolean("cleanup")) {}
  void start(Stages& stages) const override { put_in_front<WordPieceStage>(stages, prefix, cleanup); }
  std::string prefix;
  bool cleanup;
};
struct Metaspace final : Decoder {
  explicit Metaspace(Fields& f) {
    constexpr std::string_view schemes[] = {"first", "never", "always"};
    append_char(mark, f.character("replacement"));
    prepended = f.choice("prepend_scheme", schemes, 2) != 1;
    const Json* prefix = f.find("add_prefix_space");
    if (prefix != nullptr && *prefix == false && prepended) f.fail("add_prefix_space", "what prepend_scheme says");
    f.boolean("split", true);
  }
  void start(Stages& stages) const override { put_in_front<MetaspaceStage>(stages, mark, prepended); }
  std::string mark;
  bool prepended;
};
struct BpeDecoder final : Decoder {
  explicit BpeDecoder(Fields& f) : suffix(f.string("suffix")) {}
  void start(Stages& stages) const override { put_in_front<BpeStage>(stages, suffix); }
  std::string suffix;
};
struct Ctc final : Decoder {
  explicit Ctc(Fields& f)
      : pad(f.string("pad_token")), delimiter(f.string("word_delimiter_token")), cleanup(f.boolean("cleanup")) {}
  void start(Stages& stages) const override { put_in_front<CtcStage>(stages, pad, delimiter, cleanup); }
  std::string pad, delimiter;
  bool cleanup;
};
struct Replace final : Decoder {
  explicit Replace(Fields& f) : pattern(parse_pattern(f)), content(f.string("content")) {
    if (pattern.string().size() > kMaxString) f.fail("pattern", cat("a string of at most ", kMaxString, " bytes"));
  }
  static constexpr size_t kMaxString = 1024;
  Replace(std::string_view from, std::string_view to) : pattern(Pattern::of_string(std::string(from))), content(to) {}
  void start(Stages& stages) const override {
    stages.push_back(std::make_unique<ReplaceStage>(*stages.back(), pattern, content));
  }
  Pattern pattern;
  std::string content;
};
struct Fuse final : Decoder {
  void start(Stages& stages) const override { put_in_front<FuseStage>(stages); }
};
struct ByteFallback final : Decoder {
  void start(Stages& stages) const override { put_in_front<ByteFallbackStage>(stages); }
};
struct Strip final : Decoder {
  explicit Strip(Fields& f) {
    append_char(content, f.character("content"));
    begin = static_cast<size_t>(f.integer("start", 0, INT64_MAX));
    stop = static_cast<size_t>(f.integer("stop", 0, INT64_MAX));
  }
  void start(Stages& stages) const override { put_in_front<StripStage>(stages, content, begin, stop); }
  std::string content;
  size_t begin, stop;
};
struct Sequence final : Decoder {
  void start(Stages& stages) const override {
    std::for_each(parts.rbegin(), parts.rend(), [&](const auto& part) { part->start(stages); });
  }
  std::vector<std::unique_ptr<const Decoder>> parts;
};
struct BlanksBetween final : Decoder {
  void start(Stages& stages) const override { put_in_front<BlanksStage>(stages); }
};

std::unique_ptr<const Decoder> parse_sequence(Fields& f) {
  auto sequence = std::make_unique<Sequence>();
  f.list("decoders", kMaxParts, [&](const Json& node, std::string path) {
    Parsed<Decoder> parsed = parse_decoder(node, std::move(path), f.source());
    sequence->parts.push_back(std::move(parsed.part));
    return std::move(parsed.json);
  });
  return sequence;
}
template <class T>
std::unique_ptr<const Decoder> parse_plain(Fields&) {
  return std::make_unique<T>();
}
template <class T>
std::unique_ptr<const Decoder> parse_fields(Fields& f) {
  return std::make_unique<T>(f);
}

constexpr Kind<Decoder> kDecoders[] = {
    {"ByteLevel", parse_fields<ByteLevel>},
    {"WordPiece", parse_fields<WordPiece>},
    {"Metaspace", parse_fields<Metaspace>},
    {"BPEDecoder", parse_fields<BpeDecoder>},
    {"CTC", parse_fields<Ctc>},
    {"Replace", parse_fields<Replace>},
    {"Fuse", parse_plain<Fuse>},
    {"ByteFallback", parse_plain<ByteFallback>},
    {"Strip", parse_fields<Strip>},
    {"Sequence", parse_sequence},
};

}  // namespace

Parsed<Decoder> parse_decoder(const Json& node, std::string path, std::string_view source) {
  return parse_part<Decoder>(node, std::move(path), source, kDecoders);
}

std::unique_ptr<const Decoder> blanks_between() {
  return std::make_unique<BlanksBetween>();
}

std::unique_ptr<const Decoder> clean_up_spaces() {
  auto all = std::make_unique<Sequence>();
  all->parts.push_back(std::make_unique<Fuse>());
  // As WordPiece's, but for " do not", which `transformers` leaves.
  for (const Pair& p : kCleanUp)
    if (p.from != " do not") all->parts.push_back(std::make_unique<Replace>(p.from, p.to));
  return all;
}

}  // namespace strata::text::pipeline
