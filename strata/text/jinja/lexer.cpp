#include "strata/text/jinja/lexer_inl.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "strata/core/error.h"
#include "strata/text/jinja/value_inl.h"
#include "strata/text/utf8.h"

namespace strata::text::jinja {
namespace {

class Lexer {
 public:
  explicit Lexer(std::string_view source) {
    check(valid_utf8(source) == source, "template", "its source is not UTF-8");
    for (size_t i = 0; i < source.size(); ++i) {  // newlines as Jinja makes them
      if (source[i] == '\r') {
        s_ += '\n';
        if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
      } else {
        s_ += source[i];
      }
    }
    if (s_.ends_with('\n')) s_.pop_back();
  }

  std::vector<Token> run() {
    while (at_ < s_.size()) {
      const size_t tag = next_tag();
      std::string text = s_.substr(at_, tag - at_);
      if (tag == s_.size()) {
        add(Token::data, text);
        break;
      }
      const char kind = s_[tag + 1], sign = tag + 2 < s_.size() ? s_[tag + 2] : '\0';
      strip_before(text, kind, sign);
      const size_t newlines = count(s_.substr(at_, tag - at_));
      const int from = line_;
      if (!text.empty()) add(Token::data, text);
      line_ = from + static_cast<int>(newlines);
      at_ = tag + 2;
      line_start_ = false;
      if (sign == '-' || (sign == '+' && kind != '{')) ++at_;
      if (kind == '#') {
        comment();
      } else if (kind == '%' && raw()) {
      } else {
        add(kind == '{' ? Token::output_begin : Token::block_begin, "");
        expression(kind == '{' ? "}}" : "%}");
      }
    }
    add(Token::end, "");
    return std::move(out_);
  }

 private:
  static size_t count(std::string_view t) { return static_cast<size_t>(std::count(t.begin(), t.end(), '\n')); }
  void add(Token::Kind kind, std::string text) { out_.push_back({kind, std::move(text), line_}); }
  void advance(size_t n) {
    line_ += static_cast<int>(count(std::string_view(s_).substr(at_, n)));
    at_ += n;
  }
  size_t next_tag() const {
    for (size_t i = at_; i + 1 < s_.size(); ++i)
      if (s_[i] == '{' && (s_[i + 1] == '{' || s_[i + 1] == '%' || s_[i + 1] == '#')) return i;
    return s_.size();
  }
  static bool blank(std::string_view t) {
    return std::all_of(t.begin(), t.end(), [](unsigned char c) { return std::isspace(c); });
  }
  // lstrip_blocks, and "{%-".
  void strip_before(std::string& text, char kind, char sign) const {
    if (sign == '-') {
      text = strip(Text(text), nullptr, false, true).bytes;
    } else if (kind != '{' && sign != '+') {
      const size_t newline = text.rfind('\n'), line = newline == std::string::npos ? 0 : newline + 1;
      const bool starts = newline != std::string::npos || line_start_ || at_ == 0;
      if (starts && blank(std::string_view(text).substr(line))) text.resize(line);
    }
  }
  // Behind "%}" or "#}": "-" takes all white space, trim_blocks one newline.
  void after(char sign, bool trims) {
    size_t n = 0;
    if (sign == '-') {
      while (at_ + n < s_.size()) {
        size_t length = 1;
        if (!is_space(code_point(s_, at_ + n, &length))) break;
        n += length;
      }
    } else if (sign != '+' && trims && at_ < s_.size() && s_[at_] == '\n') {
      n = 1;
    }
    line_start_ = n > 0 && s_[at_ + n - 1] == '\n';
    advance(n);
  }
  void comment() {
    const size_t close = s_.find("#}", at_);
    if (close == std::string::npos) fail_at(line_, "a comment has no end");
    const char sign = close > at_ ? s_[close - 1] : '\0';
    advance(close + 2 - at_);
    after(sign, true);
  }
  // "{% raw %}" up to "{% endraw %}"; at_ is behind "{%" and its sign.
  bool raw() {
    const auto word = [&](size_t i, std::string_view w, size_t& end, char& sign) {
      while (i < s_.size() && std::isspace(static_cast<unsigned char>(s_[i]))) ++i;
      if (s_.compare(i, w.size(), w) != 0) return false;
      i += w.size();
      while (i < s_.size() && std::isspace(static_cast<unsigned char>(s_[i]))) ++i;
      sign = i < s_.size() && (s_[i] == '-' || s_[i] == '+') ? s_[i++] : '\0';
      if (s_.compare(i, 2, "%}") != 0) return false;
      end = i + 2;
      return true;
    };
    size_t end = 0;
    char sign = 0;
    if (!word(at_, "raw", end, sign)) return false;
    const int opened = line_;
    advance(end - at_);
    after(sign, false);
    for (size_t i = s_.find("{%", at_); i != std::string::npos; i = s_.find("{%", i + 2)) {
      const char before = i + 2 < s_.size() ? s_[i + 2] : '\0';
      const bool has_sign = before == '-' || before == '+';
      if (!word(i + 2 + (has_sign ? 1 : 0), "endraw", end, sign)) continue;
      std::string text = s_.substr(at_, i - at_);
      strip_before(text, '%', has_sign ? before : '\0');
      if (!text.empty()) add(Token::data, text);
      advance(end - at_);
      after(sign, true);
      return true;
    }
    fail_at(opened, "a raw block has no end");
  }

