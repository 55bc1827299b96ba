#pragma once
// Functions that run around the forward pass of a module, and when its gradients are known. Modules that are called
// with a tensor and give a tensor have them; one of your own does when its operator() is called():
//
//     Tensor operator()(const Tensor& x) const { return nn::called(*this, x); }

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include "strata/nn/module.h"

namespace strata::nn {

namespace detail {
/// One hook; which tensors `a` and `b` are, the kind says.
struct ModuleHook {
  virtual ~ModuleHook() = default;
  /// An undefined tensor keeps what it was called with.
  virtual Tensor call(const Module& module, const Tensor& a, const Tensor& b) = 0;
  bool removed = false;
};
enum class HookKind : uint8_t { before, after, backward };
void add_module_hook(const Module& module, HookKind kind, std::shared_ptr<ModuleHook> hook);

template <class F>
struct CallableModuleHook final : ModuleHook {
  explicit CallableModuleHook(F f) : fn(std::move(f)) {}
  Tensor call(const Module& module, const Tensor& a, const Tensor& b) override {
    if constexpr (std::is_invocable_v<F&, const Module&, const Tensor&, const Tensor&>) {
      return result([&] { return fn(module, a, b); });
    } else {
      return result([&] { return fn(module, a); });
    }
  }
  template <class G>
  static Tensor result(G&& g) {
    if constexpr (std::is_void_v<decltype(g())>) {
      g();
      return {};
    } else {
      return g();
    }
  }
  F fn;
};
}  // namespace detail

/// Whether anything runs before, behind or instead of the module's forward. A module that computes with a part's weight, to do two
/// layers in one op, calls the part instead where this holds.
bool has_forward_hooks(const Module& module);

/// Ends a module's hook. It may be copied and dropped; only remove() takes the hook away.
class ModuleHookHandle {
 public:
  ModuleHookHandle() = default;
  explicit ModuleHookHandle(const std::shared_ptr<detail::ModuleHook>& hook) : hook_(hook) {}
  /// The hook does not run again.
  void remove() {
    if (const std::shared_ptr<detail::ModuleHook> hook = hook_.lock()) hook->removed = true;
  }

 private:
  std::weak_ptr<detail::ModuleHook> hook_;
};

namespace detail {
template <class F>
ModuleHookHandle register_module_hook(const Module& module, HookKind kind, F fn) {
  const std::shared_ptr<ModuleHook> hook = std::make_shared<CallableModuleHook<F>>(std::move(fn));
  add_module_hook(module, kind, hook);
  return ModuleHookHandle(hook);
}
}  // namespace detail

/// Calls `fn(module, input)` before the module's forward; a Tensor that it returns takes the input's place. Hooks run
/// in the order of registration, those of every handle to the module.
///     auto h = nn::register_forward_pre_hook(net, [](const nn::Module&, const Tensor& x) { return x * 0.5; });
template <class F>
ModuleHookHandle register_forward_pre_hook(const Module& module, F fn) {
  return detail::register_module_hook(module, detail::HookKind::before, std::move(fn));
}
/// Calls `fn(module, input, output)` after the module's forward; a Tensor that it returns takes the output's place.
template <class F>
ModuleHookHandle register_forward_hook(const Module& module, F fn) {
  return detail::register_module_hook(module, detail::HookKind::after, std::move(fn));
}
/// Calls `fn(module, grad_input, grad_output)` in the backward pass when the gradient of the module's input is known; a
/// Tensor that it returns takes grad_input's place. Where the input wants no gradient, grad_input is undefined and the
/// hook runs when the output's is known.
template <class F>
ModuleHookHandle register_full_backward_hook(const Module& module, F fn) {
  return detail::register_module_hook(module, detail::HookKind::backward, std::move(fn));
}

}  // namespace strata::nn
