// The movable backend over a home whose copies can be held up and made to fail.
#include "strata/memory/homed.h"

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "strata/core/error_test_util.h"
#include "strata/core/tensor.h"
#include "strata/memory/allocator.h"
#include "strata/memory/homed_test_util.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"

namespace strata::memory {
namespace {

TEST_F(Homed, WhatNobodyWroteMovesNothing) {
  limit(2);
  const auto blocks = several(5, [&] { return make(); });
  for (void* b : blocks) {
    fetch(b);
    leave(b);
  }
  memory_->prefetch(cpu_, blocks[0]);
  EXPECT_FALSE(near(blocks[0]));
  EXPECT_EQ(stats().bytes_in, 0);
  EXPECT_EQ(stats().bytes_out, 0);
  EXPECT_EQ(stats().fetches, 5);
  EXPECT_EQ(stats().waits, 0);
  for (void* b : blocks) end(b);
  EXPECT_EQ(home_->rooms, 0);
  EXPECT_EQ(stats().bytes, 0);
}

TEST_F(Homed, BytesComeBackAndTheBoundIsKept) {
  limit(3);
  const int64_t own = memory::stats(cpu_).live_total;
  const auto blocks = several(10, [&] { return make(); });
  EXPECT_EQ(memory_->stats(cpu_).live_total, 10 * kTaken);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 10; ++i) {
      if (round > 0) {
        EXPECT_EQ(read(blocks[static_cast<size_t>(i)]), 10 * round + i - 10);
      }
      write(blocks[static_cast<size_t>(i)], 10 * round + i);
      EXPECT_LE(stats().bytes, 3 * kTaken);
    }
  }
  EXPECT_LE(stats().peak, 3 * kTaken);
  EXPECT_EQ(stats().limit, 3 * kTaken);
  EXPECT_GT(stats().bytes_in, 0);
  for (void* b : blocks) end(b);
  settle();
  EXPECT_EQ(stats().bytes, 0);
  EXPECT_EQ(home_->rooms, 0);
  EXPECT_EQ(memory::stats(cpu_).live_total, own);
  EXPECT_EQ(memory_->stats(cpu_).live_total, 0);
}

TEST_F(Homed, WhatFindsNoHoleMakesOthersLeave) {
  limit(8);
  const auto blocks = several(6, [&] { return make(); });
  for (int i = 0; i < 6; ++i) write(blocks[static_cast<size_t>(i)], i);
  settle();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(read(blocks[static_cast<size_t>(i)]), i);
  EXPECT_EQ(home_->asked, 10 * kTaken);  // a quarter of the bound besides
  // There would be room for all, but not in one piece: prefetching takes what nobody pins, and then waits.
  home_->hole = 0;
  fetch(blocks[0]);
  memory_->prefetch(cpu_, blocks[4]);
  EXPECT_FALSE(near(blocks[4]));
  for (int i = 1; i < 4; ++i) EXPECT_FALSE(near(blocks[static_cast<size_t>(i)])) << i;
  EXPECT_TRUE(near(blocks[0]));
  // A pin comes all the same.
  EXPECT_EQ(read(blocks[5]), 5);
  home_->hole = kTaken;
  leave(blocks[0]);
  EXPECT_EQ(read(blocks[4]), 4);
  for (void* b : blocks) end(b);
  settle();
  EXPECT_EQ(stats().bytes, 0);
}

TEST_F(Homed, OddSizesComeBack) {
  limit(8);
  for (const size_t n : {size_t{1}, size_t{63}, size_t{4095}, size_t{4096}, size_t{4097}, size_t{40001}}) {
    void* b = make(n);
    write(b, 77, n);
    settle();
    EXPECT_FALSE(near(b));
    EXPECT_EQ(read(b, n), 77) << n;
    EXPECT_EQ(stats().bytes, static_cast<int64_t>((n + 4095) / 4096 * 4096));
    end(b, n);
  }
}

TEST_F(Homed, BlocksLeaveInOrderOfLastUseAndCleanOnesUnwritten) {
  limit(3);
  const auto b = several(5, [&] { return make(); });
  for (int i = 0; i < 5; ++i) write(b[static_cast<size_t>(i)], i);
  settle();
  const int64_t written = stats().bytes_out;
  EXPECT_EQ(written, 5 * static_cast<int64_t>(kBytes));
  for (int i : {0, 1, 2}) read(b[static_cast<size_t>(i)]);
  read(b[0]);  // 1 is now the oldest
  read(b[3]);
  EXPECT_TRUE(near(b[0]) && near(b[2]) && near(b[3]));
  EXPECT_FALSE(near(b[1]));
  EXPECT_EQ(stats().bytes_out, written);
  const int64_t hits = stats().hits;
  EXPECT_EQ(read(b[2]), 2);
  EXPECT_EQ(stats().hits, hits + 1);
  for (void* each : b) end(each);
}

