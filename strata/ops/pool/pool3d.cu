// Pooling and resizing over three dimensions on a CUDA device, and the gradient of max_pool over any.

#include "strata/ops/pool/pool_cuda.cuh"

namespace strata {
namespace {
using namespace cuda;
using namespace pool;

// Rows of a column that a thread has, for which it computes the other dimensions' windows once; of few outputs it has
// one, so that there are threads for all multiprocessors.
constexpr int kStrip = 4, kBackStrip = 8;
constexpr int64_t kFewOutputs = int64_t{1} << 18;

// An axis, with what its formulas divide by ready.
template <class I>
struct Divided : BasicAxis<I> {
  FastDivisor stride_divisor;
  double each = 1;  // resize: outputs for one input

  explicit Divided(const BasicAxis<I>& a)
      : BasicAxis<I>(a), stride_divisor(static_cast<uint32_t>(pool::least<I>(a.stride, (1u << 31) - 1))) {
    const bool corners = a.align_corners && !a.nearest;
    const double step =
        corners ? (a.out > 1 ? static_cast<double>(a.in - 1) / static_cast<double>(a.out - 1) : 0.0) : a.scale;
    each = 1 / step;
  }
};

// pool::outputs_of without divisions.
template <AxisKind Kind, class I>
__device__ __forceinline__ pool::Outputs<I> outputs_of(const Divided<I>& a, I j) {
  if constexpr (Kind == AxisKind::pool && sizeof(I) == 4) {
    const I at = j + a.padding, last = at - (a.kernel - 1) * a.dilation;
    const auto over = [&](I v) { return static_cast<I>(a.stride_divisor.divide(static_cast<uint32_t>(v))); };
    return {last <= 0 ? 0 : over(last - 1) + 1, pool::least<I>(a.out - 1, over(at))};
  } else if constexpr (Kind == AxisKind::resize) {
    return pool::resize_outputs<I>(a, j, a.each);
  } else {
    return pool::outputs_of<Kind>(a, j);
  }
}

// Leaves out outputs at both ends of a range that do not have input j.
template <AxisKind Kind, class C, class I>
__device__ __forceinline__ void trim(const BasicAxis<I>& a, I j, pool::Outputs<I>& range) {
  C weight;
  while (range.low <= range.high && !pool::covers<Kind>(a, range.low, j, weight)) ++range.low;
  while (range.high > range.low && !pool::covers<Kind>(a, range.high, j, weight)) --range.high;
}

// The axes of a volume, and its strips of `rows` rows by number.
template <class I>
struct Volume {
  Divided<I> d, h, w;
  Grid grid;  // of [planes * depth, strips of rows, cols]
  Divisor depth;

  template <class A>
  Volume(const A& axes, int64_t planes, bool inputs, int rows)
      : d(axes[0]),
        h(axes[1]),
        w(axes[2]),
        grid(planes * (inputs ? d.in : d.out), ((inputs ? h.in : h.out) + int64_t{rows} - 1) / rows,
             inputs ? w.in : w.out),
        depth(inputs ? d.in : d.out) {}

