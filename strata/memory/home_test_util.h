#pragma once
// A home in ordinary memory whose copies are made by a thread, in order: they can be held up and made to fail.

#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "strata/core/error.h"
#include "strata/memory/homed.h"

namespace strata::memory {

class TestHome final : public Home {
 public:
  TestHome() : thread_([this] { work(); }) {}
  ~TestHome() override {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
  }

  void* allocate(Device, size_t nbytes) override {
    const std::lock_guard lock(mutex_);
    check<MemoryError>(most_rooms < 0 || rooms < most_rooms, "allocate", "the test's home is full");
    ++rooms;
    return new std::byte[nbytes];
  }
  void deallocate(Device, void* room, size_t) override {
    const std::lock_guard lock(mutex_);
    if (under_way_ > 0 && is_used(room)) ++early_ends;
    --rooms;
    delete[] static_cast<std::byte*>(room);
  }
  MomentPtr bring(Device, std::byte* near, void* room, size_t nbytes) override {
    return add({.to = near, .from = room, .bytes = nbytes, .room = room, .reads = true, .moment = {}});
  }
  MomentPtr send(Device, void* room, const std::byte* near, size_t nbytes, std::span<const MomentPtr>) override {
    return add({.to = room, .from = near, .bytes = nbytes, .room = room, .reads = false, .moment = {}});
  }
  std::byte* address(void* room) const override { return has_addresses ? static_cast<std::byte*>(room) : nullptr; }
  bool has_hole(Device, size_t bytes, int64_t limit) override {
    asked = limit;
    return static_cast<int64_t>(bytes) <= hole;
  }
  Bound bound(Device) override { return {"the test's home", int64_t{1} << 40, 0}; }

  bool capturing() const override { return captures; }
  void with_captured(Device, std::function<void()> before_replay) override {
    graph.push_back(std::move(before_replay));
  }

  /// No copy begins while it is on.
  void hold(bool on) {
    {
      const std::lock_guard lock(mutex_);
      held_ = on;
    }
    changed_.notify_all();
  }
  /// The next so many reads, or writes, fail.
  void fail(int next_reads, int next_writes) {
    const std::lock_guard lock(mutex_);
    failing_reads_ = next_reads, failing_writes_ = next_writes;
  }
  int64_t reads() {
    const std::lock_guard lock(mutex_);
    return reads_;
  }
  int64_t writes() {
    const std::lock_guard lock(mutex_);
    return writes_;
  }

  int most_rooms = -1;
  int rooms = 0;                               ///< in use
  int early_ends = 0;                          ///< given back while copied
  int64_t hole = int64_t{1} << 40, asked = 0;  ///< the largest hole of near memory; the bound that was asked for
  bool captures = false;
  bool has_addresses = true;
  std::vector<std::function<void()>> graph;

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    std::exception_ptr error;
  };
  class CopyMoment final : public Moment {
   public:
    explicit CopyMoment(std::shared_ptr<State> state) : state_(std::move(state)) {}
    bool passed() override {
      const std::lock_guard lock(state_->mutex);
      return state_->done;
    }
    void wait() override {
      std::unique_lock lock(state_->mutex);
      state_->changed.wait(lock, [&] { return state_->done; });
    }
    void order() override {
      wait();
      if (state_->error) std::rethrow_exception(state_->error);
    }

   private:
    const std::shared_ptr<State> state_;
  };
  struct Copy {
    void* to;
    const void* from;
    size_t bytes;
    void* room;
    bool reads;
    std::shared_ptr<State> moment;
  };

  bool is_used(const void* room) const {
    for (const Copy& c : copies_)
      if (c.room == room) return true;
    return false;
  }
  MomentPtr add(Copy c) {
    c.moment = std::make_shared<State>();
    auto m = std::make_shared<CopyMoment>(c.moment);
    {
      const std::lock_guard lock(mutex_);
      copies_.push_back(std::move(c));
      ++under_way_;
    }
    changed_.notify_all();
    return m;
  }
  void work() {
    for (;;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return ends_ || (!held_ && !copies_.empty()); });
      if (copies_.empty()) return;
      const Copy c = copies_.front();
      int& failing = c.reads ? failing_reads_ : failing_writes_;
      const bool fails = failing > 0;
      if (fails) --failing;
      ++(c.reads ? reads_ : writes_);
      lock.unlock();
      if (fails) {
        std::memset(c.to, 0xee, c.bytes);
      } else {
        std::memcpy(c.to, c.from, c.bytes);
      }
      lock.lock();
      copies_.pop_front();
      --under_way_;
      lock.unlock();
      const std::lock_guard done(c.moment->mutex);
      if (fails)
        c.moment->error = std::make_exception_ptr(IoError("home", c.reads ? "cannot be read" : "cannot be written"));
      c.moment->done = true;
      c.moment->changed.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Copy> copies_;
  int under_way_ = 0;
  bool held_ = false, ends_ = false;
  int failing_reads_ = 0, failing_writes_ = 0;
  int64_t reads_ = 0, writes_ = 0;
  std::jthread thread_;
};

}  // namespace strata::memory
