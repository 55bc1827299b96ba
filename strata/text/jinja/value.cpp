#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "strata/core/error.h"
#include "strata/text/jinja/value_inl.h"
#include "strata/text/utf8.h"

namespace strata::text::jinja {

void fail(std::string message) {
  throw ValueError("", message);  // the renderer adds where
}

void Text::append(const Text& other) {
  if (!other.marks.empty() || !marks.empty()) {
    marks.resize(bytes.size());
    marks += other.marks;
    marks.resize(bytes.size() + other.bytes.size());
  }
  bytes += other.bytes;
}
Text Text::slice(size_t begin, size_t end) const {
  Text t(bytes.substr(begin, end - begin));
  if (!marks.empty()) t.marks = marks.substr(begin, end - begin);
  return t;
}
void Text::mark(char bits) {
  if (bits == 0) return;
  marks.resize(bytes.size());
  for (char& m : marks) m |= bits;
}
char Text::any() const {
  char all = 0;
  for (const char m : marks) all |= m;
  return all;
}

namespace {

int64_t nesting(const Value& v) {
  return v.list() ? v.list()->depth : v.dict() ? v.dict()->depth : 0;
}
void deepen(int64_t& depth, bool& objects, const Value& v) {
  depth = std::max(depth, nesting(v) + 1);
  if (depth > kMaxNesting) fail("lists and dicts nest deeper than " + std::to_string(kMaxNesting));
  objects |= holds_objects(v);
}

}  // namespace

bool holds_objects(const Value& v) {
  return v.object() || (v.list() && v.list()->objects) || (v.dict() && v.dict()->objects);
}
Value make_list(std::vector<Value> items, bool tuple) {
  List l{std::move(items), tuple};
  for (const Value& v : l.items) deepen(l.depth, l.objects, v);
  return std::make_shared<const List>(std::move(l));
}
Value make_dict(std::vector<std::pair<Value, Value>> items) {
  Dict d{std::move(items)};
  for (const auto& [key, v] : d.items) {
    deepen(d.depth, d.objects, key);
    deepen(d.depth, d.objects, v);
  }
  return std::make_shared<const Dict>(std::move(d));
}

bool Object::attribute(const std::string&, Value&) {
  return false;
}
bool Object::assign(const std::string&, const Value&) {
  return false;
}
Value Object::call(Renderer&, Arguments&) {
  fail("a " + kind() + " cannot be called");
}

std::string type_name(const Value& v) {
  switch (v.v.index()) {
    case 0:
      return "undefined";
    case 1:
      return "None";
    case 2:
      return "bool";
    case 3:
      return "int";
    case 4:
      return "float";
    case 5:
      return "str";
    case 6:
      return v.list()->tuple ? "tuple" : "list";
    case 7:
      return "dict";
    default:
      return v.object()->kind();
  }
}

bool truth(const Value& v) {
  if (v.undefined() || v.none()) return false;
  if (v.number()) return v.real() != 0;
  if (const Text* t = v.text()) return !t->bytes.empty();
  if (const List* l = v.list()) return !l->items.empty();
  if (const Dict* d = v.dict()) return !d->items.empty();
  return true;
}

bool equal(const Value& a, const Value& b) {
  if (a.number() && b.number()) return a.integral() && b.integral() ? a.integer() == b.integer() : a.real() == b.real();
  if (a.v.index() != b.v.index()) return false;
  if (a.undefined() || a.none()) return true;
  if (a.text()) return a.text()->bytes == b.text()->bytes;
  if (const List* x = a.list()) {
    const List* y = b.list();
    return x->tuple == y->tuple && x->items.size() == y->items.size() &&
           std::equal(x->items.begin(), x->items.end(), y->items.begin(), equal);
  }
  if (const Dict* x = a.dict()) {
    const Dict* y = b.dict();
    return x->items.size() == y->items.size() && std::all_of(x->items.begin(), x->items.end(), [&](const auto& item) {
             const Value* other = find(*y, item.first);
             return other && equal(item.second, *other);
           });
  }
  return a.object() == b.object();
}

bool less(const Value& a, const Value& b) {
  if (a.number() && b.number()) return a.integral() && b.integral() ? a.integer() < b.integer() : a.real() < b.real();
  if (a.text() && b.text()) return a.text()->bytes < b.text()->bytes;  // UTF-8 has the order of its code points
  if (a.list() && b.list() && a.list()->tuple == b.list()->tuple) {
    const auto &x = a.list()->items, &y = b.list()->items;
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i)
      if (!equal(x[i], y[i])) return less(x[i], y[i]);
    return x.size() < y.size();
  }
  if (const Value& u = a.undefined() ? a : b; u.undefined()) fail(u.as<Undefined>()->why);
  fail("'<' between " + type_name(a) + " and " + type_name(b));
}

