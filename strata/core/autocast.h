#pragma once
// Autocast: runs matrix products, convolutions and attention in bf16 (or f16) and what needs precision in f32,
// by each record's policy. Parameters stay f32 (they are the master weights) and their gradients arrive in f32.

#include "strata/core/dtype.h"

namespace strata {

/// Autocast is on (or off) on this thread while one lives. A parameter has one entry on the tape until the outermost
/// ends: end it before the optimizer changes parameters. The cast itself is kept with the parameter and used for as
/// long as nothing writes to it; the fused optimizers renew it. Throws DTypeError unless dtype is bf16 or f16.
class AutocastScope {
 public:
  /// With `low_gradients` the gradients of parameters stay in `dtype`, as products round them, instead of f32 sums:
  /// less memory and traffic, the precision of PyTorch's autocast. Only the optimizers read such gradients (bf16 ones).
  explicit AutocastScope(DType dtype = DType::bf16, bool enabled = true, bool low_gradients = false);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;

 private:
  DType previous_dtype_;
  bool previous_enabled_, previous_low_gradients_;
};
bool autocast_enabled();
DType autocast_dtype();

}  // namespace strata
