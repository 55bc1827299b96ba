#pragma once
// The one matrix product on a CUDA device: cuBLASLt where it has a kernel, our own where it has none.

#include "strata/core/device.h"
#include "strata/ops/matmul/gemm.h"

namespace strata::cuda {

/// Queues the product that `g` describes on the current stream of `device`; everything it points to lies there. Takes
/// all that cpu::gemm() takes, with the same meaning. Throws DTypeError as cpu::gemm() does, DeviceError where
/// cuBLASLt (libcublasLt.so.13 or .12) cannot be loaded.
void gemm(const Gemm& g, Device device);

/// The same product and, while A is read, the sums of its rows over k into `sums` ([m], of C's dtype): with A the
/// transposed gradient of a layer's result, that of its bias. False, with nothing queued, where the library has no kernel
/// that does both.
bool gemm_with_sums(const Gemm& g, void* sums, Device device);

}  // namespace strata::cuda
