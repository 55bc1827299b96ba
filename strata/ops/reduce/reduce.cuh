#pragma once
// Reductions on a CUDA device. The tensor is seen as [outer, n, inner] with n reduced. Rows (inner 1) are reduced by
// some lanes of a warp or by a block, columns by threads side by side and one below the other; where that leaves the
// card idle, n is cut into groups whose results a second kernel combines. Every order is fixed.
//
// A reducer R says what happens: types Acc and Shift; init(), step(acc, value, shift, position), combine(acc, acc),
// and write(index of the result, acc). One that has steps(acc, widened vector) too takes rows by vectors.

#include <algorithm>
#include <bit>

#include "strata/cuda/current.h"
#include "strata/cuda/row_loops.cuh"
#include "strata/ops/reduce/layout.h"

namespace strata::cuda {

namespace reduce_detail {
constexpr int kThreads = 256;
constexpr int kAhead = 4, kColumnsAhead = 2;  // loads under way in each thread
constexpr int kSecond = 8;                    // results of a block that adds up groups: few, for many blocks

// Blocks of a multiprocessor that run at once, with so many bytes of accumulators in each thread: as many are made, so
// that none are left for a second round.
constexpr int resident_blocks(int bytes) {
  return bytes <= 32 ? 6 : 3;
}

template <class R, class T>
inline constexpr bool kByVectors = requires(R r, typename R::Acc a, Vec<compute_t<T>, 1> v) {
  r.steps(a, v);
};

// `lanes` (a power of two to 32, or 256) threads take a row; group blockIdx.y takes `length` of its elements, which lie
// `step` apart, side by side if by vectors.
template <class R, class T>
__global__ void __launch_bounds__(kThreads)
    rows_kernel(R r, const T* x, int64_t rows, int64_t n, int64_t row_step, int64_t step, int64_t length, int lanes,
                bool vectors, const typename R::Shift* shift, typename R::Acc* partial) {
  using Acc = typename R::Acc;
  __shared__ Acc shared[kThreads / kWarp];
  const int lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (kThreads / lanes) + threadIdx.x / lanes;
  const bool active = row < rows;
  const int64_t begin = blockIdx.y * length, end = active ? (begin + length < n ? begin + length : n) : begin;
  const T* p = x + row * row_step;
  const typename R::Shift s = shift != nullptr && active ? shift[row] : typename R::Shift();
  Acc a[kAhead];
#pragma unroll
  for (int u = 0; u < kAhead; ++u) a[u] = r.init();
  const auto take = [&]<int V>(Acc& to, const Vec<T, V>& v, int64_t i) {
    if constexpr (kByVectors<R, T>) {
      r.steps(to, widen_all(v));
    } else {
#pragma unroll
      for (int k = 0; k < V; ++k) r.step(to, widen(v.v[k]), s, i + k);
    }
  };
  const auto load = [&]<int V>(std::integral_constant<int, V>, int64_t i) {
    return load_vec<V>(p + (V == 1 ? i * step : i));
  };
  const auto sweep = [&]<int V>(std::integral_constant<int, V> width) {
    const int64_t all = static_cast<int64_t>(lanes) * V;
    int64_t i = begin + lane * V;
    for (; i + (kAhead - 1) * all < end; i += kAhead * all) {
      Vec<T, V> v[kAhead];
#pragma unroll
      for (int u = 0; u < kAhead; ++u) v[u] = load(width, i + u * all);
#pragma unroll
      for (int u = 0; u < kAhead; ++u) take(a[u], v[u], i + u * all);
    }
    for (; i < end; i += all) take(a[0], load(width, i), i);
  };
  if (vectors)
    sweep(std::integral_constant<int, kVec<T>>());
  else
    sweep(std::integral_constant<int, 1>());
  Acc total = r.combine(r.combine(a[0], a[1]), r.combine(a[2], a[3]));
  for (int o = (lanes < kWarp ? lanes : kWarp) / 2; o > 0; o /= 2) total = r.combine(total, lane_xor(total, o));
  if (lanes > kWarp) {
    if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = total;
    __syncthreads();
    if (threadIdx.x == 0)
      for (int w = 1; w < kThreads / kWarp; ++w) total = r.combine(total, shared[w]);
  }
  if (lane != 0 || !active) return;
  if (partial != nullptr)
    partial[blockIdx.y * rows + row] = total;
  else
    r.write(row, total);
}

// Thread 0 of each column gets the combination over the `down` threads below it; blocks are [down][across].
template <class R>
__device__ __forceinline__ typename R::Acc combine_down(const R& r, typename R::Acc a, typename R::Acc* shared,
                                                        int across) {
  const int t = static_cast<int>(threadIdx.x);
  __syncthreads();
  shared[t] = a;
  __syncthreads();
  for (int half = kThreads / 2; half >= across; half /= 2) {
    if (t < half) shared[t] = r.combine(shared[t], shared[t + half]);
    __syncthreads();
  }
  return shared[t];
}

// Columns of all [n, inner] matrices side by side, V to a thread; the steps of outer, n and inner are given (the last
// is 1 where V is not).
template <class R, class T, int V>
__global__ void __launch_bounds__(kThreads, resident_blocks(sizeof(typename R::Acc) * V))
    columns_kernel(R r, const T* x, int64_t outer, int64_t n, int64_t inner, int64_t outer_step, int64_t step,
                   int64_t inner_step, int64_t length, int across, const typename R::Shift* shift,
                   typename R::Acc* partial) {
  using Acc = typename R::Acc;
  __shared__ Acc shared[kThreads * V];
  const int down = kThreads / across, ty = static_cast<int>(threadIdx.x) / across;
  const int64_t tiles = inner / V, column = static_cast<int64_t>(blockIdx.x) * across + threadIdx.x % across;
  const bool active = column < outer * tiles;
  const int64_t o = active ? column / tiles : 0, j = active ? column % tiles * V : 0, result = o * inner + j;
  const int64_t begin = blockIdx.y * length, end = active ? (begin + length < n ? begin + length : n) : begin;
  const T* p = x + o * outer_step + (V == 1 ? j * inner_step : j);
  Acc a[V];
  typename R::Shift s[V];
#pragma unroll
  for (int k = 0; k < V; ++k) {
    a[k] = r.init();
    s[k] = shift != nullptr && active ? shift[result + k] : typename R::Shift();
  }
  int64_t i = begin + ty;
  for (; i + (kColumnsAhead - 1) * down < end; i += kColumnsAhead * down) {
    Vec<T, V> v[kColumnsAhead];
#pragma unroll
    for (int u = 0; u < kColumnsAhead; ++u) v[u] = load_vec<V>(p + (i + u * down) * step);
#pragma unroll
    for (int u = 0; u < kColumnsAhead; ++u) {
      const auto x = widen_all(v[u]);
#pragma unroll
      for (int k = 0; k < V; ++k) r.step(a[k], x.v[k], s[k], i + u * down);
    }
  }
  for (; i < end; i += down) {
    const auto x = widen_all(load_vec<V>(p + i * step));
#pragma unroll
    for (int k = 0; k < V; ++k) r.step(a[k], x.v[k], s[k], i);
  }
  const auto write = [&](int64_t at, const Acc& total) {
    if (at >= outer * inner) return;
    if (partial != nullptr)
      partial[blockIdx.y * outer * inner + at] = total;
    else
      r.write(at, total);
  };
  if (down == 1) {
#pragma unroll
    for (int k = 0; k < V; ++k)
      if (active) write(result + k, a[k]);
    return;
  }
#pragma unroll
  for (int k = 0; k < V; ++k) shared[threadIdx.x * V + k] = a[k];
  __syncthreads();
  // A thread for each column: neighbouring threads' columns are neighbours, also from one matrix to the next.
  const int width = across * V;
#pragma unroll 1
  for (int c = static_cast<int>(threadIdx.x); c < width; c += kThreads) {
    Acc total = shared[c];
    for (int d = 1; d < down; ++d) total = r.combine(total, shared[d * width + c]);
    write(static_cast<int64_t>(blockIdx.x) * width + c, total);
  }
}

template <class R>
__global__ void __launch_bounds__(kThreads)
    groups_kernel(R r, const typename R::Acc* partial, int64_t results, int64_t groups, int across) {
  using Acc = typename R::Acc;
  __shared__ Acc shared[kThreads];
  const int down = kThreads / across, ty = static_cast<int>(threadIdx.x) / across;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * across + threadIdx.x % across;
  Acc a[kAhead];
#pragma unroll
  for (int u = 0; u < kAhead; ++u) a[u] = r.init();
  if (i < results) {
    int64_t g = ty;
    for (; g + (kAhead - 1) * down < groups; g += kAhead * down)
#pragma unroll
      for (int u = 0; u < kAhead; ++u) a[u] = r.combine(a[u], partial[(g + u * down) * results + i]);
    for (; g < groups; g += down) a[0] = r.combine(a[0], partial[g * results + i]);
  }
  const Acc total = combine_down(r, r.combine(r.combine(a[0], a[1]), r.combine(a[2], a[3])), shared, across);
  if (ty == 0 && i < results) r.write(i, total);
}

inline int64_t power_above(int64_t v) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(v, 1))));
}

