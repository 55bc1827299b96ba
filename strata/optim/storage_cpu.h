#pragma once
// Between the f32 numbers that the loops compute with and those of 16 bits that are stored.

#include <cstdint>

#include "strata/core/dtype.h"

namespace strata::optim {

/// Elements that are converted at a time: four arrays of them stay in a core's first cache.
inline constexpr int64_t kRun = 1024;

/// How a result is rounded to bf16 or f16.
struct Rounding {
  bool stochastic = false;  ///< of bf16 only
  uint64_t key = 0;         ///< rounding_key()
  bool remix = false;
  int shift = 0;  ///< 0 or 16: which half of each random number, remixed() or not
};

/// n elements (at most kRun) from `at` on of an array of f32, bf16 or f16: the array itself, or `buffer` filled.
const float* widened(const void* array, DType dtype, int64_t at, int64_t n, float* buffer);
/// Where results for them go: the array itself where it is f32, else `buffer`, for narrow().
float* writable(void* array, DType dtype, int64_t at, float* buffer);
/// Rounds `from` into the array; does nothing where it is f32, as writable() was the array then.
void narrow(const float* from, void* array, DType dtype, int64_t at, int64_t n, const Rounding& rounding);

/// The same of f32 numbers in halves (split() and joined() in rounding_inl.h), which `buffer` always is filled with.
void widen_halves(const void* upper, const void* lower, int64_t at, int64_t n, float* buffer);
void narrow_halves(const float* from, void* upper, void* lower, int64_t at, int64_t n);

}  // namespace strata::optim
