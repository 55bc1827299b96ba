#pragma once
// One start of a run: what trainer_start.cpp makes and trainer.cpp carries out.

#include <chrono>
#include <cmath>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "strata/core/once.h"
#include "strata/data/loader.h"
#include "strata/lab/step_costs.h"
#include "strata/lab/trace.h"
#include "strata/train/feeder.h"
#include "strata/train/mirror_inl.h"
#include "strata/train/progress.h"
#include "strata/train/ranks.h"
#include "strata/train/run.h"
#include "strata/train/run_lock.h"
#include "strata/train/run_saver_inl.h"
#include "strata/train/step_runner.h"
#include "strata/train/tier_plan.h"
#include "strata/train/tiers.h"
#include "strata/train/train_data.h"
#include "strata/train/trainer.h"

namespace strata::detail {

inline double seconds_since(std::chrono::steady_clock::time_point t) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - t).count();
}

// The newest checkpoint was taken to be whole, and is not.
struct NotWhole {};

class Run {
 public:
  // `trusting`: the newest checkpoint is checked as it is read, once; NotWhole where it is damaged. Else all of it is
  // read before, and of those before it where it must be. `mirrors` of parallel.mirror, nullptr without: where they
  // have a step that no checkpoint is behind, the run goes on from it.
  Run(const TrainConfig& config, const TrainOptions& options, bool trusting, Mirrors* mirrors);
  TrainResult run();

 private:
  using Clock = std::chrono::steady_clock;
  // A step that was queued, until its numbers are read.
  struct Launched {
    RngKey rng;                        // before it
    std::vector<data::Batch> batches;  // on the host
    StepMetrics metrics;               // what is known of them
  };

  FoundRun newest() const;
  void resume_from(const FoundRun& found);
  void note(const std::string& text) {
    if (progress_) progress_->note(text);
  }
  void fit();
  void launch();
  void keep_recording(const Recording& step);
  void recall_step();
  StepMetrics settle();
  [[noreturn]] void diverged(const Launched& step, const optim::StepReport& report);
  double validate();
  RunState state();
  void save();
  void report(const std::string& status, bool with_sample);
  std::string sample();
  nn::Module& module() const { return model_->as_module(); }
  double elapsed() const { return elapsed_before_ + seconds_since(begin_); }
  // Since the first step of this start.
  double training() const { return seconds_since(training_); }

  TrainConfig config_;
  TrainOptions options_;
  Device device_;
  Clock::time_point begin_ = Clock::now();
  std::vector<std::pair<const char*, double>> once_before_ = once_seconds();
  double elapsed_before_ = 0;
  Clock::time_point training_;
  struct {
    int64_t wanted = 0;                     // steps
    int64_t first_step = 0;                 // the first that counts
    double first_seconds = 0, decided = 0;  // when it was done, and when the number of steps was last thought over
  } fit_;
  std::optional<Ranks> ranks_;
  std::optional<RunLock> lock_;
  TrainData data_;
  std::shared_ptr<TokenDecoder> model_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::optional<TierPlan> plan_;
  std::optional<Tiers> tiers_;
  std::optional<optim::RunSchedule> schedule_;
  std::optional<data::DataLoader> loader_;
  std::optional<BatchFeeder> feeder_;
  std::optional<StepRunner> steps_;
  std::deque<Launched> launched_;
  std::optional<MetricsWriter> metrics_;
  std::optional<Progress> progress_;
  std::optional<RunSaver> saver_;
  Mirrors* mirrors_;
  const std::string* mirrored_ = nullptr;  // what it goes on from
  int64_t mirror_at_ = 0;                  // the step
  int64_t step_ = 0, tokens_ = 0;
  uint64_t base_ = 0;
  int launches_ = 0;                          // of this start
  std::optional<lab::StepCosts> step_costs_;  // of the step that was recorded
  lab::Trace trace_;                          // of the same, with tiers
  StepMetrics last_;
  double valid_loss_ = NAN;
  int64_t valid_step_ = 0;
};

}  // namespace strata::detail
