#include "strata/memory/allocator.h"

#include <atomic>

#include "strata/memory/poison.h"
#include "strata/memory/timeline.h"

namespace strata::memory {

void* allocate(Device device, size_t nbytes, Tag tag) {
  return nbytes == 0 ? nullptr : backend(device).allocate(device, nbytes, tag);
}
void deallocate(Device device, void* block, size_t nbytes, Tag tag) {
  if (nbytes != 0) backend(device).deallocate(device, block, nbytes, tag);
}

Stats stats(Device device, Tier tier) {
  Backend* b = find_backend(device.type, tier);
  return b ? b->stats(device) : Stats();
}
void reset_peak(Device device, Tier tier) {
  if (Backend* b = find_backend(device.type, tier)) b->reset_peak(device);
}
std::vector<BlockInfo> blocks(Device device, Tier tier) {
  Backend* b = find_backend(device.type, tier);
  return b ? b->blocks(device) : std::vector<BlockInfo>();
}
Stats stats(DeviceType device) {
  return stats(Device{device, 0});
}
void reset_peak(DeviceType device) {
  reset_peak(Device{device, 0});
}

void release_cached() {
  const std::vector<Backend*> all = backends();
  // Devices before the host, whose blocks may be theirs too.
  for (auto b = all.rbegin(); b != all.rend(); ++b) (*b)->release_cached();
}

int64_t set_limit(int64_t bytes, Device device, Tier tier) {
  return backend(device, tier).set_limit(device, bytes);
}

PoisonScope::PoisonScope(uint8_t pattern) : previous_(detail::g_poison.exchange(pattern)) {}
PoisonScope::~PoisonScope() {
  detail::g_poison.store(previous_);
}

namespace {
std::atomic<int> g_guards{0};
}
GuardScope::GuardScope() {
  ++g_guards;
}
GuardScope::~GuardScope() {
  --g_guards;
}
bool guards_wanted() {
  return g_guards.load(std::memory_order_relaxed) > 0;
}

}  // namespace strata::memory
