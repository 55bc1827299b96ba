#pragma once
// A router's scores and weights, which several records compute alike.

#include <string>

#include "strata/core/error.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/index/index.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/softmax/softmax.h"

namespace strata::experts {

/// The softmax or sigmoid of logits [N, E], in f32 (f64 for f64). Throws ValueError for another name.
inline Tensor scores_of(const Tensor& logits, const std::string& scoring) {
  check(scoring == "softmax" || scoring == "sigmoid", "experts", "scoring is softmax or sigmoid, got '", scoring, "'");
  const Tensor wide = logits.dtype() == DType::f64 ? logits : logits.to(DType::f32);
  return scoring == "softmax" ? softmax(wide, 1) : sigmoid(wide);
}

/// Of these experts [N, k], divided by their sum where they are normalised, times `scale`.
inline Tensor weights_of(const Tensor& scores, const Tensor& experts, bool normalize, double scale) {
  Tensor weights = gather(scores, 1, experts);
  // Sigmoids may all be zero.
  if (normalize) weights = weights / (sum(weights, {1}, true) + 1e-20);
  return scale == 1 ? weights : weights * scale;
}

}  // namespace strata::experts
