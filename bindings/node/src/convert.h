#pragma once
// JavaScript values to the engine's and back, led by the schemas.

#include <span>

#include "bindings/node/src/env.h"
#include "strata/core/op_base.h"

namespace strata::node {

/// An engine tensor as JavaScript holds it.
struct TensorBox {
  Tensor tensor;
  int64_t accounted = 0;  // bytes that V8 was told of
  bool disposed = false;
};

/// A new JavaScript Tensor.
napi_value wrap(Env& env, Tensor tensor);
/// Null for an undefined tensor.
napi_value wrap_or_null(Env& env, Tensor tensor);
/// An array of them.
napi_value wrap_list(Env& env, TensorList&& list);
/// The box of a Tensor; nullptr for any other value.
TensorBox* box_of(Env& env, napi_value value);
/// The tensor; throws ValueError for anything else, and after dispose().
Tensor tensor_of(Env& env, napi_value value, std::string_view op, std::string_view what);
/// An array of tensors.
TensorList tensors_of(Env& env, napi_value value, std::string_view op, std::string_view what, bool allow_null = false);
/// Makes the Tensor class with its methods.
napi_value define_tensor_class(Env& env);

/// An op as the bindings see it.
struct OpInfo {
  const OpBase* op = nullptr;
  std::string name, inplace_name;  // "relu", "relu_"
  std::vector<std::string> results;
  const std::vector<SchemaArg>& args() const { return op->schema().args; }
  bool method() const { return !args().empty() && args()[0].type.kind == SchemaType::tensor; }
};
/// All of them, those of plugins too; each lives as long as the program.
std::vector<const OpInfo*> op_infos();

/// The engine's arguments out of JavaScript's: positional ones, then an object with named ones. A key for random
/// numbers that is left out is drawn from the default generator.
std::vector<Value> to_values(Env& env, const OpInfo& op, std::span<napi_value> args);
/// What a function of the op returns: a value, or an object with the results by name.
napi_value from_values(Env& env, const OpInfo& op, std::vector<Value>&& results);
napi_value from_value(Env& env, Value&& value);
/// A scalar: a boolean, an integer where the number is whole or a BigInt, else a floating number; or a Scalar object.
Scalar scalar_of(Env& env, napi_value v, std::string_view op, std::string_view what);

/// Whether a call with these arguments touches the tape.
bool records(std::span<const Value> args);

}  // namespace strata::node
