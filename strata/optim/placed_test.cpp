// Optimizers over sharded parameters, on ranks that are threads: what one rank does, for every record.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "strata/core/error_test_util.h"
#include "strata/core/placement.h"
#include "strata/dist/collectives/placed.h"
#include "strata/dist/rank_threads.h"
#include "strata/ops/ops.h"
#include "strata/optim/clip.h"
#include "strata/optim/home.h"
#include "strata/optim/loss_scaler.h"
#include "strata/optim/optim_test_util.h"
#include "strata/optim/record.h"

namespace strata::optim {
namespace {

using distributed::Mesh;
using distributed::run_as_ranks;

// What an expectation of every rank says.
void is(bool ok, const std::string& what) {
  if (!ok) throw std::runtime_error(what);
}

// A parameter of a test: what it is called, its shape and how it lies on "dp=2 tp=2".
struct Case {
  const char* name;
  Shape shape;
  const char* lies;
};
// Uneven parts, empty ones, axes that share a dimension, replicated ones, segments, a vector, a scalar, a plain tensor.
const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"rows", {7, 5}, "S(0) R"},         {"both", {5, 6}, "S(0) S(1)"}, {"twice", {7, 3}, "S(0) S(0)"},
      {"empty", {1, 4}, "S(0) S(0)"},     {"columns", {4, 5}, "R S(1)"}, {"fused", {8, 3}, "R S(0,segments=4+2+2)"},
      {"units", {6, 4}, "S(0,unit=2) R"}, {"vector", {9}, "S(0) R"},     {"alike", {5}, "R R"},
      {"cube", {2, 3, 5}, "S(2) S(1)"},   {"scalar", {}, "R R"},         {"plain", {3, 4}, ""},
  };
  return all;
}
Tensor start_of(size_t i, DType dtype) {
  return Samples(DType::f32, 100 + i).uniform(cases()[i].shape, -1, 1, dtype);
}
Tensor gradient_of(size_t i, int step, DType dtype) {
  return Samples(DType::f32, 1000 + 20 * static_cast<uint64_t>(step) + i).uniform(cases()[i].shape, -1, 1, dtype);
}
Tensor lying(const Tensor& t, const std::string& how) {
  return how.empty() ? t.clone() : distributed::distribute(t, how);
}

// The cases as parameters, whole or sharded.
NamedTensors parameters(DType dtype, bool sharded) {
  NamedTensors all;
  for (size_t i = 0; i < cases().size(); ++i) {
    Tensor p = lying(start_of(i, dtype), sharded ? cases()[i].lies : "");
    p.set_requires_grad();
    all.emplace_back(cases()[i].name, p);
  }
  return all;
}
// Gradients of a step, which lie in another way than their parameters now and then.
void give_gradients(const NamedTensors& params, int step, DType dtype, bool sharded) {
  for (size_t i = 0; i < params.size(); ++i) {
    if (i == 2 && step == 1) continue;  // a parameter that a step does not use
    const Tensor g = gradient_of(i, step, dtype);
    const bool odd = (static_cast<size_t>(step) + i) % 3 == 0;
    Tensor p = params[i].second;
    p.set_grad(!sharded ? g : odd ? distributed::distribute(g, "R R") : lying(g, cases()[i].lies));
  }
}
std::unique_ptr<Optimizer> made(const OptimizerRecord& record, const NamedTensors& params, const OptionValues& more) {
  OptionValues options = more;
  options["lr"] = 0.01;
  return record.make(record, {{params, options}});
}

constexpr int kSteps = 4;
constexpr double kMaxNorm = 2;

// What one rank gets: the norms and the weights.
struct Wanted {
  std::vector<double> norms;
  std::vector<Doubles> weights;
  StateDict state;
};
Wanted of_one(const OptimizerRecord& record, DType dtype, const OptionValues& more) {
  Wanted w;
  const NamedTensors params = parameters(dtype, false);
  const auto opt = made(record, params, more);
  for (int step = 0; step < kSteps; ++step) {
    give_gradients(params, step, dtype, false);
    w.norms.push_back(opt->step_clipped(kMaxNorm));
  }
  for (const auto& [name, p] : params) w.weights.push_back(values(p));
  for (const auto& [key, t] : opt->state_dict()) w.state[key] = t.clone();
  return w;
}
void compare_with(const Wanted& want, const NamedTensors& params, double tolerance, const std::string& what) {
  for (size_t i = 0; i < params.size(); ++i) {
    const Doubles got = values(distributed::full_tensor(params[i].second.detach()));
    for (size_t j = 0; j < got.size(); ++j)
      is(std::abs(got[j] - want.weights[i][j]) <= tolerance,
         cat(what, ": ", params[i].first, "[", j, "] is ", got[j], ", wanted ", want.weights[i][j]));
  }
}

