// Pooling and resizing over three dimensions on a CUDA device, and the gradient of max_pool over any.

#include "strata/ops/pool/pool_cuda.cuh"

namespace strata {
namespace {
using namespace cuda;
using namespace pool;

// The axes of a volume, and its elements by number.
template <class I>
struct Volume {
  BasicAxis<I> d, h, w;
  Grid grid;  // of [planes * depth, rows, cols]
  Divisor depth;

  template <class A>
  Volume(const A& axes, int64_t planes, bool inputs)
      : d(axes[0]),
        h(axes[1]),
        w(axes[2]),
        grid(planes * (inputs ? d.in : d.out), inputs ? h.in : h.out, inputs ? w.in : w.out),
        depth(inputs ? d.in : d.out) {}

  struct At {
    int64_t plane;
    I k, i, j;
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

template <class T, AxisKind Kind, int Lanes, class I>
__global__ void __launch_bounds__(kThreads) resample3_kernel(Volume<I> v, const T* x, T* y) {
  using C = compute_t<T>;
  for_elements<Lanes>(v.grid.total, [&](int64_t e) {
    const auto at = v.at(e);
    const auto wk = pool::window<Kind, C>(v.d, at.k), wi = pool::window<Kind, C>(v.h, at.i),
               wj = pool::window<Kind, C>(v.w, at.j);
    const I step = Kind == AxisKind::pool ? v.d.dilation : 1;
    const T* from = x + at.plane * v.inputs();
    C sum = 0;
    for (I c = 0; c < wk.count; ++c) {
      const I row = (wk.start + c * step) * v.h.in;
      const C weight = c == 0 ? wk.first : wk.rest;
      for_window<Kind, Lanes>(v.h, v.w, wi, wj, [&](I i, I j, I a, I b) {
        sum += weight *
               ((a == 0 ? wi.first : wi.rest) * ((b == 0 ? wj.first : wj.rest) * widen(from[(row + i) * v.w.in + j])));
      });
    }
    if constexpr (Lanes > 1) sum = warp_reduce(sum, Sum());
    if (Lanes == 1 || threadIdx.x % kWarp == 0) y[e] = narrow<T>(sum);
  });
}

template <class T, AxisKind Kind, class I>
__global__ void __launch_bounds__(kThreads) transposed3_kernel(Volume<I> v, const T* y, T* x) {
  using C = compute_t<T>;
  for_elements<1>(v.grid.total, [&](int64_t e) {
    const auto at = v.at(e);
    const auto deep = pool::outputs_of<Kind>(v.d, at.k), rows = pool::outputs_of<Kind>(v.h, at.i),
               cols = pool::outputs_of<Kind>(v.w, at.j);
    const T* from = y + at.plane * v.outputs();
    C sum = 0, wk, wi, wj;
    for (I k = deep.low; k <= deep.high; ++k) {
      if (!pool::covers<Kind>(v.d, k, at.k, wk)) continue;
      for (I i = rows.low; i <= rows.high; ++i) {
        if (!pool::covers<Kind>(v.h, i, at.i, wi)) continue;
        const T* row = from + (k * v.h.out + i) * v.w.out;
        for (I j = cols.low; j <= cols.high; ++j)
          if (pool::covers<Kind>(v.w, j, at.j, wj)) sum += widen(row[j]) * wk * wi * wj;
      }
    }
    x[e] = narrow<T>(sum);
  });
}

template <class T, AxisKind Kind, int Lanes, class I>
__global__ void __launch_bounds__(kThreads) max3_kernel(Volume<I> v, const T* x, T* y, int64_t* positions) {
  using C = compute_t<T>;
  for_elements<Lanes>(v.grid.total, [&](int64_t e) {
    const auto at = v.at(e);
    const auto wk = pool::window<Kind, float>(v.d, at.k), wi = pool::window<Kind, float>(v.h, at.i),
               wj = pool::window<Kind, float>(v.w, at.j);
    const I step = Kind == AxisKind::pool ? v.d.dilation : 1;
    const T* from = x + at.plane * v.inputs();
    C best = -std::numeric_limits<C>::infinity();
    I best_at = -1;
    for (I c = 0; c < wk.count; ++c) {
      const I row = (wk.start + c * step) * v.h.in;
      for_window<Kind, Lanes>(v.h, v.w, wi, wj, [&](I i, I j, I, I) {
        const I here = (row + i) * v.w.in + j;
        const C value = widen(from[here]);
        if constexpr (Lanes == 1) {  // in their order
          if (value > best || best_at < 0 || (value != value && best == best)) best = value, best_at = here;
        } else {
          if (beats(value, here, best, best_at)) best = value, best_at = here;
        }
      });
    }
    if constexpr (Lanes > 1) {
      best_of_warp(best, best_at);
      if (threadIdx.x % kWarp != 0) return;
    }
    y[e] = narrow<T>(best);
    positions[e] = best_at;
  });
}

// Each input looks at the windows that it lies in.
template <class T, class I>
__global__ void __launch_bounds__(kThreads)
    max_backward_kernel(Volume<I> v, const T* g, const int64_t* positions, T* x) {
  for_elements<1>(v.grid.total, [&](int64_t e) {
    const auto at = v.at(e);
    const auto deep = pool::outputs_of<AxisKind::pool>(v.d, at.k), rows = pool::outputs_of<AxisKind::pool>(v.h, at.i),
               cols = pool::outputs_of<AxisKind::pool>(v.w, at.j);
    const int64_t plane = at.plane * v.outputs();
    const I here = (at.k * v.h.in + at.i) * v.w.in + at.j;
    compute_t<T> sum = 0;
    for (I k = deep.low; k <= deep.high; ++k)
      for (I i = rows.low; i <= rows.high; ++i)
        for (I j = cols.low; j <= cols.high; ++j) {
          const int64_t o = plane + (k * v.h.out + i) * v.w.out + j;
          if (positions[o] == here) sum += widen(g[o]);
        }
    x[e] = narrow<T>(sum);
  });
}

// Calls f(volume) with indices of 32 bits where they hold every number.
template <class F>
void with_volume(const Axes& axes, int64_t planes, bool inputs, F&& f) {
  if (!is_narrow(axes)) return f(Volume<int64_t>(axes, planes, inputs));
  f(Volume<int32_t>(std::array{narrow_axis(axes[0]), narrow_axis(axes[1]), narrow_axis(axes[2])}, planes, inputs));
}

}  // namespace

void pool::resample3_cuda(const Axes& axes, int64_t planes, DType t, const void* x, void* y) {
  with_volume(axes, planes, false, [&]<class I>(const Volume<I>& v) {
    if (v.grid.total == 0) return;
    dispatch_floats(t, "resample", [&]<class T>() {
      const auto run = [&]<AxisKind K, int Lanes>() {
        resample3_kernel<T, K, Lanes><<<blocks_of<Lanes>(v.grid.total), kThreads, 0, stream()>>>(
            v, static_cast<const T*>(x), static_cast<T*>(y));
      };
      dispatch_kind(axes[0].kind, [&]<AxisKind K>() {
        if constexpr (K != AxisKind::resize && sizeof(I) == 4) {
          if (many_inputs(axes[1], axes[2])) return run.template operator()<K, kWarp>();
        }
        run.template operator()<K, 1>();
      });
    });
  });
}

void pool::resample3_transposed_cuda(const Axes& axes, int64_t planes, DType t, const void* y, void* x) {
  with_volume(axes, planes, true, [&]<class I>(const Volume<I>& v) {
    if (v.grid.total == 0) return;
    dispatch_floats(t, "resample", [&]<class T>() {
      dispatch_kind(axes[0].kind, [&]<AxisKind K>() {
        transposed3_kernel<T, K>
            <<<blocks_of<1>(v.grid.total), kThreads, 0, stream()>>>(v, static_cast<const T*>(y), static_cast<T*>(x));
      });
    });
  });
}

void pool::window_max3_cuda(const Axes& axes, int64_t planes, DType t, const void* x, void* y, int64_t* positions) {
  with_volume(axes, planes, false, [&]<class I>(const Volume<I>& v) {
    if (v.grid.total == 0) return;
    dispatch_floats(t, "max_pool", [&]<class T>() {
      const auto run = [&]<AxisKind K, int Lanes>() {
        max3_kernel<T, K, Lanes><<<blocks_of<Lanes>(v.grid.total), kThreads, 0, stream()>>>(
            v, static_cast<const T*>(x), static_cast<T*>(y), positions);
      };
      const auto by_size = [&]<AxisKind K>() {
        if constexpr (sizeof(I) == 4) {
          if (many_inputs(axes[1], axes[2])) return run.template operator()<K, kWarp>();
        }
        run.template operator()<K, 1>();
      };
      if (axes[0].kind == AxisKind::pool) return by_size.template operator()<AxisKind::pool>();
      by_size.template operator()<AxisKind::adaptive>();
    });
  });
}

void max_backward_cuda(const Axes& axes, int64_t planes, DType t, const void* g, const int64_t* positions, void* x) {
  with_volume(axes, planes, true, [&]<class I>(const Volume<I>& v) {
    if (v.grid.total == 0) return;
    dispatch_floats(t, "max_pool_backward", [&]<class T>() {
      max_backward_kernel<T><<<blocks_of<1>(v.grid.total), kThreads, 0, stream()>>>(v, static_cast<const T*>(g),
                                                                                    positions, static_cast<T*>(x));
    });
  });
}

}  // namespace strata
