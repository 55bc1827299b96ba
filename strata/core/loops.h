#pragma once
// Strided loops over tensors of one shape: dimensions are reordered and merged so that kernels see long runs.

#include <array>
#include <type_traits>

#include "strata/core/tensor.h"

namespace strata {
namespace detail {
using RowsLoop = void (*)(void* ctx, char** pointers, const int64_t* strides, const int64_t* row_strides, int64_t n,
                          int64_t rows);
void run_strided(const Shape& shape, int count, const Tensor* const* tensors, int64_t grain, RowsLoop inner, void* ctx);
}  // namespace detail

/// Elements below which a loop is not worth a second thread.
inline constexpr int64_t kGrain = 32768;

/// Calls inner(char** pointers, const int64_t* byte_strides, const int64_t* row_strides, int64_t n, int64_t rows) for
/// groups of `rows` runs of n elements that together cover every element once, on several threads; row_strides are the
/// bytes from one run to the next. All tensors have the shape `shape` (expand first); the first decides the order of
/// the walk. A stride equal to the element size means a dense run, 0 a repeated element.
template <size_t N, class Inner>
void for_each_strided_rows(const Shape& shape, const std::array<const Tensor*, N>& tensors, int64_t grain,
                           Inner inner) {
  detail::run_strided(
      shape, static_cast<int>(N), tensors.data(), grain,
      [](void* ctx, char** p, const int64_t* strides, const int64_t* row_strides, int64_t n, int64_t rows) {
        (*static_cast<Inner*>(ctx))(p, strides, row_strides, n, rows);
      },
      &inner);
}

/// The same with a call of inner(char** pointers, const int64_t* byte_strides, int64_t n) for each run.
template <size_t N, class Inner>
void for_each_strided(const Shape& shape, const std::array<const Tensor*, N>& tensors, int64_t grain, Inner inner) {
  for_each_strided_rows(
      shape, tensors, grain,
      [&inner](char** p, const int64_t* strides, const int64_t* row_strides, int64_t n, int64_t rows) {
        for (int64_t r = 0; r < rows; ++r) {
          char* at[N];
          for (size_t k = 0; k < N; ++k) at[k] = p[k] + r * row_strides[k];
          inner(at, strides, n);
        }
      });
}

}  // namespace strata