void check_record(const OptimizerRecord& record, DType dtype, const OptionValues& more = {}) {
  const std::string what = cat(record.name, " ", name_of(dtype));
  const double tolerance = dtype == DType::f64 ? 1e-12 : dtype == DType::f32 ? 1e-6 : 4e-3;
  const Wanted want = of_one(record, dtype, more);
  run_as_ranks(Mesh("dp=2 tp=2"), [&](int) {
    const NamedTensors params = parameters(dtype, true);
    std::unique_ptr<Optimizer> opt = made(record, params, more);
    for (int step = 0; step < kSteps; ++step) {
      if (step == 2) {  // goes on from its own state, and from one that lies otherwise
        StateDict state = opt->state_dict();
        for (auto& [key, t] : state)
          if (key.starts_with("both") || key.starts_with("plain"))
            t = is_placed(t) ? distributed::redistribute(t, "R S(0)") : t;
        const auto again = made(record, params, more);
        again->load_state_dict(state);
        opt = made(record, params, more);
        opt->take_state_dict(again->state_dict());
      }
      give_gradients(params, step, dtype, true);
      const double norm = opt->step_clipped(kMaxNorm);
      is(std::abs(norm - want.norms[static_cast<size_t>(step)]) < (dtype == DType::f64 ? 1e-12 : 1e-6),
         cat(what, ": the norm of step ", step, " is ", norm, ", wanted ", want.norms[static_cast<size_t>(step)]));
      std::vector<double> norms(4);
      distributed::group("world").run(
          "norms", [&](distributed::Communicator& c) { c.all_gather(norms.data(), &norm, sizeof(norm)); });
      for (const double other : norms) is(other == norm, cat(what, ": norms differ: ", other, " and ", norm));
    }
    compare_with(want, params, tolerance, what);
    // The state lies as the parameters, has the values of one rank's, and one rank's can be loaded.
    StateDict state = opt->state_dict();
    is(state.size() == want.state.size(), cat(what, ": ", state.size(), " states, wanted ", want.state.size()));
    for (const auto& [name, p] : params)
      for (const auto& [key, t] : state)
        if (key.starts_with(name + ".") && t.shape() == p.shape() && t.dim() > 0 && is_placed(p))
          is(is_placed(t) && *layout_of(t) == *layout_of(p), cat(what, ": ", key, " does not lie as its parameter"));
    for (const auto& [key, whole] : want.state) {
      const Doubles got = values(distributed::full_tensor(state.at(key))), wanted = values(whole);
      is(got.size() == wanted.size(), key);
      for (size_t j = 0; j < got.size(); ++j)
        is(std::abs(got[j] - wanted[j]) <= 10 * tolerance * (1 + std::abs(wanted[j])),
           cat(what, ": ", key, "[", j, "] is ", got[j], ", wanted ", wanted[j]));
    }
    opt->load_state_dict(want.state);
    for (const auto& [key, t] : opt->state_dict())
      is(values(distributed::full_tensor(t)) == values(want.state.at(key)), cat(what, ": ", key, " as it was loaded"));
  });
}

TEST(PlacedOptimizer, EveryRecordDoesWhatOneRankDoes) {
  for (const OptimizerRecord* r : optimizer_records()) {
    SCOPED_TRACE(r->name);
    check_record(*r, DType::f32);
    check_record(*r, DType::f64);
  }
}

TEST(PlacedOptimizer, WeightsInF32GoWithTheParts) {
  for (const OptimizerRecord* r : optimizer_records()) {
    SCOPED_TRACE(r->name);
    check_record(*r, DType::bf16, {{"master_weights", true}});
  }
  check_record(optimizer_record("adamw"), DType::bf16, {{"compensated_weights", true}});
  check_record(optimizer_record("adamw"), DType::bf16, {{"low_state", true}});
}

