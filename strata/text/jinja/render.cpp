#include "strata/text/jinja/render_inl.h"

#include <algorithm>
#include <cmath>

#include "strata/core/error.h"

namespace strata::text::jinja {
namespace {

// A name for calls within calls, whatever leaves them.
struct Deeper {
  int64_t& depth;
  Deeper(int64_t& d, int64_t most) : depth(d) {
    if (++depth > most) {
      --depth;
      fail("calls nested deeper than " + std::to_string(most));
    }
  }
  ~Deeper() { --depth; }
};

Ranges ranges(const Text& t, char bit) {
  Ranges out;
  for (size_t i = 0; i < t.marks.size(); ++i) {
    if (!(t.marks[i] & bit)) continue;
    if (!out.empty() && out.back().second == i) {
      ++out.back().second;
    } else {
      out.emplace_back(i, i + 1);
    }
  }
  return out;
}

int64_t checked(const char* op, int64_t a, int64_t b) {
  int64_t c = 0;
  const bool over = *op == '+' ? __builtin_add_overflow(a, b, &c) : *op == '-' ? __builtin_sub_overflow(a, b, &c) : __builtin_mul_overflow(a, b, &c);
  if (over) fail("the result of " + std::to_string(a) + " " + op + " " + std::to_string(b) + " is too large");
  return c;
}

Value power(const Value& a, const Value& b) {
  if (!a.integral() || !b.integral() || b.integer() < 0) return std::pow(a.real(), b.real());
  int64_t result = 1;
  for (int64_t i = 0; i < b.integer(); ++i) {
    result = checked("*", result, a.integer());
    if (result == 0 || a.integer() == 1) break;
    if (a.integer() == -1) return b.integer() % 2 ? int64_t{-1} : int64_t{1};
  }
  return result;
}

}  // namespace

/// What a loop says of itself.
struct LoopObject final : Object, std::enable_shared_from_this<LoopObject> {
  std::string kind() const override { return "loop"; }
  bool callable() const override { return node && node->flag; }
  bool attribute(const std::string& name, Value& out) override {
    const auto i = static_cast<int64_t>(at), n = static_cast<int64_t>(all.size());
    if (name == "index") {
      out = i + 1;
    } else if (name == "index0") {
      out = i;
    } else if (name == "revindex") {
      out = n - i;
    } else if (name == "revindex0") {
      out = n - i - 1;
    } else if (name == "first") {
      out = i == 0;
    } else if (name == "last") {
      out = i == n - 1;
    } else if (name == "length") {
      out = n;
    } else if (name == "depth") {
      out = depth;
    } else if (name == "depth0") {
      out = depth - 1;
    } else if (name == "previtem") {
      out = i > 0 ? all[at - 1] : Value(Undefined{"there is no previous item"});
    } else if (name == "nextitem") {
      out = i + 1 < n ? all[at + 1] : Value(Undefined{"there is no next item"});
    } else if (name == "cycle") {
      out = native("cycle", [i](Renderer&, Arguments& a) -> Value {
        if (a.positional.empty()) fail("loop.cycle needs values");
        return a.positional[static_cast<size_t>(i) % a.positional.size()];
      });
    } else if (name == "changed") {
      out = native("changed", [l = shared_from_this()](Renderer&, Arguments& a) -> Value {
        const bool same = l->seen && equal(make_list(a.positional), make_list(l->last));
        l->seen = true;
        l->last = a.positional;
        return !same;
      });
    } else {
      return false;
    }
    return true;
  }
  Value call(Renderer& r, Arguments& args) override {
    if (!callable()) fail("a loop that is not recursive cannot be called");
    Take take("loop", args);
    const Value over = take.need("iterable");
    take.done();
    const Deeper deeper(r.depth_, r.options.limits.depth);
    const auto scope = std::exchange(r.scope_, outer);
    Text out;
    r.loop(*node, over, out, depth + 1);
    r.scope_ = scope;
    return out;
  }

