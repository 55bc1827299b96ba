// Budgets through the C interface: the numbers of the loop without one.

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/c/handles.h"
#include "strata/c/strata.h"
#include "strata/io/temp_dir.h"
#include "strata/memory/allocator.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"

namespace strata::c {
namespace {

#define ASSERT_OK(...) ASSERT_EQ(__VA_ARGS__, STRATA_OK) << strata_error_text()

struct Net {
  explicit Net(int64_t rows = 64) {
    Generator g(1);
    for (int i = 0; i < 4; ++i) {
      names.push_back("blocks." + std::to_string(i) + ".weight");
      weights.push_back((randn({256, 256}, {}, g) * Scalar(0.05)).detach().set_requires_grad());
    }
    x = randn({rows, 256}, {}, g);
    for (size_t i = 0; i < weights.size(); ++i) {
      handles.push_back(handle_of(weights[i]));
      shown.push_back(names[i].c_str());
    }
    const strata_param_group group = {handles.data(), shown.data(), handles.size(), "{\"lr\": 0.01}"};
    EXPECT_EQ(strata_optimizer_create("adamw", &group, 1, &optimizer), STRATA_OK) << strata_error_text();
  }
  ~Net() { strata_optimizer_release(optimizer); }
  double backward() const {
    Tensor h = x;
    for (const Tensor& w : weights) h = tanh(matmul(h, w)) + h;
    const Tensor loss = mean(h * h);
    loss.backward();
    return loss.item();
  }
  std::vector<std::string> names;
  std::vector<Tensor> weights;
  std::vector<strata_tensor*> handles;
  std::vector<const char*> shown;
  Tensor x;
  strata_optimizer* optimizer = nullptr;
};

TEST(BudgetOfC, KeepsTheNumbersOfTheLoopWithoutOne) {
  const io::TempDir dir;
  const Net here, there;
  const std::string options = "{\"disk\": \"" + dir.path() + "\", \"state\": \"disk\", \"parameters\": \"disk\"}";
  strata_budget* budget = nullptr;
  ASSERT_OK(strata_budget_begin(there.optimizer, options.c_str(), &budget));
  for (int step = 0; step < 5; ++step) {
    EXPECT_EQ(there.backward(), here.backward()) << step;
    double want = 0, got = 0;
    ASSERT_OK(strata_optimizer_step(here.optimizer, step % 2, &want));
    ASSERT_OK(strata_budget_step(budget, step % 2, &got));
    EXPECT_EQ(got, want);
    ASSERT_OK(strata_optimizer_zero_grad(here.optimizer));
    ASSERT_OK(strata_optimizer_zero_grad(there.optimizer));
  }
  EXPECT_NE(std::string(strata_budget_describe(budget)).find("on disk"), std::string::npos)
      << strata_budget_describe(budget);
  EXPECT_GT(strata_budget_peak(budget), 0);
  ASSERT_OK(strata_budget_end(budget));
  for (size_t i = 0; i < here.weights.size(); ++i)
    EXPECT_EQ(there.weights[i].detach().to(Tier::host).to_vector<float>(), here.weights[i].to_vector<float>());
}

// What the loop takes, weights, gradients, state and activations together, is more than the budget.
TEST(BudgetOfC, ALoopThatTakesMoreRunsWithin) {
  const io::TempDir dir;
  constexpr int kSteps = 5;
  std::vector<double> losses;
  std::vector<std::vector<float>> weights;
  memory::reset_peak(Device::cpu());
  const int64_t before = memory::stats(Device::cpu()).live_total;
  {
    const Net net(2048);
    for (int step = 0; step < kSteps; ++step) {
      losses.push_back(net.backward());
      ASSERT_OK(strata_optimizer_step(net.optimizer, 0, nullptr));
      ASSERT_OK(strata_optimizer_zero_grad(net.optimizer));
    }
    for (const Tensor& w : net.weights) weights.push_back(w.to_vector<float>());
  }
  const int64_t whole = memory::stats(Device::cpu()).peak_total - before;
  for (const int64_t percent : {85, 60}) {
    SCOPED_TRACE(percent);
    const int64_t device = before + whole / 100 * percent;
    const Net net(2048);
    const std::string options = "{\"device\": \"" + std::to_string(device) + "\", \"disk\": \"" + dir.path() + "\"}";
    strata_budget* budget = nullptr;
    ASSERT_OK(strata_budget_begin(net.optimizer, options.c_str(), &budget));
    for (int step = 0; step < kSteps; ++step) {
      EXPECT_EQ(net.backward(), losses[static_cast<size_t>(step)]) << step;
      ASSERT_OK(strata_budget_step(budget, 0, nullptr));
      ASSERT_OK(strata_optimizer_zero_grad(net.optimizer));
    }
    EXPECT_LE(strata_budget_peak(budget), device) << strata_budget_describe(budget);
    ASSERT_OK(strata_budget_end(budget));
    for (size_t i = 0; i < weights.size(); ++i)
      EXPECT_EQ(net.weights[i].detach().to(Tier::host).to_vector<float>(), weights[i]);
  }
}

TEST(BudgetOfC, RefusesWhatMakesNoSense) {
  const Net net;
  strata_budget* budget = nullptr;
  EXPECT_EQ(strata_budget_begin(nullptr, nullptr, &budget), STRATA_VALUE_ERROR);
  EXPECT_EQ(strata_budget_begin(net.optimizer, nullptr, nullptr), STRATA_VALUE_ERROR);
  for (const char* options : {"[]", "{\"device\": 3}", "{\"device\": \"many\"}", "{\"devices\": \"1GiB\"}"}) {
    EXPECT_EQ(strata_budget_begin(net.optimizer, options, &budget), STRATA_VALUE_ERROR) << options;
    EXPECT_NE(std::string(strata_error_text()), "");
  }
  EXPECT_EQ(budget, nullptr);
  EXPECT_EQ(strata_budget_step(nullptr, 0, nullptr), STRATA_VALUE_ERROR);
  EXPECT_EQ(strata_budget_peak(nullptr), -1);
  EXPECT_EQ(strata_budget_end(nullptr), STRATA_OK);
  // One at a time; a handle that goes first keeps what it has.
  ASSERT_OK(strata_budget_begin(net.optimizer, "{\"device\": \"1GiB\"}", &budget));
  strata_budget* second = nullptr;
  EXPECT_EQ(strata_budget_begin(net.optimizer, "{\"device\": \"1GiB\"}", &second), STRATA_VALUE_ERROR);
  (void)net.backward();
  EXPECT_EQ(strata_budget_step(budget, -1, nullptr), STRATA_VALUE_ERROR);
  ASSERT_OK(strata_budget_end(budget));
}

}  // namespace
}  // namespace strata::c
