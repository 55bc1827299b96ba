#pragma once
// Module: a part of a network, with named parameters, buffers and child modules.
//
//     struct Net : nn::Module {
//       nn::Linear hidden = register_module("hidden", nn::Linear(784, 128));
//       nn::Dropout dropout = register_module("dropout", nn::Dropout(0.1));
//       nn::Linear out = register_module("out", nn::Linear(128, 10));
//       Tensor forward(const Tensor& x) { return out(dropout(relu(hidden(x)))); }
//     };
//     Net net;
//     Tensor y = net.forward(randn({32, 784}));
//     for (auto& [name, p] : net.named_parameters()) ...   // "hidden.weight", "hidden.bias", "out.weight", ...
//
// A Module is a handle, as a Tensor is: copying it copies no parameters, the copy has the same ones.
// Weights are drawn from default_generator(): manual_seed(1) before building a network fixes them. Within
// `DeviceScope dry(Device::meta());` a network of any size is built without memory.

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "strata/core/node.h"
#include "strata/core/tensor.h"

namespace strata::nn {

/// Tensors by full name ("blocks.0.attn.qkv.weight"); what a safetensors file holds.
using StateDict = std::map<std::string, Tensor>;
/// Tensors with their full names, in the order of registration.
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

/// What load_state_dict did not find a counterpart for.
struct LoadReport {
  std::vector<std::string> missing;     ///< in the module, not in the dictionary
  std::vector<std::string> unexpected;  ///< in the dictionary, not in the module
};

namespace detail {
struct ModuleHooks;
/// How many modules of the process have hooks (strata/nn/hooks.h).
inline std::atomic<int64_t> modules_with_hooks{0};
}  // namespace detail

/// Base of every layer and network; see the top of this file.
class Module {
 public:
  /// `kind` is the type's name for printing and apply(); `detail` follows it in to_string().
  explicit Module(std::string_view kind = "Module", std::string detail = {});

  /// @name Building (in a constructor or a member's initialiser)
  /// Names must be new, not empty and without a dot: ValueError.
  /// @{
  /// Marks `value` as wanting a gradient and registers it. Its bytes are copied into memory that is accounted as
  /// parameters, unless they are there already. An undefined tensor is returned as it is. Returns the parameter.
  Tensor register_parameter(std::string name, const Tensor& value);
  /// A tensor that belongs to the state but is not trained. It is in the state_dict only if `persistent`.
  Tensor register_buffer(std::string name, const Tensor& value, bool persistent = true);
  /// Makes `child` a part of this module and returns it.
  template <class M>
  M register_module(std::string name, M child) {
    adopt(std::move(name), child);
    return child;
  }
  /// @}

  /// @name What it holds. A tensor or module that is registered twice is listed once, under its first name.
  /// @{
  NamedTensors named_parameters(std::string_view prefix = {}) const;
  std::vector<Tensor> parameters() const;
  NamedTensors named_buffers(std::string_view prefix = {}) const;
  /// Direct children.
  std::vector<std::pair<std::string, Module>> named_children() const;
  /// This module (with an empty name) and all below it.
  std::vector<std::pair<std::string, Module>> named_modules() const;
  /// Elements of all parameters, or of those that want a gradient.
  int64_t num_parameters(bool only_trainable = false) const;
  /// @}

  /// @name State
  /// @{
  /// All parameters and persistent buffers, detached but sharing their bytes: clone what must outlive the next update.
  StateDict state_dict() const;
  /// Copies values into parameters and buffers, converting dtypes. With `strict`, missing and unexpected names are an
  /// error. Throws ValueError listing names, ShapeError listing shapes; then nothing was changed.
  LoadReport load_state_dict(const StateDict& state, bool strict = true);
  /// @}

