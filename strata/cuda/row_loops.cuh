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
  int held = 0;  ///< vectors (or single elements) of a row that a thread keeps in registers; 0: the row is too long
  dim3 threads;
  unsigned blocks = 0;
};
inline constexpr int kMostRowThreads = 512;

/// Vectors (or single elements) that a thread may hold: few leave room for more threads, and so for more loads under
/// way.
template <int V>
inline constexpr int kHeldFew = V == 1 ? 16 : 4;
template <int V>
inline constexpr int kHeldMany = V == 1 ? 16 : 8;

/// Rows of n elements of T; `aligned`: all of their operands start at multiples of 16 bytes. A row of more than a warp
/// with `each` vectors a thread gets more threads; one that does not fit in `many` of each thread is not held.
template <class T>
RowLaunch row_launch(int64_t rows, int64_t n, bool aligned, int each = 0, int many = 0) {
  RowLaunch l;
  l.rows = rows, l.n = n;
  l.vectors = aligned && n % kVec<T> == 0;
  const int64_t vectors = l.vectors ? n / kVec<T> : n;
  const int few = l.vectors ? kHeldFew<kVec<T>> : kHeldFew<1>;
  if (each == 0) each = l.vectors ? few : few / 2;
  if (many == 0) many = l.vectors ? kHeldMany<kVec<T>> : kHeldMany<1>;
  const int64_t warps = std::clamp<int64_t>((vectors + each * kWarp - 1) / (each * kWarp), 1, kMostRowThreads / kWarp);
  const auto across = static_cast<unsigned>(warps * kWarp);
  l.threads = dim3(across, across < 128 ? 128 / across : 1);
  l.held = vectors <= int64_t{across} * few ? few : vectors <= int64_t{across} * many ? many : 0;
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
/// `shared` holds kMostRowThreads / 32 values; it may be used again at once, unless this use of it is its `last`.
template <class T, class Op>
__device__ __forceinline__ T row_reduce(T v, Op op, T* shared, bool last = false) {
#pragma unroll
  for (int o = kWarp / 2; o > 0; o /= 2) v = op(v, lane_xor(v, o));
  if (blockDim.x > kWarp) {
    const unsigned warps = blockDim.x / kWarp, first = threadIdx.y * warps;
    if (threadIdx.x % kWarp == 0) shared[first + threadIdx.x / kWarp] = v;
    __syncthreads();
    v = shared[first];
    for (unsigned w = 1; w < warps; ++w) v = op(v, shared[first + w]);
    if (!last) __syncthreads();
  }
  return v;
}

/// The row of this thread, and whether there is one.
__device__ __forceinline__ int64_t this_row() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
}

/// Calls body(i, k) for this thread's vectors of V elements: they start at element i; k counts them, and is known when
/// compiling where `kHeld` of them are held (0: any number).
template <int V, int kHeld, class F>
__device__ __forceinline__ void for_row(int64_t n, F&& body) {
  if constexpr (kHeld > 0) {
    const int first = static_cast<int>(threadIdx.x) * V, step = static_cast<int>(blockDim.x) * V;
#pragma unroll
    for (int k = 0; k < kHeld; ++k)
      if (first + k * step < static_cast<int>(n)) body(first + k * step, k);
  } else {
    const int64_t first = static_cast<int64_t>(threadIdx.x) * V, step = static_cast<int64_t>(blockDim.x) * V;
    for (int64_t i = first; i < n; i += step) body(i, 0);
  }
}

/// Registers for values, not initialised.
template <class E, int kCount>
struct Kept {
  E v[kCount];
  __device__ Kept() {}
  /// Between passes over values of two bytes: they shall be widened again, rather than kept in twice the registers.
  __device__ __forceinline__ void renew() {
    if constexpr (sizeof(E) % 16 == 0 && sizeof(E) / sizeof(E::v[0]) * 2 == sizeof(E)) {
#pragma unroll
      for (int k = 0; k < kCount; ++k) {
        uint4 words;
        memcpy(&words, &v[k], 16);
        asm volatile("" : "+r"(words.x), "+r"(words.y), "+r"(words.z), "+r"(words.w));
        memcpy(&v[k], &words, 16);
      }
    }
  }
};

/// A row of T: read once where it is held.
template <class T, int V, int kHeld>
struct RowOf {
  const T* p;
  Kept<Vec<T, V>, kHeld == 0 ? 1 : kHeld> kept;

  __device__ __forceinline__ RowOf(const T* row, int64_t n) : p(row) {
    if constexpr (kHeld > 0) for_row<V, kHeld>(n, [&](int64_t i, int k) { kept.v[k] = load_vec<V>(p + i); });
  }
  __device__ __forceinline__ void renew() { kept.renew(); }
  __device__ __forceinline__ Vec<T, V> at(int64_t i, int k) const {
    if constexpr (kHeld > 0)
      return kept.v[k];
    else
      return load_vec<V>(p + i);
  }
};

/// widen() of all elements: bf16 by words, an instruction for each half.
template <class T, int V>
__device__ __forceinline__ Vec<compute_t<T>, V> widen_all(const Vec<T, V>& v) {
  Vec<compute_t<T>, V> r;
  if constexpr (std::is_same_v<T, BFloat16> && V % 2 == 0) {
    uint32_t words[V / 2];
    memcpy(words, &v, sizeof v);
#pragma unroll
    for (int k = 0; k < V / 2; ++k) {
      r.v[2 * k] = __uint_as_float(words[k] << 16);
      r.v[2 * k + 1] = __uint_as_float(words[k] & 0xffff0000u);
    }
  } else {
#pragma unroll
    for (int k = 0; k < V; ++k) r.v[k] = widen(v.v[k]);
  }
  return r;
}

