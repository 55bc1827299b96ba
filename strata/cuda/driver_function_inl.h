#pragma once
// Functions of the driver, which is no library that programs link.

namespace strata::cuda {

/// The driver's function of that name, as of CUDA `version` (1000 major + 10 minor); null where the driver has none.
void* driver_function(const char* name, unsigned version) noexcept;

}  // namespace strata::cuda
