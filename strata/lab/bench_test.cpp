#include "strata/lab/bench.h"

#include <algorithm>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "strata/cuda/runtime.h"

namespace strata::lab {
namespace {

BenchOptions quick(Device device) {
  BenchOptions o;
  o.device = device;
  o.seconds = 0.002;
  o.dtypes = dtype_bit(DType::f32) | dtype_bit(DType::bf16);
  o.limits = {.gb_s = 4000, .gflops = 50000, .matmul_f32 = 50000, .matmul_bf16 = 700000};
  return o;
}

TEST(Bench, TimesForwardAndBackward) {
  BenchOptions o = quick(Device::cpu());
  o.dtypes = dtype_bit(DType::f32);
  const std::vector<BenchResult> all = bench(*OpBase::find("rms_norm"), o);
  ASSERT_EQ(all.size(), 2u);
  for (const BenchResult& r : all) {
    EXPECT_GT(r.seconds, 0);
    EXPECT_GT(r.gb_s, 0);
    EXPECT_FALSE(r.host_bound);
    EXPECT_TRUE(r.problem.empty());
  }
  EXPECT_TRUE(all[1].backward);
  EXPECT_NE(table(all).find("rms_norm"), std::string::npos);
}

TEST(Bench, SaysWhatCouldNotBeTimed) {
  BenchResult r;
  r.op = "no_op";
  r.problem = "it has no kernel";
  const std::string text = table({r});
  EXPECT_NE(text.find("no_op"), std::string::npos) << text;
  EXPECT_NE(text.find("it has no kernel"), std::string::npos) << text;
  EXPECT_EQ(nlohmann::json::parse(to_json({r}, {}))["results"][0]["problem"], "it has no kernel");
  r.problem.clear();
  r.seconds = 1e-6;
  r.gb_s = r.fraction = 0.5;
  r.host_bound = true;
  EXPECT_NE(table({r}).find("50% h"), std::string::npos) << table({r});
  EXPECT_EQ(nlohmann::json::parse(to_json({r}, {}))["results"][0]["bound"], "host");
}

TEST(Bench, OnACard) {
  if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  for (const char* name : {"softmax", "matmul", "embedding", "normal", "sum", "index_select", "cat"}) {
    const std::vector<BenchResult> all = bench(*OpBase::find(name), quick(Device::cuda()));
    ASSERT_FALSE(all.empty()) << name;
    for (const BenchResult& r : all) {
      EXPECT_TRUE(r.problem.empty()) << name << ": " << r.problem;
      EXPECT_GT(r.seconds, 1e-7) << name;
      EXPECT_LT(r.gb_s, 50000) << name << " is faster than any memory: are its launches waited for?";
    }
  }
}

}  // namespace
}  // namespace strata::lab
