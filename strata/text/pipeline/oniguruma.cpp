// From Oniguruma's Ruby syntax (https://github.com/kkos/oniguruma/blob/master/doc/RE) to PCRE2's.

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/text/pipeline/regex_inl.h"
#include "strata/text/pipeline/unicode_inl.h"

namespace strata::text::pipeline {
namespace {

constexpr int kMaxNesting = 50;

constexpr std::string_view kWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
// Outside of classes Oniguruma counts these digits and fractions, too.
constexpr std::string_view kLoneWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\xb2\\xb3\\xb9\\xbc-\\xbe";
constexpr std::string_view kSpace =
    "\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"
    "\\x{205f}\\x{3000}";

/// Names of [[:x:]] and \p{x}, in lower case without blanks, hyphens and underscores, and what stands in a class.
struct Named {
  std::string_view name, members;
};
constexpr Named kPosix[] = {
    {"alnum", "\\p{Alphabetic}\\p{Nd}"},
    {"alpha", "\\p{Alphabetic}"},
    {"ascii", "\\x00-\\x7f"},
    {"blank", "\\p{Zs}\\t"},
    {"cntrl", "\\p{Cc}"},
    {"digit", "\\p{Nd}"},
    {"lower", "\\p{Lowercase}"},
    {"punct", "\\p{P}\\p{S}"},
    {"space", kSpace},
    {"upper", "\\p{Uppercase}"},
    {"word", kWord},
    {"xdigit", "0-9A-Fa-f"},
};
constexpr Named kCategories[] = {
    {"any", "Any"},
    {"casedletter", "L&"},
    {"closepunctuation", "Pe"},
    {"connectorpunctuation", "Pc"},
    {"control", "Cc"},
    {"currencysymbol", "Sc"},
    {"dashpunctuation", "Pd"},
    {"decimalnumber", "Nd"},
    {"enclosingmark", "Me"},
    {"finalpunctuation", "Pf"},
    {"format", "Cf"},
    {"initialpunctuation", "Pi"},
    {"letter", "L"},
    {"letternumber", "Nl"},
    {"lineseparator", "Zl"},
    {"lowercaseletter", "Ll"},
    {"mark", "M"},
    {"mathsymbol", "Sm"},
    {"modifierletter", "Lm"},
    {"modifiersymbol", "Sk"},
    {"nonspacingmark", "Mn"},
    {"number", "N"},
    {"openpunctuation", "Ps"},
    {"other", "C"},
    {"otherletter", "Lo"},
    {"othernumber", "No"},
    {"otherpunctuation", "Po"},
    {"othersymbol", "So"},
    {"paragraphseparator", "Zp"},
    {"privateuse", "Co"},
    {"punctuation", "P"},
    {"separator", "Z"},
    {"spaceseparator", "Zs"},
    {"spacingmark", "Mc"},
    {"surrogate", "Cs"},
    {"symbol", "S"},
    {"titlecaseletter", "Lt"},
    {"unassigned", "Cn"},
    {"uppercaseletter", "Lu"},
};

const Named* find_named(std::span<const Named> names, std::string_view name) {
  const auto at = std::find_if(names.begin(), names.end(), [&](const Named& n) { return n.name == name; });
  return at == names.end() ? nullptr : &*at;
}

bool compiles(const std::string& pattern) {
  int error = 0;
  PCRE2_SIZE at = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF | PCRE2_UCP,
                                   &error, &at, nullptr);
  pcre2_code_free(code);
  return code != nullptr;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_hex(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  std::string run() {
    bool group_begin = true;  // of the pattern or a group: where an option holds for all of it
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      const bool at_begin = std::exchange(group_begin, false);
      if (c == '(') {
        group_begin = open_group(at_begin);
      } else if (c == ')') {
        if (groups_.empty()) fail("')' closes nothing");
        atom_ = groups_.back();
        groups_.pop_back();
        put(1);
      } else if (c == '[') {
        atom_ = out_.size();
        out_ += char_class(0);
      } else if (c == '\\') {
        atom_ = out_.size();
        escape();
      } else if (c == '{') {
        interval();
      } else if (c == '*' || c == '+' || c == '?' || c == '|') {
        put(1);
      } else {
        atom_ = out_.size();
        put(char_at(pattern_, at_).bytes);
      }
    }
    if (!groups_.empty()) fail("a group is not closed");
    return std::move(out_);
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw ValueError("tokenizer", cat("the expression ", io::quote(pattern_), " cannot be used: ", what, " (byte ",
                                      std::min(at_, pattern_.size()), ")"));
  }
  bool starts(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  void put(size_t bytes) {
    out_ += pattern_.substr(at_, bytes);
    at_ += bytes;
  }
  static std::string code(uint32_t c) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string hex;
    do hex.insert(hex.begin(), digits[c & 15]);
    while ((c >>= 4) != 0);
    return cat("\\x{", hex, "}");
  }