  const Node* node = nullptr;
  std::shared_ptr<Scope> outer;
  std::vector<Value> all, last;
  size_t at = 0;
  int64_t depth = 1;
  bool seen = false;
};

struct Macro final : Object {
  std::string kind() const override { return "macro"; }
  bool callable() const override { return true; }
  bool attribute(const std::string& name, Value& out) override {
    if (name != "name") return false;
    out = Text(node->text);
    return true;
  }
  Value call(Renderer& r, Arguments& args) override {
    const Deeper deeper(r.depth_, r.options.limits.depth);
    auto scope = std::make_shared<Scope>(Scope{{}, outer});
    const auto& params = node->params;
    const size_t first_default = params.size() - (node->kids.size() - body - 1);
    std::vector<Value> rest;
    for (size_t i = 0; i < args.positional.size(); ++i) {
      if (i < params.size()) {
        scope->names[params[i]] = args.positional[i];
      } else {
        rest.push_back(args.positional[i]);
      }
    }
    std::vector<std::pair<Value, Value>> more;
    for (auto& [name, value] : args.named) {
      if (name == "caller" || std::find(params.begin(), params.end(), name) != params.end()) {
        if (scope->names.contains(name)) fail("macro '" + node->text + "' got '" + name + "' twice");
        scope->names[name] = value;
      } else {
        more.emplace_back(Text(name), value);
      }
    }
    const auto outside = std::exchange(r.scope_, scope);
    for (size_t i = 0; i < params.size(); ++i) {
      if (scope->names.contains(params[i])) continue;
      scope->names[params[i]] = i >= first_default ? r.eval(*node->kids[body + 1 + i - first_default]) : Value(Undefined{"parameter '" + params[i] + "' was not given"});
    }
    r.scope_ = outside;
    scope->names["varargs"] = make_list(std::move(rest), true);
    scope->names["kwargs"] = make_dict(std::move(more));
    return r.capture(*node->kids[body], scope);
  }

