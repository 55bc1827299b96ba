#pragma once
// Mixtures of experts as feed-forward layers, and the activations that they share with plain ones.

#include <optional>

#include "strata/nn/layer_spec.h"
#include "strata/nn/layers.h"

namespace strata::nn {

/// x through the nonlinearity.
Tensor activate(const Tensor& x, Activation activation);
/// act(a) * b for x [.., 2 n] which is a beside b.
Tensor activate_gated(const Tensor& x, Activation activation);

/// Each token through the experts that its router chooses, weighted, and through the shared one where there is one
/// (Shazeer et al., arXiv:1701.06538; DeepSeekMoE, arXiv:2401.06066). All are gated and without biases. Nothing waits
/// for the device. Parameters: router [count, dim], gate_up [count, 2 width, dim], down [count, dim, width],
/// shared_gate_up.weight [2 shared_width, dim], shared_down.weight [dim, shared_width]; the buffer correction_bias
/// [count], f32.
///
///     const Experts experts(64, {.count = 8, .per_token = 2, .width = 32, .normalise = true}, Activation::silu);
class Experts : public Module {
 public:
  /// Throws ValueError unless there are experts, per_token of them at least, and groups divide them.
  Experts(int64_t dim, const ExpertsSpec& spec, Activation activation);
  /// x [.., dim] to the same shape.
  Tensor forward(const Tensor& x) const;
  Tensor operator()(const Tensor& x) const { return called(*this, x); }
  const ExpertsSpec& spec() const { return spec_; }

  Tensor router, gate_up, down, correction_bias;
  std::optional<Linear> shared_gate_up, shared_down;

 private:
  ExpertsSpec spec_;
  Activation activation_;
};

}  // namespace strata::nn
