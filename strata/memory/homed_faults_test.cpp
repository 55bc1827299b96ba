// The movable backend where copies fail and memory is full.
#include "strata/memory/homed.h"

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "strata/core/error_test_util.h"
#include "strata/core/tensor.h"
#include "strata/memory/allocator.h"
#include "strata/memory/homed_test_util.h"
#include "strata/memory/pressure.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"

namespace strata::memory {
namespace {

TEST_F(Homed, AFailedWriteIsTheNextFetchsErrorAndLosesNothing) {
  limit(2);
  const auto b = several(4, [&] { return make(); });
  home_->fail(0, 1);
  write(b[0], 1);  // its copy home fails
  for (size_t i : {1U, 2U, 3U}) write(b[i], static_cast<int>(i) + 1);
  EXPECT_EQ(read(b[3]), 4);
  const std::string text = message<IoError>([&] { fetch(b[0]); });
  EXPECT_NE(text.find("cannot be written"), std::string::npos) << text;
  EXPECT_EQ(read(b[0]), 1);  // still near, and written again
  for (size_t i : {1U, 2U, 3U, 0U}) EXPECT_EQ(read(b[i]), static_cast<int>(i) + 1);
  settle();
  for (size_t i : {0U, 1U, 2U, 3U}) EXPECT_EQ(read(b[i]), static_cast<int>(i) + 1);
  // Where all that is near cannot be written there is no room, and the text says why.
  settle();
  home_->fail(0, 1000);
  write(b[0], 7);
  write(b[1], 8);
  const std::string full = message<MemoryError>([&] { fetch(b[2]); });
  EXPECT_NE(full.find("24576 bytes could not be written home: "), std::string::npos) << full;
  EXPECT_NE(full.find("cannot be written", full.find("written home: ")), std::string::npos) << full;  // the cause
  home_->fail(0, 0);
  for (size_t i : {0U, 1U}) EXPECT_THROW(fetch(b[i]), IoError);
  for (size_t i : {0U, 1U}) EXPECT_EQ(read(b[i]), static_cast<int>(i) + 7);
  EXPECT_EQ(read(b[2]), 3);
  EXPECT_EQ(read(b[0]), 7);
  for (void* each : b) end(each);
  settle();
  EXPECT_EQ(home_->rooms, 0);
  EXPECT_EQ(stats().bytes, 0);
}

TEST_F(Homed, AFailedReadIsTheFetchsErrorAndCanBeTriedAgain) {
  limit(2);
  void* b = make();
  write(b, 6);
  settle();
  home_->fail(1, 0);
  const std::string text = message<IoError>([&] { fetch(b); });
  EXPECT_NE(text.find("cannot be read"), std::string::npos);
  EXPECT_EQ(stats().bytes, 0);
  EXPECT_EQ(stats().pinned, 0);
  EXPECT_EQ(read(b), 6);
  settle();
  home_->fail(1, 0);
  memory_->prefetch(cpu_, b);
  EXPECT_THROW(fetch(b), IoError);
  EXPECT_EQ(read(b), 6);
  // One that nobody waits for leaves like others.
  settle();
  home_->fail(1, 0);
  memory_->prefetch(cpu_, b);
  settle();
  EXPECT_EQ(read(b), 6);
  end(b);
}

TEST_F(Homed, AFullHomeIsTheAllocationsError) {
  home_->most_rooms = 2;
  void* a = make();
  void* b = make();
  EXPECT_THROW(make(), MemoryError);
  EXPECT_EQ(memory_->stats(cpu_).blocks, 2);
  // Room that a copy under way still holds is waited for.
  limit(1);
  home_->hold(true);
  write(a, 1);
  end(a);
  std::jthread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    home_->hold(false);
  });
  void* c = make();
  EXPECT_EQ(home_->early_ends, 0);
  memory_->set_limit(cpu_, 2 * kTaken);
  home_->most_rooms = -1;
  EXPECT_THROW(make(), MemoryError);
  EXPECT_EQ(memory_->bound(cpu_).free(), 0);
  end(b);
  end(c);
  EXPECT_EQ(memory_->bound(cpu_).free(), 2 * kTaken);
}

TEST_F(Homed, AFullDeviceMakesOthersLeave) {
  const auto b = several(4, [&] { return make(); });
  limit(4);
  for (size_t i = 0; i < 4; ++i) write(b[i], static_cast<int>(i));
  const int64_t previous = set_limit(memory::stats(cpu_).live_total);
  void* more = make();
  EXPECT_NO_THROW(write(more, 9));
  std::vector<void*> held;
  EXPECT_THROW(
      {
        for (void* each : b) {
          fetch(each);
          held.push_back(each);
        }
        fetch(more);
      },
      MemoryError);
  for (void* each : held) leave(each);
  set_limit(previous);
  EXPECT_EQ(read(more), 9);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(read(b[i]), static_cast<int>(i));
  for (void* each : b) end(each);
  end(more);
}

TEST_F(Homed, WhatNobodyPinsLeavesForTheDevicesOwn) {
  constexpr size_t kMega = size_t{1} << 20;
  const auto b = several(4, [&] { return make(kMega); });
  for (size_t i = 0; i < 4; ++i) write(b[i], static_cast<int>(i), kMega);
  EXPECT_EQ(stats().bytes, static_cast<int64_t>(4 * kMega));
  const int64_t previous = set_limit(memory::stats(cpu_).live_total + 4096);
  {
    const Tensor own = empty({{static_cast<int64_t>(2 * kMega)}, DType::u8, cpu_, std::nullopt});
    EXPECT_EQ(stats().bytes, static_cast<int64_t>(2 * kMega));
    fetch(b[2]);
    fetch(b[3]);
    EXPECT_THROW(empty({{static_cast<int64_t>(kMega)}, DType::u8, cpu_, std::nullopt}), MemoryError);
    leave(b[2]);
    leave(b[3]);
  }
  set_limit(previous);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(read(b[i], kMega), static_cast<int>(i));
  for (void* each : b) end(each, kMega);
}

// Who is asked for room may hold blocks of the same memory.
TEST_F(Homed, AFetchThatFindsNoRoomAsksOthers) {
  constexpr size_t kMega = size_t{1} << 20;
  struct Giver final : Reliever {
    std::function<bool()> give;
    bool relieve(Device, int64_t) noexcept override { return give(); }
  };
  void *held = make(kMega), *wanted = make(kMega);
  fetch(held);
  const auto giver = std::make_shared<Giver>();
  giver->give = [&] {
    if (held == nullptr) return false;
    leave(held, true);
    end(std::exchange(held, nullptr), kMega);
    return true;
  };
  const int64_t previous = set_limit(memory::stats(cpu_).live_total + 4096);
  EXPECT_THROW(fetch(wanted), MemoryError);
  add_reliever(giver);
  EXPECT_NO_THROW(fetch(wanted));
  EXPECT_EQ(held, nullptr);
  set_limit(previous);
  leave(wanted);
  end(wanted, kMega);
}

}  // namespace
}  // namespace strata::memory
