#pragma once
// Statistics of samples: order, moments, histograms; differences and integrals. `dims` empty means all
// dimensions; with keepdim the reduced ones stay with size 1.

#include <optional>
#include <string_view>
#include <tuple>

#include "strata/core/tensor.h"

namespace strata {

/// @name Order
/// @{
/// The lower median of all elements (0-dim); NaN where one is NaN, or of no floating elements. Equal elements share the
/// gradient. Throws ShapeError for no integers.
Tensor median(const Tensor& x);
/// Along `dim`: the lower medians and where they are (i64). The gradient goes to that one element.
std::tuple<Tensor, Tensor> median(const Tensor& x, int64_t dim, bool keepdim = false);
/// The same of the elements that are not NaN; NaN where there are none.
Tensor nanmedian(const Tensor& x);
std::tuple<Tensor, Tensor> nanmedian(const Tensor& x, int64_t dim, bool keepdim = false);
/// The commonest value along `dim` (the smallest of several) and the last place where it is (i64).
std::tuple<Tensor, Tensor> mode(const Tensor& x, int64_t dim = -1, bool keepdim = false);
/// The values below which the shares `q` (0-dim or 1-D, in [0, 1]) of the elements along `dim`, or of all, lie: place
/// q (n - 1) of the elements in order; between two of them by `interpolation` "linear", "lower", "higher", "midpoint"
/// or "nearest". A 1-D q comes first in the result's shape. NaN where an element is NaN. Throws ValueError, ShapeError,
/// DTypeError for integers.
Tensor quantile(const Tensor& x, const Tensor& q, std::optional<int64_t> dim = {}, bool keepdim = false,
                std::string_view interpolation = "linear");
/// The same of the elements that are not NaN; NaN where there are none.
Tensor nanquantile(const Tensor& x, const Tensor& q, std::optional<int64_t> dim = {}, bool keepdim = false,
                   std::string_view interpolation = "linear");
/// The smallest and the largest element along `dim`, or of all. Equal elements share the gradient.
std::tuple<Tensor, Tensor> aminmax(const Tensor& x, std::optional<int64_t> dim = {}, bool keepdim = false);
/// @}

/// @name Moments
/// @{
/// Sum (mean) of what is not NaN.
Tensor nansum(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
Tensor nanmean(const Tensor& x, const Dims& dims = {}, bool keepdim = false);
/// var() and mean(), std() and mean().
std::tuple<Tensor, Tensor> var_mean(const Tensor& x, const Dims& dims = {}, double correction = 1,
                                    bool keepdim = false);
std::tuple<Tensor, Tensor> std_mean(const Tensor& x, const Dims& dims = {}, double correction = 1,
                                    bool keepdim = false);
/// Covariances of the rows of x [variables, observations] (of one row, its variance). `fweights` (integers) says how
/// often each observation was seen, `aweights` how much it counts. Throws ShapeError, DTypeError, ValueError.
Tensor cov(const Tensor& x, double correction = 1, const Tensor& fweights = {}, const Tensor& aweights = {});
/// Correlations of the rows, in [-1, 1].
Tensor corrcoef(const Tensor& x);
/// @}

/// @name Histograms (not differentiable)
/// @{
/// How many elements lie in each of `bins` equal parts of [min, max] (both 0, or equal: the range of the elements), in
/// x's dtype. Throws ValueError.
Tensor histc(const Tensor& x, int64_t bins = 100, Scalar min = 0, Scalar max = 0);
/// bins[d] + 1 equally spaced edges for each column d of x [samples, columns]: over the `range` (lowest and highest of
/// each column in turn), or that of the elements. Throws ShapeError, ValueError.
TensorList bin_edges(const Tensor& x, const Dims& bins, const Tensor& range = {});
/// How many elements of x (the sum of their weights) lie between each two neighbours of the ascending `edges`; the last
/// part holds its upper edge too. With `density` divided by the total and the width. Throws ShapeError.
Tensor histogram(const Tensor& x, const Tensor& edges, const Tensor& weight = {}, bool density = false);
/// The same for points: x is [..., columns], with the edges of each column and a weight for each point.
Tensor histogramdd(const Tensor& x, const TensorList& edges, const Tensor& weight = {}, bool density = false);
/// @}

/// @name Differences and integrals
/// @{
/// Differences of neighbours along `dim`, n times, with `prepend` and `append` joined on first; of bool whether they
/// differ. Throws ShapeError, ValueError.
Tensor diff(const Tensor& x, int64_t n = 1, int64_t dim = -1, const Tensor& prepend = {}, const Tensor& append = {});
/// The integral along `dim` by trapezoids over points `x` (1-D, or broadcast to y), or steps of `dx`.
Tensor trapezoid(const Tensor& y, const Tensor& x = {}, double dx = 1, int64_t dim = -1);
/// The same up to each point but the first.
Tensor cumulative_trapezoid(const Tensor& y, const Tensor& x = {}, double dx = 1, int64_t dim = -1);
/// Derivatives of samples along each of `dims` (all without any) by central differences, with one-sided ones of
/// `edge_order` (1 or 2) at the ends. `spacing` holds one entry for all or for each: a distance (0-dim) or coordinates
/// (1-D); without entries the distance is 1. Throws ShapeError, ValueError.
TensorList gradient(const Tensor& x, const TensorList& spacing = {}, const Dims& dims = {}, int64_t edge_order = 1);
/// log of the sums of exp up to each element along `dim`, without overflow.
Tensor logcumsumexp(const Tensor& x, int64_t dim);
/// @}

}  // namespace strata
