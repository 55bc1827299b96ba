#pragma once
// Kernels of rows.cu that a test on the processor runs from the same text: rows copied by an index, several of them a
// thread, and rows added up by a sorted one.

#include <cstdint>
#include <type_traits>

#ifdef STRATA_TILE_EMULATION
#include "strata/core/dispatch.h"
#include "strata/cuda/tile/emulation.cuh"
#else
#include "strata/cuda/kernel.cuh"
#endif

namespace strata::cuda {

inline constexpr int kRowThreads = 128;
inline constexpr int kAtOnce = 4;  // rows of a sum that are on their way together
inline constexpr int64_t kPart =
    64;  // positions that are added up one after the other; longer sums are cut at multiples

/// Threads of a block of at most kRowThreads along rows of `pieces`, each of which takes one piece: [down][across], and
/// blocks side by side along a row.
struct RowBlock {
  unsigned across = 1, down = 1, chunks = 1;
};
inline RowBlock row_block(int64_t pieces) {
  RowBlock b;
  if (pieces <= 32) {
    while (b.across < pieces) b.across *= 2;
  } else {
    // As equal chunks as whole warps allow.
    const int64_t chunks = (pieces + kRowThreads - 1) / kRowThreads, each = (pieces + chunks - 1) / chunks;
    b.across = static_cast<unsigned>((each + 31) / 32 * 32);
    b.chunks = static_cast<unsigned>((pieces + b.across - 1) / b.across);
  }
  b.down = kRowThreads / b.across;
  return b;
}

/// y[r] = x[index[r]] for R rows of `pieces` elements of U, of which a thread has P, `across` of the row apart: all R *
/// P are on their way together. Row r of `total` is in block r / n. `in_range.tell(given, rows)` hears of an index
/// outside [0, rows) but `none`, whose rows are zeros.
template <class U, int P, int R, class Check>
__global__ void __launch_bounds__(kRowThreads)
    take_several_kernel(const U* x, const int64_t* index, U* y, int64_t n, int64_t total, int64_t rows, int pieces,
                        unsigned across, bool from_end, int64_t none, Check in_range) {
  const unsigned down = threadIdx.x / across;
  const int lane = static_cast<int>(threadIdx.x % across);
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * (blockDim.x / across) + down) * R;
  int64_t given[R];
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const int64_t at = n == total ? first + r : (first + r) % n;
    given[r] = first + r < total ? index[at] : none;
  }
  U v[R][P] = {};
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const int64_t from = from_end && given[r] < 0 && given[r] != none ? given[r] + rows : given[r];
    if (static_cast<uint64_t>(from) < static_cast<uint64_t>(rows)) {
      const int64_t block = n == total ? 0 : (first + r) / n;
      const U* const src = x + (block * rows + from) * pieces;
#pragma unroll
      for (int p = 0; p < P; ++p)
        if (lane + p * static_cast<int>(across) < pieces) v[r][p] = src[lane + p * across];
    } else if (given[r] != none) {
      in_range.tell(given[r], rows);
    }
  }
#pragma unroll
  for (int r = 0; r < R; ++r) {
    U* const dst = y + (first + r) * pieces;
#pragma unroll
    for (int p = 0; p < P; ++p)
      if (first + r < total && lane + p * static_cast<int>(across) < pieces) dst[lane + p * across] = v[r][p];
  }
}

/// Where the sums of runs that cross multiples of kPart stand: partial[pre][parts][2][width]. Positions [kPart m,
/// kPart (m + 1)) have one of the run that lies at their beginning, and one of another that leaves at their end.
__host__ __device__ constexpr int64_t parts_of(int64_t n) {
  return (n + kPart - 1) / kPart;
}

/// Rows of source [pre, n, width] to be added up at rows of y [pre, rows, width].
struct RowSums {
  int64_t n = 0, pre = 1, rows = 0, width = 1;
  int64_t skip = -1;                ///< a row that is left alone
  int64_t stretch = kPart;          ///< positions whose runs one group of threads begins: it divides kPart
  unsigned across = 1, chunks = 1;  ///< of row_block()
  bool from_zero = false;           ///< y holds zeros, which need not be read
};

template <class T, class C, int V>
__device__ __forceinline__ void store_sum(T* to, const Vec<C, V>& sum) {
  Vec<T, V> r;
#pragma unroll
  for (int k = 0; k < V; ++k) r.v[k] = narrow<T>(sum.v[k]);
  store_vec(to, r);
}

