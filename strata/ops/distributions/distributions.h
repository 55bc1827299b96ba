#pragma once
// Numbers drawn from distributions, element by element.

#include "strata/core/rng.h"
#include "strata/core/tensor.h"

namespace strata {

/// Gamma numbers of rate 1 and the shapes in `concentration`, of its dtype; NaN where that is negative or NaN, 0 where
/// it is 0. Gradients reach the concentration (Figurnov et al., arXiv:1805.08498). Throws DTypeError.
Tensor standard_gamma(const Tensor& concentration, Generator& generator = default_generator());
/// Numbers of events where `rate` are expected, in rate's dtype; NaN where that is negative or NaN. No gradient.
Tensor poisson(const Tensor& rate, Generator& generator = default_generator());
/// Successes of `count` trials of probability `prob`, which broadcast; NaN where there are no such trials. No gradient.
Tensor binomial(const Tensor& count, const Tensor& prob, Generator& generator = default_generator());
/// Shares that sum to 1 over the last dimension, of the concentrations' density. Gradients reach the concentration.
Tensor dirichlet(const Tensor& concentration, Generator& generator = default_generator());

/// The derivative of a standard_gamma sample for its concentration.
Tensor standard_gamma_grad(const Tensor& concentration, const Tensor& sample);

}  // namespace strata
