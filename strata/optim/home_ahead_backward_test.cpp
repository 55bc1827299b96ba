// Updates that begin while backward runs: the bits of a step that comes after it.
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/autograd/hooks.h"
#include "strata/core/error.h"
#include "strata/core/recording.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/optim/home_ahead_test_util.h"
#include "strata/optim/loss_scaler.h"

namespace strata::optim {
namespace {

// A chain of products whose gradients go home as backward() makes them.
struct Chain {
  explicit Chain(bool away, int layers = 6) {
    Samples random(DType::f32, 4);
    for (int i = 0; i < layers; ++i) {
      params.emplace_back(std::to_string(i), leaf_at(random.uniform({40, 40}, -0.2, 0.2), away));
      if (away)
        hooks.push_back(register_post_accumulate_grad_hook(params.back().second, [](const Tensor& p) {
          if (p.grad().tier() != kAhead) Tensor(p).set_grad(p.grad().to(kAhead));
        }));
    }
    x = random.tensor({16, 40});
  }
  ~Chain() {
    for (HookHandle& h : hooks) h.remove();
  }
  Tensor loss() const {
    Tensor h = x;
    for (const auto& [name, w] : params) h = tanh(matmul(h, w)) + h;
    return mean(h * h);
  }
  NamedTensors params;
  std::vector<HookHandle> hooks;
  Tensor x;
};

TEST_F(Ahead, UpdatesThatBeginInBackwardHaveTheSameBits) {
  for (const OptimizerRecord* record : optimizer_records())
    for (const Who who : {Who::device, Who::split})
      for (const int passes : {1, 3}) {
        SCOPED_TRACE(cat(record->name, ", ", name_of(who), ", ", passes));
        const Chain here(false), there(true);
        const auto want = make_optimizer(record->name, {{here.params}}),
                   got = make_optimizer(record->name, {{there.params}});
        got->set_home({.where = kAhead, .who = who, .ahead = true});
        double before = 0;
        for (int step = 0; step < 4; ++step) {
          for (const bool away : {false, true}) {
            Optimizer& o = away ? *got : *want;
            o.set_lr(0.01 * (step + 1));
            for (int pass = 0; pass < passes; ++pass) {
              const Tensor loss = (away ? there : here).loss();
              std::optional<UpdateInBackward> early;
              if (pass == passes - 1) early.emplace(o);  // of a home that is none it does nothing
              loss.backward();
              // Somebody who needs the update before step() waits for it.
              if (away && step == 2 && pass == passes - 1 && got->home().ahead)
                for (const auto& [name, p] : there.params) bytes(p);
            }
            EXPECT_EQ(StepReport::of(o.step_guarded().data<double>()).outcome, StepReport::updated);
            o.zero_grad();
          }
          if (step == 1) expect_same(*got, *want);  // else the next step finds one under way
          if (step != 2) continue;
          got->finish();
          if (got->home().ahead) before = got->ahead_times()->before_step;
        }
        expect_same(*got, *want);
        if (got->home().ahead) {
          EXPECT_EQ(before, 1) << "all had been updated before step()";
        }
      }
}

TEST_F(Ahead, WhatBeganInBackwardCannotBeClipped) {
  const Chain chain(true);
  AdamW o(chain.params);
  o.set_home(kHome);
  const auto backward = [&] {
    const UpdateInBackward early(o);
    EXPECT_THROW(UpdateInBackward second(o), ValueError);
    chain.loss().backward();
  };
  backward();  // of the first pass nothing is known
  EXPECT_GT(o.step_clipped(0.1), 0);
  o.zero_grad();
  backward();
  LossScaler scaler;
  EXPECT_THROW(o.step(0.5), ValueError);
  EXPECT_THROW(o.step_clipped(1), ValueError);
  EXPECT_THROW(o.step_guarded({.max_norm = 1}), ValueError);
  EXPECT_THROW(o.step_guarded({.scaler = &scaler}), ValueError);
  EXPECT_THROW(UpdateInBackward early(o), ValueError);  // a step has to come
  EXPECT_NO_THROW(o.step_clipped(INFINITY));
  o.zero_grad();
  // Without a step.
  backward();
  o.finish();
  o.zero_grad();
  backward();
  EXPECT_NO_THROW(o.step());
}

// A weight whose gradient comes in parts waits for step(); one that did not in the pass before says so.
TEST_F(Ahead, AGradientInPartsIsNotedOrRefused) {
  for (const bool always : {true, false}) {
    const Chain here(false, 2), there(true, 2);
    AdamW want(here.params), got(there.params);
    got.set_home(kHome);
    for (int step = 0; step < 3; ++step) {
      const auto backward = [&](const Chain& c, bool twice) {
        c.loss().backward();
        if (twice) c.loss().backward();
      };
      const bool twice = always || step == 2;
      backward(here, twice);
      {
        const UpdateInBackward early(got);
        if (!always && step == 2) {
          EXPECT_THROW(backward(there, true), AutogradError);
        } else {
          backward(there, twice);
        }
        if (!twice)
          for (const auto& [name, p] : there.params) bytes(p);  // waits for what has begun
      }
      if (!always && step == 2) {
        EXPECT_NO_THROW(got.finish());
        continue;
      }
      for (AdamW* o : {&want, &got}) {
        o->step();
        o->zero_grad();
      }
      expect_same(got, want);
      EXPECT_EQ(got.ahead_times()->before_step > 0, !always && step > 0);
    }
  }
}

TEST_F(Ahead, AStepThatDivergesInBackwardIsReported) {
  Chain chain(true);
  AdamW o(chain.params);
  o.set_home(kHome);
  for (int step = 0; step < 3; ++step) {
    if (step == 2) chain.x = full({16, 40}, INFINITY);
    {
      const UpdateInBackward early(o);
      chain.loss().backward();
    }
    const StepReport r = StepReport::of(o.step_guarded().data<double>());
    EXPECT_EQ(r.outcome, step == 2 ? StepReport::diverged : StepReport::updated);
    o.zero_grad();
  }
  EXPECT_NO_THROW(o.finish());
}

TEST_F(Ahead, AFailureInBackwardIsToldByReadersAndByFinish) {
  const Chain chain(true);
  AdamW o(chain.params);
  o.set_home(kHome);
  for (int step = 0; step < 2; ++step) {
    {
      const UpdateInBackward early(o);
      chain.loss().backward();
    }
    o.step();
    o.zero_grad();
    o.finish();
  }
  {
    const UpdateInBackward early(o);
    home().fail(0, 1);  // the way home of the first gradient
    chain.loss().backward();
  }
  o.step();
  EXPECT_THROW(o.finish(), IoError);
  EXPECT_NO_THROW(o.finish());
  for (const auto& [name, p] : chain.params) {
    try {
      bytes(p);
    } catch (const IoError&) {  // of that step, told once
    }
    EXPECT_NO_THROW(bytes(p));
  }
}

TEST_F(Ahead, AStepRecordedInBackwardShowsItsUpdates) {
  const Chain chain(true);
  AdamW o(chain.params);
  o.set_home(kHome);
  for (int step = 0; step < 2; ++step) {
    const Recording r = record([&] {
      {
        const UpdateInBackward early(o);
        chain.loss().backward();
      }
      o.step();
    });
    o.zero_grad();
    int64_t updates = 0, in_backward = 0;
    for (const RecordedCall& c : r.calls) {
      if (c.op->name() != "optimizer_update" && c.op->name() != "adamw") continue;
      (c.phase == Phase::backward ? in_backward : updates) += 1;
    }
    EXPECT_EQ(in_backward, 0);
    EXPECT_EQ(updates, 6);
  }
}

}  // namespace
}  // namespace strata::optim
