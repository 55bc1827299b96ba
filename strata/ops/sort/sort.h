#pragma once
// Ordering. NaN counts as larger than every number. Equal elements keep their order, so results never depend on chance.

#include <optional>
#include <tuple>

#include "strata/core/tensor.h"

namespace strata {

/// The elements of each row along `dim` in order, and where they came from (i64).
std::tuple<Tensor, Tensor> sort(const Tensor& x, int64_t dim = -1, bool descending = false);
/// Only where they came from.
Tensor argsort(const Tensor& x, int64_t dim = -1, bool descending = false);
/// The k largest (or smallest) elements along `dim`, best first, and where they came from. Throws ValueError unless
/// 0 <= k <= the size of dim.
std::tuple<Tensor, Tensor> topk(const Tensor& x, int64_t k, int64_t dim = -1, bool largest = true);
/// The k-th smallest element along `dim` (1 for the smallest) and where it came from.
std::tuple<Tensor, Tensor> kthvalue(const Tensor& x, int64_t k, int64_t dim = -1, bool keepdim = false);

/// The different values of x in ascending order, 1-D; with `return_inverse` where each element of x is among them (of
/// x's shape); with `return_counts` how often each occurs. What was not asked for is an empty tensor. Every NaN counts
/// as different.
struct UniqueResult {
  Tensor values, inverse, counts;
};
UniqueResult unique(const Tensor& x, bool return_inverse = false, bool return_counts = false);

/// For each value the number of elements of `sorted` (ascending along its last dimension) that are below it, or with
/// `right` not above it: where to insert it. `sorted` is 1-D, or agrees with `values` in all dimensions but the last.
Tensor searchsorted(const Tensor& sorted, const Tensor& values, bool right = false);

}  // namespace strata
