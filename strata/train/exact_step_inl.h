#pragma once
// A step whose bits do not depend on the number of ranks: parallel.exact.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "strata/data/dataset.h"
#include "strata/dist/exact_gradients.h"
#include "strata/nn/fully_sharded.h"
#include "strata/nn/module.h"
#include "strata/train/config.h"

namespace strata {

/// Each of the step's batches is cut into parallel.exact micro-batches. Micro-batch m of batch a is number
/// m train.accumulate + a of the step: those of a rank are neighbours whatever the number of ranks, but where gradients
/// lie in parts (parallel.zero 2 and 3) those that all ranks compute at once. Each has its own stretch of the step's
/// random numbers, so that it is the same whoever computes it.
class ExactStep {
 public:
  /// What of the settings parallel.exact does not serve, by the key's name; empty where there is nothing.
  static std::string refuses(const TrainConfig& config);

  /// Without `group` this process has all micro-batches. With `sharded`, whose gradients are sums of as many, this is
  /// what computes its passes. Throws as ExactGradients.
  ExactStep(const nn::NamedTensors& parameters, distributed::Group* group, const TrainConfig& config,
            nn::FullySharded* sharded = nullptr);

  /// loss(micro-batch), and backward(loss over their number), for all of this rank's: `batches` are its rows, or those
  /// of all ranks where gradients lie in parts. The last one's gradients travel while they come, unless it is said that
  /// they do not: for passes that may end early. Parts always travel.
  void run(const std::vector<data::Batch>& batches, const std::function<Tensor(const data::Batch&)>& loss,
           const std::function<void(const Tensor&)>& backward, bool travels = true);
  /// Makes the parameters' gradients those of the step, but for those in parts, which are `sharded`'s to finish. The
  /// step's loss: all micro-batches', added by their numbers,
  /// f64.
  Tensor finish();
  /// Blocks of random numbers that a step has.
  static constexpr uint64_t kStepDraws = uint64_t{1} << 40;

 private:
  distributed::Group* group_;
  nn::FullySharded* sharded_;
  int64_t count_, accumulate_;
  int64_t own_ = 0, first_ = 0, apart_ = 1;  // this rank's: how many, the first one's number, from one to the next
  int64_t columns_ = 1, first_column_ = 0;   // micro-batches of each of the batches that run() gets
  std::optional<distributed::ExactGradients> gradients_;  // of whole ones
  TensorList losses_;
};

}  // namespace strata
