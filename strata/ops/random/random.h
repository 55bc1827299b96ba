#pragma once
// Random tensors. Each function takes the next stretch of a generator's stream; element i depends on the seed, the
// position in the stream and i only, so results are the same on any number of threads.

#include <optional>

#include "strata/core/rng.h"
#include "strata/core/tensor.h"

namespace strata {

/// Uniform in [low, high). New tensors are made on default_device(), with default_dtype() unless a dtype is given.
Tensor uniform(const Shape& shape, double low, double high, std::optional<DType> dtype = {},
               Generator& generator = default_generator());
/// Uniform in [0, 1).
Tensor rand(const Shape& shape, std::optional<DType> dtype = {}, Generator& generator = default_generator());
/// Normal with the given mean and standard deviation. Throws ValueError for a negative deviation.
Tensor normal(const Shape& shape, double mean, double std, std::optional<DType> dtype = {},
              Generator& generator = default_generator());
/// Normal with mean 0 and standard deviation 1.
Tensor randn(const Shape& shape, std::optional<DType> dtype = {}, Generator& generator = default_generator());
/// Integers uniform in [low, high). Throws ValueError unless low < high.
Tensor randint(int64_t low, int64_t high, const Shape& shape, DType dtype = DType::i64,
               Generator& generator = default_generator());
/// 1 with probability p, elementwise, else 0; in p's dtype. Throws ValueError for a p outside [0, 1].
Tensor bernoulli(const Tensor& p, Generator& generator = default_generator());
/// Indices drawn with probabilities proportional to `weights` ([n] or [rows, n]): [num_samples] or
/// [rows, num_samples] i64. Throws ValueError for negative or all-zero weights, or when without replacement more are
/// asked for than have a positive weight.
Tensor multinomial(const Tensor& weights, int64_t num_samples, bool replacement = false,
                   Generator& generator = default_generator());
/// A random order of 0 .. n-1, i64.
Tensor randperm(int64_t n, Generator& generator = default_generator());

/// Like `x` in shape, device and (unless given) dtype.
Tensor rand_like(const Tensor& x, std::optional<DType> dtype = {}, Generator& generator = default_generator());
Tensor randn_like(const Tensor& x, std::optional<DType> dtype = {}, Generator& generator = default_generator());
Tensor randint_like(const Tensor& x, int64_t low, int64_t high, std::optional<DType> dtype = {},
                    Generator& generator = default_generator());

/// @name Fills for initialisation: they write over `x` (which may be a leaf that wants a gradient) and record nothing.
/// @{
void uniform_(const Tensor& x, double low = 0, double high = 1, Generator& generator = default_generator());
void normal_(const Tensor& x, double mean = 0, double std = 1, Generator& generator = default_generator());
/// Normal restricted to [low, high] (values, not deviations). Throws ValueError unless low < high.
void trunc_normal_(const Tensor& x, double mean = 0, double std = 1, double low = -2, double high = 2,
                   Generator& generator = default_generator());
void bernoulli_(const Tensor& x, double p, Generator& generator = default_generator());
/// @}

namespace detail {
/// Uniform numbers of a key of one's own, for what is composed of them.
Tensor uniform_of(const Shape& shape, double low, double high, RngKey key, DType dtype, Device device);
}  // namespace detail

}  // namespace strata
