// Schemas: their types as text, and their parser.

#include <algorithm>
#include <cctype>
#include <charconv>
#include <iterator>

#include "strata/core/error.h"
#include "strata/core/value.h"

namespace strata {

namespace {

// As schemas write them, in the order of SchemaType::Kind.
constexpr std::string_view kTypes[] = {"Tensor", "Tensor[]", "Scalar", "int",    "float", "bool",
                                       "str",    "int[]",    "DType",  "Device", "RngKey"};
constexpr std::string_view kOptionalTypes[] = {"Tensor?", "Tensor[]?", "Scalar?", "int?",    "float?", "bool?",
                                               "str?",    "int[]?",    "DType?",  "Device?", "RngKey?"};
static_assert(std::size(kTypes) == kNumSchemaKinds && std::size(kOptionalTypes) == kNumSchemaKinds);

class SchemaParser {
 public:
  explicit SchemaParser(std::string_view text) : text_(text) {}
  Schema parse() {
    Schema s;
    s.name = word();
    expect('(');
    if (!accept(')')) {
      do s.args.push_back(arg());
      while (accept(','));
      expect(')');
    }
    expect('-');
    expect('>');
    if (accept('(')) {
      do s.results.push_back(arg());
      while (accept(','));
      expect(')');
    } else {
      s.results.push_back({type(), {}, std::nullopt});
    }
    if (peek() != '\0') fail("end of text");
    return s;
  }

 private:
  char peek() {
    while (pos_ < text_.size() && text_[pos_] == ' ') ++pos_;
    return pos_ < text_.size() ? text_[pos_] : '\0';
  }
  bool accept(char c) {
    if (peek() != c) return false;
    ++pos_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(std::string(1, c));
  }
  [[noreturn]] void fail(std::string_view wanted) {
    throw ValueError("parse_schema", cat("expected '", wanted, "' at position ", pos_, " of: ", text_));
  }
  std::string word() {
    peek();
    const size_t begin = pos_;
    while (pos_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[pos_])) || text_[pos_] == '_')) ++pos_;
    if (begin == pos_) fail("a name");
    return std::string(text_.substr(begin, pos_ - begin));
  }
  SchemaType type() {
    std::string t = word();
    if (accept('[')) {
      expect(']');
      t += "[]";
    }
    const auto found = std::find(std::begin(kTypes), std::end(kTypes), t);
    if (found == std::end(kTypes)) fail("a type (Tensor, int, float, ...)");
    return {static_cast<SchemaType::Kind>(found - std::begin(kTypes)), accept('?')};
  }
  SchemaArg arg() {
    SchemaArg a;
    a.type = type();
    if (std::isalpha(static_cast<unsigned char>(peek())) || peek() == '_') a.name = word();
    if (accept('=')) a.default_value = value(a.type);
    return a;
  }
  Value value(SchemaType type) {
    if (accept('[')) {
      Dims d;
      while (!accept(']')) {
        d.push_back(static_cast<int64_t>(number()));
        accept(',');
      }
      return d;
    }
    if (accept('"')) {
      const size_t begin = pos_;
      while (pos_ < text_.size() && text_[pos_] != '"') ++pos_;
      std::string s(text_.substr(begin, pos_ - begin));
      expect('"');
      return s;
    }
    if (std::isalpha(static_cast<unsigned char>(peek()))) {
      const std::string w = word();
      if (w == "None") return std::monostate();
      if (w == "true") return true;
      if (w == "false") return false;
      if (w == "inf") return double(__builtin_inf());
      if (type.kind == SchemaType::dtype) return parse_dtype(w);
      if (type.kind == SchemaType::device) return parse_device(w);
      fail("a default value");
    }
    const size_t begin = pos_;
    const double v = number();
    const std::string_view digits = text_.substr(begin, pos_ - begin);
    const bool integral = digits.find_first_of(".e") == std::string_view::npos;
    if (type.kind == SchemaType::number || (type.kind == SchemaType::scalar && !integral)) return v;
    return static_cast<int64_t>(v);
  }
  double number() {
    peek();
    double v = 0;
    if (text_.substr(pos_).starts_with("-inf")) {
      pos_ += 4;
      return -__builtin_inf();
    }
    const auto [end, ec] = std::from_chars(text_.data() + pos_, text_.data() + text_.size(), v);
    if (ec != std::errc()) fail("a number");
    pos_ = static_cast<size_t>(end - text_.data());
    return v;
  }

  std::string_view text_;
  size_t pos_ = 0;
};

}  // namespace

std::string_view SchemaType::text() const {
  return (optional ? kOptionalTypes : kTypes)[kind];
}
bool Schema::is_random() const {
  return std::any_of(args.begin(), args.end(), [](const SchemaArg& a) { return a.type.kind == SchemaType::key; });
}
Schema parse_schema(std::string_view text) {
  return SchemaParser(text).parse();
}

}  // namespace strata
