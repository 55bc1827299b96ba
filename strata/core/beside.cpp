#include "strata/core/beside.h"

#include <mutex>
#include <unordered_map>
#include <utility>

namespace strata::detail {
namespace {
struct Besides {
  std::mutex mutex;
  std::unordered_map<const Storage*, std::unique_ptr<Beside>> all;
};
Besides& besides() {
  static auto* b = new Besides;  // outlives static tensors
  return *b;
}
}  // namespace

constinit std::atomic<int> g_besides{0};

void put_beside(const Storage& s, std::unique_ptr<Beside> left) {
  Besides& b = besides();
  {
    const std::lock_guard lock(b.mutex);
    const auto [at, made] = b.all.try_emplace(&s);
    at->second.swap(left);
    if (made) g_besides.fetch_add(1, std::memory_order_relaxed);
  }
  // What was there before ends here: it may hold storages itself.
}

Beside* beside(const Storage& s) {
  if (g_besides.load(std::memory_order_relaxed) == 0) return nullptr;
  Besides& b = besides();
  const std::lock_guard lock(b.mutex);
  const auto at = b.all.find(&s);
  return at == b.all.end() ? nullptr : at->second.get();
}

void drop_beside(const Storage& s) {
  Besides& b = besides();
  std::unique_ptr<Beside> left;  // ends without the lock
  const std::lock_guard lock(b.mutex);
  const auto at = b.all.find(&s);
  if (at == b.all.end()) return;
  left = std::move(at->second);
  b.all.erase(at);
  g_besides.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace strata::detail
