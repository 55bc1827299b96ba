#pragma once
// The windows of signal processing. Made on default_device().

#include <optional>
#include <string>

#include "strata/core/tensor.h"

namespace strata {

/// The window of that name at `size` points, 1-D: "bartlett", "blackman", "cosine", "exponential" (`a`: the decay's
/// length; about the middle), "gaussian" (`a`: the standard deviation), "general_hamming" (`a`: its alpha), "hamming",
/// "hann", "kaiser" (`a`: its beta), "nuttall". `a` without a value is 1, 0.54 and 12 in kaiser's and hamming's case.
/// A `sym` one is symmetric, for filters; otherwise its last point is left out, for spectra. Throws ValueError for
/// another name, a negative size or an `a` that is not positive (kaiser and general_hamming: not finite).
Tensor signal_window(const std::string& name, int64_t size, std::optional<double> a = {}, bool sym = true,
                     std::optional<DType> dtype = {});
/// sum_k (-1)^k coefficients[k] cos(k x) at `size` values x of one period, 1-D, in the coefficients' dtype. Throws
/// ShapeError unless the coefficients are 1-D and not empty, ValueError for a negative size.
Tensor general_cosine_window(const Tensor& coefficients, int64_t size, bool sym = true);

}  // namespace strata
