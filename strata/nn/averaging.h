#pragma once
// Averages of a model's weights over training (Polyak and Juditsky 1992; SWA, arXiv:1803.05407; EMA).

#include <optional>

#include "strata/nn/module.h"

namespace strata::nn {

/// Takes `values` into `means`, in place and without a gradient: decay mean + (1 - decay) value, or without `decay` the
/// plain mean of these values and the `count` ones before (for 0 a copy). What is not floating is copied. Throws
/// ShapeError for lists that do not go together, ValueError unless 0 <= decay <= 1.
void update_averages(const TensorList& means, const TensorList& values, int64_t count,
                     std::optional<double> decay = {});

/// Of AveragedModel.
struct AveragingOptions {
  /// avg = decay avg + (1 - decay) weight at each update; without one all updates count the same.
  std::optional<double> decay = {};
  bool use_buffers = false;  ///< average floating buffers too; else they are copied at each update
};

/// The running average of the parameters of a module, beside it.
///     nn::AveragedModel average(model, {.decay = 0.999});
///     ... optimizer.step(); average.update();
///     { nn::AveragedModel::Scope in(average); evaluate(model); }   // with the averaged weights
class AveragedModel {
 public:
  /// Keeps a handle to `model`. Throws ValueError unless 0 <= decay <= 1.
  explicit AveragedModel(const Module& model, const AveragingOptions& options = {});
  /// Takes the model's weights of now into the average; the first update copies them.
  void update();
  int64_t updates() const { return updates_; }
  /// The averaged parameters and buffers by their names in the model.
  const StateDict& averages() const { return averages_; }
  /// Writes the averages into the model. Throws ValueError before the first update.
  void copy_to_model() const;

  /// The model has the averaged weights while one lives, then its own again.
  class Scope {
   public:
    /// Throws ValueError before the first update.
    explicit Scope(const AveragedModel& average);
    ~Scope();
    Scope(const Scope&) = delete;

   private:
    const AveragedModel& average_;
    StateDict own_;
  };

 private:
  Module model_;
  AveragingOptions options_;
  StateDict averages_;
  int64_t updates_ = 0;
};

}  // namespace strata::nn