  struct At {
    int64_t plane;
    I k, strip, j;
  };
  __device__ __forceinline__ At at(int64_t e) const {
    const auto flat = grid.template at<I>(e);
    int64_t k;
    const int64_t plane = depth.split(flat.plane, k);
    return {plane, static_cast<I>(k), flat.i, flat.j};
  }
  __device__ __forceinline__ int64_t inputs() const { return static_cast<int64_t>(d.in) * h.in * w.in; }
  __device__ __forceinline__ int64_t outputs() const { return static_cast<int64_t>(d.out) * h.out * w.out; }
};

// Calls f(row, element's number) for the rows of a strip, `size` being [depth, rows, cols].
template <int Rows, class I, class At, class F>
__device__ __forceinline__ void for_rows(const At& at, I deep, I rows, I cols, F&& f) {
  int64_t e = ((at.plane * deep + at.k) * rows + at.strip * Rows) * cols + at.j;
#pragma unroll
  for (int u = 0; u < Rows; ++u, e += cols) {
    const I i = at.strip * Rows + u;
    if (i < rows) f(i, e);
  }
}

// With Lanes = 32 a warp has an element, else a thread a strip of Rows.
template <class T, AxisKind Kind, int Lanes, int Rows, class I>
__global__ void __launch_bounds__(kThreads) resample3_kernel(Volume<I> v, const T* x, T* y) {
  using C = compute_t<T>;
  for_elements<Lanes>(v.grid.total, [&](int64_t strip) {
    const auto at = v.at(strip);
    const auto wk = pool::window<Kind, C>(v.d, at.k), wj = pool::window<Kind, C>(v.w, at.j);
    const I step = Kind == AxisKind::pool ? v.d.dilation : 1;
    const T* from = x + at.plane * v.inputs();
    for_rows<Rows>(at, v.d.out, v.h.out, v.w.out, [&](I row, int64_t e) {
      const auto wi = pool::window<Kind, C>(v.h, row);
      C sum = 0;
      for (I c = 0; c < wk.count; ++c) {
        const I first = (wk.start + c * step) * v.h.in;
        C part = 0;
        for_values<Kind, Lanes, Rows == 1>(
            v.h, v.w, wi, wj, from + static_cast<int64_t>(first) * v.w.in, [&](T value, I, I, I a, I b) {
              part += (a == 0 ? wi.first : wi.rest) * ((b == 0 ? wj.first : wj.rest) * widen(value));
            });
        sum += (c == 0 ? wk.first : wk.rest) * part;
      }
      if constexpr (Lanes > 1) sum = warp_reduce(sum, Sum());
      if (Lanes == 1 || threadIdx.x % kWarp == 0) y[e] = narrow<T>(sum);
    });
  });
}

// Few: how many windows an input lies in, in depth and width, where that is known.
template <class T, AxisKind Kind, int kFew, class I>
__global__ void __launch_bounds__(kThreads) transposed3_kernel(Volume<I> v, const T* y, T* x) {
  using C = compute_t<T>;
  for_elements<1>(v.grid.total, [&](int64_t strip) {
    const auto at = v.at(strip);
    const I first = at.strip * kBackStrip, last = pool::least<I>(first + kBackStrip, v.h.in) - 1;
    auto deep = outputs_of<Kind>(v.d, at.k), cols = outputs_of<Kind>(v.w, at.j);
    if constexpr (Kind == AxisKind::resize) {
      trim<Kind, C>(v.d, at.k, deep);
      trim<Kind, C>(v.w, at.j, cols);
    }
    const I low = outputs_of<Kind>(v.h, first).low, high = outputs_of<Kind>(v.h, last).high;
    const T* from = y + at.plane * v.outputs();
    C sums[kBackStrip] = {}, wk[kFew] = {}, wj[kFew] = {};
    const bool few = deep.high - deep.low < kFew && cols.high - cols.low < kFew;
    if (few) {
#pragma unroll
      for (int u = 0; u < kFew; ++u) {
        if (deep.low + u > deep.high || !pool::covers<Kind>(v.d, static_cast<I>(deep.low + u), at.k, wk[u])) wk[u] = 0;
        if (cols.low + u > cols.high || !pool::covers<Kind>(v.w, static_cast<I>(cols.low + u), at.j, wj[u])) wj[u] = 0;
      }
    }
    for (I i = low; i <= high; ++i) {
      // The strip's rows share what the other dimensions add up to.
      C sum = 0;
      if (few) {
#pragma unroll
        for (int c = 0; c < kFew; ++c) {
          if (wk[c] == C(0)) continue;
          const T* row = from + ((deep.low + c) * v.h.out + i) * v.w.out + cols.low;
          C part = 0;
#pragma unroll
          for (int b = 0; b < kFew; ++b)
            if (wj[b] != C(0)) part += wj[b] * widen(row[b]);
          sum += wk[c] * part;
        }
      } else {
        for (I k = deep.low; k <= deep.high; ++k) {
          if (!pool::covers<Kind>(v.d, k, at.k, wk[0])) continue;
          const T* row = from + (k * v.h.out + i) * v.w.out;
          for (I j = cols.low; j <= cols.high; ++j)
            if (pool::covers<Kind>(v.w, j, at.j, wj[0])) sum += wk[0] * wj[0] * widen(row[j]);
        }
      }
      const auto window = pool::window<Kind, C>(v.h, i);
#pragma unroll
      for (int u = 0; u < kBackStrip; ++u) {
        const I place = first + u - window.start;  // the mean's windows are not dilated
        if (place >= 0 && place < window.count) sums[u] += (place == 0 ? window.first : window.rest) * sum;
      }
    }
    for_rows<kBackStrip>(at, v.d.in, v.h.in, v.w.in, [&](I row, int64_t e) {
#pragma unroll
      for (int u = 0; u < kBackStrip; ++u)
        if (row - first == u) x[e] = narrow<T>(sums[u]);
    });
  });
}

template <class T, AxisKind Kind, int Lanes, int Rows, class I>
__global__ void __launch_bounds__(kThreads) max3_kernel(Volume<I> v, const T* x, T* y, int64_t* positions) {
  using C = compute_t<T>;
  for_elements<Lanes>(v.grid.total, [&](int64_t strip) {
    const auto at = v.at(strip);
    const auto wk = pool::window<Kind, float>(v.d, at.k), wj = pool::window<Kind, float>(v.w, at.j);
    const I step = Kind == AxisKind::pool ? v.d.dilation : 1;
    const T* from = x + at.plane * v.inputs();
    for_rows<Rows>(at, v.d.out, v.h.out, v.w.out, [&](I row, int64_t e) {
      const auto wi = pool::window<Kind, float>(v.h, row);
      C best = -std::numeric_limits<C>::infinity();
      I best_at = -1;
      for (I c = 0; c < wk.count; ++c) {
        const I first = (wk.start + c * step) * v.h.in;
        for_values<Kind, Lanes, Rows == 1>(v.h, v.w, wi, wj, from + static_cast<int64_t>(first) * v.w.in,
                                           [&](T own, I i, I j, I, I) {
                                             const I here = (first + i) * v.w.in + j;
                                             const C value = widen(own);
                                             if constexpr (Lanes == 1) {  // in their order
                                               if (value > best || best_at < 0 || (value != value && best == best))
                                                 best = value, best_at = here;
                                             } else {
                                               if (beats(value, here, best, best_at)) best = value, best_at = here;
                                             }
                                           });
      }
      if constexpr (Lanes > 1) best_of_warp(best, best_at);
      if (Lanes > 1 && threadIdx.x % kWarp != 0) return;
      y[e] = narrow<T>(best);
      positions[e] = best_at;
    });
  });
}

// The inputs of a strip look at the windows that they lie in.
template <class T, class I>
__global__ void __launch_bounds__(kThreads)
    max_backward_kernel(Volume<I> v, const T* g, const int64_t* positions, T* x) {
  using C = compute_t<T>;
  constexpr int kCols = 2;
  for_elements<1>(v.grid.total, [&](int64_t strip) {
    const auto at = v.at(strip);
    const I first = at.strip * kStrip, last = pool::least<I>(first + kStrip, v.h.in) - 1;
    const auto deep = outputs_of<AxisKind::pool>(v.d, at.k), cols = outputs_of<AxisKind::pool>(v.w, at.j);
    const I low = outputs_of<AxisKind::pool>(v.h, first).low, high = outputs_of<AxisKind::pool>(v.h, last).high;
    const int64_t plane = at.plane * v.outputs();
    const I here = (at.k * v.h.in + first) * v.w.in + at.j;
    C sums[kStrip] = {};
    const auto take = [&](int64_t position, T value) {
      const I from_here = static_cast<I>(position) - here;
#pragma unroll
      for (int u = 0; u < kStrip; ++u)
        if (from_here == u * v.w.in) sums[u] += widen(value);
    };
    for (I k = deep.low; k <= deep.high; ++k) {
      const int64_t slice = plane + k * v.h.out * v.w.out;
      if (cols.high - cols.low < kCols) {
        // What several rows of windows say is on its way together.
        for (I i0 = low; i0 <= high; i0 += kStrip) {
          int64_t position[kStrip][kCols];
          T value[kStrip][kCols];
#pragma unroll
          for (int a = 0; a < kStrip; ++a)
#pragma unroll
            for (int b = 0; b < kCols; ++b) {
              const bool has = i0 + a <= high && cols.low + b <= cols.high;
              const int64_t o = slice + (i0 + a) * v.w.out + cols.low + b;
              position[a][b] = has ? positions[o] : int64_t{-1};
              value[a][b] = has ? g[o] : T{};
            }
#pragma unroll
          for (int a = 0; a < kStrip; ++a)
#pragma unroll
            for (int b = 0; b < kCols; ++b)
              if (position[a][b] >= 0) take(position[a][b], value[a][b]);
        }
      } else {
        for (I i = low; i <= high; ++i)
          for (I j = cols.low; j <= cols.high; ++j) {
            const int64_t o = slice + i * v.w.out + j;
            if (positions[o] >= 0) take(positions[o], g[o]);
          }
      }
    }
    for_rows<kStrip>(at, v.d.in, v.h.in, v.w.in, [&](I row, int64_t e) {
#pragma unroll
      for (int u = 0; u < kStrip; ++u)
        if (row - first == u) x[e] = narrow<T>(sums[u]);
    });
  });
}

// The gradient of windows of 2 x 2 that tile their planes: two windows beside each other a thread, which reads what
// they say once and writes two rows of four inputs.
template <class T>
__global__ void __launch_bounds__(kThreads) max_tiles_kernel(int64_t pairs, Divisor by_row, Divisor by_column,
                                                             int width, const T* g, const int64_t* positions, T* x) {
  using C = compute_t<T>;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t e = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; e < pairs; e += step) {
    int64_t j, i;
    const int64_t row = by_column.split(e, j);  // of windows, of all planes
    by_row.split(row, i);
    const auto at = load_vec<2>(positions + 2 * e);
    const auto value = load_vec<2>(g + 2 * e);
    const int64_t here = 2 * i * width + 4 * j;
    Vec<T, 4> rows[2];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const int64_t from_here = at.v[k] - here - 2 * k;
#pragma unroll
      for (int u = 0; u < 4; ++u)
        rows[u / 2].v[2 * k + u % 2] = narrow<T>(from_here == u / 2 * width + u % 2 ? C(0) + widen(value.v[k]) : C(0));
    }
    T* const to = x + 2 * row * width + 4 * j;
    store_vec(to, rows[0]);
    store_vec(to + width, rows[1]);
  }
}
// Whether windows tile planes so, and rows hold whole pairs of them.
bool are_tiles(const Axes& axes) {
  const auto tiles = [](const Axis& a) {
    return a.kernel == 2 && a.stride == 2 && a.padding == 0 && a.dilation == 1 && a.in == 2 * a.out;
  };
  return axes[0].in == 1 && axes[0].out == 1 && axes[0].kernel == 1 && axes[0].padding == 0 && tiles(axes[1]) &&
         tiles(axes[2]) && axes[2].out % 2 == 0 && axes[2].in < (int64_t{1} << 30);
}

