#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "strata/text/jinja/filters_inl.h"

namespace strata::text::jinja {
namespace {

// "a.b.0" of a value, as map(attribute=..) and its like read it.
Value reach(Renderer& r, Value v, const Value& path) {
  if (path.integral()) return r.item(v, path);
  const std::string& names = as_text(path, "an attribute's name").bytes;
  for (size_t begin = 0; begin <= names.size();) {
    const size_t end = std::min(names.find('.', begin), names.size());
    const std::string name = names.substr(begin, end - begin);
    const bool number = !name.empty() && name.size() < 10 &&
                        std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c); });
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
  for (size_t i = 0; i + 1 < keys.size(); ++i)
    less(keys[i], keys[i + 1]);  // what has no order is refused before it is sorted
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
      for (const Value& part : split(*by->text(), std::make_unique<Text>(",").get(), -1, false))
        key.push_back(key_of(reach(r, x, part), exact));
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
    for (; i < items.size() && equal(key_of(group(items[i]), exact), key_of(first, exact)); ++i)
      same.push_back(items[i]);
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
      if (s.size() > at + 1 && s[at] == '0' && std::string("xXoObB").find(s[at + 1]) != std::string::npos)
        s.erase(at, 2), digits = s.c_str();
    }
    const long long x = std::strtoll(digits, &end, base >= 2 && base <= 36 ? static_cast<int>(base) : 10);
    if (*end == '\0' && end != digits && errno == 0) return int64_t{x};
  }
  const bool decimal = s.find_first_not_of("+-.0123456789eE") == std::string::npos ||
                       s.find("inf") != std::string::npos || s.find("nan") != std::string::npos;
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

const FilterTable& table() {
  static const FilterTable filters = [] {
    FilterTable all = text_filters();
    all.insert({
        {"abs", absolute},
        {"attr",
         [](Renderer& r, const Value& v, Arguments& a) {
           return a.positional.empty() ? Value() : r.attribute(v, as_text(a.positional[0], "attr").bytes);
         }},
        {"batch", batches},
        {"count", length_of},
        {"d", default_of},
        {"default", default_of},
        {"dictsort", dictsort},
        {"first", [](Renderer& r, const Value& v, Arguments&) { return end_of(r, v, false); }},
        {"float", [](Renderer&, const Value& v, Arguments& a) { return to_number(v, a, false); }},
        {"groupby", groupby},
        {"int", [](Renderer&, const Value& v, Arguments& a) { return to_number(v, a, true); }},
        {"items", items_of},
        {"join", join_filter},
        {"last", [](Renderer& r, const Value& v, Arguments&) { return end_of(r, v, true); }},
        {"length", length_of},
        {"list", [](Renderer& r, const Value& v, Arguments&) { return make_list(r.items(v)); }},
        {"map", map},
        {"max", [](Renderer& r, const Value& v, Arguments& a) { return extreme(r, v, a, true); }},
        {"min", [](Renderer& r, const Value& v, Arguments& a) { return extreme(r, v, a, false); }},
        {"reject", [](Renderer& r, const Value& v, Arguments& a) { return choose(r, v, a, false, false); }},
        {"rejectattr", [](Renderer& r, const Value& v, Arguments& a) { return choose(r, v, a, false, true); }},
        {"reverse", reversed},
        {"round", round},
        {"safe", [](Renderer&, const Value& v, Arguments&) { return v; }},
        {"select", [](Renderer& r, const Value& v, Arguments& a) { return choose(r, v, a, true, false); }},
        {"selectattr", [](Renderer& r, const Value& v, Arguments& a) { return choose(r, v, a, true, true); }},
        {"slice", slices},
        {"sort", sort_filter},
        {"sum", sum},
        {"unique", unique},
    });
    return all;
  }();
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
