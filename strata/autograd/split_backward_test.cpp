#include "strata/autograd/split_backward.h"

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/autograd/checkpoint.h"
#include "strata/core/autocast.h"
#include "strata/core/error.h"
#include "strata/ops/matmul/mlp.h"
#include "strata/ops/ops.h"

namespace strata {
namespace {

// Weights of a small network, and its input.
struct Net {
  Net() {
    manual_seed(5);
    const auto weight = [](const Shape& s) { return (randn(s) * 0.2).set_requires_grad(); };
    all = {weight({5, 7, 12}), weight({24, 12}), weight({24}),     weight({12, 24}),
           weight({12}),       weight({12}),     weight({12, 12}), weight({12, 36})};
  }
  Tensor stream(const Tensor& x) const {
    Tensor y = gelu_mlp(x, all[1], all[2], all[3], all[4]);
    y = rms_norm(y + x, {12}, all[5]);
    y = linear(y, all[6]) + linear(y, all[6], all[4]);    // shared by two
    return matmul(y, all[7]).narrow(-1, 5, 12) * all[5];  // and by something that does not wait
  }
  std::vector<Tensor> grads() const {
    std::vector<Tensor> g;
    for (const Tensor& t : all) g.push_back(t.grad());
    return g;
  }
  void clear() const {
    for (Tensor t : all) t.set_grad({});
  }
  TensorList all;  // the first is the input
};

void expect_same(const std::vector<Tensor>& got, const std::vector<Tensor>& want) {
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_TRUE(got[i].defined()) << i;
    EXPECT_TRUE(equal(got[i], want[i])) << i;
  }
}

// Both ways for several passes that add up, through `run`.
template <class Run>
void expect_bits(const Net& net, const Run& run) {
  const Tensor g = randn({5, 7, 12});
  for (int pass = 0; pass < 2; ++pass) backward({run()}, {g});
  const std::vector<Tensor> want = net.grads();
  net.clear();
  std::vector<std::unique_ptr<SplitBackward>> rest;
  for (int pass = 0; pass < 2; ++pass)
    rest.push_back(std::make_unique<SplitBackward>(TensorList{run()}, TensorList{g}, TensorList{net.all[0]}));
  EXPECT_TRUE(equal(net.all[0].grad(), want[0]));
  for (const size_t i : {1, 2, 3, 6, 7}) EXPECT_FALSE(net.all[i].grad().defined()) << i;
  for (const auto& r : rest) {
    EXPECT_EQ(r->waiting(), 4);
    r->finish();
    EXPECT_EQ(r->waiting(), 0);
  }
  expect_same(net.grads(), want);
  rest[0]->finish();
  expect_same(net.grads(), want);
}

TEST(SplitBackward, HalvesGiveTheBitsOfOnePass) {
  const Net net;
  expect_bits(net, [&] { return net.stream(net.all[0]); });
}

TEST(SplitBackward, UnderAutocast) {
  const Net net;
  expect_bits(net, [&] {
    const AutocastScope low(DType::bf16);
    return net.stream(net.all[0]).to(DType::f32);
  });
}

TEST(SplitBackward, ThroughWhatIsComputedAgain) {
  const Net net;
  expect_bits(net, [&] { return checkpoint([&](const Tensor& x) { return net.stream(x); }, net.all[0]); });
}

TEST(SplitBackward, LeavesThatAreWantedNowDoNotWait) {
  const Tensor x = randn({3, 4}).set_requires_grad(), w = randn({2, 4}).set_requires_grad();
  const SplitBackward rest({linear(x, w).sum()}, {}, {x, w});
  EXPECT_EQ(rest.waiting(), 0);
  EXPECT_TRUE(x.grad().defined() && w.grad().defined());
  // An input that is not named is a leaf like another.
  const SplitBackward later({linear(x, w).sum()});
  EXPECT_EQ(later.waiting(), 1);
}

TEST(SplitBackward, HooksSeeEachGradientOnce) {
  const Tensor x = randn({3, 4}).set_requires_grad(), w = randn({2, 4}).set_requires_grad();
  struct Count final : TensorHook {
    Tensor operator()(const Tensor&) override { return ++calls, Tensor(); }
    int calls = 0;
  };
  const auto on_x = std::make_shared<Count>(), on_w = std::make_shared<Count>(), on_y = std::make_shared<Count>();
  add_tensor_hook(x, on_x);
  add_post_accumulate_hook(w, on_w);
  const Tensor y = linear(x, w);
  add_tensor_hook(y, on_y);
  SplitBackward rest({y.sum()}, {}, {x});
  EXPECT_EQ(on_x->calls, 1);
  EXPECT_EQ(on_y->calls, 1);
  EXPECT_EQ(on_w->calls, 0);
  rest.finish();
  EXPECT_EQ(on_y->calls, 1);
  EXPECT_EQ(on_w->calls, 1);
}

TEST(SplitBackward, WhatIsNotFinishedIsDropped) {
  const Tensor x = randn({3, 4}).set_requires_grad(), w = randn({2, 4}).set_requires_grad();
  { const SplitBackward rest({linear(x, w).sum()}, {}, {x}); }
  EXPECT_FALSE(w.grad().defined());
}

TEST(SplitBackward, AGraphIsUsedOnce) {
  const Tensor x = randn({3, 4}).set_requires_grad(), w = randn({2, 4}).set_requires_grad();
  const Tensor y = linear(tanh(x), w).sum();
  SplitBackward rest({y}, {}, {x});
  EXPECT_THROW(SplitBackward({y}, {}, {x}), AutogradError);
  rest.finish();
  EXPECT_THROW(SplitBackward({y}), AutogradError);
  EXPECT_THROW(SplitBackward({ones({2})}), AutogradError);
  EXPECT_THROW(SplitBackward({linear(x, w)}), AutogradError);
}

}  // namespace
}  // namespace strata
