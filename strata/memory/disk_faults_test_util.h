#pragma once
// Disks that fail: an engine stands in between, which tells a store what a real disk might.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>

#include "strata/memory/disk_engine.h"

namespace strata::memory {

// What the disk does; each is called under a lock where it is set.
struct Faults {
  std::mutex mutex;
  std::function<size_t(const DiskTransfer&)> length;           // of what is done of a transfer
  std::function<int64_t(DiskTransfer&, int64_t)> answer;       // in place of the system's
  std::function<int(int64_t offset, int64_t nbytes)> reserve;  // 0: as the system says
  std::function<void(const DiskTransfer&)> before;             // without the lock
  std::atomic<int> transfers{0}, releases{0};
  int fd = -1;

  MakeDiskEngine maker();
};

class FaultyEngine final : public DiskEngine, DiskSink {
 public:
  // `keep` is for engines that may outlive who made the faults.
  FaultyEngine(const DiskOptions& o, int fd, DiskSink& sink, Faults& faults, std::shared_ptr<Faults> keep = {})
      : keep_(std::move(keep)), faults_(faults), sink_(sink), engine_(make_disk_engine(o, fd, *this)) {
    faults_.fd = fd;
  }
  void submit(std::span<DiskTransfer* const> transfers) override { engine_->submit(transfers); }
  int reserve(int64_t offset, int64_t nbytes) override {
    const std::lock_guard lock(faults_.mutex);
    const int error = faults_.reserve ? faults_.reserve(offset, nbytes) : 0;
    return error != 0 ? error : engine_->reserve(offset, nbytes);
  }
  void release(int64_t offset, int64_t nbytes) override {
    ++faults_.releases;
    engine_->release(offset, nbytes);
  }
  void register_buffer(std::byte* data, size_t nbytes) override { engine_->register_buffer(data, nbytes); }
  void unregister_buffer(std::byte* data) override { engine_->unregister_buffer(data); }
  std::string_view name() const override { return engine_->name(); }

 private:
  void starting(DiskTransfer& t) override {
    sink_.starting(t);
    ++faults_.transfers;
    if (faults_.before) faults_.before(t);
    const std::lock_guard lock(faults_.mutex);
    whole_[&t] = t.nbytes;
    if (faults_.length) t.nbytes = faults_.length(t);
  }
  void finished(DiskTransfer& t, int64_t result) override {
    {
      const std::lock_guard lock(faults_.mutex);
      if (faults_.answer) result = faults_.answer(t, result);
      t.nbytes = whole_[&t];
    }
    sink_.finished(t, result);
  }

  const std::shared_ptr<Faults> keep_;
  Faults& faults_;
  DiskSink& sink_;
  std::map<DiskTransfer*, size_t> whole_;
  std::unique_ptr<DiskEngine> engine_;
};

inline MakeDiskEngine Faults::maker() {
  return [this](const DiskOptions& o, int fd, DiskSink& sink) {
    return std::make_unique<FaultyEngine>(o, fd, sink, *this);
  };
}

// While one lives, all stores that are made are on such a disk; they behave once it has ended.
class FaultyDisks {
 public:
  FaultyDisks()
      : before_(exchange_disk_engines([faults = faults_](const DiskOptions& o, int fd, DiskSink& sink) {
          return std::make_unique<FaultyEngine>(o, fd, sink, *faults, faults);
        })) {}
  ~FaultyDisks() {
    exchange_disk_engines(before_);
    clear();
  }
  FaultyDisks(const FaultyDisks&) = delete;
  Faults* operator->() { return faults_.get(); }
  // The disk behaves from now on.
  void clear() {
    const std::lock_guard lock(faults_->mutex);
    faults_->length = nullptr;
    faults_->answer = nullptr;
    faults_->reserve = nullptr;
  }

 private:
  const std::shared_ptr<Faults> faults_ = std::make_shared<Faults>();
  const MakeDiskEngine before_;
};

}  // namespace strata::memory
