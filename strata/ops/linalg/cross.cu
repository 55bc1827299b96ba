// Cross products on a CUDA device: a thread has a vector of each operand.

#include <array>

#include "strata/cuda/elementwise.cuh"
#include "strata/ops/copy/copy.h"
#include "strata/ops/linalg/cross_kernel.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {
using cuda::Walk;

constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads)
    cross_kernel(Walk<3> w, T* z, const T* a, const T* b, int64_t step_z, int64_t step_a, int64_t step_b) {
  using C = compute_t<T>;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= w.numel) return;
  int64_t at[3];
  w.offsets(static_cast<uint32_t>(i), 1, at);
  C x[3], y[3];
#pragma unroll
  for (int k = 0; k < 3; ++k) {
    x[k] = static_cast<C>(cuda::widen(a[at[1] + k * step_a]));
    y[k] = static_cast<C>(cuda::widen(b[at[2] + k * step_b]));
  }
#pragma unroll
  for (int k = 0; k < 3; ++k) {
    const int p = (k + 1) % 3, q = (k + 2) % 3;
    z[at[0] + k * step_z] = cuda::narrow<T>(static_cast<C>(x[p] * y[q] - x[q] * y[p]));
  }
}

}  // namespace

void cross_cuda(Tensor& z, const Tensor& a, const Tensor& b, int64_t dim) {
  if (z.numel() == 0) return;
  dim = wrap_dim(dim, z.dim(), "linalg_cross");
  // The vectors: all but `dim`, of which each tensor has its first element.
  const auto vectors_of = [&](const Tensor& t) {
    Shape shape = z.shape();
    shape[dim] = 1;
    return alias(t, shape, t.strides(), t.storage_offset());
  };
  const Tensor x = expand(a, z.shape()), y = expand(b, z.shape());
  const Tensor zs = vectors_of(z), xs = vectors_of(x), ys = vectors_of(y);
  const auto w = cuda::make_walk<3>(std::array<const Tensor*, 3>{&zs, &xs, &ys}, "linalg_cross");
  dispatch_all(z.dtype(), "linalg_cross", [&]<class T>() {
    cuda::for_parts(w, 1, [&](const Walk<3>& part, const std::array<int64_t, 3>& at) {
      cross_kernel<T><<<cuda::blocks_for(part.numel, kThreads), kThreads, 0, cuda::stream()>>>(
          part, static_cast<T*>(z.raw_data()) + at[0], static_cast<const T*>(x.raw_data()) + at[1],
          static_cast<const T*>(y.raw_data()) + at[2], z.strides()[dim], x.strides()[dim], y.strides()[dim]);
    });
  });
}

}  // namespace strata
