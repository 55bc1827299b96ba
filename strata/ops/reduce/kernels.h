#pragma once
// How reductions run on the CPU. The tensor is seen as [outer, n, inner] with n reduced. Rows (inner 1) are reduced in
// 16 interleaved lanes, columns in tiles; both in chunks of fixed size whose results are combined pairwise, so that
// rounding errors grow with the logarithm of n and do not depend on the number of threads.

#include "strata/core/tensor.h"

namespace strata {

/// What is accumulated over the reduced elements.
enum class Reduction : uint8_t {
  sum,
  mean,
  prod,
  max,
  min,
  any,
  all,
  count,               // of what is not 0; on the CPU these three want bool
  squared_deviations,  // sum (x - shift)^2; on the CPU
  sum_abs,
  sum_squares,  // on the CPU
  sum_powers,   // on the CPU
  max_abs,
  min_abs,
  count_nonzero_float,  // |x|^p
  sum_exp,              // sum exp(x - shift)
  sum_numbers,          // NaN left out
};

/// Bit i: dimension i is reduced; all of them for empty dims. Throws IndexError and ValueError naming `op`.
uint32_t dim_mask(const Dims& dims, int64_t rank, std::string_view op);
Shape reduced_shape(const Shape& s, uint32_t mask, bool keepdim);
/// How many elements go into each result.
int64_t reduced_count(const Shape& s, uint32_t mask);

/// Reduces x over the masked dimensions into y (row-major). y has the dtype of x (i64 for sums and products of
/// integers; bool for any and all), but the accumulation type, f32 or f64, for squared_deviations, sum_squares,
/// sum_powers, sum_exp, and for mean where y says so. `shift` has y's elements, in the accumulation type. `p` is the
/// exponent of sum_powers.
void reduce_cpu(Reduction what, const Tensor& y, const Tensor& x, uint32_t mask, const Tensor& shift, double p);
/// y (row-major) = the sums of x * z along `dim`, accumulated in f32 or f64; all floating, of one dtype and shape but
/// for that dimension. False, and nothing done, unless x and z lie alike and y's dimensions are in the order of theirs.
bool dot_cpu(const Tensor& y, const Tensor& x, const Tensor& z, int64_t dim);
/// Positions (i64) and, unless undefined, values of the first largest or smallest elements.
void reduce_index_cpu(bool largest, const Tensor& values, const Tensor& indices, const Tensor& x, uint32_t mask);

/// A function that gives the largest (smallest) of n >= 0 neighbouring integers (u8 for bool); the result is of their
/// type.
void (*extreme_of_ints(DType t, bool largest))(const void* run, int64_t n, void* result);
/// to[i] = from[i], by the processor's own conversion where it has one.
void widen_run(const Half* from, int64_t n, float* to);

/// Running sum, product, maximum or minimum along `dim` (from its end with `reverse`); the latter two with positions,
/// laid out as y.
void scan_cpu(Reduction what, const Tensor& y, const Tensor& indices, const Tensor& x, int64_t dim, bool reverse);

/// The same on a CUDA device, but for what is of the CPU alone; any, all and count of any dtype.
void reduce_cuda(Reduction what, const Tensor& y, const Tensor& x, uint32_t mask, const Tensor& shift);
/// The variance: the squares about the mean, over `freedom`; with `root` its root. `mean`, where defined, gets the
/// mean. Both have x's dtype and are rounded once.
void variance_cuda(const Tensor& y, const Tensor& mean, const Tensor& x, uint32_t mask, double freedom, bool root);
/// The smallest and the largest elements, NaN where there is one, in x's dtype.
void extremes_cuda(const Tensor& low, const Tensor& high, const Tensor& x, uint32_t mask);
void extremes_cpu(const Tensor& low, const Tensor& high, const Tensor& x, uint32_t mask);
/// (sum |x|^p)^(1/p) for a finite p that is not 0, in x's dtype, rounded once.
void norm_cuda(const Tensor& y, const Tensor& x, uint32_t mask, double p);
void reduce_index_cuda(bool largest, const Tensor& values, const Tensor& indices, const Tensor& x, uint32_t mask);
void scan_cuda(Reduction what, const Tensor& y, const Tensor& indices, const Tensor& x, int64_t dim, bool reverse);
/// y[i] = x at indices[i], and y zeroed with x[i] added at indices[i], along `dim`; see pick_along and put_along.
/// Positions out of range are left out.
void pick_along_cuda(const Tensor& y, const Tensor& x, const Tensor& indices, int64_t dim);
void put_along_cuda(const Tensor& y, const Tensor& x, const Tensor& indices, int64_t dim);

/// The same on the device that a record's body is compiled for.
template <class On>
void reduce(On on, Reduction what, const Tensor& y, const Tensor& x, uint32_t mask, const Tensor& shift = {},
            double p = 0) {
  if constexpr (on.cuda)
    reduce_cuda(what, y, x, mask, shift);
  else
    reduce_cpu(what, y, x, mask, shift, p);
}
template <class On>
void reduce_index(On on, bool largest, const Tensor& values, const Tensor& indices, const Tensor& x, uint32_t mask) {
  if constexpr (on.cuda)
    reduce_index_cuda(largest, values, indices, x, mask);
  else
    reduce_index_cpu(largest, values, indices, x, mask);
}
template <class On>
void scan(On on, Reduction what, const Tensor& y, const Tensor& indices, const Tensor& x, int64_t dim,
          bool reverse = false) {
  if (x.numel() == 0) return;  // the lines may be many still
  if constexpr (on.cuda) {
    if (y.is_contiguous()) return scan_cuda(what, y, indices, x, dim, reverse);
    const Tensor dense = empty({y.shape(), y.dtype(), y.device(), std::nullopt});
    const Tensor at = indices.defined() ? empty({y.shape(), DType::i64, y.device(), std::nullopt}) : indices;
    scan_cuda(what, dense, at, x, dim, reverse);
    Tensor values = y, places = indices;
    values.copy_(dense);
    if (at.defined()) places.copy_(at);
  } else {
    scan_cpu(what, y, indices, x, dim, reverse);
  }
}

}  // namespace strata
