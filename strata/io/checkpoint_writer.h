#pragma once
// Checkpoints that are written while what they are of goes on changing. docs/design/io_text_data.md

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "strata/dist/group.h"
#include "strata/io/checkpoint.h"

namespace strata::io {

/// Writes checkpoints by a thread of its own, of copies in the host's memory: page-locked ones of what is on a card.
/// What it writes is what save_checkpoint() writes of one process, and save_rank_checkpoint() of several, byte for
/// byte; as there, one rename makes it a checkpoint, so a process that is killed meanwhile leaves the one before. Of
/// several ranks that rename is made by finish(), which all call together once each has written its parts.
///
///     io::CheckpointWriter writer(&distributed::group("world"));
///     writer.begin("runs/a", 100, {{"model", model.state_dict()}}, {});   // returns once copies are under way
///     while (..) {
///       step();
///       if (writer.under_way() && all_ranks_say(writer.written())) writer.finish();
///     }
///     writer.finish();
///
/// The copies stay for the next checkpoint (held_bytes()). One thread uses a writer.
class CheckpointWriter {
 public:
  /// `group`: the ranks that write together, which must outlive it; nullptr for a process alone.
  explicit CheckpointWriter(distributed::Group* group = nullptr);
  /// Waits for its thread. A checkpoint of several ranks that was not finished is none, and is removed.
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;

  /// Copies the tensors and begins to write RUN/step-XXXXXXXX, as save_checkpoint() or, by all ranks of the group
  /// together, save_rank_checkpoint(); the tensors may change as soon as it returns, on a card by work that is queued
  /// from then on. What is under way is finished first. Throws what finish() does, MemoryError where there is no room
  /// for the copies, and ValueError for what cannot be named or written.
  void begin(const std::string& run_dir, int64_t step, const TensorFiles& files,
             const std::map<std::string, std::string>& state, int keep_last = 0);
  /// Whether there is a checkpoint that was not finished.
  bool under_way() const;
  /// Whether this rank has written its part of it, or has failed to: then finish() does not wait for the disk, once it
  /// is so on every rank.
  bool written() const;
  /// Waits, and makes it the checkpoint: its path, "" where none is under way. All ranks together. Throws IoError where
  /// a rank could not write, in every rank, naming it and why: then what was there before is still there, and nothing
  /// is left behind.
  std::string finish();
  /// Bytes of the copies that it keeps.
  int64_t held_bytes() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace strata::io
