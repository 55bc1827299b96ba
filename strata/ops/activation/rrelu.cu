// rrelu and its gradient on a CUDA device: one pass, the slopes made where they are used.

#include "strata/cuda/kernel.cuh"
#include "strata/ops/activation/rrelu_kernels.h"
#include "strata/ops/copy/copy.h"

namespace strata {
namespace {

constexpr int kThreads = 256, kEach = 4;  // a thread has the elements of one counter block

template <class T, bool kAligned>
__global__ void __launch_bounds__(kThreads)
    rrelu_kernel(T* y, const T* g, const T* x, int64_t n, compute_t<T> lower, compute_t<T> range, RngKey key) {
  using C = compute_t<T>;
  const int64_t block = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x, first = block * kEach;
  if (first >= n) return;
  const bool whole = kAligned && first + kEach <= n;
  cuda::Vec<T, kEach> from, where;
  if (whole) {
    from = cuda::load_vec<kEach>(g + first);
    where = cuda::load_vec<kEach>(x + first);
  } else {
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      const int64_t i = first + k < n ? first + k : first;
      from.v[k] = g[i];
      where.v[k] = x[i];
    }
  }
  const auto bits = philox(key, static_cast<uint64_t>(block));
  cuda::Vec<T, kEach> to;
#pragma unroll
  for (int k = 0; k < kEach; ++k) {
    const C slope = static_cast<C>(uniform_f32(bits[static_cast<size_t>(k)])) * range + lower;
    const C v = static_cast<C>(cuda::widen(from.v[k]));
    to.v[k] = cuda::widen(where.v[k]) > 0 ? from.v[k] : cuda::narrow<T>(v * slope);
  }
  if (whole) {
    cuda::store_vec(y + first, to);
  } else {
#pragma unroll
    for (int k = 0; k < kEach; ++k)
      if (first + k < n) y[first + k] = to.v[k];
  }
}

}  // namespace

void rrelu_apply_cuda(Tensor& y, const Tensor& g, const Tensor& x, double lower, double upper, RngKey key) {
  const int64_t n = x.numel();
  if (n == 0) return;
  const Tensor from = contiguous(g), where = contiguous(x);
  const Tensor rows = y.is_contiguous() ? y : empty({y.shape(), y.dtype(), y.device(), std::nullopt});
  dispatch_floats(x.dtype(), "rrelu", [&]<class T>() {
    // Vectors of four doubles are 32 bytes.
    const auto lies = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % (kEach * sizeof(T)) == 0; };
    const bool aligned = lies(rows.raw_data()) && lies(from.raw_data()) && lies(where.raw_data());
    const auto kernel = aligned ? rrelu_kernel<T, true> : rrelu_kernel<T, false>;
    kernel<<<cuda::blocks_for(n, int64_t{kThreads} * kEach), kThreads, 0, cuda::stream()>>>(
        static_cast<T*>(rows.raw_data()), static_cast<const T*>(from.raw_data()),
        static_cast<const T*>(where.raw_data()), n, static_cast<compute_t<T>>(lower),
        static_cast<compute_t<T>>(upper - lower), key);
  });
  if (!rows.same_as(y)) copy_elements(y, rows);
}

}  // namespace strata
