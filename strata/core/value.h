#pragma once
// Value: an argument or result of an op on the boxed path (bindings, plugins, samples, traces).

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "strata/core/rng.h"
#include "strata/core/tensor.h"

namespace strata {

/// `monostate` is None: an optional argument that was not given.
using Value = std::variant<std::monostate, Tensor, TensorList, Scalar, int64_t, double, bool, std::string, Dims, DType,
                           Device, RngKey>;

/// What a schema says of one argument. Types: Tensor Tensor? Tensor[] Scalar Scalar? int int? float float? bool str
/// int[] int[]? DType DType? Device? RngKey.
struct SchemaArg {
  std::string type;
  std::string name;
  std::optional<Value> default_value;
};

/// `softmax(Tensor x, int dim) -> Tensor`, parsed. Results may be named: `-> (Tensor values, Tensor indices)`.
struct Schema {
  std::string name;
  std::vector<SchemaArg> args;
  std::vector<SchemaArg> results;
};
/// Throws ValueError naming the position.
Schema parse_schema(std::string_view text);

/// Floating-point operations and the fewest bytes that must move (each input read once, each result written once).
struct Cost {
  double flops = 0;
  double bytes = 0;
};

}  // namespace strata
