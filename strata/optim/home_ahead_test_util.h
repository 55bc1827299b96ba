#pragma once
// What tests of updates that run after step() share: a home in memory, parameters there, and steps compared bit for
// bit.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "strata/memory/home_test_util.h"
#include "strata/memory/tiers.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/optim/home.h"
#include "strata/optim/optim.h"
#include "strata/optim/optim_test_util.h"

namespace strata::optim {
using Who = StateHome::Who;

inline const Tier kAhead = Tier::named("home of updates");

inline memory::TestHome& home() {
  static memory::TestHome* at = [] {
    auto made = std::make_unique<memory::TestHome>();
    memory::TestHome* h = made.get();
    memory::register_backend(*new memory::HomedMemory("updates", DeviceType::cpu, kAhead, std::move(made)));
    return h;
  }();
  return *at;
}

inline std::vector<uint8_t> bytes(const Tensor& t) {
  const Pin pin(t, Access::read);
  if (t.nbytes() == 0) return {};
  const auto* p = static_cast<const uint8_t*>(t.raw_data());
  return {p, p + t.nbytes()};
}

// A parameter of these elements, which is at home where they are to be.
inline Tensor leaf_at(const Tensor& t, bool away) {
  Tensor p = leaf(t).detach();
  if (away) p = p.to(kAhead);
  p.set_requires_grad();
  EXPECT_EQ(p.tier() == kAhead, away);
  return p;
}

inline const std::vector<Shape> kShapes{{37}, {64, 33}, {}, {0}, {3, 17, 5}, {4097}, {9, 21}};

inline NamedTensors make_params(DType dtype, bool away, const std::vector<Shape>& shapes = kShapes) {
  home();
  NamedTensors all;
  Samples random(DType::f32, 3);
  for (size_t i = 0; i < shapes.size(); ++i) {
    all.emplace_back("p" + std::to_string(i), leaf_at(random.uniform(shapes[i], -1, 1, dtype), away));
  }
  return all;
}
// Gradients are at home where their parameters are.
inline void set_grads(const NamedTensors& params, DType dtype, uint64_t seed, double factor = 1) {
  Samples random(DType::f32, seed);
  for (const auto& [name, p] : params) {
    Tensor t = p;
    const Tensor g = to(random.tensor(p.shape()) * Scalar(factor), dtype);
    t.set_grad(p.tier() == kAhead ? g.to(kAhead) : g);
  }
}
inline void expect_same(const Optimizer& got, const Optimizer& want) {
  const NamedTensors a = got.params(), b = want.params();
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) ASSERT_EQ(bytes(a[i].second), bytes(b[i].second)) << a[i].first;
  const StateDict s = got.state_dict(), t = want.state_dict();
  ASSERT_EQ(s.size(), t.size());
  for (const auto& [key, value] : t) {
    ASSERT_TRUE(s.contains(key)) << key;
    ASSERT_EQ(bytes(s.at(key)), bytes(value)) << key;
  }
}
inline const StateHome kHome{.where = kAhead, .ahead = true};

class Ahead : public ::testing::Test {
 protected:
  void SetUp() override { live_ = memory::backend(Device::cpu(), kAhead_()).stats(Device::cpu()).live_total; }
  void TearDown() override {
    home().hold(false);
    EXPECT_EQ(memory::backend(Device::cpu(), kAhead).stats(Device::cpu()).live_total, live_);
    EXPECT_EQ(memory::near_stats(Device::cpu(), kAhead).pinned, 0);
    EXPECT_EQ(home().early_ends, 0);
  }
  static Tier kAhead_() {
    home();
    return kAhead;
  }
  int64_t live_ = 0;
};

}  // namespace strata::optim
