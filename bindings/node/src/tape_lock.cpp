#include "bindings/node/src/tape_lock.h"

#include <mutex>
#include <utility>
#include <vector>

namespace strata::node {
namespace {

struct Tape {
  std::mutex mutex;
  std::condition_variable changed;
  bool held = false;
  std::vector<Tensor> graves;
};
// Never destroyed: pool threads may outlive the statics.
Tape& tape() {
  static Tape& t = *new Tape();
  return t;
}
thread_local int t_depth = 0;

// Frees what was buried meanwhile, then gives the tape up.
void give_up() {
  Tape& t = tape();
  for (;;) {
    std::vector<Tensor> graves;
    {
      const std::lock_guard lock(t.mutex);
      if (t.graves.empty()) {
        t.held = false;
        break;
      }
      graves.swap(t.graves);
    }
    graves.clear();
  }
  t.changed.notify_all();
}

}  // namespace

TapeGuard::TapeGuard(Jobs* jobs) {
  if (t_depth++ > 0) return;
  Tape& t = tape();
  std::unique_lock lock(t.mutex);
  while (t.held) {
    if (jobs && jobs->waiting()) {
      lock.unlock();
      t_depth = 0;
      jobs->run_waiting();
      t_depth = 1;
      lock.lock();
      continue;
    }
    t.changed.wait(lock);
  }
  t.held = true;
}
TapeGuard::~TapeGuard() {
  if (t_depth == 1) give_up();
  --t_depth;
}

TapeDelegate::TapeDelegate() {
  ++t_depth;
}
TapeDelegate::~TapeDelegate() {
  --t_depth;
}

void wake_tape_waiters() {
  Tape& t = tape();
  { const std::lock_guard lock(t.mutex); }
  t.changed.notify_all();
}

void bury(Tensor&& tensor) {
  Tensor dead = std::move(tensor);
  if (!dead.defined() || t_depth > 0) return;
  const TensorImpl& impl = dead.impl();
  if (!impl.requires_grad && !impl.autograd && !impl.view_base) return;
  Tape& t = tape();
  {
    const std::lock_guard lock(t.mutex);
    if (t.held) {
      t.graves.push_back(std::move(dead));
      return;
    }
    t.held = true;
  }
  ++t_depth;
  dead = {};
  give_up();
  --t_depth;
}

}  // namespace strata::node
