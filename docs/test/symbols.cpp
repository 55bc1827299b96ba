#include "symbols.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <utility>

namespace strata::docs {
namespace {

bool word_char(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
}

// The text with comments, literals and preprocessor lines blanked, and which lines held a comment, or nothing else.
struct Source {
  std::string code;
  std::vector<char> has_comment, only_comment, blank;

  explicit Source(std::string_view text) : code(text) {
    std::vector<char> has_code{0};
    has_comment = {0};
    bool directive = false;
    for (size_t i = 0; i < text.size();) {
      const auto erase = [&](size_t n) {
        for (; n > 0 && i < text.size(); --n, ++i) {
          if (text[i] != '\n') code[i] = ' ';
        }
      };
      const char c = text[i];
      if (c == '\n') {
        if (directive && i > 0 && text[i - 1] != '\\') directive = false;
        has_code.push_back(0);
        has_comment.push_back(0);
        ++i;
      } else if (text.substr(i, 2) == "//") {
        has_comment.back() = 1;
        erase(text.find('\n', i) - i);
      } else if (directive || (c == '#' && !has_code.back())) {
        directive = true;
        has_code.back() = 1;
        erase(1);
      } else if (c == '"' || (c == '\'' && !(i > 0 && word_char(text[i - 1])))) {
        has_code.back() = 1;
        size_t end = i + 1;
        while (end < text.size() && text[end] != c) end += text[end] == '\\' ? 2 : 1;
        erase(end + 1 - i);
      } else {
        if (!std::isspace(static_cast<unsigned char>(c))) has_code.back() = 1;
        ++i;
      }
    }
    only_comment.resize(has_code.size());
    blank.resize(has_code.size());
    for (size_t l = 0; l < has_code.size(); ++l) {
      only_comment[l] = has_comment[l] && !has_code[l];
      blank[l] = !has_comment[l] && !has_code[l];
    }
  }
};

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text), source_(text), code_(source_.code) {
    for (size_t at = 0; at <= text.size(); ++at)
      if (at == 0 || text[at - 1] == '\n') line_starts_.push_back(at);
    scope({}, {}, true, true);
  }
  std::vector<Symbol> found() { return std::move(found_); }
  std::vector<Declaration> declared() { return std::move(declared_); }

 private:
  std::string_view line_text(size_t line) const {
    const size_t begin = line_starts_[line];
    const size_t end = line + 1 < line_starts_.size() ? line_starts_[line + 1] - 1 : text_.size();
    return text_.substr(begin, end - begin);
  }
  // The comment's lines right before a line; "///<" belongs to what stands before it.
  std::vector<std::string_view> comment_before(int line) const {
    std::vector<std::string_view> lines;
    for (int l = line - 1; l >= 0 && source_.only_comment[static_cast<size_t>(l)]; --l) {
      const std::string_view text = line_text(static_cast<size_t>(l));
      if (text.find("///<") != std::string_view::npos) break;
      lines.insert(lines.begin(), text);
    }
    return lines;
  }
  // Keeps what [start, end) declares, with its comments: as a member of the class that is being read, or for itself.
  void keep(const std::string& path, const std::string& name, int first, size_t start, size_t end, std::string code) {
    while (!code.empty() && std::isspace(static_cast<unsigned char>(code.back()))) code.pop_back();
    if (!code.ends_with(';')) code += ';';
    // What follows in the same line, and lines that go on with it.
    const size_t rest = std::min(text_.find('\n', end), text_.size());
    if (const size_t at = text_.find("//", end); at < rest) {
      code += std::string(text_.substr(end, rest - end));
      for (size_t l = static_cast<size_t>(line_) + 1; l < line_starts_.size() && source_.only_comment[l]; ++l) {
        if (line_text(l).find("///<") == std::string_view::npos) break;
        code += "\n" + std::string(line_text(l));
      }
    }
    const std::vector<std::string_view> lines = comment_before(first);
    if (members_ != nullptr) {
      const size_t indent = start - line_starts_[static_cast<size_t>(first)];
      const bool apart = first > 0 && source_.blank[static_cast<size_t>(first) - lines.size() - (first > 0 ? 1 : 0)];
      if (apart && !members_->empty()) *members_ += '\n';
      for (const std::string_view line : lines) *members_ += std::string(line) + '\n';
      *members_ += std::string(indent, ' ') + code + '\n';
      return;
    }
    Declaration d{path, name, {}, std::move(code)};
    for (const std::string_view line : lines) d.comment += without_slashes(line) + '\n';
    declared_.push_back(std::move(d));
  }

