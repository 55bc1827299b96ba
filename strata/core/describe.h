#pragma once
// What the records say, as JSON: the one description that languages, stubs and other tools read.

#include <span>
#include <string>
#include <string_view>

#include "strata/core/op_base.h"

namespace strata {

/// {"version": 1, "dtypes": [...], "ops": [...]}, one object a dtype, and one a record in the order given;
/// docs/design/bindings.md says what each has.
std::string describe(std::span<const OpBase* const> ops);
/// The object of one record.
std::string describe(const OpBase& op);

/// "keep", "low", "full", "promote".
std::string_view name_of(Autocast policy);
/// "none", "broadcast", "promote", "promote_float", "promote_but_first".
std::string_view name_of(Adapt adapt);

}  // namespace strata
