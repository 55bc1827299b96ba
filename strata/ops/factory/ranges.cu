// Ranges on a CUDA device, with the CPU's arithmetic.

#include "strata/ops/factory/ranges_kernels.h"

#include "strata/cuda/kernel.cuh"
#include "strata/ops/copy/copy.h"

namespace strata {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads) range_kernel(T* y, int64_t n, RangeNumbers r) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n) return;
  if (r.integral) {
    const int64_t v = static_cast<int64_t>(r.first_int + static_cast<uint64_t>(i) * r.step_int);
    y[i] = cuda::narrow<T>(static_cast<compute_t<T>>(v));
    return;
  }
  // Intrinsics: a fused product and sum would give other bits.
  double v = i < r.turn ? __dadd_rn(r.first, __dmul_rn(r.step, static_cast<double>(i)))
                        : __dsub_rn(r.last, __dmul_rn(r.step, static_cast<double>(r.size - 1 - i)));
  if (r.power) v = pow(r.base, v);
  y[i] = cuda::narrow<T>(static_cast<compute_t<T>>(v));
}

__global__ void __launch_bounds__(kThreads) triangle_kernel(int64_t* y, int64_t n, Triangle t) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n) return;
  int64_t low = t.first_row(), high = t.last_row();  // the row before whose end element i lies
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (t.before(middle + 1) > i) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  y[i] = low;
  y[n + i] = i - static_cast<int64_t>(t.before(low)) + (t.lower ? 0 : t.edge(low));
}

}  // namespace

void range_cuda(Tensor& y, const RangeNumbers& r) {
  if (y.numel() == 0) return;
  if (!y.is_contiguous()) {
    Tensor dense = empty({y.shape(), y.dtype(), y.device(), std::nullopt});
    range_cuda(dense, r);
    copy_elements(y, dense);
    return;
  }
  dispatch_all(y.dtype(), "range", [&]<class T>() {
    range_kernel<<<cuda::blocks_for(y.numel(), kThreads), kThreads, 0, cuda::stream()>>>(static_cast<T*>(y.raw_data()),
                                                                                         y.numel(), r);
  });
}

void triangle_indices_cuda(Tensor& y, const Triangle& t) {
  const int64_t n = y.shape()[1];
  if (n == 0) return;
  triangle_kernel<<<cuda::blocks_for(n, kThreads), kThreads, 0, cuda::stream()>>>(static_cast<int64_t*>(y.raw_data()),
                                                                                  n, t);
}

}  // namespace strata