TEST_F(Homed, WhatIsPinnedStaysAndIsNamedWhereTheBoundCannotBeKept) {
  limit(2);
  void *a = nullptr, *c = nullptr;
  {
    const ModuleScope module("encoder");
    a = make();
    c = make();
  }
  void* d = make();
  write(d, 3);
  std::byte* at = fetch(a);
  fetch(c);
  EXPECT_EQ(stats().pinned, 2 * kTaken);
  const std::string text = message<MemoryError>([&] { fetch(d); });
  EXPECT_NE(text.find("cannot bring 12288 bytes of memory 'test home' near: at most 24576 bytes may be"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("pinned by encoder (12288), encoder (12288)"), std::string::npos) << text;
  EXPECT_EQ(stats().pinned, 2 * kTaken);
  leave(c);
  EXPECT_EQ(read(d), 3);
  std::memset(at, 9, kBytes);
  leave(a, true);
  settle();
  EXPECT_EQ(read(a), 9);
  void* large = make(3 * kBytes);
  EXPECT_THROW(fetch(large), MemoryError);  // larger than the bound alone
  limit(4);
  EXPECT_NO_THROW(fetch(large));
  leave(large);
  for (void* b : {a, c, d}) end(b);
  end(large, 3 * kBytes);
  EXPECT_EQ(stats().pinned, 0);
}

TEST_F(Homed, ShortLivedBlocksAreNotWritten) {
  limit(40);
  for (int i = 0; i < 100; ++i) {
    void* b = make();
    write(b, i);
    EXPECT_EQ(read(b), i);
    end(b);
  }
  EXPECT_EQ(stats().bytes_out, 0);
  EXPECT_EQ(home_->writes(), 0);
  // From a quarter of the bound on, the oldest go ahead of need.
  const auto b = several(20, [&] { return make(); });
  for (size_t i = 0; i < 10; ++i) write(b[i], static_cast<int>(i));
  EXPECT_EQ(stats().bytes_out, 0);
  for (size_t i = 10; i < 20; ++i) write(b[i], static_cast<int>(i));
  EXPECT_EQ(stats().bytes_out, 10 * static_cast<int64_t>(kBytes));
  for (size_t i = 0; i < 20; ++i) EXPECT_EQ(read(b[i]), static_cast<int>(i));
  for (void* each : b) end(each);
}

TEST_F(Homed, WhatWasAskedForAheadComesInOrderAndStays) {
  limit(4);
  const auto b = several(8, [&] { return make(); });
  for (size_t i = 0; i < 8; ++i) write(b[i], static_cast<int>(i));
  settle();
  std::byte* held = fetch(b[0]);
  for (size_t i : {1U, 2U, 3U, 4U, 5U}) memory_->prefetch(cpu_, b[i]);
  home_->hold(false);
  EXPECT_EQ(stats().prefetches, 3);  // 4 and 5 wait for room
  EXPECT_EQ(stats().bytes, 4 * kTaken);
  EXPECT_EQ(static_cast<int>(held[0]), 0);
  EXPECT_EQ(read(b[1]), 1);  // used: it may leave for 4
  EXPECT_EQ(stats().prefetches, 4);
  leave(b[0]);
  EXPECT_EQ(stats().prefetches, 5);
  for (size_t i : {2U, 3U, 4U, 5U}) EXPECT_EQ(read(b[i]), static_cast<int>(i));
  EXPECT_EQ(stats().hits, 5);  // the first fetches of the 8 blocks, and that of b[0], found nothing
  for (void* each : b) end(each);
}

TEST_F(Homed, APinTakesFromWhatIsNeededLast) {
  limit(3);
  const auto b = several(6, [&] { return make(); });
  for (size_t i = 0; i < 6; ++i) write(b[i], static_cast<int>(i));
  settle();
  for (size_t i : {0U, 1U, 2U}) memory_->prefetch(cpu_, b[i]);
  EXPECT_EQ(read(b[5]), 5);
  EXPECT_FALSE(near(b[2]));
  EXPECT_EQ(read(b[0]), 0);
  // Who is passed over is kept no longer: 1 was to be used before 3.
  for (size_t i : {3U, 4U}) memory_->prefetch(cpu_, b[i]);
  EXPECT_EQ(read(b[3]), 3);
  for (size_t i : {2U, 4U, 5U}) memory_->prefetch(cpu_, b[i]);
  for (size_t i : {2U, 4U, 5U}) EXPECT_EQ(read(b[i]), static_cast<int>(i));
  memory_->prefetch(cpu_, b[0]);
  end(b[0]);  // asked for, never used
  memory_->prefetch(cpu_, b[1]);
  EXPECT_EQ(read(b[1]), 1);
  for (size_t i : {1U, 2U, 3U, 4U, 5U}) end(b[i]);
  settle();
  EXPECT_EQ(home_->rooms, 0);
}

TEST_F(Homed, AFetchOfWhatIsOnItsWayWaitsForIt) {
  limit(4);
  void* b = make();
  write(b, 5);
  settle();
  home_->hold(true);
  memory_->prefetch(cpu_, b);
  EXPECT_FALSE(near(b));
  std::jthread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    home_->hold(false);
  });
  EXPECT_EQ(read(b), 5);
  EXPECT_EQ(stats().waits, 1);
  EXPECT_GT(stats().seconds_waited, 0.001);
  EXPECT_EQ(home_->reads(), 1);
  end(b);
}

