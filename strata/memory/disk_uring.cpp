// The engine on io_uring. One thread drives the ring and is the only one to touch it, so that a thread that began a request
// is never interrupted by its end, nor takes it along when it exits.

#include <liburing.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <map>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "strata/core/error.h"
#include "strata/memory/disk_engine.h"

namespace strata::memory {
namespace {

constexpr unsigned kSlots = 1024;                    // of the ring's table of buffers
constexpr size_t kMostInSlot = size_t{1} << 30;      // what the kernel takes as one buffer
constexpr size_t kSubmitBytes = size_t{256} << 10;  // prepared work that the device should not wait for any longer

// io_uring_setup with the flags of newer kernels, else without.
int open_ring(unsigned entries, io_uring& ring) {
  int error = -EINVAL;
#if defined(IORING_SETUP_SINGLE_ISSUER) && defined(IORING_SETUP_DEFER_TASKRUN)
  error = io_uring_queue_init(entries, &ring, IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);
#endif
  if (error == -EINVAL) error = io_uring_queue_init(entries, &ring, 0);
  if (error != 0) return -error;
  io_uring_probe* probe = io_uring_get_probe_ring(&ring);
  const bool reads = probe && io_uring_opcode_supported(probe, IORING_OP_READ) &&
                     io_uring_opcode_supported(probe, IORING_OP_WRITE);
  io_uring_free_probe(probe);
  if (!reads) io_uring_queue_exit(&ring);
  return reads ? 0 : ENOSYS;
}

class UringEngine final : public DiskEngine {
 public:
  UringEngine(int depth, int fd, DiskSink& sink, int& error) : depth_(depth), fd_(fd), sink_(sink) {
    wake_ = ::eventfd(0, EFD_CLOEXEC);
    if (wake_ < 0) {
      error = errno;
      return;
    }
    try {
      const AllSignalsHeld signals;
      thread_ = std::thread([this] { drive(); });
    } catch (const std::system_error& e) {
      ::close(wake_);
      throw IoError("DiskStore", cat("no thread for io_uring: ", e.what()));
    }
    state_.wait(kOpening);
    error = state_.load();
  }
  ~UringEngine() override {
    if (thread_.joinable()) {
      {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
        wake();
      }
      thread_.join();
    }
    if (wake_ >= 0) ::close(wake_);
  }

  void submit(std::span<DiskTransfer* const> transfers) override {
    if (std::this_thread::get_id() == thread_.get_id()) {
      for (DiskTransfer* t : transfers) prepare(*t);
      return;
    }
    const std::lock_guard lock(mutex_);
    queue_.insert(queue_.end(), transfers.begin(), transfers.end());
    wake();
  }
  int reserve(int64_t offset, int64_t nbytes) override { return reserve_in_file(fd_, offset, nbytes); }
  void release(int64_t offset, int64_t nbytes) override { release_in_file(fd_, offset, nbytes); }
  void register_buffer(std::byte* data, size_t nbytes) override { tell({true, data, nbytes}); }
  void unregister_buffer(std::byte* data) override { tell({false, data, 0}); }
  std::string_view name() const override { return "io_uring"; }

 private:
  static constexpr int kOpening = -1;

  // What the ring's thread does for another one, which waits.
  struct Task {
    bool add;
    std::byte* data;
    size_t nbytes;
    std::atomic<bool> done{false};
    Task(bool add, std::byte* data, size_t nbytes) : add(add), data(data), nbytes(nbytes) {}
  };
  struct Slot {
    size_t nbytes;
    unsigned index;
    std::byte* owner;  // what was registered: it may have several
  };

  // Under mutex_.
  void wake() {
    if (!asleep_) return;
    asleep_ = false;
    const uint64_t one = 1;
    while (::write(wake_, &one, sizeof one) < 0 && errno == EINTR) {
    }
  }

  void tell(Task&& task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(&task);
      wake();
    }
    task.done.wait(false, std::memory_order_acquire);
  }

  // The thread's life. What follows runs on it alone.
  void drive() {
    const int error = open_ring(static_cast<unsigned>(depth_) + 1, ring_);
    if (error == 0) {
      has_file_ = io_uring_register_files(&ring_, &fd_, 1) == 0;
      has_slots_ = io_uring_register_buffers_sparse(&ring_, kSlots) == 0;
      for (unsigned i = kSlots; i-- > 0;) free_slots_.push_back(i);
    }
    state_.store(error);
    state_.notify_all();
    if (error != 0) return;
    while (take_work()) {
      // Nobody may wait in a queue while this thread sleeps: who comes later wakes it.
      bool sleep = false;
      if (!io_uring_cq_ready(&ring_)) {
        if (!listening_) listen();
        const std::lock_guard lock(mutex_);
        sleep = asleep_ = queue_.empty() && tasks_.empty() && !stopping_;
      }
      const int status = sleep ? io_uring_submit_and_wait(&ring_, 1) : io_uring_submit(&ring_);
      unsubmitted_ = 0;
      if (status < 0) std::this_thread::yield();  // short of memory, or of room for answers: those that came are next
      if (sleep) {
        const std::lock_guard lock(mutex_);
        asleep_ = false;
      }
      take_answers();
    }
    io_uring_queue_exit(&ring_);
  }

