#pragma once
// What a run will need, known before anything is allocated.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "strata/autograd/offload_plan.h"
#include "strata/core/recording.h"
#include "strata/lab/step_costs.h"
#include "strata/train/config.h"

namespace strata {

/// Bytes of the memory of train.device. Gradients and activations are largest at different times: the peak is less than
/// the sum. Where parallel.dp or parallel.cp name ranks they are the first one's, whose parts are the largest.
struct MemoryEstimate {
  int64_t parameter_count = 0;  ///< elements
  int64_t parameters = 0;       ///< with the copies of them that autocast keeps
  int64_t gradients = 0;        ///< after the backward pass
  int64_t optimizer = 0;
  int64_t activations = 0;  ///< at the peak: saved for the backward pass, and temporaries
  int64_t data = 0;         ///< batches made ready
  int64_t peak = 0;         ///< of the heap that holds them all: their sum, and what fragmentation adds
  int64_t sums = 0;         ///< beside gradients, in f32, while parallel.exact's micro-batches are added
  /// Of train.save_async: copies in the host's memory; a part of `peak` where the run is on the processor.
  int64_t copies = 0;
  int64_t exchange = 0;     ///< what parallel.reduce keeps; a part of `peak`
  int64_t ranks = 1;        ///< of parallel.dp times parallel.cp
  /// Bytes that a rank sends to others in a step (nn::ShardedCosts); 0 with parallel.exact where gradients are whole.
  int64_t sends_parameters = 0, sends_gradients = 0;
  int64_t sends_tokens = 0;  ///< the same of rows that go to experts on other ranks and back (parallel.ep)
  int64_t sends_activations = 0;  ///< the same of parallel.cp's attention
};

/// Runs one training step of the settings on the meta device: the same code, shapes only. model.vocab 0 is taken as the
/// byte tokenizer's 256. With parallel.dp ranks a rank has its rows of the batch, with parallel.cp its positions of them,
/// and what parallel.zero leaves it; with parallel.tp its parts of the weights, and about its share of the activations,
/// which are not computed in parts here; with parallel.pp it is the rank that takes most, by plan::estimate_stages().
/// Throws ValueError for settings that do not fit together. `recomputed` of the blocks keep only their inputs; as
/// memory.recompute says where it is not given. With `saved`, forward's saved tensors are dropped and made again as that
/// plan says; none of it leaves. With `layered`, all of train.accumulate's batches go through so many blocks before the
/// next come.
MemoryEstimate estimate_memory(const TrainConfig& config, std::optional<int64_t> recomputed = {},
                               const OffloadPlan* saved = nullptr, int64_t layered = 0);

/// A warmed-up training step of the settings as a dry run saw it: forward and backward passes and the update, without
/// data, workspace within kernels, the norm of the gradients and the sums of parallel.exact.
struct DryStep {
  Recording step;              ///< with the first two passes of train.accumulate; all of them where they go together
  Recording pass;              ///< one like all further passes
  int64_t further = 0;         ///< how many there are
  int64_t tokens = 0;          ///< of a whole step
  int64_t parameters = 0;      ///< elements
  int64_t largest_part = 0;    ///< bytes of the weights of the block, or other layer, that has most of them
  int64_t largest_block = 0;   ///< the same of blocks alone
  int64_t largest_weight = 0;  ///< bytes of the largest weight
  int64_t largest_state = 0;   ///< bytes of the optimizer's state of the weight that has most of it
  /// Names of the weights of which rows are read, and of these with the head's.
  std::vector<std::string> tables, tables_and_head;
  uint64_t draws = 0;  ///< blocks of random numbers that one pass takes
  int64_t peak = 0;  ///< most bytes of tensors at once during it, by the allocator's count
  /// The whole step beside what a machine can do.
  lab::StepCosts costs(const lab::Limits& limits = {}) const;
  /// Memory by tag over the time that the limits allow at least, from the lifetimes in `step`, as a page
  /// (memory/timeline_data.h); without limits over the calls. `where` names the device.
  std::string timeline_html(std::string_view title, std::string_view where, const lab::Limits& limits = {}) const;
};

/// Records it on the meta device. Throws as estimate_memory().
DryStep record_dry_step(const TrainConfig& config, std::optional<int64_t> recomputed = {},
                        const OffloadPlan* saved = nullptr, int64_t layered = 0);
/// What a pass of the step saves, in order, and which calls can make it again: the times in it are not known.
OffloadMeasured dry_saved(const TrainConfig& config);

}  // namespace strata
