#pragma once
#include "strata/core/tensor.h"

namespace strata {

/// How the dimensions of x that index tensors name take part in a result: [pre..., indices..., post...].
struct IndexPlan {
  Shape shape;              ///< of the indexed elements
  Shape broadcast;          ///< of the index tensors together
  Dims indexed, pre, post;  ///< dimensions of x
};
/// Checks dtypes and shapes and lays out the result. Throws DTypeError, ShapeError, IndexError naming `op`.
IndexPlan plan_index(const Tensor& x, const TensorList& indices, std::string_view op);

void index_cpu(Tensor& y, const Tensor& x, const TensorList& indices);
void index_put_cpu(Tensor& y, const Tensor& x, const TensorList& indices, const Tensor& value, bool accumulate);
void index_select_cpu(Tensor& y, const Tensor& x, int64_t dim, const Tensor& index);
void index_add_cpu(Tensor& y, const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, Scalar alpha);

/// `from_end`: negative indices count from the end of the dimension.
void gather_cpu(Tensor& y, const Tensor& x, int64_t dim, const Tensor& index, bool from_end);
void scatter_cpu(Tensor& y, const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src);
void scatter_add_cpu(Tensor& y, const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src);

void masked_fill_cpu(Tensor& y, const Tensor& x, const Tensor& mask, Scalar value);
void masked_scatter_cpu(Tensor& y, const Tensor& x, const Tensor& mask, const Tensor& source);
/// Elements of x that are not 0.
int64_t count_nonzero(const Tensor& x);
/// Copies the elements of x where the mask (same shape) is true, in row-major order, to `y`.
void masked_select_into(Tensor& y, const Tensor& x, const Tensor& mask);
void nonzero_into(Tensor& y, const Tensor& x);

void one_hot_cpu(Tensor& y, const Tensor& x, int64_t num_classes);
Tensor bincount_cpu(const Tensor& x, const Tensor& weights, int64_t minlength);

/// bincount takes values below this.
inline constexpr int64_t kMostBins = int64_t{1} << 60;

// The same on a CUDA device. An index outside its dimension stops the device's work (strata/cuda/rows.h).
void index_cuda(Tensor& y, const Tensor& x, const TensorList& indices);
void index_put_cuda(Tensor& y, const Tensor& x, const TensorList& indices, const Tensor& value, bool accumulate);
void index_select_cuda(Tensor& y, const Tensor& x, int64_t dim, const Tensor& index);
void index_add_cuda(Tensor& y, const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source, Scalar alpha);
void gather_cuda(Tensor& y, const Tensor& x, int64_t dim, const Tensor& index, bool from_end);
void scatter_cuda(Tensor& y, const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src);
/// The elements of the flattened x that index names; negative places count from the end.
void take_cuda(Tensor& y, const Tensor& x, const Tensor& index);
void scatter_add_cuda(Tensor& y, const Tensor& x, int64_t dim, const Tensor& index, const Tensor& src);
void masked_fill_cuda(Tensor& y, const Tensor& x, const Tensor& mask, Scalar value);
void masked_scatter_cuda(Tensor& y, const Tensor& x, const Tensor& mask, const Tensor& source);
void one_hot_cuda(Tensor& y, const Tensor& x, int64_t num_classes);
// These wait for the device: the shape of the result is there.
Tensor bincount_cuda(const Tensor& x, const Tensor& weights, int64_t minlength);
Tensor masked_select_cuda(const Tensor& x, const Tensor& mask);
Tensor nonzero_cuda(const Tensor& x);

}  // namespace strata
