#pragma once
// Reductions and scans. `dims` empty means all dimensions; with keepdim the reduced ones stay with size 1. Floating
// sums are accumulated pairwise in f32 (f64 for f64) and rounded once; results do not depend on the number of threads.

#include <optional>
#include <utility>

#include "strata/core/tensor.h"

namespace strata {

/// Sum over `dims`; integers and bool sum in i64. 0 for no elements.
Tensor sum(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
/// Mean over `dims`; NaN for no elements. Throws DTypeError for integers.
Tensor mean(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
/// Product of all elements, or along `dim`; integers and bool in i64. 1 for no elements.
Tensor prod(const Tensor& x);
Tensor prod(const Tensor& x, int64_t dim, bool keepdim = false);
/// Largest (smallest) element over `dims`; NaN wins. Equal elements share the gradient. Throws ShapeError for no
/// elements.
Tensor amax(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor amin(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor max(const Tensor& x);
Tensor min(const Tensor& x);
/// Along `dim`: the values, and where each first occurs (i64). The gradient goes to that one element.
std::pair<Tensor, Tensor> max(const Tensor& x, int64_t dim, bool keepdim = false);
std::pair<Tensor, Tensor> min(const Tensor& x, int64_t dim, bool keepdim = false);
/// Elementwise, as maximum() and minimum().
Tensor max(const Tensor& a, const Tensor& b);
Tensor min(const Tensor& a, const Tensor& b);
/// Position (i64) of the first largest (smallest) element along `dim`, or in row-major order of all; NaN wins.
/// Throws ShapeError for no elements.
Tensor argmax(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false);
Tensor argmin(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false);
/// Sum of squared differences from the mean, divided by the number of elements less `correction`.
Tensor var(const Tensor& x, const Dims& dims = {}, double correction = 1, bool keepdim = false);
Tensor std(const Tensor& x, const Dims& dims = {}, double correction = 1, bool keepdim = false);
/// (sum |x|^p)^(1/p); the largest (smallest) |x| for p = inf (-inf), the count of non-zeros for p = 0.
Tensor norm(const Tensor& x, double p = 2, const Dims& dims = {}, bool keepdim = false);
/// log(sum(exp(x))) over `dims`, without overflow.
Tensor logsumexp(const Tensor& x, const Dims& dims, bool keepdim = false);
/// Whether any (all) elements differ from 0; bool.
Tensor any(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor all(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
/// How many elements differ from 0; i64.
Tensor count_nonzero(const Tensor& x, const Dims& dims = {});

/// Sums (products) of the elements up to each along `dim`; integers and bool in i64.
Tensor cumsum(const Tensor& x, int64_t dim);
Tensor cumprod(const Tensor& x, int64_t dim);
/// Largest (smallest) element up to each along `dim`, and where it (last) occurs (i64).
std::pair<Tensor, Tensor> cummax(const Tensor& x, int64_t dim);
std::pair<Tensor, Tensor> cummin(const Tensor& x, int64_t dim);

}  // namespace strata
