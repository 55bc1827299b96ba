// The C interface of optimizers and schedules: against the C++ classes, and what is refused.

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "strata/c/handles.h"
#include "strata/c/strata.h"
#include "strata/io/temp_dir.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/random/random.h"
#include "strata/optim/lr_schedule.h"
#include "strata/optim/record.h"
#include "strata/optim/schedule.h"

namespace strata::c {
namespace {

#define EXPECT_OK(...) EXPECT_EQ(__VA_ARGS__, STRATA_OK) << strata_error_text()
#define ASSERT_OK(...) ASSERT_EQ(__VA_ARGS__, STRATA_OK) << strata_error_text()

bool error_has(const std::string& part) {
  return std::string(strata_error_text()).find(part) != std::string::npos;
}

// Two parameters and their gradients of a step, the same in both languages.
struct Pair {
  Tensor a, b;
  Pair() {
    Generator g(1);
    a = randn({3, 5}, {}, g), b = randn({7}, {}, g);
  }
  void set_grads(uint64_t step) {
    Generator g(100 + step);
    a.set_grad(randn({3, 5}, {}, g)), b.set_grad(randn({7}, {}, g));
  }
  bool operator==(const Pair& o) const {
    return a.to_vector<float>() == o.a.to_vector<float>() && b.to_vector<float>() == o.b.to_vector<float>();
  }
};

strata_optimizer* created(const std::string& name, Pair& p, const char* options) {
  strata_tensor* params[] = {handle_of(p.a), handle_of(p.b)};
  const char* names[] = {"a", "b"};
  const strata_param_group group = {params, names, 2, options};
  strata_optimizer* o = nullptr;
  EXPECT_OK(strata_optimizer_create(name.c_str(), &group, 1, &o));
  return o;
}

class OptimizersOfC : public testing::TestWithParam<std::string> {};

TEST_P(OptimizersOfC, StepsSavesAndGoesOnAsTheClassDoes) {
  const io::TempDir dir;
  const std::string file = dir / "state.safetensors";
  Pair here, there;
  strata_optimizer* o = created(GetParam(), here, "{\"lr\": 0.01}");
  ASSERT_NE(o, nullptr);
  const auto other =
      optim::make_optimizer(GetParam(), {{.params = {{"a", there.a}, {"b", there.b}}, .options = {{"lr", 0.01}}}});
  uint64_t step = 0;
  const auto both = [&] {
    here.set_grads(step), there.set_grads(step);
    ++step;
    EXPECT_OK(strata_optimizer_step(o, 0, nullptr));
    other->step();
  };
  for (int i = 0; i < 3; ++i) both();
  EXPECT_TRUE(here == there);
  EXPECT_FALSE(here == Pair());
  ASSERT_OK(strata_optimizer_save(o, file.c_str()));
  strata_optimizer_release(o);
  o = created(GetParam(), here, "{\"lr\": 0.01}");
  ASSERT_OK(strata_optimizer_load(o, file.c_str()));
  both();
  EXPECT_TRUE(here == there);
  here.set_grads(9), there.set_grads(9);
  double norm = 0;
  EXPECT_OK(strata_optimizer_step(o, 0.5, &norm));
  EXPECT_EQ(norm, other->step_clipped(0.5));
  EXPECT_TRUE(here == there);
  EXPECT_OK(strata_optimizer_zero_grad(o));
  EXPECT_FALSE(here.a.grad().defined());
  strata_optimizer_release(o);
}
std::vector<std::string> all_names() {
  std::vector<std::string> names;
  for (const optim::OptimizerRecord* r : optim::optimizer_records()) names.emplace_back(r->name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Records, OptimizersOfC, testing::ValuesIn(all_names()),
                         [](const auto& info) { return info.param; });

TEST(OptimC, DescribesEveryRecord) {
  const auto optimizers = nlohmann::json::parse(strata_describe_optimizers());
  EXPECT_EQ(optimizers.size(), optim::optimizer_records().size());
  const auto schedules = nlohmann::json::parse(strata_describe_schedules());
  EXPECT_EQ(schedules.size(), optim::schedule_records().size());
}

TEST(OptimC, GroupsHaveTheirOptions) {
  Pair p;
  p.set_grads(0);
  strata_tensor *first = handle_of(p.a), *second = handle_of(p.b);
  const strata_param_group groups[] = {{&first, nullptr, 1, "{\"lr\": 1}"}, {&second, nullptr, 1, "{\"lr\": 0}"}};
  strata_optimizer* o = nullptr;
  ASSERT_OK(strata_optimizer_create("sgd", groups, 2, &o));
  const std::vector<float> before = p.b.to_vector<float>();
  EXPECT_OK(strata_optimizer_step(o, 0, nullptr));
  EXPECT_EQ(p.b.to_vector<float>(), before);
  EXPECT_EQ(p.a.to_vector<float>()[0], Pair().a.to_vector<float>()[0] - p.a.grad().to_vector<float>()[0]);
  double lr = -1;
  EXPECT_OK(strata_optimizer_lr(o, 1, &lr));
  EXPECT_EQ(lr, 0);
  EXPECT_OK(strata_optimizer_set_options(o, 1, "{\"lr\": 2}"));
  EXPECT_OK(strata_optimizer_lr(o, 1, &lr));
  EXPECT_EQ(lr, 2);
  EXPECT_OK(strata_optimizer_set_lr(o, 3));
  EXPECT_OK(strata_optimizer_lr(o, 0, &lr));
  EXPECT_EQ(lr, 3);
  EXPECT_EQ(strata_optimizer_lr(o, 2, &lr), STRATA_INDEX_ERROR);
  EXPECT_EQ(strata_optimizer_set_options(o, 2, "{}"), STRATA_INDEX_ERROR);
  // Held: the last reference goes with it.
  strata_optimizer* again = strata_optimizer_retain(o);
  strata_optimizer_release(o);
  EXPECT_OK(strata_optimizer_step(again, 0, nullptr));
  strata_optimizer_release(again);
  strata_optimizer_release(nullptr);
}

TEST(OptimC, RefusesWhatMakesNoSense) {
  Pair p;
  strata_tensor* params[] = {handle_of(p.a), nullptr};
  const char* names[] = {"a", "b"};
  strata_optimizer* o = nullptr;
  const auto refused = [&](const char* name, strata_param_group g, const char* part) {
    EXPECT_NE(strata_optimizer_create(name, &g, 1, &o), STRATA_OK);
    EXPECT_TRUE(error_has(part)) << strata_error_text();
    EXPECT_EQ(o, nullptr);
  };
  refused("adamz", {params, names, 1, nullptr}, "adamw");
  refused("adamw", {params, names, 2, nullptr}, "NULL");
  refused("adamw", {nullptr, names, 1, nullptr}, "parameters");
  refused("adamw", {params, names, 1, "{\"lr\": -1}"}, "lr");
  refused("adamw", {params, names, 1, "{\"rate\": 1}"}, "rate");
  refused("adamw", {params, names, 1, "{\"lr\": \"fast\"}"}, "lr");
  refused("adamw", {params, names, 1, "[1]"}, "object");
  refused("adamw", {params, names, 1, "{\"lr\": 1"}, "options");
  refused("adamw", {params, names, 1, std::string(100000, '[').c_str()}, "options");
  refused(nullptr, {params, names, 1, nullptr}, "name");
  EXPECT_EQ(strata_optimizer_create("adamw", nullptr, 0, &o), STRATA_VALUE_ERROR);
  EXPECT_EQ(strata_optimizer_create("adamw", nullptr, 1, &o), STRATA_VALUE_ERROR);
  const strata_param_group mixed[] = {{params, names, 1, nullptr}, {params, nullptr, 1, nullptr}};
  EXPECT_EQ(strata_optimizer_create("adamw", mixed, 2, &o), STRATA_VALUE_ERROR);
  EXPECT_EQ(strata_optimizer_step(nullptr, 0, nullptr), STRATA_VALUE_ERROR);
  o = created("adamw", p, nullptr);
  EXPECT_EQ(strata_optimizer_step(o, -1, nullptr), STRATA_VALUE_ERROR);
  EXPECT_EQ(strata_optimizer_step(o, std::nan(""), nullptr), STRATA_VALUE_ERROR);
  EXPECT_EQ(strata_optimizer_load(o, "no/such/file"), STRATA_IO_ERROR);
  EXPECT_EQ(strata_optimizer_save(o, "no/such/folder/file"), STRATA_IO_ERROR);
  EXPECT_EQ(strata_optimizer_set_options(o, 0, "{\"eps\": 1, \"lr\": -1}"), STRATA_VALUE_ERROR);
  double lr = 0;
  EXPECT_OK(strata_optimizer_lr(o, 0, &lr));
  EXPECT_GT(lr, 0);
  strata_optimizer_release(o);
}

TEST(OptimC, SchedulesAreTheRecords) {
  double lr = 0, momentum = 0;
  for (int64_t step = 0; step < 12; ++step) {
    ASSERT_OK(strata_schedule_lr("MultiStepLR", "{\"milestones\": [3, 8], \"gamma\": 0.5}", step, 0.8, &lr, &momentum));
    EXPECT_EQ(lr, step < 3 ? 0.8 : step < 8 ? 0.4 : 0.2);
    EXPECT_TRUE(std::isnan(momentum));
  }
  const optim::LrSchedule cyclic("CyclicLR",
                                 {{"base_lr", 0.1}, {"max_lr", 1.0}, {"step_size_up", 4.0}, {"mode", "exp_range"}});
  for (int64_t step = 0; step < 12; ++step) {
    ASSERT_OK(strata_schedule_lr("CyclicLR",
                                 "{\"base_lr\": 0.1, \"max_lr\": 1, \"step_size_up\": 4, \"mode\": \"exp_range\"}",
                                 step, 0.1, &lr, &momentum));
    EXPECT_EQ(lr, cyclic(step, 0.1));
    EXPECT_EQ(momentum, cyclic.momentum(step));
  }
  for (int64_t step = 0; step < 25; ++step) {  // those that end with a run, too
    ASSERT_OK(strata_schedule_lr("wsd", "{\"total\": 20, \"warmup\": 4, \"decay\": 6, \"min_ratio\": 0.1}", step, 0.8,
                                 &lr, nullptr));
    EXPECT_EQ(lr, optim::Schedule::wsd(0.8, 20, 4, 6, 0.1)(step));
  }
  EXPECT_EQ(strata_schedule_lr("StepLR", nullptr, 0, 1, &lr, nullptr), STRATA_VALUE_ERROR);  // step_size has no default
  EXPECT_TRUE(error_has("step_size")) << strata_error_text();
  EXPECT_EQ(strata_schedule_lr("StepLR", "{\"step_size\": true}", 0, 1, &lr, nullptr), STRATA_VALUE_ERROR);
  EXPECT_EQ(strata_schedule_lr("StepLR", "{\"step_size\": 2}", -1, 1, &lr, nullptr), STRATA_VALUE_ERROR);
  EXPECT_EQ(strata_schedule_lr("NoLR", nullptr, 0, 1, &lr, nullptr), STRATA_VALUE_ERROR);
  EXPECT_TRUE(error_has("StepLR")) << strata_error_text();
  EXPECT_EQ(strata_schedule_lr("MultiStepLR", "{\"milestones\": [\"x\"]}", 0, 1, &lr, nullptr), STRATA_VALUE_ERROR);
}

}  // namespace
}  // namespace strata::c
