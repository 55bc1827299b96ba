// tril and triu on a CUDA device.

#include <algorithm>

#include "strata/cuda/kernel.cuh"
#include "strata/ops/shape/shape_kernels.h"

namespace strata {
namespace {

constexpr int kThreads = 256;

template <class B>
__global__ void __launch_bounds__(kThreads)
    triangle_kernel(const B* x, B* y, int64_t rows, int64_t cols, int64_t diagonal, bool lower) {
  const int64_t r = blockIdx.x, edge = r % rows + diagonal;
  for (int64_t j = threadIdx.x; j < cols; j += kThreads) {
    const bool keep = lower ? j <= edge : j >= edge;
    y[r * cols + j] = keep ? x[r * cols + j] : B(0);
  }
}

void triangle(Tensor& y, const Tensor& x, int64_t diagonal, bool lower) {
  if (x.numel() == 0) return;
  const Tensor in = x.contiguous();
  const int64_t cols = x.shape().back(), rows = x.shape()[x.dim() - 2];
  diagonal = std::clamp<int64_t>(diagonal, -rows - 1, cols + 1);
  dispatch_bytes(x.dtype(), [&]<class B>() {
    triangle_kernel<B><<<cuda::blocks_for(x.numel(), cols), kThreads, 0, cuda::stream()>>>(
        static_cast<const B*>(in.raw_data()), static_cast<B*>(y.raw_data()), rows, cols, diagonal, lower);
  });
}

}  // namespace

void tril_cuda(Tensor& y, const Tensor& x, int64_t diagonal) {
  triangle(y, x, diagonal, true);
}
void triu_cuda(Tensor& y, const Tensor& x, int64_t diagonal) {
  triangle(y, x, diagonal, false);
}

}  // namespace strata