// Calls f(volume) with indices of 32 bits where they hold every number.
template <class F>
void with_volume(const Axes& axes, int64_t planes, bool inputs, int rows, F&& f) {
  if (!is_narrow(axes)) return f(Volume<int64_t>(axes, planes, inputs, rows));
  f(Volume<int32_t>(std::array{narrow_axis(axes[0]), narrow_axis(axes[1]), narrow_axis(axes[2])}, planes, inputs,
                    rows));
}

// Whether a warp shares a window: where a slice of it has an input for each lane, or half the lanes, and windows are
// too few to keep the card at work with a thread for four.
bool for_warps(const Axes& axes, int64_t planes) {
  if (axes[0].kind == AxisKind::resize || !is_narrow(axes)) return false;
  if (many_inputs(axes[1], axes[2])) return true;
  const Axis &d = axes[0], &h = axes[1], &w = axes[2];
  const bool half = h.kind == AxisKind::pool ? h.kernel * w.kernel >= 16 && d.kernel > 1
                                             : h.in * w.in >= 16 * h.out * w.out && d.in > d.out;
  constexpr int64_t kFew = 1 << 15;
  return half && planes * d.out * h.out * w.out < kFew;
}

int rows_of_a_thread(const Axes& axes, int64_t planes) {
  if (!is_narrow(axes)) return kStrip;
  return for_warps(axes, planes) || planes * axes[0].out * axes[1].out * axes[2].out < kFewOutputs ? 1 : kStrip;
}

}  // namespace

