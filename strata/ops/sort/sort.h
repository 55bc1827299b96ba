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
/// The elements along the first dimension in order.
Tensor msort(const Tensor& x);
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
/// The different slices along `dim` in lexicographic order, which of them each slice is (1-D), how often each occurs.
UniqueResult unique_dim(const Tensor& x, int64_t dim, bool return_inverse = false, bool return_counts = false);
/// The first of each run of equal slices along `dim`, or of equal elements of the flattened x; which run each is in;
/// how long each is.
UniqueResult unique_consecutive(const Tensor& x, bool return_inverse = false, bool return_counts = false,
                                std::optional<int64_t> dim = {});

/// For each value the number of elements of `sorted` (ascending along its last dimension) that are below it, or with
/// `right` not above it: where to insert it; i64, or with `out_int32` i32. `sorted` is 1-D, or agrees with `values` in
/// all dimensions but the last. Throws ShapeError, DTypeError.
Tensor searchsorted(const Tensor& sorted, const Tensor& values, bool right = false, bool out_int32 = false);
/// searchsorted() of elements x among 1-D ascending `boundaries`, both in their common dtype: the part in which each
/// lies.
Tensor bucketize(const Tensor& x, const Tensor& boundaries, bool out_int32 = false, bool right = false);

}  // namespace strata
