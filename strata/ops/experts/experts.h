#pragma once
// Mixtures of experts: which experts a token goes to, how its row gets there and back, products in which each group of
// rows has a matrix of its own, and what training adds.

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

/// @name Rows to their experts and back
/// `place` [N, k], i64: the row of choice j of token n, a negative number where there is none; the others are different
/// ones. On the CPU places past the end, and those given twice, are an IndexError; on cards only the first, and of the
/// others the last counts. Each is the gradient of the others. Throw ShapeError, DTypeError.
/// @{
/// x [N, D] spread over `rows` rows, times `weights` [N, k] where given; zeros elsewhere: [rows, D].
///   Tensor sorted = dispatch_rows(x, order.place.view({-1, k}), x.size(0) * k);
Tensor dispatch_rows(const Tensor& x, const Tensor& place, int64_t rows, const Tensor& weights = {});
/// The sum of each token's rows of y [R, D], times their `weights`: [N, D]. Sums run in f32 (f64 for f64).
///   Tensor tokens = combine_rows(y, place, weights);
Tensor combine_rows(const Tensor& y, const Tensor& place, const Tensor& weights = {});
/// The inner products of x [N, D] with each token's rows of y [R, D]: f32 [N, k] (f64 for f64), 0 without a place.
Tensor row_dots(const Tensor& x, const Tensor& y, const Tensor& place);
/// @}

/// Places at experts that take `capacity` of each `rows` tokens that follow each other (Lepikhin et al.,
/// arXiv:2006.16668), for `chosen` [N, k] and scores [N, E]: the experts and i64 slots [N, k] from 0 to capacity - 1,
/// -1 for a choice that is left out. With `reroute` a choice that finds its expert full goes to the best of those with
/// room that its token is not at yet, and is left out only where there is none. Throws ValueError, ShapeError.
///   auto [experts, slots] = expert_slots(chosen, logits, 1024, 48, true);
std::tuple<Tensor, Tensor> expert_slots(const Tensor& chosen, const Tensor& scores, int64_t rows, int64_t capacity,
                                        bool reroute = false);
/// What route_experts() weights experts with, of given ones [N, k]: scoring, normalize and scale of `options` count.
Tensor expert_weights(const Tensor& logits, const Tensor& experts, const RouteOptions& options = {});
/// What a router pays for uneven loads, of `counts` [E], the choices that went to each expert (Fedus et al.,
/// arXiv:2101.03961): 1 where they are even, E at most. Gradients reach the logits [N, E] alone.
///   Tensor loss = balance_loss(logits, bincount(chosen.view({-1}), {}, logits.size(1)));
Tensor balance_loss(const Tensor& logits, const Tensor& counts, std::string_view scoring = "softmax");
/// What it pays for large logits: the mean square of the logarithm of the sum of their exponentials (Zoph et al.,
/// arXiv:2202.08906).
Tensor router_z_loss(const Tensor& logits);

}  // namespace strata
