#pragma once
#include <tuple>

#include "strata/core/tensor.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/view/view.h"

namespace strata {
/// Rows of a tensor along one dimension, laid out densely.
struct SortRows {
  Tensor dense;
  int64_t count, length;
};
inline SortRows sort_rows(const Tensor& x, int64_t dim) {
  const Tensor r = contiguous(x.dim() == 0 ? reshape(x, {1}) : transpose(x, dim, -1));
  const int64_t length = r.shape().back();
  return {r, length == 0 ? 0 : r.numel() / length, length};
}

/// The sorted elements of each row along dim where nobody asks where they came from: on a CUDA device a third of the
/// bytes of a sort with places move.
Tensor sort_values(const Tensor& x, int64_t dim, bool descending = false);

void sort_cpu(Tensor& values, Tensor& indices, const Tensor& x, int64_t dim, bool descending);
/// The values alone.
void sort_values_cpu(Tensor& values, const Tensor& x, int64_t dim, bool descending);
void topk_cpu(Tensor& values, Tensor& indices, const Tensor& x, int64_t k, int64_t dim, bool largest);
void kthvalue_cpu(Tensor& values, Tensor& indices, const Tensor& x, int64_t k, int64_t dim, bool keepdim);
/// Where the lower median of each row along dim is: size 1 there. With skip_nan of what is not NaN; else the first NaN
/// is it.
void median_place_cpu(Tensor& indices, const Tensor& x, int64_t dim, bool skip_nan);
/// The lower median of all elements, of which there are some, to y, which has one; with skip_nan of what is not NaN.
void median_cpu(Tensor& y, const Tensor& x, bool skip_nan);
/// The last place of the commonest element (of several the smallest) of each row. Every NaN counts as different.
void mode_place_cpu(Tensor& indices, const Tensor& x, int64_t dim);
std::tuple<Tensor, Tensor, Tensor> unique_cpu(const Tensor& x, bool return_inverse, bool return_counts);
void searchsorted_cpu(Tensor& y, const Tensor& sorted, const Tensor& values, bool right);

// On a CUDA device; in a build without CUDA unique_cuda throws and the others are not there.
void median_place_cuda(Tensor& indices, const Tensor& x, int64_t dim, bool skip_nan);
void median_cuda(Tensor& y, const Tensor& x, bool skip_nan);
void median_dim_cuda(Tensor& values, Tensor& indices, const Tensor& x, int64_t dim, bool skip_nan);
// For rows of a length of which sorts_for_mode() is true.
void mode_place_cuda(Tensor& indices, const Tensor& x, int64_t dim);
void mode_cuda(Tensor& values, Tensor& indices, const Tensor& x, int64_t dim);
bool sorts_for_mode(int64_t length);
void sort_cuda(Tensor& values, Tensor& indices, const Tensor& x, int64_t dim, bool descending);
// The values alone: equal elements that can be told apart, zeros of two signs and NaN, stand in an order of their own.
void sort_values_cuda(Tensor& values, const Tensor& x, int64_t dim, bool descending);
// The first `take` of each row's sorted elements.
void sort_first_cuda(Tensor& values, Tensor& indices, const Tensor& x, int64_t dim, bool descending, int64_t take);
void topk_cuda(Tensor& values, Tensor& indices, const Tensor& x, int64_t k, int64_t dim, bool largest);
void kthvalue_cuda(Tensor& values, Tensor& indices, const Tensor& x, int64_t k, int64_t dim, bool keepdim);
std::tuple<Tensor, Tensor, Tensor> unique_cuda(const Tensor& x, bool return_inverse, bool return_counts);
/// y is i64 or i32.
void searchsorted_cuda(Tensor& y, const Tensor& sorted, const Tensor& values, bool right, bool);
}  // namespace strata