  /// After it, whether an option may stand next.
  bool open_group(bool at_begin) {
    const size_t begin = out_.size();
    const auto open = [&](size_t bytes) {
      groups_.push_back(begin);
      if (groups_.size() > kMaxNesting) fail("groups nest too deep");
      put(bytes);
      return true;
    };
    if (starts("(*")) fail("'(*' is no group");
    if (!starts("(?")) return open(1);
    for (const std::string_view kind : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!"})
      if (starts(kind)) return open(kind.size());
    if (starts("(?#")) {
      const size_t end = pattern_.find(')', at_);
      if (end == std::string_view::npos) fail("a comment is not closed");
      at_ = end + 1;
      return at_begin;
    }
    if (starts("(?<")) {
      const size_t end = pattern_.find('>', at_);
      if (end == std::string_view::npos) fail("a name is not closed");
      return open(end + 1 - at_);
    }
    // Options: Ruby's m is what others call s.
    std::string options = "(?";
    size_t i = at_ + 2;
    for (; i < pattern_.size() && (pattern_[i] == 'i' || pattern_[i] == 'm' || pattern_[i] == '-'); ++i)
      options += pattern_[i] == 'm' ? 's' : pattern_[i];
    if (i == pattern_.size() || i == at_ + 2 || (pattern_[i] != ':' && pattern_[i] != ')'))
      fail("this kind of group or option is not supported");
    const bool scoped = pattern_[i] == ':';
    if (!scoped && !at_begin) fail("an option in the middle of a group is not supported");
    options += pattern_[i];
    at_ = i + 1;
    out_ += options;
    if (scoped) groups_.push_back(begin);
    if (groups_.size() > kMaxNesting) fail("groups nest too deep");
    return true;
  }

  void interval() {
    size_t i = at_ + 1;
    std::string low, high;
    while (i < pattern_.size() && is_digit(pattern_[i])) low += pattern_[i++];
    const bool comma = i < pattern_.size() && pattern_[i] == ',';
    if (comma)
      while (++i < pattern_.size() && is_digit(pattern_[i])) high += pattern_[i];
    if (i >= pattern_.size() || pattern_[i] != '}' || (low.empty() && high.empty())) {
      atom_ = out_.size();
      out_ += "\\{";
      ++at_;
      return;
    }
    at_ = i + 1;
    out_ += cat("{", low.empty() ? "0" : low, comma ? "," : "", high, "}");
    // Behind an interval '+' makes nothing possessive, and '?' behind {n} nothing lazy: they repeat it.
    if (at_ < pattern_.size() && (pattern_[at_] == '+' || (pattern_[at_] == '?' && !comma))) {
      out_.insert(atom_, "(?:");
      out_ += ")";
    }
  }

  uint32_t hex_value(size_t from, size_t n) const {
    uint32_t value = 0;
    for (size_t i = from; i < from + n; ++i) {
      const char c = pattern_[i];
      value = value * 16 + static_cast<uint32_t>(is_digit(c) ? c - '0' : (c | 32) - 'a' + 10);
    }
    return value;
  }
  size_t hex_digits(size_t from, size_t most) const {
    size_t n = 0;
    while (n < most && from + n < pattern_.size() && is_hex(pattern_[from + n])) ++n;
    return n;
  }

  /// A character that an escape names; at_ is on the backslash and moves behind. False where it is no character.
  bool escaped_char(uint32_t& c) {
    const char e = at_ + 1 < pattern_.size() ? pattern_[at_ + 1] : '\0';
    if (at_ + 1 >= pattern_.size()) fail("the expression ends within an escape");
    constexpr std::string_view from = "tnrfaev", to = "\t\n\r\f\a\x1b\v";
    if (const size_t i = from.find(e); i != std::string_view::npos) {
      c = static_cast<unsigned char>(to[i]);
      at_ += 2;
    } else if (e == 'x' && starts("\\x{")) {
      const size_t n = hex_digits(at_ + 3, 6);
      if (n == 0 || at_ + 3 + n >= pattern_.size() || pattern_[at_ + 3 + n] != '}') fail("'\\x{' wants a number");
      c = hex_value(at_ + 3, n);
      at_ += 4 + n;
    } else if (e == 'x' || e == 'u') {
      const size_t n = hex_digits(at_ + 2, e == 'x' ? 2 : 4);
      if (n == 0 || (e == 'u' && n != 4)) fail("hexadecimal digits are missing");
      c = hex_value(at_ + 2, n);
      if (e == 'x' && c >= 0x80) fail("a byte that is no character");
      at_ += 2 + n;
    } else if (e == '0') {
      c = 0;
      size_t i = at_ + 2;
      for (; i < std::min(at_ + 4, pattern_.size()) && pattern_[i] >= '0' && pattern_[i] <= '7'; ++i)
        c = c * 8 + static_cast<uint32_t>(pattern_[i] - '0');
      at_ = i;
    } else if (e == 'c' || e == 'C' || e == 'M') {
      fail("control and meta escapes are not supported");
    } else {
      return false;
    }
    if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) fail("no such character");
    return true;
  }

