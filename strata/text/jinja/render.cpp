#include "strata/text/jinja/render_inl.h"

#include <algorithm>
#include <cmath>

#include "strata/core/error.h"

namespace strata::text::jinja {
namespace {

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
      scope->names[params[i]] = i >= first_default ? r.eval(*node->kids[body + 1 + i - first_default])
                                                   : Value(Undefined{"parameter '" + params[i] + "' was not given"});
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
  if (static_cast<int64_t>(bytes) > options.limits.output_bytes)
    fail("a text grows past " + std::to_string(options.limits.output_bytes) + " bytes");
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
    case What::output:
      emit(out, to_text(eval(*n.kids[0])));
      return Flow::on;
    case What::if_chain:
      for (size_t i = 0; i + 1 < n.kids.size(); i += 2)
        if (truth(eval(*n.kids[i]))) return exec(*n.kids[i + 1], out);
      return n.kids.size() % 2 ? exec(*n.kids.back(), out) : Flow::on;
    case What::for_loop:
      return loop(n, eval(*n.kids[1]), out, 1);
    case What::break_loop:
      return Flow::breaks;
    case What::continue_loop:
      return Flow::continues;
    case What::set:
      assign(*n.kids[0], eval(*n.kids[1]));
      return Flow::on;
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
    default:
      eval(n);
      return Flow::on;
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
    if (!of.object() || !of.object()->assign(target.text, value))
      fail("only a namespace's members can be set, not those of a " + type_name(of));
  } else {
    const std::vector<Value> parts = items(value);
    if (parts.size() != target.kids.size())
      fail("cannot unpack " + std::to_string(parts.size()) + " values into " + std::to_string(target.kids.size()) +
           " names");
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

Template::Template(std::string_view source, Options options)
    : root_(parse(source, options.limits.depth)), options_(std::move(options)) {}
Template::~Template() = default;
Template::Template(Template&&) noexcept = default;
Template& Template::operator=(Template&&) noexcept = default;

Rendered Template::render(const nlohmann::ordered_json& data, const nlohmann::ordered_json& trusted) const {
  check(data.is_object() && trusted.is_object(), "template", "its variables are the members of an object, got ",
        data.is_object() ? trusted.type_name() : data.type_name());
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
