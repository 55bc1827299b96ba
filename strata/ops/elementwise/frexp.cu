// frexp on a CUDA device: both results of an element in one reading.

#include <cmath>
#include <limits>

#include "strata/cuda/elementwise.cuh"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/frexp_kernel.h"

namespace strata {
namespace {

constexpr int kThreads = 256;

template <class T, int V>
__global__ void __launch_bounds__(kThreads) frexp_kernel(int64_t n, const T* x, T* mantissa, int32_t* exponent) {
  using C = compute_t<T>;
  const int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * V;
  const auto split = [](T v, T& m, int32_t& e) {
    const C wide = cuda::widen(v);
    // In f64, where no number of the smaller types is denormal.
    int power = 0;
    m = cuda::narrow<T>(static_cast<C>(std::frexp(static_cast<double>(wide), &power)));
    e = std::abs(wide) <= std::numeric_limits<C>::max() ? power : 0;  // unspecified in C where not finite
  };
  if (i + V <= n) {
    const auto v = cuda::load_vec<V>(x + i);
    cuda::Vec<T, V> m;
    cuda::Vec<int32_t, V> e;
#pragma unroll
    for (int k = 0; k < V; ++k) split(v.v[k], m.v[k], e.v[k]);
    cuda::store_vec(mantissa + i, m);
    cuda::store_vec(exponent + i, e);
  } else {
    for (int64_t k = i; k < n; ++k) split(x[k], mantissa[k], exponent[k]);
  }
}

}  // namespace

bool frexp_at_once_cuda(Tensor& mantissa, Tensor& exponent, const Tensor& x) {
  const auto aligned = [](const Tensor& t) { return cuda::aligned16(t.raw_data()); };
  if (x.numel() == 0) return true;
  // Without gaps and in one order, whichever that is; else a copy has no gaps.
  const auto dense = [&](const Tensor& t) {
    return cuda::make_walk<3>({&mantissa, &exponent, &t}, "frexp").dense && aligned(t);
  };
  const Tensor from = dense(x) ? x : contiguous(x);
  if (!aligned(mantissa) || !aligned(exponent) || !dense(from)) return false;
  dispatch_floats(x.dtype(), "frexp", [&]<class T>() {
    constexpr int V = sizeof(T) == 8 ? 2 : 4;
    frexp_kernel<T, V><<<cuda::blocks_for(x.numel(), kThreads * V), kThreads, 0, cuda::stream()>>>(
        x.numel(), static_cast<const T*>(from.raw_data()), static_cast<T*>(mantissa.raw_data()),
        static_cast<int32_t*>(exponent.raw_data()));
  });
  return true;
}

}  // namespace strata
