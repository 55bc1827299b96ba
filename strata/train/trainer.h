#pragma once
// The training loop of language models: what `strata train` runs.

#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>

#include "strata/core/error.h"
#include "strata/nn/module.h"
#include "strata/train/config.h"
#include "strata/train/metrics.h"

namespace strata {

/// Sees a run's model behind a step of that number, and may change it.
using AfterStep = std::function<void(int64_t step, nn::Module& model)>;

/// How a run is carried out, as opposed to what it computes (TrainConfig).
struct TrainOptions {
  std::string out;      ///< the run's folder; made where it is missing
  bool resume = false;  ///< go on from the newest checkpoint in `out`; from the start where there is none
  /// Asked after every step: true saves and stops.
  bool (*stop_requested)() = nullptr;
  std::FILE* log = stderr;  ///< the progress line and notes; nullptr for none
  /// Without a log: what is to be known of a run that goes on otherwise than asked, as when a broken checkpoint is passed
  /// over.
  std::FILE* warnings = nullptr;
  /// Whether a run whose [memory] moves something is refused where its plan takes more of a tier than is free.
  bool memory_check = true;
  /// Called after every step with its number and the model: what it changes is trained on.
  AfterStep after_step = nullptr;
};

/// How a run ended.
struct TrainResult {
  int64_t step = 0;           ///< steps done, earlier parts of the run included
  StepMetrics last;           ///< of the last step done now; step 0 where there was none
  double valid_loss = 0;      ///< the last one measured now; NaN for none
  int64_t valid_step = 0;     ///< after which it was measured
  bool finished = false;      ///< every step was done
  std::string status;         ///< "finished", or where and why it stopped: "stopped at step 120: interrupted"
  std::string checkpoint;     ///< the newest one; empty where none is saved
  int64_t peak_memory = 0;    ///< most bytes that tensors held at once on the run's device, from the first step on
  int64_t peak_reserved = 0;  ///< the same with what the allocator keeps for later
};

/// The loss or the gradient became NaN or infinite. The text names the step and the op that first produced it.
class DivergedError : public Error {
  using Error::Error;
};

/// Trains. A run that was stopped or killed and goes on with `resume` computes the same weights, bit for bit, as one
/// that never stopped (on the same machine and build). The result does not depend on the number of threads. Throws
/// IoError (text, folder, full disk), ValueError (settings), DivergedError; the newest checkpoint is then intact.
TrainResult train(const TrainConfig& config, const TrainOptions& options);

}  // namespace strata
