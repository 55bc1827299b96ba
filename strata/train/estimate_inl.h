#pragma once
// Parts of estimate_memory(), for forecasts of many layouts from few dry runs (strata/train/plan).

#include <cstdint>
#include <memory>
#include <optional>

#include "strata/models/language_model.h"
#include "strata/train/estimate.h"

namespace strata {

// What a rank would take that has all of the model and its rows of the batch, and what of_a_rank() wants beside it.
struct AloneEstimate {
  TrainConfig config;  // train.batch: the rank's rows
  std::shared_ptr<TokenDecoder> model;  // on the meta device
  MemoryEstimate alone;
  int64_t activations = 0;  // the most at any time
};
AloneEstimate estimate_alone(const TrainConfig& config, std::optional<int64_t> recomputed = {},
                             const OffloadPlan* saved = nullptr, int64_t layered = 0);

// What one of the ranks of parallel.dp, parallel.cp, parallel.tp and parallel.ep has and sends, where one alone would have
// `e`; `activations` are the most at any time.
MemoryEstimate of_a_rank(MemoryEstimate e, const TrainConfig& config, TokenDecoder& model, int64_t activations);

// What attention over parts of sequences takes beside its results and sends, of parallel.cp: of the block that takes
// most, and of all blocks in a pass of config.batch rows.
struct ContextCosts {
  int64_t workspace = 0, sends = 0;
};
ContextCosts context_costs(const LanguageModel& model, const TrainConfig& config);

// Rows that a pass sends to experts and gets back, with those that stay here.
int64_t rows_to_experts(const TrainConfig& config);

}  // namespace strata
