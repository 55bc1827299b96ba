#pragma once
// Losses of preferences: of two answers one is wanted more.

#include <string>

#include "strata/core/tensor.h"

namespace strata {

/// What dpo_loss takes beside its tensors.
struct DpoOptions {
  double beta = 0.1;           ///< how much moving away from the reference costs; above 0
  double label_smoothing = 0;  ///< the probability that a pair is the wrong way round; in [0, 0.5)
  std::string kind = "sigmoid";
  std::string reduction = "mean";
};

/// Direct preference optimisation (Rafailov et al., arXiv:2305.18290) of log-probabilities of answers, the wanted and
/// the rejected ones, under the model and under its reference; shapes broadcast. With d = (chosen - reference_chosen) -
/// (rejected - reference_rejected), kind "sigmoid" is -(1 - s) log sigmoid(beta d) - s log sigmoid(-beta d), s the
/// label smoothing, and "ipo" (Azar et al., arXiv:2310.12036) (d - 1 / (2 beta))^2, for which log-probabilities are
/// usually means over an answer's tokens. Throws ValueError, DTypeError.
///   Tensor loss = dpo_loss(chosen, rejected, reference_chosen, reference_rejected, {.beta = 0.1});
Tensor dpo_loss(const Tensor& chosen, const Tensor& rejected, const Tensor& reference_chosen,
                const Tensor& reference_rejected, const DpoOptions& options = {});

}  // namespace strata
