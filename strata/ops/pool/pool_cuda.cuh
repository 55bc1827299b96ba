#pragma once
// What the kernels of pooling and resizing in two and in three dimensions share.

#include <algorithm>
#include <limits>

#include "strata/cuda/divisor.cuh"
#include "strata/ops/pool/pool_kernels.h"

namespace strata::pool {

using cuda::Divisor;
using cuda::kWarp;

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 1 << 20;  // further elements are a loop

// Elements of [planes, rows, cols] by number.
struct Grid {
  int64_t total;
  Divisor plane, col;
  Grid(int64_t planes, int64_t rows, int64_t cols) : total(planes * rows * cols), plane(rows * cols), col(cols) {}

  template <class I>
  struct At {
    int64_t plane;
    I i, j;
  };
  // I is a type that holds the numbers of a plane's elements.
  template <class I>
  __device__ __forceinline__ At<I> at(int64_t e) const {
    At<I> r;
    int64_t rest;
    r.plane = plane.split(e, rest);
    if constexpr (sizeof(I) == 4) {
      r.i = static_cast<I>(col.fast.divide(static_cast<uint32_t>(rest)));
      r.j = static_cast<I>(rest) - r.i * static_cast<I>(col.d);
    } else {
      r.i = col.split(rest, r.j);
    }
    return r;
  }
};

// Calls f(element) for each: a thread each, or with Lanes = 32 a warp each.
template <int Lanes, class F>
__device__ __forceinline__ void for_elements(int64_t total, F&& f) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * (kThreads / Lanes);
  for (int64_t e = static_cast<int64_t>(blockIdx.x) * (kThreads / Lanes) + threadIdx.x / Lanes; e < total; e += step)
    f(e);
}
template <int Lanes>
unsigned blocks_of(int64_t total) {
  return static_cast<unsigned>(std::min<int64_t>((total + kThreads / Lanes - 1) / (kThreads / Lanes), kMostBlocks));
}

// Calls f(row in the plane, column, row's place in its window, column's place) for the inputs of a pair of windows; a
// warp shares them.
template <AxisKind Kind, int Lanes, class I, class W, class F>
__device__ __forceinline__ void for_window(const BasicAxis<I>& h, const BasicAxis<I>& w, const Window<I, W>& wi,
                                           const Window<I, W>& wj, F&& f) {
  const I row_step = Kind == AxisKind::pool ? h.dilation : 1, col_step = Kind == AxisKind::pool ? w.dilation : 1;
  if constexpr (Lanes == 1) {
    for (I a = 0; a < wi.count; ++a)
      for (I b = 0; b < wj.count; ++b) f(wi.start + a * row_step, wj.start + b * col_step, a, b);
  } else if (wj.count >= 2 * kWarp) {
    for (I a = 0; a < wi.count; ++a)
#pragma unroll 4
      for (I b = threadIdx.x % kWarp; b < wj.count; b += kWarp)
        f(wi.start + a * row_step, wj.start + b * col_step, a, b);
  } else if (wj.count > 0) {
    const I n = wi.count * wj.count;
#pragma unroll 2
    for (I k = threadIdx.x % kWarp; k < n; k += kWarp) {
      const I a = k / wj.count, b = k - a * wj.count;
      f(wi.start + a * row_step, wj.start + b * col_step, a, b);
    }
  }
}

// Calls f(value, row in the plane, column, row's place in its window, column's place) for the inputs of a pair of
// windows of the plane at `from`, as for_window(). With Ahead a thread by itself has up to eight on
// their way.
template <AxisKind Kind, int Lanes, bool Ahead, class T, class I, class W, class F>
__device__ __forceinline__ void for_values(const BasicAxis<I>& h, const BasicAxis<I>& w, const Window<I, W>& wi,
                                           const Window<I, W>& wj, const T* from, F&& f) {
  constexpr int kRows = 2, kCols = 4;
  if (Lanes > 1 || !Ahead || wj.count > kCols)
    return for_window<Kind, Lanes>(h, w, wi, wj, [&](I i, I j, I a, I b) { f(from[i * w.in + j], i, j, a, b); });
  const I row_step = Kind == AxisKind::pool ? h.dilation : 1, col_step = Kind == AxisKind::pool ? w.dilation : 1;
  for (I a = 0; a < wi.count; a += kRows) {
    T v[kRows][kCols];
    const auto each = [&](auto&& what) {
#pragma unroll
      for (int u = 0; u < kRows; ++u)
#pragma unroll
        for (int b = 0; b < kCols; ++b) {
          const I i = wi.start + (a + u) * row_step, j = wj.start + b * col_step;
          if (a + u < wi.count && b < wj.count) what(v[u][b], i, j, static_cast<I>(a + u), static_cast<I>(b));
        }
    };
    each([&](T& value, I i, I j, I, I) { value = from[i * w.in + j]; });
    each(f);
  }
}

