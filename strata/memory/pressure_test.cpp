#include "strata/memory/pressure.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "strata/core/error.h"
#include "strata/memory/allocator.h"
#include "strata/ops/factory/factory.h"

namespace strata::memory {
namespace {

// Holds tensors that it gives back one at a time.
struct Hoard : Reliever {
  std::vector<Tensor> held;
  int asked = 0;
  int64_t missing = 0;
  bool nested = true;
  bool relieve(Device device, int64_t bytes) noexcept override {
    ++asked;
    missing = bytes;
    nested = memory::relieve(device, bytes);
    if (held.empty()) return false;
    held.pop_back();
    return true;
  }
};

TEST(Pressure, WhoHoldsMemoryGivesItBack) {
  constexpr int64_t kEach = 1 << 20;
  const auto hoard = std::make_shared<Hoard>();
  add_reliever(hoard);
  const auto of = [](int64_t bytes) { return empty({{bytes}, DType::u8, Device::cpu(), std::nullopt}); };
  for (int i = 0; i < 4; ++i) hoard->held.push_back(of(kEach));
  const int64_t before = set_limit(stats(Device::cpu()).live_total + kEach);
  {
    const Tensor fits = of(kEach);
    EXPECT_EQ(hoard->asked, 0);
    const Tensor wants_two = of(2 * kEach);
    EXPECT_EQ(hoard->asked, 2);
    EXPECT_EQ(hoard->missing, kEach);  // the second time
    EXPECT_FALSE(hoard->nested);
    EXPECT_EQ(hoard->held.size(), 2u);
    EXPECT_THROW(of(8 * kEach), MemoryError);  // all of it does not suffice
    EXPECT_TRUE(hoard->held.empty());
    EXPECT_EQ(hoard->asked, 5);
  }
  set_limit(before);
}

// Gives one at a time, slowly, and to one thread at a time, as those do who hold a lock meanwhile.
struct Slow : Reliever {
  std::mutex mutex;
  std::vector<Tensor> held;
  bool relieve(Device, int64_t) noexcept override {
    const std::unique_lock lock(mutex, std::try_to_lock);
    if (!lock || held.empty()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    held.pop_back();
    return true;
  }
};

TEST(Pressure, ThreadsThatAskAtOnceAllFindRoom) {
  constexpr int64_t kEach = 1 << 20;
  constexpr int kThreads = 6;
  const auto slow = std::make_shared<Slow>();
  add_reliever(slow);
  const auto of = [](int64_t bytes) { return empty({{bytes}, DType::u8, Device::cpu(), std::nullopt}); };
  for (int i = 0; i < kThreads; ++i) slow->held.push_back(of(kEach));
  const int64_t before = set_limit(stats(Device::cpu()).live_total);
  std::vector<Tensor> got(kThreads);
  std::atomic<int> refused{0};
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] {
      try {
        got[static_cast<size_t>(i)] = of(kEach);
      } catch (const MemoryError&) {
        ++refused;
      }
    });
  for (std::thread& t : threads) t.join();
  set_limit(before);
  EXPECT_EQ(refused, 0);
  EXPECT_TRUE(slow->held.empty());
}

TEST(Pressure, OnlyTheLivingAreAsked) {
  EXPECT_FALSE(relieve(Device::cpu(), 1));
  {
    const auto hoard = std::make_shared<Hoard>();
    add_reliever(hoard);
    hoard->held.push_back(empty({{64}, DType::u8, Device::cpu(), std::nullopt}));
    EXPECT_TRUE(relieve(Device::cpu(), 1));
    EXPECT_FALSE(relieve(Device::cpu(), 1));
  }
  EXPECT_FALSE(relieve(Device::cpu(), 1));
}

}  // namespace
}  // namespace strata::memory
