// Linear recurrences and running sums of exponentials along lines, as scans: a thread combines what it has of a line,
// the threads' results are combined in the line's order, and each thread then goes over its part again.

#include <algorithm>

#include "strata/cuda/kernel.cuh"
#include "strata/ops/copy/copy.h"
#include "strata/ops/reduce/lines.cuh"
#include "strata/ops/reduce/recurrence_kernels.h"
#include "strata/ops/reduce/running_inl.h"

namespace strata {
namespace {

// What is combined: the step at place i of the way along a line, i.e. at element `at`, and what is written of the
// steps up to there: write(element, place on the way, those).
template <class T>
struct Recurrence {
  using Acc = LinearSteps;
  const T *a, *b;
  T* y;
  int64_t to_link;  // from an element to the one of a that links it with the one before on the way
  __device__ Acc step(int64_t at, int64_t i) const {
    return {i == 0 ? 0.0 : static_cast<double>(cuda::widen(a[at + to_link])), static_cast<double>(cuda::widen(b[at]))};
  }
  __device__ void write(int64_t at, int64_t, const Acc& upto) const {
    y[at] = cuda::narrow<T>(static_cast<compute_t<T>>(upto.term));
  }
};
template <class T>
struct ExpSums {
  using C = compute_t<T>;
  using Acc = ExpSum<C>;
  const T* x;
  T* y;
  __device__ Acc step(int64_t at, int64_t) const { return exp_of(static_cast<C>(cuda::widen(x[at]))); }
  __device__ void write(int64_t at, int64_t, const Acc& upto) const { y[at] = cuda::narrow<T>(log_of(upto)); }
};

// Sums of runs of equal indices, at their first elements; 0 at all others. From the end, so that what is written at a
// run's first element is all of it.
template <class T>
struct Runs {
  using C = compute_t<T>;
  using Acc = RunSum<C>;
  const T* g;
  const int64_t* indices;
  T* y;
  int64_t inner, n;
  __device__ Acc step(int64_t at, int64_t i) const {
    return {cuda::widen(g[at]), i == 0 || indices[at] == indices[at + inner]};
  }
  __device__ void write(int64_t at, int64_t i, const Acc& upto) const {
    const bool first = i == n - 1 || indices[at - inner] != indices[at];
    y[at] = cuda::narrow<T>(first ? upto.sum : C(0));
  }
};

// ---- lines side by side: a lane has a line, a warp a stretch of it

constexpr int kMostWarps = 32;
template <class R>
__global__ void __launch_bounds__(kMostWarps* cuda::kWarp) columns_kernel(R r, Lines l, int64_t stretch) {
  using Acc = typename R::Acc;
  __shared__ Acc totals[kMostWarps][cuda::kWarp];
  const int lane = static_cast<int>(threadIdx.x), warp = static_cast<int>(threadIdx.y);
  const int64_t line = static_cast<int64_t>(blockIdx.x) * cuda::kWarp + lane;
  const int64_t begin = warp * stretch, end = begin + stretch < l.n ? begin + stretch : l.n;
  const int64_t first = line / l.inner * l.n * l.inner + line % l.inner;
  const auto place = [&](int64_t i) { return first + (l.reverse ? l.n - 1 - i : i) * l.inner; };
  Acc upto{};
  if (line < l.count) {
#pragma unroll 8
    for (int64_t i = begin; i < end; ++i) upto = then(upto, r.step(place(i), i));
  }
  totals[warp][lane] = upto;
  __syncthreads();
  if (line >= l.count) return;
  Acc before{};
  for (int w = 0; w < warp; ++w) before = then(before, totals[w][lane]);
#pragma unroll 8
  for (int64_t i = begin; i < end; ++i) {
    before = then(before, r.step(place(i), i));
    r.write(place(i), i, before);
  }
}

// ---- rows: a block goes along one in tiles, of which a thread has neighbours

constexpr int kEach = 4;
template <class Acc>
__device__ __forceinline__ Acc shuffle_up(const Acc& v, int by) {
  constexpr int kWords = sizeof(Acc) / 4;
  uint32_t words[kWords];
  memcpy(words, &v, sizeof v);
#pragma unroll
  for (int k = 0; k < kWords; ++k) words[k] = __shfl_up_sync(0xffffffffu, words[k], static_cast<unsigned>(by));
  Acc r;
  memcpy(&r, words, sizeof r);
  return r;
}
// Each lane gets the combination of all lanes' values up to its own.
template <class Acc>
__device__ __forceinline__ Acc upto_lane(Acc v, int lane) {
#pragma unroll
  for (int o = 1; o < cuda::kWarp; o *= 2) {
    const Acc earlier = shuffle_up(v, o);
    if (lane >= o) v = then(earlier, v);
  }
  return v;
}

template <class R>
__global__ void __launch_bounds__(kMostWarps* cuda::kWarp) rows_kernel(R r, Lines l) {
  using Acc = typename R::Acc;
  __shared__ Acc totals[kMostWarps];
  const int lane = static_cast<int>(threadIdx.x) % cuda::kWarp, warp = static_cast<int>(threadIdx.x) / cuda::kWarp;
  const int warps = static_cast<int>(blockDim.x) / cuda::kWarp;
  const int64_t base = static_cast<int64_t>(blockIdx.x) * l.n, tile = static_cast<int64_t>(blockDim.x) * kEach;
  const auto place = [&](int64_t i) { return base + (l.reverse ? l.n - 1 - i : i); };
  Acc carry{};
  for (int64_t from = 0; from < l.n; from += tile) {
    const int64_t first = from + static_cast<int64_t>(threadIdx.x) * kEach;
    Acc own[kEach];
#pragma unroll
    for (int k = 0; k < kEach; ++k) {
      own[k] = first + k < l.n ? r.step(place(first + k), first + k) : Acc{};
      if (k > 0) own[k] = then(own[k - 1], own[k]);
    }
    const Acc upto = upto_lane(own[kEach - 1], lane), earlier = shuffle_up(upto, 1);
    if (lane == cuda::kWarp - 1) totals[warp] = upto;
    __syncthreads();
    // Every warp combines the warps' totals, a lane each.
    const Acc all = upto_lane(lane < warps ? totals[lane] : Acc{}, lane);
    __syncthreads();  // before the next tile's totals are written
    const auto of_lane = [&](int which) {
      constexpr int kWords = sizeof(Acc) / 4;
      uint32_t words[kWords];
      memcpy(words, &all, sizeof all);
#pragma unroll
      for (int k = 0; k < kWords; ++k) words[k] = __shfl_sync(0xffffffffu, words[k], which);
      Acc v;
      memcpy(&v, words, sizeof v);
      return v;
    };
    const Acc of_warps = of_lane(warp > 0 ? warp - 1 : 0), of_tile = of_lane(cuda::kWarp - 1);
    Acc before = carry;
    if (warp > 0) before = then(before, of_warps);
    if (lane > 0) before = then(before, earlier);
#pragma unroll
    for (int k = 0; k < kEach; ++k)
      if (first + k < l.n) r.write(place(first + k), first + k, then(before, own[k]));
    carry = then(carry, of_tile);
  }
}

template <class R>
void run(const R& r, const Lines& l) {
  if (l.count * l.n == 0) return;
  if (l.inner == 1 && l.n > cuda::kWarp) {
    const int64_t warps = std::clamp<int64_t>((l.n + cuda::kWarp * kEach - 1) / (cuda::kWarp * kEach), 1, kMostWarps);
    rows_kernel<R>
        <<<static_cast<unsigned>(l.count), static_cast<unsigned>(warps * cuda::kWarp), 0, cuda::stream()>>>(r, l);
    return;
  }
  const int64_t warps = std::clamp<int64_t>((l.n + 15) / 16, 1, kMostWarps), stretch = (l.n + warps - 1) / warps;
  columns_kernel<R>
      <<<cuda::blocks_for(l.count, cuda::kWarp), dim3(cuda::kWarp, static_cast<unsigned>(warps)), 0, cuda::stream()>>>(
          r, l, stretch);
}

// Runs `body` on y, or on a row-major stand-in that is then copied to y.
template <class Body>
void into_dense(Tensor& y, Body&& body) {
  if (y.is_contiguous()) return body(y);
  Tensor dense = empty({y.shape(), y.dtype(), y.device(), std::nullopt});
  body(dense);
  copy_elements(y, dense);
}

}  // namespace

void linear_recurrence_cuda(Tensor& y, const Tensor& a, const Tensor& b, int64_t dim, bool reverse) {
  const Tensor factors = contiguous(a), terms = contiguous(b);
  const Lines l = lines_of(b, dim, reverse);
  into_dense(y, [&](Tensor& to) {
    dispatch_floats(b.dtype(), "linear_recurrence", [&]<class T>() {
      run(Recurrence<T>{static_cast<const T*>(factors.raw_data()), static_cast<const T*>(terms.raw_data()),
                        static_cast<T*>(to.raw_data()), reverse ? l.inner : 0},
          l);
    });
  });
}

void logcumsumexp_cuda(Tensor& y, const Tensor& x, int64_t dim) {
  const Tensor from = contiguous(x);
  into_dense(y, [&](Tensor& to) {
    dispatch_floats(x.dtype(), "logcumsumexp", [&]<class T>() {
      run(ExpSums<T>{static_cast<const T*>(from.raw_data()), static_cast<T*>(to.raw_data())}, lines_of(x, dim, false));
    });
  });
}

void put_runs_cuda(Tensor& y, const Tensor& g, const Tensor& indices, int64_t dim) {
  const Tensor terms = contiguous(g), at = contiguous(indices);
  const Lines l = lines_of(g, dim, true);
  into_dense(y, [&](Tensor& to) {
    dispatch_floats(g.dtype(), "put_runs", [&]<class T>() {
      run(Runs<T>{static_cast<const T*>(terms.raw_data()), static_cast<const int64_t*>(at.raw_data()),
                  static_cast<T*>(to.raw_data()), l.inner, l.n},
          l);
    });
  });
}

}  // namespace strata
