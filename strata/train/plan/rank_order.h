#pragma once
// Which rank has which place of a mesh, where links between ranks differ.

#include <cstdint>
#include <vector>

#include "strata/train/plan/layout.h"
#include "strata/train/plan/machine.h"

namespace strata::plan {

/// An order of ranks, and what it saves.
struct RankOrder {
  std::vector<int> ranks;    ///< the rank at each place of the mesh "pp dp ep cp tp", the last axis fastest
  double seconds = 0;        ///< of a step, forecast
  double as_they_come = 0;   ///< the same of ranks 0, 1, 2, ..
};

/// The order with which a step of `layout` is forecast to be fastest: of up to eight ranks exactly, by asking all orders;
/// of more by exchanging pairs until none helps. Links that are alike for all of a host's ranks are left in their order.
/// Throws as plan_layouts().
RankOrder order_ranks(const TrainConfig& config, const ParallelLayout& layout, const Machine& machine);

}  // namespace strata::plan
