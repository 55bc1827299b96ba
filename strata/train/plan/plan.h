#pragma once
// Which layout of a job's ranks trains a model soonest in the memory that there is. docs/design/plan.md,
// docs/guide/parallel.md

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "strata/train/config.h"
#include "strata/train/estimate.h"
#include "strata/train/plan/layout.h"
#include "strata/train/plan/machine.h"
#include "strata/train/plan/rank_order.h"

namespace strata::plan {

/// What a layout is forecast to take: seconds of a step, bytes of the rank that has most.
struct Forecast {
  double seconds = 0;
  double computes = 0;  ///< seconds that a rank computes, the slowest stage's
  double exposed = 0;   ///< seconds in which it only waits for what travels
  double bubble = 0;    ///< of a pipeline: the part of its ranks' time in which they wait for each other
  int64_t sent = 0;     ///< bytes that a rank sends in a step
  int64_t exposed_bytes = 0;  ///< those of them that travel while it waits
  int64_t parameters = 0, gradients = 0, optimizer = 0, activations = 0, data = 0;  ///< as MemoryEstimate has them
  int64_t peak = 0;           ///< most bytes at once, those of a start included where each rank has the whole model then
};

/// One of the layouts that can be trained.
struct Planned {
  ParallelLayout layout;
  std::vector<std::string> settings;  ///< for --set
  Forecast forecast;
  double tokens_per_second = 0;
  bool on_front = false;  ///< no other one is both faster and smaller
};

/// Layouts that are left out for one reason.
struct LeftOut {
  std::string reason;      ///< what training says of it, or that memory does not suffice
  int64_t layouts = 0;
  std::string example;     ///< the first of them
  int64_t least = 0;       ///< of those that do not fit: bytes of the smallest
};

/// A plan.
struct Plan {
  int64_t ranks = 1;
  int64_t memory = 0;            ///< bytes that a rank may take; 0: any
  double tokens = 0;             ///< of a step
  std::vector<Planned> layouts;  ///< the fastest first; of equal ones the smaller
  std::vector<LeftOut> left_out;
  std::optional<RankOrder> order;  ///< for the first layout, where it was asked for and there is one
};

/// What the rank of a pipeline that takes most takes: estimate_memory() of settings with parallel.pp. Throws as
/// check_layout() and estimate_memory().
MemoryEstimate estimate_stages(const TrainConfig& config);

/// How to plan.
struct PlanOptions {
  int64_t memory = 0;       ///< bytes that a rank may take; 0: what the machine's file says
  int64_t sure = 10;        ///< of the first so many the memory is asked of estimate_memory() itself, layout by layout
  std::vector<int> order;   ///< order_ranks(): which rank has which place; empty: as they come
  bool find_order = false;  ///< asks order_ranks() for the first layout
};

/// All layouts of so many ranks that train `config`, by a forecast from what its records say that a step computes and
/// moves. What check_layout() refuses and what takes more than the memory is left out, with the reason. Throws ValueError
/// as estimate_memory(), and for a machine whose limits or links are not known.
///
///     const TrainConfig gpt = load_config("configs/gpt2-124m.toml");
///     const plan::Plan p = plan::plan_layouts(gpt, 64, plan::machine_of_card("h200"));
///     std::puts(plan::to_text(p, 5).c_str());
Plan plan_layouts(const TrainConfig& config, int64_t ranks, const Machine& machine, const PlanOptions& options = {});

/// Whose numbers a plan is made with: those of a file of `strata info --links --out`, of a card that was measured
/// elsewhere (machine_of_card()), or, for one rank, of this machine.
struct MachineSource {
  std::string links, card;
  int64_t hosts = 0;  ///< that the ranks are shared out to, evenly: a file's pairs are then taken to be alike; 0: as it says
};
/// Throws ValueError for several ranks of which neither says the links, a card that is not known, and hosts that do not
/// divide the ranks; IoError for a file that is none; as measure_machine(), whose 1 to 3 seconds one rank alone takes.
Machine machine_for(const TrainConfig& config, int64_t ranks, const MachineSource& source);

/// Which of some points (seconds, bytes) no other one beats in both: of equal ones the first, in ascending seconds.
std::vector<size_t> pareto_front(const std::vector<std::pair<double, double>>& points);

/// A table of the first `rows` layouts, the front of time and memory, and why others are left out.
std::string to_text(const Plan& plan, size_t rows = 10);
/// All of it as JSON, for programs.
std::string to_json(const Plan& plan);

}  // namespace strata::plan
