#pragma once
// Losses. `reduction` is "mean", "sum" or "none" throughout.

#include <string>

#include "strata/core/tensor.h"

namespace strata {

/// What cross_entropy takes beside its tensors.
struct CrossEntropyOptions {
  /// Rows with this target count nothing.
  int64_t ignore_index = -100;
  std::string reduction = "mean";
  /// The wanted distribution is (1 - label_smoothing) at the target plus label_smoothing spread evenly.
  double label_smoothing = 0;
  /// [C], multiplies the classes; undefined for none.
  Tensor weight = {};
};

/// -log softmax(x)[target]: x is [N, C], [C] or [N, C, d1, ...] of any floating dtype, target integers of x's shape
/// without C, or probabilities of x's shape. "mean" divides by the weights of the targets that are not ignored (NaN if
/// there is none). Without weights only one number a row is kept for the gradient. Differs from PyTorch: the loss of
/// bf16 or f16 logits is f32, since a mean over thousands of rows does not fit 8 bits. Throws ShapeError, DTypeError,
/// IndexError (a target that is no class), ValueError.
///   Tensor loss = cross_entropy(logits, targets, {.label_smoothing = 0.1});
Tensor cross_entropy(const Tensor& x, const Tensor& target, const CrossEntropyOptions& options = {});

/// cross_entropy(linear(x, weight), target) for x [.., D], weight [C, D] and target [..], with the logits of some rows
/// at a time in memory, never of all: a vocabulary of 128k classes costs at most 1 GiB. Where gradients will be wanted
/// (and reduction is not "none") they are computed on the way, chunk by chunk, instead of computing the logits twice.
/// weight has x's dtype, or f32 where x is bf16 or f16; its gradient is summed in f32. Under autocast x is cast, weight
/// is not. Throws as cross_entropy.
///   Tensor loss = linear_cross_entropy(hidden, head.weight, targets);
Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& target,
                            const CrossEntropyOptions& options = {});

/// The same loss in the way that suits the device: linear_cross_entropy on a card, which has little memory for its speed;
/// the CPU keeps all logits, which is as fast. x [N, D], weight [C, D], target [N].
Tensor head_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& target,
                          const CrossEntropyOptions& options = {});

/// -x[target] of log-probabilities x; shapes, weight [C] and mean as in cross_entropy.
Tensor nll_loss(const Tensor& x, const Tensor& target, const Tensor& weight = {}, int64_t ignore_index = -100,
                const std::string& reduction = "mean");

/// (input - target)^2. Where given, weight (of input's shape) multiplies it, and the mean is over the weights.
Tensor mse_loss(const Tensor& input, const Tensor& target, const std::string& reduction = "mean",
                const Tensor& weight = {});
/// |input - target|; weight as in mse_loss.
Tensor l1_loss(const Tensor& input, const Tensor& target, const std::string& reduction = "mean",
               const Tensor& weight = {});
/// d = input - target: d^2 / (2 beta) where |d| < beta, else |d| - beta / 2. beta 0 is l1_loss.
Tensor smooth_l1_loss(const Tensor& input, const Tensor& target, const std::string& reduction = "mean",
                      double beta = 1);
/// d = input - target: d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2). delta > 0; weight multiplies it.
Tensor huber_loss(const Tensor& input, const Tensor& target, const std::string& reduction = "mean", double delta = 1,
                  const Tensor& weight = {});
/// t (log t - input) for log-probabilities input and probabilities t (0 where t is 0); with log_target t is a logarithm
/// too. reduction may also be "batchmean": the sum over input.size(0).
Tensor kl_div(const Tensor& input, const Tensor& target, const std::string& reduction = "mean",
              bool log_target = false);
/// -(t log p + (1 - t) log(1 - p)) for probabilities p and t of one shape; logarithms are at least -100.
Tensor binary_cross_entropy(const Tensor& input, const Tensor& target, const Tensor& weight = {},
                            const std::string& reduction = "mean");
/// The same of p = sigmoid(input), without overflow; pos_weight multiplies the first of the two terms.
Tensor binary_cross_entropy_with_logits(const Tensor& input, const Tensor& target, const Tensor& weight = {},
                                        const std::string& reduction = "mean", const Tensor& pos_weight = {});
/// exp(input) - target input, or with log_input false input - target log(input + eps); full adds Stirling's
/// approximation of log(target!) where target > 1.
Tensor poisson_nll_loss(const Tensor& input, const Tensor& target, bool log_input = true, bool full = false,
                        double eps = 1e-8, const std::string& reduction = "mean");
