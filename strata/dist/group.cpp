#include "strata/dist/group.h"

#include "strata/core/error.h"
#include "strata/dist/group_inl.h"

namespace strata::distributed {

void Work::wait() {
  if (!state_) return;
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->done; });
  if (state_->error) std::rethrow_exception(state_->error);
}

Group::Group(std::string name, std::vector<int> ranks, int rank, std::unique_ptr<Transport> transport)
    : impl_(std::make_unique<Impl>(std::move(name), std::move(ranks), rank, std::move(transport))) {}

Group::~Group() {
  if (!impl_->thread.joinable()) return;
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->ending = true;
  }
  impl_->changed.notify_all();
  impl_->thread.join();
}

const std::string& Group::name() const {
  return impl_->name;
}
int Group::rank() const {
  return impl_->communicator.rank();
}
int Group::size() const {
  return impl_->communicator.size();
}
const std::vector<int>& Group::ranks() const {
  return impl_->ranks;
}

// One call at a time gets here: `busy` is set.
void Group::Impl::perform(const Task& task) {
  const uint64_t number = recorder().begin(name, ++sequence, task.what);
  try {
    communicator.announce(task.what);
    task.run(communicator);
  } catch (const std::exception& e) {
    // The entry still runs while others are asked: what they learn of this rank is where it is.
    const std::string text = failure_of(name, ranks, e.what());
    recorder().end(number, e.what());
    throw DistributedError(task.what.substr(0, task.what.find_first_of("( ")), text);
  }
  recorder().end(number);
}

void Group::run(std::string what, const std::function<void(Communicator&)>& run) {
  Impl& g = *impl_;
  std::unique_lock lock(g.mutex);
  g.changed.wait(lock, [&] { return !g.busy && g.queue.empty(); });
  g.busy = true;
  lock.unlock();
  struct Free {
    Impl& g;
    ~Free() {
      {
        const std::lock_guard l(g.mutex);
        g.busy = false;
      }
      g.changed.notify_all();
    }
  } const free{g};
  g.perform({std::move(what), run, nullptr});
}

Work Group::start(std::string what, std::function<void(Communicator&)> run) {
  Impl& g = *impl_;
  Work work;
  work.state_ = std::make_shared<Work::State>();
  {
    const std::lock_guard lock(g.mutex);
    if (!g.thread.joinable()) g.thread = std::thread([&g] { g.work(); });
    g.queue.push_back({std::move(what), std::move(run), work.state_});
  }
  g.changed.notify_all();
  return work;
}

void Group::Impl::work() {
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [&] { return (!busy && !queue.empty()) || (ending && queue.empty()); });
    if (queue.empty()) return;
    Task task = std::move(queue.front());
    queue.pop_front();
    busy = true;
    lock.unlock();
    std::exception_ptr error;
    try {
      perform(task);
    } catch (...) {
      error = std::current_exception();
    }
    task.run = nullptr;  // what it holds goes before anybody hears that it is done
    {
      const std::lock_guard done(task.state->mutex);
      task.state->done = true;
      task.state->error = error;
    }
    task.state->changed.notify_all();
    lock.lock();
    busy = false;
    changed.notify_all();
  }
}

void Group::barrier() {
  run("barrier", [](Communicator& c) { c.barrier(); });
}

}  // namespace strata::distributed
