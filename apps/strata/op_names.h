#pragma once
// The OP arguments of `ops` and `lab`.

#include <string>
#include <vector>

#include "strata/core/op.h"

namespace strata::cli {

/// The ops of these names (or families, where no op has the name), in order of name; all for an empty list. Throws
/// UsageError, with the nearest name as a hint, for what is neither.
std::vector<const OpBase*> find_ops(const std::vector<std::string>& names);
/// "f32,bf16" or "all" as a set. Throws UsageError.
DTypeSet parse_dtypes(const std::string& text);

}  // namespace strata::cli
