// fp8 codes and their values on a CUDA device.

#include "strata/cuda/kernel.cuh"
#include "strata/ops/matmul/scaled_kernels.h"

namespace strata {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) encode_kernel(uint8_t* y, const float* x, int64_t n, Fp8 format) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < n) y[i] = fp8_code(x[i], format);
}
__global__ void __launch_bounds__(kThreads) decode_kernel(float* y, const uint8_t* codes, int64_t n, Fp8 format) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < n) y[i] = fp8_value(codes[i], format);
}

}  // namespace

void fp8_encode_cuda(const Tensor& y, const Tensor& x, Fp8 format) {
  if (x.numel() == 0) return;
  encode_kernel<<<cuda::blocks_for(x.numel(), kThreads), kThreads, 0, cuda::stream()>>>(
      static_cast<uint8_t*>(y.raw_data()), static_cast<const float*>(x.raw_data()), x.numel(), format);
}

void fp8_decode_cuda(const Tensor& y, const Tensor& codes, Fp8 format) {
  if (codes.numel() == 0) return;
  decode_kernel<<<cuda::blocks_for(codes.numel(), kThreads), kThreads, 0, cuda::stream()>>>(
      static_cast<float*>(y.raw_data()), static_cast<const uint8_t*>(codes.raw_data()), codes.numel(), format);
}

}  // namespace strata
