#include "strata/lab/profile.h"

#include <gtest/gtest.h>

#include "strata/strata.h"

namespace strata::lab {
namespace {

int64_t calls(OpProfile& p, std::string_view name) {
  for (const OpProfile::Row& r : p.rows()) {
    if (r.op->name() == name) return r.calls;
  }
  return 0;
}

TEST(OpProfile, CountsForwardAndBackwardAndSumsToTheWhole) {
  Tensor x = rand({64, 64});
  x.set_requires_grad(true);
  OpProfile profile;
  for (int i = 0; i < 3; ++i) backward({sum(matmul(x, x))});
  EXPECT_EQ(calls(profile, "sum"), 3);
  EXPECT_EQ(calls(profile, "matmul"), 9);  // one forward and two backward each
  double seconds = 0;
  for (const OpProfile::Row& r : profile.rows()) {
    EXPECT_GE(r.seconds, 0) << r.op->name();
    seconds += r.seconds;
  }
  EXPECT_GT(seconds, 0);
  EXPECT_LE(seconds, profile.elapsed());
  const std::string table = profile.table();
  EXPECT_NE(table.find("matmul"), std::string::npos) << table;
  EXPECT_NE(table.find("outside"), std::string::npos) << table;
}

TEST(OpProfile, OnADeviceTimesTheStream) {
  if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  const Tensor x = rand({2048, 2048}).to(Device::cuda());
  matmul(x, x);
  cuda::synchronize();
  OpProfile profile(Device::cuda());
  for (int i = 0; i < 5000; ++i) add(x, x);
  EXPECT_EQ(calls(profile, "add"), 5000);
  const double seconds = profile.rows().front().seconds;
  EXPECT_GT(seconds, 5000 * 2e-6);  // 50 MB each
  EXPECT_LE(seconds, profile.elapsed());
}

TEST(OpProfile, IsTheSameInParts) {
  const Tensor x = rand({4});
  OpProfile profile;
  for (int i = 0; i < 10000; ++i) exp(x);  // more than a part of a recording
  EXPECT_EQ(calls(profile, "exp"), 10000);
  EXPECT_EQ(profile.costs().parts().size(), 1u);
  EXPECT_EQ(profile.costs().all().bytes, 10000.0 * 2 * 16);
}

TEST(OpProfile, ByModuleAndPhaseBesideTheLimits) {
  nn::Sequential net(nn::Linear(32, 32), nn::ReLU());
  const Tensor x = rand({16, 32});
  OpProfile profile(Device::cpu(), {.gb_s = 1e-3, .gflops = 1e-3, .matmul_f32 = 1e-3});
  sum(net(x)).backward();
  const std::string modules = profile.table(CostBy::module), phases = profile.table(CostBy::phase);
  EXPECT_NE(modules.find("\n0 "), std::string::npos) << modules;
  EXPECT_NE(modules.find("of limit"), std::string::npos) << modules;
  EXPECT_NE(profile.table(CostBy::module, 1).find(" more)"), std::string::npos);
  EXPECT_NE(phases.find("backward"), std::string::npos) << phases;
  EXPECT_EQ(OpProfile().table().find("of limit"), std::string::npos);
}

TEST(OpProfile, ACallThatThrowsLeavesNothingOpen) {
  OpProfile profile;
  EXPECT_THROW(matmul(rand({2, 3}), rand({2, 3})), ShapeError);
  add(rand({2}), rand({2}));
  EXPECT_EQ(calls(profile, "add"), 1);
  EXPECT_EQ(calls(profile, "matmul"), 0);
}

TEST(OpProfile, ResetForgets) {
  OpProfile profile;
  matmul(rand({64, 64}), rand({64, 64}));
  const double before = profile.elapsed();
  profile.reset();
  EXPECT_LT(profile.elapsed(), before);
  add(rand({2}), rand({2}));
  EXPECT_EQ(calls(profile, "matmul"), 0);
  EXPECT_EQ(calls(profile, "add"), 1);
}

TEST(OpProfile, EndsWithItsScope) {
  int64_t before = 0;
  {
    OpProfile profile;
    add(rand({2}), rand({2}));
    before = calls(profile, "add");
  }
  add(rand({2}), rand({2}));
  EXPECT_EQ(before, 1);
}

}  // namespace
}  // namespace strata::lab
