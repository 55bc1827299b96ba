#pragma once
// Steps that plans are made for, with something computed again: of settings, by dry runs, or of a program's loop, by a
// step that has run.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "strata/autograd/offload_plan.h"
#include "strata/lab/limits.h"
#include "strata/memory/plan.h"
#include "strata/train/estimate.h"
#include "strata/train/step_weights_inl.h"
#include "strata/train/tier_plan.h"

namespace strata::planning {

inline constexpr int64_t kLeastLeaving = int64_t{1} << 20;  // smaller tensors stay: a transfer has a price of its own

// Shares of what is saved that single calls make again, another way than blocks: parts, of which every fourth is tried,
// and then those before the best.
inline constexpr int kParts = 32, kStride = 4;

// A step with some blocks, or calls, computed again, and all that plans ask of it.
struct Variant {
  int64_t recomputed = 0;
  OffloadPlan calls;
  int64_t layers = 0;  // Again::layers
  DryStep dry;
  StepWeights weights, pass_weights;
  std::vector<double> step_seconds, pass_seconds;
  std::vector<memory::Away> step_saved, pass_saved;  // what may leave
  int64_t saved = 0;                                 // bytes of them in one pass
  int64_t others = 0;  // on the device, not in the recording: batches, workspace, the heap's holes
};

// Blocks that are computed again, or parts of what is saved that single calls make again.
struct Again {
  int64_t blocks = 0;
  int parts = 0;
  int64_t layers = 0;  // through which all passes go before the next: all blocks are computed again then
  auto operator<=>(const Again&) const = default;
};

// What is planned for: steps with something computed again.
struct Steps {
  virtual ~Steps() = default;
  virtual int64_t blocks() const = 0;
  virtual int64_t passes() const = 0;  // in one recording
  virtual int64_t least() const { return kLeastLeaving; }
  // What Again::layers may be; empty where passes go one after the other.
  virtual std::vector<int64_t> layers() const { return {}; }
  // Whether single calls can be chosen that run again.
  virtual bool single_calls() const = 0;
  // Whether the optimizer's rule is one that kernels apply element by element.
  virtual bool fused_update() const = 0;
  // Whether the host's processor updates to the bits of a card.
  virtual bool same_bits() const = 0;
  // All but what may leave; nothing where there is no such way.
  virtual std::optional<Variant> variant(const Again& again) = 0;
};

std::unique_ptr<Steps> dry_steps(const TrainConfig& config, const lab::Limits& limits, double efficiency);
// `step` must live as long. `renewed`: low-precision copies are, by the updates.
std::unique_ptr<Steps> ran_steps(const RecordedStep& step, bool renewed);

}  // namespace strata::planning