 public:
  static std::string without_slashes(std::string_view line) {
    line.remove_prefix(std::min(line.find_first_not_of(" /"), line.size()) == line.size()
                           ? line.size()
                           : std::min(line.find_first_not_of('/', line.find('/')), line.size()));
    if (line.starts_with(' ')) line.remove_prefix(1);
    return std::string(line);
  }

 private:
  void space() {
    for (; at_ < code_.size() && std::isspace(static_cast<unsigned char>(code_[at_])); ++at_)
      line_ += code_[at_] == '\n';
  }
  void step() {
    line_ += code_[at_] == '\n';
    ++at_;
  }
  // Past the bracket that closes the one here.
  void skip_balanced() {
    int depth = 0;
    do {
      depth += std::string_view("([{").find(code_[at_]) != std::string_view::npos;
      depth -= std::string_view(")]}").find(code_[at_]) != std::string_view::npos;
      step();
    } while (depth > 0 && at_ < code_.size());
  }

  // Declarations up to the brace that closes the scope. `owner` is the class that they are members of, `reachable` says
  // whether a public member of it is public.
  void scope(const std::string& path, const std::string& owner, bool reachable, bool visible) {
    int last_line = -2;  // where the declaration before ended
    bool last_commented = false;
    while (true) {
      space();
      if (at_ >= code_.size()) return;
      if (code_[at_] == '}') {
        step();
        return;
      }
      bool is_label = false;
      for (const std::string_view label : {"public:", "protected:", "private:"}) {
        if (!code_.substr(at_).starts_with(label)) continue;
        visible = reachable && label == "public:";
        at_ += label.size();
        is_label = true;
        break;
      }
      if (is_label) continue;
      const int first = line_;
      const bool before = first > 0 && source_.only_comment[static_cast<size_t>(first) - 1];
      const bool row = last_commented && last_line == first - 1;
      declaration(path, owner, visible, before, row);
      bool commented = before || row;
      for (int l = first; l <= line_; ++l) commented = commented || source_.has_comment[static_cast<size_t>(l)];
      last_line = line_;
      last_commented = commented;
    }
  }