void pool::resample3_cuda(const Axes& axes, int64_t planes, DType t, const void* x, void* y) {
  with_volume(axes, planes, false, rows_of_a_thread(axes, planes), [&]<class I>(const Volume<I>& v) {
    if (v.grid.total == 0) return;
    dispatch_floats(t, "resample", [&]<class T>() {
      const auto run = [&]<AxisKind K, int Lanes, int Rows>() {
        resample3_kernel<T, K, Lanes, Rows><<<blocks_of<Lanes>(v.grid.total), kThreads, 0, stream()>>>(
            v, static_cast<const T*>(x), static_cast<T*>(y));
      };
      dispatch_kind(axes[0].kind, [&]<AxisKind K>() {
        if constexpr (K != AxisKind::resize && sizeof(I) == 4) {
          if (for_warps(axes, planes)) return run.template operator()<K, kWarp, 1>();
        }
        if constexpr (sizeof(I) == 4) {
          if (rows_of_a_thread(axes, planes) == 1) return run.template operator()<K, 1, 1>();
        }
        run.template operator()<K, 1, kStrip>();
      });
    });
  });
}

void pool::resample3_transposed_cuda(const Axes& axes, int64_t planes, DType t, const void* y, void* x) {
  with_volume(axes, planes, true, kBackStrip, [&]<class I>(const Volume<I>& v) {
    if (v.grid.total == 0) return;
    dispatch_floats(t, "resample", [&]<class T>() {
      dispatch_kind(axes[0].kind, [&]<AxisKind K>() {
        const auto run = [&]<int Few>() {
          transposed3_kernel<T, K, Few>
              <<<blocks_of<1>(v.grid.total), kThreads, 0, stream()>>>(v, static_cast<const T*>(y), static_cast<T*>(x));
        };
        const auto few = [](const Axis& a) { return pool::ceil_div(a.kernel, a.stride) <= 2; };
        if constexpr (K == AxisKind::pool) {
          if (few(axes[0]) && few(axes[2])) return run.template operator()<2>();
        }
        run.template operator()<4>();
      });
    });
  });
}

