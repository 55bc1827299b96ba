// The tiers that cards have beside their own memory: unified, and at home in page-locked memory or on a disk.
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "strata/core/error_test_util.h"
#include "strata/cuda/graph.h"
#include "strata/cuda/page_locked.h"
#include "strata/cuda/runtime.h"
#include "strata/memory/allocator.h"
#include "strata/memory/tiers.h"
#include "strata/strata.h"

namespace strata::cuda {
namespace {
using memory::kDisk;
using memory::kUnified;

const Device kCard = Device::cuda();

Tensor ramp(const Shape& shape, double step) {
  return (reshape(arange(shape.product()), shape).to(DType::f32) * step - 0.5).to(kCard);
}
Tensor filled(const Shape& shape, double value) {
  const DeviceScope card(kCard);
  return full(shape, value);
}
bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}
// The stream stands still until go().
class Held {
 public:
  explicit Held(const Stream& s) {
    *flag() = false;
    s.host_callback(
        [](void* p) {
          while (!*static_cast<volatile bool*>(p)) {
          }
        },
        flag());
  }
  ~Held() { go(); }
  static void go() { *static_cast<volatile bool*>(flag()) = true; }

 private:
  static bool* flag() {
    static bool* f = new bool(false);
    return f;
  }
};

class Unified : public ::testing::Test {
 protected:
  void SetUp() override {
    if (device_count() == 0) GTEST_SKIP() << unavailable_reason();
  }
};

TEST_F(Unified, KernelsReadAndWriteItInPlace) {
  for (const int64_t n : {1, 3, 64, 1000, 4097, 300001}) {
    const Tensor x = ramp({n}, 0.001);
    Tensor u = x.to(kUnified);
    EXPECT_EQ(u.tier(), kUnified);
    EXPECT_TRUE(u.device().is_cuda());
    EXPECT_TRUE(u.to(kUnified).same_as(u));
    EXPECT_EQ((u * 2.0).to_vector<float>(), (x * 2.0).to_vector<float>());
    u.add_(x);
    synchronize();
    auto* seen = static_cast<float*>(u.raw_data());  // the host's address too
    const std::vector<float> v = x.to_vector<float>();
    for (size_t i = 0; i < v.size(); ++i) ASSERT_EQ(seen[i], v[i] + v[i]) << i;
    seen[n - 1] = 7;
    EXPECT_EQ(sum(u.narrow(0, n - 1, 1) * 3.0).item<float>(), 21.0F);
    EXPECT_EQ(u[n / 2].item<float>(), u.to_vector<float>()[static_cast<size_t>(n / 2)]);
    EXPECT_EQ(u.to_string(), u.to(Tier::device).to_string());
  }
}

TEST_F(Unified, ViewsOfAnyAlignmentAndResultsOfOps) {
  const Tensor x = ramp({33, 77}, 0.01);
  const Tensor u = x.to(kUnified);
  EXPECT_EQ(u.t().contiguous().to_vector<float>(), x.t().contiguous().to_vector<float>());
  EXPECT_EQ(matmul(u.narrow(1, 1, 33), u).to_vector<float>(), matmul(x.narrow(1, 1, 33), x).to_vector<float>());
  const memory::TierScope scope(kUnified);
  const Tensor y = softmax(x, 1);
  EXPECT_EQ(y.tier(), kUnified);
  EXPECT_EQ(y.to_vector<float>(), softmax(u, 1).to_vector<float>());
  EXPECT_EQ(filled({3}, 0).tier(), kUnified);
}

TEST_F(Unified, CopiesToTheHostComeAfterWhatWasQueued) {
  Tensor u = empty({{1 << 20}, DType::f32, kCard, std::nullopt}, kUnified);
  u.fill_(1);
  for (int i = 0; i < 50; ++i) u.mul_(1.0).add_(1.0);
  const Tensor seen = u.to(Device::cpu());
  EXPECT_EQ(min(seen).item<float>(), 51.0F);
  Tensor host = full({1 << 20}, 5.0);
  for (int i = 0; i < 50; ++i) u.add_(1.0);
  {
    const NoGrad guard;
    u.copy_(host);
  }
  host.fill_(6);
  EXPECT_EQ(max(u).item<float>(), 5.0F);
}

TEST_F(Unified, ABlockWaitsForTheKernelsThatUseIt) {
  const auto make = [] { return empty({{1 << 20}, DType::f32, kCard, std::nullopt}, kUnified); };
  synchronize();
  memory::release_cached();
  const Tensor kept = make();
  void* data = nullptr;
  {
    const Held held(current_stream());
    {
      Tensor u = make();
      data = u.raw_data();
      u.fill_(3);
    }
    EXPECT_NE(make().raw_data(), data);
  }
  synchronize();
  EXPECT_EQ(kept.numel(), 1 << 20);
}

TEST_F(Unified, GraphsUseWhatWasThereBefore) {
  Tensor u = filled({1000}, 0).to(kUnified);
  u.add_(0.0);
  Graph graph;
  graph.capture([&] { u.add_(1.0); });
  for (int i = 0; i < 3; ++i) graph.replay();
  EXPECT_EQ(min(u).item<float>(), 3.0F);
  const std::string text = message<DeviceError>([&] {
    Graph other;
    other.capture([&] { static_cast<void>(empty({{10}, DType::f32, kCard, std::nullopt}, kUnified)); });
  });
  EXPECT_TRUE(has(text, "unified memory is taken")) << text;
  EXPECT_EQ(max(u).item<float>(), 3.0F);
}

// At home in page-locked memory, and on a disk.
class CardHomes : public ::testing::TestWithParam<Tier> {
 protected:
  void SetUp() override {
    if (device_count() == 0) GTEST_SKIP() << unavailable_reason();
    memory::set_near_limit(0, kCard, tier);
  }
  void TearDown() override {
    if (device_count() > 0) memory::set_near_limit(0, kCard, tier);
  }
  void send_home() const { memory::backend(kCard, tier).release_cached(); }
  memory::NearStats stats() const { return memory::near_stats(kCard, tier); }
  const Tier tier = GetParam();
};
INSTANTIATE_TEST_SUITE_P(Tiers, CardHomes, ::testing::Values(Tier::pinned, Tier::named("disk")),
                         [](const auto& p) { return std::string(p.param.name()); });

TEST_P(CardHomes, BytesGoAndComeBack) {
  for (const int64_t n : {1, 1023, 1025, 1 << 20, (5 << 20) + 3}) {
    const Tensor x = ramp({n}, 0.001), y = x.to(tier);
    EXPECT_EQ(y.tier(), tier);
    send_home();
    EXPECT_FALSE(y.storage()->resident());
    EXPECT_THROW(y.raw_data(), DeviceError);
    EXPECT_EQ(y.to_vector<float>(), x.to_vector<float>());
    EXPECT_EQ(y[n - 1].item<float>(), x[n - 1].item<float>());
    send_home();
    EXPECT_EQ((y + x).to_vector<float>(), (x + x).to_vector<float>());
  }
  EXPECT_EQ(stats().pinned, 0);
}

TEST_P(CardHomes, EveryTierToEveryOther) {
  const Tensor x = ramp({41, 29}, 0.01);
  const std::vector<float> wanted = x.to_vector<float>();
  const std::vector<Tier> all = {Tier::device, Tier::pinned, kUnified, kDisk};
  for (const Tier from : all)
    for (const Tier to : all) {
      const Tensor a = x.to(from), b = a.t().to(to);
      memory::release_cached();
      EXPECT_EQ(b.tier(), to);
      EXPECT_EQ(b.t().contiguous().to_vector<float>(), wanted);
      Tensor leaf = x.detach().to(from).detach();
      leaf.set_requires_grad();
      sum(leaf.to(to) * x).backward();
      EXPECT_EQ(leaf.grad().to_vector<float>(), wanted);
    }
}

TEST_P(CardHomes, TheBoundIsKeptAndThePinnedAreNamed) {
  constexpr int64_t kBytes = 4 << 20;
  memory::set_near_limit(3 * kBytes, kCard, tier);
  std::vector<Tensor> all;
  for (int i = 0; i < 8; ++i) all.push_back(filled({1 << 20}, i).to(tier));
  for (int round = 0; round < 3; ++round)
    for (size_t i = 0; i < all.size(); ++i) {
      if (i + 1 < all.size()) all[i + 1].storage()->prefetch();
      all[i].add_(1.0);
      EXPECT_LE(stats().bytes, 3 * kBytes);
    }
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(min(all[i]).item<float>(), static_cast<float>(i) + 3);
    EXPECT_EQ(max(all[i]).item<float>(), static_cast<float>(i) + 3);
  }
  const Pin a(all[0]), b(all[1]), c(all[2]);
  const std::string text = message<MemoryError>([&] { all[3].add_(1.0); });
  EXPECT_TRUE(has(text, "at most 12582912 bytes may be")) << text;
}