template <class R, class T>
void reduce_with(const R& r, const ReduceLayout& l, const Tensor& shift = {}) {
  using Acc = typename R::Acc;
  const int64_t results = l.outer * l.inner;
  if (results == 0) return;
  const int64_t outer_step = l.gaps ? l.outer_step : l.n * l.inner, n_step = l.gaps ? l.n_step : l.inner;
  const int64_t inner_step = l.gaps ? l.inner_step : 1;
  const T* x = static_cast<const T*>(l.data.raw_data());
  const auto* s = shift.defined() ? static_cast<const typename R::Shift*>(shift.raw_data()) : nullptr;
  // Accumulators of two words fill the registers with one column each.
  constexpr int V = kVec<T>, kColumns = sizeof(Acc) > 8 ? 1 : std::min(V, 8);
  Tensor workspace;
  const auto cut = [&](int64_t blocks, int bytes, int64_t least) {  // into groups of at least that many elements
    const int64_t wanted = resident_blocks(bytes) * int64_t{properties(current_device()).multiprocessors};
    return std::clamp<int64_t>(wanted / blocks, 1, std::max<int64_t>(1, l.n / least));
  };
  const auto make_partial = [&](int64_t groups) -> Acc* {
    if (groups == 1 && !l.pieces) return nullptr;
    const int64_t bytes = groups * results * static_cast<int64_t>(sizeof(Acc));
    workspace = empty({Shape{bytes}, DType::u8, l.data.device(), std::nullopt});
    return static_cast<Acc*>(workspace.raw_data());
  };
  int64_t groups = 1;
  Acc* partial = nullptr;
  if (l.inner == 1) {
    const bool vectors = n_step == 1 && outer_step % V == 0 && l.n % V == 0 && aligned16(x);
    const int64_t one = l.gaps && !vectors ? 1 : V;  // what a lane takes at once
    // A warp of its own for each of many rows: its threads have several loads under way, and no barrier.
    const bool block = l.n > 2048 && (l.outer < 4096 || l.n > int64_t{32} * kWarp * V);
    const int lanes = block ? kThreads : static_cast<int>(std::min<int64_t>(kWarp, power_above((l.n + one - 1) / one)));
    const int64_t blocks = blocks_for(l.outer, kThreads / lanes);
    if (lanes == kThreads) groups = cut(blocks, sizeof(Acc), kThreads * V * kAhead);
    const int64_t length = (l.n + groups * V - 1) / (groups * V) * V;
    partial = make_partial(groups);
    rows_kernel<R, T><<<dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(groups)), kThreads, 0, stream()>>>(
        r, x, l.outer, l.n, outer_step, n_step, length, lanes, vectors, s, partial);
  } else {
    const bool wide = kColumns > 1 && inner_step == 1 && l.inner % kColumns == 0 && n_step % kColumns == 0 &&
                      outer_step % kColumns == 0 && aligned16(x);
    const int64_t columns = results / (wide ? kColumns : 1);
    const int64_t most_down = kThreads / std::min<int64_t>(kWarp, power_above(columns));
    const int64_t down = std::clamp<int64_t>(power_above(l.n / kAhead), 1, most_down), across = kThreads / down;
    const int64_t blocks = blocks_for(columns, across);
    groups = cut(blocks, static_cast<int>(sizeof(Acc)) * (wide ? kColumns : 1), down * kAhead * 4);
    const int64_t length = (l.n + groups - 1) / groups;
    partial = make_partial(groups);
    const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(groups));
    const auto launch = [&]<int N>(std::integral_constant<int, N>) {
      columns_kernel<R, T, N><<<grid, kThreads, 0, stream()>>>(
          r, x, l.outer, l.n, l.inner, outer_step, n_step, inner_step, length, static_cast<int>(across), s, partial);
    };
    if (wide)
      launch(std::integral_constant<int, kColumns>());
    else
      launch(std::integral_constant<int, 1>());
  }
  if (partial == nullptr) return;
  const int64_t left = l.pieces ? 1 : results, across = std::min<int64_t>(kSecond, power_above(left));
  groups_kernel<R><<<blocks_for(left, across), kThreads, 0, stream()>>>(r, partial, left, groups * (results / left),
                                                                        static_cast<int>(across));
}

