// Ranks that train apart (threads here): against one process that plays all of them, in double.

#include "strata/dist/local_steps.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "strata/autograd/autograd.h"
#include "strata/core/error_test_util.h"
#include "strata/dist/collectives/placed.h"
#include "strata/dist/data_parallel.h"
#include "strata/dist/rank_threads.h"
#include "strata/ops/ops.h"

namespace strata::distributed {
namespace {

void is(bool ok, const std::string& what) {
  if (!ok) throw std::runtime_error(what);
}

Tensor numbers(uint64_t seed, const Shape& shape) {
  Generator g(seed);
  return randn(shape, DType::f64, g);
}

// A net of two maps; seeds of 1 are rank 0's.
struct Net {
  explicit Net(uint64_t seed) : a(numbers(seed, {3, 5})), b(numbers(seed + 50, {5, 2})), frozen(numbers(9, {2})) {
    a.set_requires_grad(true);
    b.set_requires_grad(true);
    all = {{"a", a}, {"b", b}, {"frozen", frozen}};
  }
  void step(int rank, int number, double lr = 0.1) {
    for (Tensor* t : {&a, &b}) t->set_grad(Tensor());
    const Tensor x = numbers(static_cast<uint64_t>(1000 * number + rank), {4, 3});
    mean(square(matmul(tanh(matmul(x, a)), b) - frozen)).backward();
    const NoGrad guard;
    for (Tensor* t : {&a, &b}) copy_elements(t->detach(), *t - t->grad() * lr);
  }
  Tensor a, b, frozen;
  LocalSteps::Parameters all;
};

double off(const Tensor& a, const Tensor& b) {
  const NoGrad guard;
  return (a - b).abs().max().item();
}

// All ranks' rounds in turn: what parameters are after so many steps, with meetings written out.
Net in_turn(int ranks, int steps, const LocalStepsOptions& o) {
  Net all(1);
  Tensor va = zeros_like(all.a), vb = zeros_like(all.b);
  const auto meet = [&](Tensor& at, Tensor& v, const Tensor& sum) {
    const Tensor d = at.detach() - sum * (1.0 / ranks);
    v = v * o.momentum + d;
    copy_elements(at.detach(), at.detach() - (d + v * o.momentum) * o.lr);
  };
  for (int first = 0; first < steps; first += static_cast<int>(o.every)) {
    Tensor a = zeros_like(all.a).detach(), b = zeros_like(all.b).detach();
    for (int r = 0; r < ranks; ++r) {
      Net own(1);
      copy_elements(own.a.detach(), all.a.detach());
      copy_elements(own.b.detach(), all.b.detach());
      for (int i = first; i < first + o.every; ++i) own.step(r, i);
      a = a + own.a.detach(), b = b + own.b.detach();
    }
    const NoGrad guard;
    meet(all.a, va, a);
    meet(all.b, vb, b);
  }
  return all;
}

class LocalStepsTest : public testing::TestWithParam<LocalStepsOptions> {};

TEST_P(LocalStepsTest, AreWhatOneProcessComputesForAllInTurn) {
  const LocalStepsOptions o = GetParam();
  const Net want = in_turn(3, 12, o);
  run_as_ranks(Mesh("dp=3"), [&](int rank) {
    Net net(static_cast<uint64_t>(rank + 1));  // rank 0's begin
    LocalSteps apart(net.all, group("dp"), o);
    for (int i = 0; i < 12; ++i) {
      net.step(rank, i);
      is(apart.stepped() == ((i + 1) % o.every == 0), "when they meet");
    }
    is(off(net.a, want.a) < 1e-12 && off(net.b, want.b) < 1e-12, cat("a is off by ", off(net.a, want.a)));
    const int64_t bytes = net.a.nbytes() + net.b.nbytes();
    is(apart.reduced_bytes() == 12 / o.every * bytes, "bytes that travelled");
    is(apart.saved_bytes() == (12 - 12 / o.every) * bytes, "bytes saved");
  });
}
INSTANTIATE_TEST_SUITE_P(All, LocalStepsTest,
                         testing::Values(LocalStepsOptions{.every = 1}, LocalStepsOptions{.every = 4},
                                         LocalStepsOptions{.every = 6, .lr = 0.7, .momentum = 0.9}));

// Of gradient steps the mean of one step each is a step by the mean.
TEST(LocalSteps, ThatMeetAfterEachAreDataParallel) {
  run_as_ranks(Mesh("dp=2"), [](int rank) {
    Net apart(1), together(1);
    LocalSteps local(apart.all, group("dp"), {.every = 1});
    DataParallel ddp(together.all, group("dp+dp"));
    for (int i = 0; i < 5; ++i) {
      apart.step(rank, i);
      local.stepped();
      for (Tensor* t : {&together.a, &together.b}) t->set_grad(Tensor());
      const Tensor x = numbers(static_cast<uint64_t>(1000 * i + rank), {4, 3});
      mean(square(matmul(tanh(matmul(x, together.a)), together.b) - together.frozen)).backward();
      ddp.finish();
      const NoGrad guard;
      for (Tensor* t : {&together.a, &together.b}) copy_elements(t->detach(), *t - t->grad() * 0.1);
    }
    is(off(apart.a, together.a) < 1e-13, "a");
  });
}

TEST(LocalSteps, GoOnFromTheirState) {
  const LocalStepsOptions o{.every = 3, .lr = 0.7, .momentum = 0.9};
  run_as_ranks(Mesh("dp=2"), [&](int rank) {
    Net through(1), begun(1);
    LocalSteps whole(through.all, group("dp"), o);
    for (int i = 0; i < 9; ++i) {
      through.step(rank, i);
      whole.stepped();
    }
    std::map<std::string, Tensor> state;
    {
      LocalSteps first(begun.all, group("dp"), o);
      for (int i = 0; i < 6; ++i) {
        begun.step(rank, i);
        first.stepped();
      }
      first.meet();  // there are no steps since
      for (const auto& [name, t] : first.state_dict()) state[name] = t.clone();
    }
    is(state.size() == 2, "what is kept");
    LocalSteps then(begun.all, group("dp"), o);
    then.load_state_dict(state);
    for (int i = 6; i < 9; ++i) {
      begun.step(rank, i);
      then.stepped();
    }
    is(begun.a.to_vector<double>() == through.a.to_vector<double>(), "the same bits");
    state.erase("b.velocity");
    is(message<ValueError>([&] { then.load_state_dict(state); }).find("no 'b.velocity'") != std::string::npos,
       "missing");
  });
}

// Between two meetings each rank has parameters of its own, and where the last one ended is state.
TEST(LocalSteps, GoOnBetweenTwoMeetings) {
  const LocalStepsOptions o{.every = 3, .lr = 0.7, .momentum = 0.9};
  run_as_ranks(Mesh("dp=2"), [&](int rank) {
    Net through(1), begun(1);
    LocalSteps whole(through.all, group("dp"), o);
    for (int i = 0; i < 6; ++i) {
      through.step(rank, i);
      whole.stepped();
    }
    std::map<std::string, Tensor> state;
    TensorList own;
    {
      LocalSteps first(begun.all, group("dp"), o);
      for (int i = 0; i < 4; ++i) {
        begun.step(rank, i);
        first.stepped();
      }
      is(first.apart(), "a step since the meeting");
      for (const auto& [name, t] : first.state_dict(true)) state[name] = t.clone();
      for (const Tensor& t : {begun.a, begun.b}) own.push_back(t.detach().clone());
    }
    is(state.size() == 5 && state.at("steps").item() == 1, "what is kept");
    LocalSteps then(begun.all, group("dp"), o);
    is(!then.apart(), "begins together");
    copy_elements(begun.a.detach(), own[0]);
    copy_elements(begun.b.detach(), own[1]);
    then.load_state_dict(state);
    for (int i = 4; i < 6; ++i) {
      begun.step(rank, i);
      then.stepped();
    }
    is(begun.a.to_vector<double>() == through.a.to_vector<double>(), "the same bits");
    state.erase("b.last");
    is(message<ValueError>([&] { then.load_state_dict(state); }).find("no 'b.last'") != std::string::npos, "missing");
  });
}

TEST(LocalSteps, RefuseWhatTheyCannotDo) {
  run_as_ranks(Mesh("dp=2"), [](int) {
    Net net(1);
    const auto said = [&](const LocalStepsOptions& o) {
      return message<ValueError>([&] { LocalSteps(net.all, group("dp"), o); });
    };
    is(said({.every = 0}).find("0 steps between meetings") != std::string::npos, "every");
    is(said({.lr = 0}).find("lr is 0") != std::string::npos, "lr");
    is(said({.momentum = 1}).find("momentum is 1") != std::string::npos, "momentum");
    Tensor cut = distribute(ones({4, 2}), "S(0)");
    cut.set_requires_grad(true);
    is(message<ValueError>([&] {
         LocalSteps({{"w", cut}}, group("dp"));
       }).find("w lies in parts") != std::string::npos,
       "parts");
  });
}

}  // namespace
}  // namespace strata::distributed
