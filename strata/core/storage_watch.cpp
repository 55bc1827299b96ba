#include "strata/core/storage_watch.h"

#include <atomic>
#include <mutex>
#include <unordered_map>

namespace strata::detail {
namespace {
std::atomic<uint64_t> g_last{0};

struct Watches {
  std::mutex lock;
  std::unordered_multimap<uint64_t, StorageWatch*> all;
  std::atomic<int64_t> count{0};
};
Watches& watches() {
  static Watches& w = *new Watches();  // storages may end after static objects
  return w;
}
}  // namespace

uint64_t watch_number(Storage& s) {
  uint64_t number = s.watched.load(std::memory_order_relaxed);
  if (number != 0) return number;
  const uint64_t fresh = g_last.fetch_add(1, std::memory_order_relaxed) + 1;
  return s.watched.compare_exchange_strong(number, fresh) ? fresh : number;
}
uint64_t last_watch_number() {
  return g_last.load();
}

StorageWatch::StorageWatch(Storage& s) : number_(watch_number(s)), storage_(&s) {
  Watches& w = watches();
  const std::lock_guard guard(w.lock);
  w.all.emplace(number_, this);
  w.count.fetch_add(1);
}

StorageWatch::~StorageWatch() {
  Watches& w = watches();
  const std::lock_guard guard(w.lock);
  if (storage_ == nullptr) return;  // ends() has taken it out
  for (auto [at, end] = w.all.equal_range(number_); at != end; ++at) {
    if (at->second != this) continue;
    w.all.erase(at);
    break;
  }
  w.count.fetch_sub(1);
}

uint32_t StorageWatch::version() const {
  const std::lock_guard guard(watches().lock);
  return storage_ ? storage_->version.load(std::memory_order_relaxed) : version_;
}

bool StorageWatch::alive() const {
  const std::lock_guard guard(watches().lock);
  return storage_ != nullptr;
}

std::string_view StorageWatch::last_writer() const {
  const std::lock_guard guard(watches().lock);
  return storage_ ? storage_->last_writer() : writer_;
}

void StorageWatch::ends(const Storage& s) {
  Watches& w = watches();
  if (w.count.load(std::memory_order_acquire) == 0) return;
  const std::lock_guard guard(w.lock);
  const auto [first, end] = w.all.equal_range(s.watched.load(std::memory_order_relaxed));
  for (auto at = first; at != end; ++at) {
    StorageWatch& watch = *at->second;
    watch.version_ = s.version.load(std::memory_order_relaxed);
    watch.writer_ = s.last_writer();
    watch.storage_ = nullptr;
    w.count.fetch_sub(1);
  }
  w.all.erase(first, end);
}

}  // namespace strata::detail
