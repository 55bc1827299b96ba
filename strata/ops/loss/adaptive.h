#pragma once
// A softmax over very many classes that are sorted from frequent to rare (Grave et al., arXiv:1609.04309). The head
// scores the first cutoffs[0] classes and the clusters of the others; within cluster i, the classes from cutoffs[i] to
// cutoffs[i + 1], tails[2 i + 1] scores the features that tails[2 i] makes of x. The last cutoff is the number of
// classes.

#include "strata/core/tensor.h"

namespace strata {

/// The log-probabilities of the targets: x [N, d] and target [N] (or [d] and one), head [cutoffs[0] + clusters, d] with
/// an optional bias, tails [features, d] and [classes, features] for each cluster. Only the rows whose target is in a
/// cluster are computed there. Throws ShapeError, DTypeError, ValueError for cutoffs that do not ascend and targets
/// outside the classes.
Tensor adaptive_log_softmax(const Tensor& x, const Tensor& target, const Tensor& head, const Tensor& head_bias,
                            const TensorList& tails, const Dims& cutoffs);
/// The log-probabilities of all classes: [N, classes], or [classes].
Tensor adaptive_log_prob(const Tensor& x, const Tensor& head, const Tensor& head_bias, const TensorList& tails,
                         const Dims& cutoffs);
/// The most probable class of each row, i64: the clusters are looked at where the head prefers one.
Tensor adaptive_predict(const Tensor& x, const Tensor& head, const Tensor& head_bias, const TensorList& tails,
                        const Dims& cutoffs);

}  // namespace strata
