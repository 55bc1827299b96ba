// Samplers on a CUDA device: a thread an element, in double, read and written in the tensors' own dtype.

#include "strata/cuda/kernel.cuh"
#include "strata/ops/distributions/distributions_kernel.h"

namespace strata {
namespace {

using sampler::Kind;

constexpr int kThreads = 128;

// sampler::gamma_slope() with one quotient for two terms, to the digits of results of type T.
template <class T>
__device__ __forceinline__ double slope_of(double a, double x) {
  if (!(a > 0) || !(x > 0) || a > 1000) return sampler::gamma_slope(a, x);
  constexpr double kDigits = std::is_same_v<T, double> ? 1e-17 : 1e-10;
  // psi(a + 1) by the recurrence up to 10 and more, whose terms are one fraction.
  double n = a + 1, over = 0, under = 1;
  while (n < 10) {
    over = fma(over, n, under);
    under *= n;
    n += 1;
  }
  const double inverse = 1 / n, r = inverse * inverse;
  const double psi =
      log(n) - 0.5 * inverse - r * (1.0 / 12 - r * (1.0 / 120 - r * (1.0 / 252 - r * (1.0 / 240)))) - over / under;
  double term = 1, slope = log(x) - psi, sum = slope;
  for (int i = 1; i < 10000; i += 2) {
    const double p = a + i, q = p + 1, both = 1 / (p * q), of_p = both * q, of_q = both * p;
    term *= x * of_p;
    slope -= of_p;
    sum = fma(term, slope, sum);
    term *= x * of_q;
    slope -= of_q;
    sum = fma(term, slope, sum);
    if (q > x && term * (fabs(slope) + 1) < kDigits * fabs(sum)) break;
  }
  return -sum * x / a;
}

template <Kind kKind, class T>
__global__ void __launch_bounds__(kThreads) sample_kernel(RngKey key, int64_t n, const T* a, const T* b, T* y) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n) return;
  const double p = cuda::widen(a[i]), q = cuda::widen(b[i]);
  double drawn;
  if constexpr (kKind == Kind::gamma_slope)
    drawn = slope_of<T>(p, q);
  else
    drawn = sampler::element(kKind, key, static_cast<uint64_t>(i), p, q);
  y[i] = cuda::narrow<T>(static_cast<compute_t<T>>(drawn));
}

}  // namespace

void sample_cuda(Kind kind, RngKey key, Tensor& y, const Tensor& a, const Tensor& b) {
  if (y.numel() == 0) return;
  dispatch_floats(y.dtype(), "sample", [&]<class T>() {
    const auto* p = static_cast<const T*>(a.raw_data());
    const auto* q = b.defined() ? static_cast<const T*>(b.raw_data()) : p;
    const auto launch = [&]<Kind kKind>() {
      sample_kernel<kKind, T><<<cuda::blocks_for(y.numel(), kThreads), kThreads, 0, cuda::stream()>>>(
          key, y.numel(), p, q, static_cast<T*>(y.raw_data()));
    };
    switch (kind) {
      case Kind::gamma:
        return launch.template operator()<Kind::gamma>();
      case Kind::gamma_slope:
        return launch.template operator()<Kind::gamma_slope>();
      case Kind::poisson:
        return launch.template operator()<Kind::poisson>();
      case Kind::binomial:
        return launch.template operator()<Kind::binomial>();
    }
  });
}

}  // namespace strata
