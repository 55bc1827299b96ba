#pragma once
// Whether a run fits into the memory that there is, and what to change where it does not.

#include <string>
#include <vector>

#include "strata/memory/bounds.h"
#include "strata/train/config.h"
#include "strata/train/estimate.h"

namespace strata {

/// A change with which a run fits.
struct MemoryFix {
  std::vector<std::string> settings;  ///< as for parse_config(): {"train.batch=2", "train.accumulate=4"}
  int64_t peak = 0;                   ///< MemoryEstimate::peak with them
};

/// What a run needs beside what there is.
struct MemoryPlan {
  MemoryEstimate need;
  int64_t program = 0;  ///< what the program itself takes besides: threads, libraries' buffers
  memory::Bound bound;  ///< the tightest one of the run's device
  bool fits = false;    ///< need.peak + program is no more than bound.free()
  /// Where it does not fit: what would, the change that costs least first. Smaller batches summed to the same step come
  /// before lower precision, that before a smaller model. Empty where it fits, or where nothing helps.
  std::vector<MemoryFix> fixes;
};

/// Dry runs of the settings and, where they do not fit into `bound`, of changes to them. Throws as estimate_memory().
///
///     const MemoryPlan plan = plan_memory(config, memory::tightest_bound(parse_device(config.device)));
///     if (!plan.fits) std::fputs(to_text(plan).c_str(), stderr);
MemoryPlan plan_memory(const TrainConfig& config, const memory::Bound& bound);

/// The plan's lines: each part in GiB, what is free and why, whether it fits.
std::string to_text(const MemoryPlan& plan);
/// The changes as the command line takes them: "--dtype bf16 --set train.batch=2 train.accumulate=4".
std::string to_options(const MemoryFix& fix);

}  // namespace strata
