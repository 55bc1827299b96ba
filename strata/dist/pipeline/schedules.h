#pragma once
// The schedules that there are, one record each.

#include <span>
#include <string_view>
#include <vector>

#include "strata/dist/pipeline/table.h"

namespace strata::distributed::pipeline {

/// How a table is made for a number of ranks, stages a rank and micro-batches.
struct ScheduleRecord {
  std::string_view name;  ///< as in parallel.schedule
  std::string_view doc;   ///< one paragraph, with its source
  int least_stages = 1;   ///< stages that a rank has at least ...
  int most_stages = 1;    ///< ... and at most; 0 for any number
  bool splits = false;    ///< whether gradients of inputs and of weights are apart (I and W)
  /// Stages go to the ranks and back (0 1 .. p-1 p-1 .. 1 0) instead of round and round (0 1 .. p-1 0 1 ..).
  bool back = false;
  /// What each rank does. `patience` 0, 1, ..: forward passes that it makes earlier than the schedule wants, tried
  /// until the ranks no longer wait for each other.
  std::vector<std::vector<Action>> (*order)(int ranks, int stages_per_rank, int micro_batches, int patience) = nullptr;
};
/// All of them.
std::span<const ScheduleRecord> schedule_records();
/// The one of that name. Throws ValueError naming those that there are.
const ScheduleRecord& schedule_record(std::string_view name);

/// The table of a schedule; `stages_per_rank` 0 takes the fewest that it works with. Micro-batches go through each
/// stage in ascending order. Throws ValueError for a name that is none, and sizes that it does not work with.
///
///     const Table t = make_table("1f1b", /*ranks=*/4, /*micro_batches=*/8);
///     const Proof proof = prove(t);                 // live: 4, 3, 2, 1 micro-batches
///     simulate(t, {{.forward = 1, .input = 1, .weight = 1}}).bubble;   // 3 / 11
Table make_table(std::string_view schedule, int ranks, int micro_batches, int stages_per_rank = 0);
/// The forward passes of the same stages alone.
Table forward_table(const Table& table, int micro_batches);

}  // namespace strata::distributed::pipeline
