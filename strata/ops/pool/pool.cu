// Pooling and resizing on a CUDA device. Every element of a result gathers what belongs to it, in a fixed order, so
// that gradients have the same bits every time. Windows are computed where they are used, never stored.

#include "strata/core/tensor.h"
#include "strata/cuda/current.h"
#include "strata/ops/pool/pool_cuda.cuh"

namespace strata {
namespace {
using namespace cuda;
using namespace pool;

template <class T, AxisKind Kind, int Lanes, class I>
__global__ void __launch_bounds__(kThreads)
    resample_kernel(BasicAxis<I> h, BasicAxis<I> w, Grid out, const T* x, T* y) {
  using C = compute_t<T>;
  for_elements<Lanes>(out.total, [&](int64_t e) {
    const auto at = out.at<I>(e);
    const auto wi = pool::window<Kind, C>(h, at.i), wj = pool::window<Kind, C>(w, at.j);
    const T* from = x + at.plane * h.in * w.in;
    C sum = 0;
    for_values<Kind, Lanes, false>(h, w, wi, wj, from, [&](T v, I, I, I a, I b) {
      sum += (a == 0 ? wi.first : wi.rest) * ((b == 0 ? wj.first : wj.rest) * widen(v));
    });
    if constexpr (Lanes > 1) sum = warp_reduce(sum, Sum());
    if (Lanes == 1 || threadIdx.x % kWarp == 0) y[e] = narrow<T>(sum);
  });
}

// What input (i, j) of a plane gets from the outputs in whose windows it lies, which begin at `from`.
template <class T, AxisKind Kind, class I>
__device__ __forceinline__ compute_t<T> transposed_at(const BasicAxis<I>& h, const BasicAxis<I>& w, I at_i, I at_j,
                                                      const T* from) {
  using C = compute_t<T>;
  constexpr int kFew = 4;
  const pool::Outputs<I> rows = pool::outputs_of<Kind>(h, at_i);
  pool::Outputs<I> cols = pool::outputs_of<Kind>(w, at_j);
  C sum = 0, wi, wj[kFew] = {};
  while (cols.low <= cols.high && !pool::covers<Kind>(w, cols.low, at_j, wj[0])) ++cols.low;
  if (cols.high - cols.low < 2 * kFew) {
    // The columns' weights serve every row.
    while (cols.high > cols.low && !pool::covers<Kind>(w, cols.high, at_j, wj[1])) --cols.high;
  }
  if (cols.high - cols.low < kFew) {
    bool has[kFew];
#pragma unroll
    for (int u = 0; u < kFew; ++u)
      has[u] = cols.low + u <= cols.high && pool::covers<Kind>(w, static_cast<I>(cols.low + u), at_j, wj[u]);
    for (I i = rows.low; i <= rows.high; ++i) {
      if (!pool::covers<Kind>(h, i, at_i, wi)) continue;
#pragma unroll
      for (int u = 0; u < kFew; ++u)
        if (has[u]) sum += widen(from[i * w.out + cols.low + u]) * wi * wj[u];
    }
  } else {
    for (I i = rows.low; i <= rows.high; ++i) {
      if (!pool::covers<Kind>(h, i, at_i, wi)) continue;
      for (I j = cols.low; j <= cols.high; ++j)
        if (pool::covers<Kind>(w, j, at_j, wj[0])) sum += widen(from[i * w.out + j]) * wi * wj[0];
    }
  }
  return sum;
}

template <class T, AxisKind Kind, class I>
__global__ void __launch_bounds__(kThreads)
    transposed_kernel(BasicAxis<I> h, BasicAxis<I> w, Grid in, const T* y, T* x) {
  for_elements<1>(in.total, [&](int64_t e) {
    const auto at = in.at<I>(e);
    x[e] = narrow<T>(transposed_at<T, Kind>(h, w, at.i, at.j, y + at.plane * h.out * w.out));
  });
}

// The same where a plane's rows and columns are few: each block works out once which outputs have each of them, and
// the weights. What more than kMostOutputs have is worked out for each element.
constexpr int kMostOutputs = 4, kMostTable = 40 << 10;
template <class C>
struct LineOutputs {
  int32_t low, has;  // the first output, a bit for it and each of the next; has is 0 where they are too many
  C weight[kMostOutputs];
};
template <class C, AxisKind Kind>
__device__ __forceinline__ LineOutputs<C> line_outputs(const BasicAxis<int32_t>& a, int32_t j) {
  pool::Outputs<int32_t> range = pool::outputs_of<Kind>(a, j);
  LineOutputs<C> r{};
  C weight;
  while (range.low <= range.high && !pool::covers<Kind>(a, range.low, j, weight)) ++range.low;
  while (range.high > range.low && !pool::covers<Kind>(a, range.high, j, weight)) --range.high;
  r.low = range.low;
  if (range.high - range.low >= kMostOutputs) return r;
  for (int u = 0; u < kMostOutputs; ++u) {
    const int32_t i = range.low + u;
    if (i > range.high || !pool::covers<Kind>(a, i, j, weight)) continue;
    r.has |= 1 << u;
    r.weight[u] = weight;
  }
  if (r.has == 0) r.has = 1 << kMostOutputs;  // in no window
  return r;
}

template <class T, AxisKind Kind>
__global__ void __launch_bounds__(kThreads)
    transposed_table_kernel(BasicAxis<int32_t> h, BasicAxis<int32_t> w, Grid in, const T* y, T* x) {
  using C = compute_t<T>;
  extern __shared__ uint4 table_room[];
  auto* const rows = reinterpret_cast<LineOutputs<C>*>(table_room);
  auto* const cols = rows + h.in;
  for (int k = static_cast<int>(threadIdx.x); k < h.in + w.in; k += kThreads)
    rows[k] = k < h.in ? line_outputs<C, Kind>(h, k) : line_outputs<C, Kind>(w, k - h.in);
  __syncthreads();
  for_elements<1>(in.total, [&](int64_t e) {
    const auto at = in.at<int32_t>(e);
    const T* const from = y + at.plane * h.out * w.out;
    const LineOutputs<C>&row = rows[at.i], &col = cols[at.j];
    if (row.has == 0 || col.has == 0) {
      x[e] = narrow<T>(transposed_at<T, Kind>(h, w, at.i, at.j, from));
      return;
    }
    C sum = 0;
#pragma unroll
    for (int a = 0; a < kMostOutputs; ++a) {
      if ((row.has >> a & 1) == 0) continue;
      const T* const line = from + (row.low + a) * w.out + col.low;
#pragma unroll
      for (int b = 0; b < kMostOutputs; ++b)
        if ((col.has >> b & 1) != 0) sum += widen(line[b]) * row.weight[a] * col.weight[b];
    }
    x[e] = narrow<T>(sum);
  });
}

template <class T, AxisKind Kind, int Lanes, class I>
__global__ void __launch_bounds__(kThreads)
    max_kernel(BasicAxis<I> h, BasicAxis<I> w, Grid out, const T* x, T* y, int64_t* positions) {
  using C = compute_t<T>;
  for_elements<Lanes>(out.total, [&](int64_t e) {
    const auto at = out.at<I>(e);
    const auto wi = pool::window<Kind, float>(h, at.i), wj = pool::window<Kind, float>(w, at.j);
    const T* from = x + at.plane * h.in * w.in;
    C best = -std::numeric_limits<C>::infinity();
    I best_at = -1;
    for_values<Kind, Lanes, false>(h, w, wi, wj, from, [&](T value, I i, I j, I, I) {
      const I here = i * w.in + j;
      const C v = widen(value);
      if constexpr (Lanes == 1) {  // in their order
        if (v > best || best_at < 0 || (v != v && best == best)) best = v, best_at = here;
      } else {
        if (beats(v, here, best, best_at)) best = v, best_at = here;
      }
    });
    if constexpr (Lanes > 1) {
      best_of_warp(best, best_at);
      if (threadIdx.x % kWarp != 0) return;
    }
    y[e] = narrow<T>(best);
    positions[e] = best_at;
  });
}

// A block has as many places of a plane as its shared memory, and looks at all of the plane's positions: each value
// goes to its place, which it claims by a bit. A plane in which two claim one place is left to scatter_kernel.
constexpr int kPlaceThreads = 512, kPlaceBytes = 72 << 10, kLeastPlaces = 2048, kManyBlocks = 264;
constexpr int64_t kFewPlaces = 1024;  // fewer in a plane are not worth a block

template <class T>
__global__ void __launch_bounds__(kPlaceThreads)
    place_kernel(int64_t tasks, int64_t pieces, int piece, int64_t in, int64_t out, const T* y,
                 const int64_t* positions, T* x, int* repeated) {
  extern __shared__ uint4 room[];
  T* values = reinterpret_cast<T*>(room);
  auto* claimed = reinterpret_cast<unsigned*>(values + piece);  // pieces are multiples of 32
  const int words = piece * static_cast<int>(sizeof(T)) / 4 + piece / 32;
  for (int64_t task = blockIdx.x; task < tasks; task += gridDim.x) {
    const int64_t plane = task / pieces, first = (task - plane * pieces) * piece;
    const int size = static_cast<int>(pool::least<int64_t>(piece, in - first));
    for (int i = static_cast<int>(threadIdx.x); i < words; i += kPlaceThreads) reinterpret_cast<unsigned*>(room)[i] = 0;
    __syncthreads();
    for (int64_t k = threadIdx.x; k < out; k += kPlaceThreads) {
      const int64_t at = positions[plane * out + k] - first;
      if (at < 0 || at >= size) continue;
      const unsigned bit = 1u << (at % 32);
      if ((atomicOr(claimed + at / 32, bit) & bit) != 0)
        repeated[plane] = 1;
      else
        values[at] = y[plane * out + k];
    }
    __syncthreads();
    T* to = x + plane * in + first;
    for (int i = static_cast<int>(threadIdx.x); i < size; i += kPlaceThreads) to[i] = values[i];
    __syncthreads();
  }
}

// A warp owns a piece of a plane: it looks at all positions of the plane in their order and adds up, in shared memory,
// what falls into its piece. Lanes with the same position leave their sum to the first of them. With `repeated` it does
// so for planes alone of which that is said.
constexpr int kScatterWarps = 8;
constexpr int kPieceBytes = 6144;

template <class T>
__global__ void __launch_bounds__(kScatterWarps* kWarp)
    scatter_kernel(int64_t tasks, int64_t pieces, int64_t in, int64_t out, const T* y, const int64_t* positions, T* x,
                   const int* repeated) {
  using C = compute_t<T>;
  constexpr int kPiece = kPieceBytes / sizeof(C);
  __shared__ C shared[kScatterWarps][kPiece];
  const int lane = static_cast<int>(threadIdx.x) % kWarp, warp = static_cast<int>(threadIdx.x) / kWarp;
  C* sums = shared[warp];
  for (int64_t task = static_cast<int64_t>(blockIdx.x) * kScatterWarps + warp; task < tasks;
       task += static_cast<int64_t>(gridDim.x) * kScatterWarps) {
    const int64_t plane = task / pieces, first = (task - plane * pieces) * kPiece;
    if (repeated != nullptr && repeated[plane] == 0) continue;
    const int size = static_cast<int>(pool::least<int64_t>(kPiece, in - first));
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

// Few values a plane: each place looks at all of its plane's positions, in their order.
constexpr int64_t kFewValues = 16;
template <class T>
__global__ void __launch_bounds__(kThreads)
    look_kernel(Grid result, int64_t out, const T* y, const int64_t* positions, T* x) {
  for_elements<1>(result.total, [&](int64_t e) {
    int64_t at;
    const int64_t first = result.plane.split(e, at) * out;
    compute_t<T> sum = 0;
    for (int64_t k = first; k < first + out; ++k)
      if (positions[k] == at) sum += widen(y[k]);
    x[e] = narrow<T>(sum);
  });
}

template <class T>
void place(int64_t planes, int64_t in, int64_t out, const T* y, const int64_t* positions, T* x, int* repeated) {
  constexpr int64_t kMost = kPlaceBytes * 8 / (8 * static_cast<int64_t>(sizeof(T)) + 1) / 32 * 32;
  // Planes are cut where there are few; each part looks at all positions.
  const int64_t fair = std::max<int64_t>(planes * in / kManyBlocks, kLeastPlaces);
  const int64_t piece = std::min({kMost, (fair + 31) / 32 * 32, (in + 31) / 32 * 32});
  const int64_t pieces = (in + piece - 1) / piece, tasks = planes * pieces;
  const auto bytes = static_cast<int>(piece * static_cast<int64_t>(sizeof(T)) + piece / 8);
  check_cuda(cudaFuncSetAttribute(place_kernel<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, kPlaceBytes),
             "plane_scatter", "cudaFuncSetAttribute");
  place_kernel<T><<<static_cast<unsigned>(std::min<int64_t>(tasks, kMostBlocks)), kPlaceThreads, bytes, stream()>>>(
      tasks, pieces, static_cast<int>(piece), in, out, y, positions, x, repeated);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    gather_kernel(Grid result, int64_t in, const T* x, const int64_t* positions, T* y) {
  for_elements<1>(result.total, [&](int64_t e) {
    const int64_t at = positions[e];
    int64_t rest;
    y[e] = at >= 0 && at < in ? x[result.plane.split(e, rest) * in + at] : narrow<T>(compute_t<T>(0));
  });
}

// Depth and height as one where windows take both whole.
Axes flattened(Axes a) {
  if (a[0].kind == AxisKind::adaptive && a[0].out == 1 && a[1].out == 1) {
    a[1].in *= a[0].in;
    a[0] = Axis::unit(AxisKind::adaptive);
  }
  return a;
}
bool is_flat(const Axes& axes) {
  const Axis& d = axes[0];
  return d.in == 1 && d.out == 1 && (d.kind != AxisKind::pool || (d.kernel == 1 && d.padding == 0));
}

}  // namespace

void resample_cuda(const Axes& given, int64_t planes, DType t, const void* x, void* y) {
  const Axes axes = flattened(given);
  if (!is_flat(axes)) return resample3_cuda(axes, planes, t, x, y);
  const auto& [d, h, w] = axes;
  const Grid out(planes, h.out, w.out);
  if (out.total == 0) return;
  const auto run = [&]<class T, AxisKind K, int Lanes>(const auto& rows, const auto& cols) {
    resample_kernel<T, K, Lanes><<<blocks_of<Lanes>(out.total), kThreads, 0, stream()>>>(
        rows, cols, out, static_cast<const T*>(x), static_cast<T*>(y));
  };
  dispatch_floats(t, "resample", [&]<class T>() {
    dispatch_kind(h.kind, [&]<AxisKind K>() {
      if (!is_narrow(axes)) return run.template operator()<T, K, 1>(h, w);
      const auto rows = narrow_axis(h), cols = narrow_axis(w);
      if constexpr (K != AxisKind::resize) {
        if (many_inputs(h, w)) return run.template operator()<T, K, kWarp>(rows, cols);
      }
      run.template operator()<T, K, 1>(rows, cols);
    });
  });
}

void resample_transposed_cuda(const Axes& given, int64_t planes, DType t, const void* y, void* x) {
  const Axes axes = flattened(given);
  if (!is_flat(axes)) return resample3_transposed_cuda(axes, planes, t, y, x);
  const auto& [d, h, w] = axes;
  const Grid in(planes, h.in, w.in);
  if (in.total == 0) return;
  const auto run = [&]<class T, AxisKind K>(const auto& rows, const auto& cols) {
    transposed_kernel<T, K><<<blocks_of<1>(in.total), kThreads, 0, stream()>>>(rows, cols, in, static_cast<const T*>(y),
                                                                               static_cast<T*>(x));
  };
  dispatch_floats(t, "resample", [&]<class T>() {
    dispatch_kind(h.kind, [&]<AxisKind K>() {
      if (!is_narrow(axes)) return run.template operator()<T, K>(h, w);
      const auto rows = narrow_axis(h), cols = narrow_axis(w);
      const int64_t bytes = (h.in + w.in) * static_cast<int64_t>(sizeof(LineOutputs<compute_t<T>>));
      // Blocks that have enough elements for what their tables cost.
      const int64_t blocks = std::min<int64_t>(in.total / (4 * std::max<int64_t>(kThreads, h.in + w.in)), 1 << 12);
      if (bytes > kMostTable || blocks < 1) return run.template operator()<T, K>(rows, cols);
      transposed_table_kernel<T, K><<<static_cast<unsigned>(blocks), kThreads, static_cast<size_t>(bytes), stream()>>>(
          rows, cols, in, static_cast<const T*>(y), static_cast<T*>(x));
    });
  });
}

void window_max_cuda(const Axes& given, int64_t planes, DType t, const void* x, void* y, int64_t* positions) {
  const Axes axes = flattened(given);
  if (!is_flat(axes)) return window_max3_cuda(axes, planes, t, x, y, positions);
  const auto& [d, h, w] = axes;
  const Grid out(planes, h.out, w.out);
  if (out.total == 0) return;
  const auto run = [&]<class T, AxisKind K, int Lanes>(const auto& rows, const auto& cols) {
    max_kernel<T, K, Lanes><<<blocks_of<Lanes>(out.total), kThreads, 0, stream()>>>(
        rows, cols, out, static_cast<const T*>(x), static_cast<T*>(y), positions);
  };
  const auto by_size = [&]<class T, AxisKind K>() {
    if (!is_narrow(axes)) return run.template operator()<T, K, 1>(h, w);
    const auto rows = narrow_axis(h), cols = narrow_axis(w);
    if (many_inputs(h, w)) return run.template operator()<T, K, kWarp>(rows, cols);
    run.template operator()<T, K, 1>(rows, cols);
  };
  dispatch_floats(t, "max_pool", [&]<class T>() {
    if (h.kind == AxisKind::pool) return by_size.template operator()<T, AxisKind::pool>();
    by_size.template operator()<T, AxisKind::adaptive>();
  });
}

void plane_scatter_cuda(int64_t planes, int64_t in, int64_t out, DType t, const void* y, const int64_t* positions,
                        void* x) {
  if (planes * in == 0) return;
  dispatch_floats(t, "plane_scatter", [&]<class T>() {
    if (out <= kFewValues) {
      const Grid result(planes, 1, in);
      look_kernel<T><<<blocks_of<1>(result.total), kThreads, 0, stream()>>>(result, out, static_cast<const T*>(y),
                                                                            positions, static_cast<T*>(x));
      return;
    }
    Tensor repeated;
    if (in >= kFewPlaces) {
      repeated = empty({{planes}, DType::i32, Device::cuda(current_device()), std::nullopt});
      check_cuda(cudaMemsetAsync(repeated.raw_data(), 0, static_cast<size_t>(repeated.nbytes()), stream()),
                 "plane_scatter", "cudaMemsetAsync");
      place<T>(planes, in, out, static_cast<const T*>(y), positions, static_cast<T*>(x),
               static_cast<int*>(repeated.raw_data()));
    }
    constexpr int64_t kPiece = kPieceBytes / sizeof(compute_t<T>);
    const int64_t pieces = (in + kPiece - 1) / kPiece, tasks = planes * pieces;
    const auto blocks =
        static_cast<unsigned>(std::min<int64_t>((tasks + kScatterWarps - 1) / kScatterWarps, kMostBlocks));
    scatter_kernel<T><<<blocks, kScatterWarps * kWarp, 0, stream()>>>(
        tasks, pieces, in, out, static_cast<const T*>(y), positions, static_cast<T*>(x),
        repeated.defined() ? static_cast<const int*>(repeated.raw_data()) : nullptr);
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