  void declaration(const std::string& path, const std::string& owner, bool visible, bool before, bool row) {
    const size_t start = at_;
    const int first = line_;
    size_t body = std::string_view::npos;  // where what a reader does not need begins
    bool assigned = false, called = false, initialisers = false, member_pointer = false;
    std::string name;  // the word before the first parenthesis
    while (at_ < code_.size()) {
      const char c = code_[at_];
      if (c == ';') {
        step();
        break;
      }
      if (!called && code_.substr(at_).starts_with("operator") && !word_char(code_[at_ - 1])) {
        while (code_[at_] != '(') step();
        called = true;
        if (code_.substr(at_).starts_with("()")) at_ += 2;
        continue;
      }
      if (c == '(' || c == '[') {
        if (c == '(' && !called && !assigned) {
          size_t end = at_;
          while (end > start && code_[end - 1] == ' ') --end;
          size_t begin = end;
          while (begin > start && (word_char(code_[begin - 1]))) --begin;
          const std::string_view word = code_.substr(begin, end - begin);
          member_pointer = code_.substr(at_).starts_with("(*");
          if (word != "requires" && word != "decltype" && !word.empty()) {
            if (begin == start || code_[begin - 1] != ':') name = word;  // Class::f is declared elsewhere
            called = true;
          }
        }
        skip_balanced();
        continue;
      }
      if (c == '=' && !called) assigned = true;
      if (c == ':' && called && code_[at_ + 1] != ':' && code_[at_ - 1] != ':') {
        initialisers = true;
        body = std::min(body, at_);
      }
      if (c == '{') {
        size_t end = at_;
        while (end > start && std::isspace(static_cast<unsigned char>(code_[end - 1]))) --end;
        const std::string_view head = stripped(code_.substr(start, at_ - start));
        if (head.starts_with("namespace") || head.starts_with("inline namespace")) {
          const std::string inner(word_after(head, head.find("namespace") + 9, true));
          const bool hidden = inner.empty() || inner.find("detail") != std::string::npos;
          step();
          scope(path.empty() ? inner : path + "::" + inner, {}, visible && !hidden, visible && !hidden);
          return;
        }
        if (is_type(head) && !assigned) {
          type(head, path, visible, before, first);
          continue;
        }
        if (assigned || !called || (initialisers && word_char(code_[end - 1]))) {
          skip_balanced();  // of a variable or a member: its value
          continue;
        }
        body = std::min(body, at_);
        skip_balanced();  // a body
        break;
      }
      step();
    }
    if (!visible) return;
    const std::string_view all = code_.substr(start, at_ - start);
    const std::string_view text = stripped(all);
    bool trailing = false;
    for (int l = first; l <= line_; ++l) trailing = trailing || source_.has_comment[static_cast<size_t>(l)];
    if (is_type(text) || text.starts_with("friend ") || text.starts_with("static_assert") ||
        text.starts_with("namespace"))
      return;
    if (all.starts_with("template <>")) return;
    if (text.find("= delete") == std::string_view::npos)
      keep(path, {}, first, start, at_, std::string(text_.substr(start, std::min(body, at_) - start)));
    Symbol s{Symbol::Kind::function, name, path, first + 1, before || trailing || row, false};
    if (text.starts_with("using ")) {
      if (text.find('=') == std::string_view::npos) return;
      s.kind = Symbol::Kind::type;
      s.name = word_after(text, 6, false);
    } else if (text.starts_with("concept ")) {
      s.kind = Symbol::Kind::type;
      s.name = word_after(text, 8, false);
    } else if (member_pointer) {
      return;
    } else if (!called) {
      if (!owner.empty()) return;  // data members explain themselves beside their class
      s.kind = Symbol::Kind::constant;
      size_t end = text.find_first_of("=;{[");
      while (end > 0 && !word_char(text[end - 1])) --end;
      size_t begin = end;
      while (begin > 0 && word_char(text[begin - 1])) --begin;
      s.name = text.substr(begin, end - begin);
    } else {
      const bool special =
          name.empty() || text.find("operator") < text.find('(') || text.find("= delete") != std::string_view::npos;
      if (special || name == owner || text.find(" override") != std::string_view::npos ||
          text.find(" final") != std::string_view::npos)
        return;
      if (!owner.empty()) s.kind = Symbol::Kind::method;
      s.accessor = !owner.empty() && text.find("() const") != std::string_view::npos;
    }
    found_.push_back(std::move(s));
  }

