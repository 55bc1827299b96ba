#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/args.h>
#include <fmt/format.h>

#include "strata/text/jinja/render_inl.h"

namespace strata::text::jinja {
namespace {

using Filter = Value (*)(Renderer&, const Value&, Arguments&);

const Value& defined(const Value& v) {
  if (v.undefined()) fail(v.as<Undefined>()->why);
  return v;
}

// "a.b.0" of a value, as map(attribute=..) and its like read it.
Value reach(Renderer& r, Value v, const Value& path) {
  if (path.integral()) return r.item(v, path);
  const std::string& names = as_text(path, "an attribute's name").bytes;
  for (size_t begin = 0; begin <= names.size();) {
    const size_t end = std::min(names.find('.', begin), names.size());
    const std::string name = names.substr(begin, end - begin);
    const bool number = !name.empty() && name.size() < 10 && std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c); });
    v = r.item(v, number ? Value(int64_t{std::stoll(name)}) : Value(Text(name)));
    begin = end + 1;
  }
  return v;
}

// What sorts and uniques compare: texts without case, unless it matters.
Value key_of(const Value& v, bool case_sensitive) {
  return v.text() && !case_sensitive ? Value(lower(*v.text())) : v;
}

void sort(Renderer& r, std::vector<Value>& items, const std::vector<Value>& keys, bool reverse) {
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  r.pay(items.size() * 64 * 8);
  for (size_t i = 0; i + 1 < keys.size(); ++i) less(keys[i], keys[i + 1]);  // what has no order is refused before it is sorted
  const auto before = [&](size_t a, size_t b) { return reverse ? less(keys[b], keys[a]) : less(keys[a], keys[b]); };
  std::stable_sort(order.begin(), order.end(), before);
  std::vector<Value> sorted;
  for (const size_t i : order) sorted.push_back(items[i]);
  items = std::move(sorted);
}

Value sort_filter(Renderer& r, const Value& v, Arguments& args) {
  Take take("sort", args);
  const bool reverse = take.flag("reverse", false), exact = take.flag("case_sensitive", false);
  const Value* by = take.get("attribute");
  take.done();
  std::vector<Value> items = r.items(v), keys;
  for (const Value& x : items) {
    std::vector<Value> key;
    if (by && by->text() && by->text()->bytes.find(',') != std::string::npos) {
      for (const Value& part : split(*by->text(), std::make_unique<Text>(",").get(), -1, false)) key.push_back(key_of(reach(r, x, part), exact));
    } else {
      key.push_back(key_of(by && !by->none() ? reach(r, x, *by) : x, exact));
    }
    keys.push_back(key.size() == 1 ? key[0] : make_list(std::move(key)));
  }
  sort(r, items, keys, reverse);
  return make_list(std::move(items));
}

Value dictsort(Renderer& r, const Value& v, Arguments& args) {
  Take take("dictsort", args);
  const bool exact = take.flag("case_sensitive", false);
  const bool by_value = take.text("by", std::string("key")) == "value";
  const bool reverse = take.flag("reverse", false);
  take.done();
  if (!defined(v).dict()) fail("dictsort of a " + type_name(v));
  std::vector<Value> items, keys;
  for (const auto& [key, value] : v.dict()->items) {
    items.push_back(make_list({key, value}, true));
    keys.push_back(key_of(by_value ? value : key, exact));
  }
  sort(r, items, keys, reverse);
  return make_list(std::move(items));
}

// The test that select and its like name, over x or its attribute.
Value choose(Renderer& r, const Value& v, Arguments& args, bool keeps, bool attribute) {
  const std::string what = std::string(keeps ? "select" : "reject") + (attribute ? "attr" : "");
  Arguments rest = args;
  Value path;
  if (attribute) {
    if (rest.positional.empty()) fail(what + " needs an attribute's name");
    path = rest.positional[0];
    rest.positional.erase(rest.positional.begin());
  }
  std::string name;
  if (!rest.positional.empty()) {
    name = as_text(rest.positional[0], what + "'s test").bytes;
    rest.positional.erase(rest.positional.begin());
    if (!test_exists(name)) fail("there is no test '" + name + "'");
  }
  std::vector<Value> out;
  for (const Value& x : r.items(v)) {
    const Value of = attribute ? reach(r, x, path) : x;
    Arguments again = rest;
    if ((name.empty() ? truth(of) : r.test(name, of, again)) == keeps) out.push_back(x);
  }
  return make_list(std::move(out));
}

