#pragma once
// Functions that run when a gradient arrives.

#include <memory>
#include <type_traits>
#include <utility>

#include "strata/core/node.h"

namespace strata {

/// Ends a hook. A handle may be copied and dropped; only remove() takes the hook away.
class HookHandle {
 public:
  HookHandle() = default;
  explicit HookHandle(const std::shared_ptr<TensorHook>& hook) : hook_(hook) {}
  /// The hook is not called again. Nothing happens when its tensor is gone or it was removed before.
  void remove() {
    if (const std::shared_ptr<TensorHook> hook = hook_.lock()) hook->removed = true;
  }

 private:
  std::weak_ptr<TensorHook> hook_;
};

namespace detail {
template <class F>
struct CallableHook final : TensorHook {
  explicit CallableHook(F f) : fn(std::move(f)) {}
  Tensor operator()(const Tensor& grad) override {
    if constexpr (std::is_void_v<decltype(fn(grad))>) {
      fn(grad);
      return {};
    } else {
      return fn(grad);
    }
  }
  F fn;
};
}  // namespace detail

/// Calls `fn(const Tensor& grad)` whenever the gradient of `t` is known in a backward pass, before it is accumulated or
/// passed on. `fn` returns nothing, or a Tensor of the gradient's shape, dtype and device that takes its place
/// (undefined: keep it); another one makes backward throw ShapeError, DTypeError or DeviceError, as PyTorch does. Hooks
/// run in the order of registration. Throws AutogradError when `t` does not require a gradient.
///
///     HookHandle h = register_hook(x, [](const Tensor& g) { return g * 0.5; });
///     h.remove();
template <class F>
HookHandle register_hook(const Tensor& t, F fn) {
  const std::shared_ptr<TensorHook> hook = std::make_shared<detail::CallableHook<F>>(std::move(fn));
  add_tensor_hook(t, hook);
  return HookHandle(hook);
}

/// Calls `fn(const Tensor& leaf)` after backward() has added a gradient to leaf.grad(): the place to step an optimizer
/// and drop the gradient during backward. Throws AutogradError unless `leaf` is a leaf that requires a gradient.
template <class F>
HookHandle register_post_accumulate_grad_hook(const Tensor& leaf, F fn) {
  auto run = [f = std::move(fn)](const Tensor& t) mutable { f(t); };
  const std::shared_ptr<TensorHook> hook = std::make_shared<detail::CallableHook<decltype(run)>>(std::move(run));
  add_post_accumulate_hook(leaf, hook);
  return HookHandle(hook);
}

}  // namespace strata
