#pragma once
// Trading time for memory without naming functions: forward is cut into stretches, and backward runs a stretch's calls
// again when it needs what they saved. checkpoint.h is the same of a function that the program gives.

#include <memory>
#include <vector>

#include "strata/core/node.h"
#include "strata/core/op_base.h"

namespace strata {

/// What a Recompute does with the tensors that come into a stretch.
struct RecomputeOptions {
  /// Where they are kept until backward. Tier(): where they are. In movable memory (docs/design/memory.md) they leave
  /// the device, and are brought back one stretch ahead.
  Tier inputs;
  int64_t least_bytes = 64 << 10;  ///< smaller ones stay
};

/// While one lives, the calls of its thread's forward are noted, and after begin() nothing that they save for backward
/// is kept but what came in from outside of the stretch (parameters, activations of earlier ones). Backward, then or
/// later, runs the calls again that it needs: the same kernels on the same arguments, random keys included, so the same
/// bits. What cannot be made again is kept as usual: tensors that no call made, results of calls into given tensors. A
/// tensor from outside that was overwritten before backward is an AutogradError there, as with checkpoint(). Calls that
/// write to tensors from outside (running statistics, counters) are not run again.
///
///     Recompute recompute;
///     for (const auto& block : blocks) {
///       recompute.begin();
///       x = block(x);
///     }
///     recompute.keep();  // the head, where backward begins
///     loss(head(x), targets).backward();
///
/// Scopes nest with other scopes of saved-tensor hooks: the innermost ones are used. Within a SavedTensorOffload::Scope
/// what comes into a stretch leaves the device as what is saved elsewhere does, unless RecomputeOptions::inputs says
/// where it goes.
class Recompute final : public CallObserver {
 public:
  explicit Recompute(const RecomputeOptions& options = {});
  ~Recompute() override;
  Recompute(const Recompute&) = delete;

  /// What this thread's forward calls from now on is a stretch of its own.
  void begin();
  /// What follows keeps what it saves.
  void keep();

  /// @name What its thread calls
  /// @{
  void before(const Call& call) override;
  void after(const Call& call, std::span<const Tensor> results) override;
  void failed(const Call& call) override;
  /// @}

 private:
  struct State;
  std::shared_ptr<State> state_;  // graphs hold it too
};

}  // namespace strata
