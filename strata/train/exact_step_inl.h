#pragma once
// A step whose bits do not depend on the number of ranks: parallel.exact.

#include <functional>
#include <string>
#include <vector>

#include "strata/data/dataset.h"
#include "strata/dist/exact_gradients.h"
#include "strata/nn/module.h"
#include "strata/train/config.h"

namespace strata {

/// Each of the step's batches is cut into parallel.exact micro-batches. Micro-batch m of batch a is number
/// m train.accumulate + a of the step: those of a rank are neighbours whatever the number of ranks. Each has its own
/// stretch of the step's random numbers, so that it is the same whoever computes it.
class ExactStep {
 public:
  /// What of the settings parallel.exact does not serve, by the key's name; empty where there is nothing.
  static std::string refuses(const TrainConfig& config);

  /// Without `group` this process has all micro-batches. Throws as ExactGradients.
  ExactStep(const nn::NamedTensors& parameters, distributed::Group* group, const TrainConfig& config);

  /// loss(micro-batch), and backward(loss over their number), for all of this rank's: `batches` are its rows. The last
  /// one's gradients travel while they come, unless it is said that they do not: for passes that may end early.
  void run(const std::vector<data::Batch>& batches, const std::function<Tensor(const data::Batch&)>& loss,
           const std::function<void(const Tensor&)>& backward, bool travels = true);
  /// Makes the parameters' gradients those of the step. The step's loss: all micro-batches', added by their numbers,
  /// f64.
  Tensor finish();
  /// Blocks of random numbers that a step has.
  static constexpr uint64_t kStepDraws = uint64_t{1} << 40;

 private:
  distributed::Group* group_;
  int64_t count_, accumulate_;
  distributed::ExactGradients gradients_;
  TensorList losses_;
};

}  // namespace strata