// Whether a value takes the place of the best so far: NaN wins, of equals the first.
template <class C, class I>
__device__ __forceinline__ bool beats(C v, I at, C best, I best_at) {
  if (at < 0 || best_at < 0) return best_at < 0 && at >= 0;
  const bool nan = v != v, best_nan = best != best;
  if (nan != best_nan) return nan;
  return nan || v == best ? at < best_at : v > best;
}

// Every lane gets the best of the warp's.
template <class C, class I>
__device__ __forceinline__ void best_of_warp(C& best, I& best_at) {
#pragma unroll
  for (int o = kWarp / 2; o > 0; o /= 2) {
    const C v = __shfl_xor_sync(0xffffffffu, best, o);
    const I there = __shfl_xor_sync(0xffffffffu, best_at, o);
    if (beats(v, there, best, best_at)) best = v, best_at = there;
  }
}

// Inputs of a window on average; windows of many are shared by a warp.
inline bool many_inputs(const Axis& h, const Axis& w) {
  const auto each = [](const Axis& a) {
    return a.kind == AxisKind::pool       ? pool::least<int64_t>(a.kernel, a.in)
           : a.kind == AxisKind::adaptive ? pool::ceil_div(a.in, a.out)
                                          : int64_t{2};
  };
  return each(h) * each(w) >= 32;
}

// Whether 32 bits hold every number that the formulas of a plane meet.
inline bool is_narrow(const Axes& axes) {
  const auto fits = [](const Axis& a) {
    constexpr int64_t kMost = int64_t{1} << 30;
    return a.in < kMost && a.out < kMost && a.padding < kMost / 2 && a.kernel < kMost && a.stride < kMost &&
           a.dilation < kMost && (a.out + 1) * a.stride < kMost && a.kernel * a.dilation < kMost &&
           (a.kind != AxisKind::adaptive || (a.in + 1) * (a.out + 1) < kMost);
  };
  __int128 in = 1, out = 1;
  for (const Axis& a : axes) {
    if (!fits(a)) return false;
    in *= a.in, out *= a.out;
  }
  return in < (int64_t{1} << 31) && out < (int64_t{1} << 31);
}
inline BasicAxis<int32_t> narrow_axis(const Axis& a) {
  const auto n = [](int64_t v) { return static_cast<int32_t>(v); };
  return {a.kind,   a.mean,      a.count_padding, a.nearest,    a.align_corners, a.centred, n(a.in),
          n(a.out), n(a.kernel), n(a.stride),     n(a.padding), n(a.dilation),   a.scale};
}

// Calls f.operator()<Kind>().
template <class F>
void dispatch_kind(AxisKind kind, F&& f) {
  if (kind == AxisKind::pool) return f.template operator()<AxisKind::pool>();
  if (kind == AxisKind::adaptive) return f.template operator()<AxisKind::adaptive>();
  f.template operator()<AxisKind::resize>();
}

// The three-dimensional forms of resample_cuda, resample_transposed_cuda and window_max_cuda.
void resample3_cuda(const Axes& axes, int64_t planes, DType t, const void* x, void* y);
void resample3_transposed_cuda(const Axes& axes, int64_t planes, DType t, const void* y, void* x);
void window_max3_cuda(const Axes& axes, int64_t planes, DType t, const void* x, void* y, int64_t* positions);

}  // namespace strata::pool
