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

/// The type of an argument or result: the one list of what a schema may name. A language maps these kinds to its types.
struct SchemaType {
  /// What it is, but for being optional.
  enum Kind : uint8_t { tensor, tensors, scalar, integer, number, boolean, string, integers, dtype, device, key };
  Kind kind = tensor;
  bool optional = false;  ///< None is allowed: "Tensor?"
  /// As schemas write it: Tensor Tensor[] Scalar int float bool str int[] DType Device RngKey, with ? where optional.
  std::string_view text() const;
  bool operator==(const SchemaType&) const = default;
};
/// How many kinds there are.
inline constexpr int kNumSchemaKinds = SchemaType::key + 1;

/// What a schema says of one argument.
struct SchemaArg {
  SchemaType type;
  std::string name;
  std::optional<Value> default_value;
};

/// `softmax(Tensor x, int dim) -> Tensor`, parsed. Results may be named: `-> (Tensor values, Tensor indices)`.
struct Schema {
  std::string name;
  std::vector<SchemaArg> args;
  std::vector<SchemaArg> results;
  /// Whether there is an RngKey among the arguments.
  bool is_random() const;
};
/// Throws ValueError naming the position.
Schema parse_schema(std::string_view text);

/// Floating-point operations and the fewest bytes that must move (each input read once, each result written once).
struct Cost {
  double flops = 0;
  double bytes = 0;
};

}  // namespace strata
