// Samplers on a CUDA device, in double or, for results of at most f32, by functions short of double's digits
// (samplers_narrow_inl.h), read and written in the tensors' own dtype. How many rounds of rejection there are differs
// from element to element: a warp has a list of several hundred, of which each lane is at one.

#include <algorithm>
#include <type_traits>

#include "strata/cuda/elementwise.cuh"
#include "strata/cuda/kernel.cuh"
#include "strata/ops/distributions/distributions_kernel.h"
#include "strata/ops/distributions/gamma_slope_narrow_inl.h"
#include "strata/ops/distributions/samplers_narrow_inl.h"

namespace strata {
namespace {

using sampler::Kind;

constexpr int kThreads = 128;

// sampler::gamma_slope() with one quotient for two terms.
__device__ __forceinline__ double slope_of(double a, double x) {
  if (!(a > 0) || !(x > 0) || a > 1000 || sampler::is_far(a, x)) return sampler::gamma_slope(a, x);
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
    if (q > x && term * (fabs(slope) + 1) < 1e-17 * fabs(sum)) break;
  }
  return -sum * x / a;
}

// What few elements need, out of the way of the others' registers.
__device__ __noinline__ float slope_elsewhere(float a, float x) {
  return sampler::is_ordinary(a, x) ? sampler::slope::away_from_shape(a, x)
                                    : static_cast<float>(sampler::gamma_slope<double>(a, x));
}
struct NarrowSlope {
  __device__ __forceinline__ float operator()(float a, float x) const {
    return sampler::slope::is_near_shape(a, x) ? sampler::slope::near_shape(a, x) : slope_elsewhere(a, x);
  }
};

template <Kind kKind, class T>
__global__ void __launch_bounds__(kThreads) sample_kernel(RngKey key, int64_t n, const T* a, const T* b, T* y) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n) return;
  const double p = cuda::widen(a[i]), q = cuda::widen(b[i]);
  double drawn;
  if constexpr (kKind == Kind::gamma_slope)
    drawn = slope_of(p, q);
  else
    drawn = sampler::element(kKind, key, static_cast<uint64_t>(i), p, q);
  y[i] = cuda::narrow<T>(static_cast<compute_t<T>>(drawn));
}

// The numbers of `count` parameters, values[order[0]], values[order[1]], .., in the parameters' places, by one warp. A
// lane that is done takes the next parameter rather than wait for the others; what is doubtful waits until several
// lanes have such a case, since few lanes at a long test are as slow as all. An element's stream is its own, so that
// nothing depends on who waits. Element 0 of values is the tensor's element `first`.
template <class Sampler, class Source, class C>
__device__ __forceinline__ void draw_list(RngKey seed, int64_t first, const uint16_t* order, int count, C* values) {
  constexpr unsigned kAll = 0xffffffffu;
  const unsigned before = (1u << (threadIdx.x % cuda::kWarp)) - 1;
  Sampler at_work;
  Source stream{seed, 0};
  int item = -1, round = 0, next = 0;
  bool waits = false;
  const auto finish = [&](double drawn) {
    values[item] = static_cast<C>(drawn);
    item = -1;
    waits = false;
  };
  const auto decide = [&](bool taken) {
    waits = false;
    if (taken)
      finish(at_work.result());
    else if (++round == Sampler::kMost)
      finish(at_work.otherwise());
  };
  while (true) {
    const unsigned idle = __ballot_sync(kAll, item < 0);
    if (idle != 0 && next < count) {
      const int mine = next + __popc(idle & before);
      if (item < 0 && mine < count) {
        item = order[mine];
        at_work = Sampler();
        stream.block = static_cast<uint64_t>(first + item) * sampler::kBlocks;
        round = 0;
        double result = 0;
        if (!at_work.begin(static_cast<double>(values[item]), stream, result)) finish(result);
      }
      next += __popc(idle);
    }
    if (item >= 0 && !waits) {
      const sampler::Step step = at_work.propose(stream);
      waits = step == sampler::Step::doubtful;
      if (!waits) decide(step == sampler::Step::taken);
    }
    const unsigned waiting = __ballot_sync(kAll, waits), others = __ballot_sync(kAll, item >= 0 && !waits);
    if (waiting == 0 && others == 0 && next >= count) return;
    if (waits && (__popc(waiting) >= Sampler::kEnough || others == 0)) {
      if constexpr (requires { at_work.settle(stream); })
        decide(at_work.settle(stream));
      else
        decide(at_work.settle());
    }
  }
}

