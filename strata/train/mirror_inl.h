#pragma once
// parallel.mirror: what each rank needs to go on, in its own memory and in a neighbour's.

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "strata/dist/group.h"
#include "strata/optim/optimizer.h"
#include "strata/train/run.h"

namespace strata::detail {

/// A run at one step as bytes: what of its tensors this rank has, and what `state` says.
std::string encode_run(const RunState& state, const nn::Module& model, const optim::Optimizer& optimizer);
/// What they say, and nothing of the tensors. Throws IoError for bytes that encode_run() did not give.
RunState decoded_state(const std::string& bytes);
/// Fills the model and the optimizer, which must lie among the ranks as those did. Throws IoError naming the tensor
/// that does not fit, or is missing.
void restore_run(const std::string& bytes, nn::Module& model, optim::Optimizer& optimizer);

/// Mirrors of this rank's state, and of that of the rank behind it (of the last the first one's). There are two, of
/// different steps: while one is being written the other is whole. It outlives a run, whose groups it uses while they
/// are there.
class Mirrors {
 public:
  ~Mirrors() = default;
  /// Takes the newest step's place, or rather the older one's: `bytes` is this rank's state behind `step`, and travels
  /// beside what follows. All ranks of the job, where under_way() of none.
  void begin(int64_t step, std::string bytes);
  /// Whether bytes still travel.
  bool under_way() const { return travels_; }
  /// All ranks: this rank's state at the newest step that every rank has, or that another one has for it; nullptr where
  /// there is no such step. `alike`: all ranks have the same state, so that any of them has it for all, and their
  /// number may be another one. Where it is found it is mirrored anew. It stays as it is until the next call but one of
  /// begin().
  const std::string* recover(bool alike);

 private:
  struct Mirror {
    std::atomic<int64_t> step = -1;  // -1 while it is not whole
    int64_t ranks = 0, rank = 0;     // how many there were, and which this one was
    std::string mine, theirs;        // theirs: of rank + 1
  };
  std::array<Mirror, 2> mirrors_;
  std::atomic<bool> travels_ = false;
};

}  // namespace strata::detail
