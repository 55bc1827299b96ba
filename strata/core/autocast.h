#pragma once
// Autocast: runs matrix products, convolutions and attention in bf16 (or f16) and what needs precision in f32,
// by each record's policy. Parameters stay f32 (they are the master weights) and their gradients arrive in f32.

#include <memory>
#include <string>

#include "strata/core/dtype.h"
#include "strata/core/tensor.h"

namespace strata {

/// How the products of linear layers run under autocast's fp8 policy: see linear_fp8() (ops/matmul/linear_fp8.h).
struct Fp8Options {
  std::string scaling = "tensor";  ///< one scale for each operand, or "row": one for each of its rows
  TensorList exclude;              ///< weights whose products stay in bf16: those of the first and last layers
};

/// What autocast does on a thread.
struct AutocastSettings {
  DType dtype = DType::bf16;
  bool enabled = true;
  bool low_gradients = false;
  std::shared_ptr<const Fp8Options> fp8;  ///< nullptr: linear layers in `dtype`, like all products
};

/// Autocast is on (or off) on this thread while one lives. A parameter has one entry on the tape until the outermost
/// ends: end it before the optimizer changes parameters. The cast itself is kept with the parameter and used for as
/// long as nothing writes to it; the fused optimizers renew it. Throws DTypeError unless dtype is bf16 or f16.
class AutocastScope {
 public:
  /// With `low_gradients` the gradients of parameters stay in `dtype`, as products round them, instead of f32 sums:
  /// less memory and traffic, the precision of PyTorch's autocast. Only the optimizers read such gradients (bf16 ones).
  explicit AutocastScope(DType dtype = DType::bf16, bool enabled = true, bool low_gradients = false);
  /// The fp8 policy: bf16, but linear layers whose sizes are multiples of 16 as linear_fp8() computes them. Throws
  /// ValueError for a scaling that there is not.
  explicit AutocastScope(const Fp8Options& fp8, bool enabled = true, bool low_gradients = false);
  explicit AutocastScope(AutocastSettings settings);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;

 private:
  AutocastSettings previous_;
};
bool autocast_enabled();
DType autocast_dtype();
/// All that is set on this thread, for another scope like it.
AutocastSettings autocast_settings();

/// While one lives on this thread, the fp8 codes of a parameter are made once and used for as long as nothing writes to
/// it: put it around the passes of a step that accumulates gradients. An AutocastScope with an fp8 policy is one too.
class Fp8WeightsScope {
 public:
  Fp8WeightsScope();
  ~Fp8WeightsScope();
  Fp8WeightsScope(const Fp8WeightsScope&) = delete;
};

}  // namespace strata