namespace {

std::string real_text(double x) {
  std::string s = fmt::format("{}", x);
  if (s.find_first_not_of("-0123456789") == std::string::npos) s += ".0";
  return s;
}

// As Python's repr: single quotes, unless the text has some and no double ones.
Text quoted(const Text& t) {
  const char quote = t.bytes.find('\'') != std::string::npos && t.bytes.find('"') == std::string::npos ? '"' : '\'';
  std::string s(1, quote);
  for (const char c : t.bytes) {
    if (c == quote || c == '\\') {
      s += '\\';
      s += c;
    } else if (c == '\n') {
      s += "\\n";
    } else if (c == '\r') {
      s += "\\r";
    } else if (c == '\t') {
      s += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      s += fmt::format("\\x{:02x}", c);
    } else {
      s += c;
    }
  }
  s += quote;
  Text out(s);
  out.mark(t.any());
  return out;
}

Text json_text(const Text& t, bool ascii) {
  std::string s = "\"";
  for (size_t i = 0; i < t.bytes.size();) {
    size_t n = 1;
    const uint32_t c = code_point(t.bytes, i, &n);
    if (c == '"' || c == '\\') {
      s += '\\';
      s += static_cast<char>(c);
    } else if (c == '\n') {
      s += "\\n";
    } else if (c == '\r') {
      s += "\\r";
    } else if (c == '\t') {
      s += "\\t";
    } else if (c == '\b') {
      s += "\\b";
    } else if (c == '\f') {
      s += "\\f";
    } else if (c < 0x20 || (ascii && c >= 0x7f && c < 0x10000)) {
      s += ascii && c == 0x7f ? std::string("\x7f") : fmt::format("\\u{:04x}", c);
    } else if (ascii && c >= 0x10000) {
      s += fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + ((c - 0x10000) >> 10), 0xdc00 + ((c - 0x10000) & 0x3ff));
    } else {
      s.append(t.bytes, i, n);
    }
    i += n;
  }
  s += '"';
  Text out(s);
  out.mark(t.any());
  return out;
}

void write_json(const Value& v, const JsonStyle& style, int64_t level, Text& out) {
  if (v.undefined()) fail("tojson: " + v.as<Undefined>()->why);
  if (v.none()) return out.append("null");
  if (const bool* b = v.as<bool>()) return out.append(*b ? "true" : "false");
  if (v.as<int64_t>()) return out.append(std::to_string(v.integer()));
  if (const double* x = v.as<double>())
    return out.append(std::isnan(*x) ? "NaN" : std::isinf(*x) ? (*x > 0 ? "Infinity" : "-Infinity") : real_text(*x));
  if (const Text* t = v.text()) return out.append(json_text(*t, style.ensure_ascii));
  const bool lines = style.indent >= 0;
  const auto newline = [&](int64_t depth) {
    out.append("\n");
    for (int64_t i = 0; i < depth; ++i) out.append(style.indent_text);
  };
  const auto separate = [&](bool first) {
    if (!first) out.append(style.item);
    if (lines) newline(level + 1);
  };
  if (const List* l = v.list()) {
    if (l->items.empty()) return out.append("[]");
    out.append("[");
    for (size_t i = 0; i < l->items.size(); ++i) {
      separate(i == 0);
      write_json(l->items[i], style, level + 1, out);
    }
    if (lines) newline(level);
    return out.append("]");
  }
  if (const Dict* d = v.dict()) {
    if (d->items.empty()) return out.append("{}");
    std::vector<const std::pair<Value, Value>*> items;
    for (const auto& item : d->items) items.push_back(&item);
    if (style.sort_keys)
      std::stable_sort(items.begin(), items.end(),
                       [](const auto* a, const auto* b) { return less(a->first, b->first); });
    out.append("{");
    for (size_t i = 0; i < items.size(); ++i) {
      separate(i == 0);
      const Value& key = items[i]->first;
      if (key.list() || key.dict() || key.object() || key.undefined()) fail("tojson: a key is a " + type_name(key));
      if (key.text()) {
        write_json(key, style, level + 1, out);
      } else {
        Text name;
        write_json(key, style, level + 1, name);
        out.append(json_text(name, style.ensure_ascii));
      }
      out.append(style.key);
      write_json(items[i]->second, style, level + 1, out);
    }
    if (lines) newline(level);
    return out.append("}");
  }
  fail("tojson: a " + type_name(v) + " is no JSON");
}

}  // namespace

Text to_text(const Value& v) {
  if (v.undefined()) return {};
  if (const Text* t = v.text()) return *t;
  return to_repr(v);
}

