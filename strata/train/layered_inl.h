#pragma once
// Gradient accumulation layer by layer: all micro-batches of a step go through a group of blocks before the next blocks
// come. Weights that live elsewhere are then moved once a step each way, not once for each micro-batch; what is kept
// instead is what comes into the groups (Pudipeddi et al., arXiv:2002.05645; Lamy-Poirier, arXiv:2106.02679).

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "strata/core/autocast.h"
#include "strata/core/backend.h"
#include "strata/core/rng.h"
#include "strata/data/dataset.h"
#include "strata/models/language_model.h"
#include "strata/optim/loss_scaler.h"
#include "strata/train/config.h"

namespace strata {

/// How.
struct LayeredOptions {
  int64_t blocks = 1;   ///< through which all micro-batches go before the next come
  Tier inputs;          ///< where what comes into groups waits for backward; Tier(): where it is
  int64_t leaving = 0;  ///< bytes of it that go there, the first made; the rest stays
  int64_t least = 0;    ///< bytes below which a tensor stays
  uint64_t draws = 0;   ///< blocks of random numbers that one pass takes
};

/// Forward and backward of all micro-batches of a step. Each group's activations are computed again from its inputs;
/// each parameter's gradients add up in the order of the micro-batches, so losses, gradients and random numbers are
/// those of one pass after another, bit for bit.
class LayeredAccumulation {
 public:
  /// The model must outlive it. `group_done` is called when a group's gradients are complete.
  LayeredAccumulation(LanguageModel& model, const LayeredOptions& options, std::function<void()> group_done = {});
  /// Why these settings' steps go one pass after another, whatever is wanted; empty where they need not.
  static std::string refuses(const TrainConfig& config);

  /// The sum of the micro-batches' losses over their number, f64; gradients are accumulated. Throws ValueError where a
  /// pass took another number of random numbers than the options say.
  Tensor run(const std::vector<data::Batch>& batches, const std::optional<AutocastSettings>& autocast,
             const optim::LossScaler* scaler = nullptr);

 private:
  struct Step;
  LanguageModel& model_;
  LayeredOptions options_;
  std::function<void()> group_done_;
};

}  // namespace strata
