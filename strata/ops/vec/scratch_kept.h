#pragma once
// For forecasts of memory: what ScratchFrame leaves with a thread.

#include <cstdint>

namespace strata {

/// Of `bytes` that frames of a thread took at once, what the thread keeps for the next call.
int64_t scratch_kept(int64_t bytes);

}  // namespace strata