/// narrow() of all elements: bf16 and f16 by words, an instruction for two.
template <class T, int V>
__device__ __forceinline__ Vec<T, V> narrow_all(const Vec<compute_t<T>, V>& v) {
  Vec<T, V> r;
  if constexpr (sizeof(T) == 2 && V % 2 == 0) {
    using Two = std::conditional_t<std::is_same_v<T, BFloat16>, __nv_bfloat162, __half2>;
    Two two[V / 2];
#pragma unroll
    for (int k = 0; k < V / 2; ++k) {
      if constexpr (std::is_same_v<T, BFloat16>)
        two[k] = __floats2bfloat162_rn(v.v[2 * k], v.v[2 * k + 1]);
      else
        two[k] = __floats2half2_rn(v.v[2 * k], v.v[2 * k + 1]);
    }
    memcpy(&r, two, sizeof r);
  } else {
#pragma unroll
    for (int k = 0; k < V; ++k) r.v[k] = narrow<T>(v.v[k]);
  }
  return r;
}

/// V elements of A in pieces of 16 bytes, widened to C.
template <class C, int V, class A>
__device__ __forceinline__ Vec<C, V> load_wide(const A* p) {
  constexpr int kPiece = V < kVec<A> ? V : kVec<A>;
  Vec<C, V> r;
#pragma unroll
  for (int j = 0; j < V; j += kPiece) {
    const auto v = widen_all(load_vec<kPiece>(p + j));
#pragma unroll
    for (int k = 0; k < kPiece; ++k) r.v[j + k] = v.v[k];
  }
  return r;
}

/// Calls f(V), the elements of an access, as a constant.
template <class T, class F>
void by_vectors(const RowLaunch& l, F&& f) {
  if (l.vectors)
    f(std::integral_constant<int, kVec<T>>());
  else
    f(std::integral_constant<int, 1>());
}
/// Calls f(V, held) with these as constants.
template <class T, class F>
void dispatch_rows(const RowLaunch& l, F&& f) {
  by_vectors<T>(l, [&](auto v) {
    constexpr int V = decltype(v)::value;
    if (l.held == 0)
      f(v, std::integral_constant<int, 0>());
    else if (l.held == kHeldFew<V>)
      f(v, std::integral_constant<int, kHeldFew<V>>());
    else if constexpr (kHeldMany<V> != kHeldFew<V>)
      f(v, std::integral_constant<int, kHeldMany<V>>());
  });
}

// ---- sums of exponentials ----

/// Exponentials of v - top are exp_below<T>(v, exp_shift<T>(top)), with the digits that results of type T show: for
/// bf16 and f16 powers of 2, of which the shift is a part that is computed once.
template <class T>
__device__ __forceinline__ compute_t<T> exp_scale(compute_t<T> v) {
  if constexpr (sizeof(T) == 2)
    return v * 1.44269504f;
  else
    return v;
}
/// The same of a maximum: one of no elements, -inf, shifts nothing.
template <class T>
__device__ __forceinline__ compute_t<T> exp_shift(compute_t<T> top) {
  return top == static_cast<compute_t<T>>(-INFINITY) ? compute_t<T>(0) : exp_scale<T>(top);
}
template <class T>
__device__ __forceinline__ compute_t<T> exp_below(compute_t<T> v, compute_t<T> shift) {
  if constexpr (std::is_same_v<T, double>) {
    return exp(v - shift);
  } else if constexpr (std::is_same_v<T, float>) {
    return expf(v - shift);
  } else {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(fmaf(v, 1.44269504f, -shift)));
    return y;
  }
}

/// A maximum and the sum of the exponentials of what lies below it; {-INFINITY, 0} of nothing.
template <class C>
struct Exponentials {
  C top, sum;
};
template <class T>
struct AddExponentials {
  using C = compute_t<T>;
  __device__ Exponentials<C> operator()(const Exponentials<C>& a, const Exponentials<C>& b) const {
    const C top = fmax(a.top, b.top), shift = exp_shift<T>(top);
    return {top, a.sum * exp_below<T>(a.top, shift) + b.sum * exp_below<T>(b.top, shift)};
  }
};
/// The logarithm of the sum of the exponentials themselves.
template <class T>
__device__ __forceinline__ compute_t<T> log_of_sum(const Exponentials<compute_t<T>>& s) {
  if constexpr (sizeof(T) == 2)
    return (exp_shift<T>(s.top) + log2f(s.sum)) * 0.693147181f;
  else
    return exp_shift<T>(s.top) + log(s.sum);
}

/// The larger number, of which NaN is none.
struct Larger {
  template <class C>
  __device__ C operator()(C a, C b) const {
    return fmax(a, b);
  }
};
/// The largest of V elements but NaN.
template <class T, int V>
__device__ __forceinline__ compute_t<T> largest_of(const Vec<T, V>& v) {
  using C = compute_t<T>;
#if __CUDA_ARCH__ >= 800
  if constexpr (sizeof(T) == 2 && V % 2 == 0) {
    using Two = std::conditional_t<std::is_same_v<T, BFloat16>, __nv_bfloat162, __half2>;
    Two two[V / 2];
    memcpy(two, &v, sizeof v);
#pragma unroll
    for (int k = 1; k < V / 2; ++k) two[0] = __hmax2(two[0], two[k]);
    return fmaxf(__low2float(two[0]), __high2float(two[0]));
  }
#endif
  C top = widen(v.v[0]);
#pragma unroll
  for (int k = 1; k < V; ++k) top = fmax(top, widen(v.v[k]));
  return top;
}

}  // namespace strata::cuda
