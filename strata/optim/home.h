#pragma once
// Where an optimizer's state lives, and who updates from it. docs/design/optimizers.md, "A home for the state".

#include <cstdint>
#include <string>

#include "strata/memory/tiers.h"
#include "strata/optim/optimizer.h"

namespace strata::optim {

/// Where the moments and the weights in f32 of an optimizer live between steps, and who updates the parameters; given
/// to Optimizer::set_home(). Counts and rates, one number each, stay with whoever computes.
///
///     optimizer.set_home({.where = memory::kDisk});                          // parameters of the CPU, state in files
///     optimizer.set_home({.where = Tier::host});                             // of a card: fetched for the update
///     optimizer.set_home({.where = Tier::host, .who = StateHome::Who::cpu}); // of a card: updated by the CPU
struct StateHome {
  /// Who runs the rule.
  enum class Who : uint8_t {
    /// The parameters' device: groups of state come to it, one ahead of the one that is updated, and go back. The bits
    /// are those of a step whose state stays.
    device,
    /// The CPU, from a copy of the parameters in host memory: gradients go there, new parameters come back before the
    /// next op on the current stream. The bits are those of the same optimizer over parameters of the CPU.
    cpu,
    /// Some parameters by the one, some by the other, both at work at once (Maurya et al., "Deep Optimizer States",
    /// 2024).
    split,
  };
  /// A tier (core/backend.h) of whoever updates; Tier() is their own memory. For a card Tier::host is page-locked
  /// memory of the host.
  Tier where = {};
  Who who = Who::device;
  /// Of `split`: the share of the parameters' elements that the CPU updates, in [0, 1]. Below 0: the one that
  /// best_cpu_share() finds with rates measured when the home is set, so it may differ from run to run.
  double cpu_share = -1;
  /// Bytes of state that are fetched together; a parameter's state is never divided.
  int64_t group_bytes = int64_t{64} << 20;
  /// Of what the CPU updates: a gradient leaves the device as soon as backward() has it, and is then added up on the
  /// host, until zero_grad(); parameter.grad() is empty, so that clip_grad_norm() does not see it, but step_clipped()
  /// and step_guarded() do. Otherwise gradients are copied by the step.
  bool gradients_leave = false;
  /// Of `cpu`, with state in host memory and an optimizer that is one fused rule: step() returns when the update has
  /// begun, and the parameters get it when the next step() begins or finish() is called. So gradients are those of
  /// parameters that lack the last update (Ren et al., "ZeRO-Offload", 2021): the bits are not those of other homes.
  bool delayed = false;

  /// With weights, gradients and state at home in the host's memory (`where` and the parameters' own tier: Tier::pinned
  /// of a card): step() returns when the update has begun, and whoever reads a weight waits until it has its own. So
  /// the update runs under the next forward, first of those whose gradients came last in backward(), which forward
  /// wants first. The bytes are updated at home by the CPU, or pass through the card in pieces, or both take pieces as
  /// they are free (`split`, without a share). Low-precision copies that autocast keeps on the tier are written with
  /// the weights. The bits are those of other homes. Parameters that are elsewhere are updated by step() itself, as all
  /// are by an optimizer that is more than one fused rule.
  bool ahead = false;

  /// Throws ValueError naming the member.
  void validate() const;
};
/// "device", "cpu", "split".
std::string_view name_of(StateHome::Who who);

/// Of the last update that ran ahead and was waited for.
struct AheadTimes {
  double until_known = 0;  ///< seconds from step() until it was known what gradients are scaled by
  double seconds = 0;      ///< from then on until all was updated
  double cpu_share = 0;    ///< of the elements
  double before_step = 0;  ///< the share of the elements that were updated before step() was called (UpdateInBackward)
};

/// Of an optimizer whose home has `ahead`: while one lives, a parameter is updated as soon as backward() has its
/// gradient and nobody holds its bytes any more, beside the rest of backward, by step(1) of now. It is for the last
/// backward of a step; the step() or step_guarded() that has to follow updates the rest, and can neither clip nor
/// scale: what is known only of all gradients comes too late. The bits are those of a step that comes after backward.
/// Elsewhere it does nothing. Where a step has no gradient that is finite, the updates have been made all the same,
/// which step_guarded() reports. Which parameters have their gradient in one piece is learned from the pass before; one
/// that gets more after its update has begun makes backward() throw AutogradError, and the step is lost. It pays where
/// the bus and the host's memory have time left beside backward (docs/design/optimizers.md).
///
///     {
///       const optim::UpdateInBackward early(optimizer);
///       loss.backward();
///     }
///     optimizer.step();
class UpdateInBackward {
 public:
  explicit UpdateInBackward(Optimizer& optimizer);
  ~UpdateInBackward();
  UpdateInBackward(const UpdateInBackward&) = delete;

 private:
  Optimizer& optimizer_;
};

/// What a machine does, in bytes and elements a second.
struct HomeRates {
  double to_host = 0, to_device = 0;  ///< copies with page-locked memory, one way at a time
  double cpu = 0, device = 0;         ///< elements that each updates from memory of its own
  double cpu_beside_copies = 0;       ///< of the CPU while copies of both directions take their part of its memory
};
/// Bytes that move for one element of a parameter.
struct HomeBytes {
  double gradient = 4;   ///< to the host, where the CPU updates
  double parameter = 4;  ///< back
  double state = 8;      ///< to the device and back, where that updates
};
/// Seconds an element that an update takes at least when the CPU has this share of the elements: the slowest of the
/// CPU (beside copies, where the device has a share and its state moves), the device and the copies of either
/// direction, which all work at once.
double split_seconds(const HomeRates& rates, const HomeBytes& bytes, double cpu_share);
/// The share, in 64ths, for which that is least; the larger of equals, which needs less memory of the device.
double best_cpu_share(const HomeRates& rates, const HomeBytes& bytes);
/// Measures them with an optimizer of the same kind and options (of its first group) over at most 16 Mi elements of
/// `dtype`; takes some tenths of a second. Throws ValueError for an optimizer without a record.
HomeRates measure_home_rates(const Optimizer& optimizer, Device device, DType dtype);

}  // namespace strata::optim