  /// \p{..}: as it stands in a class.
  std::string property() {
    const bool upper = pattern_[at_ + 1] == 'P';
    const size_t end = pattern_.find('}', at_);
    if (at_ + 2 >= pattern_.size() || pattern_[at_ + 2] != '{' || end == std::string_view::npos)
      fail("a property wants '{name}'");
    std::string_view raw = pattern_.substr(at_ + 3, end - at_ - 3);
    bool negated = upper;
    if (raw.starts_with('^')) {
      negated = !negated;
      raw.remove_prefix(1);
    }
    std::string name;
    for (const char c : raw) {
      if (c == ' ' || c == '-' || c == '_') continue;
      if (!is_letter(c) && !is_digit(c) && c != '&') fail("a property's name");
      name += static_cast<char>(is_letter(c) ? c | 32 : c);
    }
    at_ = end + 1;
    const Named* posix = find_named(kPosix, name);
    if (posix != nullptr) return negated ? cat("[^", posix->members, "]") : std::string(posix->members);
    const Named* category = find_named(kCategories, name);
    std::string known(category != nullptr ? category->members : std::string_view(name));
    // A bare name of a script would mean its extensions.
    if (category == nullptr && name.size() > 2 && compiles(cat("\\p{sc:", name, "}"))) known = cat("sc:", name);
    return cat(negated ? "\\P{" : "\\p{", known, "}");
  }

  /// One escape outside of classes.
  void escape() {
    uint32_t c = 0;
    if (escaped_char(c)) {
      out_ += code(c);
      return;
    }
    const char e = pattern_[at_ + 1];
    const std::string word = cat("[", kLoneWord, "]");
    const auto put_escape = [&](std::string_view text) {
      out_ += text;
      at_ += 2;
    };
    switch (e) {
      case 'w':
        return put_escape(word);
      case 'W':
        return put_escape(cat("[^", kLoneWord, "]"));
      case 's':
        return put_escape(cat("[", kSpace, "]"));
      case 'S':
        return put_escape(cat("[^", kSpace, "]"));
      case 'h':
        return put_escape("[0-9A-Fa-f]");
      case 'H':
        return put_escape("[^0-9A-Fa-f]");
      case 'N':
        return put_escape("[^\\n]");
      case 'O':
        return put_escape("(?s:.)");
      case 'b':
        return put_escape(cat("(?:(?<=", word, ")(?!", word, ")|(?<!", word, ")(?=", word, "))"));
      case 'B':
        return put_escape(cat("(?:(?<=", word, ")(?=", word, ")|(?<!", word, ")(?!", word, "))"));
      case 'd':
      case 'D':
      case 'R':
      case 'X':
      case 'A':
      case 'z':
      case 'Z':
      case 'G':
      case 'K':
        return put(2);
      case 'p':
      case 'P': {
        const std::string members = property();
        out_ += members.starts_with("[^") ? members : cat("[", members, "]");
        return;
      }
      case 'k':
      case 'g': {
        const size_t end = pattern_.find('>', at_);
        if (!starts(cat("\\", e, "<")) || end == std::string_view::npos) fail("a reference wants '<name>'");
        return put(end + 1 - at_);
      }
      case 'y':
      case 'Y':
        fail("text segment boundaries are not supported");
      default:
        break;
    }
    if (is_digit(e)) return put(2);
    ++at_;
    const Char literal = char_at(pattern_, at_);
    out_ += code(literal.code);
    at_ += literal.bytes;
  }

  /// What stands between brackets: members as they stand in PCRE2's brackets, and what does not fit in there.
  struct Members {
    std::string simple;
    std::vector<std::string> others;

