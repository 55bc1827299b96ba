// A card's tensors at home on a disk. Bytes go through page-locked memory, a piece at a time, on a thread of its own
// for each way: one piece is read or written while another is copied.

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "strata/cuda/card_home.cuh"
#include "strata/cuda/stream_transfer.h"
#include "strata/memory/disk_home.h"

namespace strata::cuda {
namespace {
using memory::DiskRoom;
using memory::DiskStore;
using memory::MomentPtr;

constexpr size_t kPiece = size_t{4} << 20;
constexpr size_t kSlots = 8;  // pieces under way, each way, where so much can be page-locked

// A block on its way.
struct Job {
  Device device;
  std::byte* near = nullptr;
  const DiskRoom* room = nullptr;
  size_t nbytes = 0;
  std::vector<MomentPtr> after;
  const std::string name = memory::moved_name();  // for a log

  size_t begun = 0, ended = 0;  // bytes; the worker's own
  std::exception_ptr error;     // the same until `over`

  std::mutex mutex;
  std::condition_variable changed;
  bool over = false;
  MomentPtr end;  // of the copies to the card; nullptr where the way is to the disk
};

class JobMoment final : public memory::Moment {
 public:
  explicit JobMoment(std::shared_ptr<Job> job) : job_(std::move(job)) {}
  bool passed() override {
    const std::lock_guard lock(job_->mutex);
    return job_->over && (job_->end == nullptr || job_->end->passed());
  }
  void wait() override {
    await();
    if (job_->end != nullptr) job_->end->wait();
  }
  void order() override {
    await();
    if (job_->error != nullptr) {
      if (job_->end != nullptr) job_->end->wait();  // what was copied before it failed
      std::rethrow_exception(job_->error);
    }
    if (job_->end != nullptr) job_->end->order();
  }

 private:
  void await() {
    std::unique_lock lock(job_->mutex);
    job_->changed.wait(lock, [&] { return job_->over; });
  }
  const std::shared_ptr<Job> job_;
};

// Page-locked memory for one piece. `copied` is behind the last copy from or to it.
struct Slot {
  std::byte* data = nullptr;
  MomentPtr copied;
};

// A thread that does jobs in their order.
class Worker {
 public:
  Worker() = default;
  virtual ~Worker() = default;
  Worker(const Worker&) = delete;
  // Never ends: workers outlive static tensors.
  MomentPtr add(std::shared_ptr<Job> job) {
    auto moment = std::make_shared<JobMoment>(job);
    const std::lock_guard lock(mutex_);
    if (!started_) {
      std::thread([this] { work(); }).detach();
      started_ = true;
    }
    jobs_.push_back(std::move(job));
    changed_.notify_one();
    return moment;
  }

 protected:
  struct Piece {
    std::shared_ptr<Job> job;
    Slot* slot = nullptr;  // none of a job that has failed
    size_t at = 0, bytes = 0;
    DiskStore::Ticket ticket;
  };
  virtual void begin(Piece& p) = 0;
  // Returns when the first piece is where it belongs, or has failed and nothing uses its slot.
  virtual void complete(std::deque<Piece>& under_way) = 0;
  virtual void finish(Job&) {}

  static void order(const Stream& stream, const Job& job) {
    const StreamScope scope(stream);
    for (const MomentPtr& m : job.after) m->order();
  }
  static void run(Job& job, auto&& step) {
    if (job.error != nullptr) return;
    try {
      step();
    } catch (...) {
      job.error = std::current_exception();
    }
  }

 private:
  std::shared_ptr<Job> next(bool wait) {
    std::unique_lock lock(mutex_);
    if (wait) changed_.wait(lock, [&] { return !jobs_.empty(); });
    if (jobs_.empty()) return nullptr;
    std::shared_ptr<Job> job = std::move(jobs_.front());
    jobs_.pop_front();
    return job;
  }
  // One that nothing uses; nullptr where all are under way. Throws MemoryError where not one can be had.
  Slot* take_slot() {
    if (!idle_.empty()) {
      Slot* slot = idle_.front();
      idle_.pop_front();
      return slot;
    }
    if (made_ == most_) return nullptr;
    try {
      slots_[made_].data = static_cast<std::byte*>(allocate_locked(kPiece));
    } catch (const MemoryError&) {
      if (made_ == 0) throw;
      most_ = made_;  // fewer do, slower
      return nullptr;
    }
    return &slots_[made_++];
  }
  void work() {
    std::deque<Piece> under_way;
    std::shared_ptr<Job> job;
    for (;;) {
      if (job == nullptr) job = next(under_way.empty());
      if (job != nullptr) {
        Piece p{job, nullptr, job->begun, std::min(kPiece, job->nbytes - job->begun), {}};
        run(*job, [&] { p.slot = take_slot(); });
        if (p.slot != nullptr || job->error != nullptr) {
          run(*job, [&] { begin(p); });
          job->begun += p.bytes;
          under_way.push_back(std::move(p));
          if (job->begun == job->nbytes) job = nullptr;
          continue;
        }
      }
      complete(under_way);
      const Piece p = std::move(under_way.front());
      under_way.pop_front();
      if (p.slot != nullptr) idle_.push_back(p.slot);
      p.job->ended += p.bytes;
      if (p.job->ended == p.job->nbytes) end(*p.job);
    }
  }
  void end(Job& job) {
    const std::exception_ptr error = job.error;
    job.error = nullptr;
    run(job, [&] { finish(job); });
    if (error != nullptr) job.error = error;
    const std::lock_guard lock(job.mutex);
    job.after.clear();
    job.over = true;
    job.changed.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Job>> jobs_;
  bool started_ = false;
  Slot slots_[kSlots];
  size_t made_ = 0, most_ = kSlots;
  std::deque<Slot*> idle_;
};

// From the disk to a card.
class Reader final : public Worker {
  void begin(Piece& p) override {
    if (p.at == 0) order(CopyStreams::of(p.job->device.index).in, *p.job);
    if (p.slot->copied != nullptr) p.slot->copied->wait();
    const memory::MovedName moved([&] { return p.job->name; });
    p.ticket = p.job->room->store->read(p.job->room->block, p.slot->data, p.bytes, p.at);
  }
  void complete(std::deque<Piece>& under_way) override {
    Piece& p = under_way.front();
    Job& job = *p.job;
    run(job, [&] {
      job.room->store->wait(p.ticket);
      const memory::MovedName moved([&] { return job.name; });
      copy(CopyStreams::of(job.device.index).in, job.near + p.at, p.slot->data, p.bytes, cudaMemcpyHostToDevice,
           *p.slot);
    });
    // A job that failed may have left a read under way.
    if (job.error != nullptr && p.ticket) try_wait(*job.room->store, p.ticket);
  }
  void finish(Job& job) override { job.end = stream_point(CopyStreams::of(job.device.index).in); }