// What is queued before a block leaves uses it still, however late the card gets there.
TEST_P(CardHomes, ABlockLeavesAfterTheWorkThatWasQueued) {
  constexpr int64_t n = 1 << 20;
  memory::set_near_limit(2 * 4 * n, kCard, tier);
  std::vector<Tensor> all;
  for (int i = 0; i < 4; ++i) all.push_back(filled({n}, i).to(tier));
  send_home();
  const Tensor slow = filled({4096, 4096}, 1);
  Tensor last = slow;
  for (int round = 0; round < 20; ++round) {
    // Work ahead of each use, so that the copies would overtake it if they could.
    last = matmul(slow, slow);
    for (Tensor& t : all) t.add_(1.0);
  }
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(min(all[i]).item<float>(), static_cast<float>(i) + 20);
    EXPECT_EQ(max(all[i]).item<float>(), static_cast<float>(i) + 20);
  }
  // On another stream, which the program orders.
  const Stream side = Stream::create();
  side.wait(current_stream());
  {
    const StreamScope scope(side);
    for (Tensor& t : all) t.mul_(2.0);
  }
  current_stream().wait(side);
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(max(all[i]).item<float>(), 2 * (static_cast<float>(i) + 20));
}

TEST_P(CardHomes, TrainingIsTheSameToTheBit) {
  struct Result {
    std::vector<float> losses, weights;
  };
  const auto train = [](Tier where) {
    const Tensor x = ramp({64, 96}, 0.0002), y = (arange(64) % 10).to(kCard);
    const memory::TierScope scope(where);
    std::vector<Tensor> w;
    for (const Shape& s : {Shape{96, 160}, Shape{160, 160}, Shape{160, 160}, Shape{160, 10}}) {
      w.push_back((ramp(s, 1e-5) * 0.1).detach().to(where));
      w.back().set_requires_grad();
    }
    Result r;
    for (int step = 0; step < 5; ++step) {
      Tensor h = x;
      for (size_t i = 0; i < w.size(); ++i) h = i + 1 < w.size() ? gelu(matmul(h, w[i])) : matmul(h, w[i]);
      const Tensor loss = cross_entropy(h, y);
      loss.backward();
      r.losses.push_back(loss.item<float>());
      const NoGrad guard;
      for (Tensor& p : w) {
        p.add_(p.grad(), -0.5);
        p.set_grad({});
      }
    }
    for (const Tensor& p : w) {
      const std::vector<float> v = p.to_vector<float>();
      r.weights.insert(r.weights.end(), v.begin(), v.end());
    }
    return r;
  };
  const Result wanted = train(Tier());
  memory::reset_peak(kCard, tier);
  memory::set_near_limit(700 << 10, kCard, tier);
  const Result got = train(tier);
  EXPECT_EQ(got.losses, wanted.losses);
  EXPECT_EQ(std::memcmp(got.weights.data(), wanted.weights.data(), 4 * wanted.weights.size()), 0);
  EXPECT_GT(stats().bytes_in, 0);
  send_home();
  EXPECT_EQ(memory::stats(kCard, tier).blocks, 0);
  EXPECT_EQ(stats().bytes, 0);
}