/// (log var + (input - target)^2 / var) / 2, var at least eps; full adds log(2 pi) / 2. var has input's shape, that
/// without the last dimension, or that with 1 in one place. Throws ShapeError, ValueError for a negative variance.
Tensor gaussian_nll_loss(const Tensor& input, const Tensor& target, const Tensor& var, bool full = false,
                         double eps = 1e-6, const std::string& reduction = "mean");
/// log(1 + exp(-target input)).
Tensor soft_margin_loss(const Tensor& input, const Tensor& target, const std::string& reduction = "mean");

/// input where target is 1, max(0, margin - input) where it is -1.
Tensor hinge_embedding_loss(const Tensor& input, const Tensor& target, double margin = 1,
                            const std::string& reduction = "mean");
/// max(0, -target (input1 - input2) + margin). Throws ShapeError unless all have one number of dimensions.
Tensor margin_ranking_loss(const Tensor& input1, const Tensor& input2, const Tensor& target, double margin = 0,
                           const std::string& reduction = "mean");
/// For scores [N, C] or [C] and integer classes: the sum over the other classes c of max(0, margin - input[target] +
/// input[c])^p over C, p being 1 or 2; weight [C] multiplies the target's. Throws as cross_entropy.
Tensor multi_margin_loss(const Tensor& input, const Tensor& target, int64_t p = 1, double margin = 1,
                         const Tensor& weight = {}, const std::string& reduction = "mean");
/// For scores [N, C] or [C] and as many class indices, which end where -1 stands: the sum over pairs of a target class
/// t and another c of max(0, 1 - input[t] + input[c]), over C.
Tensor multilabel_margin_loss(const Tensor& input, const Tensor& target, const std::string& reduction = "mean");
/// -(t log sigmoid(x) + (1 - t) log sigmoid(-x)) of scores [.., C], the mean over the classes; weight multiplies them.
Tensor multilabel_soft_margin_loss(const Tensor& input, const Tensor& target, const Tensor& weight = {},
                                   const std::string& reduction = "mean");

/// x1 . x2 over the product of their norms along `dim` of their common shape; norms count as at least eps.
Tensor cosine_similarity(const Tensor& x1, const Tensor& x2, int64_t dim = 1, double eps = 1e-8);
/// The p-norm of x1 - x2 + eps over the last dimension.
Tensor pairwise_distance(const Tensor& x1, const Tensor& x2, double p = 2, double eps = 1e-6, bool keepdim = false);
/// The p-norms of the differences of all pairs of rows of input [N, M]: [N (N - 1) / 2].
Tensor pdist(const Tensor& input, double p = 2);
/// The p-norms of the differences of the rows of x1 [.., P, M] and of x2 [.., R, M]: [.., P, R].
Tensor cdist(const Tensor& x1, const Tensor& x2, double p = 2);
/// 1 - c where target is 1, max(0, c - margin) where it is -1, c being the cosine of rows of [N, D] (or [D]).
Tensor cosine_embedding_loss(const Tensor& input1, const Tensor& input2, const Tensor& target, double margin = 0,
                             const std::string& reduction = "mean");
/// max(0, d(anchor, positive) - d(anchor, negative) + margin), d being pairwise_distance; with swap the negative's
/// distance is that from anchor or positive, whichever is smaller.
Tensor triplet_margin_loss(const Tensor& anchor, const Tensor& positive, const Tensor& negative, double margin = 1,
                           double p = 2, double eps = 1e-6, bool swap = false, const std::string& reduction = "mean");
/// The same of distances: of anchor and positive, anchor and negative, and for swap positive and negative.
Tensor triplet_margin_of_distances(const Tensor& near, const Tensor& far, const Tensor& between = {}, double margin = 1,
                                   const std::string& reduction = "mean");
/// Connectionist temporal classification (Graves et al., 2006): -log of the probability that log_probs [T, N, C], a
/// log_softmax at each step, spell out the labels of N sequences. targets are i64, [N, S] or one after the other;
/// input_lengths and target_lengths, [N], say how many steps and labels count. "mean" is that of the losses over their
/// target lengths. A sequence whose labels have no path has the loss inf, with zero_infinity 0. Throws ShapeError,
/// DTypeError, ValueError, IndexError.
Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                const Tensor& target_lengths, int64_t blank = 0, const std::string& reduction = "mean",
                bool zero_infinity = false);

}  // namespace strata
