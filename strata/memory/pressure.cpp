#include "strata/memory/pressure.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

namespace strata::memory {
namespace {

struct Relievers {
  std::mutex mutex;
  std::vector<std::weak_ptr<Reliever>> all;
  std::atomic<size_t> count{0};
};
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

bool relieve(Device device, int64_t bytes) noexcept {
  Relievers& r = relievers();
  if (t_relieving || r.count.load(std::memory_order_acquire) == 0) return false;
  std::vector<std::weak_ptr<Reliever>> all;
  {
    const std::lock_guard lock(r.mutex);
    all = r.all;
  }
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
  return given;
}

}  // namespace strata::memory
