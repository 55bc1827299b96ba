#pragma once
#include "strata/core/tensor.h"
#include "strata/ops/index/join_inl.h"

namespace strata {

/// y = x, and alpha * src joined to it at the places that index (i64) names along dim, as `join` says, in the order of
/// the elements. y and x have one shape, any strides, and may be the same memory; index and src have another one, of
/// their rank and no longer than they in the other dimensions. Without include_self what was there does not count where
/// something is sent. A place out of range is told of and left out; with from_end negative ones count from the end.
struct JoinLines {
  Join join = Join::sum;
  bool include_self = true;
  bool from_end = false;
  Scalar alpha = 1;  ///< of sums
};
void join_lines_cuda(Tensor& y, const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src,
                     const JoinLines& how);
/// Whether that is the fast way for these shapes; else places are better sorted, or numbers of any order added up
/// (`any_order`): lines are few, or long.
bool joins_lines(const Tensor& y, int64_t dim, const Tensor& index, bool any_order = false);
/// Microseconds that sums there should take; the index names something.
double time_along_lines(const Tensor& y, int64_t dim, const Tensor& index);

/// y = x with src at the places that index names along dim; of several sent to one place the last counts. The rest as
/// above.
void put_lines_cuda(Tensor& y, const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src, bool from_end);
bool puts_lines(const Tensor& y, int64_t dim, const Tensor& index);

/// The same of an index (i64, 1-D or one number) for slices along dim, where joins_slices() is true. What of x and
/// source has gaps is copied first.
void join_slices_cuda(Tensor& y, const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source,
                      const JoinLines& how);
bool joins_slices(const Tensor& y, int64_t dim, const Tensor& source);

/// An index for slices along dim, 1-D, as one for each element of `shape`, and back to such a view's lines.
inline Tensor index_of_slices(const Tensor& index, const Shape& shape, int64_t dim) {
  Strides strides = Strides::filled(shape.size(), 0);
  strides[dim] = index.dim() == 0 ? 1 : index.strides()[0];
  return alias(index, shape, strides, index.storage_offset());
}

}  // namespace strata