Value map(Renderer& r, const Value& v, Arguments& args) {
  std::vector<Value> out;
  if (args.positional.empty()) {
    Take take("map", args);
    Arguments by_name;
    by_name.named = args.named;
    Take named("map", by_name);
    const Value path = named.need("attribute");
    const Value* otherwise = named.get("default");
    named.done();
    for (const Value& x : r.items(v)) {
      Value got = reach(r, x, path);
      out.push_back(got.undefined() && otherwise ? *otherwise : std::move(got));
    }
    return make_list(std::move(out));
  }
  const std::string name = as_text(args.positional[0], "map's filter").bytes;
  if (!filter_exists(name)) fail("there is no filter '" + name + "'");
  Arguments rest = args;
  rest.positional.erase(rest.positional.begin());
  for (const Value& x : r.items(v)) {
    Arguments again = rest;
    out.push_back(r.filter(name, x, again));
  }
  return make_list(std::move(out));
}

Value groupby(Renderer& r, const Value& v, Arguments& args) {
  Take take("groupby", args);
  const Value path = take.need("attribute");
  const Value* otherwise = take.get("default");
  const bool exact = take.flag("case_sensitive", false);
  take.done();
  std::vector<Value> items = r.items(v), keys;
  const auto group = [&](const Value& x) {
    Value k = reach(r, x, path);
    return k.undefined() && otherwise ? *otherwise : k;
  };
  for (const Value& x : items) keys.push_back(key_of(group(x), exact));
  sort(r, items, keys, false);
  std::vector<Value> out;
  for (size_t i = 0; i < items.size();) {
    const Value first = group(items[i]);
    std::vector<Value> same;
    for (; i < items.size() && equal(key_of(group(items[i]), exact), key_of(first, exact)); ++i) same.push_back(items[i]);
    out.push_back(make_list({first, make_list(std::move(same))}, true));
  }
  return make_list(std::move(out));
}

Value unique(Renderer& r, const Value& v, Arguments& args) {
  Take take("unique", args);
  const bool exact = take.flag("case_sensitive", false);
  const Value* path = take.get("attribute");
  take.done();
  std::vector<Value> out, keys;
  for (const Value& x : r.items(v)) {
    Value k = key_of(path && !path->none() ? reach(r, x, *path) : x, exact);
    r.pay(keys.size() * 64);
    if (std::any_of(keys.begin(), keys.end(), [&](const Value& other) { return equal(other, k); })) continue;
    keys.push_back(std::move(k));
    out.push_back(x);
  }
  return make_list(std::move(out));
}

Value extreme(Renderer& r, const Value& v, Arguments& args, bool largest) {
  Take take(largest ? "max" : "min", args);
  const bool exact = take.flag("case_sensitive", false);
  const Value* path = take.get("attribute");
  take.done();
  const auto items = r.items(v);
  if (items.empty()) return Undefined{"no item of an empty sequence"};
  const auto key = [&](const Value& x) { return key_of(path && !path->none() ? reach(r, x, *path) : x, exact); };
  size_t best = 0;
  for (size_t i = 1; i < items.size(); ++i)
    if (largest ? less(key(items[best]), key(items[i])) : less(key(items[i]), key(items[best]))) best = i;
  return items[best];
}

Value sum(Renderer& r, const Value& v, Arguments& args) {
  Take take("sum", args);
  const Value* path = take.get("attribute");
  const Value* start = take.get("start");
  take.done();
  Value total = start ? *start : Value(0);
  for (const Value& x : r.items(v)) total = r.binary("+", total, path && !path->none() ? reach(r, x, *path) : x);
  return total;
}

Value batches(Renderer& r, const Value& v, Arguments& args) {
  Take take("batch", args);
  const int64_t size = as_integer(take.need("linecount"), "batch");
  const Value* fill = take.get("fill_with");
  take.done();
  if (size < 1) fail("batches of " + std::to_string(size));
  std::vector<Value> out, line;
  for (const Value& x : r.items(v)) {
    line.push_back(x);
    if (static_cast<int64_t>(line.size()) == size) out.push_back(make_list(std::exchange(line, {})));
  }
  if (!line.empty()) {
    if (fill && !fill->none()) {
      r.pay(static_cast<size_t>(std::min(size, int64_t{1} << 40)) * 64);
      line.resize(static_cast<size_t>(size), *fill);
    }
    out.push_back(make_list(std::move(line)));
  }
  return make_list(std::move(out));
}