  // False when all is over.
  bool take_work() {
    std::vector<Task*> tasks;
    {
      const std::lock_guard lock(mutex_);
      if (stopping_ && queue_.empty() && tasks_.empty()) return false;
      taken_.swap(queue_);
      tasks.swap(tasks_);
    }
    for (Task* t : tasks) {
      if (t->add)
        add_buffer(t->data, t->nbytes);
      else
        remove_buffer(t->data);
      t->done.store(true, std::memory_order_release);
      t->done.notify_all();
    }
    for (DiskTransfer* t : taken_) prepare(*t);
    taken_.clear();
    return true;
  }

  void take_answers() {
    io_uring_cqe* cqe = nullptr;
    while (io_uring_peek_cqe(&ring_, &cqe) == 0) {
      auto* t = static_cast<DiskTransfer*>(io_uring_cqe_get_data(cqe));
      const int result = cqe->res;
      io_uring_cqe_seen(&ring_, cqe);
      if (t)
        sink_.finished(*t, result);
      else
        listening_ = false;
    }
  }

  io_uring_sqe* entry() {
    io_uring_sqe* sqe = io_uring_get_sqe(&ring_);
    while (!sqe) {
      if (io_uring_submit(&ring_) < 0) std::this_thread::yield();
      sqe = io_uring_get_sqe(&ring_);
    }
    return sqe;
  }

  void listen() {
    io_uring_sqe* sqe = entry();
    io_uring_prep_read(sqe, wake_, &woken_, sizeof woken_, 0);
    io_uring_sqe_set_data(sqe, nullptr);
    listening_ = true;
  }

  void prepare(DiskTransfer& t) {
    sink_.starting(t);
    io_uring_sqe* sqe = entry();
    const auto n = static_cast<unsigned>(t.nbytes);
    const auto offset = static_cast<uint64_t>(t.offset);
    const int file = has_file_ ? 0 : fd_;
    if (const int slot = slot_of(t.data, t.nbytes); slot >= 0) {
      if (t.write)
        io_uring_prep_write_fixed(sqe, file, t.data, n, offset, slot);
      else
        io_uring_prep_read_fixed(sqe, file, t.data, n, offset, slot);
    } else if (t.write) {
      io_uring_prep_write(sqe, file, t.data, n, offset);
    } else {
      io_uring_prep_read(sqe, file, t.data, n, offset);
    }
    if (has_file_) io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
    io_uring_sqe_set_data(sqe, &t);
    // The device begins while the next are made ready, their checksums among the rest.
    unsubmitted_ += t.nbytes;
    if (unsubmitted_ >= kSubmitBytes) {
      io_uring_submit(&ring_);
      unsubmitted_ = 0;
    }
  }

  int slot_of(const std::byte* data, size_t nbytes) const {
    auto at = slots_.upper_bound(data);
    if (at == slots_.begin()) return -1;
    --at;
    return data + nbytes <= at->first + at->second.nbytes ? static_cast<int>(at->second.index) : -1;
  }

  bool set_slot(unsigned index, std::byte* data, size_t nbytes) {
    const iovec memory{data, nbytes};
    const __u64 tag = 0;
    return io_uring_register_buffers_update_tag(&ring_, index, &memory, &tag, 1) == 1;
  }

  void add_buffer(std::byte* data, size_t nbytes) {
    if (!has_slots_) return;
    for (size_t at = 0; at < nbytes; at += kMostInSlot) {
      const size_t n = std::min(kMostInSlot, nbytes - at);
      if (free_slots_.empty() || slots_.count(data + at) != 0 || !set_slot(free_slots_.back(), data + at, n)) return;
      slots_.emplace(data + at, Slot{n, free_slots_.back(), data});
      free_slots_.pop_back();
    }
  }

  void remove_buffer(std::byte* data) {
    std::erase_if(slots_, [&](const auto& entry) {
      if (entry.second.owner != data) return false;
      // A slot that cannot be emptied is not used again.
      if (set_slot(entry.second.index, nullptr, 0)) free_slots_.push_back(entry.second.index);
      return true;
    });
  }

  const int depth_, fd_;
  DiskSink& sink_;
  int wake_ = -1;  // an eventfd, read through the ring
  std::atomic<int> state_{kOpening};
  std::mutex mutex_;  // of the next four
  std::vector<DiskTransfer*> queue_;
  std::vector<Task*> tasks_;
  bool asleep_ = false, stopping_ = false;
  // The ring's thread's own.
  io_uring ring_{};
  std::vector<DiskTransfer*> taken_;
  bool has_file_ = false, has_slots_ = false, listening_ = false;
  uint64_t woken_ = 0;
  size_t unsubmitted_ = 0;
  std::map<const std::byte*, Slot> slots_;
  std::vector<unsigned> free_slots_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<DiskEngine> make_uring_engine(int depth, int fd, DiskSink& sink, int& error) {
  auto engine = std::make_unique<UringEngine>(depth, fd, sink, error);
  return error == 0 ? std::move(engine) : nullptr;
}

}  // namespace strata::memory
