#pragma once
// The fused update loops behind the optimizers: lists of tensors, cut into chunks of one size that threads share.

#include <cstdint>
#include <span>

#include "strata/core/dtype.h"
#include "strata/core/tensor.h"

namespace strata::optim {

/// One tensor of a multi-tensor loop. `state` and `grad` have as many elements as `param`.
struct Slab {
  void* param = nullptr;
  void* grad = nullptr;
  void* state[2] = {};
  int64_t numel = 0;
  DType dtype = DType::f32;       ///< of param and state: f32 or f64
  DType grad_dtype = DType::f32;  ///< the same, or bf16 beside f32
  double k[10] = {};              ///< the rule's constants for this tensor
  Device device = Device::cpu();
};

/// What is done to each element; `k` names the constants, in order. g is grad * k[0].
enum class Rule : uint8_t {
  adam,          ///< k: scale beta1 1-beta1 beta2 1-beta2 step_size 1/sqrt(correction2) eps decay l2
  lion,          ///< k: scale beta1 1-beta1 beta2 1-beta2 lr decay
  sgd,           ///< k: scale lr l2
  sgd_momentum,  ///< k: scale lr l2 momentum 1-dampening nesterov (0 or 1)
  scale_grad,    ///< k: scale
  clamp_grad,    ///< k: - limit
};
/// A clipping that a CUDA device works out for itself: with `sum`, an address there, gradients are scaled by
/// clip_scale(sqrt(*sum), max_norm) besides, and nothing is changed where that root is not finite.
struct DeviceClip {
  const double* sum = nullptr;
  double max_norm = 0;
};
/// On a CUDA device the loops are queued on its current stream. `clip` needs all slabs there.
void run_rule(Rule rule, std::span<const Slab> slabs, DeviceClip clip = {});
void run_rule_cpu(Rule rule, std::span<const Slab> slabs);
void run_rule_cuda(Rule rule, std::span<const Slab> slabs, Device device, DeviceClip clip);

/// The sum of the squares of all gradients, in f64; the same for any number of threads, and every time.
double sum_of_squares(std::span<const Slab> slabs);
double sum_of_squares_cpu(std::span<const Slab> slabs);
/// As a tensor of `device`, which holds all of them; does not wait for it.
Tensor sum_of_squares_cuda(std::span<const Slab> slabs, Device device);

struct AdamOptions;
/// The constants of Rule::adam for update number `step` (from 1); Muon uses them too.
void set_adam_constants(Slab& s, const AdamOptions& o, double lr, bool decoupled, int64_t step, double grad_scale);

}  // namespace strata::optim