  void string() {
    const char quote = s_[at_];
    const int begin = line_;
    std::string text;
    size_t i = at_ + 1;
    for (;; ++i) {
      if (i >= s_.size()) fail_at(begin, "a string has no end");
      if (s_[i] == quote) break;
      if (s_[i] != '\\') {
        text += s_[i];
        continue;
      }
      if (++i >= s_.size()) fail_at(begin, "a string has no end");
      escape(text, i);
    }
    add(Token::string, text);
    advance(i + 1 - at_);
  }
  // s_[i] follows a backslash; i ends at the last character of the escape.
  void escape(std::string& text, size_t& i) {
    static constexpr std::string_view kFrom = "nrtabfv0\\'\"", kTo("\n\r\t\a\b\f\v\0\\'\"", 11);
    const char c = s_[i];
    const auto digits = [&](size_t n) {
      uint32_t value = 0;
      for (size_t k = 1; k <= n; ++k) {
        const char d = i + k < s_.size() ? s_[i + k] : 'x';
        if (!std::isxdigit(static_cast<unsigned char>(d))) fail_at(line_, "an escape in a string lacks its digits");
        value = value * 16 +
                static_cast<uint32_t>(std::isdigit(static_cast<unsigned char>(d)) ? d - '0' : (d | 32) - 'a' + 10);
      }
      i += n;
      if (value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
        fail_at(line_, "an escape in a string is no character");
      text += encode(value);
    };
    if (c == 'x') {
      digits(2);
    } else if (c == 'u') {
      digits(4);
    } else if (c == 'U') {
      digits(8);
    } else if (c == '\n') {  // a line that goes on
    } else if (const size_t k = kFrom.find(c); k != std::string_view::npos) {
      text += kTo[k];
    } else {
      text += '\\';
      text += c;
    }
  }

  void number() {
    size_t i = at_;
    const auto digits = [&](size_t from) {
      size_t k = from;
      while (k < s_.size() && (std::isdigit(static_cast<unsigned char>(s_[k])) || (s_[k] == '_' && k > from))) ++k;
      return k;
    };
    bool real = false;
    i = digits(i);
    if (i + 1 < s_.size() && s_[i] == '.' && std::isdigit(static_cast<unsigned char>(s_[i + 1]))) {
      real = true;
      i = digits(i + 1);
    }
    if (i < s_.size() && (s_[i] == 'e' || s_[i] == 'E')) {
      size_t k = i + 1;
      if (k < s_.size() && (s_[k] == '+' || s_[k] == '-')) ++k;
      if (k < s_.size() && std::isdigit(static_cast<unsigned char>(s_[k]))) {
        real = true;
        i = digits(k);
      }
    }
    std::string text = s_.substr(at_, i - at_);
    std::erase(text, '_');
    add(real ? Token::real : Token::integer, text);
    advance(i - at_);
  }

  // Tokens up to `close`, which within brackets is none.
  void expression(std::string_view close) {
    static constexpr std::array kOps = {"**", "//", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
                                        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    std::string open;
    for (;;) {
      if (at_ >= s_.size())
        fail_at(line_, "the template ends within '" + std::string(close == "}}" ? "{{" : "{%") + "'");
      const auto c = static_cast<unsigned char>(s_[at_]);
      if (open.empty()) {
        const bool sign = (c == '-' || (c == '+' && close == "%}")) && s_.compare(at_ + 1, 2, close) == 0;
        if (sign || s_.compare(at_, 2, close) == 0) {
          const char mark = sign ? static_cast<char>(c) : '\0';
          add(close == "}}" ? Token::output_end : Token::block_end, "");
          advance(sign ? 3 : 2);
          after(mark, close == "%}");
          return;
        }
      }
      if (std::isspace(c)) {
        advance(1);
      } else if (c == '"' || c == '\'') {
        string();
      } else if (std::isdigit(c)) {
        number();
      } else if (std::isalpha(c) || c == '_' || c >= 0x80) {
        size_t i = at_;
        while (i < s_.size() && (std::isalnum(static_cast<unsigned char>(s_[i])) || s_[i] == '_' ||
                                 static_cast<unsigned char>(s_[i]) >= 0x80))
          ++i;
        add(Token::name, s_.substr(at_, i - at_));
        at_ = i;
      } else {
        const auto op = std::find_if(kOps.begin(), kOps.end(),
                                     [&](std::string_view o) { return s_.compare(at_, o.size(), o) == 0; });
        if (op == kOps.end()) fail_at(line_, std::string("unexpected character '") + static_cast<char>(c) + "'");
        const std::string text = *op;
        if (text == "(" || text == "[" || text == "{") open += text == "(" ? ')' : text == "[" ? ']' : '}';
        if (text == ")" || text == "]" || text == "}") {
          if (open.empty() || open.back() != text[0]) fail_at(line_, "unexpected '" + text + "'");
          open.pop_back();
        }
        add(Token::op, text);
        at_ += text.size();
      }
    }
  }

  std::string s_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_start_ = false;  // what was read before ended a line
  std::vector<Token> out_;
};

}  // namespace

void fail_at(int line, const std::string& message) {
  throw ValueError("template", "line " + std::to_string(line) + ": " + message);
}

std::vector<Token> tokens(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace strata::text::jinja
