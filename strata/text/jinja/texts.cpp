// What Python's str does, marks kept.
#include <algorithm>

#include <utf8proc.h>

#include "strata/text/jinja/render_inl.h"

namespace strata::text::jinja {
namespace {

// Each code point by `map`, its marks with it.
template <class Map>
Text each(const Text& t, Map map) {
  Text out;
  const auto at = offsets(t);
  for (size_t i = 0; i + 1 < at.size(); ++i) {
    size_t n = 0;
    Text piece(map(code_point(t.bytes, at[i], &n), i));
    if (!t.marks.empty()) piece.mark(t.marks[at[i]]);
    out.append(piece);
  }
  return out;
}
std::string upper_of(uint32_t c) {
  if (c == 0xdf) return "SS";  // the one of Unicode's special cases that ordinary text has
  return encode(static_cast<uint32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
}
std::string lower_of(uint32_t c) {
  return encode(static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
}
std::string title_of(uint32_t c) {
  return c == 0xdf ? "Ss" : encode(static_cast<uint32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
}
utf8proc_category_t category(uint32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}
bool is_letter(uint32_t c) {
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}
bool is_cased(uint32_t c) {
  return is_letter(c) && (upper_of(c) != encode(c) || lower_of(c) != encode(c));
}
bool is_digit(uint32_t c) {
  return category(c) == UTF8PROC_CATEGORY_ND;
}
// Whether every code point, and at least one, is so.
template <class Is>
bool all(const Text& t, Is is) {
  const auto at = offsets(t);
  for (size_t i = 0; i + 1 < at.size(); ++i) {
    size_t n = 0;
    if (!is(code_point(t.bytes, at[i], &n))) return false;
  }
  return at.size() > 1;
}
template <class Is>
bool cased(const Text& t, Is same) {
  bool any = false;
  const bool ok = all(t, [&](uint32_t c) {
    if (!is_cased(c)) return true;
    any = true;
    return same(c) == encode(c);
  });
  return ok && any;
}

Value find_in(const Text& t, Arguments& args, const char* name, bool last, bool throws) {
  Take take(name, args);
  const Text& what = as_text(take.need("sub"), name);
  const int64_t n = length(t);
  const auto clamp = [&](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + n : i, 0, n); };
  const int64_t from = clamp(take.integer("start", 0)), to = clamp(take.integer("end", n));
  take.done();
  const auto at = offsets(t);
  int64_t found = -1;
  if (from <= to) {
    const std::string_view within = std::string_view(t.bytes).substr(
        at[static_cast<size_t>(from)], at[static_cast<size_t>(to)] - at[static_cast<size_t>(from)]);
    const size_t place = last ? within.rfind(what.bytes) : within.find(what.bytes);
    if (place != std::string_view::npos) found = length(Text(t.bytes.substr(0, at[static_cast<size_t>(from)] + place)));
  }
  if (found < 0 && throws) fail("the str does not contain '" + what.bytes + "'");
  return found;
}

Text padded(const Text& t, Arguments& args, const char* name, bool left, bool right) {
  Take take(name, args);
  const int64_t width = as_integer(take.need("width"), name);
  const Text* fill = take.text("fillchar");
  take.done();
  if (fill && length(*fill) != 1) fail(std::string(name) + " fills with one character");
  const int64_t room = width - length(t);
  if (room <= 0) return t;
  if (room > (int64_t{1} << 20)) fail(std::string(name) + " to " + std::to_string(width) + " characters");
  // Python's: the odd one goes to the left where the width is odd.
  const int64_t before = !left ? 0 : !right ? room : room / 2 + (room & width & 1);
  Text out;
  for (int64_t i = 0; i < before; ++i) out.append(fill ? *fill : Text(" "));
  out.append(t);
  for (int64_t i = before; i < room; ++i) out.append(fill ? *fill : Text(" "));
  return out;
}

bool ends(const Text& t, const Value& with, bool front) {
  if (const List* l = with.list())
    return std::any_of(l->items.begin(), l->items.end(), [&](const Value& v) { return ends(t, v, front); });
  const std::string& w = as_text(with, front ? "startswith" : "endswith").bytes;
  return front ? t.bytes.starts_with(w) : t.bytes.ends_with(w);
}

Value partition(const Text& t, const Text& by, bool last) {
  if (by.bytes.empty()) fail("partition by an empty str");
  const size_t at = last ? t.bytes.rfind(by.bytes) : t.bytes.find(by.bytes);
  if (at == std::string::npos)
    return last ? make_list({Text(), Text(), t}, true) : make_list({t, Text(), Text()}, true);
  const size_t end = at + by.bytes.size();
  return make_list({t.slice(0, at), t.slice(at, end), t.slice(end, t.bytes.size())}, true);
}

Value lines(const Text& t, bool keep) {
  std::vector<Value> out;
  size_t begin = 0;
  const auto at = offsets(t);
  for (size_t i = 0; i + 1 < at.size(); ++i) {
    size_t n = 0;
    const uint32_t c = code_point(t.bytes, at[i], &n);
    if (!((c >= 10 && c <= 13) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029)) continue;
    const size_t stop = at[i];
    size_t end = at[i + 1];
    if (c == '\r' && end < t.bytes.size() && t.bytes[end] == '\n') {
      ++end;
      ++i;
    }
    out.push_back(t.slice(begin, keep ? end : stop));
    begin = end;
  }
  if (begin < t.bytes.size()) out.push_back(t.slice(begin, t.bytes.size()));
  return make_list(std::move(out));
}

Value text_method(const Text& t, const std::string& name) {
  using A = Arguments;
  const auto with = [&](auto fn) {
    return native(name, [t, fn](Renderer& r, A& args) -> Value {
      r.pay(t.bytes.size());
      return fn(r, t, args);
    });
  };
  const auto plain = [&](auto fn) {  // without arguments
    return with([fn, name](Renderer&, const Text& s, A& args) -> Value {
      Take(name, args).done();
      return fn(s);
    });
  };
  if (name == "upper") return plain(upper);
  if (name == "lower" || name == "casefold") return plain(lower);
  if (name == "capitalize") return plain(capitalize);
  if (name == "swapcase")
    return plain([](const Text& s) {
      return each(s, [](uint32_t c, size_t) { return upper_of(c) != encode(c) ? upper_of(c) : lower_of(c); });
    });
  if (name == "title")
    return plain([](const Text& s) {
      bool inside = false;
      return each(s,
                  [&](uint32_t c, size_t) { return std::exchange(inside, is_cased(c)) ? lower_of(c) : title_of(c); });
    });
  if (name == "isdigit" || name == "isdecimal" || name == "isnumeric")
    return plain([](const Text& s) { return all(s, is_digit); });
  if (name == "isalpha") return plain([](const Text& s) { return all(s, is_letter); });
  if (name == "isalnum")
    return plain([](const Text& s) { return all(s, [](uint32_t c) { return is_letter(c) || is_digit(c); }); });
  if (name == "isspace") return plain([](const Text& s) { return all(s, is_space); });
  if (name == "isupper") return plain([](const Text& s) { return cased(s, upper_of); });
  if (name == "islower") return plain([](const Text& s) { return cased(s, lower_of); });
  if (name == "isascii")
    return plain(
        [](const Text& s) { return std::all_of(s.bytes.begin(), s.bytes.end(), [](char c) { return !(c & 0x80); }); });
  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    const bool left = name != "rstrip", right = name != "lstrip";
    return with([name, left, right](Renderer&, const Text& s, A& args) -> Value {
      Take take(name, args);
      const Text* set = take.text("chars");
      take.done();
      return strip(s, set, left, right);
    });
  }
  if (name == "split" || name == "rsplit")
    return with([name](Renderer&, const Text& s, A& args) -> Value {
      Take take(name, args);
      const Text* by = take.text("sep");
      const int64_t most = take.integer("maxsplit", -1);
      take.done();
      return make_list(split(s, by, most, name == "rsplit"));
    });
  if (name == "splitlines")
    return with([](Renderer&, const Text& s, A& args) -> Value {
      Take take("splitlines", args);
      const bool keep = take.flag("keepends", false);
      take.done();
      return lines(s, keep);
    });
  if (name == "startswith" || name == "endswith")
    return with([name](Renderer&, const Text& s, A& args) -> Value {
      Take take(name, args);
      const bool yes = ends(s, take.need("prefix"), name == "startswith");
      take.done();
      return yes;
    });
  if (name == "replace")
    return with([](Renderer& r, const Text& s, A& args) -> Value {
      Take take("replace", args);
      const Text &from = as_text(take.need("old"), "replace"), &to = as_text(take.need("new"), "replace");
      const int64_t most = take.integer("count", -1);
      take.done();
      r.pay(s.bytes.size() / std::max<size_t>(from.bytes.size(), 1) * to.bytes.size());
      return replace(s, from, to, most);
    });
  if (name == "find" || name == "rfind" || name == "index" || name == "rindex")
    return with([name](Renderer&, const Text& s, A& args) {
      return find_in(s, args, name.c_str(), name[0] == 'r', name.ends_with("index"));
    });
  if (name == "count")
    return with([](Renderer&, const Text& s, A& args) -> Value {
      Take take("count", args);
      const std::string what = as_text(take.need("sub"), "count").bytes;
      take.done();
      if (what.empty()) return length(s) + 1;
      int64_t n = 0;
      for (size_t at = s.bytes.find(what); at != std::string::npos; at = s.bytes.find(what, at + what.size())) ++n;
      return n;
    });
  if (name == "join")
    return with([](Renderer& r, const Text& s, A& args) -> Value {
      Take take("join", args);
      const auto items = r.items(take.need("iterable"));
      take.done();
      for (const Value& v : items) as_text(v, "an item of join");
      return join(r, items, s);
    });
  if (name == "center")
    return with([](Renderer&, const Text& s, A& args) -> Value { return padded(s, args, "center", true, true); });
  if (name == "ljust")
    return with([](Renderer&, const Text& s, A& args) -> Value { return padded(s, args, "ljust", false, true); });
  if (name == "rjust")
    return with([](Renderer&, const Text& s, A& args) -> Value { return padded(s, args, "rjust", true, false); });
  if (name == "zfill")
    return with([](Renderer&, const Text& s, A& args) -> Value {
      Arguments more = args;
      more.positional.emplace_back(Text("0"));
      const bool sign = s.bytes.starts_with('-') || s.bytes.starts_with('+');
      if (!sign) return padded(s, more, "zfill", true, false);
      Take take("zfill", args);
      more.positional[0] = as_integer(take.need("width"), "zfill") - 1;
      Text out = s.slice(0, 1);
      out.append(padded(s.slice(1, s.bytes.size()), more, "zfill", true, false));
      return out;
    });
  if (name == "partition" || name == "rpartition")
    return with([name](Renderer&, const Text& s, A& args) -> Value {
      Take take(name, args);
      const Text by = as_text(take.need("sep"), name);
      take.done();
      return partition(s, by, name == "rpartition");
    });
  if (name == "removeprefix" || name == "removesuffix")
    return with([name](Renderer&, const Text& s, A& args) -> Value {
      Take take(name, args);
      const std::string what = as_text(take.need("prefix"), name).bytes;
      take.done();
      if (name == "removeprefix" && s.bytes.starts_with(what)) return s.slice(what.size(), s.bytes.size());
      if (name == "removesuffix" && s.bytes.ends_with(what)) return s.slice(0, s.bytes.size() - what.size());
      return s;
    });
  return Undefined{};
}

Value list_method(const std::shared_ptr<const List>& l, const std::string& name) {
  if (name == "index" || name == "count")
    return native(name, [l, name](Renderer& r, Arguments& args) -> Value {
      Take take(name, args);
      const Value& what = take.need("value");
      take.done();
      r.pay(l->items.size() * 64);
      if (name == "count")
        return static_cast<int64_t>(
            std::count_if(l->items.begin(), l->items.end(), [&](const Value& v) { return equal(v, what); }));
      const auto at = std::find_if(l->items.begin(), l->items.end(), [&](const Value& v) { return equal(v, what); });
      if (at == l->items.end()) fail("the list does not contain " + to_repr(what).bytes);
      return static_cast<int64_t>(at - l->items.begin());
    });
  for (const char* changes : {"append", "extend", "insert", "pop", "remove", "clear", "sort", "reverse"})
    if (!l->tuple && name == changes)
      return native(name, [name](Renderer&, Arguments&) -> Value {
        fail("lists cannot be changed here: '" + name + "' (make a new one by '+')");
      });
  return Undefined{};
}

Value dict_method(const std::shared_ptr<const Dict>& d, const std::string& name) {
  if (name == "items" || name == "keys" || name == "values")
    return native(name, [d, name](Renderer& r, Arguments& args) -> Value {
      Take(name, args).done();
      r.pay(d->items.size() * 64);
      std::vector<Value> out;
      for (const auto& [key, value] : d->items)
        out.push_back(name == "items" ? make_list({key, value}, true) : name == "keys" ? key : value);
      return make_list(std::move(out));
    });
  if (name == "get")
    return native(name, [d](Renderer& r, Arguments& args) -> Value {
      Take take("get", args);
      const Value& key = take.need("key");
      const Value* otherwise = take.get("default");
      take.done();
      r.pay(d->items.size());
      const Value* found = find(*d, key);
      return found ? *found : otherwise ? *otherwise : Value(None{});
    });
  if (name == "copy")
    return native(name, [d](Renderer&, Arguments& args) -> Value {
      Take("copy", args).done();
      return d;
    });
  for (const char* changes : {"pop", "popitem", "update", "clear", "setdefault"})
    if (name == changes)
      return native(name, [name](Renderer&, Arguments&) -> Value {
        fail("dicts cannot be changed here: '" + name + "' (make a new one by dict(.., key=value))");
      });
  return Undefined{};
}

}  // namespace

Text upper(const Text& t) {
  return each(t, [](uint32_t c, size_t) { return upper_of(c); });
}
Text lower(const Text& t) {
  return each(t, [](uint32_t c, size_t) { return lower_of(c); });
}
Text capitalize(const Text& t) {
  return each(t, [](uint32_t c, size_t i) { return i == 0 ? title_of(c) : lower_of(c); });
}

std::vector<Value> split(const Text& t, const Text* separator, int64_t most, bool from_right) {
  if (separator && separator->bytes.empty()) fail("split by an empty str");
  std::vector<std::pair<size_t, size_t>> parts;
  const auto room = [&] { return most < 0 || static_cast<int64_t>(parts.size()) < most; };
  if (separator) {
    const std::string& by = separator->bytes;
    size_t begin = 0, end = t.bytes.size();
    while (room()) {
      const size_t at = !from_right        ? t.bytes.find(by, begin)
                        : end >= by.size() ? t.bytes.rfind(by, end - by.size())
                                           : std::string::npos;
      if (at == std::string::npos || (!from_right && at + by.size() > end)) break;
      if (from_right) {
        parts.emplace_back(at + by.size(), end);
        end = at;
      } else {
        parts.emplace_back(begin, at);
        begin = at + by.size();
      }
    }
    parts.emplace_back(from_right ? 0 : begin, end);
  } else {
    const auto at = offsets(t);
    size_t begin = 0, end = at.size() - 1;
    const auto space = [&](size_t i) {
      size_t n = 0;
      return is_space(code_point(t.bytes, at[i], &n));
    };
    for (;;) {
      while (begin < end && space(from_right ? end - 1 : begin)) from_right ? --end : ++begin;
      if (begin == end) break;
      size_t other = from_right ? end : begin;
      if (room()) {
        while (from_right ? other > begin && !space(other - 1) : other < end && !space(other))
          from_right ? --other : ++other;
        parts.emplace_back(at[from_right ? other : begin], at[from_right ? end : other]);
        (from_right ? end : begin) = other;
      } else {  // the rest, white space at its far end gone
        size_t far_begin = begin, far_end = end;
        while (from_right && far_begin < far_end && space(far_begin)) ++far_begin;
        if (!from_right) far_end = end;
        parts.emplace_back(at[from_right ? far_begin : begin], at[far_end]);
        break;
      }
    }
  }
  if (from_right) std::reverse(parts.begin(), parts.end());
  std::vector<Value> out;
  for (const auto& [b, e] : parts) out.emplace_back(t.slice(b, e));
  return out;
}

Text replace(const Text& t, const Text& from, const Text& to, int64_t most) {
  Text out;
  int64_t n = 0;
  if (from.bytes.empty()) {
    const auto at = offsets(t);
    for (size_t i = 0; i < at.size(); ++i) {
      if (most < 0 || n++ < most) out.append(to);
      if (i + 1 < at.size()) out.append(t.slice(at[i], at[i + 1]));
    }
    return out;
  }
  size_t begin = 0;
  for (size_t at = t.bytes.find(from.bytes); at != std::string::npos && (most < 0 || n < most);
       at = t.bytes.find(from.bytes, begin), ++n) {
    out.append(t.slice(begin, at));
    out.append(to);
    begin = at + from.bytes.size();
  }
  out.append(t.slice(begin, t.bytes.size()));
  return out;
}

Text join(Renderer& r, const std::vector<Value>& items, const Text& between) {
  Text out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i) out.append(between);
    out.append(to_text(items[i]));
    r.pay();
    if (i % 64 == 0) r.pay(out.bytes.size() / 64);
    if (static_cast<int64_t>(out.bytes.size()) > r.options.limits.output_bytes) r.pay(out.bytes.size());
  }
  return out;
}

Value method(const Value& of, const std::string& name) {
  if (const Text* t = of.text()) return text_method(*t, name);
  if (of.list()) return list_method(*of.as<std::shared_ptr<const List>>(), name);
  if (of.dict()) return dict_method(*of.as<std::shared_ptr<const Dict>>(), name);
  return Undefined{};
}

}  // namespace strata::text::jinja
