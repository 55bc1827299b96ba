#pragma once
// For ops whose arguments come in boxes: plugins' and optimizers' calls as observers see them.

#include <span>

#include "strata/core/op_base.h"

namespace strata::detail {

/// What kBoxedReader reads: pass the address of one that lives as long as the Call.
using BoxedArgs = std::span<const Value>;
extern const Call::Reader kBoxedReader;

}  // namespace strata::detail
