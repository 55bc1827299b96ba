#pragma once
// Mixtures of experts as feed-forward layers, and the activations that they share with plain ones.

#include <optional>
#include <string>

#include "strata/nn/layer_spec.h"
#include "strata/nn/layers.h"

namespace strata::nn {

/// x through the nonlinearity.
Tensor activate(const Tensor& x, Activation activation);
/// act(a) * b for x [.., 2 n] which is a beside b.
Tensor activate_gated(const Tensor& x, Activation activation);

/// Each token through the experts that its router chooses, weighted, and through the shared one where there is one
/// (Shazeer et al., arXiv:1701.06538; DeepSeekMoE, arXiv:2401.06066). All are gated and without biases. Nothing waits
/// for the device, but for experts on several ranks that take all that come. Parameters: router [count, dim], gate_up
/// [count, 2 width, dim], down [count, dim, width], shared_gate_up.weight [2 shared_width, dim], shared_down.weight
/// [dim, shared_width]; the buffer correction_bias [count], f32.
///
///     const Experts experts(64, {.count = 8, .per_token = 2, .width = 32, .normalise = true}, Activation::silu);
class Experts : public Module {
 public:
  /// Throws ValueError unless there are experts, per_token of them at least, and groups divide them.
  Experts(int64_t dim, const ExpertsSpec& spec, Activation activation);
  /// x [.., dim] to the same shape; its last but one dimension is a sequence's. In training what the spec's losses are
  /// is added to `loss`, a scalar, where that is given; undefined stands for 0.
  Tensor forward(const Tensor& x, Tensor* loss = nullptr) const;
  Tensor operator()(const Tensor& x, Tensor* loss = nullptr) const {
    return called(*this, x, [&](const Tensor& t) { return forward(t, loss); });
  }
  const ExpertsSpec& spec() const { return spec_; }

  /// @name On several ranks
  /// Leaves this rank count / n of the experts, of the n ranks of a group of the mesh ("ep", "ep+tp"), which may be
  /// another one than that of the network's other weights: gate_up and down become sharded tensors "S(0)" along
  /// `group`, as one axis. Each rank has rows of its own, as many as the others in training with a capacity; they go to
  /// their experts' ranks by all_to_all and come back. Gradients are right where the ranks' losses are averaged, as
  /// distributed::DataParallel does: of the other parameters over these ranks too. With a capacity the exchange is of
  /// one size and the host waits for nothing; else it reads how many rows come. x may be a sharded tensor (tensor
  /// parallelism) along an axis of `group`: each of its ranks then has a part of the positions as its rows, or in
  /// training with a capacity some of the sequences, of one loss. Throws ValueError where n does not divide count.
  void spread(const std::string& group);
  /// Loads are balanced over the rows of all ranks of `group`, each of which calls forward() as often as the others.
  void balance_over(const std::string& group) { batch_group_ = group; }
  /// @}

  Tensor router, gate_up, down, correction_bias;
  std::optional<Linear> shared_gate_up, shared_down;

 private:
  // A group of ranks that have parts of the experts; empty and 1 where this one has all. As many of them as `alike`
  // have rows of one loss.
  struct Spread {
    std::string axis;
    int64_t ranks = 1, alike = 1;
  };
  Spread spread_on(int64_t alike) const;
  Tensor shared(const Tensor& x) const;
  Tensor of_positions(const Tensor& x, Tensor* loss) const;
  Tensor of_rows(const Tensor& rows, const Tensor& logits, int64_t time, int64_t alike, Tensor* loss) const;
  Tensor logits_of(const Tensor& rows) const;
  void add_losses(const Tensor& logits, const Tensor& chosen, Tensor& loss) const;
  Tensor products(const Tensor& rows, const Tensor& offsets, const Spread& on) const;
  Tensor all_that_come(const Tensor& rows, const Tensor& chosen, const Tensor& weights, const Spread& on) const;
  Tensor within_capacity(const Tensor& rows, const Tensor& logits, const Tensor& chosen, const Tensor& weights,
                         int64_t time, const Spread& on) const;

  ExpertsSpec spec_;
  Activation activation_;
  std::string batch_group_;
};

}  // namespace strata::nn
