#pragma once
// Work on a pool thread whose end settles a promise.

#include <functional>
#include <memory>

#include "bindings/node/src/env.h"
#include "strata/core/value.h"

namespace strata::node {

/// Set by JavaScript when a signal aborts; looked at between the parts of a long call.
using CancelFlag = std::shared_ptr<std::atomic<bool>>;
/// The flag behind a value that newCancelFlag() gave, or nullptr for null and undefined.
CancelFlag cancel_flag_of(Env& env, napi_value v);
napi_value new_cancel_flag(Call& c);
napi_value cancel(Call& c);

/// One asynchronous call: derive, run() on a pool thread under the caller's modes (gradients, autocast, ...), finish()
/// back on the JavaScript thread with what resolves the promise.
class Task {
 public:
  virtual ~Task() = default;
  virtual void run() = 0;
  virtual napi_value finish(Env& env) = 0;
  /// Whether run() is on the tape.
  bool tape = false;
  CancelFlag cancelled;

  /// Queues it; returns the promise.
  static napi_value start(Env& env, std::unique_ptr<Task> task);

 private:
  struct State;
};

/// A Task of two functions.
template <class Run, class Finish>
class TaskOf final : public Task {
 public:
  TaskOf(Run run, Finish finish) : run_(std::move(run)), finish_(std::move(finish)) {}
  void run() override { run_(); }
  napi_value finish(Env& env) override { return finish_(env); }

 private:
  Run run_;
  Finish finish_;
};
template <class Run, class Finish>
napi_value start_task(Env& env, bool tape, CancelFlag cancelled, Run run, Finish finish) {
  auto task = std::make_unique<TaskOf<Run, Finish>>(std::move(run), std::move(finish));
  task->tape = tape;
  task->cancelled = std::move(cancelled);
  return Task::start(env, std::move(task));
}

/// Lets go of the tensors in `values` as bury() does.
void bury(std::vector<Value>& values);

}  // namespace strata::node