void pool::window_max3_cuda(const Axes& axes, int64_t planes, DType t, const void* x, void* y, int64_t* positions) {
  with_volume(axes, planes, false, rows_of_a_thread(axes, planes), [&]<class I>(const Volume<I>& v) {
    if (v.grid.total == 0) return;
    dispatch_floats(t, "max_pool", [&]<class T>() {
      const auto run = [&]<AxisKind K, int Lanes, int Rows>() {
        max3_kernel<T, K, Lanes, Rows><<<blocks_of<Lanes>(v.grid.total), kThreads, 0, stream()>>>(
            v, static_cast<const T*>(x), static_cast<T*>(y), positions);
      };
      const auto by_size = [&]<AxisKind K>() {
        if constexpr (sizeof(I) == 4) {
          if (for_warps(axes, planes)) return run.template operator()<K, kWarp, 1>();
          if (rows_of_a_thread(axes, planes) == 1) return run.template operator()<K, 1, 1>();
        }
        run.template operator()<K, 1, kStrip>();
      };
      if (axes[0].kind == AxisKind::pool) return by_size.template operator()<AxisKind::pool>();
      by_size.template operator()<AxisKind::adaptive>();
    });
  });
}

void max_backward_cuda(const Axes& axes, int64_t planes, DType t, const void* g, const int64_t* positions, void* x) {
  const auto whole = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 32 == 0; };
  if (are_tiles(axes) && whole(g) && whole(positions) && whole(x)) {
    const int64_t pairs = planes * axes[1].out * axes[2].out / 2;
    if (pairs == 0) return;
    dispatch_floats(t, "max_pool_backward", [&]<class T>() {
      max_tiles_kernel<T><<<blocks_of<1>(pairs), kThreads, 0, stream()>>>(
          pairs, Divisor(axes[1].out), Divisor(axes[2].out / 2), static_cast<int>(axes[2].in), static_cast<const T*>(g),
          positions, static_cast<T*>(x));
    });
    return;
  }
  with_volume(axes, planes, true, kStrip, [&]<class I>(const Volume<I>& v) {
    if (v.grid.total == 0) return;
    dispatch_floats(t, "max_pool_backward", [&]<class T>() {
      max_backward_kernel<T><<<blocks_of<1>(v.grid.total), kThreads, 0, stream()>>>(v, static_cast<const T*>(g),
                                                                                    positions, static_cast<T*>(x));
    });
  });
}

}  // namespace strata
