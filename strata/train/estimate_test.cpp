#include "strata/train/estimate.h"

#include <algorithm>
#include <map>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace strata {
namespace {

TrainConfig config_of(std::vector<std::string> more) {
  more.insert(more.begin(), {"model.layers=2", "model.dim=64", "model.heads=4", "model.context=64", "train.batch=4"});
  return parse_config("", "test", more);
}

// What its lifetimes say, against what the allocator of the meta device counted: blocks of whole cache lines, and also
// what rules take between calls.
TEST(DryStep, PeaksWhereTheAllocatorSaysSo) {
  for (const std::vector<std::string>& more :
       std::vector<std::vector<std::string>>{{"train.accumulate=2"},
                                             {"model.family=llama", "train.optimizer=lion"},
                                             {"train.dtype=bf16", "train.device=cuda"}}) {
    const DryStep step = record_dry_step(config_of(more));
    const auto [peak, at] = step.step.peak_bytes();
    EXPECT_GE(at, 0);
    EXPECT_LE(peak, step.peak) << more[0];
    EXPECT_GE(static_cast<double>(peak), 0.999 * static_cast<double>(step.peak)) << more[0];
  }
}

TEST(DryStep, CountsOperations) {
  const DryStep step = record_dry_step(config_of({}));
  // 6 operations a weight and token, those of the positions and the vocabulary's table aside, and attention's.
  const double tokens = 4 * 64, weights = 2 * 12 * 64 * 64 + 64 * 256;
  EXPECT_EQ(step.tokens, 4 * 64);
  const double flops = step.costs().all().flops;
  EXPECT_GT(flops, 6 * weights * tokens);
  EXPECT_LT(flops, 1.6 * 6 * weights * tokens);
  EXPECT_EQ(step.costs().all().limit, 0);
  const lab::StepCosts slow = step.costs({.gb_s = 1, .gflops = 1, .matmul_f32 = 1, .matmul_bf16 = 1});
  EXPECT_GE(slow.all().limit, flops * 1e-9);
  EXPECT_EQ(slow.rows(lab::CostBy::phase).size(), 3u);
}

TEST(DryStep, AccumulatesEveryPass) {
  const auto flops = [](int passes) {
    return record_dry_step(config_of({"train.accumulate=" + std::to_string(passes)})).costs().rows(lab::CostBy::phase);
  };
  const auto of = [](const std::vector<lab::CostRow>& rows, std::string_view phase) {
    for (const lab::CostRow& r : rows)
      if (r.name == phase) return r.flops;
    return 0.0;
  };
  const auto two = flops(2), three = flops(3), nine = flops(9);
  const double pass = of(three, "forward") - of(two, "forward");
  EXPECT_GT(pass, 0);
  EXPECT_NEAR(of(nine, "forward"), of(two, "forward") + 7 * pass, 1e-6 * of(nine, "forward"));
  EXPECT_NEAR(of(nine, "update"), of(two, "update"), 1);
}

TEST(DryStep, ForecastsMemoryOverTime) {
  const DryStep step = record_dry_step(config_of({}));
  const auto data_of = [&](const lab::Limits& limits) {
    const std::string html = step.timeline_html("a <step>", "cpu", limits);
    EXPECT_NE(html.find("a &lt;step&gt;"), std::string::npos);
    const std::string open = "<script id=\"data\" type=\"application/json\">";
    const size_t begin = html.find(open) + open.size();
    return nlohmann::json::parse(html.substr(begin, html.find("</script>", begin) - begin));
  };
  const lab::Limits limits{.gb_s = 10, .gflops = 10, .matmul_f32 = 10, .matmul_bf16 = 10};
  const auto data = data_of(limits);
  EXPECT_EQ(data["forecast"], true);
  EXPECT_EQ(data["device"], "cpu");
  ASSERT_EQ(data["marks"].size(), 3u);
  EXPECT_EQ(data["marks"][1][1], "backward");
  int64_t now = 0, peak = 0;
  double last = 0;
  std::map<int64_t, int64_t> held;
  for (const auto& e : data["events"]) {
    EXPECT_GE(e[0].get<double>(), last);
    last = e[0];
    const int64_t block = e[1], bytes = e[2];
    now += bytes - held[block];
    held[block] = bytes;
    peak = std::max(peak, now);
  }
  EXPECT_EQ(peak, step.step.peak_bytes().first);
  const auto has = [&](std::string_view tag) {
    return std::any_of(data["events"].begin(), data["events"].end(),
                       [&](const auto& e) { return data["tags"][e[3].template get<size_t>()] == tag; });
  };
  for (const char* tag : {"parameter", "gradient", "optimizer", "activation", "data"}) EXPECT_TRUE(has(tag)) << tag;
  const double end = last * data["tick"].get<double>(), least = step.costs(limits).all().limit;
  EXPECT_NEAR(end, least, 1e-3 * least);
  EXPECT_EQ(data_of({})["events"].back()[0], 0);
}

}  // namespace
}  // namespace strata
