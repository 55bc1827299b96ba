// Samplers on a CUDA device: a thread an element.

#include "strata/cuda/kernel.cuh"
#include "strata/ops/distributions/distributions_kernel.h"

namespace strata {
namespace {

constexpr int kThreads = 128;

__global__ void __launch_bounds__(kThreads)
    sample_kernel(sampler::Kind kind, RngKey key, int64_t n, const double* a, const double* b, double* y) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < n) y[i] = sampler::element(kind, key, static_cast<uint64_t>(i), a[i], b[i]);
}

}  // namespace

void sample_cuda(sampler::Kind kind, RngKey key, Tensor& y, const Tensor& a, const Tensor& b) {
  if (y.numel() == 0) return;
  const auto* p = static_cast<const double*>(a.raw_data());
  const auto* q = b.defined() ? static_cast<const double*>(b.raw_data()) : p;
  sample_kernel<<<cuda::blocks_for(y.numel(), kThreads), kThreads, 0, cuda::stream()>>>(
      kind, key, y.numel(), p, q, static_cast<double*>(y.raw_data()));
}

}  // namespace strata
