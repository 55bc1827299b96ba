#include "strata/text/pipeline/pre_tokenizer_inl.h"

#include <algorithm>
#include <iterator>

#include "strata/text/pipeline/normalizer_inl.h"
#include "strata/text/pipeline/regex_inl.h"
#include "strata/text/pipeline/unicode_inl.h"

namespace strata::text::pipeline {
namespace {

enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
constexpr std::string_view kBehaviors[] = {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"};

/// What becomes of the parts of a piece, matches and what is between them.
class Parts {
 public:
  Parts(Behavior behavior, std::string_view piece, size_t where, bool begins_text, PieceSink& out)
      : behavior_(behavior), piece_(piece), where_(where), begins_text_(begins_text), out_(out) {}

  void part(size_t begin, size_t end, bool is_match) {
    switch (behavior_) {
      case Behavior::kRemoved:
        if (!is_match) emit(begin, end);
        return;
      case Behavior::kIsolated:
        return emit(begin, end);
      case Behavior::kContiguous:
        // Before the first there is none that matches.
        return join(begin, end, is_match, is_match == last_is_match_);
      case Behavior::kMergedWithPrevious:
        return join(begin, end, is_match, is_match && !last_is_match_);
      case Behavior::kMergedWithNext:
        return join(begin, end, is_match, !is_match && last_is_match_);
    }
  }
  void finish() {
    if (open_) emit(begin_, end_);
  }

 private:
  void join(size_t begin, size_t end, bool is_match, bool joins) {
    if (open_ && !joins) emit(begin_, end_);
    if (!open_ || !joins) begin_ = begin;
    end_ = end;
    open_ = true;
    last_is_match_ = is_match;
  }
  void emit(size_t begin, size_t end) {
    if (begin < end) out_.take(piece_.substr(begin, end - begin), where_ + begin, begins_text_ && begin == 0);
  }

  Behavior behavior_;
  std::string_view piece_;
  size_t where_;
  bool begins_text_;
  PieceSink& out_;
  size_t begin_ = 0, end_ = 0;
  bool open_ = false, last_is_match_ = false;
};

/// Splits at the characters for which `matches` holds, each a match of its own.
template <class Matches>
void split_at_chars(Behavior behavior, std::string_view piece, size_t where, bool begins_text, PieceSink& out,
                    Matches&& matches) {
  Parts parts(behavior, piece, where, begins_text, out);
  size_t begin = 0;
  for (size_t at = 0; at < piece.size();) {
    const Char c = char_at(piece, at);
    if (matches(c.code)) {
      if (begin < at) parts.part(begin, at, false);
      parts.part(at, at + c.bytes, true);
      begin = at + c.bytes;
    }
    at += c.bytes;
  }
  if (begin < piece.size()) parts.part(begin, piece.size(), false);
  parts.finish();
}

void split_at_pattern(const Pattern& pattern, bool invert, Behavior behavior, std::string_view piece, size_t where,
                      bool begins_text, PieceSink& out) {
  Parts parts(behavior, piece, where, begins_text, out);
  Pattern::Matches matches(pattern, piece);
  size_t begin = 0;
  for (Match m{}; matches.next(m); begin = m.end) {
    if (begin != m.begin) parts.part(begin, m.begin, invert);
    parts.part(m.begin, m.end, !invert);
  }
  if (begin != piece.size()) parts.part(begin, piece.size(), invert);
  parts.finish();
}

struct Splits final : PreTokenizer {
  explicit Splits(Fields& f)
      : pattern(parse_pattern(f)),
        behavior(static_cast<Behavior>(f.choice("behavior", kBehaviors))),
        invert(f.boolean("invert")) {}
  void split(std::string_view piece, size_t where, bool begins_text, std::string&, PieceSink& out) const override {
    split_at_pattern(pattern, invert, behavior, piece, where, begins_text, out);
  }
  Pattern pattern;
  Behavior behavior;
  bool invert;
};

/// GPT-2's words (https://github.com/openai/gpt-2/blob/master/src/encoder.py).
constexpr std::string_view kGpt2Words = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

struct ByteLevel final : PreTokenizer {
  explicit ByteLevel(Fields& f) : prefix_space(f.boolean("add_prefix_space")) {
    f.boolean("trim_offsets");  // of offsets, which decide no ids
    if (f.boolean("use_regex", true)) words = std::make_unique<const Pattern>(Pattern::of_regex(kGpt2Words));
  }
  void split(std::string_view piece, size_t where, bool begins_text, std::string& scratch,
             PieceSink& out) const override {
    if (prefix_space && piece[0] != ' ') {
      scratch.assign(1, ' ');
      scratch += piece;
      piece = scratch;
    }
    if (words == nullptr) return out.take(piece, where, begins_text);
    split_at_pattern(*words, false, Behavior::kIsolated, piece, where, begins_text, out);
  }
  bool spells_bytes() const override { return true; }
  bool prefix_space;
  std::unique_ptr<const Pattern> words;
};

/// The second half of ByteLevel.
struct SpellBytes final : PreTokenizer {
  void split(std::string_view piece, size_t where, bool begins_text, std::string& scratch,
             PieceSink& out) const override {
    scratch.clear();
    append_bytes_spelled(scratch, piece);
    out.take(scratch, where, begins_text);
  }
};

struct BertWords final : PreTokenizer {
  void split(std::string_view piece, size_t where, bool begins_text, std::string&, PieceSink& out) const override {
    const CharSet &spaces = space_chars(), &punctuation = punctuation_chars();
    size_t begin = 0;
    const auto emit = [&](size_t b, size_t e) {
      if (b < e) out.take(piece.substr(b, e - b), where + b, begins_text && b == 0);
    };
    for (size_t at = 0; at < piece.size();) {
      const Char c = char_at(piece, at);
      const bool space = spaces.contains(c.code), alone = is_punctuation(c.code, punctuation);
      if (space || alone) {
        emit(begin, at);
        if (alone) emit(at, at + c.bytes);
        begin = at + c.bytes;
      }
      at += c.bytes;
    }
    emit(begin, piece.size());
  }
  static bool is_punctuation(uint32_t c, const CharSet& set) { return set.contains(c); }
};

/// Runs of word characters and of what is neither word nor blank.
struct Whitespace final : PreTokenizer {
  void split(std::string_view piece, size_t where, bool begins_text, std::string&, PieceSink& out) const override {
    const CharSet &spaces = space_chars(), &words = word_chars();
    enum Class { kSpace, kWord, kOther };
    size_t begin = 0;
    Class run = kSpace;
    const auto emit = [&](size_t end) {
      if (run != kSpace) out.take(piece.substr(begin, end - begin), where + begin, begins_text && begin == 0);
    };
    for (size_t at = 0; at < piece.size();) {
      const Char c = char_at(piece, at);
      const Class now = words.contains(c.code) ? kWord : spaces.contains(c.code) ? kSpace : kOther;
      if (now != run) {
        emit(at);
        begin = at;
        run = now;
      }
      at += c.bytes;
    }
    emit(piece.size());
  }
};

struct WhitespaceSplit final : PreTokenizer {
  void split(std::string_view piece, size_t where, bool begins_text, std::string&, PieceSink& out) const override {
    const CharSet& spaces = space_chars();
    split_at_chars(Behavior::kRemoved, piece, where, begins_text, out, [&](uint32_t c) { return spaces.contains(c); });
  }
};

struct Punctuation final : PreTokenizer {
  explicit Punctuation(Fields& f)
      : behavior(static_cast<Behavior>(f.choice("behavior", kBehaviors, static_cast<size_t>(Behavior::kIsolated)))) {}
  void split(std::string_view piece, size_t where, bool begins_text, std::string&, PieceSink& out) const override {
    const CharSet& set = punctuation_chars();
    split_at_chars(behavior, piece, where, begins_text, out, [&](uint32_t c) { return set.contains(c); });
  }
  Behavior behavior;
};

struct Digits final : PreTokenizer {
  explicit Digits(Fields& f) : behavior(f.boolean("individual_digits") ? Behavior::kIsolated : Behavior::kContiguous) {}
  void split(std::string_view piece, size_t where, bool begins_text, std::string&, PieceSink& out) const override {
    const CharSet& set = numeric_chars();
    split_at_chars(behavior, piece, where, begins_text, out, [&](uint32_t c) { return set.contains(c); });
  }
  Behavior behavior;
};

struct CharDelimiterSplit final : PreTokenizer {
  explicit CharDelimiterSplit(Fields& f) : delimiter(f.character("delimiter")) {}
  void split(std::string_view piece, size_t where, bool begins_text, std::string&, PieceSink& out) const override {
    split_at_chars(Behavior::kRemoved, piece, where, begins_text, out, [&](uint32_t c) { return c == delimiter; });
  }
  uint32_t delimiter;
};

/// Blanks become a visible character (sentencepiece's U+2581), with which words begin.
struct Metaspace final : PreTokenizer {
  enum class Prepend { kFirst, kNever, kAlways };
  static constexpr std::string_view kSchemes[] = {"first", "never", "always"};

  explicit Metaspace(Fields& f) {
    append_char(mark, f.character("replacement"));
    prepend = static_cast<Prepend>(f.choice("prepend_scheme", kSchemes, static_cast<size_t>(Prepend::kAlways)));
    // Older files say it so.
    const Json* prefix = f.find("add_prefix_space");
    if (prefix != nullptr && *prefix == false && prepend != Prepend::kNever)
      f.fail("add_prefix_space", "what prepend_scheme says");
    const Json* splits = f.find("split");
    cut = splits == nullptr || splits->is_null() || f.boolean("split");
    f.keep("split", cut);
  }

  void split(std::string_view piece, size_t where, bool begins_text, std::string& scratch,
             PieceSink& out) const override {
    const bool prefix = !piece.starts_with(' ') && !piece.starts_with(mark) &&
                        (prepend == Prepend::kAlways || (prepend == Prepend::kFirst && begins_text));
    if (!cut) {
      scratch.assign(prefix ? mark : std::string());
      for (size_t at = 0; at < piece.size();) {
        const size_t end = std::min(piece.find(' ', at), piece.size());
        scratch.append(piece, at, end - at);
        if (end < piece.size()) scratch += mark;
        at = end + 1;
      }
      return out.take(scratch, where, begins_text);
    }
    // A word begins at a blank, at the mark itself, and at the begin.
    size_t begin = 0;
    bool marked = prefix;  // the word at `begin` gets a mark in front
    const auto emit = [&](size_t end) {
      if (!marked) {
        if (begin < end) out.take(piece.substr(begin, end - begin), where + begin, begins_text && begin == 0);
        return;
      }
      scratch.assign(mark);
      scratch.append(piece, begin, end - begin);
      out.take(scratch, where + begin, begins_text && (begin == 0 || (begin == 1 && piece[0] == ' ')));
    };
    for (size_t at = 0; at < piece.size();) {
      if (piece[at] == ' ') {
        if (at > 0 || marked) emit(at);
        begin = ++at;
        marked = true;
      } else if (piece[at] == mark[0] && piece.substr(at).starts_with(mark)) {
        if (at > 0) emit(at);
        begin = at;
        marked = false;
        at += mark.size();
      } else {
        ++at;
      }
    }
    emit(piece.size());
  }

  std::string mark;
  Prepend prepend;
  bool cut;
};

struct UnicodeScripts final : PreTokenizer {
  void split(std::string_view piece, size_t where, bool begins_text, std::string&, PieceSink& out) const override {
    int last = -1;  // before the first character
    size_t begin = std::string_view::npos;
    const auto emit = [&](size_t end) {
      if (begin < end) out.take(piece.substr(begin, end - begin), where + begin, begins_text && begin == 0);
    };
    for (size_t at = 0; at < piece.size();) {
      const Char c = char_at(piece, at);
      const int script = c.code == ' ' ? 0 : script_of(c.code);
      // Characters of any script go with those before them; at the begin they go with nothing.
      if (script != 0 && script != last) {
        emit(at);
        begin = at;
        last = script;
      }
      at += c.bytes;
    }
    emit(piece.size());
  }
};

struct FixedLength final : PreTokenizer {
  explicit FixedLength(Fields& f) : length(static_cast<size_t>(f.integer("length", 1, INT64_MAX, 5))) {}
  void split(std::string_view piece, size_t where, bool begins_text, std::string&, PieceSink& out) const override {
    for (size_t begin = 0, at = 0; begin < piece.size(); begin = at) {
      for (size_t n = 0; n < length && at < piece.size(); ++n) at += char_at(piece, at).bytes;
      out.take(piece.substr(begin, at - begin), where + begin, begins_text && begin == 0);
    }
  }
  size_t length;
};

template <class T>
std::unique_ptr<const PreTokenizer> parse_plain(Fields&) {
  return std::make_unique<T>();
}
template <class T>
std::unique_ptr<const PreTokenizer> parse_fields(Fields& f) {
  return std::make_unique<T>(f);
}

/// A Sequence in a table of parts: its parts stand in the chain.
struct Sequence final : PreTokenizer {
  void split(std::string_view, size_t, bool, std::string&, PieceSink&) const override {}
  mutable PreTokenizers parts;
};
std::unique_ptr<const PreTokenizer> parse_sequence(Fields& f) {
  auto sequence = std::make_unique<Sequence>();
  f.list("pretokenizers", kMaxParts, [&](const Json& node, std::string path) {
    return parse_pre_tokenizer(node, std::move(path), f.source(), sequence->parts);
  });
  return sequence;
}

constexpr Kind<PreTokenizer> kPreTokenizers[] = {
    {"Sequence", parse_sequence},
    {"ByteLevel", parse_fields<ByteLevel>},
    {"BertPreTokenizer", parse_plain<BertWords>},
    {"Whitespace", parse_plain<Whitespace>},
    {"WhitespaceSplit", parse_plain<WhitespaceSplit>},
    {"Punctuation", parse_fields<Punctuation>},
    {"Metaspace", parse_fields<Metaspace>},
    {"Split", parse_fields<Splits>},
    {"Digits", parse_fields<Digits>},
    {"CharDelimiterSplit", parse_fields<CharDelimiterSplit>},
    {"UnicodeScripts", parse_plain<UnicodeScripts>},
    {"FixedLength", parse_fields<FixedLength>},
};

const SpellBytes kSpellBytes;

}  // namespace

Json parse_pre_tokenizer(const Json& node, std::string path, std::string_view source, PreTokenizers& chain) {
  Parsed<PreTokenizer> parsed = parse_part<PreTokenizer>(node, std::move(path), source, kPreTokenizers);
  if (const auto* sequence = dynamic_cast<const Sequence*>(parsed.part.get())) {
    std::move(sequence->parts.begin(), sequence->parts.end(), std::back_inserter(chain));
  } else {
    chain.push_back(std::move(parsed.part));
  }
  return std::move(parsed.json);
}

PreTokenizing::PreTokenizing(const PreTokenizers& chain, bool spell_last, size_t limit, PieceSink& words) {
  links_.reserve(2 * chain.size());
  for (const auto& part : chain) {
    links_.emplace_back().part = part.get();
    if (part->spells_bytes() && (spell_last || part != chain.back())) links_.emplace_back().part = &kSpellBytes;
  }
  for (size_t i = 0; i < links_.size(); ++i) {
    links_[i].next = i + 1 < links_.size() ? static_cast<PieceSink*>(&links_[i + 1]) : &words;
    links_[i].limit = limit;
  }
  first_ = links_.empty() ? &words : &links_[0];
}

void PreTokenizing::take(std::string_view piece, size_t where, bool begins_text) {
  if (!piece.empty()) first_->take(piece, where, begins_text);
}

void PreTokenizing::Link::take(std::string_view piece, size_t where, bool begins_text) {
  check(piece.size() <= limit, "tokenizer", "splitting makes more than ", limit, " bytes of the text");
  part->split(piece, where, begins_text, scratch, *next);
}

}  // namespace strata::text::pipeline
