#pragma once
// Regular expressions of tokenizer.json: written for Oniguruma (Ruby's syntax), run by PCRE2.

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace strata::text::pipeline {

struct Match {
  size_t begin, end;
};

/// The same expression for PCRE2 (UTF, UCP, MULTILINE): classes with Oniguruma's members, nested classes and
/// intersections, options, `$`, `{,n}`. Throws ValueError for what PCRE2 has not or reads otherwise: absent operators,
/// an option in the middle of a group, extended syntax, verbs, conditions.
std::string pcre2_of_oniguruma(std::string_view pattern);

/// What regular expressions may cost while it lives, on this thread: some seconds, and a small multiple of the text.
/// Without one, 10 s in all.
class RegexBudget {
 public:
  explicit RegexBudget(size_t text_bytes);
  ~RegexBudget();
  RegexBudget(const RegexBudget&) = delete;
  RegexBudget& operator=(const RegexBudget&) = delete;

 private:
  double outer_left_;
};

/// A compiled expression; may be used from several threads.
class Regex {
 public:
  /// Throws ValueError for what is no expression.
  explicit Regex(std::string_view oniguruma);
  ~Regex();
  Regex(Regex&&) noexcept;
  /// The first match that begins at `from` or later in valid UTF-8. Throws ValueError for one that takes too long.
  bool find(std::string_view text, size_t from, Match& match) const;

 private:
  struct Code;
  std::unique_ptr<const Code> code_;
};

/// What Replace and Split look for: a string or an expression.
class Pattern {
 public:
  static Pattern of_string(std::string text);
  static Pattern of_regex(std::string_view oniguruma);
  /// Empty for an expression.
  const std::string& string() const { return string_; }

  /// Matches from left to right that do not overlap; an empty one is not taken where the last one ended.
  class Matches {
   public:
    Matches(const Pattern& pattern, std::string_view text) : pattern_(pattern), text_(text) {}
    bool next(Match& match);

   private:
    const Pattern& pattern_;
    std::string_view text_;
    size_t at_ = 0, last_end_ = std::string_view::npos;
  };

 private:
  std::string string_;
  std::unique_ptr<const Regex> regex_;  // where string_ is empty
};

}  // namespace strata::text::pipeline
