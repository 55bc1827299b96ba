#include "strata/cuda/kernel.cuh"
#include "strata/ops/snake/snake_kernel.h"

namespace strata {
namespace {
constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads) snake_kernel(const T* x, T* y, int64_t n, double a) {
  using C = compute_t<T>;
  const int64_t i = blockIdx.x * int64_t{kThreads} + threadIdx.x;
  if (i >= n) return;
  const C v = cuda::widen(x[i]), s = sin(static_cast<C>(a) * v);
  y[i] = cuda::narrow<T>(v + s * s / static_cast<C>(a));
}
}  // namespace

void snake_cuda(Tensor& y, const Tensor& x, double a) {
  if (x.numel() == 0) return;
  const Tensor dense = x.contiguous();
  dispatch_floats(y.dtype(), "snake", [&]<class T>() {
    snake_kernel<<<cuda::blocks_for(y.numel(), kThreads), kThreads, 0, cuda::stream()>>>(dense.data<T>(), y.data<T>(),
                                                                                         y.numel(), a);
  });
}
}  // namespace strata
