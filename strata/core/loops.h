#pragma once
// Strided loops over tensors of one shape: dimensions are reordered and merged so that kernels see long runs.

#include <array>
#include <type_traits>

#include "strata/core/tensor.h"

namespace strata {
namespace detail {
using InnerLoop = void (*)(void* ctx, char** pointers, const int64_t* byte_strides, int64_t n);
void run_strided(const Shape& shape, int count, const Tensor* const* tensors, int64_t grain, InnerLoop inner,
                 void* ctx);
}  // namespace detail

/// Elements below which a loop is not worth a second thread.
inline constexpr int64_t kGrain = 32768;

/// Calls inner(char** pointers, const int64_t* byte_strides, int64_t n) for runs that together cover every element
/// once, on several threads. All tensors have the shape `shape` (expand first); the first decides the order of the
/// walk. A stride equal to the element size means a dense run, 0 a repeated element.
template <size_t N, class Inner>
void for_each_strided(const Shape& shape, const std::array<const Tensor*, N>& tensors, int64_t grain, Inner inner) {
  detail::run_strided(
      shape, static_cast<int>(N), tensors.data(), grain,
      [](void* ctx, char** p, const int64_t* s, int64_t n) { (*static_cast<Inner*>(ctx))(p, s, n); }, &inner);
}

}  // namespace strata