// A write under way reads what is near: nobody may write there meanwhile.
TEST_F(Homed, AFetchOfWhatIsLeavingWaitsForTheCopy) {
  limit(2);
  const auto b = several(2, [&] { return make(); });
  home_->hold(true);
  write(b[0], 1);
  write(b[1], 2);  // more than a quarter: 0 is being written
  EXPECT_GT(stats().bytes_out, 0);
  std::jthread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    home_->hold(false);
  });
  write(b[0], 3);
  settle();
  EXPECT_EQ(read(b[0]), 3);
  EXPECT_EQ(read(b[1]), 2);
  for (void* each : b) end(each);
}

TEST_F(Homed, WhatEndsWhileItIsCopiedEndsAfterwards) {
  limit(2);
  home_->hold(true);
  const auto b = several(3, [&] { return make(); });
  write(b[0], 1);
  write(b[1], 2);
  end(b[0]);
  end(b[1]);
  EXPECT_EQ(home_->rooms, 3);
  EXPECT_GT(stats().bytes, 0);
  std::jthread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    home_->hold(false);
  });
  fetch(b[2]);  // waits where it must
  leave(b[2]);
  settle();
  EXPECT_EQ(home_->rooms, 1);
  EXPECT_EQ(home_->early_ends, 0);
  end(b[2]);
  EXPECT_EQ(home_->rooms, 0);
  EXPECT_EQ(stats().bytes, 0);
}

TEST_F(Homed, ALowerBoundMakesRoomAtOnce) {
  limit(8);
  const auto b = several(8, [&] { return make(); });
  for (size_t i = 0; i < 8; ++i) write(b[i], static_cast<int>(i));
  for (size_t i = 0; i < 8; ++i) read(b[i]);
  while (home_->writes() < 8 - 2) std::this_thread::yield();  // those of a quarter of the bound are still to be written
  EXPECT_EQ(stats().bytes, 8 * kTaken);
  limit(4);
  EXPECT_EQ(stats().bytes, 4 * kTaken);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(read(b[i]), static_cast<int>(i));
  EXPECT_THROW(memory_->set_near_limit(cpu_, -1), ValueError);
  EXPECT_EQ(memory_->set_near_limit(cpu_, 0), 4 * kTaken);
  EXPECT_EQ(stats().limit, 0);
  EXPECT_THROW(memory::near_stats(cpu_, Tier::host), ValueError);
  EXPECT_THROW(memory::set_near_limit(1, cpu_, Tier::host), ValueError);
  for (void* each : b) end(each);
}

// What a captured graph reads and writes stays at its address as long as the graph lives.
TEST_F(Homed, AGraphHoldsWhatItUses) {
  limit(2);
  const auto b = several(3, [&] { return make(); });
  for (size_t i = 0; i < 3; ++i) write(b[i], static_cast<int>(i));
  settle();
  read(b[0]);
  home_->captures = true;
  const std::string text = message<DeviceError>([&] { fetch(b[1]); });
  EXPECT_NE(text.find("a CUDA graph that is being captured cannot bring it"), std::string::npos) << text;
  std::byte* at = fetch(b[0]);
  memory_->prefetch(cpu_, b[0]);  // a second pin
  memory_->prefetch(cpu_, b[1]);
  leave(b[0], true);
  home_->captures = false;
  EXPECT_EQ(home_->graph.size(), 2U);
  EXPECT_FALSE(near(b[1]));
  for (size_t i : {1U, 2U, 1U, 2U}) read(b[i]);
  EXPECT_TRUE(near(b[0]));
  for (auto& before_replay : home_->graph) before_replay();
  std::memset(at, 9, kBytes);  // a replay
  fetch(b[1]);
  EXPECT_THROW(fetch(b[2]), MemoryError);
  leave(b[1]);
  EXPECT_EQ(read(b[0]), 9);
  home_->graph.clear();
  for (size_t i : {1U, 2U}) read(b[i]);
  EXPECT_FALSE(near(b[0]));
  EXPECT_EQ(read(b[0]), 9);
  // A block that ends before its graph.
  home_->captures = true;
  fetch(b[0]);
  leave(b[0]);
  home_->captures = false;
  end(b[0]);
  home_->graph.clear();
  for (size_t i : {1U, 2U}) end(b[i]);
  settle();
  EXPECT_EQ(stats().bytes, 0);
}

