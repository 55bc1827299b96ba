#pragma once
// For those that send gradients home themselves, behind backward().

namespace strata::optim {
class Optimizer;

struct GradientNotes {
  /// For gradients that went home after backward() had made them, while they are near: their parts of the norm, which
  /// else would bring them back. Does nothing where there is no home with `ahead`, and for those that have theirs.
  static void take(Optimizer& o);
};

}  // namespace strata::optim