TEST_P(CardHomes, AGraphHoldsWhatIsNear) {
  constexpr int64_t n = 1 << 20;
  memory::set_near_limit(3 * 4 * n, kCard, tier);
  Tensor x = filled({n}, 0).to(tier), other = filled({n}, 1).to(tier);
  x.add_(0.0);
  send_home();
  {
    Graph refused;
    const std::string text = message<DeviceError>([&] { refused.capture([&] { x.add_(1.0); }); });
    EXPECT_TRUE(has(text, "cannot bring it")) << text;
  }
  x.add_(0.0);  // brings it
  {
    Graph graph;
    graph.capture([&] { x.add_(1.0); });
    EXPECT_EQ(max(x).item<float>(), 0.0F);
    for (int i = 0; i < 4; ++i) {
      graph.replay();
      for (int k = 0; k < 3; ++k) other.add_(1.0);
      std::vector<Tensor> more;
      for (int k = 0; k < 3; ++k) more.push_back(filled({n}, k).to(tier));
    }
    EXPECT_TRUE(x.storage()->resident());
    EXPECT_EQ(min(x).item<float>(), 4.0F);
  }
  send_home();
  EXPECT_FALSE(x.storage()->resident());
  EXPECT_EQ(max(x).item<float>(), 4.0F);
  EXPECT_EQ(max(other).item<float>(), 13.0F);
}

TEST_P(CardHomes, WhatNobodyPinsLeavesForTensorsOfTheCardsOwn) {
  constexpr int64_t n = 16 << 20;  // 64 MiB
  std::vector<Tensor> all;
  for (int i = 0; i < 4; ++i) all.push_back(filled({n}, i).to(tier));
  EXPECT_GE(stats().bytes, 4 * 4 * n);
  memory::release_cached();
  for (const Tensor& t : all) t.storage()->prefetch();
  for (const Tensor& t : all) Pin(t, Access::read);
  EXPECT_GE(stats().bytes, 4 * 4 * n);
  const auto total = static_cast<double>(properties().memory_bytes);
  const double before = set_memory_fraction(static_cast<double>(memory::stats(kCard).reserved + (32 << 20)) / total);
  EXPECT_NO_THROW(filled({n}, 1));
  EXPECT_LT(stats().bytes, 4 * 4 * n);  // as many as were wanted
  const Pin held(all[0], Access::read), also(all[1], Access::read);
  EXPECT_THROW(filled({4 * n}, 1), MemoryError);
  set_memory_fraction(before);
  for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(max(all[i]).item<float>(), static_cast<float>(i));
}