  const Node* node = nullptr;
  size_t body = 0;
  std::shared_ptr<Scope> outer;
};

Renderer::Renderer(const Options& o, std::shared_ptr<Scope> globals) : options(o), scope_(std::move(globals)) {}

void Renderer::pay(size_t bytes) {
  if (static_cast<int64_t>(bytes) > options.limits.output_bytes) fail("a text grows past " + std::to_string(options.limits.output_bytes) + " bytes");
  steps_ += 1 + static_cast<int64_t>(bytes / 64);
  if (steps_ > options.limits.steps) fail("it takes more than " + std::to_string(options.limits.steps) + " steps");
}

Text Renderer::run(const Node& root) {
  Text out;
  exec(root, out);
  return out;
}

Text Renderer::capture(const Node& body, const std::shared_ptr<Scope>& scope) {
  const auto outside = std::exchange(scope_, scope);
  Text out;
  exec(body, out);
  scope_ = outside;
  return out;
}

void Renderer::emit(Text& out, const Text& text) {
  pay(text.bytes.size());
  if (static_cast<int64_t>(out.bytes.size() + text.bytes.size()) > options.limits.output_bytes)
    fail("a text grows past " + std::to_string(options.limits.output_bytes) + " bytes");
  if (!generating_) return out.append(text);
  Text marked = text;
  marked.mark(kGenerated);
  out.append(marked);
}

Renderer::Flow Renderer::exec(const Node& n, Text& out) {
  line = n.line;
  const Deeper deeper(nested_, 5 * options.limits.depth);
  pay();
  switch (n.what) {
    case What::block:
      for (const NodePtr& kid : n.kids)
        if (const Flow flow = exec(*kid, out); flow != Flow::on) return flow;
      return Flow::on;
    case What::output: emit(out, to_text(eval(*n.kids[0]))); return Flow::on;
    case What::if_chain:
      for (size_t i = 0; i + 1 < n.kids.size(); i += 2)
        if (truth(eval(*n.kids[i]))) return exec(*n.kids[i + 1], out);
      return n.kids.size() % 2 ? exec(*n.kids.back(), out) : Flow::on;
    case What::for_loop: return loop(n, eval(*n.kids[1]), out, 1);
    case What::break_loop: return Flow::breaks;
    case What::continue_loop: return Flow::continues;
    case What::set: assign(*n.kids[0], eval(*n.kids[1])); return Flow::on;
    case What::set_block: {
      Value text = capture(*n.kids[1], std::make_shared<Scope>(Scope{{}, scope_}));
      if (n.kids[2]) {
        scope_ = std::make_shared<Scope>(Scope{{{"", std::move(text)}}, scope_});
        text = eval(*n.kids[2]);
        scope_ = scope_->outer;
      }
      assign(*n.kids[0], text);
      return Flow::on;
    }
    case What::macro: {
      auto m = std::make_shared<Macro>();
      m->node = &n;
      m->outer = scope_;
      const Value made = std::shared_ptr<Object>(std::move(m));
      remember(made);
      scope_->names[n.text] = made;
      return Flow::on;
    }
    case What::call_block: {
      auto caller = std::make_shared<Macro>();
      caller->node = &n;
      caller->body = 1;
      caller->outer = scope_;
      const Node& c = *n.kids[0];
      const Value callee = eval(*c.kids[0]);
      Arguments args = arguments(c, 1);
      args.named.emplace_back("caller", std::shared_ptr<Object>(std::move(caller)));
      emit(out, to_text(call(callee, args)));
      return Flow::on;
    }
    case What::filter_block: {
      const Value text = capture(*n.kids[1], std::make_shared<Scope>(Scope{{}, scope_}));
      scope_ = std::make_shared<Scope>(Scope{{{"", text}}, scope_});
      const Value made = eval(*n.kids[0]);
      scope_ = scope_->outer;
      emit(out, to_text(made));
      return Flow::on;
    }
    case What::generation: {
      const bool before = std::exchange(generating_, true);
      const auto outside = scope_;
      scope_ = std::make_shared<Scope>(Scope{{}, scope_});
      const Flow flow = exec(*n.kids[0], out);
      scope_ = outside;
      generating_ = before;
      return flow;
    }
    case What::with: {
      auto inner = std::make_shared<Scope>(Scope{{}, scope_});
      const auto outside = scope_;
      for (size_t i = 0; i + 1 < n.kids.size(); i += 2) {
        const Value value = eval(*n.kids[i + 1]);
        scope_ = inner;
        assign(*n.kids[i], value);
        scope_ = outside;
      }
      scope_ = inner;
      const Flow flow = exec(*n.kids.back(), out);
      scope_ = outside;
      return flow;
    }
    default: eval(n); return Flow::on;
  }
}

Renderer::Flow Renderer::loop(const Node& n, const Value& over, Text& out, int64_t depth) {
  const auto outside = scope_;
  auto state = std::make_shared<LoopObject>();
  state->node = &n;
  state->outer = outside;
  state->depth = depth;
  state->all = items(over);
  const auto turn = [&] { return std::make_shared<Scope>(Scope{{}, outside}); };
  if (n.kids[2]) {
    std::vector<Value> kept;
    for (Value& v : state->all) {
      scope_ = turn();
      assign(*n.kids[0], v);
      pay();
      if (truth(eval(*n.kids[2]))) kept.push_back(std::move(v));
    }
    state->all = std::move(kept);
  }
  for (state->at = 0; state->at < state->all.size(); ++state->at) {
    pay();
    scope_ = turn();
    assign(*n.kids[0], state->all[state->at]);
    scope_->names["loop"] = std::shared_ptr<Object>(state);
    if (exec(*n.kids[3], out) == Flow::breaks) break;
  }
  scope_ = outside;
  if (state->all.empty() && n.kids[4]) {
    scope_ = turn();
    const Flow flow = exec(*n.kids[4], out);
    scope_ = outside;
    return flow;
  }
  return Flow::on;
}

// A macro holds the scope that holds it.
void Renderer::remember(const Value& value) {
  if (holds_objects(value) && (holders_.empty() || holders_.back().lock() != scope_)) holders_.push_back(scope_);
}

Renderer::~Renderer() {
  for (const auto& weak : holders_)
    if (const auto scope = weak.lock()) scope->names.clear();
}

void Renderer::assign(const Node& target, const Value& value) {
  if (target.what == What::name) {
    remember(value);
    scope_->names[target.text] = value;
  } else if (target.what == What::attribute) {
    const Value of = eval(*target.kids[0]);
    if (!of.object() || !of.object()->assign(target.text, value)) fail("only a namespace's members can be set, not those of a " + type_name(of));
  } else {
    const std::vector<Value> parts = items(value);
    if (parts.size() != target.kids.size())
      fail("cannot unpack " + std::to_string(parts.size()) + " values into " + std::to_string(target.kids.size()) + " names");
    for (size_t i = 0; i < parts.size(); ++i) assign(*target.kids[i], parts[i]);
  }
}

Value Renderer::lookup(const std::string& name) {
  for (const Scope* s = scope_.get(); s; s = s->outer.get()) {
    pay();
    const auto at = s->names.find(name);
    if (at != s->names.end()) return at->second;
  }
  return Undefined{"'" + name + "' is undefined"};
}

std::vector<Value> Renderer::items(const Value& v) {
  std::vector<Value> out;
  if (v.undefined()) return out;
  if (const List* l = v.list()) {
    pay(l->items.size() * 64);
    return l->items;
  }
  if (const Dict* d = v.dict()) {
    for (const auto& item : d->items) out.push_back(item.first);
    pay(out.size() * 64);
    return out;
  }
  if (const Text* t = v.text()) {
    pay(t->bytes.size() * 64);
    const auto at = offsets(*t);
    for (size_t i = 0; i + 1 < at.size(); ++i) out.push_back(t->slice(at[i], at[i + 1]));
    return out;
  }
  fail("a " + type_name(v) + " cannot be looped over");
}

bool Renderer::contains(const Value& of, const Value& what) {
  if (of.undefined()) return false;
  if (const Text* t = of.text()) {
    if (!what.text()) fail("'in' a str wants a str, got a " + type_name(what));
    pay(t->bytes.size());
    return t->bytes.find(what.text()->bytes) != std::string::npos;
  }
  if (const List* l = of.list()) {
    pay(l->items.size() * 64);
    return std::any_of(l->items.begin(), l->items.end(), [&](const Value& v) { return equal(v, what); });
  }
  if (const Dict* d = of.dict()) {
    pay(d->items.size() * 64);
    return find(*d, what) != nullptr;
  }
  fail("a " + type_name(of) + " does not contain anything");
}

Value Renderer::binary(const std::string& op, const Value& a, const Value& b) {
  if (op == "~") {
    Text t = to_text(a);
    t.append(to_text(b));
    pay(t.bytes.size());
    return t;
  }
  for (const Value* v : {&a, &b})
    if (v->undefined()) fail(v->as<Undefined>()->why);
  if (a.number() && b.number()) {
    const bool whole = a.integral() && b.integral();
    if (op == "+" || op == "-" || op == "*") {
      if (whole) return checked(op.c_str(), a.integer(), b.integer());
      const double x = a.real(), y = b.real();
      return op == "+" ? x + y : op == "-" ? x - y : x * y;
    }
    if (op == "**") return power(a, b);
    if (b.real() == 0) fail("division by zero");
    if (op == "/") return a.real() / b.real();
    if (whole) {
      const int64_t x = a.integer(), y = b.integer();
      if (y == -1) return op == "//" ? checked("-", 0, x) : int64_t{0};
      const int64_t q = x / y - (x % y != 0 && (x % y < 0) != (y < 0));
      return op == "//" ? q : x - q * y;
    }
    const double q = std::floor(a.real() / b.real());
    if (op == "//") return q;
    const double rest = std::fmod(a.real(), b.real());
    return rest != 0 && (rest < 0) != (b.real() < 0) ? rest + b.real() : rest;
  }
  if (op == "+" && a.text() && b.text()) {
    Text t = *a.text();
    t.append(*b.text());
    pay(t.bytes.size());
    return t;
  }
  if (op == "+" && a.list() && b.list() && a.list()->tuple == b.list()->tuple) {
    std::vector<Value> all = a.list()->items;
    all.insert(all.end(), b.list()->items.begin(), b.list()->items.end());
    pay(all.size() * 64);
    return make_list(std::move(all), a.list()->tuple);
  }
  if (op == "*" && (a.integral() || b.integral()) && (a.text() || b.text() || a.list() || b.list())) {
    const Value& of = a.integral() ? b : a;
    const int64_t n = std::max<int64_t>((a.integral() ? a : b).integer(), 0);
    const size_t size = of.text() ? of.text()->bytes.size() : of.list()->items.size() * 64;
    if (size > 0 && n > options.limits.output_bytes / static_cast<int64_t>(size)) fail("a text grows past " + std::to_string(options.limits.output_bytes) + " bytes");
    pay(size * static_cast<size_t>(n));
    if (const Text* t = of.text()) {
      Text all;
      for (int64_t i = 0; size > 0 && i < n; ++i) all.append(*t);
      return all;
    }
    std::vector<Value> all;
    for (int64_t i = 0; size > 0 && i < n; ++i) all.insert(all.end(), of.list()->items.begin(), of.list()->items.end());
    return make_list(std::move(all), of.list()->tuple);
  }
  if (op == "%" && a.text()) fail("texts are formatted by the filter 'format', not by '%'");
  fail("'" + op + "' between " + type_name(a) + " and " + type_name(b));
}

bool Renderer::compare(const std::string& op, const Value& a, const Value& b) {
  if (a.text() && b.text()) pay(std::min(a.text()->bytes.size(), b.text()->bytes.size()));
  if (op == "==") return equal(a, b);
  if (op == "!=") return !equal(a, b);
  if (op == "in") return contains(b, a);
  if (op == "not in") return !contains(b, a);
  const bool nan = (a.as<double>() && std::isnan(*a.as<double>())) || (b.as<double>() && std::isnan(*b.as<double>()));
  if (nan) return false;
  if (op == "<") return less(a, b);
  if (op == ">") return less(b, a);
  return op == "<=" ? !less(b, a) : !less(a, b);
}

Arguments Renderer::arguments(const Node& n, size_t from) {
  Arguments args;
  for (size_t i = from; i < n.kids.size(); ++i) args.positional.push_back(eval(*n.kids[i]));
  for (const auto& [name, node] : n.named) {
    const Value v = eval(*node);
    if (name == "*") {
      for (Value& x : items(v)) args.positional.push_back(std::move(x));
    } else if (name == "**") {
      if (!v.dict()) fail("** wants a dict, got a " + type_name(v));
      for (const auto& [key, x] : v.dict()->items) args.named.emplace_back(as_text(key, "a name behind **").bytes, x);
    } else {
      args.named.emplace_back(name, v);
    }
  }
  return args;
}

Value Renderer::call(const Value& callee, Arguments& args) {
  pay();
  if (callee.undefined()) fail(callee.as<Undefined>()->why);
  if (!callee.object() || !callee.object()->callable()) fail("a " + type_name(callee) + " cannot be called");
  return callee.object()->call(*this, args);
}

Value Renderer::attribute(const Value& of, const std::string& name) {
  if (of.undefined()) fail(of.as<Undefined>()->why);
  if (Object* o = of.object()) {
    Value out;
    if (o->attribute(name, out)) return out;
  }
  Value m = method(of, name);
  if (!m.undefined()) return m;
  if (const Dict* d = of.dict()) {
    pay(d->items.size());
    if (const Value* v = find(*d, Text(name))) return *v;
  }
  return Undefined{"'" + type_name(of) + "' has no attribute '" + name + "'"};
}

Value Renderer::item(const Value& of, const Value& key) {
  if (of.undefined()) fail(of.as<Undefined>()->why);
  if (const Dict* d = of.dict()) {
    pay(d->items.size());
    if (const Value* v = find(*d, key)) return *v;
  } else if (key.integral()) {
    int64_t i = key.integer();
    if (const List* l = of.list()) {
      const auto n = static_cast<int64_t>(l->items.size());
      if (i < 0) i += n;
      if (i >= 0 && i < n) return l->items[static_cast<size_t>(i)];
      return Undefined{"a " + type_name(of) + " of " + std::to_string(n) + " has no item " + std::to_string(key.integer())};
    }
    if (const Text* t = of.text()) {
      pay(t->bytes.size());
      const auto at = offsets(*t);
      const auto n = static_cast<int64_t>(at.size()) - 1;
      if (i < 0) i += n;
      if (i >= 0 && i < n) return t->slice(at[static_cast<size_t>(i)], at[static_cast<size_t>(i) + 1]);
      return Undefined{"a str of " + std::to_string(n) + " has no item " + std::to_string(key.integer())};
    }
  }
  if (const Text* t = key.text()) return attribute(of, t->bytes);
  return Undefined{"'" + type_name(of) + "' has no item " + to_repr(key).bytes};
}

Value Renderer::slice(const Value& of, const Node& n) {
  if (of.undefined()) fail(of.as<Undefined>()->why);
  if (!of.text() && !of.list()) fail("a " + type_name(of) + " cannot be sliced");
  const std::vector<size_t> at = of.text() ? offsets(*of.text()) : std::vector<size_t>();
  const auto size = of.text() ? static_cast<int64_t>(at.size()) - 1 : static_cast<int64_t>(of.list()->items.size());
  pay(of.text() ? of.text()->bytes.size() : static_cast<size_t>(size) * 64);
  const auto bound = [&](size_t k, int64_t otherwise) {
    if (!n.kids[k]) return otherwise;
    const Value v = eval(*n.kids[k]);
    return v.none() ? otherwise : as_integer(v, "a slice's bound");
  };
  const int64_t step = bound(3, 1);
  if (step == 0) fail("a slice's step is 0");
  const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? size : size - 1;
  const auto clamp = [&](int64_t i) { return std::clamp(i < 0 ? i + size : i, low, high); };
  const bool has_begin = n.kids[1] != nullptr, has_end = n.kids[2] != nullptr;
  const int64_t none = INT64_MIN;
  const int64_t b = has_begin ? bound(1, none) : none, e = has_end ? bound(2, none) : none;
  const int64_t begin = b == none ? (step > 0 ? 0 : size - 1) : clamp(b), end = e == none ? (step > 0 ? size : -1) : clamp(e);
  Text text;
  std::vector<Value> items;
  for (int64_t i = begin; step > 0 ? i < end : i > end; i += step) {
    const auto k = static_cast<size_t>(i);
    if (of.text()) {
      text.append(of.text()->slice(at[k], at[k + 1]));
    } else {
      items.push_back(of.list()->items[k]);
    }
    if (step > 0 ? end - i <= step : i - end <= -step) break;
  }
  if (of.text()) return text;
  return make_list(std::move(items), of.list()->tuple);
}

Value Renderer::eval(const Node& n) {
  line = n.line;
  const Deeper deeper(nested_, 5 * options.limits.depth);
  pay();
  switch (n.what) {
    case What::constant: return n.value;
    case What::name: return lookup(n.text);
    case What::list:
    case What::tuple: {
      std::vector<Value> items;
      for (const NodePtr& kid : n.kids) items.push_back(eval(*kid));
      return make_list(std::move(items), n.what == What::tuple);
    }
    case What::dict: {
      std::vector<std::pair<Value, Value>> all;
      for (size_t i = 0; i < n.kids.size(); i += 2) {
        Value key = eval(*n.kids[i]);
        if (key.dict() || (key.list() && !key.list()->tuple)) fail("a " + type_name(key) + " cannot be a dict's key");
        Value value = eval(*n.kids[i + 1]);
        const auto at = std::find_if(all.begin(), all.end(), [&](const auto& item) { return equal(item.first, key); });
        if (at != all.end()) {
          at->second = std::move(value);
        } else {
          all.emplace_back(std::move(key), std::move(value));
        }
      }
      return make_dict(std::move(all));
    }
    case What::unary: {
      const Value v = eval(*n.kids[0]);
      if (v.undefined()) fail(v.as<Undefined>()->why);
      if (!v.number()) fail("'" + n.text + "' of a " + type_name(v));
      if (v.integral()) return n.text == "-" ? checked("-", 0, v.integer()) : v.integer();
      return n.text == "-" ? -v.real() : v.real();
    }
    case What::binary: {
      const Value a = eval(*n.kids[0]);
      const Value b = eval(*n.kids[1]);
      line = n.line;
      return binary(n.text, a, b);
    }
    case What::compare: {
      Value left = eval(*n.kids[0]);
      for (size_t i = 0; i < n.params.size(); ++i) {
        Value right = eval(*n.kids[i + 1]);
        if (!compare(n.params[i], left, right)) return false;
        left = std::move(right);
      }
      return true;
    }
    case What::logic_and: {
      Value a = eval(*n.kids[0]);
      return truth(a) ? eval(*n.kids[1]) : a;
    }
    case What::logic_or: {
      Value a = eval(*n.kids[0]);
      return truth(a) ? a : eval(*n.kids[1]);
    }
    case What::logic_not: return !truth(eval(*n.kids[0]));
    case What::condition:
      if (truth(eval(*n.kids[0]))) return eval(*n.kids[1]);
      return n.kids[2] ? eval(*n.kids[2]) : Value(Undefined{"the condition at line " + std::to_string(n.line) + " is false and has no else"});
    case What::attribute: {
      const Value of = eval(*n.kids[0]);
      line = n.line;
      return attribute(of, n.text);
    }
    case What::item: {
      const Value of = eval(*n.kids[0]);
      const Value key = eval(*n.kids[1]);
      line = n.line;
      return item(of, key);
    }
    case What::slice: return slice(eval(*n.kids[0]), n);
    case What::call: {
      const Value callee = eval(*n.kids[0]);
      Arguments args = arguments(n, 1);
      line = n.line;
      return call(callee, args);
    }
    case What::filter:
    case What::test: {
      const Value value = n.kids[0] ? eval(*n.kids[0]) : lookup("");
      Arguments args = arguments(n, 1);
      line = n.line;
      return n.what == What::filter ? filter(n.text, value, args) : Value(test(n.text, value, args));
    }
    default: fail("a statement where a value is wanted");
  }
}

Template::Template(std::string_view source, Options options) : root_(parse(source, options.limits.depth)), options_(std::move(options)) {}
Template::~Template() = default;
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;

Rendered Template::render(const nlohmann::ordered_json& data, const nlohmann::ordered_json& trusted) const {
  check(data.is_object() && trusted.is_object(), "template", "its variables are the members of an object, got ", data.is_object() ? trusted.type_name() : data.type_name());
  auto globals = std::make_shared<Scope>();
  add_globals(*globals);
  for (const auto& [name, value] : trusted.items()) globals->names[name] = from_json(value, 0);
  for (const auto& [name, value] : data.items()) globals->names[name] = from_json(value, kFromData);
  auto top = std::make_shared<Scope>(Scope{{}, globals});
  Renderer r(options_, std::move(top));
  try {
    const Text text = r.run(*root_);
    return {text.bytes, ranges(text, kFromData), ranges(text, kGenerated)};
  } catch (const Error& e) {
    throw ValueError("template", "line " + std::to_string(r.line) + ": " + e.what());
  }
}

}  // namespace strata::text::jinja
