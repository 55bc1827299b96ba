#pragma once
// The fused update loops behind the optimizers: lists of tensors, cut into chunks of one size that threads share.

#include <cstdint>
#include <memory>
#include <span>

#include "strata/core/dtype.h"
#include "strata/core/tensor.h"
#include "strata/optim/optimizer_list.h"

namespace strata::optim {

struct OptimizerRecord;
/// Each folder's record, by the folder's name.
namespace records {
#define STRATA_OPTIMIZER(folder) const OptimizerRecord& folder();
STRATA_OPTIMIZERS
#undef STRATA_OPTIMIZER
}  // namespace records

inline constexpr int kMostStates = 3;
inline constexpr int kConstants = 11;
/// With a slab's `rate`: which constant it is, and which one complete() makes what it becomes.
inline constexpr int kRate = 1, kNextRate = 7;
/// The tensors that a slab's addresses are of.
struct SlabTensors {
  Tensor param, grad, state[kMostStates], scale[kMostStates], low, count, rate;
};
/// One tensor of a multi-tensor loop. `state` and `grad` have as many elements as `param`.
struct Slab {
  void* param = nullptr;
  void* grad = nullptr;
  void* state[kMostStates] = {};
  int64_t numel = 0;
  DType dtype = DType::f32;       ///< of param. Arithmetic is in f64 for f64, else in f32
  DType grad_dtype = DType::f32;  ///< f64 beside f64, else any of f32, bf16, f16
  /// Likewise; or u8, codes whose blocks of kScaleBlock elements have their scales in `scale` (eight_bit_inl.h).
  DType state_dtype = DType::f32;
  float* scale[kMostStates] = {};
  double k[kConstants] = {};  ///< the rule's constants for this tensor
  Device device = Device::cpu();
  int64_t t = 0;  ///< number of the update on the host, from 1; on a CUDA device it is *count + 1
  /// On a CUDA device: the updates before this one, and the same where this rule's loop shall count it.
  const int64_t* count = nullptr;
  int64_t* step = nullptr;
  /// A number on its device that the update takes for k[kRate], and replaces; nullptr for none.
  double* rate = nullptr;
  /// Whether a bf16 param, and states of bf16 with it, are rounded stochastically; and by which stream of random bits.
  bool stochastic = false;
  uint64_t seed = 0;
  /// A copy of an f32 param in low_dtype (bf16 or f16) that is written with it; nullptr for none. Or i16, the lower
  /// halves of f32 numbers whose upper ones are a bf16 param (rounding_inl.h).
  void* low = nullptr;
  DType low_dtype = DType::bf16;
  /// On a CUDA device, where the largest magnitudes of an f32 param are left (cuda::kept_magnitudes); nullptr: nowhere.
  uint32_t* most = nullptr;
  /// While calls are observed: see ObservedUpdate.
  std::shared_ptr<SlabTensors> tensors = nullptr;
};

/// What is done to each element: the rules of every <optimizer>_rule.inc, which say what the constants are; k[0] scales
/// the gradient. What the count makes of them (complete() in count_inl.h) is done on the host or, on a CUDA device,
/// there.
enum class Rule : uint8_t {
#define STRATA_ONE_RULE(name, type) name,
  STRATA_RULES
#undef STRATA_ONE_RULE
};
/// Which of its states may be in 8 bits, and which of them are never negative: a bit for each.
struct EightBitStates {
  uint32_t allowed = 0, nonnegative = 0;
};
EightBitStates eight_bit_states(Rule rule);
/// Whether the parameter's numbers are f32 in two halves.
inline bool is_split(const Slab& s) {
  return s.low && s.low_dtype == DType::i16;
}
/// On a CUDA device the loops are queued on its current stream. With `factor`, an address on the device that holds all
/// slabs, gradients are scaled by *factor besides, and nothing is changed where that is NaN.
void run_rule(Rule rule, std::span<const Slab> slabs, const double* factor = nullptr);
void run_rule_cpu(Rule rule, std::span<const Slab> slabs);
/// `constants` is rule_constants(slabs), or was filled by write_constants() for these slabs.
void run_rule_cuda(Rule rule, std::span<const Slab> slabs, const Tensor& constants, const double* factor);
/// Memory for the constants of `n` slabs on a CUDA device, where the loops read them, so that a captured step can go on
/// with new ones. Never from a graph's pool.
Tensor empty_constants(size_t n, Device device);
/// Queues the constants' way there; never waits.
void write_constants(Rule rule, const Tensor& constants, std::span<const Slab> slabs);

/// What a step that looks before it updates finds, as five numbers of f64 (StepReport's order, and the factor).
struct Verdict {
  double loss, norm, scale, outcome, factor;
};
inline constexpr int64_t kVerdictSize = 5;
/// How a loss scale grows and shrinks; `state` is {scale, finite steps since it last changed}, or nullptr for no scale.
struct ScaleRule {
  double* state = nullptr;
  double growth = 1, backoff = 1, interval = 1;
};
/// Fills `to`, which holds the last step's verdict (or zeros), and moves the scale; all of them on a CUDA device.
/// `loss` may be undefined, else it is one f32 or f64 there.
void judge_cuda(const Tensor& to, const Tensor& sum_of_squares, const Tensor& loss, double max_norm, ScaleRule rule);

/// The sum of the squares of all gradients, in f64; the same for any number of threads, and every time.
/// Those that are away (strata/optim/groups_inl.h) are brought near a few at a time.
double sum_of_squares(std::span<const Slab> slabs);
/// Of gradients that are near, added to `sum` one chunk after the other.
double sum_of_squares_cpu(std::span<const Slab> slabs, double sum = 0);
/// As a tensor of `device`, which holds all of them; does not wait for it.
Tensor sum_of_squares_cuda(std::span<const Slab> slabs, Device device);

/// The same sum of gradients that are looked at one by one, as they are made: each leaves so many numbers of f64 on its
/// device, and the total of all of these, one gradient after the other, is sum_of_squares()'s to the bit, where they
/// are in its order: as given, on a CUDA device those of f32 before bf16, f16 and f64.
int64_t square_parts(int64_t numel, Device device);
void squares_of(const Slab& s, double* to);
Tensor total_of(const Tensor& parts);
void squares_cpu(const Slab& s, double* to);
int64_t square_parts_cpu(int64_t numel);
void squares_cuda(const Slab& s, double* to);
int64_t square_parts_cuda(int64_t numel);
Tensor total_cuda(const Tensor& parts);

}  // namespace strata::optim
