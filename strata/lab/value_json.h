#pragma once
// Values as JSON, in the form of the table of samples (docs/design/bindings.md).

#include <span>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "strata/core/value.h"

namespace strata::lab {

/// {"dtype", "shape", "data"}; null for an undefined one.
nlohmann::ordered_json tensor_json(const Tensor& t);
nlohmann::ordered_json value_json(const Value& value);
nlohmann::ordered_json values_json(std::span<const Value> values);

}  // namespace strata::lab
