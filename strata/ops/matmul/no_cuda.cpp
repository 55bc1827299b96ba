// The CUDA kernels that a build without CUDA refuses.

#include "strata/core/error.h"
#include "strata/ops/matmul/scaled_kernels.h"

namespace strata {

void fp8_encode_cuda(const Tensor&, const Tensor&, Fp8) {
  throw DeviceError("fp8_quantize", "this build has no CUDA");
}
void fp8_decode_cuda(const Tensor&, const Tensor&, Fp8) {
  throw DeviceError("fp8_dequantize", "this build has no CUDA");
}

}  // namespace strata
