// Pooling and resizing of images whose channels lie innermost: a thread has some channels of an element, so that a
// window's place is computed once for them. Sums have the order of pool.cu's.

#include "strata/ops/pool/pool_cuda.cuh"

namespace strata {
namespace {
using namespace cuda;
using namespace pool;

// Elements of [images, rows, cols, pieces of V channels] by number.
struct LastGrid {
  Grid pixels;
  Divisor by_piece;
  int64_t total, channels;
  LastGrid(int64_t images, int64_t rows, int64_t cols, int64_t c, int v)
      : pixels(images, rows, cols), by_piece(c / v), total(pixels.total * (c / v)), channels(c) {}

  struct At {
    Grid::At<int32_t> pixel;
    int64_t channel;
  };
  template <int V>
  __device__ __forceinline__ At at(int64_t e) const {
    int64_t piece;
    const int64_t pixel = by_piece.split(e, piece);
    return {pixels.at<int32_t>(pixel), piece * V};
  }
};
using Line = BasicAxis<int32_t>;

template <class T, AxisKind Kind, int Lanes, int V>
__global__ void __launch_bounds__(kThreads) resample_last_kernel(Line h, Line w, LastGrid out, const T* x, T* y) {
  using C = compute_t<T>;
  for_elements<Lanes>(out.total, [&](int64_t e) {
    const auto [at, channel] = out.at<V>(e);
    const auto wi = pool::window<Kind, C>(h, at.i), wj = pool::window<Kind, C>(w, at.j);
    const T* from = x + at.plane * h.in * w.in * out.channels + channel;
    C sum[V] = {};
    for_window<Kind, Lanes>(h, w, wi, wj, [&](int i, int j, int a, int b) {
      const auto v = load_vec<V>(from + static_cast<int64_t>(i * w.in + j) * out.channels);
      const C down = a == 0 ? wi.first : wi.rest, right = b == 0 ? wj.first : wj.rest;
#pragma unroll
      for (int k = 0; k < V; ++k) sum[k] += down * (right * widen(v.v[k]));
    });
    Vec<T, V> r;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      if constexpr (Lanes > 1) sum[k] = warp_reduce(sum[k], Sum());
      r.v[k] = narrow<T>(sum[k]);
    }
    if (Lanes == 1 || threadIdx.x % kWarp == 0) store_vec(y + e * V, r);
  });
}

template <class T, AxisKind Kind, int V>
__global__ void __launch_bounds__(kThreads) transposed_last_kernel(Line h, Line w, LastGrid in, const T* y, T* x) {
  using C = compute_t<T>;
  for_elements<1>(in.total, [&](int64_t e) {
    const auto [at, channel] = in.at<V>(e);
    const pool::Outputs<int32_t> rows = pool::outputs_of<Kind>(h, at.i), cols = pool::outputs_of<Kind>(w, at.j);
    const T* from = y + at.plane * h.out * w.out * in.channels + channel;
    C sum[V] = {}, wi, wj;
    for (int i = rows.low; i <= rows.high; ++i) {
      if (!pool::covers<Kind>(h, i, at.i, wi)) continue;
      for (int j = cols.low; j <= cols.high; ++j) {
        if (!pool::covers<Kind>(w, j, at.j, wj)) continue;
        const auto v = load_vec<V>(from + static_cast<int64_t>(i * w.out + j) * in.channels);
#pragma unroll
        for (int k = 0; k < V; ++k) sum[k] += widen(v.v[k]) * wi * wj;
      }
    }
    Vec<T, V> r;
#pragma unroll
    for (int k = 0; k < V; ++k) r.v[k] = narrow<T>(sum[k]);
    store_vec(x + e * V, r);
  });
}

template <class T, AxisKind Kind, int V>
__global__ void __launch_bounds__(kThreads)
    max_last_kernel(Line h, Line w, LastGrid out, const T* x, T* y, int64_t* positions) {
  using C = compute_t<T>;
  for_elements<1>(out.total, [&](int64_t e) {
    const auto [at, channel] = out.at<V>(e);
    const auto wi = pool::window<Kind, float>(h, at.i), wj = pool::window<Kind, float>(w, at.j);
    const T* from = x + at.plane * h.in * w.in * out.channels + channel;
    C best[V];
    int best_at[V];
#pragma unroll
    for (int k = 0; k < V; ++k) best[k] = -std::numeric_limits<C>::infinity(), best_at[k] = -1;
    for_window<Kind, 1>(h, w, wi, wj, [&](int i, int j, int, int) {
      const int here = i * w.in + j;
      const auto v = load_vec<V>(from + static_cast<int64_t>(here) * out.channels);
#pragma unroll
      for (int k = 0; k < V; ++k) {
        const C value = widen(v.v[k]);
        if (value > best[k] || best_at[k] < 0 || (value != value && best[k] == best[k]))
          best[k] = value, best_at[k] = here;
      }
    });
    Vec<T, V> r;
#pragma unroll
    for (int k = 0; k < V; ++k) {
      r.v[k] = narrow<T>(best[k]);
      positions[e * V + k] = best_at[k];
    }
    store_vec(y + e * V, r);
  });
}

template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    max_backward_last_kernel(Line h, Line w, LastGrid in, const T* g, const int64_t* positions, T* x) {
  using C = compute_t<T>;
  for_elements<1>(in.total, [&](int64_t e) {
    const auto [at, channel] = in.at<V>(e);
    const auto rows = pool::outputs_of<AxisKind::pool>(h, at.i), cols = pool::outputs_of<AxisKind::pool>(w, at.j);
    const int64_t first = at.plane * h.out * w.out * in.channels + channel;
    const int here = at.i * w.in + at.j;
    C sum[V] = {};
    float weight;
    for (int i = rows.low; i <= rows.high; ++i) {
      if (!pool::covers<AxisKind::pool>(h, i, at.i, weight)) continue;
      for (int j = cols.low; j <= cols.high; ++j) {
        if (!pool::covers<AxisKind::pool>(w, j, at.j, weight)) continue;
        const int64_t from = first + static_cast<int64_t>(i * w.out + j) * in.channels;
        const auto v = load_vec<V>(g + from);
#pragma unroll
        for (int k = 0; k < V; ++k)
          if (positions[from + k] == here) sum[k] += widen(v.v[k]);
      }
    }
    Vec<T, V> r;
#pragma unroll
    for (int k = 0; k < V; ++k) r.v[k] = narrow<T>(sum[k]);
    store_vec(x + e * V, r);
  });
}

// Calls f.operator()<T, V>() with how many channels a thread has.
template <class F>
void by_channels(std::string_view op, DType t, int64_t channels, bool aligned, F&& f) {
  dispatch_floats(t, op, [&]<class T>() {
    if (aligned && channels % kVec<T> == 0) return f.template operator()<T, kVec<T>>();
    f.template operator()<T, 1>();
  });
}

}  // namespace

