#pragma once
#include <cstdint>

namespace strata::optim {

/// How an optimizer treats parameters of bf16 and f16; those of f32 and f64 are not concerned. Arithmetic is in f32
/// whatever stands here, and the state too unless `low_state`. As they are, updates are rounded to the nearest value
/// that the parameter's type has: those below half of its last bit are lost, which ends the training of bf16 weights
/// at learning rates that f32 ones still learn with. The two remedies:
///
/// | | bytes a parameter under AdamW, with its gradient |
/// |---|---|
/// | f32 parameters | 16 |
/// | bf16, rounded to nearest or stochastically | 12 |
/// | bf16 or f16, `master_weights` | 16 |
/// | bf16, stochastically, `low_state` | 8 |
///
/// Fixed when the optimizer is made.
struct LowPrecision {
  /// The state has the weights in f32 ("master"), which are updated; the parameter is always their rounding. Where the
  /// parameter is written by others, its new values replace those weights (Micikevicius et al., "Mixed Precision
  /// Training", 2018).
  bool master_weights = false;
  /// bf16 only: an update is rounded up or down at random, with the probabilities that make its mean exact (Zamirai et
  /// al., "Revisiting BFloat16 Training", 2020). The random bits follow from the seed, the parameter's place in the
  /// list, the count of its updates and the element: the same on every device and for any number of threads.
  bool stochastic_rounding = false;
  /// Moments of bf16 parameters are kept in bf16 as well, rounded as these are. PyTorch does so; rounded to nearest, a
  /// second moment of bf16 under beta2 = 0.999 never changes. Adafactor's means stay in f32.
  bool low_state = false;
  uint64_t seed = 0;  ///< of the stochastic rounding
  /// Throws ValueError for master_weights together with stochastic_rounding or low_state.
  void validate() const;
  bool operator==(const LowPrecision&) const = default;
};

}  // namespace strata::optim
