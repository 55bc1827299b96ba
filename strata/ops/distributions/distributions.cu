// Samplers on a CUDA device, in double, read and written in the tensors' own dtype. How many rounds of rejection there
// are differs from element to element: a lane has several elements and is at one of them.

#include "strata/cuda/kernel.cuh"
#include "strata/ops/distributions/distributions_kernel.h"

namespace strata {
namespace {

using sampler::Kind;

constexpr int kThreads = 128;

// sampler::gamma_slope() with one quotient for two terms where it has to have double's digits or many terms.
template <class T>
__device__ __forceinline__ double slope_of(double a, double x) {
  if (!(a > 0) || !(x > 0) || a > 1000 || sampler::is_far(a, x)) return sampler::gamma_slope(a, x);
  if (!std::is_same_v<T, double> && sampler::is_near(a, x)) return sampler::near_gamma_slope(a, x);
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
      log(n) - 0.5 * inverse -
      r * (1.0 / 12 -
           r * (1.0 / 120 - r * (1.0 / 252 - r * (1.0 / 240 - r * (1.0 / 132 - r * (691.0 / 32760 - r / 12)))))) -
      over / under;
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

// Elements i, i + 32, .. of a lane for which the sampler is. Lanes that are done go on to their next element rather
// than wait for the others; what is doubtful waits until several lanes have such a case, since few lanes at a long
// test are as slow as all. An element's stream is its own, so that nothing depends on who waits.
template <class Sampler, class T>
__device__ __forceinline__ void draw_in_turn(RngKey seed, const T* a, T* y, int64_t i, int64_t end) {
  constexpr unsigned kAll = 0xffffffffu;
  constexpr int kEnough = 8;
  Sampler at_work;
  sampler::Stream<double> stream{seed, 0};
  bool busy = false, waits = false;
  int round = 0;
  const auto finish = [&](double drawn) {
    y[i] = cuda::narrow<T>(static_cast<compute_t<T>>(drawn));
    i += cuda::kWarp;
    busy = waits = false;
  };
  const auto refuse = [&] {
    waits = false;
    if (++round == Sampler::kMost) finish(at_work.otherwise());
  };
  while (true) {
    while (!busy && i < end) {
      const double parameter = cuda::widen(a[i]);
      if (!Sampler::takes(parameter)) {
        i += cuda::kWarp;
        continue;
      }
      at_work = Sampler();
      stream.block = static_cast<uint64_t>(i) * sampler::kBlocks;
      round = 0;
      double result = 0;
      busy = at_work.begin(parameter, stream, result);
      if (!busy) finish(result);
    }
    if (__ballot_sync(kAll, busy) == 0) return;
    if (busy && !waits) {
      const sampler::Step step = at_work.propose(stream);
      if (step == sampler::Step::taken)
        finish(at_work.result());
      else if (step == sampler::Step::refused)
        refuse();
      else
        waits = true;
    }
    const unsigned waiting = __ballot_sync(kAll, waits), others = __ballot_sync(kAll, i < end && !waits);
    if (waits && (__popc(waiting) >= kEnough || others == 0)) {
      if (at_work.settle())
        finish(at_work.result());
      else
        refuse();
    }
  }
}

// A warp has `each` times 32 elements that lie side by side.
template <class T, class... Samplers>
__global__ void __launch_bounds__(kThreads) draw_kernel(RngKey key, int64_t n, int each, const T* a, T* y) {
  const RngKey seed = sampler::stream_key(key);
  const int64_t span = int64_t{cuda::kWarp} * each;
  const int64_t warp = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) / cuda::kWarp;
  const int64_t first = warp * span + threadIdx.x % cuda::kWarp, end = warp * span + span < n ? warp * span + span : n;
  (draw_in_turn<Samplers, T>(seed, a, y, first, end), ...);
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
    const auto draw = [&]<class... Samplers>() {
      // Few elements a lane where there are few, so that all multiprocessors have warps.
      const int each = y.numel() >= int64_t{1} << 22 ? 8 : y.numel() >= int64_t{1} << 16 ? 4 : 1;
      draw_kernel<T, Samplers...>
          <<<cuda::blocks_for(y.numel(), int64_t{kThreads} * each), kThreads, 0, cuda::stream()>>>(
              key, y.numel(), each, p, static_cast<T*>(y.raw_data()));
    };
    switch (kind) {
      case Kind::gamma:
        return draw.template operator()<sampler::Gamma<double>>();
      case Kind::gamma_slope:
        return launch.template operator()<Kind::gamma_slope>();
      case Kind::poisson:
        return draw.template operator()<sampler::PoissonRejection<double>, sampler::PoissonProducts<double>>();
      case Kind::binomial:
        return launch.template operator()<Kind::binomial>();
    }
  });
}

}  // namespace strata
