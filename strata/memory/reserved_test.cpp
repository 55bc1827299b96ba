// Bytes that one user has for himself: others wait, and find what he wrote.
#include "strata/memory/reserved.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <thread>

#include <gtest/gtest.h>

#include "strata/core/error.h"
#include "strata/core/tensor.h"
#include "strata/memory/home_test_util.h"
#include "strata/memory/tiers.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"

namespace strata::memory {
namespace {

const Tier kReserved = Tier::named("home of reservations");
constexpr int64_t kCount = 3000;  // floats: three pages

TestHome& home() {
  static TestHome* at = [] {
    auto made = std::make_unique<TestHome>();
    TestHome* h = made.get();
    register_backend(*new HomedMemory("reservations", DeviceType::cpu, kReserved, std::move(made)));
    return h;
  }();
  return *at;
}
Tensor make(double value) {
  home();
  return full({kCount}, value, DType::f32).to(kReserved);
}
float* floats(std::byte* p) {
  return reinterpret_cast<float*>(p);
}
// NaN where they differ.
double value(const Tensor& t) {
  const Pin pin(t, Access::read);
  const float* p = t.data<float>();
  for (int64_t i = 1; i < t.numel(); ++i)
    if (p[i] != p[0]) return std::numeric_limits<double>::quiet_NaN();
  return p[0];
}

TEST(Reserved, TheHolderWorksAtHomeAndOthersFindIt) {
  const Tensor t = make(2);  // is dirty near
  Reserved r = Reserved::of(t.storage());
  ASSERT_TRUE(r);
  r.settle_home();
  EXPECT_FALSE(t.storage()->resident());
  float* p = floats(r.home());
  EXPECT_EQ(p[0], 2);
  EXPECT_EQ(p[kCount - 1], 2);
  std::atomic<bool> read{false};
  double found = 0;
  t.storage()->prefetch();  // waits in the queue; behind a reader that waits it would wait itself
  std::jthread reader([&] {
    found = value(t);
    read = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(read);
  for (int64_t i = 0; i < kCount; ++i) p[i] = 3;
  r.written();
  r.release();
  EXPECT_FALSE(r);
  reader.join();
  EXPECT_EQ(found, 3);
}

TEST(Reserved, APrefetchComesWhenItIsReleasedAndOthersAreNotHeldUp) {
  const Tensor a = make(1), b = make(2);
  home();
  backend(Device::cpu(), kReserved).release_cached();
  Reserved r = Reserved::of(a.storage());
  a.storage()->prefetch();
  b.storage()->prefetch();
  EXPECT_EQ(value(b), 2);
  EXPECT_FALSE(a.storage()->resident());
  r.settle_home();
  r.release();
  for (int i = 0; i < 1000 && !a.storage()->resident(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(a.storage()->resident());
  EXPECT_EQ(value(a), 1);
}

TEST(Reserved, WaitsForCopiesUnderWay) {
  const Tensor t = make(5);
  home().hold(true);
  Reserved r = Reserved::of(t.storage());  // is sent
  std::jthread later([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    home().hold(false);
  });
  r.settle_home();
  EXPECT_EQ(floats(r.home())[7], 5);
  r.release();
  EXPECT_EQ(value(t), 5);
  // A copy that comes is waited for too, before the bytes change.
  backend(Device::cpu(), kReserved).release_cached();
  home().hold(true);
  t.storage()->prefetch();
  Reserved again = Reserved::of(t.storage());
  std::jthread then([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    home().hold(false);
  });
  again.settle_home();
  floats(again.home())[0] = 6;
  again.written();
  again.release();
  const Pin pin(t, Access::read);
  EXPECT_EQ(t.data<float>()[0], 6);
  EXPECT_EQ(t.data<float>()[1], 5);
}

TEST(Reserved, WhatIsPinnedTakenOrFixedCannotBeHad) {
  const Tensor t = make(1), fixed = full({kCount}, 1.0);
  {
    const Pin pin(t, Access::read);
    EXPECT_FALSE(Reserved::of(t.storage()));
  }
  const Reserved r = Reserved::of(t.storage());
  EXPECT_TRUE(r);
  EXPECT_FALSE(Reserved::of(t.storage()));
  EXPECT_FALSE(Reserved::of(fixed.storage()));
  EXPECT_FALSE(Reserved::of(empty({{0}, DType::f32, Device::cpu(), std::nullopt}, kReserved).storage()));
  EXPECT_FALSE(Reserved::of({}));
}

TEST(Reserved, ADestructorReleasesAndAFailureIsTheNextPins) {
  const Tensor t = make(4);
  {
    const Reserved r = Reserved::of(t.storage());
    EXPECT_TRUE(r);
  }
  EXPECT_EQ(value(t), 4);
  Reserved r = Reserved::of(t.storage());
  r.settle_home();
  r.release(std::make_exception_ptr(IoError("update", "has failed")));
  EXPECT_THROW(value(t), IoError);
  EXPECT_EQ(value(t), 4);
}

TEST(Reserved, ACopyHomeThatFailsIsToldAndLosesNothing) {
  const Tensor t = make(8);
  home().fail(0, 1);
  Reserved r = Reserved::of(t.storage());
  EXPECT_THROW(r.settle_home(), IoError);
  r.release();
  EXPECT_EQ(value(t), 8);
  Reserved again = Reserved::of(t.storage());
  again.settle_home();
  EXPECT_EQ(floats(again.home())[1], 8);
}

TEST(Reserved, ABlockThatEndsWhileItIsReservedEndsAfterwards) {
  const int rooms = home().rooms;
  Reserved r;
  {
    const Tensor t = make(1);
    r = Reserved::of(t.storage());
  }
  r.settle_home();
  EXPECT_EQ(floats(r.home())[0], 1);
  r.release();
  backend(Device::cpu(), kReserved).release_cached();
  EXPECT_EQ(home().rooms, rooms);
}

// Readers, a writer and a bound that makes everything come and go.
TEST(Reserved, ManyThreadsSeeWholeUpdates) {
  std::vector<Tensor> all;
  for (int i = 0; i < 8; ++i) all.push_back(make(0));
  const int64_t before = set_near_limit(4 * 3 * 4096, Device::cpu(), kReserved);
  std::atomic<bool> ends{false};
  std::atomic<int> torn{0};
  {
    std::vector<std::jthread> readers;
    for (int k = 0; k < 3; ++k)
      readers.emplace_back([&, k] {
        for (size_t i = static_cast<size_t>(k); !ends; ++i) {
          all[i % all.size()].storage()->prefetch();
          if (std::isnan(value(all[(i + 3) % all.size()]))) ++torn;
        }
      });
    for (int step = 1; step <= 50; ++step) {
      for (const Tensor& t : all) {
        Reserved r;
        while (!(r = Reserved::of(t.storage()))) std::this_thread::yield();
        r.settle_home();
        for (int64_t i = 0; i < kCount; ++i) floats(r.home())[i] += 1;
        r.written();
        r.release();
      }
    }
    ends = true;
  }
  EXPECT_EQ(torn, 0);
  for (const Tensor& t : all) EXPECT_EQ(value(t), 50);
  set_near_limit(before, Device::cpu(), kReserved);
}

}  // namespace
}  // namespace strata::memory
