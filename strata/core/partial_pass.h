#pragma once
// What a backward pass to some inputs tells the gradient rules that run in it.

#include "strata/core/node.h"

namespace strata::detail {

/// A pass of grad(): it wants what leads to its inputs, and no other gradient.
struct PartialPass {
  virtual ~PartialPass() = default;
  /// Whether anything that it wants lies behind `edge`.
  virtual bool needs(const Edge& edge) const = 0;
};
/// The one that runs on this thread; nullptr in a pass to all leaves.
extern thread_local const PartialPass* t_partial_pass;

}  // namespace strata::detail