Value slices(Renderer& r, const Value& v, Arguments& args) {
  Take take("slice", args);
  const int64_t n = as_integer(take.need("slices"), "slice");
  const Value* fill = take.get("fill_with");
  take.done();
  if (n < 1) fail("slices: " + std::to_string(n));
  const auto items = r.items(v);
  const int64_t size = static_cast<int64_t>(items.size()), each = size / n, more = size % n;
  r.pay(static_cast<size_t>(std::min(n, int64_t{1} << 40)) * 64);
  std::vector<Value> out;
  for (int64_t i = 0, at = 0; i < n; ++i) {
    const int64_t take_n = each + (i < more);
    std::vector<Value> part(items.begin() + at, items.begin() + at + take_n);
    at += take_n;
    if (fill && !fill->none() && i >= more && more > 0) part.push_back(*fill);
    out.push_back(make_list(std::move(part)));
  }
  return make_list(std::move(out));
}

Value indent(Renderer& r, const Value& v, Arguments& args) {
  Take take("indent", args);
  const Value* width = take.get("width");
  const bool first = take.flag("first", false), blank = take.flag("blank", false);
  take.done();
  const Text text = to_text(defined(v));
  Text by;
  if (width && width->text()) {
    by = *width->text();
  } else {
    const int64_t n = width ? as_integer(*width, "indent") : 4;
    if (n > (1 << 16)) fail("indent by " + std::to_string(n));
    by = Text(std::string(static_cast<size_t>(std::max<int64_t>(n, 0)), ' '));
  }
  Text out;
  size_t begin = 0;
  for (bool head = true;; head = false) {
    const size_t end = std::min(text.bytes.find('\n', begin), text.bytes.size());
    const bool empty = end == begin;
    if (head ? first : (!empty || blank)) out.append(by);
    out.append(text.slice(begin, end));
    r.pay(out.bytes.size() / 1024);
    if (static_cast<int64_t>(out.bytes.size()) > r.options.limits.output_bytes) r.pay(out.bytes.size());
    if (end == text.bytes.size()) return out;
    out.append("\n");
    begin = end + 1;
  }
}

Value to_number(const Value& v, Arguments& args, bool whole) {
  Take take(whole ? "int" : "float", args);
  const Value* given = take.get("default");
  const int64_t base = whole ? take.integer("base", 10) : 10;
  take.done();
  const Value otherwise = given ? *given : whole ? Value(0) : Value(0.0);
  if (v.number()) {
    if (!whole) return v.real();
    if (v.integral()) return v.integer();
    return std::isfinite(v.real()) && std::abs(v.real()) < 9e18 ? Value(static_cast<int64_t>(v.real())) : otherwise;
  }
  if (!v.text()) return otherwise;
  std::string s = strip(*v.text(), nullptr, true, true).bytes;
  std::erase(s, '_');
  if (s.empty()) return otherwise;
  char* end = nullptr;
  if (whole) {
    errno = 0;
    const char* digits = s.c_str();
    if (base == 16 || base == 8 || base == 2) {
      const size_t at = s[0] == '-' || s[0] == '+' ? 1 : 0;
      if (s.size() > at + 1 && s[at] == '0' && std::string("xXoObB").find(s[at + 1]) != std::string::npos) s.erase(at, 2), digits = s.c_str();
    }
    const long long x = std::strtoll(digits, &end, base >= 2 && base <= 36 ? static_cast<int>(base) : 10);
    if (*end == '\0' && end != digits && errno == 0) return int64_t{x};
  }
  const bool decimal = s.find_first_not_of("+-.0123456789eE") == std::string::npos || s.find("inf") != std::string::npos || s.find("nan") != std::string::npos;
  const double x = std::strtod(s.c_str(), &end);
  if (!decimal || *end != '\0') return otherwise;
  if (!whole) return x;
  return std::isfinite(x) && std::abs(x) < 9e18 ? Value(static_cast<int64_t>(x)) : otherwise;
}

Value round(Renderer&, const Value& v, Arguments& args) {
  Take take("round", args);
  const int64_t digits = take.integer("precision", 0);
  const std::string way = take.text("method", std::string("common"));
  take.done();
  if (!defined(v).number()) fail("round of a " + type_name(v));
  if (digits < -300 || digits > 300) fail("round to " + std::to_string(digits) + " digits");
  const double by = std::pow(10.0, static_cast<double>(digits)), x = v.real();
  if (way == "ceil") return std::ceil(x * by) / by;
  if (way == "floor") return std::floor(x * by) / by;
  if (way != "common") fail("round's method is common, ceil or floor");
  if (v.integral() && digits >= 0) return v.integer();
  if (digits < 0) return std::nearbyint(x * by) / by;
  return std::strtod(fmt::format("{:.{}f}", x, digits).c_str(), nullptr);
}

