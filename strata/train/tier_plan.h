#pragma once
// What of a run is where, for a budget: one plan over activations, optimizer state, weights and recomputation, with the
// time that it should take. docs/design/tiers.md.

#include <cstdint>
#include <string>
#include <vector>

#include "strata/autograd/offload_plan.h"
#include "strata/lab/known_cards.h"
#include "strata/lab/limits.h"
#include "strata/memory/bounds.h"
#include "strata/memory/budget.h"
#include "strata/train/config.h"
#include "strata/train/estimate.h"

namespace strata {

/// Where something lives.
enum class Place : uint8_t { device, host, disk };
/// "device", "host", "disk".
std::string_view name_of(Place place);
/// Who updates state that is not on the device.
enum class Updater : uint8_t { device, cpu, split };
/// "device", "cpu", "split".
std::string_view name_of(Updater who);

/// How fast bytes move and the host computes; bytes a second. 0: there is no such way.
struct TierRates {
  double to_host = 0, from_host = 0;  ///< a card's bus, each way
  double disk_write = 0, disk_read = 0;
  double host_memory = 0;  ///< what the host's processor streams through memory, reads and writes together
  /// Shares of lab::Limits that kernels reach in a training step.
  double efficiency = 0.75;
};
/// Measured: of `device`'s bus and this host (about a second), and of the disks of the budget (another).
TierRates measure_rates(Device device, const memory::Budget& budget);
/// Of a card that was measured elsewhere, with the machine that it was in.
TierRates rates_of(const lab::KnownCard& card);

/// What plans weigh of this machine.
struct TierSpeeds {
  lab::Limits limits;
  TierRates rates;
};
/// Measured once a process for each device and set of folders: some seconds. Throws IoError for a folder that takes
/// nothing.
TierSpeeds measured_speeds(Device device, const memory::Budget& budget);

/// What a plan holds in each tier.
struct TierBytes {
  int64_t device = 0, host = 0, disk = 0;
};

/// One way of running the settings' step.
struct TierPlan {
  memory::Budget budget;
  Place activations = Place::device;
  int64_t leaving = 0;     ///< bytes of saved activations that leave, the first saved first; the rest stays
  int64_t kept = 0;        ///< what of them stays
  int64_t window = 0;      ///< bytes fetched ahead of their use at most
  int64_t least = int64_t{1} << 20;  ///< bytes below which a saved tensor stays
  bool cheap_again = true;           ///< where activations leave: whether cheap calls are rather made again
  int64_t recomputed = 0;            ///< blocks that keep their inputs alone, the first ones
  /// Blocks through which all of train.accumulate's micro-batches go before the next blocks come, each way; 0: one pass
  /// after the other. `leaving` is then of what comes into such groups of blocks, in the whole step; all else that they
  /// save is computed again.
  int64_t layers_at_once = 0;
  uint64_t draws = 0;  ///< blocks of random numbers that one pass takes then
  /// What becomes of each saved tensor where single calls run again and none leaves, by the order of saving; else empty.
  OffloadPlan calls;
  /// Where activations leave: bytes beside `leaving` and `kept` that single calls make again, by this forecast. Which
  /// ones do is chosen from the times of the first passes.
  int64_t again = 0;
  Place state = Place::device;
  Updater update = Updater::device;
  bool delayed = false;  ///< the host's update runs beside the next step: memory.delayed_update
  int64_t group = 0;  ///< bytes of state that an update through the device has near at once, of each of its buffers
  Place parameters = Place::device;
  std::vector<std::string> in_place;  ///< weights that are read where they live, in memory that a card reaches
  int64_t weights_near = 0;           ///< bytes of weights near in forward and backward, those that come next included
  int64_t near = 0;                   ///< bytes of weights, gradients and state from elsewhere that may be near at once

  TierBytes peak;           ///< forecast: most bytes in each tier
  double seconds = 0;       ///< forecast of a step; 0 where the limits are not known
  double pass_seconds = 0;  ///< of that, what one pass's forward and backward compute
  std::string bound;        ///< what takes the time: "compute", "the bus", "the disk", "the host's update"
  bool fits = true;         ///< the budget is kept in every tier
  /// Where it is not: the smallest of the device's memory with which a way was found, the rest of the budget as it is,
  /// in whole MiB and to a hundredth; 0 where none was, or the device has no bound.
  int64_t least_budget = 0;

  int64_t peak_without = 0;    ///< of the device, with everything on it
  double seconds_without = 0;  ///< of that step, were there room

  /// Whether anything is not as in a run without tiers.
  bool moves() const {
    return activations != Place::device || recomputed > 0 || !calls.choices.empty() || state != Place::device ||
           parameters != Place::device || layers_at_once > 0;
  }
};

/// The fastest way within config.memory's budget, of those that its keys leave open; where none fits, the one that
/// takes least of the device, with `fits` false. Where nothing is bounded and no key says otherwise, everything on the
/// device. Dry runs alone: nothing is allocated. Throws as estimate_memory().
TierPlan plan_tiers(const TrainConfig& config, const lab::Limits& limits, const TierRates& rates);

/// A step that has run: one of a program's own loop.
struct RecordedStep {
  /// With its calls' seconds and the bytes of its largest weight and part: all of the step in `step`, however many
  /// passes it has.
  DryStep dry;
  /// Calls at which a part of the network begins its forward, by pass: what may be computed again as a whole.
  std::vector<std::vector<int32_t>> turns;
  int64_t others = 0;                ///< bytes on the device beside what the calls read and make
  int64_t least = int64_t{1} << 20;  ///< TierPlan::least
  bool fused_update = true;          ///< the optimizer's rule is one that kernels apply element by element
};

/// plan_tiers() for it: what is to be where is as `memory` says. Seconds are those that the calls took, so they speak of
/// this machine.
TierPlan plan_recorded(const RecordedStep& step, const MemoryConfig& memory, Device device, const TierRates& rates);

/// What a run that does not fit into `room` bytes of its device's memory can be told: the settings of a budget with
/// which it would, beside the [memory] keys that it has, with its forecast: "--set memory.device=78.50GiB (0.41 s a
/// step, 1.3 times one with room)". Measures the machine where that is possible. Empty where the run keeps to as little
/// already, or no budget helps.
std::string budget_advice(const TrainConfig& config, int64_t room);

/// Throws MemoryError, with the plan, where it takes more of a tier than is free there: of the device, of the host
/// beside a card, of the disk where it uses one. For plans that no budget bounds, and budgets of more than there is.
void require_room(const TierPlan& plan, const memory::Bound& device, const memory::Bound& host,
                  const memory::Bound& disk);
/// The same with what is free now, and the disk that the tier `disk` is on. Where the device's memory is what lacks, the
/// error has the budget_advice() for these settings, whose plan it is.
void require_room(const TierPlan& plan, Device device, const TrainConfig& config);

/// The plan as lines: what is where, bytes by tier against the budget, seconds beside those without, what bounds it.
std::string to_text(const TierPlan& plan);

}  // namespace strata
