#pragma once
// The check of an index on the device.

#include <cstdint>
#include <cstdio>

namespace strata::cuda {

__device__ __noinline__ inline void out_of_range(int64_t index, int64_t size) {
  printf("strata: index %lld is out of range for size %lld\n", static_cast<long long>(index),
         static_cast<long long>(size));
  __trap();
}
/// Stops the program's work on the device unless 0 <= index < size.
__device__ __forceinline__ void check_range(int64_t index, int64_t size) {
  if (static_cast<uint64_t>(index) >= static_cast<uint64_t>(size)) out_of_range(index, size);
}

}  // namespace strata::cuda
