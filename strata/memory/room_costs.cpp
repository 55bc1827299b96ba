#include "strata/memory/room_costs_inl.h"

#include <atomic>

namespace strata::memory {
namespace {
std::atomic<int64_t> g_mapped{0}, g_unmapped{0}, g_locked{0}, g_unlocked{0};
std::atomic<double> g_map_seconds{0}, g_lock_seconds{0};
}  // namespace

RoomCosts room_costs() {
  return {g_mapped, g_unmapped, g_map_seconds, g_locked, g_unlocked, g_lock_seconds};
}
void count_mapped(int64_t mapped, int64_t unmapped, double seconds) noexcept {
  g_mapped += mapped, g_unmapped += unmapped, g_map_seconds += seconds;
}
void count_locked(int64_t locked, int64_t unlocked, double seconds) noexcept {
  g_locked += locked, g_unlocked += unlocked, g_lock_seconds += seconds;
}

}  // namespace strata::memory
