// Totals of what it took to get room.
#include "strata/memory/room_costs_inl.h"

#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace strata::memory {
namespace {

TEST(RoomCosts, AddUpOverThreads) {
  const RoomCosts before = room_costs();
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([] {
      for (int k = 0; k < 1000; ++k) {
        count_mapped(3, 2, 0.5);
        count_locked(5, 4, 0.25);
      }
    });
  threads.clear();
  const RoomCosts now = room_costs();
  EXPECT_EQ(now.mapped_bytes - before.mapped_bytes, 12000);
  EXPECT_EQ(now.unmapped_bytes - before.unmapped_bytes, 8000);
  EXPECT_EQ(now.locked_bytes - before.locked_bytes, 20000);
  EXPECT_EQ(now.unlocked_bytes - before.unlocked_bytes, 16000);
  EXPECT_DOUBLE_EQ(now.map_seconds - before.map_seconds, 2000);
  EXPECT_DOUBLE_EQ(now.lock_seconds - before.lock_seconds, 1000);
}

}  // namespace
}  // namespace strata::memory
