#pragma once
// A movable backend over a TestHome, and what a Storage does with its blocks.

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "strata/memory/allocator.h"
#include "strata/memory/home_test_util.h"
#include "strata/memory/homed.h"

namespace strata::memory {

inline const Tier kTest = Tier::named("test home");
inline constexpr size_t kBytes = 10000;      // of a block here
inline constexpr int64_t kTaken = 3 * 4096;  // that it takes

// A memory of its own, and what a Storage does with its blocks.
class Homed : public ::testing::Test {
 protected:
  Homed() {
    auto home = std::make_unique<TestHome>();
    home_ = home.get();
    memory_ = std::make_unique<HomedMemory>("test", DeviceType::cpu, kTest, std::move(home));
  }
  void* make(size_t nbytes = kBytes) { return memory_->allocate(cpu_, nbytes, Tag::activation); }
  void end(void* block, size_t nbytes = kBytes) { memory_->deallocate(cpu_, block, nbytes, Tag::activation); }
  std::byte* fetch(void* block) { return memory_->fetch(cpu_, block); }
  void leave(void* block, bool written = false) { memory_->leave(cpu_, block, written); }
  void write(void* block, int value, size_t nbytes = kBytes) {
    std::memset(fetch(block), value, nbytes);
    leave(block, true);
  }
  // -1 where the bytes differ.
  int read(void* block, size_t nbytes = kBytes) {
    const std::byte* p = fetch(block);
    int value = static_cast<int>(p[0]);
    for (size_t i = 1; i < nbytes; ++i)
      if (p[i] != p[0]) value = -1;
    leave(block);
    return value;
  }
  bool near(void* block) { return memory_->resident(cpu_, block); }
  NearStats stats() { return memory_->near_stats(cpu_); }
  void limit(int64_t blocks) { memory_->set_near_limit(cpu_, blocks * kTaken); }
  // Copies under way are made.
  void settle() { memory_->release_cached(); }

  const Device cpu_ = Device::cpu();
  TestHome* home_ = nullptr;
  std::unique_ptr<HomedMemory> memory_;
};

inline std::vector<void*> several(int n, auto&& make) {
  std::vector<void*> all;
  for (int i = 0; i < n; ++i) all.push_back(make());
  return all;
}

}  // namespace strata::memory
