#pragma once
// What calls of plugins' ops do with their arguments, values of which some are tensors.

#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "strata/core/op_base.h"
#include "strata/core/op_call.h"

namespace strata::c {

/// The value as an argument of that type is kept; nothing where it is of another type.
std::optional<Value> fit(SchemaType type, const Value& v);

/// Calls f with every tensor of them, those of lists too.
template <class F>
void visit(std::span<const Value> args, F&& f) {
  for (const Value& v : args) {
    if (const Tensor* t = std::get_if<Tensor>(&v)) {
      f(*t);
    } else if (const TensorList* list = std::get_if<TensorList>(&v)) {
      for (const Tensor& t : *list) f(t);
    }
  }
}

/// Whether a call with them is recorded.
bool wants_grad(std::span<const Value> args);
/// The tensors' device; nothing where there is none. Throws DeviceError where they are on several.
std::optional<Device> device_of(std::span<const Value> args, std::string_view op);
bool is_alike(Adapt adapt, std::span<const Value> args);
void adapt_all(detail::Adapter& adapter, std::vector<Value>& args);
void autocast_all(Autocast policy, std::vector<Value>& args);
/// A plugin's functions see elements: of sharded tensors it gets all, and its results are the same in every rank.
void gather_all(std::vector<Value>& args);

}  // namespace strata::c
