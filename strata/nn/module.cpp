#include "strata/nn/module.h"

#include <algorithm>
#include <set>

#include "strata/core/node.h"
#include "strata/core/rebind.h"
#include "strata/memory/allocator.h"
#include "strata/nn/late_weights_inl.h"
#include "strata/nn/module_hooks_inl.h"
#include "strata/ops/factory/factory.h"

namespace strata::nn {

struct Module::State {
  struct Buffer {
    Tensor tensor;
    bool persistent;
  };
  std::string kind, detail;
  NamedTensors parameters;
  std::vector<std::pair<std::string, Buffer>> buffers;
  std::vector<std::pair<std::string, std::shared_ptr<State>>> children;
  std::weak_ptr<State> parent;  // that registered it first, as `name`
  std::string name;
  bool training = true;
  std::unique_ptr<detail::ModuleHooks> hooks;

  std::string path() const {
    const std::shared_ptr<State> above = parent.lock();
    if (!above) return {};
    const std::string at = above->path();
    return at.empty() ? name : at + "." + name;
  }

  void check_name(const std::string& name) const {
    const std::string op = kind + ".register";
    check(!name.empty() && name.find('.') == std::string::npos, op, "a name is not empty and has no dot, got '", name,
          "'");
    const auto same = [&](const auto& entry) { return entry.first == name; };
    check(std::ranges::none_of(parameters, same) && std::ranges::none_of(buffers, same) &&
              std::ranges::none_of(children, same),
          op, "'", name, "' is registered already");
  }

  // f(state, name) for this and all states below, parents first, each once.
  template <class F>
  void visit(F&& f, const std::string& prefix, std::set<const State*>& seen) {
    if (!seen.insert(this).second) return;
    f(*this, prefix);
    for (auto& [name, child] : children) child->visit(f, prefix.empty() ? name : prefix + "." + name, seen);
  }
  template <class F>
  void visit(F&& f, std::string_view prefix = {}) {
    std::set<const State*> seen;
    visit(f, std::string(prefix), seen);
  }

  // As visit(), but a state that is registered twice comes under each of its names.
  template <class F>
  void visit_names(F&& f, const std::string& prefix) {
    f(*this, prefix);
    for (auto& [name, child] : children) child->visit_names(f, prefix.empty() ? name : prefix + "." + name);
  }

