// Trainings with moments in 8 bits beside those with moments in f32.

#include "strata/autograd/autograd.h"
#include "strata/core/node.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/optim/optim_test_util.h"
#include "strata/optim/record.h"

namespace strata::optim {
namespace {

TEST(EightBit, TrainingKeepsTablesInF32) {
  const NamedTensors params{
      {"table", leaf(zeros({64, 64}))}, {"map", leaf(zeros({64, 64}))}, {"norm", leaf(zeros({64}))}};
  for (const char* name : {"adamw", "muon", "lion"}) {
    const OptimizerRecord& record = optimizer_record(name);
    const auto groups = training_groups(record, params, {{"state_8bit", true}}, {"table"});
    std::map<std::string, bool> eight;
    for (const AnyGroup& g : groups)
      for (const auto& p : g.params) eight[p.first] = std::get<bool>(g.options.at("state_8bit"));
    EXPECT_EQ(eight, (std::map<std::string, bool>{{"table", false}, {"map", true}, {"norm", true}})) << name;
    for (const AnyGroup& g : training_groups(record, params, {}, {"table"}))
      EXPECT_FALSE(g.options.contains("state_8bit"));
  }
}

// A small network that learns a noisy function from small batches; its loss on others when the rate has fallen to 0.
double trained(std::string_view rule, double lr, bool eight, DType dtype = DType::f32) {
  Samples random(DType::f32, 21);
  const Tensor teacher = random.tensor({8, 1});
  const auto batch = [&](int64_t n) {
    const Tensor x = random.tensor({n, 8});
    return std::pair{x, matmul(x, teacher).tanh() * 0.5 + x.narrow(1, 0, 1) * 0.5 + random.tensor({n, 1}) * 0.2};
  };
  const auto others = batch(4096);
  Tensor w1 = leaf((random.tensor({8, 64}) * 0.35).to(dtype)), w2 = leaf((random.tensor({64, 1}) * 0.2).to(dtype));
  OptionValues options{{"lr", lr}};
  if (rule == "sgd") options["momentum"] = 0.9;
  if (eight) {
    options["state_8bit"] = true;
    options["min_8bit_size"] = int64_t{64};
  }
  if (dtype == DType::bf16) options["compensated_weights"] = true;
  const auto o = make_optimizer(rule, {{{{"w1", w1}, {"w2", w2}}, options}});
  const auto loss_of = [&](const std::pair<Tensor, Tensor>& data) {
    const Tensor y = matmul(matmul(data.first, to(w1, DType::f32)).tanh(), to(w2, DType::f32));
    return mean((y - data.second) * (y - data.second));
  };
  constexpr int steps = 1500;
  for (int i = 0; i < steps; ++i) {
    o->set_lr(lr * (1 - static_cast<double>(i) / steps));
    o->zero_grad();
    loss_of(batch(32)).backward();
    o->step();
  }
  NoGrad guard;
  return loss_of(others).item();
}

TEST(EightBit, ASmallNetworkLearnsAsWithStatesInF32) {
  for (const auto& [rule, lr] :
       {std::pair{"adamw", 1e-2}, {"lion", 1e-3}, {"sgd", 3e-2}, {"rmsprop", 3e-3}, {"adagrad", 5e-2}}) {
    const double want = trained(rule, lr, false), untrained = trained(rule, 0, false), got = trained(rule, lr, true);
    EXPECT_LT(want, 0.3 * untrained) << rule;
    EXPECT_NEAR(got, want, 0.03 * want) << rule;
  }
  const double want = trained("adamw", 1e-2, false);
  EXPECT_NEAR(trained("adamw", 1e-2, true, DType::bf16), want, 0.03 * want);
}

}  // namespace
}  // namespace strata::optim
