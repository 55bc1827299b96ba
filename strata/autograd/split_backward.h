#pragma once
// A backward pass in two halves: what others wait for now, the gradients of weights later.

#include <memory>

#include "strata/core/node.h"
#include "strata/core/tensor.h"

namespace strata {

/// backward(), whose products that give gradients of weights (of linear, matmul, addmm, gelu_mlp, where the weight is a
/// parameter itself or its copy for autocast) wait until finish(). All other gradients are there when the constructor
/// returns, those that lead to the inputs among them. Together the halves give the bits of one pass. In between, what
/// the waiting products read is kept: their inputs, and the gradients of their results. Both halves on one thread.
///
///     SplitBackward rest({y}, {gy}, {x});   // x.grad() is there
///     send(x.grad());
///     rest.finish();                        // now the weights' are too
///
/// That weights' gradients can wait is Qi et al.'s (arXiv:2401.10241).
class SplitBackward {
 public:
  /// The first half. The gradient of a leaf in `now` never waits. Throws as backward().
  SplitBackward(const TensorList& outputs, const TensorList& grad_outputs = {}, const TensorList& now = {});
  /// What was not finished is dropped.
  ~SplitBackward();
  SplitBackward(const SplitBackward&) = delete;

  /// The second half; nothing the second time.
  void finish();
  /// Products' nodes that wait.
  int64_t waiting() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata
