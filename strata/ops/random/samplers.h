#pragma once
// Numbers of further laws, made of uniform or normal ones: what Tensor.exponential_() and its like write. On
// default_device(), in the default dtype without one.

#include <optional>

#include "strata/core/rng.h"
#include "strata/core/tensor.h"

namespace strata {

/// Density lambd exp(-lambd x). Throws ValueError unless lambd > 0, DTypeError unless the dtype is floating.
Tensor exponential(const Shape& shape, double lambd = 1, std::optional<DType> dtype = {},
                   Generator& generator = default_generator());
/// Cauchy's law about `median`. Throws ValueError unless sigma > 0, DTypeError unless the dtype is floating.
Tensor cauchy(const Shape& shape, double median = 0, double sigma = 1, std::optional<DType> dtype = {},
              Generator& generator = default_generator());
/// Numbers of trials until the first success of probability p. Throws ValueError unless 0 < p <= 1.
Tensor geometric(const Shape& shape, double p, std::optional<DType> dtype = {},
                 Generator& generator = default_generator());
/// exp of normal numbers of that mean and standard deviation. Throws ValueError for a negative std, DTypeError unless
/// the dtype is floating.
Tensor log_normal(const Shape& shape, double mean = 1, double std = 2, std::optional<DType> dtype = {},
                  Generator& generator = default_generator());

}  // namespace strata
