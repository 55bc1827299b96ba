// Whose page-locked memory is, over ordinary memory.
#include "strata/memory/locked_pool.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace strata::memory {
namespace {

class TestPages final : public LockedPool::Source {
 public:
  void* lock(size_t bytes) override {
    EXPECT_EQ(bytes % LockedPool::kPage, 0U);
    if (held + static_cast<int64_t>(bytes) > most) return nullptr;
    held += static_cast<int64_t>(bytes);
    ++locks;
    void* p = std::aligned_alloc(LockedPool::kPage, bytes);
    pages[p] = bytes;
    return p;
  }
  void unlock(void* data, size_t bytes) noexcept override {
    EXPECT_EQ(pages.at(data), bytes);
    pages.erase(data);
    held -= static_cast<int64_t>(bytes);
    std::free(data);
  }
  double now() override { return time; }

  int64_t held = 0, most = int64_t{1} << 40;
  int locks = 0;
  double time = 100;
  std::map<void*, size_t> pages;
};

constexpr size_t kMega = size_t{1} << 20;

TEST(LockedPool, LargeBlocksTakeTheirPagesAndNoMore) {
  TestPages pages;
  LockedPool pool(pages);
  int64_t sum = 0;
  std::vector<void*> all;
  for (const size_t n : {kMega + 1, 3 * kMega, 5 * kMega + 4097, 17 * kMega - 1}) {
    all.push_back(pool.allocate(n));
    const size_t whole = (n + 4095) / 4096 * 4096;
    EXPECT_EQ(pool.size(all.back()), whole);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(all.back()) % 4096, 0U);
    std::memset(all.back(), 1, n);
    sum += static_cast<int64_t>(whole);
  }
  EXPECT_EQ(pages.held, sum);
  EXPECT_EQ(pool.locked(), sum);
  EXPECT_EQ(pool.used(), sum);
  for (void* p : all) pool.deallocate(p);
  EXPECT_EQ(pool.used(), 0);
  EXPECT_EQ(pool.locked(), sum);
  pool.release();
  EXPECT_EQ(pages.held, 0);
}

TEST(LockedPool, SmallBlocksShareSlabs) {
  TestPages pages;
  LockedPool pool(pages);
  std::vector<void*> all;
  for (int i = 0; i < 10000; ++i) {
    all.push_back(pool.allocate(100));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(all.back()) % 64, 0U);
    std::memset(all.back(), i, 100);
  }
  EXPECT_EQ(pool.used(), 10000 * 128);
  EXPECT_EQ(pages.locks, 2);
  for (int i = 0; i < 10000; ++i)
    EXPECT_EQ(static_cast<unsigned char*>(all[static_cast<size_t>(i)])[99], static_cast<unsigned char>(i));
  for (void* p : all) pool.deallocate(p);
  all.assign(1, pool.allocate(LockedPool::kSmall));
  EXPECT_EQ(pages.locks, 2);
  pool.deallocate(all[0]);
  pool.release();
  EXPECT_EQ(pages.held, 0);
}

TEST(LockedPool, WhatIsGivenBackIsReusedAndIdleIsUnlocked) {
  TestPages pages;
  LockedPool pool(pages);
  void* a = pool.allocate(10 * kMega);
  void* small = pool.allocate(64);
  pool.deallocate(a);
  EXPECT_EQ(pool.allocate(10 * kMega - 5000), a);  // nearly all of it
  EXPECT_EQ(pool.used(), static_cast<int64_t>(10 * kMega) + 64);
  pool.deallocate(a);
  void* b = pool.allocate(9 * kMega);  // a tenth would be wasted
  EXPECT_NE(b, a);
  pages.time += LockedPool::kIdleSeconds / 2;
  pool.deallocate(b);
  pool.deallocate(small);
  EXPECT_EQ(pages.held, static_cast<int64_t>(20 * kMega));
  pages.time += LockedPool::kIdleSeconds / 2 + 1;
  void* c = pool.allocate(100, false);
  EXPECT_EQ(pages.held, static_cast<int64_t>(20 * kMega));  // not while a graph is captured
  pool.deallocate(c, false);
  pool.deallocate(pool.allocate(100));
  EXPECT_EQ(pages.held, static_cast<int64_t>(10 * kMega));  // a was idle long enough
  pages.time += LockedPool::kIdleSeconds + 1;
  pool.deallocate(pool.allocate(2 * kMega));
  EXPECT_EQ(pages.held, static_cast<int64_t>(2 * kMega));
}

// Steps longer than the patience: the second one locks again what the first had, later ones nothing.
TEST(LockedPool, StepsThatTakeLongerThanThePatienceDoNotLockAnew) {
  TestPages pages;
  LockedPool pool(pages);
  const auto step = [&](double seconds) {
    const int before = pages.locks;
    std::vector<void*> all;
    for (const size_t n : {3 * kMega, 3 * kMega, 5 * kMega}) all.push_back(pool.allocate(n));
    pages.time += seconds / 2;
    for (void* p : all) pool.deallocate(p);
    pages.time += seconds / 2;
    return pages.locks - before;
  };
  EXPECT_EQ(step(40), 3);
  EXPECT_GT(step(40), 0);
  EXPECT_GE(pool.patience(), 40);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(step(40), 0);
  // What is not asked for any more goes all the same.
  pages.time += pool.patience() + 1;
  pool.deallocate(pool.allocate(2 * kMega));
  EXPECT_EQ(pages.held, static_cast<int64_t>(2 * kMega));
  // A pause of an hour teaches nothing.
  pages.time += 3600;
  const double patience = pool.patience();
  step(1);
  EXPECT_EQ(pool.patience(), patience);
}

TEST(LockedPool, ChangingSizesDoNotPileUp) {
  TestPages pages;
  LockedPool pool(pages);
  std::mt19937 random(1);
  std::vector<void*> live;
  int64_t most = 0;
  for (int i = 0; i < 2000; ++i) {
    live.push_back(pool.allocate(kMega + random() % (16 * kMega)));
    if (live.size() > 20) {
      std::swap(live[random() % live.size()], live.back());
      pool.deallocate(live.back());
      live.pop_back();
    }
    most = std::max(most, pool.locked() - pool.used());
    ASSERT_EQ(pages.held, pool.locked());
  }
  // What was kept, and the blocks given back since the last that had to be locked.
  EXPECT_LE(most, std::max(LockedPool::kKept, pool.used()) + static_cast<int64_t>(17 * kMega));
  for (void* p : live) pool.deallocate(p);
}

TEST(LockedPool, ARefusalGivesBackWhatIsKeptAndThenIsOne) {
  TestPages pages;
  pages.most = static_cast<int64_t>(10 * kMega);
  LockedPool pool(pages);
  void* a = pool.allocate(8 * kMega);
  EXPECT_EQ(pool.allocate(3 * kMega), nullptr);
  EXPECT_EQ(pool.used(), static_cast<int64_t>(8 * kMega));
  pool.deallocate(a);
  void* b = pool.allocate(5 * kMega);
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(pages.held, static_cast<int64_t>(5 * kMega));
  pool.deallocate(b);
  EXPECT_EQ(pool.allocate(6 * kMega, false), nullptr);
  EXPECT_EQ(pool.allocate(11 * kMega), nullptr);
  EXPECT_EQ(pages.held, 0);
}

}  // namespace
}  // namespace strata::memory
