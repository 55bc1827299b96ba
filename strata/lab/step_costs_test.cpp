#include "strata/lab/step_costs.h"

#include <cmath>
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/strata.h"

namespace strata::lab {
namespace {

struct Net : nn::Module {
  nn::Linear up = register_module("up", nn::Linear(8, 16));
  nn::Linear down = register_module("down", nn::Linear(16, 8));
  Tensor forward(const Tensor& x) const { return down(relu(up(x))); }
};

Recording step() {
  Net net;
  optim::AdamW optimizer(net.named_parameters(), {.lr = 0.1});
  const Tensor x = ones({4, 8});
  return record([&] {
    sum(net.forward(x)).backward();
    optimizer.step();
  });
}

const CostRow* row(const std::vector<CostRow>& rows, std::string_view name) {
  for (const CostRow& r : rows)
    if (r.name == name) return &r;
  return nullptr;
}

TEST(StepCosts, SumByOpModuleAndPhase) {
  const Recording r = step();
  for (const CostBy by : {CostBy::op, CostBy::module, CostBy::phase}) {
    double flops = 0, bytes = 0;
    for (const CostRow& c : step_costs(r, by)) flops += c.flops, bytes += c.bytes;
    double all_flops = 0, all_bytes = 0;
    for (size_t i = 0; i < r.calls.size(); ++i)
      if (r.is_work(i)) all_flops += r.calls[i].cost.flops, all_bytes += r.calls[i].cost.bytes;
    EXPECT_GT(all_flops, 0);
    EXPECT_NEAR(flops, all_flops, 1e-9 * all_flops);
    EXPECT_NEAR(bytes, all_bytes, 1e-9 * all_bytes);
  }
  const std::vector<CostRow> modules = step_costs(r, CostBy::module);
  ASSERT_TRUE(row(modules, "up"));
  ASSERT_TRUE(row(modules, "down"));
  const std::vector<CostRow> phases = step_costs(r, CostBy::phase);
  ASSERT_TRUE(row(phases, "forward") && row(phases, "backward") && row(phases, "update"));
  EXPECT_EQ(row(phases, "update")->calls, 1);
  // Parameters 8*16 + 16 + 16*8 + 8 of f32: read and written, their gradients read, two states read and written.
  EXPECT_EQ(row(phases, "update")->bytes, 280.0 * 4 * (2 + 1 + 2 * 2));
}

TEST(StepCosts, LimitsDecideTheOrder) {
  const Recording r = step();
  const Limits limits{.gb_s = 10, .gflops = 1, .matmul_f32 = 0.001, .matmul_bf16 = 1};
  const std::vector<CostRow> rows = step_costs(r, CostBy::op, limits);
  EXPECT_TRUE(rows[0].name.find("linear") != std::string::npos || rows[0].name.find("mm") != std::string::npos ||
              rows[0].name.find("matmul") != std::string::npos)
      << rows[0].name;
  for (size_t i = 1; i < rows.size(); ++i) EXPECT_GE(rows[i - 1].limit, rows[i].limit);
  const std::string table = step_cost_table(r, CostBy::op, limits, 2);
  EXPECT_NE(table.find("least ms"), std::string::npos) << table;
  EXPECT_NE(table.find(" more)"), std::string::npos) << table;
  EXPECT_EQ(step_cost_table(r, CostBy::op).find("least ms"), std::string::npos);
}

Recording of_modules(const std::vector<const char*>& paths) {
  const Tensor x = ones({4});
  return record([&] {
    for (const char* path : paths) {
      const memory::ModuleScope in(path);
      exp(x);
    }
  });
}

TEST(StepCosts, ModulesThatDifferInANumberAreOne) {
  StepCosts costs;
  costs.add(
      of_modules({"blocks.0.norm", "blocks.1.norm", "blocks.1", "layers.0", "layers.1", "0.conv", "1.conv", "2"}));
  std::map<std::string, int64_t> calls;
  for (const CostRow& r : costs.rows(CostBy::module)) calls[r.name] = r.calls;
  const std::map<std::string, int64_t> wanted{{"blocks.*.norm", 2}, {"blocks.*", 1}, {"layers.0", 1},
                                              {"layers.1", 1},      {"*.conv", 2},   {"2", 1}};
  EXPECT_EQ(calls, wanted);
  EXPECT_EQ(costs.parts().size(), 8u);
}

TEST(StepCosts, AddRecordings) {
  const Recording r = step();
  StepCosts once, thrice, twice_more;
  once.add(r);
  thrice.add(r, 3);
  twice_more.add(r);
  twice_more.add(r, 2);
  EXPECT_EQ(thrice.all().calls, 3 * once.all().calls);
  EXPECT_EQ(thrice.all().flops, 3 * once.all().flops);
  EXPECT_NEAR(thrice.outside, 3 * once.outside, 1e-12);
  EXPECT_EQ(twice_more.all().bytes, thrice.all().bytes);
  EXPECT_EQ(twice_more.parts().size(), once.parts().size());
  // Every second of the recording is somebody's.
  double seconds = r.outside;
  for (const RecordedCall& c : r.calls) seconds += c.seconds;
  EXPECT_NEAR(once.all().seconds + once.outside, seconds, 1e-9);
}

const Op<Tensor(const Tensor&)> inner_op{{
    .schema = "step_costs_test_dynamic(Tensor x) -> Tensor",
    .doc = "tanh(tanh(x)).",
    .dynamic = [](const Tensor& x) { return tanh(tanh(x)); },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({3, 5}));
        },
    .reference =
        [](const Tensor& x) {
          std::vector<double> v = x.to_vector<double>();
          for (double& e : v) e = std::tanh(std::tanh(e));
          return from_span<double>(v, x.shape());
        },
}};

TEST(StepCosts, WhatAKernelCallsCountsForIt) {
  const Tensor x = ones({4});
  StepCosts costs;
  const Recording r = record([&] { inner_op(x); });
  costs.add(r);
  ASSERT_EQ(costs.parts().size(), 1u);
  double seconds = 0;
  for (const RecordedCall& c : r.calls) seconds += c.seconds;
  EXPECT_NEAR(costs.all().seconds, seconds, 1e-12);
}

TEST(StepCosts, TimesStandInTheTableOfARealRun) {
  const Recording r = step();
  EXPECT_NE(step_cost_table(r, CostBy::phase).find(" ms "), std::string::npos);
  const DeviceScope dry(Device::meta());
  EXPECT_EQ(step_cost_table(step(), CostBy::phase).find(" ms "), std::string::npos);
}

}  // namespace
}  // namespace strata::lab
