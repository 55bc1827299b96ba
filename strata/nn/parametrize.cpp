#include "strata/nn/parametrize.h"

#include <algorithm>
#include <utility>

#include "strata/core/computed_node.h"
#include "strata/core/error.h"
#include "strata/core/rebind.h"
#include "strata/memory/allocator.h"
#include "strata/nn/module_hooks_inl.h"
#include "strata/ops/copy/copy.h"

namespace strata::nn {

ParametrizationList::ParametrizationList(std::shared_ptr<Parametrization> first, const Tensor& value, bool trained)
    : Module("ParametrizationList"), inside_(std::make_shared<Inside>()) {
  push_back(std::move(first));
  const NoGrad guard;
  const memory::TagScope tag(memory::Tag::parameter);
  TensorList start = inside_->steps[0]->right_inverse(value.detach());
  if (start.empty()) start = {value};
  for (size_t i = 0; i < start.size(); ++i) {
    const std::string name = start.size() == 1 ? "original" : cat("original", i);
    const Tensor own = start[i].detach().contiguous().clone();  // not the parameter's memory, nor another original's
    Tensor kept = trained ? register_parameter(name, own) : register_buffer(name, own);
    if (trained) kept.set_requires_grad(value.requires_grad());
    inside_->originals.push_back(kept);
  }
}

void ParametrizationList::push_back(std::shared_ptr<Parametrization> next) {
  check(next != nullptr, "register_parametrization", "the parametrization is null");
  register_module(std::to_string(size()), static_cast<const Module&>(*next));
  inside_->steps.push_back(std::move(next));
}

Tensor ParametrizationList::forward() const {
  Tensor x = inside_->steps[0]->forward(inside_->originals);
  for (size_t i = 1; i < size(); ++i) x = inside_->steps[i]->forward({x});
  return x;
}

void ParametrizationList::assign(const Tensor& value) const {
  const NoGrad guard;
  TensorList parts{value};
  for (size_t i = size(); i-- > 0;) {
    parts = inside_->steps[i]->right_inverse(parts[0]);
    check(!parts.empty(), "ParametrizationList.assign", inside_->steps[i]->kind(), " has no right_inverse()");
  }
  for (size_t i = 0; i < parts.size(); ++i)
    check<ShapeError>(parts[i].shape() == inside_->originals[i].shape(), "ParametrizationList.assign", "original ", i,
                      " is ", inside_->originals[i], ", the value gives ", parts[i]);
  for (size_t i = 0; i < parts.size(); ++i) Tensor(inside_->originals[i]).copy_(parts[i]);
}

namespace {

// Of a parameter's tensor; it knows by what the value was computed.
struct ParametrizedNode final : ComputedNode {
  ParametrizedNode(const Tensor& value, const std::shared_ptr<ParametrizationList>& from)
      : ComputedNode(value), list(from) {}
  std::weak_ptr<ParametrizationList> list;
};

// Gives `slot`, and so every handle to it, the bytes and form of `value`, without history.
void show(const Tensor& slot, const Tensor& value) {
  Tensor(slot).set_grad({});
  AutogradMeta& tape = autograd_meta(slot);
  tape.low = {};
  tape.grad_fn = {};
  rebind(slot, value);
  slot.impl().requires_grad = false;
  slot.impl().view_base = {};
}
// The same with the history of `value`. One that wants no gradient gets the node too: it is computed all the same.
void show_computed(const Tensor& slot, const Tensor& value, const std::shared_ptr<ParametrizationList>& list) {
  show(slot, value);
  autograd_meta(slot).grad_fn = Ref<Node>(make_ref<ParametrizedNode>(value, list));
  autograd_meta(slot).result_index = 0;
  slot.impl().requires_grad = value.requires_grad();
}

thread_local std::set<const TensorImpl*>* t_computed = nullptr;

// The pre-hook of a module with parametrised parameters; it also is where they are kept.
struct ParametrizedModule final : detail::ModuleHook {
  struct Entry {
    std::string name;
    Tensor slot;                                // what the layer reads
    std::shared_ptr<ParametrizationList> list;  // owned by the entries of all names of the slot
    bool trained;
  };

  Tensor call(const Module&, const Tensor&, const Tensor&) override {
    update();
    return {};
  }
  void update() const {
    for (const Entry& e : entries) {
      if (t_computed && t_computed->contains(&e.slot.impl())) continue;
      show_computed(e.slot, e.list->forward(), e.list);
      if (t_computed) t_computed->insert(&e.slot.impl());
    }
  }
  Entry* find(std::string_view name) {
    const auto it = std::ranges::find(entries, name, &Entry::name);
    return it == entries.end() ? nullptr : &*it;
  }

  std::vector<Entry> entries;
  Module dict{"ModuleDict"};  // the module's child "parametrizations"

