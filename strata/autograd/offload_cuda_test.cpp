// Saved tensors of a card in page-locked memory and on a disk. Needs a card.
#include "strata/autograd/offload.h"

#include <stdlib.h>

#include <filesystem>
#include <functional>
#include <optional>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/core/autocast.h"
#include "strata/core/samples.h"
#include "strata/cuda/graph.h"
#include "strata/cuda/runtime.h"
#include "strata/memory/allocator.h"
#include "strata/ops/activation/activation.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/dropout/dropout.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/norm/norm.h"
#include "strata/ops/reduce/reduce.h"

namespace strata {
namespace {

class OffloadCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  }
};

constexpr int64_t kRows = 4096, kWidth = 512;  // 4 MiB of bf16

OffloadOptions all_away() {
  return {.min_bytes = 1, .keep_bytes = 0, .queue_bytes = 0, .fetch_bytes = 0, .adaptive = false};
}
Tensor leaf(const Shape& shape, uint64_t seed) {
  return Samples(DType::f32, seed).tensor(shape).to(Device::cuda()).detach().set_requires_grad();
}
TensorList leaves() {
  TensorList all{leaf({kRows, kWidth}, 1), leaf({kWidth}, 2)};
  for (uint64_t i = 0; i < 6; ++i) all.push_back(leaf({kWidth, kWidth}, 3 + i));
  return all;
}
std::string bits(const Tensor& t) {
  const Tensor c = contiguous(t.detach()).to(Device::cpu());
  return {static_cast<const char*>(c.raw_data()), static_cast<size_t>(c.nbytes())};
}
std::vector<std::string> grads_of(const TensorList& all) {
  std::vector<std::string> b;
  for (const Tensor& t : all) b.push_back(t.grad().defined() ? bits(t.grad()) : std::string());
  return b;
}

// Six layers of a product, a norm and an activation, as autocast runs them.
Tensor loss_of(const TensorList& p, double drop = 0) {
  const AutocastScope low(DType::bf16);
  Tensor h = p[0] * 1.0;
  for (size_t i = 2; i < p.size(); ++i) {
    h = gelu(linear(rms_norm(h, {kWidth}, p[1]), p[i]), "tanh");
    if (drop > 0) h = dropout(h, drop);
  }
  return sum(to(h, DType::f32) * 1e-3);
}

using Offload = std::shared_ptr<SavedTensorOffload>;
void step(const TensorList& p, const Offload& offload, double drop = 0) {
  for (Tensor t : p) t.set_grad({});
  Tensor y;
  {
    std::optional<SavedTensorOffload::Scope> scope;
    if (offload) scope.emplace(offload);
    y = loss_of(p, drop);
  }
  y.backward();
}

TEST_F(OffloadCuda, SameBitsPassAfterPass) {
  const TensorList p = leaves();
  step(p, nullptr);
  const std::vector<std::string> want = grads_of(p);
  OffloadOptions again = all_away(), window = all_away(), adaptive = all_away();
  again.recompute = true;
  window.keep_bytes = window.queue_bytes = 12 << 20;
  window.fetch_bytes = 4 << 20;
  adaptive.recompute = adaptive.adaptive = true;
  adaptive.slowdown = 1.3;
  int way = 0;
  for (const OffloadOptions& o : {all_away(), again, window, adaptive}) {
    const auto offload = SavedTensorOffload::create(o);
    for (int pass = 0; pass < 20; ++pass) {
      step(p, offload);
      if (pass % 5 != 4) continue;
      EXPECT_EQ(grads_of(p), want) << "way " << way << " pass " << pass;
    }
    const OffloadStats s = offload->stats();
    EXPECT_EQ(s.away_bytes, 0) << way;
    EXPECT_EQ(s.refused, 0) << s.last_failure;
    EXPECT_TRUE(way == 3 || s.sent > 0) << way;
    EXPECT_EQ(s.recomputed > 0, o.recompute) << way;
    if (o.adaptive) {
      offload->settle();
      EXPECT_TRUE(offload->plan().has_value());
      EXPECT_GT(offload->measured().forward_seconds, 0);
    }
    ++way;
  }
}