TEST(PlacedOptimizer, OfRepeatedNumbersOneRankMayHaveAll) {
  // A mesh of one axis of three ranks, of which some have nothing.
  Tensor whole = Samples(DType::f32, 3).uniform({2, 3}, -1, 1, DType::f64), g = whole * 3.0;
  Tensor p = leaf(whole);
  AdamW one(TensorList{p}, {.lr = 0.1});
  p.set_grad(g);
  const double norm = one.step_clipped(1);
  run_as_ranks(Mesh("dp=3"), [&](int) {
    Tensor q = distributed::distribute(whole, "S(0)");
    q.set_requires_grad();
    AdamW opt(TensorList{q}, {.lr = 0.1});
    q.set_grad(distributed::distribute(g, "S(0)"));
    is(std::abs(opt.step_clipped(1) - norm) < 1e-12, "norm");
    const Doubles got = values(distributed::full_tensor(q.detach())), wanted = values(p);
    for (size_t i = 0; i < got.size(); ++i) is(std::abs(got[i] - wanted[i]) < 1e-12, "weights");
    is(opt.params()[0].second.same_as(q), "params() gives the sharded tensor");
    opt.zero_grad(false);
    is(values(distributed::full_tensor(q.grad())) == Doubles(6), "zeroed");
    opt.zero_grad();
    is(!q.grad().defined(), "dropped");
  });
}

TEST(PlacedOptimizer, BackwardsGradientsAreTaken) {
  const Tensor x = Samples(DType::f32, 5).uniform({4, 6}, -1, 1, DType::f64),
               w0 = Samples(DType::f32, 6).uniform({5, 6}, -1, 1, DType::f64);
  Tensor w = leaf(w0);
  SGD one(TensorList{w}, {.lr = 0.1});
  sum(square(linear(x, w))).backward();
  one.step();
  run_as_ranks(Mesh("dp=2 tp=2"), [&](int) {
    Tensor v = distributed::distribute(w0, "R S(0)");
    v.set_requires_grad();
    SGD opt(TensorList{v}, {.lr = 0.1});
    const uint32_t version = v.version();
    sum(square(linear(distributed::distribute(x, "S(0) R"), v))).backward();
    opt.step();
    is(v.version() != version, "an update is a write");
    const Doubles got = values(distributed::full_tensor(v.detach())), wanted = values(w);
    for (size_t i = 0; i < got.size(); ++i) is(std::abs(got[i] - wanted[i]) < 1e-12, "weights");
  });
}

TEST(PlacedOptimizer, NormsAndClippingAreOfTheWhole) {
  const NamedTensors whole = parameters(DType::f64, false);
  give_gradients(whole, 0, DType::f64, false);
  TensorList list;
  for (const auto& [name, p] : whole) list.push_back(p);
  const double norm = grad_norm(list), third = grad_norm(list, 3);
  EXPECT_EQ(clip_grad_norm(list, 1), norm);
  clip_grad_value(list, 0.05);
  run_as_ranks(Mesh("dp=2 tp=2"), [&](int) {
    const NamedTensors params = parameters(DType::f64, true);
    give_gradients(params, 0, DType::f64, true);
    TensorList mine;
    for (const auto& [name, p] : params) mine.push_back(p);
    is(std::abs(grad_norm(mine) - norm) < 1e-12, "grad_norm");
    is(std::abs(grad_norm(mine, 3) - third) < 1e-12, "grad_norm of the third power");
    is(std::abs(clip_grad_norm(mine, 1) - norm) < 1e-12, "clip_grad_norm");
    clip_grad_value(mine, 0.05);
    for (size_t i = 0; i < mine.size(); ++i) {
      const Doubles got = values(distributed::full_tensor(mine[i].grad())), wanted = values(list[i].grad());
      for (size_t j = 0; j < got.size(); ++j) is(std::abs(got[j] - wanted[j]) < 1e-12, params[i].first);
    }
  });
}

