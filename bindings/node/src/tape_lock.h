#pragma once
// One thread at a time on the tape. The engine wants each tensor used by one thread at a time; JavaScript may run a
// training step on a pool thread while its own thread drops or uses tensors of the same graph. So whatever records,
// walks or frees a graph holds this lock; ops that record nothing do not.

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>

#include "strata/core/tensor.h"

namespace strata::node {

/// Work that other threads want done on an environment's JavaScript thread.
struct Jobs {
  virtual ~Jobs() = default;
  virtual bool waiting() const = 0;
  /// Runs those that wait; on the JavaScript thread.
  virtual void run_waiting() = 0;
};

/// Holds the tape while one lives; nests. A JavaScript thread that has to wait gives its jobs, so that the holder, who
/// may wait for a hook to run there, gets on.
class TapeGuard {
 public:
  explicit TapeGuard(Jobs* jobs = nullptr);
  ~TapeGuard();
  TapeGuard(const TapeGuard&) = delete;
};

/// This thread works for the one that holds the tape, while one lives.
class TapeDelegate {
 public:
  TapeDelegate();
  ~TapeDelegate();
  TapeDelegate(const TapeDelegate&) = delete;
};

/// Wakes threads that wait for the tape, because they have a job now.
void wake_tape_waiters();

/// Lets go of a tensor: at once, or where that may free a part of a graph and another thread holds the tape, when that
/// one is done. Never waits.
void bury(Tensor&& tensor);

}  // namespace strata::node
