#pragma once
// Which elements of a weight stay: masks of ones and zeros, as torch.nn.utils.prune computes them. `amount` is a share
// of what the mask still has (a floating number from 0 to 1, rounded to the nearest count) or a count (an integer).
// What a mask has not (zeros) stays out. ValueError for another amount, ShapeError.

#include "strata/core/rng.h"
#include "strata/core/scalar.h"
#include "strata/core/tensor.h"

namespace strata {

/// `mask` without the elements of the smallest |scores|; of equal ones the first go.
Tensor l1_unstructured_mask(const Tensor& mask, const Tensor& scores, Scalar amount);
/// `mask` without elements that are drawn.
Tensor random_unstructured_mask(const Tensor& mask, Scalar amount, Generator& g = default_generator());
/// `mask` without the slices along `dim` whose scores have the smallest n-norms. A slice counts as there while one of
/// its elements is.
Tensor ln_structured_mask(const Tensor& mask, const Tensor& scores, Scalar amount, double n = 2, int64_t dim = -1);
/// `mask` without slices along `dim` that are drawn.
Tensor random_structured_mask(const Tensor& mask, Scalar amount, int64_t dim = -1, Generator& g = default_generator());

}  // namespace strata