// ---- reducers ----

/// What sums of T accumulate in: i64 for integers.
template <class T>
using Wide = std::conditional_t<std::is_integral_v<T>, int64_t, compute_t<T>>;

template <class A>
__device__ __forceinline__ A plus(A a, A b) {
  if constexpr (std::is_integral_v<A>)
    return static_cast<A>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  else
    return a + b;
}
template <class A>
__device__ __forceinline__ A times(A a, A b) {
  if constexpr (std::is_integral_v<A>)
    return static_cast<A>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  else
    return a * b;
}
/// The value that any other replaces.
template <class C, bool kLargest>
__device__ __forceinline__ C worst() {
  if constexpr (std::is_floating_point_v<C>)
    return static_cast<C>(kLargest ? -INFINITY : INFINITY);
  else
    return kLargest ? std::numeric_limits<C>::lowest() : std::numeric_limits<C>::max();
}

/// The larger (smaller), NaN where either is.
template <class C, bool kLargest>
__device__ __forceinline__ C better_of(C a, C b) {
  const bool better = kLargest ? b > a : b < a;  // false where a is NaN
  return better || b != b ? b : a;
}

/// Calls f with the element type: bool has u8's representation, and sums, products and extremes of it are those of u8.
template <class F>
void dispatch_numbers(DType t, F&& f) {
  if (is_floating(t))
    dispatch_floats(t, "reduce", f);
  else
    dispatch_ints(t == DType::boolean ? DType::u8 : t, "reduce", f);
}

}  // namespace reduce_detail
}  // namespace strata::cuda