TEST_F(OffloadCuda, ThePeakFallsAndNothingGrows) {
  const TensorList p = leaves();
  const Device d = Device::cuda();
  step(p, nullptr);
  const auto peak = [&](const Offload& offload) {
    const int64_t before = memory::stats(d).live_total;
    memory::reset_peak(d);
    step(p, offload);
    return memory::stats(d).peak_total - before;
  };
  const int64_t plain = peak(nullptr);
  const auto offload = SavedTensorOffload::create(all_away());
  EXPECT_LT(peak(offload), plain * 6 / 10);
  cuda::synchronize();
  const int64_t live = memory::stats(d).live_total, held = offload->stats().host_bytes;
  for (int i = 0; i < 200; ++i) step(p, offload);
  cuda::synchronize();
  EXPECT_EQ(memory::stats(d).live_total, live);
  EXPECT_EQ(offload->stats().host_bytes, held);
  EXPECT_GT(held, 0);
}

TEST_F(OffloadCuda, ALimitOfHostMemoryIsKept) {
  const TensorList p = leaves();
  step(p, nullptr);
  const std::vector<std::string> want = grads_of(p);
  OffloadOptions o = all_away();
  o.host_bytes = 20 << 20;
  const auto offload = SavedTensorOffload::create(o);
  for (int i = 0; i < 3; ++i) step(p, offload);
  EXPECT_EQ(grads_of(p), want);
  EXPECT_LE(offload->stats().host_bytes, o.host_bytes);
  EXPECT_GT(offload->stats().refused, 0);
  EXPECT_GT(offload->stats().sent, 0);
}

TEST_F(OffloadCuda, DroppedGraphsGiveAllBack) {
  const TensorList p = leaves();
  const auto offload = SavedTensorOffload::create(all_away());
  step(p, offload);
  cuda::synchronize();
  for (Tensor t : p) t.set_grad({});
  const int64_t live = memory::stats(Device::cuda()).live_total;
  {
    const SavedTensorOffload::Scope scope(offload);
    (void)loss_of(p);
  }
  cuda::synchronize();
  EXPECT_EQ(memory::stats(Device::cuda()).live_total, live);
  EXPECT_EQ(offload->stats().away_bytes, 0);
}

TEST_F(OffloadCuda, AGraphMovesThemInEachReplay) {
  TensorList p = leaves();
  step(p, nullptr);
  const std::vector<std::string> want = grads_of(p);
  for (Tensor t : p) t.set_grad({});
  for (const bool recompute : {false, true}) {
    OffloadOptions o = all_away();
    o.recompute = recompute;
    o.queue_bytes = 12 << 20;
    cuda::Graph graph;
    {
      const auto offload = SavedTensorOffload::create(o);
      step(p, offload);  // what happens at first use only
      for (Tensor t : p) t.set_grad({});
      graph.capture([&] { step(p, offload); });
      EXPECT_GT(offload->stats().host_bytes, 0);
    }
    // Its blocks are its own: nobody else gets them, and they stay.
    memory::release_cached();
    TensorList others;
    for (const int64_t mib : {2, 4, 4, 4, 8, 8}) others.push_back(full({mib << 18}, 7.0, DType::f32).to(Tier::pinned));
    for (int i = 0; i < 10; ++i) {
      for (const Tensor& t : p) t.grad().fill_(3.0);
      graph.replay();
    }
    EXPECT_EQ(grads_of(p), want) << recompute;
    NoGrad guard;
    const Tensor kept = p[0].clone();
    p[0].detach().mul_(0.5);
    graph.replay();
    const std::vector<std::string> halved = grads_of(p);
    EXPECT_NE(halved[0], want[0]);
    p[0].detach().copy_(kept);
    graph.replay();
    EXPECT_EQ(grads_of(p), want);
    for (const Tensor& t : others) EXPECT_EQ(t.select(0, 5).item(), 7.0);
    for (Tensor t : p) t.set_grad({});
  }
}

