#pragma once
// y[i] = f(a[i], b[i], ...) for operands that lie without gaps and in one order: the kernel of elementwise.cuh's usual
// case, apart so that a test on the processor runs the same text.

#include <cstdint>
#include <cstring>
#include <type_traits>

#ifdef STRATA_TILE_EMULATION
#include "strata/cuda/tile/emulation.cuh"
#else
#include "strata/cuda/kernel.cuh"
#endif

namespace strata::cuda {

/// Stands for an element type that only the device compiler knows: bool where the function returns bool, else T.
template <class T>
struct BoolOr {};

namespace detail {
inline constexpr int kThreads = 256;

template <class Out, class Result>
struct Stored {
  using type = Out;
};
template <class T, class Result>
struct Stored<BoolOr<T>, Result> {
  using type = std::conditional_t<std::is_same_v<Result, bool>, bool, T>;
};

/// Blocks of a grid from which on a thread of a dense map has two pieces: both are asked for before the first is worked
/// on, so that twice as many bytes are under way.
inline constexpr int64_t kManyBlocks = 8192;
/// Blocks of a dense map of n elements.
template <int V>
unsigned dense_blocks(int64_t n) {
  const int64_t blocks = (n + kThreads * V - 1) / (kThreads * V);
  return static_cast<unsigned>(blocks < kManyBlocks ? blocks : (blocks + 1) / 2);
}

/// V elements, those of one byte as words of four: of an array of bytes the compiler takes pairs of bytes apart before
/// it takes the bytes, four instructions an element where one does.
template <class T, int V>
inline constexpr bool kPacks = sizeof(T) == 1 && V % 4 == 0;
template <class T, int V>
using Piece = std::conditional_t<kPacks<T, V>, Vec<uint32_t, (V + 3) / 4>, Vec<T, V>>;

template <class T, int V>
__device__ __forceinline__ Piece<T, V> load_piece_of(const T* p) {
  if constexpr (kPacks<T, V>) {
    return load_vec<V / 4>(reinterpret_cast<const uint32_t*>(p));
  } else {
    return load_vec<V>(p);
  }
}
template <class T, int V>
__device__ __forceinline__ void store_piece_of(T* p, const Piece<T, V>& v) {
  if constexpr (kPacks<T, V>) {
    store_vec(reinterpret_cast<uint32_t*>(p), v);
  } else {
    store_vec(p, v);
  }
}
template <class T, int V>
__device__ __forceinline__ T element_of(const Piece<T, V>& x, int k) {
  if constexpr (kPacks<T, V>) {
    const auto bits = static_cast<uint8_t>(x.v[k / 4] >> (8 * (k % 4)));
    T v;
    memcpy(&v, &bits, 1);
    return v;
  } else {
    return x.v[k];
  }
}
/// The low bytes of four words as one word.
__device__ __forceinline__ uint32_t pack_bytes(const uint32_t (&b)[4]) {
#ifdef __CUDA_ARCH__
  return __byte_perm(__byte_perm(b[0], b[1], 0x0040), __byte_perm(b[2], b[3], 0x0040), 0x5410);
#else
  return (b[0] & 255) | (b[1] & 255) << 8 | (b[2] & 255) << 16 | b[3] << 24;
#endif
}

/// Functions of each bit alone say so (F::kOfBits): of a word they are what they are of the word's bytes.
template <class F>
inline constexpr bool kOfBits = requires {
  requires F::kOfBits;
};

template <class O, int V, class F, class... In>
__device__ __forceinline__ Piece<O, V> map_piece(const F& f, const Piece<In, V>&... x) {
  Piece<O, V> r;
  if constexpr (kOfBits<F> && kPacks<O, V> && (kPacks<In, V> && ...)) {
#pragma unroll
    for (int k = 0; k < V / 4; ++k) r.v[k] = f(x.v[k]...);
  } else if constexpr (kPacks<O, V>) {
#pragma unroll
    for (int k = 0; k < V / 4; ++k) {
      uint32_t bytes[4];
#pragma unroll
      for (int j = 0; j < 4; ++j)
        bytes[j] = static_cast<uint32_t>(narrow<O>(f(widen(element_of<In, V>(x, 4 * k + j))...)));
      r.v[k] = pack_bytes(bytes);
    }
  } else {
#pragma unroll
    for (int k = 0; k < V; ++k) r.v[k] = narrow<O>(f(widen(element_of<In, V>(x, k))...));
  }
  return r;
}

/// The pieces of thread i are i and, where the grid has not as many threads as there are pieces, i + threads of the
/// grid.
template <int V, class Out, class F, class... In>
__global__ void __launch_bounds__(kThreads) dense_kernel(int64_t n, F f, void* to, const In*... in) {
  using O = typename Stored<Out, decltype(f(widen(In{})...))>::type;
  O* y = static_cast<O*>(to);
  int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * V;
  const int64_t second = i + static_cast<int64_t>(gridDim.x) * (kThreads * V);
  if (i + V <= n) {
    const bool both = second + V <= n;
    // Where there is no second piece the first is asked for twice: to choose between what came, and not where it comes
    // from, would have the second request wait for the first piece.
    const int64_t other = both ? second : i;
    [&](Piece<In, V>... x) {
      [&](const Piece<In, V>&... then) {
#pragma unroll 1
        for (bool last = !both;; last = true) {
          store_piece_of<O, V>(y + i, map_piece<O, V, F, In...>(f, x...));
          if (last) break;
          i = second;
          ((x = then), ...);
        }
      }(load_piece_of<In, V>(in + other)...);
    }(load_piece_of<In, V>(in + i)...);
    i = both ? n : second;
  }
  for (int64_t end = i + V < n ? i + V : n; i < end; ++i) y[i] = narrow<O>(f(widen(in[i])...));
}

}  // namespace detail
}  // namespace strata::cuda
