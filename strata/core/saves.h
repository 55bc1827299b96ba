#pragma once
// What a record's gradient rule reads of its arguments, asked by op: what a caller must know before it writes over one.

#include <cstddef>
#include <cstdint>

#include "strata/core/op_base.h"

namespace strata {

/// Whether a call of `op` keeps the elements of argument `index` for backward, by the record's `saves`. Bit i of
/// `wanting` says that argument i wants a gradient. True for an op without a record of that kind (a plugin's).
bool saves_argument(const OpBase& op, size_t index, uint64_t wanting);

}  // namespace strata
