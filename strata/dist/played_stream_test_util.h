#pragma once
// A stream of a card that is played: work in its order, on a thread of its own.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace strata::distributed {

class PlayedStream {
 public:
  PlayedStream() : thread_([this] { work(); }) {}
  virtual ~PlayedStream() {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  PlayedStream(const PlayedStream&) = delete;

  virtual void queue(std::function<void()> fn) {  // virtual: another library calls it
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(fn));
      ++queued_;
    }
    changed_.notify_all();
  }
  /// How much was queued so far, for wait().
  uint64_t queued() {
    const std::lock_guard lock(mutex_);
    return queued_;
  }
  void wait(uint64_t until) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ >= until; });
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return ending_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const std::function<void()> fn = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      fn();
      lock.lock();
      ++done_;
      changed_.notify_all();
    }
  }
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  uint64_t queued_ = 0, done_ = 0;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace strata::distributed