// The mask that is drawn again is that of the forward pass, in each replay another.
TEST_F(OffloadCuda, MasksOfAGraphAreDrawnAgainAlike) {
  const Tensor x = leaf({kRows, kWidth}, 1), w = leaf({kRows, kWidth}, 2);
  OffloadOptions o = all_away();
  o.recompute = true;
  const auto offload = SavedTensorOffload::create(o);
  Tensor dropped;
  const auto run = [&] {
    Tensor y;
    {
      const SavedTensorOffload::Scope scope(offload);
      const Tensor e = exp(x * 1.0);  // saved by exp
      const Tensor d = dropout(e, 0.5);
      dropped = d.detach();
      y = sum(d * w);
    }
    y.backward();
  };
  run();
  Tensor a = x, b = w;
  a.set_grad({});
  b.set_grad({});
  cuda::Graph graph;
  graph.capture(run);
  std::string before;
  for (int i = 0; i < 3; ++i) {
    graph.replay();
    const std::string now = bits(w.grad());
    EXPECT_EQ(now, bits(dropped));  // d(y)/d(w), made again in backward
    EXPECT_NE(now, before);
    before = now;
  }
  EXPECT_GT(offload->stats().recomputed, 0);
}

TEST_F(OffloadCuda, ALogByTheCardsClock) {
  OffloadOptions o = all_away();
  o.log = true;
  const auto offload = SavedTensorOffload::create(o);
  const TensorList p = leaves();
  for (int i = 0; i < 2; ++i) step(p, offload);
  int64_t out = 0, in = 0;
  double last_out = 0;
  for (const OffloadTransfer& t : offload->transfers()) {
    EXPECT_LT(t.begin, t.end);
    (t.out ? out : in) += t.bytes;
    if (!t.out) continue;
    EXPECT_GE(t.begin, last_out - 2e-6);  // one after the other
    last_out = t.end;
  }
  EXPECT_EQ(out, offload->stats().sent);
  EXPECT_EQ(in, offload->stats().fetched);
}

TEST_F(OffloadCuda, ToADiskByWayOfPageLockedMemory) {
  std::string path = testing::TempDir() + "strata_offload_XXXXXX";
  ASSERT_NE(::mkdtemp(path.data()), nullptr);
  {
    OffloadOptions o = all_away();
    o.away = SavedPlace::disk;
    o.disk = std::make_shared<memory::DiskStore>(memory::DiskOptions{.directories = {path}});
    const TensorList p = leaves();
    step(p, nullptr);
    const std::vector<std::string> want = grads_of(p);
    const auto offload = SavedTensorOffload::create(o);
    for (int i = 0; i < 5; ++i) step(p, offload);
    EXPECT_EQ(grads_of(p), want);
    EXPECT_GT(offload->stats().fetched, 0);
    EXPECT_EQ(offload->stats().refused, 0) << offload->stats().last_failure;
    EXPECT_GT(o.disk->stats().bytes_written, 0);

    // While little page-locked memory is free, what finds none stays.
    o.host_bytes = 12 << 20;
    const auto narrow = SavedTensorOffload::create(o);
    for (int i = 0; i < 3; ++i) step(p, narrow);
    EXPECT_EQ(grads_of(p), want);
    EXPECT_LE(narrow->stats().host_bytes, o.host_bytes);

    cuda::Graph graph;
    EXPECT_THROW(graph.capture([&] { step(p, offload); }), DeviceError);
    for (int i = 0; i < 2; ++i) step(p, offload);
    EXPECT_EQ(grads_of(p), want);
    EXPECT_EQ(offload->stats().away_bytes, 0);
    EXPECT_EQ(o.disk->bound().used, 0);
  }
  std::filesystem::remove_all(path);
}

TEST_F(OffloadCuda, OnAStreamBesideTheMainOne) {
  const TensorList p = leaves();
  step(p, nullptr);
  const std::vector<std::string> want = grads_of(p);
  const cuda::Stream side = cuda::Stream::create();
  side.wait(cuda::Stream::main());
  const cuda::StreamScope on(side);
  const auto offload = SavedTensorOffload::create(all_away());
  for (int i = 0; i < 5; ++i) step(p, offload);
  EXPECT_EQ(grads_of(p), want);
}

}  // namespace
}  // namespace strata