 public:
  static void copy(const Stream& stream, void* to, const void* from, size_t bytes, cudaMemcpyKind kind, Slot& slot) {
    const DeviceScope device(stream.device());
    const StreamTransfer transfer(memory::TransferKind::copy,
                                  kind == cudaMemcpyDeviceToHost ? "to host" : "from host",
                                  static_cast<int64_t>(bytes), stream);
    check_cuda(cudaMemcpyAsync(to, from, bytes, kind, raw(stream)), "copy", "cudaMemcpyAsync");
    slot.copied = stream_point(stream);
  }
  static void try_wait(DiskStore& store, const DiskStore::Ticket& ticket) noexcept {
    try {
      store.wait(ticket);
    } catch (const Error&) {  // the job has its error
    }
  }
};

// From a card to the disk.
class Writer final : public Worker {
  void begin(Piece& p) override {
    const Stream& out = CopyStreams::of(p.job->device.index).out;
    if (p.at == 0) order(out, *p.job);
    const memory::MovedName moved([&] { return p.job->name; });
    Reader::copy(out, p.slot->data, p.job->near + p.at, p.bytes, cudaMemcpyDeviceToHost, *p.slot);
  }
  // All copies that have come are given to the disk; the first piece is done when the disk has it.
  void complete(std::deque<Piece>& under_way) override {
    for (Piece& p : under_way) {
      if (p.ticket || p.job->error != nullptr) continue;
      if (&p != &under_way.front() && !p.slot->copied->passed()) break;
      run(*p.job, [&] {
        p.slot->copied->wait();
        const memory::MovedName moved([&] { return p.job->name; });
        p.ticket = p.job->room->store->write(p.job->room->block, p.slot->data, p.bytes, p.at);
      });
    }
    Piece& first = under_way.front();
    if (first.ticket) run(*first.job, [&] { first.job->room->store->wait(first.ticket); });
    if (first.job->error != nullptr && first.ticket) Reader::try_wait(*first.job->room->store, first.ticket);
    if (first.job->error != nullptr && first.slot != nullptr && first.slot->copied != nullptr)
      first.slot->copied->wait();
  }
};

class CardDiskHome final : public CardHome {
 public:
  void* allocate(Device device, size_t nbytes) override {
    properties(device.index);  // throws where there is no such card
    return DiskRoom::make(nbytes);
  }
  void deallocate(Device, void* room, size_t) override { delete static_cast<DiskRoom*>(room); }
  MomentPtr bring(Device device, std::byte* near, void* room, size_t nbytes) override {
    static auto* reader = new Reader;
    auto job = std::make_shared<Job>();
    job->device = device, job->near = near, job->room = static_cast<DiskRoom*>(room), job->nbytes = nbytes;
    job->after = {ready(device)};
    return reader->add(std::move(job));
  }
  MomentPtr send(Device device, void* room, const std::byte* near, size_t nbytes,
                 std::span<const MomentPtr> after) override {
    static auto* writer = new Writer;
    auto job = std::make_shared<Job>();
    job->device = device, job->near = const_cast<std::byte*>(near), job->room = static_cast<DiskRoom*>(room);
    job->nbytes = nbytes, job->after.assign(after.begin(), after.end());
    return writer->add(std::move(job));
  }
  memory::Bound bound(Device) override { return memory::disk()->bound(); }

 protected:
  const Stream& near_stream(Device device) const override { return CopyStreams::of(device.index).near_of_disk; }
};
}  // namespace

std::unique_ptr<memory::Home> make_card_disk_home() {
  return std::make_unique<CardDiskHome>();
}

}  // namespace strata::cuda