TEST_F(Homed, ManyThreadsKeepTheBound) {
  limit(12);
  constexpr int kThreads = 4, kEach = 8;
  std::atomic<int> wrong{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        std::vector<void*> mine = several(kEach, [&] { return make(); });
        for (int i = 0; i < kEach; ++i) write(mine[static_cast<size_t>(i)], t * kEach + i);
        for (int round = 0; round < 100; ++round) {
          const auto i = static_cast<size_t>((round * 7 + t) % kEach), j = (i + 3) % kEach;
          if (round % 3 == 0) memory_->prefetch(cpu_, mine[j]);
          if (read(mine[i]) != t * kEach + static_cast<int>(i)) ++wrong;
          if (round % 5 == 0) write(mine[j], t * kEach + static_cast<int>(j));
          if (round % 11 == 0) {
            end(mine[i]);
            mine[i] = make();
            write(mine[i], t * kEach + static_cast<int>(i));
          }
          if (stats().bytes > 12 * kTaken) ++wrong;
        }
        for (void* b : mine) end(b);
      });
  }
  EXPECT_EQ(wrong, 0);
  settle();
  EXPECT_EQ(stats().bytes, 0);
  EXPECT_EQ(home_->rooms, 0);
  EXPECT_EQ(home_->early_ends, 0);
  EXPECT_LE(stats().peak, 12 * kTaken);
}

TEST_F(Homed, AThousandFetchesLeaveNothingBehind) {
  limit(2);
  const auto b = several(4, [&] { return make(); });
  for (size_t i = 0; i < 4; ++i) write(b[i], static_cast<int>(i));
  settle();
  const Stats before = memory::stats(cpu_);
  for (int i = 0; i < 1000; ++i) {
    const auto k = static_cast<size_t>(i) % 4;
    if (i % 2 == 0) memory_->prefetch(cpu_, b[(k + 1) % 4]);
    ASSERT_EQ(read(b[k]), static_cast<int>(k));
    if (i % 3 == 0) write(b[k], static_cast<int>(k));
  }
  settle();
  EXPECT_EQ(memory::stats(cpu_).live_total, before.live_total);
  EXPECT_EQ(memory::stats(cpu_).blocks, before.blocks);
  EXPECT_EQ(home_->rooms, 4);
  EXPECT_EQ(stats().bytes, 0);
  for (void* each : b) end(each);
}

// Tensors, by the public names.
TEST(HomedTensors, ComputeAndAreCounted) {
  static auto* memory = [] {
    auto* m = new HomedMemory("tests' home", DeviceType::cpu, kTest, std::make_unique<TestHome>());
    register_backend(*m);
    return m;
  }();
  set_near_limit(1 << 20, Device::cpu(), kTest);
  const Tensor x = ones({1000, 100}).to(kTest), y = x.to(kTest);
  EXPECT_TRUE(y.same_as(x));
  const Tensor z = (x + x).to(kTest);
  EXPECT_EQ(z.tier(), kTest);
  EXPECT_EQ(z.to(Tier::host).to_vector<float>(), std::vector<float>(100000, 2.0F));
  EXPECT_EQ(z.to(Tier()).tier(), Tier::host);
  memory->release_cached();
  EXPECT_FALSE(z.storage()->resident());
  EXPECT_EQ(z[3][4].item<float>(), 2.0F);
  const NearStats s = near_stats(Device::cpu(), kTest);
  EXPECT_EQ(s.limit, 1 << 20);
  EXPECT_GT(s.bytes_in, 0);
  EXPECT_EQ(s.pinned, 0);
  EXPECT_EQ(stats(Device::cpu(), kTest).live_total, 2 * 401408);
}

}  // namespace
}  // namespace strata::memory
