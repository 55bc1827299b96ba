#pragma once
// The current device, for host code beside kernels.

namespace strata::cuda {

/// The thread's current device; where there is one only, without asking.
int current_device();

}  // namespace strata::cuda
