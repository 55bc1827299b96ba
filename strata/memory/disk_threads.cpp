// The engine for systems that do not permit io_uring: blocking calls on threads.

#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "strata/core/error.h"
#include "strata/memory/disk_engine.h"

namespace strata::memory {

namespace {

class ThreadsEngine final : public DiskEngine {
 public:
  ThreadsEngine(int depth, int fd, DiskSink& sink) : most_(static_cast<size_t>(depth)), fd_(fd), sink_(sink) {
    try {
      start_one();
    } catch (const std::system_error& e) {
      throw IoError("DiskStore", cat("no thread for reading and writing: ", e.what()));
    }
  }
  ~ThreadsEngine() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wanted_.notify_all();
    for (std::thread& t : threads_) t.join();
  }

  void submit(std::span<DiskTransfer* const> transfers) override {
    const std::lock_guard lock(mutex_);
    queue_.insert(queue_.end(), transfers.begin(), transfers.end());
    try {
      while (queue_.size() > idle_ && threads_.size() < most_) start_one();
    } catch (const std::system_error&) {
      most_ = threads_.size();  // those that there are do it
    }
    if (transfers.size() == 1)
      wanted_.notify_one();
    else
      wanted_.notify_all();
  }
  int reserve(int64_t offset, int64_t nbytes) override { return reserve_in_file(fd_, offset, nbytes); }
  void release(int64_t offset, int64_t nbytes) override { release_in_file(fd_, offset, nbytes); }
  void register_buffer(std::byte*, size_t) override {}
  void unregister_buffer(std::byte*) override {}
  std::string_view name() const override { return "threads"; }

 private:
  // A thread that was just started counts as idle: it takes the next of the queue.
  void start_one() {
    const AllSignalsHeld signals;
    threads_.emplace_back([this] { work(); });
    ++idle_;
  }

  void work() {
    std::unique_lock lock(mutex_);
    while (true) {
      wanted_.wait(lock, [&] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      DiskTransfer* t = queue_.front();
      queue_.pop_front();
      --idle_;
      lock.unlock();
      sink_.starting(*t);
      const ssize_t n = t->write ? ::pwrite(fd_, t->data, t->nbytes, t->offset)
                                 : ::pread(fd_, t->data, t->nbytes, t->offset);
      sink_.finished(*t, n < 0 ? -errno : n);
      lock.lock();
      ++idle_;
    }
  }

  size_t most_;
  const int fd_;
  DiskSink& sink_;
  std::mutex mutex_;  // of what follows
  std::condition_variable wanted_;
  std::deque<DiskTransfer*> queue_;
  std::vector<std::thread> threads_;
  size_t idle_ = 0;
  bool stopping_ = false;
};

}  // namespace

std::unique_ptr<DiskEngine> make_threads_engine(int depth, int fd, DiskSink& sink) {
  return std::make_unique<ThreadsEngine>(depth, fd, sink);
}

}  // namespace strata::memory