  /// @name Modes and conversions, for this module and all below it
  /// @{
  /// Training mode: dropout drops, batch norm uses the batch's statistics. Modules start in it.
  void train(bool on = true);
  void eval() { train(false); }
  bool is_training() const;
  /// Converts floating parameters and buffers; every handle to them sees it. Their gradients are dropped.
  void to(DType dtype);
  void to(Device device);
  /// Drops the gradients of all parameters.
  void zero_grad();
  /// Sets whether parameters want gradients: false freezes them.
  void requires_grad(bool value);
  /// f(module) for every module below this one, then for this one:
  ///     net.apply([](nn::Module& m) { if (m.kind() == "Linear") nn::init::zeros_(m.parameter("weight")); });
  template <class F>
  void apply(F&& f) {
    for (auto& [name, child] : named_children()) child.apply(f);
    f(*this);
  }
  /// @}

  const std::string& kind() const;
  /// Its full name in the largest module that it is a part of, "blocks.0.attn"; empty where it is part of none. A
  /// module that is registered twice has its first name.
  const std::string& path() const;
  /// Own parameter, buffer or child by its name. Throws ValueError listing the names there are.
  Tensor parameter(std::string_view name) const;
  Tensor buffer(std::string_view name) const;
  Module child(std::string_view name) const;
  /// The tree, a line for each module.
  std::string to_string() const;

 protected:
  /// A new, uninitialised parameter on default_device(), of default_dtype(), already registered.
  Tensor new_parameter(std::string name, const Shape& shape);
  void set_detail(std::string detail);

 private:
  struct State;
  explicit Module(std::shared_ptr<State> state) : state_(std::move(state)) {}
  void adopt(std::string name, const Module& child);

  friend class ModuleCall;
  friend struct detail::ModuleHooks;
  std::shared_ptr<State> state_;
};

/// Something that is done when a module's forward begins and ends: fetching its parameters, counting, timing.
struct ModulePolicy {
  virtual ~ModulePolicy() = default;
  /// Before anything of its forward.
  virtual void enter(const Module& module) {}
  /// Also when forward threw; must not throw.
  virtual void leave(const Module& module) noexcept {}
};
/// Attaches `policy` to the modules whose forward runs on this thread while one lives; the caller keeps it alive.
/// Scopes nest, and the modules' calls do.
class ModulePolicyScope {
 public:
  explicit ModulePolicyScope(ModulePolicy& policy);
  ~ModulePolicyScope();
  ModulePolicyScope(const ModulePolicyScope&) = delete;

 private:
  strata::detail::ModulesWatched watched_;
};
/// Stands where a module's forward begins, and marks its end by its own: in operator() of every layer here, and to be
/// put at the start of forward() in a module of your own that shall be seen. Where nobody watches it looks at one word.
///
///     Tensor forward(const Tensor& x) { const nn::ModuleCall in(*this); return out(relu(hidden(x))); }
class ModuleCall {
 public:
  explicit ModuleCall(const Module& module) {
    if (t_mode.unusual & kModules) [[unlikely]]
      enter(module);
  }
  ~ModuleCall() {
    if (module_) [[unlikely]]
      leave();
  }
  ModuleCall(const ModuleCall&) = delete;

 private:
  void enter(const Module& module);
  void leave();
  const Module* module_ = nullptr;
  const std::string* previous_ = nullptr;
};

namespace detail {
/// A forward that lives as long as the call it is passed to.
struct ForwardRef {
  const void* fn;
  Tensor (*call)(const void* fn, const Tensor& x);
};
/// forward(x) between the module's hooks.
Tensor hooked_forward(const Module& module, const Tensor& x, ForwardRef forward);
}  // namespace detail

/// forward(x) as a call of `module`: policies see it, and its hooks (strata/nn/hooks.h) run around it.
template <class F>
Tensor called(const Module& module, const Tensor& x, const F& forward) {
  const ModuleCall in(module);
  if (detail::modules_with_hooks.load(std::memory_order_relaxed) == 0) [[likely]]
    return forward(x);
  return detail::hooked_forward(
      module, x, {&forward, [](const void* f, const Tensor& t) { return (*static_cast<const F*>(f))(t); }});
}
/// The same of module.forward(x).
template <class M>
Tensor called(const M& module, const Tensor& x) {
  return called(module, x, [&module](const Tensor& t) { return module.forward(t); });
}

}  // namespace strata::nn