    std::string text() const {
      std::string s;
      if (!simple.empty()) s = cat("[", simple, "]");
      if (others.empty()) return s.empty() ? "(?!)" : s;
      for (const std::string& o : others) s += cat(s.empty() ? "" : "|", o);
      return cat("(?:", s, ")");
    }
  };

  /// A class; at_ is on its bracket and moves behind.
  std::string char_class(int depth) {
    if (depth > kMaxNesting) fail("classes nest too deep");
    ++at_;
    const bool negated = starts("^");
    if (negated) ++at_;
    std::vector<Members> all(1);  // their intersection
    bool first = true;
    for (;; first = false) {
      if (at_ >= pattern_.size()) fail("a class is not closed");
      if (pattern_[at_] == ']' && !first) break;
      if (starts("&&")) {
        all.emplace_back();
        at_ += 2;
        continue;
      }
      member(all.back(), depth);
    }
    ++at_;
    if (all.size() == 1 && all[0].others.empty() && !all[0].simple.empty())
      return cat(negated ? "[^" : "[", all[0].simple, "]");
    std::string both;
    for (size_t i = 0; i + 1 < all.size(); ++i) both += cat("(?=", all[i].text(), ")");
    both += all.back().text();
    return negated ? cat("(?:(?!", both, ")(?s:.))") : cat("(?:", both, ")");
  }

  void member(Members& to, int depth) {
    if (starts("[:")) {
      const size_t end = pattern_.find(":]", at_ + 2);
      if (end != std::string_view::npos) {
        std::string_view name = pattern_.substr(at_ + 2, end - at_ - 2);
        const bool negated = name.starts_with('^');
        if (negated) name.remove_prefix(1);
        const Named* posix = find_named(kPosix, name);
        if (posix == nullptr) fail(cat("[:", name, ":] is not supported"));
        at_ = end + 2;
        if (negated)
          to.others.push_back(cat("[^", posix->members, "]"));
        else
          to.simple += posix->members;
        return;
      }
    }
    if (pattern_[at_] == '[') {
      to.others.push_back(char_class(depth + 1));
      return;
    }
    uint32_t low = 0;
    if (!member_char(low, to)) return;
    // A range, unless the hyphen is the last.
    if (starts("-") && at_ + 1 < pattern_.size() && pattern_[at_ + 1] != ']' && !starts("-&&")) {
      ++at_;
      uint32_t high = 0;
      Members none;
      if (pattern_[at_] == '[' || !member_char(high, none) || high < low) fail("a range of characters");
      to.simple += cat(code(low), "-", code(high));
      return;
    }
    to.simple += code(low);
  }

  /// One character of a class, or false: a set of them, put into `to`.
  bool member_char(uint32_t& c, Members& to) {
    if (pattern_[at_] != '\\') {
      const Char literal = char_at(pattern_, at_);
      c = literal.code;
      at_ += literal.bytes;
      return true;
    }
    if (escaped_char(c)) return true;
    const char e = pattern_[at_ + 1];
    const auto set = [&](std::string_view members) {
      to.simple += members;
      at_ += 2;
      return false;
    };
    const auto not_in = [&](std::string_view members) {
      to.others.push_back(cat("[^", members, "]"));
      at_ += 2;
      return false;
    };
    switch (e) {
      case 'w':
        return set(kWord);
      case 'W':
        return not_in(kWord);
      case 's':
        return set(kSpace);
      case 'S':
        return not_in(kSpace);
      case 'h':
        return set("0-9A-Fa-f");
      case 'H':
        return not_in("0-9A-Fa-f");
      case 'd':
        return set("\\d");
      case 'D':
        return set("\\D");
      case 'p':
      case 'P': {
        const std::string members = property();
        if (members.starts_with("[^"))
          to.others.push_back(members);
        else
          to.simple += members;
        return false;
      }
      case 'b':
        c = 8;
        at_ += 2;
        return true;
      case 'R':
      case 'X':
        fail("\\R and \\X are no characters of a class");
      default:
        break;
    }
    if (is_digit(e)) fail("octal numbers in classes are not supported");
    ++at_;
    const Char literal = char_at(pattern_, at_);
    c = literal.code;
    at_ += literal.bytes;
    return true;
  }

  std::string_view pattern_;
  size_t at_ = 0;
  std::string out_;
  size_t atom_ = 0;             // where in out_ the last thing that can be repeated begins
  std::vector<size_t> groups_;  // where in out_ the open ones begin
};

}  // namespace

std::string pcre2_of_oniguruma(std::string_view pattern) {
  return Translator(pattern).run();
}

}  // namespace strata::text::pipeline
