#pragma once
// A TierPlan at work: in a run of `strata train`, and in a program's own loop (budget_scope.h).

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "strata/autograd/offload.h"
#include "strata/core/error.h"
#include "strata/lab/trace.h"
#include "strata/nn/streamed.h"
#include "strata/optim/optimizer.h"
#include "strata/train/layered_inl.h"
#include "strata/train/tier_plan.h"

namespace strata {

/// Keeps model, optimizer and activations where a plan wants them. The device's memory for tensors is bounded by the
/// plan's budget while one lives: a request past it throws MemoryError.
class Tiers {
 public:
  /// The tier in which the plan wants the model's weights: the TierScope in which to make it, so that a model larger
  /// than the device never has to be there whole. Tier() is the device's own.
  static Tier weights_tier(const TierPlan& plan, Device device);
  /// Whether the budget's disk is used: something goes there by the plan, or the processor's saved tensors would where
  /// a step finds no room after all.
  static bool uses_disk(const TierPlan& plan, Device device);
  /// Before anything is made on a disk: the store in the budget's folders, if it is used.
  static void use_disk(const TierPlan& plan, Device device);

  /// Sends weights and state home; what the plan computes again is the caller's affair. Model and optimizer (nullptr
  /// where its state stays) must outlive it. Throws MemoryError, IoError, and ValueError for an optimizer that cannot
  /// have the home that the plan wants. With `limits` the device's memory is bound to the budget while this lives.
  Tiers(const TierPlan& plan, const nn::Module& model, optim::Optimizer* optimizer, Device device, bool limits = true);
  ~Tiers();
  Tiers(const Tiers&) = delete;

  /// Around the forward pass of a training step.
  class Forward {
   public:
    explicit Forward(const Tiers* tiers);

   private:
    std::optional<SavedTensorOffload::Scope> saved_;
  };
  /// Around forward and backward of one batch.
  class Pass {
   public:
    explicit Pass(const Tiers* tiers);

   private:
    std::optional<nn::StreamScope> streamed_;
  };

  /// Of a step whose micro-batches go through the layers together: gradients of streamed weights stay while one lives,
  /// and go home where a group of layers has all of its own.
  class HeldGradients {
   public:
    explicit HeldGradients(const Tiers* tiers);
    ~HeldGradients();
    HeldGradients(const HeldGradients&) = delete;

   private:
    nn::Streamed* streamed_ = nullptr;
  };
  void send_gradients() const;
  /// How such a step goes by the plan; `blocks` 0 where it does not.
  LayeredOptions layered() const;

  /// Why a step cannot be captured in a CUDA graph; empty where it can.
  std::string refuses_capture() const;
  /// Before a capture: what the copies inside will be is decided now.
  void before_capture() const;

  /// Copies of activations since the last call, on tracks of their own ("activations to host", ..), for a trace whose
  /// second 0 was `begun` by memory::host_seconds(); those that a disk has are named. All else a lab::Tracer sees by
  /// itself.
  void add_activations(lab::Trace& trace, double begun) const;
  /// What was moved so far and waited for, in a line; empty where nothing was.
  std::string summary() const;

 private:
  std::vector<Tier> movable_tiers() const;
  void set_near(int64_t bytes) const;

  TierPlan plan_;
  optim::Optimizer* optimizer_;
  Device device_;
  bool limits_;
  int64_t limit_before_ = 0;
  std::shared_ptr<SavedTensorOffload> offload_;
  std::unique_ptr<nn::Streamed> streamed_;
};

/// Throws `e` again, which a run of these settings has thrown and whose memory has been given back; where the run has no
/// [memory] section, with the budget_advice() for what is free now.
[[noreturn]] void throw_advised(const TrainConfig& config, const MemoryError& e);

}  // namespace strata
