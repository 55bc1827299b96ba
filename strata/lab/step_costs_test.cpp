#include "strata/lab/step_costs.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace strata::lab
