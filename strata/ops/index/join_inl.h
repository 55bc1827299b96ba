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

}  // namespace strata

#undef STRATA_JOIN
