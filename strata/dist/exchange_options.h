#pragma once
// Numbers of the ways to exchange gradients (gradient_exchange.h), apart for settings that hold them.

#include <cstdint>

namespace strata::distributed {

/// Numbers of the ways to exchange gradients; each reads those that its record names.
struct ExchangeOptions {
  int64_t rank = 4;             ///< powersgd: of the products that stand for matrices
  int64_t warmup = 100;         ///< onebit: steps of Adam, after which its second moments stay as they are
  int64_t keep = 24;            ///< demo: components of a chunk that travel in a step
  double decay = 0.999;         ///< demo: of what has not travelled yet, in a step
  int64_t every = 0;            ///< local_sgd, diloco: steps between two meetings; 0: the way's own number
  double outer_lr = 0.7;        ///< diloco: of a meeting's step
  double outer_momentum = 0.9;  ///< diloco: Nesterov's, over meetings
  double beta1 = 0.9;           ///< onebit: Adam's numbers; a run's are those of train.optimizer
  double beta2 = 0.95;          ///< of the second moments
  double eps = 1e-8;            ///< added to their roots
  bool operator==(const ExchangeOptions&) const = default;
};

}  // namespace strata::distributed
