// The engine for systems that do not permit io_uring: blocking calls on threads.

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "strata/core/error.h"
#include "strata/memory/disk_engine.h"

namespace strata::memory {

AllSignalsHeld::AllSignalsHeld() {
  static_assert(sizeof(sigset_t) <= sizeof before_);
  sigset_t all;
  sigfillset(&all);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) sigdelset(&all, fault);
  pthread_sigmask(SIG_BLOCK, &all, reinterpret_cast<sigset_t*>(before_));
}
AllSignalsHeld::~AllSignalsHeld() {
  pthread_sigmask(SIG_SETMASK, reinterpret_cast<sigset_t*>(before_), nullptr);
}

int write_zeros(int fd, int64_t offset, int64_t nbytes) {
  constexpr size_t kChunk = size_t{1} << 20;
  const std::unique_ptr<void, void (*)(void*)> zeros(std::aligned_alloc(kDiskPage, kChunk), std::free);
  if (!zeros) return ENOMEM;
  std::memset(zeros.get(), 0, kChunk);
  while (nbytes > 0) {
    const ssize_t n = ::pwrite(fd, zeros.get(), std::min<size_t>(kChunk, static_cast<size_t>(nbytes)), offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 ? errno : ENOSPC;
    offset += n;
    nbytes -= n;
  }
  return 0;
}

int reserve_in_file(int fd, int64_t offset, int64_t nbytes) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      static_cast<rlim_t>(offset + nbytes) > limit.rlim_cur)
    return EFBIG;
  int status;
  do status = ::fallocate(fd, 0, offset, nbytes) == 0 ? 0 : errno;
  while (status == EINTR);
  return status == EOPNOTSUPP || status == ENOSYS ? write_zeros(fd, offset, nbytes) : status;
}

void release_in_file(int fd, int64_t offset, int64_t nbytes) {
  (void)::fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, nbytes);
}

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