  void type(std::string_view head, const std::string& path, bool visible, bool before, int first) {
    size_t begin = head.find_first_of(" \n");
    if (head.starts_with("enum")) {
      for (const std::string_view key : {"enum class", "enum struct"})
        if (head.starts_with(key)) begin = key.size();
    }
    const std::string name(word_after(head, begin, false));
    const bool special = head.find(name + "<") != std::string_view::npos && !before;
    const size_t start = at_ - head.size(), brace = at_;
    if (visible && !name.empty() && !special)
      found_.push_back({Symbol::Kind::type, name, path, first + 1, before, false});
    // With the template's parameters, which `head` has no more.
    size_t whole = start;
    for (size_t l = static_cast<size_t>(first); line_starts_[l] < whole; --l) {
      whole = line_starts_[l];
      if (l == static_cast<size_t>(first)) break;
    }
    while (whole < start && std::isspace(static_cast<unsigned char>(text_[whole]))) ++whole;
    if (head.starts_with("enum")) {
      skip_balanced();
      if (visible && !name.empty()) keep(path, name, first, whole, at_, std::string(text_.substr(whole, at_ - whole)));
    } else {
      std::string members;
      std::string* outer = std::exchange(members_, &members);
      step();
      scope(path + "::" + name, name, visible && !special, visible && !special && !head.starts_with("class"));
      members_ = outer;
      std::string code(text_.substr(whole, brace - whole));
      while (!code.empty() && std::isspace(static_cast<unsigned char>(code.back()))) code.pop_back();
      const std::string close(whole - line_starts_[static_cast<size_t>(first)], ' ');
      code += head.starts_with("class") && !members.empty() ? " {\n" + close + " public:\n" : " {\n";
      code += members + close + "}";
      if (visible && !name.empty() && !special) keep(path, name, first, whole, at_, std::move(code));
    }
  }

  // Without attributes, template parameters and the requires clause before a declaration.
  static std::string_view stripped(std::string_view t) {
    while (true) {
      while (!t.empty() && std::isspace(static_cast<unsigned char>(t.front()))) t.remove_prefix(1);
      if (t.starts_with("[[")) {
        t.remove_prefix(t.find("]]") + 2);
      } else if (t.starts_with("template")) {
        int depth = 0;
        size_t i = t.find('<');
        do {
          depth += t[i] == '<';
          depth -= t[i] == '>';
          ++i;
        } while (depth > 0 && i < t.size());
        t.remove_prefix(i);
      } else if (t.starts_with("requires(")) {
        int depth = 0;
        size_t i = 8;
        do {
          depth += t[i] == '(';
          depth -= t[i] == ')';
          ++i;
        } while (depth > 0 && i < t.size());
        t.remove_prefix(i);
      } else {
        return t;
      }
    }
  }
  static bool is_type(std::string_view head) {
    for (const std::string_view key : {"class ", "struct ", "enum ", "union "})
      if (head.starts_with(key)) return true;
    return false;
  }
  // The word after `from`; with `colons`, "a::b".
  static std::string_view word_after(std::string_view t, size_t from, bool colons) {
    while (from < t.size() && !word_char(t[from])) ++from;
    size_t end = from;
    while (end < t.size() && (word_char(t[end]) || (colons && t[end] == ':'))) ++end;
    return t.substr(from, end - from);
  }

  std::string_view text_;
  std::vector<size_t> line_starts_;
  std::vector<Declaration> declared_;
  std::string* members_ = nullptr;  // of the class that is being read
  Source source_;
  std::string_view code_;
  size_t at_ = 0;
  int line_ = 0;
  std::vector<Symbol> found_;
};

}  // namespace

std::vector<Symbol> symbols(std::string_view header) {
  return Parser(header).found();
}

std::vector<Declaration> declarations(std::string_view header) {
  return Parser(header).declared();
}

std::string head_comment(std::string_view header) {
  std::string text;
  while (!header.empty()) {
    const size_t n = std::min(header.find('\n'), header.size());
    const std::string_view line = header.substr(0, n);
    header.remove_prefix(std::min(n + 1, header.size()));
    if (line.starts_with("//")) {
      text += Parser::without_slashes(line) + '\n';
    } else if (!line.starts_with("#pragma") || !text.empty()) {
      break;
    }
  }
  return text;
}

bool mentions(std::string_view code, const Symbol& symbol) {
  const bool call = symbol.kind == Symbol::Kind::function || symbol.kind == Symbol::Kind::method;
  for (size_t at = code.find(symbol.name); at != std::string_view::npos; at = code.find(symbol.name, at + 1)) {
    if (at > 0 && word_char(code[at - 1])) continue;
    const size_t end = at + symbol.name.size();
    if (end < code.size() && word_char(code[end])) continue;
    if (!call || (end < code.size() && (code[end] == '(' || code[end] == '<'))) return true;
  }
  return false;
}

}  // namespace strata::docs
