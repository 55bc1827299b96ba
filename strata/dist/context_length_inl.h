#pragma once

#include <cstdint>

#include "strata/dist/context_parallel.h"

namespace strata::distributed {

// check_context() of so many ranks, without a group.
void check_context(int64_t length, ContextKind kind, int64_t ranks);

}  // namespace strata::distributed
