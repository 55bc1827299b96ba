#pragma once
// What parallel.reduce means for a run: what it is refused beside, what an update is then, what a checkpoint has of it.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "strata/dist/gradient_exchange.h"
#include "strata/nn/module.h"
#include "strata/optim/optimizer.h"
#include "strata/train/config.h"
#include "strata/train/metrics.h"
#include "strata/train/run.h"

namespace strata {

/// The exchange of gradients of a run in a group of ranks.
class ExchangeRun {
 public:
  /// What of the settings parallel.reduce is not for, by the keys' names; empty where there is nothing.
  static std::string refuses(const TrainConfig& config);
  /// The update that a rank makes: the settings', or where the exchange gives directions one by plain SGD, which takes
  /// them times the learning rate, with the settings' decay.
  static OptimConfig update(const TrainConfig& config, int64_t ranks);
  /// Throws ValueError where a run's optimizer has no state for an update by the settings `now`.
  static void check_same_update(const RunState& then, const TrainConfig& now, int64_t ranks);

  /// nullptr for plain. Throws as make_exchange().
  static std::unique_ptr<ExchangeRun> make(const nn::NamedTensors& parameters, distributed::Group& group,
                                           const TrainConfig& config);
  distributed::GradientExchange& exchange() const { return *exchange_; }
  bool gives(distributed::ExchangeRecord::Gives what) const { return exchange_->record().gives == what; }
  /// Why the steps of a job of several ranks are no CUDA graph; empty where they can be.
  static std::string refuses_capture(const TrainConfig& config);

  /// What a checkpoint has of it. All ranks call it.
  void save(RunState& state, const optim::Optimizer& optimizer) const;
  /// Goes on from a checkpoint; of another number of ranks, or of another exchange, with what all had alike alone. What
  /// there is to tell of that; empty for nothing. All ranks of the job call it. Throws IoError, ValueError, ShapeError.
  std::string resume(const FoundRun& found, optim::Optimizer& optimizer) const;

  /// What a step's line in the log has of it.
  void tell(StepMetrics& metrics) const;
  /// What was sent, and saved, since the run began.
  std::string summary() const;

 private:
  ExchangeRun(std::unique_ptr<distributed::GradientExchange> exchange, bool on_host);

  std::unique_ptr<distributed::GradientExchange> exchange_;
  bool on_host_;  // else its seconds are the card's, which nobody measures
  double plain_seconds_;
  // Of this start.
  mutable double seconds_ = 0;
  mutable int64_t steps_ = 0, sent_ = 0;
};

/// While one lives, parameters of ranks that train apart are the mean of the ranks', which others may read. Nothing
/// happens without an exchange, and of those whose ranks are always alike. All ranks make one together.
class RanksMean {
 public:
  explicit RanksMean(const ExchangeRun* run) : exchange_(run ? &run->exchange() : nullptr) {
    if (exchange_) exchange_->enter_mean();
  }
  ~RanksMean() {
    if (exchange_) exchange_->leave_mean();
  }
  RanksMean(const RanksMean&) = delete;

 private:
  distributed::GradientExchange* exchange_;
};

}  // namespace strata
