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
};

/// -log softmax(x)[target]: x is [N, C], [C] or [N, C, d1, ...] of any floating dtype, target i64 of x's shape without
/// C. "mean" divides by the number of targets that are not ignored (NaN if there is none). Only one number a row is
/// kept for the gradient. Differs from PyTorch: the loss of bf16 or f16 logits is f32, since a mean over thousands of
/// rows does not fit 8 bits. Throws ShapeError, DTypeError, IndexError (a target that is no class), ValueError.
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

/// -x[target] of log-probabilities x, shapes as in cross_entropy.
Tensor nll_loss(const Tensor& x, const Tensor& target, int64_t ignore_index = -100,
                const std::string& reduction = "mean");

/// (x - target)^2.
Tensor mse_loss(const Tensor& x, const Tensor& target, const std::string& reduction = "mean");
/// |x - target|.
Tensor l1_loss(const Tensor& x, const Tensor& target, const std::string& reduction = "mean");
/// d = x - target: d^2 / (2 beta) where |d| < beta, else |d| - beta / 2. beta > 0.
Tensor smooth_l1_loss(const Tensor& x, const Tensor& target, const std::string& reduction = "mean", double beta = 1);
/// d = x - target: d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2). delta > 0.
Tensor huber_loss(const Tensor& x, const Tensor& target, const std::string& reduction = "mean", double delta = 1);
/// -(t log sigmoid(x) + (1 - t) log(1 - sigmoid(x))), without overflow.
Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& target, const std::string& reduction = "mean");
/// t (log t - x) for log-probabilities x and probabilities t (0 where t is 0); with log_target t is a logarithm too.
/// reduction may also be "batchmean": the sum over x.size(0).
Tensor kl_div(const Tensor& x, const Tensor& target, const std::string& reduction = "mean", bool log_target = false);
/// Connectionist temporal classification (Graves et al., 2006): -log of the probability that log_probs [T, N, C], a
/// log_softmax at each step, spell out the labels of N sequences. targets are i64, [N, S] or one after the other;
/// input_lengths and target_lengths, [N], say how many steps and labels count. "mean" is that of the losses over their
/// target lengths. A sequence whose labels have no path has the loss inf, with zero_infinity 0. Throws ShapeError,
/// DTypeError, ValueError, IndexError.
Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, const Tensor& input_lengths,
                const Tensor& target_lengths, int64_t blank = 0, const std::string& reduction = "mean",
                bool zero_infinity = false);

}  // namespace strata
