#pragma once
// Dropout as a pure function of a key.

#include "strata/core/rng.h"
#include "strata/core/tensor.h"

namespace strata {

/// Each element set to 0 with probability p, the others divided by 1 - p (Srivastava et al., JMLR 15, 2014). The key
/// comes from default_generator(); with `training` false or p = 0 the result is x. Throws ValueError unless 0 <= p
/// <= 1.
///   Tensor y = dropout(x, 0.1, model.is_training());
Tensor dropout(const Tensor& x, double p = 0.5, bool training = true);
/// The same with a key of one's own: element i (in row-major order) is dropped where number i of the key's stream,
/// uniform_f32 of word i % 4 of block i / 4, is below p. Equal keys give equal results on any device and number of
/// threads.
/// `numbers` says so of a part of something larger: [run, a, b, step, first]. The elements of a process come in runs of
/// so many, whose numbers are neighbours; run 2m begins with number a + m step, run 2m + 1 with b + m step, and x's
/// first element is element `first` of them. Where a stretch of x does not begin with a multiple of four its numbers
/// begin at the next one.
Tensor dropout(const Tensor& x, double p, RngKey key, const Dims& numbers = {});

/// dropout of whole channels of x [N, C, ..]. Throws ShapeError besides.
Tensor feature_dropout(const Tensor& x, double p = 0.5, bool training = true);
/// Dropout for SELU: what is dropped becomes SELU's floor, and mean 0 and variance 1 stay (arXiv:1706.02515).
Tensor alpha_dropout(const Tensor& x, double p = 0.5, bool training = true);
/// The same of whole channels of x [N, C, ..].
Tensor feature_alpha_dropout(const Tensor& x, double p = 0.5, bool training = true);

}  // namespace strata
