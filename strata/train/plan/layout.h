#pragma once
// How a job's ranks share a training step: a value, and the settings that say it.

#include <cstdint>
#include <string>
#include <vector>

#include "strata/train/config.h"

namespace strata::plan {

/// What a plan may choose of a run. The rows of a step, train.batch times train.accumulate, are the same in all of them.
struct ParallelLayout {
  int64_t dp = 1, tp = 1, cp = 1, pp = 1, ep = 1;  ///< as parallel.dp and so on; dp tp cp pp are the ranks
  int64_t zero = 0;                                ///< parallel.zero
  int64_t accumulate = 1;                          ///< train.accumulate
  bool recompute = false;                          ///< parallel.recompute
  std::string cp_kind = "ring";                    ///< parallel.cp_kind
  std::string schedule = "1f1b";                   ///< parallel.schedule
  int64_t micro_batches = 0, stages = 0;           ///< parallel.micro_batches, parallel.stages

  int64_t ranks() const { return dp * tp * cp * pp; }
  /// As parse_config() takes them, all but defaults, and train.batch where it is another one than `config` has.
  std::vector<std::string> settings(const TrainConfig& config) const;
  /// The settings with this layout. Throws ValueError where train.accumulate does not divide the rows of a step.
  TrainConfig applied(const TrainConfig& config) const;
  /// What settings say, parallel.dp = 0 taken as one.
  static ParallelLayout of(const TrainConfig& config);
  /// "dp 4 x tp 2, zero 1, 2 passes".
  std::string to_text() const;
  bool operator==(const ParallelLayout&) const = default;
};

/// Every layout of so many ranks that could be asked for, the refused ones included: each way to write `ranks` as dp tp cp
/// pp, with what further choices each has. Keys of [parallel] that are not the defaults in `config` keep their values, and
/// so does train.accumulate where parallel.exact says that bits are to stay. Passes and micro-batches are those that
/// divide the rows of a step; of micro-batches up to eight for each stage.
std::vector<ParallelLayout> candidates(const TrainConfig& config, int64_t ranks);

}  // namespace strata::plan
