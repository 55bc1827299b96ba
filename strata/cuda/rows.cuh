#pragma once
// Rows of a row-major matrix, each taken by one or more whole warps: sizes of launches, reductions over a row's
// threads, and loops over its elements with 16-byte loads, either kept in registers for several passes or read again.

#include <algorithm>
#include <bit>
#include <cstring>

#include "strata/cuda/kernel.cuh"

namespace strata::cuda {

/// Threads of a block: [rows][threads of a row]; where a row has more than a warp, its warps stand side by side.
struct RowLaunch {
  int64_t rows = 0, n = 0;
  bool vectors = false;  ///< 16-byte accesses
  bool held = false;     ///< a row fits in its threads' registers
  dim3 threads;
  unsigned blocks = 0;
};
inline constexpr int kMostRowThreads = 512;

/// Vectors (or single elements) that a thread may hold.
template <int V>
inline constexpr int kHeld = V == 1 ? 16 : 8;

/// Rows of n elements of T; `aligned`: all of their operands start at multiples of 16 bytes. `each`: how many vectors
/// a thread should have before the row gets more threads.
template <class T>
RowLaunch row_launch(int64_t rows, int64_t n, bool aligned, int each = 4, int held = 0) {
  RowLaunch l;
  l.rows = rows, l.n = n;
  l.vectors = aligned && n % kVec<T> == 0;
  const int64_t vectors = l.vectors ? n / kVec<T> : n;
  const auto wanted = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>((vectors + each - 1) / each)));
  const auto across = static_cast<unsigned>(std::clamp<int64_t>(wanted, kWarp, kMostRowThreads));
  l.threads = dim3(across, across < 128 ? 128 / across : 1);
  if (held == 0) held = l.vectors ? kHeld<kVec<T>> : kHeld<1>;
  l.held = vectors <= static_cast<int64_t>(across) * held;
  l.blocks = blocks_for(rows, l.threads.y);
  return l;
}

/// Any type of whole words from the lane whose number differs by `o`.
template <class T>
__device__ __forceinline__ T lane_xor(const T& v, int o) {
  if constexpr (std::is_arithmetic_v<T>) {
    return __shfl_xor_sync(0xffffffffu, v, o);
  } else {
    constexpr int kWords = sizeof(T) / 4;
    static_assert(sizeof(T) % 4 == 0);
    uint32_t words[kWords];
    memcpy(words, &v, sizeof(T));
#pragma unroll
    for (int k = 0; k < kWords; ++k) words[k] = __shfl_xor_sync(0xffffffffu, words[k], o);
    T r;
    memcpy(&r, words, sizeof(T));
    return r;
  }
}

/// Every thread of a row gets the reduction over the row's threads. All threads of the block must call it.
/// `shared` holds kMostRowThreads / 32 values; it may be used again at once.
template <class T, class Op>
__device__ __forceinline__ T row_reduce(T v, Op op, T* shared) {
#pragma unroll
  for (int o = kWarp / 2; o > 0; o /= 2) v = op(v, lane_xor(v, o));
  if (blockDim.x > kWarp) {
    const unsigned warps = blockDim.x / kWarp, first = threadIdx.y * warps;
    if (threadIdx.x % kWarp == 0) shared[first + threadIdx.x / kWarp] = v;
    __syncthreads();
    v = shared[first];
    for (unsigned w = 1; w < warps; ++w) v = op(v, shared[first + w]);
    __syncthreads();
  }
  return v;
}

/// The row of this thread, and whether there is one.
__device__ __forceinline__ int64_t this_row() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
}

/// Calls body(i, k) for this thread's vectors of V elements: they start at element i; k counts them, and is known when
/// compiling where the row is held.
template <int V, bool kHold, int kMost = kHeld<V>, class F>
__device__ __forceinline__ void for_row(int64_t n, F&& body) {
  const int64_t first = static_cast<int64_t>(threadIdx.x) * V, step = static_cast<int64_t>(blockDim.x) * V;
  if constexpr (kHold) {
#pragma unroll
    for (int k = 0; k < kMost; ++k)
      if (first + k * step < n) body(first + k * step, k);
  } else {
    for (int64_t i = first; i < n; i += step) body(i, 0);
  }
}

/// A row of T: read once where it is held.
template <class T, int V, bool kHold, int kMost = kHeld<V>>
struct RowOf {
  const T* p;
  Vec<T, V> kept[kHold ? kMost : 1];

  __device__ __forceinline__ RowOf(const T* row, int64_t n) : p(row) {
    if constexpr (kHold)
      for_row<V, true, kMost>(n, [&](int64_t i, int k) { kept[k] = load_vec<V>(p + i); });
  }
  __device__ __forceinline__ Vec<T, V> at(int64_t i, int k) const {
    if constexpr (kHold)
      return kept[k];
    else
      return load_vec<V>(p + i);
  }
};

/// V elements of A in pieces of 16 bytes, widened to C.
template <class C, int V, class A>
__device__ __forceinline__ Vec<C, V> load_wide(const A* p) {
  constexpr int kPiece = V < kVec<A> ? V : kVec<A>;
  Vec<C, V> r;
#pragma unroll
  for (int j = 0; j < V; j += kPiece) {
    const Vec<A, kPiece> v = load_vec<kPiece>(p + j);
#pragma unroll
    for (int k = 0; k < kPiece; ++k) r.v[j + k] = widen(v.v[k]);
  }
  return r;
}

/// Calls f(V, held) with these as constants.
template <class T, class F>
void dispatch_rows(const RowLaunch& l, F&& f) {
  const auto by_hold = [&](auto v) {
    if (l.held)
      f(v, std::true_type());
    else
      f(v, std::false_type());
  };
  if (l.vectors)
    by_hold(std::integral_constant<int, kVec<T>>());
  else
    by_hold(std::integral_constant<int, 1>());
}

// ---- sums of exponentials ----

/// exp with the digits that results of type T show.
template <class T>
__device__ __forceinline__ compute_t<T> exp_for(compute_t<T> v) {
  if constexpr (std::is_same_v<T, double>)
    return exp(v);
  else if constexpr (std::is_same_v<T, float>)
    return expf(v);
  else
    return __expf(v);
}
/// A maximum and the sum of the exponentials of what lies below it; {-INFINITY, 0} of nothing.
template <class C>
struct ExpSum {
  C top, sum;
};
struct AddExpSums {
  template <class C>
  __device__ ExpSum<C> operator()(const ExpSum<C>& a, const ExpSum<C>& b) const {
    ExpSum<C> r{Max()(a.top, b.top), 0};
    if (r.top == -INFINITY) return r;
    r.sum = a.sum * exp(a.top - r.top) + b.sum * exp(b.top - r.top);
    return r;
  }
};
/// Takes V values in.
template <class T, int V>
__device__ __forceinline__ void add_exponentials(ExpSum<compute_t<T>>& a, const Vec<T, V>& v) {
  using C = compute_t<T>;
  C top = a.top;
#pragma unroll
  for (int k = 0; k < V; ++k) top = Max()(top, widen(v.v[k]));
  if (top == -INFINITY) return;
  C sum = 0;
#pragma unroll
  for (int k = 0; k < V; ++k) sum += exp_for<T>(widen(v.v[k]) - top);
  a.sum = a.sum * exp_for<T>(a.top - top) + sum;
  a.top = top;
}

}  // namespace strata::cuda
