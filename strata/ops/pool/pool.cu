// Pooling and resizing on a CUDA device. Every element of a result gathers what belongs to it, in a fixed order, so
// that gradients have the same bits every time. Windows are computed where they are used, never stored.

#include <limits>

#include "strata/cuda/elementwise.cuh"
#include "strata/ops/pool/pool_kernels.h"

namespace strata {
namespace {
using namespace cuda;
using pool::Axis;
using pool::AxisKind;
using pool::Window;

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 1 << 20;  // further elements are a loop

// Quotient and remainder by a number known before the launch.
struct Divisor {
  int64_t d = 1;
  FastDivisor fast;
  explicit Divisor(int64_t divisor) : d(divisor > 0 ? divisor : 1) {
    if (d < (int64_t{1} << 31)) fast = FastDivisor(static_cast<uint32_t>(d));
  }
  __device__ __forceinline__ int64_t split(int64_t n, int64_t& rest) const {
    const bool narrow = n < (int64_t{1} << 31) && d < (int64_t{1} << 31);
    const int64_t q = narrow ? static_cast<int64_t>(fast.divide(static_cast<uint32_t>(n))) : n / d;
    rest = n - q * d;
    return q;
  }
};

// Elements of [planes, rows, cols] by number.
struct Grid {
  int64_t total;
  Divisor plane, col;
  Grid(int64_t planes, int64_t rows, int64_t cols) : total(planes * rows * cols), plane(rows * cols), col(cols) {}