Text to_repr(const Value& v) {
  if (v.undefined()) return "Undefined";
  if (v.none()) return "None";
  if (const bool* b = v.as<bool>()) return *b ? "True" : "False";
  if (v.as<int64_t>()) return std::to_string(v.integer());
  if (const double* x = v.as<double>()) return real_text(*x);
  if (const Text* t = v.text()) return quoted(*t);
  Text out;
  if (const List* l = v.list()) {
    out.append(l->tuple ? "(" : "[");
    for (size_t i = 0; i < l->items.size(); ++i) {
      if (i) out.append(", ");
      out.append(to_repr(l->items[i]));
    }
    if (l->tuple && l->items.size() == 1) out.append(",");
    out.append(l->tuple ? ")" : "]");
    return out;
  }
  if (const Dict* d = v.dict()) {
    out.append("{");
    for (size_t i = 0; i < d->items.size(); ++i) {
      if (i) out.append(", ");
      out.append(to_repr(d->items[i].first));
      out.append(": ");
      out.append(to_repr(d->items[i].second));
    }
    out.append("}");
    return out;
  }
  return "<" + v.object()->kind() + ">";
}

Text to_json(const Value& v, const JsonStyle& style) {
  Text out;
  write_json(v, style, 0, out);
  return out;
}

Value from_json(const nlohmann::ordered_json& j, char marks) {
  const auto text = [&](const std::string& s) {
    check(valid_utf8(s) == s, "template", "a text among its variables is not UTF-8");
    Text t(s);
    t.mark(marks);
    return t;
  };
  switch (j.type()) {
    case nlohmann::ordered_json::value_t::boolean:
      return j.get<bool>();
    case nlohmann::ordered_json::value_t::number_integer:
      return j.get<int64_t>();
    case nlohmann::ordered_json::value_t::number_unsigned:
      check(j.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX), "template", "the number ", j.get<uint64_t>(),
            " among its variables is too large");
      return static_cast<int64_t>(j.get<uint64_t>());
    case nlohmann::ordered_json::value_t::number_float:
      return j.get<double>();
    case nlohmann::ordered_json::value_t::string:
      return text(j.get_ref<const std::string&>());
    case nlohmann::ordered_json::value_t::array: {
      std::vector<Value> items;
      for (const auto& x : j) items.push_back(from_json(x, marks));
      return make_list(std::move(items));
    }
    case nlohmann::ordered_json::value_t::object: {
      std::vector<std::pair<Value, Value>> items;
      for (const auto& [key, x] : j.items()) items.emplace_back(text(key), from_json(x, marks));
      return make_dict(std::move(items));
    }
    default:
      return None{};
  }
}

const Value* find(const Dict& d, const Value& key) {
  for (const auto& [k, v] : d.items)
    if (equal(k, key)) return &v;
  return nullptr;
}

uint32_t code_point(std::string_view s, size_t at, size_t* length) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(s[at + i]); };
  const size_t n = std::max<size_t>(utf8_length(s.substr(at)), 1);
  *length = n;
  if (n == 1) return byte(0);
  uint32_t c = byte(0) & (0xff >> (n + 1));
  for (size_t i = 1; i < n; ++i) c = c << 6 | (byte(i) & 0x3f);
  return c;
}

std::string encode(uint32_t c) {
  std::string s;
  if (c < 0x80) {
    s += static_cast<char>(c);
  } else if (c < 0x800) {
    s += static_cast<char>(0xc0 | c >> 6);
    s += static_cast<char>(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    s += static_cast<char>(0xe0 | c >> 12);
    s += static_cast<char>(0x80 | (c >> 6 & 0x3f));
    s += static_cast<char>(0x80 | (c & 0x3f));
  } else {
    s += static_cast<char>(0xf0 | c >> 18);
    s += static_cast<char>(0x80 | (c >> 12 & 0x3f));
    s += static_cast<char>(0x80 | (c >> 6 & 0x3f));
    s += static_cast<char>(0x80 | (c & 0x3f));
  }
  return s;
}

int64_t length(const Text& t) {
  return std::count_if(t.bytes.begin(), t.bytes.end(), [](char c) { return (c & 0xc0) != 0x80; });
}

std::vector<size_t> offsets(const Text& t) {
  std::vector<size_t> at;
  for (size_t i = 0; i < t.bytes.size(); ++i)
    if ((t.bytes[i] & 0xc0) != 0x80) at.push_back(i);
  at.push_back(t.bytes.size());
  return at;
}

// Python's str.isspace.
bool is_space(uint32_t c) {
  return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

Text strip(const Text& t, const Text* set, bool left, bool right) {
  const auto at = offsets(t);
  const size_t n = at.size() - 1;
  const auto drops = [&](size_t i) {
    if (set) return set->bytes.find(t.bytes.substr(at[i], at[i + 1] - at[i])) != std::string::npos;
    size_t length = 0;
    return is_space(code_point(t.bytes, at[i], &length));
  };
  size_t begin = 0, end = n;
  while (left && begin < end && drops(begin)) ++begin;
  while (right && end > begin && drops(end - 1)) --end;
  return t.slice(at[begin], at[end]);
}

}  // namespace strata::text::jinja
