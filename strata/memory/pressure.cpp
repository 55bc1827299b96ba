#include "strata/memory/pressure.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

namespace strata::memory {
namespace {

struct Relievers {
  std::mutex mutex;
  std::vector<std::weak_ptr<Reliever>> all;
  std::atomic<size_t> count{0};
  std::vector<Device> busy;  // those that a thread asks for now
  std::condition_variable free;
  uint64_t times = 0;  // that somebody gave
};
// A thread that is asked for what another thread waits for, against the rule, is not waited for without end.
constexpr std::chrono::seconds kMostWait{10};
Relievers& relievers() {
  static Relievers& r = *new Relievers;  // asked by static objects' destructors too
  return r;
}
thread_local bool t_relieving = false;

}  // namespace

void add_reliever(std::weak_ptr<Reliever> reliever) {
  Relievers& r = relievers();
  const std::lock_guard lock(r.mutex);
  std::erase_if(r.all, [](const auto& w) { return w.expired(); });
  r.all.push_back(std::move(reliever));
  r.count.store(r.all.size(), std::memory_order_release);
}

// One thread asks at a time for each device: a second would find those who can give at work for the first, and fail while
// there is memory to be had.
bool relieve(Device device, int64_t bytes) noexcept {
  Relievers& r = relievers();
  if (t_relieving || r.count.load(std::memory_order_acquire) == 0) return false;
  std::unique_lock lock(r.mutex);
  const uint64_t times = r.times;
  const auto busy = [&] { return std::ranges::find(r.busy, device) != r.busy.end(); };
  const bool waits = busy();
  // Of the system's clock: the other is no call that the thread sanitizer knows.
  if (waits) (void)r.free.wait_until(lock, std::chrono::system_clock::now() + kMostWait, [&] { return !busy(); });
  if (waits && r.times != times) return true;  // maybe that was enough
  r.busy.push_back(device);
  const std::vector<std::weak_ptr<Reliever>> all = r.all;
  lock.unlock();
  t_relieving = true;
  bool given = false;
  for (const std::weak_ptr<Reliever>& w : all) {
    const std::shared_ptr<Reliever> one = w.lock();
    if (one && one->relieve(device, bytes)) {
      given = true;
      break;
    }
  }
  t_relieving = false;
  lock.lock();
  r.busy.erase(std::ranges::find(r.busy, device));
  r.times += given;
  lock.unlock();
  r.free.notify_all();
  return given;
}

NoRelief::NoRelief() : previous_(std::exchange(t_relieving, true)) {}
NoRelief::~NoRelief() {
  t_relieving = previous_;
}

}  // namespace strata::memory