/// y[keys[e]] += alpha * source[order[e]], or source[e] without an order, keys ascending and positions of equal ones in
/// order; with Scaled, scale[e] in place of alpha. A run of equal keys is added up in order where it lies between two
/// multiples of kPart; of another one `partial` has what lies there.
///
/// A group of threads, side by side along a row, goes along a stretch of positions: it takes the runs that begin there,
/// up to their end or the next multiple of kPart. Runs may be as short or long as they like: the next kAtOnce rows are
/// on their way in any case, and their names before that.
template <class T, int V, bool Scaled, class K>
__global__ void __launch_bounds__(kRowThreads)
    sum_rows_kernel(RowSums s, T* y, const K* keys, const K* order, const T* source, compute_t<T> alpha,
                    const compute_t<T>* scale, compute_t<T>* partial) {
  using C = compute_t<T>;
  constexpr K kNone = static_cast<K>(-1);
  const unsigned down = threadIdx.x / s.across, group = blockDim.x / s.across;
  const int64_t begin = (static_cast<int64_t>(blockIdx.x / s.chunks) * group + down) * s.stretch;
  const int64_t j = (static_cast<int64_t>(blockIdx.x % s.chunks) * s.across + threadIdx.x % s.across) * V;
  if (begin >= s.n || j >= s.width) return;
  // Positions from here on are counted from the stretch's first, the group's place in its part.
  const int place = static_cast<int>(begin % kPart);
  const int stop = static_cast<int>(min(s.stretch, s.n - begin)),
            cut = static_cast<int>(min(kPart - place, s.n - begin));
  keys += begin;
  if (order != nullptr) order += begin;
  if constexpr (Scaled) scale += begin;
  const K last = keys[stop - 1];                            // of what lies behind the stretch, its run alone is taken
  const K crosses = begin + cut < s.n ? keys[cut] : kNone;  // a run of this key goes on behind the multiple
  int start = 0;
  bool begun = false;  // the first run began before
  if (place != 0)
    while (start < stop && keys[start] == keys[start - 1]) ++start;
  else if (begin > 0)
    begun = keys[0] == keys[-1];
  if (start >= stop) return;
  const K rows = static_cast<K>(s.rows), skip = static_cast<K>(s.skip);
  const auto taken = [&](K key) { return std::make_unsigned_t<K>(key) < std::make_unsigned_t<K>(rows) && key != skip; };
  const auto names = [&](int at, K(&key)[kAtOnce], K(&where)[kAtOnce]) {
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      key[u] = at + u < cut ? keys[at + u] : kNone;
      where[u] = at + u >= cut ? K(0) : order == nullptr ? static_cast<K>(begin + at + u) : order[at + u];
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u)
      if (at + u >= stop && key[u] != last) key[u] = kNone;
  };
  for (int64_t p = blockIdx.y; p < s.pre; p += gridDim.y) {
    T* const to = y + p * s.rows * s.width + j;
    const T* const from = source + p * s.n * s.width + j;
    K run = kNone, key[kAtOnce], where[kAtOnce];
    bool whole = false, inside = false;  // the run lies in this part alone; it begins behind the multiple
    Vec<C, V> sum{};
    const auto leave = [&] {
      if (!taken(run)) return;
      if (whole)
        store_sum(to + static_cast<int64_t>(run) * s.width, sum);
      else
        store_vec(partial + ((p * parts_of(s.n) + begin / kPart) * 2 + inside) * s.width + j, sum);
    };
    names(start, key, where);
    for (int at = start; key[0] != kNone; at += kAtOnce) {
      Vec<T, V> v[kAtOnce], now[kAtOnce];
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        v[u] = now[u] = {};
        if (!taken(key[u])) continue;
        v[u] = load_vec<V>(from + static_cast<int64_t>(where[u]) * s.width);
        if (!s.from_zero && key[u] != crosses && key[u] != (u == 0 ? run : key[u == 0 ? 0 : u - 1]) &&
            !(begun && at + u == 0))
          now[u] = load_vec<V>(to + static_cast<int64_t>(key[u]) * s.width);
      }
      K next[kAtOnce], there[kAtOnce];
      names(at + kAtOnce, next, there);
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        if (key[u] != run) {
          leave();
          run = key[u];
          whole = run != crosses && !(begun && at + u == 0);
          inside = place + at + u != 0;
#pragma unroll
          for (int k = 0; k < V; ++k) sum.v[k] = widen(now[u].v[k]);
        }
        if (taken(run)) {
          const C factor = Scaled ? scale[at + u] : alpha;
#pragma unroll
          for (int k = 0; k < V; ++k) sum.v[k] = static_cast<C>(sum.v[k] + factor * widen(v[u].v[k]));
        }
      }
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) key[u] = next[u], where[u] = there[u];
    }
    leave();
  }
}

/// Positions of a stretch: fewer than kPart where there would be too few blocks, and where rows are so narrow that
/// neighbouring threads have neighbouring stretches, whose names they should read side by side.
inline int64_t stretch_of(int64_t n, const RowBlock& b) {
  constexpr int64_t kLeast = 8, kBlocks = 1056;  // eight for each of an H100's multiprocessors
  if (b.across < 8) return kLeast;
  int64_t stretch = kPart;
  while (stretch > kLeast && n / stretch * b.chunks / b.down < kBlocks) stretch /= 2;
  return stretch;
}

}  // namespace strata::cuda