bool resample_last_cuda(const Axes& axes, int64_t images, int64_t channels, DType t, const void* x, void* y) {
  if (!is_narrow(axes)) return false;
  const Line h = narrow_axis(axes[1]), w = narrow_axis(axes[2]);
  const bool many = h.kind != AxisKind::resize && many_inputs(axes[1], axes[2]);
  by_channels("resample", t, channels, aligned16(x) && aligned16(y), [&]<class T, int V>() {
    const LastGrid out(images, h.out, w.out, channels, V);
    if (out.total == 0) return;
    dispatch_kind(h.kind, [&]<AxisKind K>() {
      if constexpr (K != AxisKind::resize) {
        if (many) {
          resample_last_kernel<T, K, kWarp, V><<<blocks_of<kWarp>(out.total), kThreads, 0, stream()>>>(
              h, w, out, static_cast<const T*>(x), static_cast<T*>(y));
          return;
        }
      }
      resample_last_kernel<T, K, 1, V>
          <<<blocks_of<1>(out.total), kThreads, 0, stream()>>>(h, w, out, static_cast<const T*>(x), static_cast<T*>(y));
    });
  });
  return true;
}

bool resample_transposed_last_cuda(const Axes& axes, int64_t images, int64_t channels, DType t, const void* y,
                                   void* x) {
  if (!is_narrow(axes)) return false;
  const Line h = narrow_axis(axes[1]), w = narrow_axis(axes[2]);
  by_channels("resample", t, channels, aligned16(x) && aligned16(y), [&]<class T, int V>() {
    const LastGrid in(images, h.in, w.in, channels, V);
    if (in.total == 0) return;
    dispatch_kind(h.kind, [&]<AxisKind K>() {
      transposed_last_kernel<T, K, V>
          <<<blocks_of<1>(in.total), kThreads, 0, stream()>>>(h, w, in, static_cast<const T*>(y), static_cast<T*>(x));
    });
  });
  return true;
}

bool window_max_last_cuda(const Axes& axes, int64_t images, int64_t channels, DType t, const void* x, void* y,
                          int64_t* positions) {
  if (!is_narrow(axes)) return false;
  const Line h = narrow_axis(axes[1]), w = narrow_axis(axes[2]);
  by_channels("max_pool", t, channels, aligned16(x) && aligned16(y), [&]<class T, int V>() {
    const LastGrid out(images, h.out, w.out, channels, V);
    if (out.total == 0) return;
    const auto run = [&]<AxisKind K>() {
      max_last_kernel<T, K, V><<<blocks_of<1>(out.total), kThreads, 0, stream()>>>(h, w, out, static_cast<const T*>(x),
                                                                                   static_cast<T*>(y), positions);
    };
    h.kind == AxisKind::pool ? run.template operator()<AxisKind::pool>()
                             : run.template operator()<AxisKind::adaptive>();
  });
  return true;
}

bool max_backward_last_cuda(const Axes& axes, int64_t images, int64_t channels, DType t, const void* g,
                            const int64_t* positions, void* x) {
  if (!is_narrow(axes)) return false;
  const Line h = narrow_axis(axes[1]), w = narrow_axis(axes[2]);
  by_channels("max_pool_backward", t, channels, aligned16(g) && aligned16(x), [&]<class T, int V>() {
    const LastGrid in(images, h.in, w.in, channels, V);
    if (in.total == 0) return;
    max_backward_last_kernel<T, V><<<blocks_of<1>(in.total), kThreads, 0, stream()>>>(
        h, w, in, static_cast<const T*>(g), positions, static_cast<T*>(x));
  });
  return true;
}

}  // namespace strata
