#pragma once
// y[i] = f(a[i], b[i], ...) for operands that lie without gaps and in one order: the kernel of elementwise.cuh's usual
// case, apart so that a test on the processor runs the same text.

#include <cstdint>
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
    // Where there is no second piece the first is asked for twice: to choose between what came, and not where it comes from,
    // would have the second request wait for the first piece.
    const int64_t other = both ? second : i;
    [&](Vec<In, V>... x) {
      [&](const Vec<In, V>&... then) {
#pragma unroll 1
        for (bool last = !both;; last = true) {
          Vec<O, V> r;
#pragma unroll
          for (int k = 0; k < V; ++k) r.v[k] = narrow<O>(f(widen(x.v[k])...));
          store_vec(y + i, r);
          if (last) break;
          i = second;
          ((x = then), ...);
        }
      }(load_vec<V>(in + other)...);
    }(load_vec<V>(in + i)...);
    i = both ? n : second;
  }
  for (int64_t end = i + V < n ? i + V : n; i < end; ++i) y[i] = narrow<O>(f(widen(in[i])...));
}

}  // namespace detail
}  // namespace strata::cuda
