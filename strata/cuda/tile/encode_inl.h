#pragma once
// What every kernel of tiles asks of the driver and of its build, found once a process.

#include <cuda.h>

namespace strata::cuda::tile {

/// The driver's functions that make tensor maps; null where it has none.
decltype(&cuTensorMapEncodeTiled) encode_tiled();
decltype(&cuTensorMapEncodeIm2col) encode_im2col();
/// Whether code for sm_90a is in this build and loads on the current device.
bool built_for_tiles();

}  // namespace strata::cuda::tile
