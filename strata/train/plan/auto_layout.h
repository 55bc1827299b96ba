#pragma once
// parallel.auto: a run's layout from a plan, before the run.

#include <cstdio>

#include "strata/train/config.h"

namespace strata::plan {

/// The settings with the layout that a plan for the job's ranks ranks first, where parallel.auto says so; as they are
/// elsewhere. Without parallel.links the machine is measured by all ranks; the first one plans, and every rank gets what
/// it found, or the same error: ValueError where no layout can be trained (with the reasons), IoError naming the byte or
/// key of a file that is none. `log` is told what was chosen and why; nullptr: nobody. Every rank of the job calls it.
///
///     const TrainConfig settled = plan::settle_layout(load_config("gpt.toml", {"parallel.auto=true"}));
///     train(settled, {.out = "runs/gpt"});
TrainConfig settle_layout(const TrainConfig& config, std::FILE* log = nullptr);

}  // namespace strata::plan
