// What all optimizers have in common: groups, state, threads, clipping.
#include "strata/optim/optimizer.h"

#include <cmath>
#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/core/parallel.h"
#include "strata/memory/allocator.h"
#include "strata/ops/factory/factory.h"
#include "strata/optim/optim.h"
#include "strata/optim/optim_test_util.h"
#include "strata/optim/sgd/sgd.h"

namespace strata::optim {
namespace {

TEST(Optimizer, GroupsHaveTheirOwnOptions) {
  Tensor w = leaf(ones({4, 3})), b = leaf(ones({3})), unused = leaf(ones({5}));
  const auto [matrices, vectors] = split_by_rank({{"w", w}, {"b", b}, {"unused", unused}});
  ASSERT_EQ(matrices.size(), 1u);
  AdamW opt(
      {{matrices, AdamWOptions{0.1, 0.9, 0.999, 1e-8, 0.5}}, {vectors, AdamWOptions{0.1, 0.9, 0.999, 1e-8, 0}, 2.0}});
  w.set_grad(zeros({4, 3}));
  b.set_grad(zeros({3}));
  opt.step();
  EXPECT_FLOAT_EQ(w.data<float>()[5], 0.95f);  // decay alone
  EXPECT_FLOAT_EQ(b.data<float>()[1], 1.0f);
  EXPECT_FLOAT_EQ(unused.data<float>()[0], 1.0f);
  opt.set_lr(0.01);
  EXPECT_DOUBLE_EQ(opt.lr(0), 0.01);
  EXPECT_DOUBLE_EQ(opt.lr(1), 0.02);
  EXPECT_FALSE(opt.state_dict().contains("unused.exp_avg"));  // no gradient yet, no state
  EXPECT_EQ(opt.params().size(), 3u);
}

TEST(Optimizer, StateRoundTripIsBitwise) {
  Samples random(DType::f32, 11);
  Tensor a = leaf(random.tensor({33})), b = leaf(random.tensor({4, 5}));
  AdamW first({{"a", a}, {"b", b}}, AdamWOptions{0.02});
  const auto step = [](AdamW& o, Tensor& x, Tensor& y, uint64_t seed) {
    Samples r(DType::f32, seed);
    x.set_grad(r.tensor(x.shape()));
    y.set_grad(r.tensor(y.shape()));
    o.step();
  };
  for (uint64_t s = 0; s < 5; ++s) step(first, a, b, s);
  Tensor a2 = leaf(a), b2 = leaf(b);
  AdamW second({{"a", a2}, {"b", b2}}, AdamWOptions{0.02});
  second.load_state_dict(first.state_dict());
  const StateDict state = second.state_dict();
  EXPECT_EQ(state.size(), 6u);
  EXPECT_EQ(state.at("a.step").item<int64_t>(), 5);
  for (uint64_t s = 5; s < 9; ++s) {
    step(first, a, b, s);
    step(second, a2, b2, s);
  }
  EXPECT_EQ(std::memcmp(a.raw_data(), a2.raw_data(), static_cast<size_t>(a.nbytes())), 0);
  EXPECT_EQ(std::memcmp(b.raw_data(), b2.raw_data(), static_cast<size_t>(b.nbytes())), 0);
}

TEST(Optimizer, BadStateIsRefusedAndChangesNothing) {
  Tensor p = leaf(ones({4}));
  AdamW opt({{"p", p}});
  p.set_grad(ones({4}));
  opt.step();
  const StateDict good = opt.state_dict();
  StateDict missing = good, unknown = good, shape = good, dtype = good;
  missing.erase("p.exp_avg");
  unknown.emplace("q.exp_avg", ones({4}));
  shape["p.exp_avg"] = ones({5});
  dtype["p.step"] = zeros({}, DType::f32);
  EXPECT_THROW(opt.load_state_dict(missing), ValueError);
  EXPECT_THROW(opt.load_state_dict(unknown), ValueError);
  EXPECT_THROW(opt.load_state_dict(shape), ShapeError);
  EXPECT_THROW(opt.load_state_dict(dtype), DTypeError);
  EXPECT_EQ(opt.state_dict().at("p.step").item<int64_t>(), 1);
  opt.load_state_dict({});  // that of an optimizer before its first step
  EXPECT_TRUE(opt.state_dict().empty());
}

TEST(Optimizer, ZeroGradDropsOrClears) {
  Tensor p = leaf(ones({4}));
  SGD opt(TensorList{p});
  p.set_grad(ones({4}));
  opt.zero_grad(false);
  EXPECT_EQ(p.grad().data<float>()[2], 0);
  opt.zero_grad();
  EXPECT_FALSE(p.grad().defined());
  opt.step();  // nothing to do
  EXPECT_EQ(p.data<float>()[0], 1);
}

TEST(Optimizer, ThreadCountDoesNotChangeABit) {
  const int threads = num_threads();
  std::vector<Doubles> results;
  Doubles norms;
  for (int n : {1, 2, 5}) {
    set_num_threads(n);
    Samples random(DType::f32, 5);
    Tensor a = leaf(random.tensor({70'001})), b = leaf(random.tensor({3})), c = leaf(random.tensor({257, 129}));
    AdamW opt(TensorList{a, b, c});
    for (int i = 0; i < 3; ++i) {
      for (Tensor* t : {&a, &b, &c}) t->set_grad(random.tensor(t->shape()));
      norms.push_back(opt.step_clipped(1.0));
    }
    results.push_back(values(a));
    results.push_back(values(c));
  }
  set_num_threads(threads);
  EXPECT_EQ(results[0], results[2]);
  EXPECT_EQ(results[0], results[4]);
  EXPECT_EQ(results[1], results[3]);
  EXPECT_EQ(norms[0], norms[3]);
  EXPECT_EQ(norms[1], norms[7]);
}

TEST(Optimizer, StateIsTaggedAndParametersAreVersioned) {
  Tensor p = leaf(ones({100'000}));
  const int64_t before = memory::stats(DeviceType::cpu).live[static_cast<int>(memory::Tag::optimizer)];
  const uint32_t version = p.version();
  AdamW opt(TensorList{p});
  p.set_grad(ones({100'000}));
  opt.step();
  const int64_t held = memory::stats(DeviceType::cpu).live[static_cast<int>(memory::Tag::optimizer)] - before;
  EXPECT_GE(held, 800'000);
  EXPECT_LE(held, 820'000);
  EXPECT_GT(p.version(), version);
}

TEST(Optimizer, MetaParametersOnlyAccountForTheirState) {
  DeviceScope dry(Device::meta());
  Tensor p = empty({1 << 20, 1 << 10});
  p.set_requires_grad();
  AdamW opt(TensorList{p});
  p.set_grad(empty({1 << 20, 1 << 10}));
  opt.step();
  EXPECT_TRUE(opt.state_dict().at("0.exp_avg").is_meta());
}

TEST(Optimizer, RefusesWhatItCannotTrain) {
  Tensor p = leaf(ones({4})), count = ones({4}, DType::i64), wide = leaf(ones({4, 3}));
  EXPECT_THROW(SGD(TensorList{count}), DTypeError);
  EXPECT_THROW(SGD(TensorList{p, p}), ValueError);
  EXPECT_THROW(SGD({{"x", p}, {"x", wide}}), ValueError);
  EXPECT_THROW(SGD(TensorList{Tensor()}), ValueError);
  EXPECT_THROW(SGD(TensorList{wide.detach().t()}), ShapeError);
  EXPECT_THROW(AdamW(TensorList{p}, AdamWOptions{1e-3, 1.0}), ValueError);
}

TEST(Optimizer, StridedGradientsAreRead) {
  Tensor p = leaf(zeros({2, 3}));
  const float g[] = {1, 2, 3, 4, 5, 6};
  p.set_grad(from_span<float>(g, {3, 2}).t());
  SGD opt(TensorList{p}, {.lr = 1});
  opt.step();
  EXPECT_EQ(values(p), Doubles({-1, -3, -5, -2, -4, -6}));
}

TEST(ClipGradNorm, ScalesToTheLimit) {
  Tensor a = leaf(zeros({3})), b = leaf(zeros({20'000})), c = leaf(zeros({2})), none = leaf(zeros({2}));
  a.set_grad(full({3}, 2.0));
  b.set_grad(to(full({20'000}, 0.5), DType::bf16));
  c.set_grad(full({2}, -1.0, DType::f64));
  const double want = std::sqrt(3 * 4 + 20'000 * 0.25 + 2);
  const TensorList all{a, b, c, none};
  EXPECT_NEAR(grad_norm(all), want, 1e-12 * want);
  EXPECT_NEAR(clip_grad_norm(all, 1000), want, 1e-12 * want);
  EXPECT_EQ(a.grad().data<float>()[0], 2);  // below the limit: untouched
  EXPECT_NEAR(clip_grad_norm(all, 1.0), want, 1e-12 * want);
  EXPECT_NEAR(grad_norm(all), 1.0, 2e-3);  // bf16 rounds
  EXPECT_NEAR(a.grad().data<float>()[0], 2 / want, 1e-6);
  EXPECT_NEAR(c.grad().data<double>()[1], -1 / want, 1e-9);
}

TEST(ClipGradNorm, OfAnyOrder) {
  Tensor a = leaf(zeros({3})), b = leaf(zeros({4})), none = leaf(zeros({2}));
  const TensorList all{a, b, none};
  const auto begin = [&] {
    a.set_grad(full({3}, -2.0));
    b.set_grad(to(full({4}, 1.0), DType::bf16));
  };
  begin();
  EXPECT_EQ(grad_norm(all, 1), 10);
  EXPECT_EQ(grad_norm(all, 2), grad_norm(all));
  EXPECT_EQ(grad_norm(all, INFINITY), 2);
  EXPECT_EQ(grad_norm(all, -INFINITY), 1);
  EXPECT_EQ(grad_norm(all, 0), 2);  // gradients that are not zero
  EXPECT_NEAR(grad_norm(all, -1), 1 / (3 / 2. + 4), 1e-7);
  EXPECT_EQ(clip_grad_norm(all, 20, 1), 10);
  EXPECT_EQ(values(a.grad())[0], -2);  // below the limit: untouched
  EXPECT_EQ(clip_grad_norm(all, 0.5, INFINITY), 2);
  EXPECT_NEAR(values(a.grad())[0], -0.5, 1e-6);
  EXPECT_EQ(values(b.grad())[0], 0.25);
  begin();
  EXPECT_NEAR(clip_grad_norm(all, 1, 2), 4, 1e-12);
  EXPECT_NEAR(values(a.grad())[0], -0.5, 1e-6);
  begin();
  clip_grads_with_norm(all, 1, full({1}, 8.0));
  EXPECT_NEAR(values(a.grad())[2], -0.25, 1e-6);
  clip_grads_with_norm(all, 9, full({1}, 8.0));
  EXPECT_NEAR(values(a.grad())[2], -0.25, 1e-6);
  a.set_grad(full({3}, INFINITY));
  EXPECT_EQ(clip_grad_norm(all, 1, 1), INFINITY);
  EXPECT_EQ(values(b.grad())[0], 0.125);
  EXPECT_EQ(grad_norm({none}, 3), 0);
  EXPECT_THROW(clip_grad_norm(all, 0, 1), ValueError);
  EXPECT_THROW(clip_grads_with_norm(all, 1, ones({2})), ShapeError);
}

TEST(ClipGradNorm, FoldedIntoTheStepGivesTheSameUpdate) {
  Samples random(DType::f32, 2);
  const Tensor g = random.tensor({1000});
  Tensor p = leaf(random.tensor({1000})), q = leaf(p);
  SGD one(TensorList{p}, {.lr = 0.5, .momentum = 0.9}), two(TensorList{q}, {.lr = 0.5, .momentum = 0.9});
  p.set_grad(clone(g));
  q.set_grad(g);
  clip_grad_norm({p}, 0.25);
  one.step();
  two.step_clipped(0.25);
  EXPECT_EQ(values(p), values(q));
  EXPECT_EQ(values(g), values(q.grad()));
}

TEST(ClipGradNorm, NotFiniteChangesNothing) {
  Tensor p = leaf(ones({3}));
  const float bad[] = {1, std::numeric_limits<float>::quiet_NaN(), 2};
  p.set_grad(from_span<float>(bad, {3}));
  SGD opt(TensorList{p});
  EXPECT_TRUE(std::isnan(opt.step_clipped(1)));
  EXPECT_TRUE(std::isnan(clip_grad_norm({p}, 1)));
  EXPECT_EQ(values(p), Doubles({1, 1, 1}));
  EXPECT_EQ(p.grad().data<float>()[2], 2);
  EXPECT_EQ(grad_norm({}), 0);
}

TEST(ClipGradValue, ClampsBothSigns) {
  Tensor p = leaf(zeros({40})), q = leaf(zeros({3}));
  Samples random(DType::f32, 4);
  const Tensor g = random.tensor({40});
  const Doubles before = values(g);
  p.set_grad(g);
  const float few[] = {-3, 0.25, 3};
  q.set_grad(to(from_span<float>(few, {3}), DType::bf16));
  clip_grad_value({p, q}, 0.5);
  const Doubles after = values(p.grad());
  for (size_t i = 0; i < 40; ++i) EXPECT_EQ(after[i], std::min(0.5, std::max(-0.5, before[i])));
  EXPECT_EQ(values(q.grad()), Doubles({-0.5, 0.25, 0.5}));
}

}  // namespace
}  // namespace strata::optim
