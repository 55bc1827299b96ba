// Capturing and replaying functions. Needs a card, but for the refusal without one.

#include "strata/cuda/graph.h"

#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "strata/cuda/memory.h"
#include "strata/memory/allocator.h"
#include "strata/strata.h"

namespace strata::cuda {
namespace {

TEST(GraphAbsent, RefusesWithTheReason) {
  if (device_count() > 0) GTEST_SKIP() << "there is a device";
  EXPECT_THROW(Graph(), DeviceError);
  EXPECT_FALSE(capturing());
}

class CudaGraph : public ::testing::Test {
 protected:
  void SetUp() override {
    if (device_count() == 0) GTEST_SKIP() << unavailable_reason();
  }
};

Tensor on_card(const Tensor& t) {
  return t.to(Device::cuda());
}
std::vector<float> values(const Tensor& t) {
  return t.detach().to_vector<float>();
}

TEST_F(CudaGraph, AReplayReadsItsInputsAnew) {
  NoGrad guard;
  Tensor x = on_card(full({1000}, 2.0));
  Graph graph;
  Tensor y;
  graph.capture([&] {
    EXPECT_TRUE(capturing());
    y = (x * x + 1) * 3.5;  // the numbers of the host are recorded
  });
  EXPECT_FALSE(capturing());
  EXPECT_GE(graph.nodes(), 3);
  EXPECT_EQ(graph.random_blocks(), 0u);
  EXPECT_GT(graph.pool().reserved_bytes(), 0);
  graph.replay();
  EXPECT_EQ(values(y), std::vector<float>(1000, 17.5f));
  x.fill_(3);
  graph.replay();
  EXPECT_EQ(values(y), std::vector<float>(1000, 35.f));
}

TEST_F(CudaGraph, WhatIsAllocatedInACaptureIsNobodyElses) {
  NoGrad guard;
  Tensor x = on_card(ones({1 << 18}));
  Graph graph;
  Tensor y;
  graph.capture([&] {
    y = x;
    for (int i = 0; i < 4; ++i) y = y + x;  // intermediate results are given back, and used again by each replay
  });
  // What others allocate now must not lie where the replay writes.
  std::vector<Tensor> others;
  for (int i = 0; i < 8; ++i) others.push_back(full({1 << 18}, 7.0).to(Device::cuda()));
  const int64_t live = memory::stats(DeviceType::cuda).live_total;
  graph.replay();
  EXPECT_EQ(memory::stats(DeviceType::cuda).live_total, live);
  EXPECT_EQ(values(y), std::vector<float>(1 << 18, 5.f));
  for (const Tensor& t : others) EXPECT_EQ(values(t), std::vector<float>(1 << 18, 7.f));
  memory::release_cached();  // must leave the graph its memory
  graph.replay();
  EXPECT_EQ(values(y), std::vector<float>(1 << 18, 5.f));
}

TEST_F(CudaGraph, RandomNumbersGoOnAcrossReplays) {
  NoGrad guard;
  const Tensor x = on_card(ones({1003}));
  const auto draw = [&] {
    DeviceScope scope(Device::cuda());
    Tensor y = dropout(x, 0.3) + randn({1003});
    y = y + rand({1003}, DType::f64).to(DType::f32);
    return y + randint(0, 1000, {1003}, DType::f32);
  };
  manual_seed(5);
  draw();
  std::vector<std::vector<float>> want;
  for (int i = 0; i < 3; ++i) want.push_back(values(draw()));
  const RngKey after = default_generator().state();

  manual_seed(5);
  draw();
  const RngKey before = default_generator().state();
  Graph graph;
  Tensor y;
  graph.capture([&] { y = draw(); });
  EXPECT_EQ(default_generator().state(), before);
  EXPECT_GT(graph.random_blocks(), 0u);
  for (int i = 0; i < 3; ++i) {
    graph.replay();
    EXPECT_EQ(values(y), want[static_cast<size_t>(i)]) << i;
  }
  EXPECT_EQ(default_generator().state(), after);
  // Another seed and place, as a resumed run has.
  default_generator().set_state({77, 1000});
  const std::vector<float> other = values(draw());
  default_generator().set_state({77, 1000});
  graph.replay();
  EXPECT_EQ(values(y), other);
}

TEST_F(CudaGraph, GradientsAreCapturedWithRecomputation) {
  const Tensor w = on_card(randn({64, 64})).set_requires_grad();
  const Tensor x = on_card(randn({32, 64}));
  const auto step = [&] {
    Tensor(w).set_grad({});
    const Tensor h = checkpoint([&](const Tensor& t) { return dropout(matmul(t, w).tanh(), 0.5); }, x);
    (h * h).sum().backward();
  };
  manual_seed(3);
  step();
  std::vector<std::vector<float>> want;
  for (int i = 0; i < 3; ++i) {
    step();
    want.push_back(values(w.grad()));
  }
  manual_seed(3);
  step();
  Graph graph;
  graph.capture(step);
  for (int i = 0; i < 3; ++i) {
    graph.replay();
    EXPECT_EQ(values(w.grad()), want[static_cast<size_t>(i)]) << i;
  }
}

// What `fn` throws when it is captured.
template <class F>
std::string refusal(F&& fn) {
  Graph graph;
  try {
    graph.capture(fn);
  } catch (const Error& e) {
    EXPECT_TRUE(graph.empty());
    EXPECT_THROW(graph.replay(), DeviceError);
    return e.what();
  }
  return "captured";
}

TEST_F(CudaGraph, WhatCannotBeCapturedSaysSoAndLeavesNothingBehind) {
  NoGrad guard;
  const Tensor x = on_card(randn({64})), host = ones({64});
  const auto has = [](const std::string& text, const char* part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  manual_seed(9);
  const int64_t live = memory::stats(DeviceType::cuda).live_total;
  has(refusal([&] { (x.sum() * 2).item(); }), "item()");
  has(refusal([&] { (x + host.to(Device::cuda())).sum(); }), "not pinned");
  has(refusal([&] { nonzero(x + 1); }), "nonzero");
  has(refusal([&] { x.exp(), Stream::main().synchronize(); }), "Stream::synchronize");
  has(refusal([&] { x.exp(), synchronize(); }), "waits for the device");
  has(refusal([&] { memory::release_cached(); }), "release_cached");
  has(refusal([&] {
        Generator own(3);
        randn_like(x, std::nullopt, own);
      }),
      "default_generator");
  has(refusal([&] { dropout(x, 0.5), manual_seed(4); }), "seed");
  has(refusal([&] {
        Graph inner;
        inner.capture([] {});
      }),
      "already");
  has(refusal([&] { throw ValueError("mine", "stop"); }), "stop");
  EXPECT_EQ(memory::stats(DeviceType::cuda).live_total, live);
  EXPECT_EQ(default_generator().state(), (RngKey{9, 0}));
  EXPECT_FALSE(capturing());
  // The stream, the allocator and capturing itself go on as before.
  Graph graph;
  Tensor y;
  graph.capture([&] { y = x + x; });
  graph.replay();
  EXPECT_EQ(values(y), values(x * 2));
  memory::release_cached();
  EXPECT_EQ(values(x - x), std::vector<float>(64, 0.f));
}

TEST_F(CudaGraph, TwoGraphsShareAPool) {
  NoGrad guard;
  const Tensor x = on_card(full({1 << 20}, 3.0));
  const GraphPool pool;
  std::optional<Graph> first(pool), second(pool);
  Tensor y, z;
  const auto work = [&](double add) {
    Tensor t = x + add;
    for (int i = 0; i < 3; ++i) t = t * 2 + x;
    return t;
  };
  first->capture([&] { y = work(1); });
  const int64_t alone = pool.reserved_bytes();
  second->capture([&] { z = work(5); });
  // Its intermediate results lie where the first's do: only z is new.
  EXPECT_LE(pool.reserved_bytes(), alone + (5 << 20));
  for (int i = 0; i < 2; ++i) {
    first->replay();
    second->replay();
    EXPECT_EQ(values(y), std::vector<float>(1 << 20, 53.f));
    EXPECT_EQ(values(z), std::vector<float>(1 << 20, 85.f));
  }
  first.reset();
  second->replay();
  EXPECT_EQ(values(z), std::vector<float>(1 << 20, 85.f));
}

TEST_F(CudaGraph, MemoryOfAGraphThatDiedComesBack) {
  NoGrad guard;
  const Tensor x = on_card(ones({1 << 22}));
  memory::release_cached();
  const int64_t before = memory::stats(DeviceType::cuda).reserved;
  Tensor kept;
  {
    Graph graph;
    graph.capture([&] { kept = x + x + x; });
    graph.replay();
    EXPECT_GE(memory::stats(DeviceType::cuda).reserved, before + (32 << 20));
  }
  EXPECT_EQ(values(kept.narrow(0, 0, 4)), std::vector<float>(4, 3.f));  // still the holder's
  kept = Tensor();
  memory::release_cached();
  EXPECT_LE(memory::stats(DeviceType::cuda).reserved, before + (2 << 20));
}

TEST_F(CudaGraph, CapturesOnOtherStreamsAndFromPinnedMemory) {
  NoGrad guard;
  const Stream side = Stream::create();
  const StreamScope scope(side);
  const Tensor pinned = pin_memory(full({512}, 4.0));
  Tensor x = on_card(zeros({512})), y;
  side.synchronize();
  Graph graph;
  graph.capture([&] {
    x.copy_(pinned);
    y = x * x;
  });
  graph.replay();
  const Tensor back = pin_memory(zeros({512}));
  copy_to_pinned(back, y);
  side.synchronize();
  EXPECT_EQ(values(back), std::vector<float>(512, 16.f));
  Tensor(pinned).fill_(5);
  graph.replay();
  EXPECT_EQ(values(y), std::vector<float>(512, 25.f));
  EXPECT_THROW(copy_to_pinned(back, x.narrow(0, 0, 3)), ShapeError);
  EXPECT_THROW(copy_to_pinned(back, pinned), DeviceError);
}

TEST_F(CudaGraph, AsksBeforeItsReplaysWhileTheOwnerLives) {
  NoGrad guard;
  Tensor x = on_card(zeros({4})), y;
  double now = 1;
  auto owner = std::make_shared<int>(0);
  Graph graph;
  graph.capture([&] {
    before_replays(owner, [&] { x.fill_(now); });
    y = x * 2;
  });
  EXPECT_EQ(values(x), std::vector<float>(4, 0.f));  // not yet
  for (now = 1; now < 4; ++now) {
    graph.replay();
    EXPECT_EQ(values(y), std::vector<float>(4, static_cast<float>(2 * now)));
  }
  owner.reset();
  graph.replay();
  EXPECT_EQ(values(y), std::vector<float>(4, 6.f));
  EXPECT_THROW(before_replays(owner, [] {}), DeviceError);
  EXPECT_THROW(graph.capture([&] {
    before_replays(std::make_shared<int>(0), [] {});
    throw ValueError("test", "given up");
  }),
               ValueError);
  EXPECT_THROW(before_replays(owner, [] {}), DeviceError);
}

}  // namespace
}  // namespace strata::cuda
