#pragma once
#include <cstdint>

namespace strata::optim {

/// How an optimizer treats parameters of bf16 and f16, and in how many bits it keeps moments. Arithmetic is in f32
/// whatever stands here, and the state too unless `low_state` or `state_8bit`; parameters of f64 are not concerned. As
/// they are, updates of 16-bit parameters are rounded to the nearest value that the type has: those below half of its
/// last bit are lost, which ends the training of bf16 weights at learning rates that f32 ones still learn with. The
/// three remedies, and the bytes of a parameter under AdamW, with its gradient:
///
/// | | moments in f32 | `low_state` | `state_8bit` |
/// |---|---|---|---|
/// | f32 parameters | 16 | | 10 |
/// | bf16, rounded to nearest or stochastically | 12 | 8 | 6 |
/// | bf16, `compensated_weights` | 14 | | 8 |
/// | bf16 or f16, `master_weights` | 16 | | 10 |
///
/// Fixed when the optimizer is made.
struct LowPrecision {
  /// The state has the weights in f32 ("master"), which are updated; the parameter is always their rounding. Where the
  /// parameter is written by others, its new values replace those weights (Micikevicius et al., "Mixed Precision
  /// Training", 2018).
  bool master_weights = false;
  /// bf16 only: the state has the lower halves of weights in f32 ("compensation", i16) whose rounding the parameter
  /// is, so that both together are what master_weights keeps, in 2 bytes less. Of a weight that lies halfway between
  /// the parameter and the next value above it in magnitude, one of 131,072, the last bit is lost. What others write
  /// to the parameter counts as if it had been that far from its weight as the value before. Not for Adafactor.
  bool compensated_weights = false;
  /// bf16 only: an update is rounded up or down at random, with the probabilities that make its mean exact (Zamirai et
  /// al., "Revisiting BFloat16 Training", 2020). The random bits follow from the seed, the parameter's place in the
  /// list, the count of its updates and the element: the same on every device and for any number of threads.
  bool stochastic_rounding = false;
  /// Moments of bf16 parameters are kept in bf16 as well, rounded as these are. PyTorch does so; rounded to nearest, a
  /// second moment of bf16 under beta2 = 0.999 never changes. Adafactor's means stay in f32.
  bool low_state = false;
  /// Moments are kept in 8 bits: codes (u8) of 256 values between -1 and 1, or 0 and 1 where a moment is never
  /// negative, times the largest magnitude of each 256 elements ("exp_avg_absmax", f32), 1.02 bytes each (Dettmers et
  /// al., "8-bit Optimizers via Block-wise Quantization", 2022). An update reads, computes and rounds them to the
  /// nearest code in one pass, with the same result for any number of threads. ASGD's mean, Rprop's and SparseAdam's
  /// states and Adafactor's means stay as they are.
  bool state_8bit = false;
  /// Parameters of fewer elements keep their moments in f32 under state_8bit: norms and biases, which are little of
  /// the memory.
  int min_8bit_size = 4096;
  uint64_t seed = 0;  ///< of the stochastic rounding
  /// Throws ValueError for two of master_weights, compensated_weights and stochastic_rounding, for low_state together
  /// with one of the first two or with state_8bit, and for a negative min_8bit_size.
  void validate() const;
  bool operator==(const LowPrecision&) const = default;
};

}  // namespace strata::optim
