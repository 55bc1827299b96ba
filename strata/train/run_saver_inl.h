#pragma once
// When a run's checkpoints are written: while it waits, or beside its steps (train.save_async).

#include <cstdint>
#include <optional>
#include <string>

#include "strata/io/checkpoint_writer.h"
#include "strata/train/run.h"

namespace strata {

/// The last name of a path, which may end with slashes.
std::string last_part(std::string path);

class RunSaver {
 public:
  /// Of a run in the folder `out`.
  RunSaver(const TrainConfig& config, std::string out);
  /// Writes a checkpoint, or begins to, once the one before is finished. All ranks together. Throws IoError as
  /// save_run(), also of what was begun before.
  void save(const RunState& state, const nn::Module& model, const optim::Optimizer& optimizer);
  /// Whether one is under way of which this rank has not written its part: ranks vote on it behind each step.
  bool writes() const;
  /// Makes what is under way a checkpoint, waiting for it. All ranks together, at once where writes() of none. Throws
  /// IoError in every rank where one could not write.
  void finish();
  /// finish(), or what it threw as text.
  std::string try_finish();
  /// What the run goes on from.
  void found(std::string path, int64_t step) {
    newest_ = std::move(path);
    step_ = step;
  }
  /// The newest that is whole; empty where there is none.
  const std::string& newest() const { return newest_; }
  /// The step of the newest that was begun or found; -1: none.
  int64_t step() const { return step_; }

 private:
  std::string out_, newest_;
  int keep_last_;
  int64_t step_ = -1;
  std::optional<io::CheckpointWriter> writer_;
};

}  // namespace strata