// Python's "%s %d" formatting, of texts and numbers.
Value format(Renderer& r, const Value& v, Arguments& args) {
  const Text& pattern = as_text(v, "format");
  Text out;
  size_t next = 0, begin = 0;
  const std::string& s = pattern.bytes;
  for (size_t i = 0; i < s.size(); ++i) {
    if (s[i] != '%') continue;
    out.append(pattern.slice(begin, i));
    size_t k = i + 1;
    std::string name;
    if (k < s.size() && s[k] == '(') {
      const size_t close = s.find(')', k);
      if (close == std::string::npos) fail("format: '%(' has no end");
      name = s.substr(k + 1, close - k - 1);
      k = close + 1;
    }
    const size_t flags = k;
    while (k < s.size() && std::string("-+ 0#").find(s[k]) != std::string::npos) ++k;
    while (k < s.size() && (std::isdigit(static_cast<unsigned char>(s[k])) || s[k] == '.')) ++k;
    if (k >= s.size() || k - flags > 6) fail("format: an incomplete '%'");
    const std::string spec = s.substr(flags, k - flags);
    const char kind = s[k];
    begin = k + 1;
    i = k;
    if (kind == '%') {
      out.append("%");
      continue;
    }
    const Value* arg = nullptr;
    if (name.empty()) {
      if (next >= args.positional.size()) fail("format: not enough arguments");
      arg = &args.positional[next++];
    } else {
      for (const auto& [key, value] : args.named)
        if (key == name) arg = &value;
      if (!arg) fail("format: no argument '" + name + "'");
    }
    char buffer[512];
    if (kind == 's' || kind == 'r') {
      const Text t = kind == 's' ? to_text(*arg) : to_repr(*arg);
      if (spec.empty()) {
        out.append(t);
      } else {
        const bool left = spec.find('-') != std::string::npos;
        const auto room = std::atoll(spec.c_str() + (left ? 1 : 0)) - length(t);
        const std::string spaces(static_cast<size_t>(std::clamp<int64_t>(room, 0, 100000)), ' ');
        if (!left) out.append(spaces);
        out.append(t);
        if (left) out.append(spaces);
      }
    } else if (std::string("dixXoeEfFgG").find(kind) != std::string::npos && arg->number()) {
      if (std::string("dixXo").find(kind) != std::string::npos) {
        const int64_t whole = arg->integral() ? arg->integer() : static_cast<int64_t>(arg->real());
        std::snprintf(buffer, sizeof buffer, ("%" + spec + "ll" + (kind == 'i' ? 'd' : kind)).c_str(), static_cast<long long>(whole));
      } else {
        std::snprintf(buffer, sizeof buffer, ("%" + spec + kind).c_str(), arg->real());
      }
      out.append(buffer);
    } else {
      fail(std::string("format: '%") + kind + "' of a " + type_name(*arg));
    }
    r.pay(out.bytes.size() / 1024);
  }
  out.append(pattern.slice(begin, s.size()));
  return out;
}

Value escape(const Value& v) {
  Text out;
  const Text t = to_text(v);
  for (size_t i = 0; i < t.bytes.size(); ++i) {
    const char c = t.bytes[i];
    Text piece = c == '&' ? Text("&amp;") : c == '<' ? Text("&lt;") : c == '>' ? Text("&gt;") : c == '\'' ? Text("&#39;") : c == '"' ? Text("&#34;") : t.slice(i, i + 1);
    if (!t.marks.empty()) piece.mark(t.marks[i]);
    out.append(piece);
  }
  return out;
}

Value urlencode(const Value& v) {
  const auto quote = [](const Text& t, bool query = false) {
    std::string s;
    for (const unsigned char c : t.bytes) {
      const bool plain = std::isalnum(c) || c == '_' || c == '.' || c == '-' || c == '~' || (c == '/' && !query);
      s += plain ? std::string(1, static_cast<char>(c)) : query && c == ' ' ? "+" : fmt::format("%{:02X}", c);
    }
    Text out(s);
    out.mark(t.any());
    return out;
  };
  if (v.text() || !v.dict()) return quote(to_text(v));
  Text out;
  for (const auto& [key, value] : v.dict()->items) {
    if (!out.bytes.empty()) out.append("&");
    out.append(quote(to_text(key), true));
    out.append("=");
    out.append(quote(to_text(value), true));
  }
  return out;
}

