#pragma once
// Anomaly mode: stops at the first NaN and names the forward op behind it.

#include "strata/core/node.h"
#include "strata/core/op_base.h"

namespace strata {

/// While one lives, every op's results and every gradient on this thread are searched for NaN; the first one throws
/// AutogradError naming the op that made it. Costs a pass over every result: for finding errors only.
class AnomalyScope {
 public:
  AnomalyScope();
  ~AnomalyScope();
  AnomalyScope(const AnomalyScope&) = delete;

 private:
  struct Watch : CallObserver {
    void after(const Call& call, std::span<const Tensor> results) override;
  } watch_;
  ObserverScope scope_;
};

namespace anomaly {
/// Throws when anomaly mode is on and a gradient that `node` produced holds a NaN.
void check_gradients(const Node& node, const Grads& grads);
/// Says which node's rule this thread is running, so that a NaN in one of the rule's ops is reported as the node's.
class BackwardOf {
 public:
  explicit BackwardOf(const Node& node);
  ~BackwardOf();
  BackwardOf(const BackwardOf&) = delete;

 private:
  const Node* previous_;
};
}  // namespace anomaly

}  // namespace strata