  void print(std::string& text, int indent) const {
    text += kind + "(" + detail;
    if (!children.empty()) {
      text += '\n';
      for (const auto& [name, child] : children) {
        text += std::string(static_cast<size_t>(indent) + 2, ' ') + "(" + name + "): ";
        child->print(text, indent + 2);
      }
      text += std::string(static_cast<size_t>(indent), ' ');
    }
    text += ")\n";
  }
};

namespace {

std::string join(std::string_view prefix, std::string_view name) {
  return prefix.empty() ? std::string(name) : std::string(prefix) + "." + std::string(name);
}

// The first names of a list, for messages.
std::string some_of(const std::vector<std::string>& names) {
  constexpr size_t kShown = 6;
  std::string text;
  for (size_t i = 0; i < std::min(kShown, names.size()); ++i) text += (i ? ", " : "") + names[i];
  if (names.size() > kShown) text += cat(" and ", names.size() - kShown, " more");
  return text;
}

template <class Entries>
std::string names_of(const Entries& entries) {
  std::vector<std::string> names;
  names.reserve(entries.size());
  for (const auto& e : entries) names.push_back(e.first);
  return names.empty() ? "it has none" : "it has " + some_of(names);
}

// Gives `t`, and so every handle to it, the bytes and type of `value`.
void replace_data(Tensor t, const Tensor& value) {
  t.set_grad({});
  autograd_meta(t).low = {};
  rebind(t, value);
}

}  // namespace

Module::Module(std::string_view kind, std::string detail) : state_(std::make_shared<State>()) {
  state_->kind = kind;
  state_->detail = std::move(detail);
}

Tensor Module::register_parameter(std::string name, const Tensor& value) {
  state_->check_name(name);
  if (!value.defined()) return value;
  check<DTypeError>(is_floating(value.dtype()), state_->kind + ".register_parameter", "'", name,
                    "' must be floating to be trained, got ", value, "; register_buffer takes any type");
  Tensor parameter = value;
  if (value.storage()->tag != memory::Tag::parameter || !value.is_leaf()) {
    NoGrad guard;
    memory::TagScope tag(memory::Tag::parameter);
    parameter = value.detach().contiguous().clone();
  }
  parameter.set_requires_grad();
  state_->parameters.emplace_back(std::move(name), parameter);
  return parameter;
}

Tensor Module::new_parameter(std::string name, const Shape& shape) {
  memory::TagScope tag(memory::Tag::parameter);
  return register_parameter(std::move(name), detail::new_weight(shape));
}

Tensor Module::register_buffer(std::string name, const Tensor& value, bool persistent) {
  state_->check_name(name);
  if (value.defined()) state_->buffers.emplace_back(std::move(name), State::Buffer{value, persistent});
  return value;
}

void Module::adopt(std::string name, const Module& child) {
  state_->check_name(name);
  if (child.state_->parent.expired()) {
    child.state_->parent = state_;
    child.state_->name = name;
  }
  state_->children.emplace_back(std::move(name), child.state_);
}

void Module::set_detail(std::string detail) {
  state_->detail = std::move(detail);
}

NamedTensors Module::named_parameters(std::string_view prefix) const {
  NamedTensors all;
  std::set<const TensorImpl*> seen;
  state_->visit(
      [&](State& s, const std::string& at) {
        for (const auto& [name, t] : s.parameters)
          if (seen.insert(&t.impl()).second) all.emplace_back(join(at, name), t);
      },
      prefix);
  return all;
}

std::vector<Tensor> Module::parameters() const {
  std::vector<Tensor> all;
  for (auto& [name, t] : named_parameters()) all.push_back(std::move(t));
  return all;
}

NamedTensors Module::named_buffers(std::string_view prefix) const {
  NamedTensors all;
  std::set<const TensorImpl*> seen;
  state_->visit(
      [&](State& s, const std::string& at) {
        for (const auto& [name, b] : s.buffers)
          if (seen.insert(&b.tensor.impl()).second) all.emplace_back(join(at, name), b.tensor);
      },
      prefix);
  return all;
}

std::vector<std::pair<std::string, Module>> Module::named_children() const {
  std::vector<std::pair<std::string, Module>> all;
  for (const auto& [name, child] : state_->children) all.emplace_back(name, Module(child));
  return all;
}

std::vector<std::pair<std::string, Module>> Module::named_modules() const {
  std::vector<std::pair<std::string, Module>> all{{"", *this}};
  std::set<const State*> seen{state_.get()};
  for (const auto& [name, child] : state_->children) {
    const std::shared_ptr<State> top = child;
    const auto walk = [&](auto& self, const std::shared_ptr<State>& s, const std::string& at) -> void {
      if (!seen.insert(s.get()).second) return;
      all.emplace_back(at, Module(s));
      for (const auto& [n, c] : s->children) self(self, c, join(at, n));
    };
    walk(walk, top, name);
  }
  return all;
}

int64_t Module::num_parameters(bool only_trainable) const {
  int64_t n = 0;
  for (const auto& [name, t] : named_parameters())
    if (!only_trainable || t.requires_grad()) n += t.numel();
  return n;
}

StateDict Module::state_dict() const {
  StateDict all;
  state_->visit_names(
      [&](State& s, const std::string& at) {
        for (const auto& [name, t] : s.parameters) all.emplace(join(at, name), t.detach());
        for (const auto& [name, b] : s.buffers)
          if (b.persistent) all.emplace(join(at, name), b.tensor.detach());
      },
      {});
  return all;
}

namespace {
// The same elements: read from a file straight to where they belong.
bool is_view_of(const Tensor& a, const Tensor& b) {
  return a.storage() == b.storage() && a.storage_offset() == b.storage_offset() && a.dtype() == b.dtype() &&
         a.strides() == b.strides();
}
}  // namespace

LoadReport Module::load_state_dict(const StateDict& state, bool strict) {
  const std::string op = state_->kind + ".load_state_dict";
  StateDict own = state_dict();
  LoadReport report;
  for (const auto& [name, t] : own)
    if (!state.contains(name)) report.missing.push_back(name);
  for (const auto& [name, t] : state)
    if (!own.contains(name)) report.unexpected.push_back(name);
  if (strict && !(report.missing.empty() && report.unexpected.empty())) {
    std::string text;
    if (!report.missing.empty()) text = "missing " + some_of(report.missing);
    if (!report.unexpected.empty()) text += (text.empty() ? "" : "; ") + ("unexpected " + some_of(report.unexpected));
    throw ValueError(op, text);
  }
  std::vector<std::string> wrong;
  for (auto& [name, t] : own)
    if (const auto it = state.find(name); it != state.end()) {
      check(it->second.defined(), op, "'", name, "' is undefined");
      if (it->second.shape() != t.shape()) wrong.push_back(cat(name, " is ", it->second, ", wanted ", t));
    }
  check<ShapeError>(wrong.empty(), op, some_of(wrong));
  NoGrad guard;
  for (auto& [name, t] : own)
    if (const auto it = state.find(name); it != state.end() && !is_view_of(it->second, t)) t.copy_(it->second);
  return report;
}

void Module::train(bool on) {
  state_->visit([on](State& s, const std::string&) { s.training = on; });
}

bool Module::is_training() const {
  return state_->training;
}

void Module::to(DType dtype) {
  check<DTypeError>(is_floating(dtype), state_->kind + ".to", "parameters are floating, got ", dtype);
  NoGrad guard;
  memory::TagScope tag(memory::Tag::parameter);
  for (const auto& [name, t] : named_parameters())
    if (t.dtype() != dtype) replace_data(t, t.detach().to(dtype));
  for (const auto& [name, t] : named_buffers())
    if (is_floating(t.dtype()) && t.dtype() != dtype) replace_data(t, t.detach().to(dtype));
}

std::set<std::string> table_names(const Module& module) {
  std::set<std::string> names;
  for (const auto& [name, part] : module.named_modules())
    if (part.kind() == "Embedding" || part.kind() == "EmbeddingBag")
      names.insert(name.empty() ? "weight" : name + ".weight");
  return names;
}

void convert_parameters(const Module& module, DType dtype, int64_t least_dim) {
  check<DTypeError>(is_floating(dtype), "convert_parameters", "parameters are floating, got ", dtype);
  NoGrad guard;
  memory::TagScope tag(memory::Tag::parameter);
  for (const auto& [name, t] : module.named_parameters())
    if (t.dim() >= least_dim && t.dtype() != dtype) replace_data(t, t.detach().to(dtype));
}

void Module::to(Device device) {
  NoGrad guard;
  memory::TagScope tag(memory::Tag::parameter);
  for (const NamedTensors& tensors : {named_parameters(), named_buffers()})
    for (const auto& [name, t] : tensors)
      if (!(t.device() == device)) replace_data(t, t.detach().to(device));
}

void Module::zero_grad() {
  for (Tensor t : parameters()) t.set_grad({});
}

void Module::requires_grad(bool value) {
  for (Tensor t : parameters()) t.set_requires_grad(value);
}

const std::string& Module::kind() const {
  return state_->kind;
}

const std::string& Module::path() const {
  return *memory::detail::module_name(state_->path());
}

namespace {
thread_local std::vector<ModulePolicy*> t_policies;
}

ModulePolicyScope::ModulePolicyScope(ModulePolicy& policy) {
  t_policies.push_back(&policy);
}
ModulePolicyScope::~ModulePolicyScope() {
  t_policies.pop_back();
}

void ModuleCall::enter(const Module& module) {
  const std::string& path = module.path();
  const std::string*& current = memory::detail::t_caller.module;
  previous_ = current;
  for (size_t i = 0; i < t_policies.size(); ++i) {
    try {
      t_policies[i]->enter(module);
    } catch (...) {
      while (i-- > 0) t_policies[i]->leave(module);
      throw;
    }
  }
  if (!path.empty()) current = &path;
  module_ = &module;
}
void ModuleCall::leave() {
  memory::detail::t_caller.module = previous_;
  for (size_t i = t_policies.size(); i-- > 0;) t_policies[i]->leave(*module_);
}

Tensor Module::parameter(std::string_view name) const {
  for (const auto& [n, t] : state_->parameters)
    if (n == name) return t;
  throw ValueError(state_->kind, cat("no parameter '", name, "'; ", names_of(state_->parameters)));
}

Tensor Module::buffer(std::string_view name) const {
  for (const auto& [n, b] : state_->buffers)
    if (n == name) return b.tensor;
  throw ValueError(state_->kind, cat("no buffer '", name, "'; ", names_of(state_->buffers)));
}

Module Module::child(std::string_view name) const {
  for (const auto& [n, c] : state_->children)
    if (n == name) return Module(c);
  throw ValueError(state_->kind, cat("no child '", name, "'; ", names_of(state_->children)));
}

detail::ModuleHooks* detail::ModuleHooks::of_module(const Module& module, bool make) {
  std::unique_ptr<ModuleHooks>& hooks = module.state_->hooks;
  if (make && !hooks) hooks = std::make_unique<ModuleHooks>();
  return hooks.get();
}

Tensor detail::ModuleHooks::own(const Module& module, std::string_view name, std::string_view op, bool* is_parameter) {
  for (const auto& [n, t] : module.state_->parameters)
    if (n == name) {
      if (is_parameter) *is_parameter = true;
      return t;
    }
  if (is_parameter) *is_parameter = false;
  for (const auto& [n, b] : module.state_->buffers)
    if (n == name) return b.tensor;
  throw ValueError(op, cat("Module '", module.kind(),
                           "' does not have a parameter, a buffer, or a parametrized element with name '", name, "'"));
}

void detail::ModuleHooks::forget(const Module& module, std::string_view name) {
  Module::State& s = *module.state_;
  const auto same = [&](const auto& entry) { return entry.first == name; };
  std::erase_if(s.parameters, same);
  std::erase_if(s.buffers, same);
  std::erase_if(s.children, same);
}

std::string Module::to_string() const {
  std::string text;
  state_->print(text, 0);
  return text;
}

}  // namespace strata::nn
