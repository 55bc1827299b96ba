#include <algorithm>
#include <ctime>

#include "strata/text/jinja/render_inl.h"

namespace strata::text::jinja {
namespace {

struct Namespace final : Object {
  std::string kind() const override { return "Namespace"; }
  bool attribute(const std::string& name, Value& out) override {
    const auto at = names.find(name);
    if (at == names.end()) return false;
    out = at->second;
    return true;
  }
  bool assign(const std::string& name, const Value& value) override {
    // What holds objects could come to hold itself.
    if (holds_objects(value)) fail("a namespace holds texts, numbers, lists and dicts, not a " + type_name(value));
    names[name] = value;
    return true;
  }
  std::map<std::string, Value> names;
};

Value make_namespace(Renderer&, Arguments& args) {
  auto n = std::make_shared<Namespace>();
  for (const Value& from : args.positional) {
    if (!from.dict()) fail("namespace() takes dicts and named values");
    for (const auto& [key, value] : from.dict()->items) n->assign(as_text(key, "a namespace's name").bytes, value);
  }
  for (const auto& [name, value] : args.named) n->assign(name, value);
  return std::shared_ptr<Object>(std::move(n));
}

Value make_range(Renderer& r, Arguments& args) {
  if (!args.named.empty() || args.positional.empty() || args.positional.size() > 3)
    fail("range() takes one to three numbers");
  int64_t v[3] = {0, 0, 1};
  for (size_t i = 0; i < args.positional.size(); ++i) v[i] = as_integer(args.positional[i], "range()");
  if (args.positional.size() == 1) std::swap(v[0], v[1]);
  const auto [begin, end, step] = std::tuple(v[0], v[1], v[2]);
  if (step == 0) fail("range() with a step of 0");
  const __int128 span = step > 0 ? static_cast<__int128>(end) - begin : static_cast<__int128>(begin) - end;
  const __int128 by = step > 0 ? static_cast<__int128>(step) : -static_cast<__int128>(step);
  const __int128 n = span <= 0 ? 0 : (span + by - 1) / by;
  if (n > 100'000) fail("a range of more than 100000 numbers");  // Jinja's sandbox
  r.pay(static_cast<size_t>(n) * 64);
  std::vector<Value> out;
  for (int64_t i = 0; i < static_cast<int64_t>(n); ++i) out.emplace_back(begin + i * step);
  return make_list(std::move(out));
}

Value make_dict_of(Renderer& r, Arguments& args) {
  std::vector<std::pair<Value, Value>> items;
  const auto put = [&](const Value& key, const Value& value) {
    r.pay(items.size());
    for (auto& [k, v] : items)
      if (equal(k, key)) {
        v = value;
        return;
      }
    items.emplace_back(key, value);
  };
  for (const Value& from : args.positional) {
    if (from.dict()) {
      for (const auto& [key, value] : from.dict()->items) put(key, value);
    } else {
      for (const Value& pair : r.items(from)) {
        const auto two = r.items(pair);
        if (two.size() != 2) fail("dict() takes pairs");
        put(two[0], two[1]);
      }
    }
  }
  for (const auto& [name, value] : args.named) put(Text(name), value);
  return make_dict(std::move(items));
}

Value make_joiner(Renderer&, Arguments& args) {
  Take take("joiner", args);
  const Text* sep = take.text("sep");
  take.done();
  const Text between = sep ? *sep : Text(", ");
  return native("joiner", [between, used = std::make_shared<bool>(false)](Renderer&, Arguments&) -> Value {
    return std::exchange(*used, true) ? between : Text();
  });
}

struct Cycler final : Object, std::enable_shared_from_this<Cycler> {
  std::string kind() const override { return "Cycler"; }
  bool attribute(const std::string& name, Value& out) override {
    if (name == "current") {
      out = items[at];
    } else if (name == "next") {
      out = native("next", [c = shared_from_this()](Renderer&, Arguments&) -> Value {
        const Value v = c->items[c->at];
        c->at = (c->at + 1) % c->items.size();
        return v;
      });
    } else if (name == "reset") {
      out = native("reset", [c = shared_from_this()](Renderer&, Arguments&) -> Value {
        c->at = 0;
        return None{};
      });
    } else {
      return false;
    }
    return true;
  }
  std::vector<Value> items;
  size_t at = 0;
};

Value strftime_now(Renderer& r, Arguments& args) {
  Take take("strftime_now", args);
  const std::string& format = as_text(take.need("format"), "strftime_now").bytes;
  take.done();
  if (format.size() > 256) fail("strftime_now's format is longer than 256 bytes");
  std::tm now{};
  if (r.options.now) {
    now = r.options.now();
  } else {
    const std::time_t t = std::time(nullptr);
    localtime_r(&t, &now);
  }
  char buffer[4096];
  const std::string padded = format + "|";  // so that nothing written is no error
  const size_t n = std::strftime(buffer, sizeof buffer, padded.c_str(), &now);
  if (n == 0) fail("strftime_now cannot format '" + format + "'");
  return Text(std::string(buffer, n - 1));
}

}  // namespace

void add_globals(Scope& scope) {
  const auto add = [&](const char* name, Native::Fn fn) { scope.names[name] = native(name, std::move(fn)); };
  add("namespace", make_namespace);
  add("range", make_range);
  add("dict", make_dict_of);
  add("joiner", make_joiner);
  add("cycler", [](Renderer&, Arguments& args) -> Value {
    if (args.positional.empty()) fail("cycler() needs values");
    auto c = std::make_shared<Cycler>();
    c->items = args.positional;
    return std::shared_ptr<Object>(std::move(c));
  });
  add("strftime_now", strftime_now);
  add("raise_exception", [](Renderer&, Arguments& args) -> Value {
    Take take("raise_exception", args);
    const std::string why = to_text(take.need("message")).bytes;
    fail(why);
  });
}

}  // namespace strata::text::jinja