TEST(PlacedOptimizer, WhatOneRankSeesAllSee) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  run_as_ranks(Mesh("dp=2 tp=2"), [&](int rank) {
    for (const char* lies : {"S(0) R", "R R"}) {
      Tensor p = distributed::distribute(ones({4, 3}), lies);
      p.set_requires_grad();
      AdamW opt(TensorList{p});
      const auto report = [&](const StepGuard& guard) {
        return StepReport::of(opt.step_guarded(guard).data<double>());
      };
      const auto give = [&](double bad) {
        Tensor g = distributed::distribute(ones({4, 3}), lies);
        if (rank == 3) local_part(g).view({-1}).narrow(0, 0, 1).fill_(bad);
        p.set_grad(g);
      };
      give(1);
      const StepReport good = report({.loss = full({}, 2.0)});
      is(good.outcome == StepReport::updated && std::abs(good.norm - std::sqrt(12.0)) < 1e-12 && good.loss == 2,
         "good");
      const Doubles before = values(local_part(p));
      give(nan);
      is(std::isnan(opt.step_clipped(1)), "the norm is not finite in every rank");
      is(report({}).outcome == StepReport::diverged, "a gradient");
      give(1);
      is(report({}).outcome == StepReport::diverged, "stays so");
      opt.reset_guard();
      is(report({.loss = full({}, rank == 1 ? nan : 1.0)}).outcome == StepReport::diverged, "a loss");
      is(values(local_part(p)) == before, "nothing was updated");
      opt.reset_guard();
      LossScaler scaler;
      give(std::numeric_limits<double>::infinity());
      is(report({.loss = full({}, 1.0), .scaler = &scaler}).outcome == StepReport::skipped, "an overflow");
      give(1);
      is(report({.scaler = &scaler}).outcome == StepReport::updated, "and on");
    }
  });
}

TEST(PlacedOptimizer, StagesHaveOneNorm) {
  run_as_ranks(Mesh("pp=2 dp=2"), [&](int rank) {
    const double stage = rank / 2 + 1;
    Tensor p = distributed::distribute(ones({3}), "S(0)", "dp"), q = ones({2});
    p.set_requires_grad();
    q.set_requires_grad();
    p.set_grad(distributed::distribute(full({3}, stage), "S(0)", "dp"));
    q.set_grad(full({2}, stage));
    SGD opt(TensorList{p, q}, {.lr = 0.1});
    opt.norm_over("pp");
    is(std::abs(opt.step_clipped(100) - std::sqrt(5 * 1.0 + 5 * 4.0)) < 1e-9, "the norm of both stages");
  });
}

TEST(PlacedOptimizer, WhatCannotBeIsRefusedByName) {
  run_as_ranks(Mesh("dp=2"), [&](int) {
    const auto error = [&](const std::function<void()>& body) -> std::string {
      try {
        body();
      } catch (const Error& e) {
        return e.what();
      }
      return "no error";
    };
    const auto says = [&](const std::string& got, const char* what) {
      is(got.find(what) != std::string::npos, cat("'", got, "' does not say '", what, "'"));
    };
    Tensor p = distributed::distribute(ones({64, 128}).to(DType::bf16), "S(0)");
    p.set_requires_grad();
    says(error([&] {
           AdamW({{"w", p}}, {.low = {.stochastic_rounding = true}});
         }),
         "'w' is sharded (S(0)): stochastic");
    says(error([&] { AdamW({{"w", p}}, {.low = {.state_8bit = true}}); }), "'w' is sharded (S(0)): state_8bit");
    says(error([&] { HostBound(TensorList{p}); }), "has no record");
    Tensor sum = distributed::distribute(ones({4}), "P(sum)");
    sum.set_requires_grad();
    says(error([&] { AdamW(TensorList{sum}); }), "no parameter");
    AdamW opt(TensorList{p});
    says(error([&] { opt.set_home({.where = Tier::host, .who = StateHome::Who::cpu}); }), "has no home but");
    // Of parameters that every rank has whole nothing is cut.
    Tensor same = distributed::distribute(ones({64, 128}).to(DType::bf16), "R");
    same.set_requires_grad();
    AdamW fine(TensorList{same}, {.low = {.state_8bit = true}});
    same.set_grad(distributed::distribute(ones({64, 128}).to(DType::bf16), "R"));
    fine.step();
    AdamW other(TensorList{same}, {.low = {.state_8bit = true}});
    other.load_state_dict(fine.state_dict());
    AdamW wide(TensorList{p});
    wide.load_state_dict([&] {
      StateDict renamed;
      for (const auto& [key, t] : fine.state_dict()) renamed[key] = t;
      return renamed;
    }());
    is(is_placed(wide.state_dict().at("0.exp_avg")), "8 bits are widened and cut");
  });
}

}  // namespace
}  // namespace strata::optim
