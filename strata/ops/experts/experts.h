#pragma once
// Mixtures of experts: which experts a token goes to, and products in which each group of rows has a matrix of its own.

#include <cstdint>
#include <string_view>
#include <tuple>

#include "strata/core/tensor.h"

namespace strata {

/// How experts are chosen.
struct RouteOptions {
  std::string_view scoring = "softmax";  ///< of logits: "softmax" or "sigmoid"
  int64_t groups = 1;                    ///< experts stand in so many groups of equal size
  int64_t top_groups = 1;                ///< groups that a token chooses among
  /// A group's score: "max" of its experts, or the sum of its two best, "top2".
  std::string_view group_score = "max";
  bool normalize = true;  ///< weights of a token are divided by their sum
  double scale = 1;       ///< and multiplied by this
};

/// The k experts that each row of `logits` [N, E] goes to, best first, i64 [N, k], and what their results are weighted
/// with, f32 [N, k] (f64 for f64 logits). Scores are computed in f32. `bias` [E], where defined, is added to the scores
/// for the choice alone (Wang et al., arXiv:2408.15664); with groups a token chooses within its best groups
/// (DeepSeek-V2, arXiv:2405.04434). Equal scores: the smaller number. Gradients reach the logits through the weights.
/// Throws ShapeError, ValueError (k, groups or names out of range).
///   auto [weights, experts] = route_experts(logits, 2);
std::tuple<Tensor, Tensor> route_experts(const Tensor& logits, int64_t k, const RouteOptions& options = {},
                                         const Tensor& bias = {});

/// Rows of x [N, K] times their group's matrix, weight [E, M, K] transposed: [N, M]. Group e has rows offsets[e] to
/// offsets[e + 1]; `offsets` i64 [E + 1] ascends from 0 to N, is on x's device, and never leaves it.
///   Tensor y = grouped_linear(x, weight, offsets);
Tensor grouped_linear(const Tensor& x, const Tensor& weight, const Tensor& offsets);

/// For each group the product of g [N, M], transposed, with x [N, K] over its rows: [E, M, K]; zeros for an empty
/// group. What grouped_linear's gradient for the weight is.
Tensor grouped_outer(const Tensor& g, const Tensor& x, const Tensor& offsets);

/// Rows in the order of their experts: of `experts` [N, k] with numbers below `count`, `order` i64 [N k] (the place in
/// the flattened experts of each row, by expert, then by place), `place` i64 [N k] (its inverse), and `offsets`
/// i64 [count + 1] of each expert's rows. Nothing waits for the device.
struct ExpertOrder {
  Tensor order, place, offsets;
};
ExpertOrder order_by_expert(const Tensor& experts, int64_t count);

}  // namespace strata
