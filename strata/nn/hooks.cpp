#include "strata/nn/hooks.h"

#include "strata/autograd/hooks.h"
#include "strata/nn/module_hooks_inl.h"
#include "strata/ops/view/view.h"

namespace strata::nn {

bool detail::has_hooks_around(const Module& module) {
  if (modules_with_hooks.load(std::memory_order_relaxed) == 0) return false;
  ModuleHooks* hooks = ModuleHooks::of_module(module, false);
  if (!hooks) return false;
  for (const auto kind : {HookKind::before, HookKind::after})
    for (const auto& hook : hooks->of(kind))
      if (!hook->removed) return true;
  return false;
}
bool has_forward_hooks(const Module& module) {
  if (detail::modules_with_hooks.load(std::memory_order_relaxed) == 0) return false;
  detail::ModuleHooks* hooks = detail::ModuleHooks::of_module(module, false);
  return hooks && (hooks->instead || detail::has_hooks_around(module));
}

namespace detail {

ModuleHooks::ModuleHooks() {
  modules_with_hooks.fetch_add(1, std::memory_order_relaxed);
}
ModuleHooks::~ModuleHooks() {
  modules_with_hooks.fetch_sub(1, std::memory_order_relaxed);
}

void add_module_hook(const Module& module, HookKind kind, std::shared_ptr<ModuleHook> hook) {
  ModuleHooks& hooks = *ModuleHooks::of_module(module, true);
  std::erase_if(hooks.of(kind), [](const auto& h) { return h->removed; });
  hooks.of(kind).push_back(std::move(hook));
}

namespace {

// A hook may add and remove hooks: those of now are called.
Tensor run(const Module& module, ModuleHooks& hooks, HookKind kind, Tensor a, Tensor b, bool second) {
  const std::vector<std::shared_ptr<ModuleHook>> all = hooks.of(kind);
  for (const auto& hook : all) {
    if (hook->removed) continue;
    Tensor given = hook->call(module, a, b);
    if (given.defined()) (second ? b : a) = std::move(given);
  }
  return second ? b : a;
}

}  // namespace

Tensor hooked_forward(const Module& module, const Tensor& x, ForwardRef forward) {
  ModuleHooks* hooks = ModuleHooks::of_module(module, false);
  if (!hooks) return forward.call(forward.fn, x);
  Tensor in = run(module, *hooks, HookKind::before, x, {}, false);
  const bool backward = !hooks->of(HookKind::backward).empty() && grad_enabled();
  const auto grad_output = std::make_shared<Tensor>();
  const bool wants_grad = in.requires_grad();
  if (backward && wants_grad) {
    // A tensor of its own: the hook sees what this call gives the input, not what others do.
    in = in.view(in.shape());
    register_hook(in, [module, grad_output](const Tensor& g) {
      Tensor replaced = run(module, *ModuleHooks::of_module(module, true), HookKind::backward, g, *grad_output, false);
      *grad_output = {};
      return replaced;
    });
  }
  const std::shared_ptr<const Replacement> instead = hooks->instead;  // a hook may take it away
  const Tensor own = instead ? instead->forward(in) : forward.call(forward.fn, in);
  Tensor y = run(module, *hooks, HookKind::after, in, own, true);
  if (backward && y.requires_grad()) {
    y = y.view(y.shape());
    register_hook(y, [module, grad_output, wants_grad](const Tensor& g) {
      *grad_output = g;
      if (!wants_grad) run(module, *ModuleHooks::of_module(module, true), HookKind::backward, {}, g, false);
    });
  }
  return y;
}

}  // namespace detail

}  // namespace strata::nn
