#pragma once
// The values of templates: Python's, as far as templates see them.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "strata/text/jinja/template.h"

namespace strata::text::jinja {

class Renderer;

/// Where the bytes of a text come from, a bit each.
enum Mark : char { kFromData = 1, kGenerated = 2 };

/// UTF-8 with a mark for each byte; no marks at all where every one would be 0.
struct Text {
  std::string bytes;
  std::string marks;

  Text() = default;
  Text(std::string b) : bytes(std::move(b)) {}
  Text(std::string_view b) : bytes(b) {}
  Text(const char* b) : bytes(b) {}

  void append(const Text& other);
  Text slice(size_t begin, size_t end) const;  // bytes
  void mark(char bits);
  /// The union of all marks.
  char any() const;
};

struct Undefined {
  std::string why;  // of the error where it is used
};
struct None {};
struct Value;
/// Lists and dicts do not change once they are made, so they cannot hold themselves; make_list and make_dict bound how
/// deep they nest, since what looks at them calls itself.
struct List {
  std::vector<Value> items;
  bool tuple = false;
  int64_t depth = 1;
  bool objects = false;  // holds one, however deep
};
struct Dict {
  std::vector<std::pair<Value, Value>> items;  // in order of insertion
  int64_t depth = 1;
  bool objects = false;
};
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};
/// What has attributes or can be called: namespaces, loops, macros, methods.
struct Object {
  virtual ~Object() = default;
  virtual std::string kind() const = 0;
  virtual bool attribute(const std::string& name, Value& out);
  virtual bool assign(const std::string& name, const Value& value);
  virtual bool callable() const { return false; }
  virtual Value call(Renderer& r, Arguments& args);
};

struct Value {
  std::variant<Undefined, None, bool, int64_t, double, Text, std::shared_ptr<const List>, std::shared_ptr<const Dict>,
               std::shared_ptr<Object>>
      v;

  Value() = default;
  template <class T>
  Value(T x) : v(std::move(x)) {}
  Value(const char* s) : v(Text(s)) {}
  Value(int x) : v(int64_t{x}) {}

  template <class T>
  const T* as() const {
    return std::get_if<T>(&v);
  }
  const Text* text() const { return as<Text>(); }
  const List* list() const {
    const auto* p = as<std::shared_ptr<const List>>();
    return p ? p->get() : nullptr;
  }
  const Dict* dict() const {
    const auto* p = as<std::shared_ptr<const Dict>>();
    return p ? p->get() : nullptr;
  }
  Object* object() const {
    const auto* p = as<std::shared_ptr<Object>>();
    return p ? p->get() : nullptr;
  }
  bool undefined() const { return as<Undefined>() != nullptr; }
  bool none() const { return as<None>() != nullptr; }
  bool number() const { return v.index() >= 2 && v.index() <= 4; }  // a bool is one
  bool integral() const { return v.index() == 2 || v.index() == 3; }
  int64_t integer() const { return as<bool>() ? *as<bool>() : *as<int64_t>(); }
  double real() const { return as<double>() ? *as<double>() : static_cast<double>(integer()); }
};

/// Throw ValueError where they would nest deeper than kMaxNesting.
inline constexpr int64_t kMaxNesting = 200;
Value make_list(std::vector<Value> items, bool tuple = false);
Value make_dict(std::vector<std::pair<Value, Value>> items);
/// Whether it is an object or holds one.
bool holds_objects(const Value& v);

/// The name that Python gives its type.
std::string type_name(const Value& v);
bool truth(const Value& v);
/// As Python's ==.
bool equal(const Value& a, const Value& b);
/// As Python's <; throws ValueError for types without an order.
bool less(const Value& a, const Value& b);
/// As Python's str() and repr().
Text to_text(const Value& v);
Text to_repr(const Value& v);
/// As transformers' tojson filter: json.dumps(ensure_ascii=False).
struct JsonStyle {
  int64_t indent = -1;  // none
  std::string indent_text;
  std::string item = ", ", key = ": ";
  bool sort_keys = false;
  bool ensure_ascii = false;
};
Text to_json(const Value& v, const JsonStyle& style);
/// A value of JSON, every text in it with these marks.
Value from_json(const nlohmann::ordered_json& j, char marks);
const Value* find(const Dict& d, const Value& key);
/// Code points.
int64_t length(const Text& t);
/// Byte offset of each code point, and the end.
std::vector<size_t> offsets(const Text& t);
bool is_space(uint32_t c);
uint32_t code_point(std::string_view s, size_t at, size_t* length);
std::string encode(uint32_t c);
/// Without the marks' bytes at both ends that are in `set` (white space where null).
Text strip(const Text& t, const Text* set, bool left, bool right);

[[noreturn]] void fail(std::string message);

}  // namespace strata::text::jinja
