#pragma once
// What a run over several ranks does beside the run of one: who writes, how ranks decide together, whose rows are whose.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "strata/dist/data_parallel.h"
#include "strata/models/language_model.h"
#include "strata/nn/fully_sharded.h"
#include "strata/train/config.h"

namespace strata {

/// This process's part in a run. Every rank has the whole model and computes its rows of each global batch; rank 0 alone
/// writes into the run's folder. Without a job (distributed::init) all of it costs nothing.
class Ranks {
 public:
  /// Checks that the settings can be carried out by the job's ranks. Throws ValueError naming the key.
  explicit Ranks(const TrainConfig& config);
  ~Ranks();

  /// Where this process computes: train.device, or, of several ranks on cards, this rank's card. Throws ValueError where
  /// train.device names one card for all of them, DeviceError where there are fewer cards than ranks.
  static Device device(const TrainConfig& config);

  int64_t rank() const { return rank_; }
  int64_t size() const { return size_; }
  /// Whether this process writes checkpoints, metrics and reports.
  bool leads() const { return rank_ == 0; }
  /// Returns when every rank is here.
  void meet() const;
  /// Whether tensors lie in parts: then every rank takes part where one is read as a whole.
  bool shares_weights() const { return sharded_ != nullptr; }
  /// With parallel.zero makes every rank's parameters those of rank 0 and leaves this rank its parts. What an optimizer
  /// is to update: the parameters that are trained, or this rank's parts of them.
  nn::NamedTensors share_parameters(const nn::Module& model);
  /// Without parallel.zero makes every rank's parameters those of rank 0; takes their gradients.
  void take_gradients(const nn::Module& model);
  /// Around forward and backward of one batch, and around forwards alone: parameters in parts come ahead of their use.
  class Pass {
   public:
    explicit Pass(const Ranks& ranks) : pass_(ranks.sharded_.get()) {}

   private:
    nn::FullySharded::Pass pass_;
  };

  /// The backward pass that follows is the last of its step: its gradients travel.
  void last_pass(bool yes) const;
  /// Waits for the gradients, and makes `loss` (f64) the ranks' average.
  void finish_step(Tensor& loss) const;
  /// After the update: every rank has it.
  void finish_update() const;
  /// The random numbers of a step: other ones in every rank, the same in every run.
  void seed_step(int64_t seed, int64_t step) const;

  /// The largest of the ranks' values, for each: what one wants happens on all.
  std::vector<double> vote(std::vector<double> values) const;
  /// Rank 0's values.
  std::vector<double> follow(std::vector<double> values) const;
  /// The ranks' sums.
  std::vector<double> sum(std::vector<double> values) const;

 private:
  std::vector<double> reduced(std::vector<double> values, const char* what, distributed::Reduction r) const;

  distributed::Group* group_ = nullptr;  // of several ranks
  int64_t rank_ = 0, size_ = 1;
  int64_t zero_ = 0;
  std::unique_ptr<distributed::DataParallel> gradients_;
  std::unique_ptr<nn::FullySharded> sharded_;  // of parallel.zero
};

}  // namespace strata