// draw_list() of those of whom the first proposal is taken, as most are: nobody waits. Returns how many are left, which
// then stand in `order`.
template <class Sampler, class Source, class C>
__device__ __forceinline__ int draw_once(RngKey seed, int64_t first, uint16_t* order, int count, C* values) {
  const int lane = threadIdx.x % cuda::kWarp;
  int left = 0;
  for (int j = lane; j - lane < count; j += cuda::kWarp) {
    bool again = j < count;
    const int item = again ? order[j] : 0;
    if (again) {
      Sampler at_work;
      Source stream{seed, static_cast<uint64_t>(first + item) * sampler::kBlocks};
      double result = 0;
      if (at_work.begin(static_cast<double>(values[item]), stream, result)) {
        again = at_work.propose(stream) != sampler::Step::taken;
        result = at_work.result();
      } else {
        again = false;
      }
      if (!again) values[item] = static_cast<C>(result);
    }
    __syncwarp();
    const unsigned those = __ballot_sync(0xffffffffu, again);
    if (again) order[left + __popc(those & ((1u << lane) - 1))] = static_cast<uint16_t>(item);
    left += __popc(those);
  }
  __syncwarp();
  return left;
}

constexpr int kMostEach = 16;

// A warp has `each` times 32 elements that lie side by side, in shared memory until all are drawn.
template <Kind kKind, class T>
__global__ void __launch_bounds__(kThreads) draw_kernel(RngKey key, int64_t n, int each, const T* a, T* y) {
  using C = compute_t<T>;
  constexpr bool kNarrow = !std::is_same_v<T, double>, kGamma = kKind == Kind::gamma;
  using Source = std::conditional_t<kNarrow, sampler::WordStream, sampler::Stream<double>>;
  using Many = std::conditional_t<
      kGamma, std::conditional_t<kNarrow, sampler::NarrowGamma, sampler::Gamma<double>>,
      std::conditional_t<kNarrow, sampler::NarrowPoissonRejection, sampler::PoissonRejection<double>>>;
  using Few = std::conditional_t<kNarrow, sampler::NarrowPoissonProducts, sampler::PoissonProducts<double>>;
  constexpr int kEach = kThreads * kMostEach, kWarps = kThreads / cuda::kWarp;
  __shared__ C all_values[kEach];
  __shared__ uint16_t all_many[kEach], all_small[kEach];
  const int warp = threadIdx.x / cuda::kWarp, lane = threadIdx.x % cuda::kWarp, from = warp * (kEach / kWarps);
  const int64_t span = int64_t{cuda::kWarp} * each, first = (static_cast<int64_t>(blockIdx.x) * kWarps + warp) * span;
  if (first >= n) return;
  const int count = static_cast<int>(n - first < span ? n - first : span);
  C* const values = all_values + from;
  uint16_t *const many = all_many + from, *const small = all_small + from;
  int is_many = 0, is_small = 0;
  for (int j = lane; j - lane < count; j += cuda::kWarp) {
    const bool is = j < count;
    const C value = is ? cuda::widen(a[first + j]) : C(0);
    const bool low = is && (kGamma ? value > 0 && value < 1 : sampler::PoissonProducts<double>::takes(value));
    const unsigned lows = __ballot_sync(0xffffffffu, low), highs = __ballot_sync(0xffffffffu, is && (kGamma || !low));
    const unsigned before = (1u << lane) - 1;
    if (is) values[j] = value;
    if (low) small[is_small + __popc(lows & before)] = static_cast<uint16_t>(j);
    if (is && (kGamma || !low)) many[is_many + __popc(highs & before)] = static_cast<uint16_t>(j);
    is_small += __popc(lows), is_many += __popc(highs);
  }
  __syncwarp();
  const RngKey seed = sampler::stream_key(key);
  const int left = draw_once<Many, Source>(seed, first, many, is_many, values);
  draw_list<Many, Source>(seed, first, many, left, values);
  __syncwarp();
  if constexpr (!kGamma) {
    draw_list<Few, Source>(seed, first, small, is_small, values);
  } else if constexpr (kNarrow) {
    for (int j = lane; j < is_small; j += cuda::kWarp) {
      const int64_t i = first + small[j];
      C& value = values[small[j]];
      value = static_cast<C>(
          sampler::gamma_boost(cuda::widen(a[i]), Source{seed, static_cast<uint64_t>(i) * sampler::kBlocks}) * value);
    }
  }
  __syncwarp();
  for (int j = lane; j < count; j += cuda::kWarp) y[first + j] = cuda::narrow<T>(values[j]);
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
    const auto draw = [&]<Kind kKind>() {
      // Few elements a lane where there are few, so that all multiprocessors have warps.
      const int64_t each = std::clamp<int64_t>(y.numel() >> 17, 1, kMostEach);
      draw_kernel<kKind, T><<<cuda::blocks_for(y.numel(), kThreads * each), kThreads, 0, cuda::stream()>>>(
          key, y.numel(), static_cast<int>(each), p, static_cast<T*>(y.raw_data()));
    };
    switch (kind) {
      case Kind::gamma:
        return draw.template operator()<Kind::gamma>();
      case Kind::gamma_slope:
        if constexpr (std::is_same_v<T, double>)
          return launch.template operator()<Kind::gamma_slope>();
        else
          return cuda::elementwise<T, T, T>("standard_gamma_grad", y, NarrowSlope{}, a, b);
      case Kind::poisson:
        return draw.template operator()<Kind::poisson>();
      case Kind::binomial:
        return launch.template operator()<Kind::binomial>();
    }
  });
}

}  // namespace strata