Value truncate(const Value& v, Arguments& args) {
  Take take("truncate", args);
  const int64_t most = take.integer("length", 255);
  const bool words = take.flag("killwords", false);
  const Text* ending = take.text("end");
  const int64_t leeway = take.integer("leeway", 5);
  take.done();
  const Text t = to_text(defined(v)), tail = ending ? *ending : Text("...");
  const auto at = offsets(t);
  if (most < length(tail) || leeway < 0) fail("truncate to " + std::to_string(most));
  if (static_cast<int64_t>(at.size()) - 1 <= most + leeway) return t;
  Text cut = t.slice(0, at[static_cast<size_t>(most - length(tail))]);
  if (!words)
    if (const size_t space = cut.bytes.rfind(' '); space != std::string::npos) cut = cut.slice(0, space);
  cut.append(tail);
  return cut;
}

Value tojson(const Value& v, Arguments& args) {
  Take take("tojson", args);
  JsonStyle style;
  style.ensure_ascii = take.flag("ensure_ascii", false);
  const Value* indent = take.get("indent");
  const Value* separators = take.get("separators");
  style.sort_keys = take.flag("sort_keys", false);
  take.done();
  if (indent && !indent->none()) {
    style.indent = 0;
    if (indent->text()) {
      style.indent_text = indent->text()->bytes;
    } else {
      style.indent_text = std::string(static_cast<size_t>(std::clamp<int64_t>(as_integer(*indent, "tojson's indent"), 0, 64)), ' ');
    }
    style.item = ",";
  }
  if (separators && !separators->none()) {
    if (!separators->list() || separators->list()->items.size() != 2) fail("tojson's separators are two texts");
    style.item = as_text(separators->list()->items[0], "a separator").bytes;
    style.key = as_text(separators->list()->items[1], "a separator").bytes;
  }
  return to_json(v, style);
}

Value length_of(Renderer&, const Value& v, Arguments&) {
  if (v.undefined()) return 0;
  if (v.text()) return length(*v.text());
  if (v.list()) return static_cast<int64_t>(v.list()->items.size());
  if (v.dict()) return static_cast<int64_t>(v.dict()->items.size());
  fail("a " + type_name(v) + " has no length");
}

Value end_of(Renderer& r, const Value& v, bool last) {
  const auto items = r.items(v);
  if (items.empty()) return Undefined{"no item of an empty sequence"};
  return last ? items.back() : items.front();
}

Value default_of(Renderer&, const Value& v, Arguments& args) {
  Take take("default", args);
  const Value* other = take.get("default_value");
  const bool falsy = take.flag("boolean", false);
  take.done();
  return v.undefined() || (falsy && !truth(v)) ? (other ? *other : Value(Text())) : v;
}

Value replace_filter(Renderer& r, const Value& v, Arguments& args) {
  Take take("replace", args);
  const Text from = to_text(take.need("old")), to = to_text(take.need("new"));
  const int64_t most = take.integer("count", -1);
  take.done();
  const Text t = to_text(v);
  r.pay(t.bytes.size() / std::max<size_t>(from.bytes.size(), 1) * to.bytes.size());
  return replace(t, from, to, most);
}

Value join_filter(Renderer& r, const Value& v, Arguments& args) {
  Take take("join", args);
  const Value* between = take.get("d");
  const Value* path = take.get("attribute");
  take.done();
  auto items = r.items(v);
  if (path && !path->none())
    for (Value& x : items) x = reach(r, x, *path);
  return join(r, items, between ? to_text(*between) : Text());
}

Value items_of(Renderer& r, const Value& v, Arguments&) {
  if (v.undefined()) return make_list({});
  if (!v.dict()) fail("items of a " + type_name(v));
  Arguments none;
  return r.call(method(v, "items"), none);
}

Value trim(Renderer&, const Value& v, Arguments& args) {
  Take take("trim", args);
  const Text* set = take.text("chars");
  take.done();
  return strip(to_text(v), set, true, true);
}

Value by_method(Renderer& r, const Value& v, Arguments& args, const char* name) {
  return r.call(method(to_text(v), name), args);
}