TEST_P(CardHomes, AThousandFetchesLeaveNothingBehind) {
  memory::set_near_limit(2 << 20, kCard, tier);
  std::vector<Tensor> all;
  for (int i = 0; i < 4; ++i) all.push_back(filled({1 << 18}, i).to(tier));
  send_home();
  synchronize();
  const memory::Stats before = memory::stats(kCard);
  const int64_t locked = locked_bytes_used();
  for (int i = 0; i < 1000; ++i) {
    Tensor& t = all[static_cast<size_t>(i) % 4];
    const Pin pin(t, i % 3 == 0 ? Access::write : Access::read);
    all[static_cast<size_t>(i + 1) % 4].storage()->prefetch();
  }
  send_home();
  synchronize();
  EXPECT_EQ(memory::stats(kCard).live_total, before.live_total);
  EXPECT_EQ(memory::stats(kCard).blocks, before.blocks);
  EXPECT_LE(locked_bytes_used(), locked + (int64_t{64} << 20));  // pieces on their way to a disk
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(max(all[i]).item<float>(), static_cast<float>(i));
}

class PageLocked : public Unified {};

int64_t status_bytes(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.rfind(field + ":", 0) == 0) return 1024 * std::strtoll(line.c_str() + field.size() + 1, nullptr, 10);
  return 0;
}

TEST_F(PageLocked, WhatIsReportedIsWhatTheSystemSays) {
  memory::release_cached();
  synchronize();
  const auto system = [] {
    return std::vector<int64_t>{status_bytes("VmPin"), status_bytes("VmLck"), status_bytes("VmRSS")};
  };
  const std::vector<int64_t> before = system();
  const int64_t reserved = memory::stats(Device::cpu(), Tier::pinned).reserved;
  std::vector<Tensor> all;
  int64_t asked = 0;
  for (int64_t i = 0; i < 24; ++i) {
    const int64_t bytes = (int64_t{3} << 20) * (i + 1) / 2 + 12345 * i + 1;
    all.push_back(empty({{bytes}, DType::u8, Device::cpu(), std::nullopt}, Tier::pinned));
    asked += bytes;
  }
  const int64_t taken = memory::stats(Device::cpu(), Tier::pinned).reserved - reserved;
  EXPECT_LE(static_cast<double>(taken), 1.01 * static_cast<double>(asked));
  const std::vector<int64_t> after = system();
  bool agrees = false;
  for (size_t i = 0; i < after.size(); ++i) {
    const double said = static_cast<double>(after[i] - before[i]);
    RecordProperty(i == 0 ? "VmPin" : i == 1 ? "VmLck" : "VmRSS", std::to_string(said));
    agrees = agrees || std::abs(said / static_cast<double>(taken) - 1) <= 0.01;
  }
  EXPECT_TRUE(agrees) << "reported " << taken << ", VmPin, VmLck, VmRSS rose by " << after[0] - before[0] << ", "
                      << after[1] - before[1] << ", " << after[2] - before[2];
  all.clear();
  memory::release_cached();
  EXPECT_LE(memory::stats(Device::cpu(), Tier::pinned).reserved, reserved);
  EXPECT_LT(status_bytes("VmRSS"), after[2] - taken / 2);
}

TEST_F(PageLocked, WhatTheSystemRefusesNamesItsLimits) {
  const std::string text = message<MemoryError>([] {
    static_cast<void>(empty({{int64_t{1} << 46}, DType::u8, Device::cpu(), std::nullopt}, Tier::pinned));
  });
  EXPECT_TRUE(has(text, "cannot page-lock 70368744177664 bytes")) << text;
  EXPECT_TRUE(has(text, "ulimit -l")) << text;
  const int64_t previous = memory::set_limit(1 << 20, Device::cpu(), Tier::pinned);
  EXPECT_THROW(empty({{1 << 22}, DType::u8, Device::cpu(), std::nullopt}, Tier::pinned), MemoryError);
  memory::set_limit(previous, Device::cpu(), Tier::pinned);
  EXPECT_THROW(empty({{int64_t{1} << 46}, DType::u8, kCard, std::nullopt}, Tier::pinned), MemoryError);
}

}  // namespace
}  // namespace strata::cuda
