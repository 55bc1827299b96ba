#pragma once
// The fused update loops behind the optimizers: lists of tensors, cut into chunks of one size that threads share.

#include <cstdint>
#include <memory>
#include <span>

#include "strata/core/dtype.h"
#include "strata/core/tensor.h"

namespace strata::optim {

/// Which of a rule's constants follow from the number t of the update, counted from 1. On the host the slab's `t` is
/// it; on a CUDA device it is *count + 1, and `k` is completed there. See complete() in count_inl.h.
enum class FromCount : uint8_t {
  nothing,
  adam,       ///< k[5] is lr and becomes the step size; k[6] is made
  nadam,      ///< k[5] is lr, k[10] momentum_decay: they become the factors of gradient and moment; k[6] is made
  radam,      ///< k[5] is lr and becomes the step size; k[6] is made: 1, or 0 where no second moment is used yet
  adamax,     ///< k[5] is lr and becomes the step size
  adagrad,    ///< k[1] is lr, k[4] lr_decay: k[1] becomes the step size
  adafactor,  ///< k[9] is beta2_decay: k[5] = t^-k[9], k[4] = 1 - k[5], k[6] = k[8] min(k[7], 1 / sqrt(t))
};

inline constexpr int kMostStates = 3;
inline constexpr int kConstants = 11;
/// The tensors that a slab's addresses are of.
struct SlabTensors {
  Tensor param, grad, state[kMostStates], low, count;
};
/// One tensor of a multi-tensor loop. `state` and `grad` have as many elements as `param`.
struct Slab {
  void* param = nullptr;
  void* grad = nullptr;
  void* state[kMostStates] = {};
  int64_t numel = 0;
  DType dtype = DType::f32;        ///< of param. Arithmetic is in f64 for f64, else in f32
  DType grad_dtype = DType::f32;   ///< f64 beside f64, else any of f32, bf16, f16
  DType state_dtype = DType::f32;  ///< likewise
  double k[kConstants] = {};       ///< the rule's constants for this tensor
  Device device = Device::cpu();
  FromCount from_count = FromCount::nothing;
  int64_t t = 0;
  /// On a CUDA device: the updates before this one, and the same where this rule's loop shall count it.
  const int64_t* count = nullptr;
  int64_t* step = nullptr;
  /// Whether a bf16 param, and states of bf16 with it, are rounded stochastically; and by which stream of random bits.
  bool stochastic = false;
  uint64_t seed = 0;
  /// A copy of an f32 param in low_dtype (bf16 or f16) that is written with it; nullptr for none.
  void* low = nullptr;
  DType low_dtype = DType::bf16;
  /// While calls are observed: see ObservedUpdate.
  std::shared_ptr<SlabTensors> tensors = nullptr;
};

/// What is done to each element; `k` names the constants, in order. g is grad * k[0].
enum class Rule : uint8_t {
  adam,              ///< k: scale beta1 1-beta1 beta2 1-beta2 step_size 1/sqrt(correction2) eps decay l2
  amsgrad,           ///< the same with a third state, the largest second moment so far
  nadam,             ///< k: adam's, but k[5] is the gradient's factor, and one more: the moment's
  radam,             ///< k: adam's, but k[6] says whether the second moment is used
  adamax,            ///< k: scale beta1 1-beta1 beta2 - step_size - eps - l2
  adagrad,           ///< k: scale step_size eps l2
  adadelta,          ///< k: scale lr rho 1-rho eps l2
  rmsprop,           ///< k: scale lr alpha 1-alpha eps l2
  rmsprop_momentum,  ///< k: rmsprop's, momentum: the second state is the buffer
  rmsprop_centered,  ///< the same; the third state is the gradients' average
  lion,              ///< k: scale beta1 1-beta1 beta2 1-beta2 lr decay
  sgd,               ///< k: scale lr l2
  sgd_momentum,      ///< k: scale lr l2 momentum 1-dampening nesterov (0 or 1)
  scale_grad,        ///< k: scale
  clamp_grad,        ///< k: - limit
  muon_momentum,     ///< k: scale momentum nesterov (0 or 1): state[0] is the buffer, param becomes the direction
  muon_apply,        ///< k: 1 decay rate: param = decay param - rate grad; a factor only decides whether
  // On a CUDA device only:
  adafactor_take,   ///< k: scale: param becomes g
  adafactor_blend,  ///< k: 1 - - eps1 keep 1-keep: param = keep param + (1-keep) (grad + eps1); the same for a factor
  adafactor_apply,  ///< k: 1 decay - - - - rate: param = decay param - rate grad; the same for a factor
};
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
void write_constants(const Tensor& constants, std::span<const Slab> slabs);

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
double sum_of_squares(std::span<const Slab> slabs);
double sum_of_squares_cpu(std::span<const Slab> slabs);
/// As a tensor of `device`, which holds all of them; does not wait for it.
Tensor sum_of_squares_cuda(std::span<const Slab> slabs, Device device);

struct AdamOptions;
/// The constants of Rule::adam, to be completed by the count; Muon uses them too.
void set_adam(Slab& s, const AdamOptions& o, double lr, bool decoupled, double grad_scale);

}  // namespace strata::optim
