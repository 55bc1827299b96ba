#include <algorithm>
#include <cmath>

#include <fmt/args.h>
#include <fmt/format.h>

#include "strata/text/jinja/filters_inl.h"

namespace strata::text::jinja {
namespace {

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
        std::snprintf(buffer, sizeof buffer, ("%" + spec + "ll" + (kind == 'i' ? 'd' : kind)).c_str(),
                      static_cast<long long>(whole));
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
    Text piece = c == '&'    ? Text("&amp;")
                 : c == '<'  ? Text("&lt;")
                 : c == '>'  ? Text("&gt;")
                 : c == '\'' ? Text("&#39;")
                 : c == '"'  ? Text("&#34;")
                             : t.slice(i, i + 1);
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
      style.indent_text =
          std::string(static_cast<size_t>(std::clamp<int64_t>(as_integer(*indent, "tojson's indent"), 0, 64)), ' ');
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

Value replace_filter(Renderer& r, const Value& v, Arguments& args) {
  Take take("replace", args);
  const Text from = to_text(take.need("old")), to = to_text(take.need("new"));
  const int64_t most = take.integer("count", -1);
  take.done();
  const Text t = to_text(v);
  r.pay(t.bytes.size() / std::max<size_t>(from.bytes.size(), 1) * to.bytes.size());
  return replace(t, from, to, most);
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

}  // namespace

FilterTable text_filters() {
  return {
      {"capitalize", [](Renderer&, const Value& v, Arguments&) -> Value { return capitalize(to_text(v)); }},
      {"center",
       [](Renderer& r, const Value& v, Arguments& a) {
         if (a.positional.empty() && a.named.empty()) a.positional.emplace_back(80);
         return by_method(r, v, a, "center");
       }},
      {"e", [](Renderer&, const Value& v, Arguments&) { return escape(v); }},
      {"escape", [](Renderer&, const Value& v, Arguments&) { return escape(v); }},
      {"forceescape", [](Renderer&, const Value& v, Arguments&) { return escape(v); }},
      {"format", format},
      {"indent", indent},
      {"lower", [](Renderer&, const Value& v, Arguments&) -> Value { return lower(to_text(v)); }},
      {"replace", replace_filter},
      {"string", [](Renderer&, const Value& v, Arguments&) -> Value { return to_text(v); }},
      {"title", [](Renderer& r, const Value& v, Arguments& a) { return by_method(r, v, a, "title"); }},
      {"tojson", [](Renderer&, const Value& v, Arguments& a) { return tojson(v, a); }},
      {"trim", trim},
      {"truncate", [](Renderer&, const Value& v, Arguments& a) { return truncate(v, a); }},
      {"upper", [](Renderer&, const Value& v, Arguments&) -> Value { return upper(to_text(v)); }},
      {"urlencode", [](Renderer&, const Value& v, Arguments&) { return urlencode(v); }},
      {"wordcount",
       [](Renderer&, const Value& v, Arguments&) -> Value {
         return static_cast<int64_t>(split(to_text(v), nullptr, -1, false).size());
       }},
  };
}

}  // namespace strata::text::jinja
