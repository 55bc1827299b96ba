#pragma once
// One step of training: forward, backward, clipping and update, queued on the model's device without waiting for it,
// from the second step on as one CUDA graph where that is possible.

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "strata/core/autocast.h"
#include "strata/core/recording.h"
#include "strata/data/dataset.h"
#include "strata/lab/trace.h"
#include "strata/models/language_model.h"
#include "strata/optim/loss_scaler.h"
#include "strata/optim/optimizer.h"
#include "strata/train/config.h"
#include "strata/train/ranks.h"
#include "strata/train/tiers.h"

namespace strata {

class StepRunner {
 public:
  /// Model, optimizer and `ranks` must outlive it, and `tiers`, nullptr for a run without. Throws ValueError where
  /// `config.graph` is "on" and the device is no CUDA device, or the optimizer or the tiers cannot be captured.
  StepRunner(TokenDecoder& model, optim::Optimizer& optimizer, const TrainConfig& config, Device device,
             const Ranks& ranks, const Tiers* tiers = nullptr);
  ~StepRunner();

  /// The next step begins: what is done until its launch() counts in its seconds().
  void begin();
  /// Queues a step with these batches (on the device, at the same addresses each time) and this learning rate. On the
  /// CPU the step is done when it returns.
  void launch(const std::vector<data::Batch>& batches, double lr);
  /// The next launch() is recorded (and not captured): the same step, with an event between any two calls on a device,
  /// which is then waited for. Of a step with tiers what moves meanwhile is recorded too.
  void record_next() { record_next_ = true; }
  /// What was recorded, once.
  std::optional<Recording> take_recording() { return std::exchange(recorded_, std::nullopt); }
  /// Its time line, once; empty without tiers.
  lab::Trace take_trace() { return std::exchange(trace_, {}); }
  /// Steps queued whose reports were not read: at most two.
  size_t unread() const { return queued_ - read_; }
  /// The oldest unread report; waits for its step.
  optim::StepReport read();
  /// What the step that was read last took: from its begin(), or, where the step before it was not yet read then, from
  /// that one's end on. On a device by the device's clock.
  double seconds() const { return seconds_; }

  /// A step's forward and backward passes at a fixed loss scale, nothing else: for finding what went wrong in it.
  void repeat(const std::vector<data::Batch>& batches, double scale);
  /// The loss of one batch, in the precision of the settings.
  Tensor loss(const data::Batch& batch) const;

  /// What there is to say of the graph, once: that the step was captured, or why not. Empty when there is nothing new.
  std::string take_note() { return std::exchange(note_, {}); }
  bool captured() const;
  /// nullptr unless the settings scale the loss (f16).
  optim::LossScaler* scaler() { return scaler_ ? &*scaler_ : nullptr; }

 private:
  struct Cuda;
  Tensor compute(const std::vector<data::Batch>& batches);
  Tensor pass_after_pass(const std::vector<data::Batch>& batches);
  Tensor compute_stages(const std::vector<data::Batch>& batches);
  Tensor compute_recorded(const std::vector<data::Batch>& batches);
  void try_capture(const std::vector<data::Batch>& batches);

  TokenDecoder& model_;
  optim::Optimizer& optimizer_;
  Device device_;
  const Ranks& ranks_;
  const Tiers* tiers_;
  TrainConfig config_;
  std::optional<AutocastSettings> autocast_;
  double max_norm_;
  std::optional<LayeredAccumulation> layered_;  // where the tiers want it
  bool connected_ = false;                      // the ranks of a pipeline
  bool must_capture_ = false;
  std::optional<optim::LossScaler> scaler_;
  std::string note_;
  bool record_next_ = false;
  std::optional<Recording> recorded_;
  lab::Trace trace_;
  size_t queued_ = 0, read_ = 0;
  std::chrono::steady_clock::time_point begun_;  // on the CPU
  double seconds_ = 0;
  optim::StepReport report_;  // of the CPU
  std::unique_ptr<Cuda> cuda_;
};

}  // namespace strata
