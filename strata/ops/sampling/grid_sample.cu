// Sampling at positions on a CUDA device. The input's gradient is gathered: which positions read an element is found by
// sorting what they read, so that sums have one order and the same bits every time.

#include "strata/cuda/divisor.cuh"
#include "strata/cuda/each.cuh"
#include "strata/ops/sampling/sampling_kernels.h"

namespace strata {
namespace {
using namespace cuda;
using sampling::Call;

// Channels for which a thread computes what a position reads once, where there are enough positions for all threads.
constexpr int kBlock = 8;

template <class T, int Dims>
struct Point {
  compute_t<T> at[Dims];
  __device__ explicit Point(const T* grid) {
    for (int d = 0; d < Dims; ++d) at[d] = widen(grid[d]);
  }
};

// Elements are [batch, blocks of channels, points].
template <class T, int Taps, int Dims>
__global__ void __launch_bounds__(kEachThreads)
    forward_kernel(Call c, int64_t plane, int64_t blocks, int64_t total, const T* x, const T* grid, T* y) {
  using C = compute_t<T>;
  for_each(total, [&](int64_t e) {
    const int64_t task = e / c.points, point = e - task * c.points, item = task / blocks,
                  first = (task - item * blocks) * kBlock;
    const Point<T, Dims> p(grid + (item * c.points + point) * Dims);
    const auto reads = sampling::reads_of(c, sampling::lines_of<C, Taps, Dims>(c, p.at));
    const int64_t end = first + kBlock < c.channels ? first + kBlock : c.channels;
    for (int64_t k = first; k < end; ++k) {
      const T* from = x + (item * c.channels + k) * plane;
      C sum = 0;
#pragma unroll
      for (int t = 0; t < reads.kCount; ++t)
        if (reads.at[t] >= 0) sum += reads.weight[t] * widen(from[reads.at[t]]);
      y[(item * c.channels + k) * c.points + point] = narrow<T>(sum);
    }
  });
}

template <class T, int Taps, int Dims>
__global__ void __launch_bounds__(kEachThreads)
    backward_grid_kernel(Call c, int64_t plane, const T* g, const T* x, const T* grid, T* ggrid) {
  using C = compute_t<T>;
  for_each(c.batch * c.points, [&](int64_t e) {
    const int64_t item = e / c.points, point = e - item * c.points;
    const Point<T, Dims> p(grid + e * Dims);
    const auto lines = sampling::lines_of<C, Taps, Dims>(c, p.at);
    for (int d = 0; d < Dims; ++d) {
      const auto reads = sampling::reads_of(c, lines, d);
      C sum = 0;
      for (int64_t k = 0; k < c.channels; ++k) {
        const T* from = x + (item * c.channels + k) * plane;
        C change = 0;
#pragma unroll
        for (int t = 0; t < reads.kCount; ++t)
          if (reads.at[t] >= 0) change += reads.weight[t] * widen(from[reads.at[t]]);
        sum += change * widen(g[(item * c.channels + k) * c.points + point]);
      }
      ggrid[e * Dims + Dims - 1 - d] = narrow<T>(sum);
    }
  });
}

template <class T, int Taps, int Dims>
__global__ void __launch_bounds__(kEachThreads)
    reads_kernel(Call c, int64_t plane, const T* grid, int64_t* places, compute_t<T>* weights) {
  using C = compute_t<T>;
  for_each(c.batch * c.points, [&](int64_t e) {
    const Point<T, Dims> p(grid + e * Dims);
    const auto reads = sampling::reads_of(c, sampling::lines_of<C, Taps, Dims>(c, p.at));
#pragma unroll
    for (int t = 0; t < reads.kCount; ++t) {
      places[e * reads.kCount + t] = reads.at[t] >= 0 ? reads.at[t] : plane;
      weights[e * reads.kCount + t] = reads.weight[t];
    }
  });
}

// The first of n ascending numbers that is not below v.
__device__ __forceinline__ int64_t first_at_least(const int64_t* sorted, int64_t n, int64_t v) {
  int64_t low = 0;
  while (n > 0) {
    const int64_t half = n / 2;
    if (sorted[low + half] < v) {
      low += half + 1;
      n -= half + 1;
    } else {
      n = half;
    }
  }
  return low;
}

// Elements are [batch, blocks of channels, plane].
template <class T>
__global__ void __launch_bounds__(kEachThreads)
    gather_kernel(Call c, int taps, int64_t plane, int64_t blocks, int64_t total, const T* g, const int64_t* sorted,
                  const int64_t* from, const compute_t<T>* weights, T* gx) {
  using C = compute_t<T>;
  for_each(total, [&](int64_t e) {
    const int64_t task = e / plane, place = e - task * plane, item = task / blocks,
                  first = (task - item * blocks) * kBlock, reads = c.points * taps;
    const int64_t* keys = sorted + item * reads;
    const T* gy = g + (item * c.channels + first) * c.points;
    const int count = static_cast<int>(first + kBlock < c.channels ? kBlock : c.channels - first);
    C sums[kBlock] = {};
    for (int64_t i = first_at_least(keys, reads, place); i < reads && keys[i] == place; ++i) {
      const int64_t read = from[item * reads + i], point = read / taps;
      const C weight = weights[item * reads + read];
#pragma unroll
      for (int k = 0; k < kBlock; ++k)
        if (k < count) sums[k] += weight * widen(gy[k * c.points + point]);
    }
#pragma unroll
    for (int k = 0; k < kBlock; ++k)
      if (k < count) gx[(item * c.channels + first + k) * plane + place] = narrow<T>(sums[k]);
  });
}

int64_t channel_blocks(const Call& c) {
  return (c.channels + kBlock - 1) / kBlock;
}

// Calls f.operator()<T, Taps, Dims>().
template <class F>
void dispatch(const Call& c, F&& f) {
  dispatch_floats(c.dtype, "grid_sample", [&]<class T>() {
    sampling::dispatch_mode(c, [&]<int Taps, int Dims>() { f.template operator()<T, Taps, Dims>(); });
  });
}

}  // namespace

void grid_sample_cuda(const Call& c, const void* x, const void* grid, void* y) {
  const int64_t blocks = channel_blocks(c), total = c.batch * blocks * c.points;
  if (total == 0) return;
  dispatch(c, [&]<class T, int Taps, int Dims>() {
    forward_kernel<T, Taps, Dims><<<each_blocks(total), kEachThreads, 0, stream()>>>(
        c, c.plane(), blocks, total, static_cast<const T*>(x), static_cast<const T*>(grid), static_cast<T*>(y));
  });
}

void grid_sample_backward_grid_cuda(const Call& c, const void* g, const void* x, const void* grid, void* ggrid) {
  if (c.batch * c.points == 0) return;
  dispatch(c, [&]<class T, int Taps, int Dims>() {
    backward_grid_kernel<T, Taps, Dims><<<each_blocks(c.batch * c.points), kEachThreads, 0, stream()>>>(
        c, c.plane(), static_cast<const T*>(g), static_cast<const T*>(x), static_cast<const T*>(grid),
        static_cast<T*>(ggrid));
  });
}

void grid_sample_reads_cuda(const Call& c, const void* grid, int64_t* places, void* weights) {
  if (c.batch * c.points == 0) return;
  dispatch(c, [&]<class T, int Taps, int Dims>() {
    reads_kernel<T, Taps, Dims><<<each_blocks(c.batch * c.points), kEachThreads, 0, stream()>>>(
        c, c.plane(), static_cast<const T*>(grid), places, static_cast<compute_t<T>*>(weights));
  });
}

void grid_sample_gather_cuda(const Call& c, const void* g, const int64_t* sorted, const int64_t* from,
                             const void* weights, void* gx) {
  const int64_t blocks = channel_blocks(c), total = c.batch * blocks * c.plane();
  if (total == 0) return;
  dispatch_floats(c.dtype, "grid_sample", [&]<class T>() {
    gather_kernel<T><<<each_blocks(total), kEachThreads, 0, stream()>>>(
        c, c.taps(), c.plane(), blocks, total, static_cast<const T*>(g), sorted, from,
        static_cast<const compute_t<T>*>(weights), static_cast<T*>(gx));
  });
}

}  // namespace strata
