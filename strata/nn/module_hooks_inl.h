#pragma once
// Where a module keeps its hooks, and what a parametrisation does to what is registered in it.

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "strata/nn/hooks.h"

namespace strata::nn::detail {

/// What is computed in the place of a module's own forward, between its hooks.
struct Replacement {
  virtual ~Replacement() = default;
  virtual Tensor forward(const Tensor& x) const = 0;
};

/// The hooks of one module, by kind; counted while they live.
struct ModuleHooks {
  ModuleHooks();
  ~ModuleHooks();
  ModuleHooks(const ModuleHooks&) = delete;
  /// Those of a module, nullptr where there are none; with `make` there is a place for them from now on.
  static ModuleHooks* of_module(const Module& module, bool make);
  /// Own parameter or buffer of that name, and whether it is a parameter. Throws ValueError("op: ...") where there is
  /// none.
  static Tensor own(const Module& module, std::string_view name, std::string_view op, bool* is_parameter = nullptr);
  /// Takes an own parameter, buffer or child out.
  static void forget(const Module& module, std::string_view name);
  std::vector<std::shared_ptr<ModuleHook>>& of(HookKind kind) { return all[static_cast<size_t>(kind)]; }
  std::array<std::vector<std::shared_ptr<ModuleHook>>, 3> all;
  std::shared_ptr<const Replacement> instead;  ///< or null
  /// Of a module with several weights what stands behind the product with each, by its name: the module calls it.
  std::map<std::string, std::shared_ptr<ModuleHook>, std::less<>> of_weights;
};

/// Whether anything runs before or behind the module's forward, or behind what runs instead of it.
bool has_hooks_around(const Module& module);

}  // namespace strata::nn::detail