Value reversed(Renderer& r, const Value& v, Arguments&) {
  auto items = r.items(v);
  std::reverse(items.begin(), items.end());
  if (!v.text()) return make_list(std::move(items));
  Text out;
  for (const Value& x : items) out.append(*x.text());
  return out;
}

Value absolute(Renderer& r, const Value& v, Arguments&) {
  if (!defined(v).number()) fail("abs of a " + type_name(v));
  return v.real() < 0 ? r.binary("-", 0, v) : v;
}

const std::map<std::string, Filter>& table() {
  static const std::map<std::string, Filter> filters = {
      {"abs", absolute},
      {"attr", [](Renderer& r, const Value& v, Arguments& a) { return a.positional.empty() ? Value() : r.attribute(v, as_text(a.positional[0], "attr").bytes); }},
      {"batch", batches},
      {"capitalize", [](Renderer&, const Value& v, Arguments&) -> Value { return capitalize(to_text(v)); }},
      {"center", [](Renderer& r, const Value& v, Arguments& a) {
         if (a.positional.empty() && a.named.empty()) a.positional.emplace_back(80);
         return by_method(r, v, a, "center");
       }},
      {"count", length_of},
      {"d", default_of},
      {"default", default_of},
      {"dictsort", dictsort},
      {"e", [](Renderer&, const Value& v, Arguments&) { return escape(v); }},
      {"escape", [](Renderer&, const Value& v, Arguments&) { return escape(v); }},
      {"first", [](Renderer& r, const Value& v, Arguments&) { return end_of(r, v, false); }},
      {"float", [](Renderer&, const Value& v, Arguments& a) { return to_number(v, a, false); }},
      {"forceescape", [](Renderer&, const Value& v, Arguments&) { return escape(v); }},
      {"format", format},
      {"groupby", groupby},
      {"indent", indent},
      {"int", [](Renderer&, const Value& v, Arguments& a) { return to_number(v, a, true); }},
      {"items", items_of},
      {"join", join_filter},
      {"last", [](Renderer& r, const Value& v, Arguments&) { return end_of(r, v, true); }},
      {"length", length_of},
      {"list", [](Renderer& r, const Value& v, Arguments&) { return make_list(r.items(v)); }},
      {"lower", [](Renderer&, const Value& v, Arguments&) -> Value { return lower(to_text(v)); }},
      {"map", map},
      {"max", [](Renderer& r, const Value& v, Arguments& a) { return extreme(r, v, a, true); }},
      {"min", [](Renderer& r, const Value& v, Arguments& a) { return extreme(r, v, a, false); }},
      {"reject", [](Renderer& r, const Value& v, Arguments& a) { return choose(r, v, a, false, false); }},
      {"rejectattr", [](Renderer& r, const Value& v, Arguments& a) { return choose(r, v, a, false, true); }},
      {"replace", replace_filter},
      {"reverse", reversed},
      {"round", round},
      {"safe", [](Renderer&, const Value& v, Arguments&) { return v; }},
      {"select", [](Renderer& r, const Value& v, Arguments& a) { return choose(r, v, a, true, false); }},
      {"selectattr", [](Renderer& r, const Value& v, Arguments& a) { return choose(r, v, a, true, true); }},
      {"slice", slices},
      {"sort", sort_filter},
      {"string", [](Renderer&, const Value& v, Arguments&) -> Value { return to_text(v); }},
      {"sum", sum},
      {"title", [](Renderer& r, const Value& v, Arguments& a) { return by_method(r, v, a, "title"); }},
      {"tojson", [](Renderer&, const Value& v, Arguments& a) { return tojson(v, a); }},
      {"trim", trim},
      {"truncate", [](Renderer&, const Value& v, Arguments& a) { return truncate(v, a); }},
      {"unique", unique},
      {"upper", [](Renderer&, const Value& v, Arguments&) -> Value { return upper(to_text(v)); }},
      {"urlencode", [](Renderer&, const Value& v, Arguments&) { return urlencode(v); }},
      {"wordcount", [](Renderer&, const Value& v, Arguments&) -> Value { return static_cast<int64_t>(split(to_text(v), nullptr, -1, false).size()); }},
  };
  return filters;
}

}  // namespace

bool filter_exists(const std::string& name) {
  return table().contains(name);
}

Value Renderer::filter(const std::string& name, const Value& value, Arguments& args) {
  pay(value.text() ? value.text()->bytes.size() : 0);
  return table().at(name)(*this, value, args);
}

}  // namespace strata::text::jinja