  static ParametrizedModule* of(const Module& module) {
    detail::ModuleHooks* hooks = detail::ModuleHooks::of_module(module, false);
    if (!hooks) return nullptr;
    for (const auto& hook : hooks->of(detail::HookKind::before))
      if (auto* found = dynamic_cast<ParametrizedModule*>(hook.get()); found && !found->removed) return found;
    return nullptr;
  }
  static Entry* find(const Module& module, std::string_view name) {
    ParametrizedModule* all = of(module);
    return all ? all->find(name) : nullptr;
  }
};
using Entry = ParametrizedModule::Entry;

constexpr std::string_view kRegister = "register_parametrization";

Entry& entry_of(const Module& module, std::string_view name, std::string_view op) {
  Entry* entry = ParametrizedModule::find(module, name);
  check(entry != nullptr, op, "Module ", module.kind(), " does not have a parametrization on ", name);
  return *entry;
}

void check_same_form(std::string_view name, const Tensor& before, const Tensor& after, bool unsafe) {
  check(unsafe || (before.shape() == after.shape() && before.dtype() == after.dtype()), kRegister,
        "the parametrization of '", name, "' changes its shape or dtype: ", before, " to ", after,
        "; unsafe = true allows it");
}

// One more parametrisation of what the others give.
void chain(const Module& module, Entry& entry, std::shared_ptr<Parametrization> next, bool unsafe) {
  const NoGrad guard;
  const Tensor now = entry.list->forward();
  const TensorList inverse = next->right_inverse(now);
  check(inverse.size() <= 1, kRegister, next->kind(), " takes ", inverse.size(),
        " originals, so it can only be the "
        "first parametrization of '",
        entry.name, "'");
  next->train(module.is_training());
  const Tensor value = next->forward({inverse.empty() ? now : inverse[0]});
  check_same_form(entry.name, now, value, unsafe);
  if (!inverse.empty()) entry.list->assign(inverse[0]);
  entry.list->push_back(std::move(next));
  show_computed(entry.slot, value, entry.list);
}

// The parametrisation of a tensor that another name has parametrised already; nullptr where none has.
std::shared_ptr<ParametrizationList> shared_list(const Tensor& slot) {
  const AutogradMeta* tape = slot.impl().autograd.get();
  const auto* node = tape ? dynamic_cast<const ParametrizedNode*>(tape->grad_fn.get()) : nullptr;
  return node ? node->list.lock() : nullptr;
}

}  // namespace

void register_parametrization(const Module& module, std::string_view name,
                              std::shared_ptr<Parametrization> parametrization, bool unsafe) {
  check(parametrization != nullptr, kRegister, "the parametrization is null");
  if (Entry* entry = ParametrizedModule::find(module, name)) {
    chain(module, *entry, std::move(parametrization), unsafe);
    return;
  }
  bool trained = false;
  const Tensor slot = detail::ModuleHooks::own(module, name, kRegister, &trained);
  const NoGrad guard;
  std::shared_ptr<ParametrizationList> list = shared_list(slot);
  check(!list || list->at(0) == parametrization, kRegister, "the tensor of '", name, "' of ", module.kind(),
        " is parametrized under another name; registering the same parametrization shares it");
  Tensor value;
  if (!list) {
    list = std::make_shared<ParametrizationList>(parametrization, slot, trained);
    list->train(module.is_training());
    value = list->forward();
    check_same_form(name, slot, value, unsafe);
  }
  ParametrizedModule* all = ParametrizedModule::of(module);
  if (!all) {
    const auto made = std::make_shared<ParametrizedModule>();
    Module(module).register_module("parametrizations", made->dict);
    detail::add_module_hook(module, detail::HookKind::before, made);
    all = made.get();
  }
  if (value.defined()) show_computed(slot, value, list);
  all->dict.train(module.is_training());
  all->dict.register_module(std::string(name), *list);
  all->entries.push_back({std::string(name), slot, list, trained});
  detail::ModuleHooks::forget(module, name);
}

void remove_parametrizations(const Module& module, std::string_view name, bool leave_parametrized) {
  constexpr std::string_view op = "remove_parametrizations";
  check(entry_of(module, name, op).list.use_count() == 1, op, "'", name, "' of ", module.kind(),
        " shares its parametrization with another name");
  const Entry entry = entry_of(module, name, op);
  const TensorList& originals = entry.list->originals();
  check(leave_parametrized || originals.size() == 1, op, "'", name, "' is computed from ", originals.size(),
        " originals: only its value can be left (leave_parametrized = true)");
  {
    const NoGrad guard;
    const memory::TagScope tag(memory::Tag::parameter);
    show(entry.slot, (leave_parametrized ? entry.list->forward() : originals[0]).detach().contiguous().clone());
  }
  ParametrizedModule& all = *ParametrizedModule::of(module);
  std::erase_if(all.entries, [&](const Entry& e) { return e.name == name; });
  detail::ModuleHooks::forget(all.dict, name);
  if (all.entries.empty()) {
    detail::ModuleHooks::forget(module, "parametrizations");
    all.removed = true;
  }
  Module owner = module;
  if (entry.trained) {
    owner.register_parameter(entry.name, entry.slot)
        .set_requires_grad(std::ranges::any_of(originals, [](const Tensor& t) { return t.requires_grad(); }));
  } else {
    owner.register_buffer(entry.name, entry.slot);
  }
}

bool is_parametrized(const Module& module, std::string_view name) {
  return name.empty() ? ParametrizedModule::of(module) != nullptr : ParametrizedModule::find(module, name) != nullptr;
}

ParametrizationList parametrizations_of(const Module& module, std::string_view name) {
  return *entry_of(module, name, "parametrizations_of").list;
}

void update_parametrizations(const Module& module) {
  for (const auto& [name, part] : module.named_modules())
    if (const ParametrizedModule* all = ParametrizedModule::of(part)) all->update();
}

CachedParametrizations::CachedParametrizations() : outermost_(t_computed == nullptr) {
  if (outermost_) t_computed = &computed_;
}
CachedParametrizations::~CachedParametrizations() {
  if (outermost_) t_computed = nullptr;
}

}  // namespace strata::nn