  struct At {
    int64_t plane, i, j;
  };
  __device__ __forceinline__ At at(int64_t e) const {
    At r;
    int64_t rest;
    r.plane = plane.split(e, rest);
    r.i = col.split(rest, r.j);
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
template <AxisKind Kind, int Lanes, class F>
__device__ __forceinline__ void for_window(const Axis& h, const Axis& w, const Window& wi, const Window& wj, F&& f) {
  const int64_t row_step = Kind == AxisKind::pool ? h.dilation : 1, col_step = Kind == AxisKind::pool ? w.dilation : 1;
  if constexpr (Lanes == 1) {
    for (int64_t a = 0; a < wi.count; ++a)
      for (int64_t b = 0; b < wj.count; ++b) f(wi.start + a * row_step, wj.start + b * col_step, a, b);
  } else if (wj.count > 0) {
    const int64_t n = wi.count * wj.count;
    for (int64_t k = threadIdx.x % kWarp; k < n; k += kWarp) {
      const int64_t a = k / wj.count, b = k - a * wj.count;
      f(wi.start + a * row_step, wj.start + b * col_step, a, b);
    }
  }
}

template <class T, AxisKind Kind, int Lanes>
__global__ void __launch_bounds__(kThreads) resample_kernel(Axis h, Axis w, Grid out, const T* x, T* y) {
  using C = compute_t<T>;
  for_elements<Lanes>(out.total, [&](int64_t e) {
    const Grid::At at = out.at(e);
    const Window wi = pool::window<Kind>(h, at.i), wj = pool::window<Kind>(w, at.j);
    const C first_i = static_cast<C>(wi.first), rest_i = static_cast<C>(wi.rest);
    const C first_j = static_cast<C>(wj.first), rest_j = static_cast<C>(wj.rest);
    const T* from = x + at.plane * h.in * w.in;
    C sum = 0;
    for_window<Kind, Lanes>(h, w, wi, wj, [&](int64_t i, int64_t j, int64_t a, int64_t b) {
      sum += (a == 0 ? first_i : rest_i) * ((b == 0 ? first_j : rest_j) * widen(from[i * w.in + j]));
    });
    if constexpr (Lanes > 1) sum = warp_reduce(sum, Sum());
    if (Lanes == 1 || threadIdx.x % kWarp == 0) y[e] = narrow<T>(sum);
  });
}

template <class T, AxisKind Kind>
__global__ void __launch_bounds__(kThreads) transposed_kernel(Axis h, Axis w, Grid in, const T* y, T* x) {
  using C = compute_t<T>;
  for_elements<1>(in.total, [&](int64_t e) {
    const Grid::At at = in.at(e);
    const pool::Outputs rows = pool::outputs_of<Kind>(h, at.i), cols = pool::outputs_of<Kind>(w, at.j);
    const T* from = y + at.plane * h.out * w.out;
    C sum = 0;
    for (int64_t i = rows.low; i <= rows.high; ++i) {
      double wi, wj;
      if (!pool::covers<Kind>(h, i, at.i, wi)) continue;
      for (int64_t j = cols.low; j <= cols.high; ++j)
        if (pool::covers<Kind>(w, j, at.j, wj))
          sum += widen(from[i * w.out + j]) * static_cast<C>(wi) * static_cast<C>(wj);
    }
    x[e] = narrow<T>(sum);
  });
}

// Whether a value takes the place of the best so far: NaN wins, of equals the first.
template <class C>
__device__ __forceinline__ bool beats(C v, int64_t at, C best, int64_t best_at) {
  if (at < 0 || best_at < 0) return best_at < 0 && at >= 0;
  const bool nan = v != v, best_nan = best != best;
  if (nan != best_nan) return nan;
  return nan || v == best ? at < best_at : v > best;
}

template <class T, AxisKind Kind, int Lanes>
__global__ void __launch_bounds__(kThreads) max_kernel(Axis h, Axis w, Grid out, const T* x, T* y, int64_t* positions) {
  using C = compute_t<T>;
  for_elements<Lanes>(out.total, [&](int64_t e) {
    const Grid::At at = out.at(e);
    const Window wi = pool::window<Kind>(h, at.i), wj = pool::window<Kind>(w, at.j);
    const T* from = x + at.plane * h.in * w.in;
    C best = -std::numeric_limits<C>::infinity();
    int64_t best_at = -1;
    for_window<Kind, Lanes>(h, w, wi, wj, [&](int64_t i, int64_t j, int64_t, int64_t) {
      const int64_t here = i * w.in + j;
      const C v = widen(from[here]);
      if (beats(v, here, best, best_at)) best = v, best_at = here;
    });
    if constexpr (Lanes > 1) {
#pragma unroll
      for (int o = kWarp / 2; o > 0; o /= 2) {
        const C v = __shfl_xor_sync(0xffffffffu, best, o);
        const int64_t there = __shfl_xor_sync(0xffffffffu, best_at, o);
        if (beats(v, there, best, best_at)) best = v, best_at = there;
      }
      if (threadIdx.x % kWarp != 0) return;
    }
    y[e] = narrow<T>(best);
    positions[e] = best_at;
  });
}

// A warp owns a piece of a plane: it looks at all positions of the plane in their order and adds up, in shared memory,
// what falls into its piece. Lanes with the same position leave their sum to the first of them.
constexpr int kScatterWarps = 8;
constexpr int kPieceBytes = 6144;

template <class T>
__global__ void __launch_bounds__(kScatterWarps* kWarp)
    scatter_kernel(int64_t tasks, int64_t pieces, int64_t in, int64_t out, const T* y, const int64_t* positions, T* x) {
  using C = compute_t<T>;
  constexpr int kPiece = kPieceBytes / sizeof(C);
  __shared__ C shared[kScatterWarps][kPiece];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  C* sums = shared[warp];
  for (int64_t task = static_cast<int64_t>(blockIdx.x) * kScatterWarps + warp; task < tasks;
       task += static_cast<int64_t>(gridDim.x) * kScatterWarps) {
    const int64_t plane = task / pieces, first = (task - plane * pieces) * kPiece;
    const int size = static_cast<int>(pool::least(kPiece, in - first));
    for (int i = lane; i < size; i += kWarp) sums[i] = 0;
    __syncwarp();
    const int64_t* at = positions + plane * out;
    const T* from = y + plane * out;
    for (int64_t k0 = 0; k0 < out; k0 += 2 * kWarp) {
      int64_t place[2];
#pragma unroll
      for (int u = 0; u < 2; ++u) {
        const int64_t k = k0 + u * kWarp + lane;
        place[u] = k < out ? at[k] - first : -1;
      }
#pragma unroll
      for (int u = 0; u < 2; ++u) {
        const int64_t k = k0 + u * kWarp + lane;
        const bool mine = place[u] >= 0 && place[u] < size;
        if (__ballot_sync(0xffffffffu, mine) == 0) continue;
        const C v = mine ? widen(from[k]) : C(0);
        const unsigned same = __match_any_sync(0xffffffffu, mine ? static_cast<int>(place[u]) : -1 - lane);
        const bool leads = mine && __ffs(static_cast<int>(same)) - 1 == lane;
        C sum = leads ? sums[place[u]] + v : C(0);
        unsigned others = leads ? same & (same - 1) : 0;
        while (__any_sync(0xffffffffu, others != 0)) {
          const C other = __shfl_sync(0xffffffffu, v, others != 0 ? __ffs(static_cast<int>(others)) - 1 : lane);
          if (others != 0) sum += other;
          others &= others - 1;
        }
        if (leads) sums[place[u]] = sum;
        __syncwarp();
      }
    }
    T* to = x + plane * in + first;
    for (int i = lane; i < size; i += kWarp) to[i] = narrow<T>(sums[i]);
    __syncwarp();
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    gather_kernel(Grid result, int64_t in, const T* x, const int64_t* positions, T* y) {
  for_elements<1>(result.total, [&](int64_t e) {
    const int64_t at = positions[e];
    y[e] = at >= 0 && at < in ? x[result.at(e).plane * in + at] : narrow<T>(compute_t<T>(0));
  });
}

// Inputs of a window on average; windows of many are shared by a warp.
bool many_inputs(const Axis& h, const Axis& w) {
  const auto each = [](const Axis& a) {
    return a.kind == AxisKind::pool       ? pool::least(a.kernel, a.in)
           : a.kind == AxisKind::adaptive ? pool::ceil_div(a.in, a.out)
                                          : int64_t{2};
  };
  return each(h) * each(w) >= 32;
}

// Calls f.operator()<Kind>().
template <class F>
void dispatch_kind(AxisKind kind, F&& f) {
  if (kind == AxisKind::pool) return f.template operator()<AxisKind::pool>();
  if (kind == AxisKind::adaptive) return f.template operator()<AxisKind::adaptive>();
  f.template operator()<AxisKind::resize>();
}

}  // namespace

void resample_cuda(const Axis& h, const Axis& w, int64_t planes, DType t, const void* x, void* y) {
  const Grid out(planes, h.out, w.out);
  if (out.total == 0) return;
  dispatch_floats(t, "resample", [&]<class T>() {
    dispatch_kind(h.kind, [&]<AxisKind K>() {
      const T* from = static_cast<const T*>(x);
      if constexpr (K != AxisKind::resize) {
        if (many_inputs(h, w)) {
          resample_kernel<T, K, kWarp>
              <<<blocks_of<kWarp>(out.total), kThreads, 0, stream()>>>(h, w, out, from, static_cast<T*>(y));
          return;
        }
      }
      resample_kernel<T, K, 1><<<blocks_of<1>(out.total), kThreads, 0, stream()>>>(h, w, out, from, static_cast<T*>(y));
    });
  });
}

void resample_transposed_cuda(const Axis& h, const Axis& w, int64_t planes, DType t, const void* y, void* x) {
  const Grid in(planes, h.in, w.in);
  if (in.total == 0) return;
  dispatch_floats(t, "resample", [&]<class T>() {
    dispatch_kind(h.kind, [&]<AxisKind K>() {
      transposed_kernel<T, K>
          <<<blocks_of<1>(in.total), kThreads, 0, stream()>>>(h, w, in, static_cast<const T*>(y), static_cast<T*>(x));
    });
  });
}

void window_max_cuda(const Axis& h, const Axis& w, int64_t planes, DType t, const void* x, void* y,
                     int64_t* positions) {
  const Grid out(planes, h.out, w.out);
  if (out.total == 0) return;
  const auto run = [&]<class T, AxisKind K>() {
    const T* from = static_cast<const T*>(x);
    T* to = static_cast<T*>(y);
    if (many_inputs(h, w)) {
      max_kernel<T, K, kWarp><<<blocks_of<kWarp>(out.total), kThreads, 0, stream()>>>(h, w, out, from, to, positions);
    } else {
      max_kernel<T, K, 1><<<blocks_of<1>(out.total), kThreads, 0, stream()>>>(h, w, out, from, to, positions);
    }
  };
  dispatch_floats(t, "max_pool", [&]<class T>() {
    if (h.kind == AxisKind::pool) return run.template operator()<T, AxisKind::pool>();
    run.template operator()<T, AxisKind::adaptive>();
  });
}

void plane_scatter_cuda(int64_t planes, int64_t in, int64_t out, DType t, const void* y, const int64_t* positions,
                        void* x) {
  if (planes * in == 0) return;
  dispatch_floats(t, "plane_scatter", [&]<class T>() {
    constexpr int64_t kPiece = kPieceBytes / sizeof(compute_t<T>);
    const int64_t pieces = (in + kPiece - 1) / kPiece, tasks = planes * pieces;
    const auto blocks =
        static_cast<unsigned>(std::min<int64_t>((tasks + kScatterWarps - 1) / kScatterWarps, kMostBlocks));
    scatter_kernel<T><<<blocks, kScatterWarps * kWarp, 0, stream()>>>(tasks, pieces, in, out, static_cast<const T*>(y),
                                                                      positions, static_cast<T*>(x));
  });
}

void plane_gather_cuda(int64_t planes, int64_t in, int64_t out, DType t, const void* x, const int64_t* positions,
                       void* y) {
  const Grid result(planes, 1, out);
  if (result.total == 0) return;
  dispatch_floats(t, "plane_gather", [&]<class T>() {
    gather_kernel<T><<<blocks_of<1>(result.total), kThreads, 0, stream()>>>(result, in, static_cast<const T*>(x),
                                                                            positions, static_cast<T*>(y));
  });
}

}  // namespace strata
