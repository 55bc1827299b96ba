#pragma once
// How values that are sent to one place are joined there, on the CPU and in CUDA kernels.

#include <cstdint>
#include <type_traits>

#include "strata/core/dispatch.h"

#ifdef __CUDACC__
#define STRATA_JOIN __host__ __device__ __forceinline__
#else
#define STRATA_JOIN inline
#endif

namespace strata {

enum class Join : uint8_t { sum, prod, mean, amax, amin };

/// What elements of T are joined in: rounded once, at the end.
template <class T>
using Joined = std::conditional_t<std::is_integral_v<T>, int64_t, compute_t<T>>;

template <class C>
STRATA_JOIN C joined(Join join, C a, C b) {
  switch (join) {
    case Join::prod:
      if constexpr (std::is_integral_v<C>)
        return static_cast<C>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
      else
        return a * b;
    case Join::amax:
      return b != b || b > a ? b : a;
    case Join::amin:
      return b != b || b < a ? b : a;
    default:
      if constexpr (std::is_integral_v<C>)
        return static_cast<C>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
      else
        return a + b;
  }
}

/// The mean of a sum of `count` values; of integers rounded down.
template <class C>
STRATA_JOIN C mean_of(C sum, int64_t count) {
  if (count <= 1) return sum;
  const C by = static_cast<C>(count);
  if constexpr (std::is_integral_v<C>)
    return sum / by - (sum % by < 0 ? 1 : 0);
  else
    return sum / by;
}

/// Joins value[k] to total[place[k]] for the N of k in turn, as if one after the other: all totals are read first, and
/// what an earlier k made of the same place goes before what was read, so that the reads are under way together.
/// Where `kCounted`, count[place] says how many were joined, and the first takes the place of what was there.
template <int N, bool kCounted, class C>
STRATA_JOIN void join_in_turn(Join join, const int32_t (&place)[N], const C (&value)[N], C* total, int32_t* count) {
  C now[N];
  int32_t had[N] = {};
  for (int k = 0; k < N; ++k) {
    now[k] = total[place[k]];
    if constexpr (kCounted) had[k] = count[place[k]];
  }
  for (int k = 0; k < N; ++k) {
    for (int i = 0; i < k; ++i) {
      if (place[i] != place[k]) continue;
      now[k] = now[i];
      had[k] = had[i];
    }
    now[k] = kCounted && had[k] == 0 ? value[k] : joined(join, now[k], value[k]);
    ++had[k];
  }
  for (int k = 0; k < N; ++k) {
    total[place[k]] = now[k];
    if constexpr (kCounted) count[place[k]] = had[k];
  }
}

}  // namespace strata

#undef STRATA_JOIN
