#pragma once
// Sums of products of vectors, one number each: what a product of one row and one column is. All of its time is that of
// reading the two. A team of threads, a warp or a block, has a vector or a part of a long one; parts are added up by a
// second kernel, so that the order of a sum depends on the sizes alone.

#include "strata/cuda/tile/copy.cuh"
#ifndef STRATA_TILE_EMULATION
#include "strata/cuda/kernel.cuh"
#endif

namespace strata::cuda {

/// `count` products of k elements. Part p of vector i begins at element p * slice.
struct DotProducts {
  const void *a, *b;
  void* c;
  void* partial;  // [count, parts] sums, where there are several parts
  int64_t count, k, slice;
  int parts;
  int64_t a_step, b_step, a_batch, b_batch, c_batch;
  double alpha, beta;  // c = alpha * sum + beta * c
};

constexpr int kDotThreads = 256, kDotSharedBytes = kDotThreads / 32 * 8;

template <class T, class O, class C>
__device__ __forceinline__ void store_dot(const DotProducts& g, int64_t i, C sum) {
  O* const to = static_cast<O*>(g.c) + i * g.c_batch;
  C v = static_cast<C>(g.alpha) * sum;
  if (g.beta != 0) v += static_cast<C>(g.beta) * static_cast<C>(widen(*to));
  *to = narrow<O>(v);
}

/// Threads that share a part: a warp or a block. kVector elements side by side are read at once.
template <class T, class O, class C, int kVector, int kTeam>
__global__ void __launch_bounds__(kDotThreads) dot_kernel(const DotProducts g) {
  constexpr int kTeams = kDotThreads / kTeam, kLanes = 32;
  const int thread = static_cast<int>(threadIdx.x) % kTeam;
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kTeams + static_cast<int>(threadIdx.x) / kTeam;
  const int64_t i = item / g.parts, begin = item % g.parts * g.slice;
  const bool there = i < g.count;
  const int64_t end = !there ? 0 : begin + g.slice < g.k ? begin + g.slice : g.k;
  C sums[2] = {};  // two vectors are on their way at a time
  if (there) {
    const T* const a = static_cast<const T*>(g.a) + i * g.a_batch;
    const T* const b = static_cast<const T*>(g.b) + i * g.b_batch;
    const int64_t whole = kVector == 1 ? end : end - (end - begin) % kVector;
    for (int64_t l = begin + thread * kVector; l < whole; l += 2 * kTeam * kVector) {
      const int64_t second = l + kTeam * kVector < whole ? l + kTeam * kVector : l;
      Vec<T, kVector> x[2], y[2];
      if constexpr (kVector == 1) {
        x[0].v[0] = a[l * g.a_step], x[1].v[0] = a[second * g.a_step];
        y[0].v[0] = b[l * g.b_step], y[1].v[0] = b[second * g.b_step];
      } else {
        x[0] = load_vec<kVector>(a + l), x[1] = load_vec<kVector>(a + second);
        y[0] = load_vec<kVector>(b + l), y[1] = load_vec<kVector>(b + second);
      }
#pragma unroll
      for (int e = 0; e < kVector; ++e) sums[0] += static_cast<C>(widen(x[0].v[e])) * static_cast<C>(widen(y[0].v[e]));
      if (second == l) break;
#pragma unroll
      for (int e = 0; e < kVector; ++e) sums[1] += static_cast<C>(widen(x[1].v[e])) * static_cast<C>(widen(y[1].v[e]));
    }
    if (whole + thread < end)
      sums[0] += static_cast<C>(widen(a[whole + thread])) * static_cast<C>(widen(b[whole + thread]));
  }
  C sum = warp_reduce<kLanes>(sums[0] + sums[1], Sum());
  if constexpr (kTeam > kLanes) {
    C* const of_warp = reinterpret_cast<C*>(tile::shared_memory());
    if (thread % kLanes == 0) of_warp[thread / kLanes] = sum;
    __syncthreads();
    sum = 0;
#pragma unroll
    for (int w = 0; w < kTeam / kLanes; ++w) sum += of_warp[w];
  }
  if (thread != 0 || !there) return;
  if (g.parts > 1) {
    static_cast<C*>(g.partial)[item] = sum;
  } else {
    store_dot<T, O>(g, i, sum);
  }
}

/// A warp a vector.
template <class T, class O, class C>
__global__ void __launch_bounds__(kDotThreads) add_dot_parts_kernel(const DotProducts g) {
  constexpr int kLanes = 32;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * (kDotThreads / kLanes) + static_cast<int>(threadIdx.x) / kLanes;
  const int lane = static_cast<int>(threadIdx.x) % kLanes;
  C sum = 0;
  if (i < g.count)
    for (int p = lane; p < g.parts; p += kLanes) sum += static_cast<const C*>(g.partial)[i * g.parts + p];
  sum = warp_reduce<kLanes>(sum, Sum());
  if (lane == 0 && i < g.count) store_dot<T, O>(g, i, sum);
}

/// Threads of a team, and the parts of a vector and their length, for `count` vectors of k elements read `vector` at a
/// time: enough blocks for a card, with eight rounds of a block a part at least.
struct DotPlan {
  int team, parts;
  int64_t slice;
};
inline DotPlan plan_dots(int64_t count, int64_t k, int vector) {
  constexpr int64_t kBlocksWanted = 1056, kLongForWarp = 4096, kRounds = 8;
  if (k <= 1024 || (count >= kBlocksWanted && k <= kLongForWarp)) return {32, 1, k};
  const int64_t round = int64_t{kDotThreads} * vector, rounds = (k + round - 1) / round;
  int64_t parts = kBlocksWanted / count;
  if (parts > rounds / kRounds) parts = rounds / kRounds;
  if (parts < 1) parts = 1;
  const int64_t slice = (rounds + parts - 1) / parts * round;
  return {kDotThreads, static_cast<int>((k + slice - 1) / slice), slice};
}

}  // namespace strata::cuda
