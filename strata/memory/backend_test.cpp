// A further kind of memory: registered here and known nowhere else, with tensors in it that ordinary calls compute
// with.
#include "strata/core/backend.h"

#include <cmath>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/core/error_test_util.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/memory/allocator.h"
#include "strata/memory/second_heap_test_util.h"
#include "strata/memory/timeline.h"
#include "strata/ops/activation/activation.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/index.h"
#include "strata/ops/loss/loss.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata::memory {
namespace {

Tensor ramp(const Shape& shape, double step = 0.25) {
  return reshape(arange(shape.product()), shape).to(DType::f32) * step - 1.0;
}

// Every pin taken has ended, and nobody wrote where he said that he reads.
void expect_settled() {
  EXPECT_EQ(SecondHeap::get().pinned.load(), 0);
  EXPECT_EQ(SecondHeap::get().wrong_reads.load(), 0);
}

template <class F>
std::string refusal(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}
bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST(Backends, TheFourThatAreThereByName) {
  EXPECT_EQ(Tier::host.name(), "host");
  EXPECT_EQ(Tier().name(), "own");
  EXPECT_EQ(Tier::named("pinned"), Tier::pinned);
  EXPECT_EQ(kSecond.name(), "second heap");
  EXPECT_EQ(&backend(Device::cpu()), &backend(Device::cpu(), Tier::host));
  EXPECT_EQ(backend(Device::meta()).name, "meta");
  SecondHeap& heap = SecondHeap::get();
  EXPECT_EQ(find_backend(DeviceType::cpu, kSecond), &heap);
  EXPECT_EQ(find_backend(DeviceType::meta, kSecond), nullptr);
  bool listed = false;
  for (const Backend* b : backends()) listed = listed || b == &heap;
  EXPECT_TRUE(listed);
  EXPECT_TRUE(has(refusal([&] { register_backend(heap); }), "already"));
  EXPECT_TRUE(has(refusal([] { empty({{2}, DType::f32, Device::meta(), std::nullopt}, kSecond); }), "'second heap'"));
  EXPECT_TRUE(has(refusal([] { backend(Device::cpu()).fetch(Device::cpu(), nullptr); }), "do not move"));
  EXPECT_THROW(Tier::named(""), ValueError);
}

TEST(Backends, ATensorSaysWhereItsBytesAre) {
  const SecondHeap& heap = SecondHeap::get();
  const Tensor x = ramp({3, 4});
  EXPECT_EQ(x.tier(), Tier::host);
  EXPECT_TRUE(x.storage()->resident());
  const Tensor y = x.to(kSecond);
  EXPECT_EQ(y.tier(), kSecond);
  EXPECT_EQ(&y.storage()->backend(), static_cast<const Backend*>(&heap));
  EXPECT_TRUE(y.device().is_cpu());
  EXPECT_FALSE(y.storage()->resident());
  EXPECT_TRUE(y.to(kSecond).same_as(y));
  EXPECT_TRUE(x.to(Tier()).same_as(x));
  EXPECT_EQ(y.to(Tier::host).tier(), Tier::host);
  EXPECT_EQ(y.to_vector<float>(), x.to_vector<float>());
  EXPECT_EQ(select(y, 0, 1).tier(), kSecond);  // a view
  EXPECT_EQ(y.to_string(), x.to_string());
  EXPECT_EQ(sum(y).item<float>(), sum(x).item<float>());
  EXPECT_EQ(y.view({12})[5].item<float>(), x.view({12})[5].item<float>());
  const Tensor nothing = empty({{0, 3}, DType::f32, Device::cpu(), std::nullopt}, kSecond);
  EXPECT_TRUE(nothing.storage()->resident());
  EXPECT_NO_THROW(nothing.raw_data());
  const Tensor dry = empty({{2}, DType::f32, Device::meta(), std::nullopt});
  EXPECT_FALSE(dry.storage()->resident());
  EXPECT_TRUE(dry.to(kSecond).same_as(dry));
  expect_settled();
}

TEST(Backends, AnAddressIsThereWhileAPinHoldsIt) {
  SecondHeap& heap = SecondHeap::get();
  Tensor y = ramp({2, 3}).to(kSecond);
  const std::string text = refusal([&] { y.raw_data(); });
  EXPECT_EQ(text,
            "data: a tensor [2, 3] f32 in memory of tier 'second heap' is not resident: hold a Pin while its elements "
            "are read or written");
  EXPECT_EQ(refusal([&] { y.data<float>(); }), text);
  const int64_t fetches = heap.fetches, written = heap.write_backs;
  {
    const Pin outer(y);
    auto* p = y.data<float>();
    {
      const Pin inner(y, Access::read);
      EXPECT_EQ(y.data<float>(), p);
    }
    p[5] = 7;
    EXPECT_TRUE(y.storage()->resident());
  }
  EXPECT_THROW(y.raw_data(), DeviceError);
  EXPECT_EQ(heap.fetches, fetches + 1);
  EXPECT_EQ(heap.write_backs, written + 1);
  EXPECT_EQ(y[1][2].item<float>(), 7);
  EXPECT_EQ(heap.write_backs, written + 1);  // reading writes nothing back

  const int64_t hits = heap.hits, prefetches = heap.prefetches;
  y.storage()->prefetch();
  EXPECT_TRUE(y.storage()->resident());
  EXPECT_THROW(y.raw_data(), DeviceError);  // near, but nobody holds it there
  EXPECT_EQ(y[1][2].item<float>(), 7);
  EXPECT_EQ(heap.prefetches, prefetches + 1);
  EXPECT_GE(heap.hits, hits + 1);
  ramp({2}).storage()->prefetch();  // of bytes that do not move: nothing
  expect_settled();
}

// Copies of the tensors among `args` in the second heap.
std::vector<Value> moved(const std::vector<Value>& args) {
  std::vector<Value> there = args;
  for (Value& v : there) {
    if (Tensor* t = std::get_if<Tensor>(&v); t && t->defined()) {
      // The geometry too: samples have strided ones.
      const int64_t n = static_cast<int64_t>(t->storage()->nbytes) / size_of(t->dtype());
      const Tensor all = alias(*t, {n}, {1}, 0).to(kSecond);
      Tensor y = alias(all, t->shape(), t->strides(), t->storage_offset());
      y.impl().wrapped_number = t->impl().wrapped_number;
      *t = y;
    } else if (TensorList* l = std::get_if<TensorList>(&v)) {
      for (Tensor& each : *l)
        if (each.defined()) each = each.to(kSecond);
    }
  }
  return there;
}

void expect_same_bits(const Value& a, const Value& b, std::string_view op) {
  const Tensor* x = std::get_if<Tensor>(&a);
  if (!x || !x->defined()) return;
  const Tensor y = std::get<Tensor>(b).contiguous();
  ASSERT_EQ(x->shape(), y.shape()) << op;
  if (x->numel() == 0) return;
  const Tensor here = x->contiguous();
  const Pin p(here, Access::read), q(y, Access::read);
  EXPECT_EQ(std::memcmp(here.raw_data(), y.raw_data(), static_cast<size_t>(here.nbytes())), 0) << op;
}

// Every record's samples, with arguments in the second heap, and then with its results there too.
TEST(Backends, EveryOpGivesTheSameBits) {
  SecondHeap::get();
  const NoGrad guard;
  int ops = 0;
  for (const OpBase* op : OpBase::all()) {
    if (!op->has_samples() || !op->has_kernel(DeviceType::cpu)) continue;
    Samples samples(op->dtypes() & dtype_bit(DType::f32) ? DType::f32 : DType::i64);
    op->samples(samples);
    size_t done = 0;
    for (const Sample& s : samples.valid) {
      std::vector<Value> here;
      try {
        here = op->call_boxed(s.args);
      } catch (const Error&) {
        continue;  // not for this machine or dtype
      }
      const std::vector<Value> there = op->call_boxed(moved(s.args));
      for (size_t i = 0; i < here.size(); ++i) expect_same_bits(here[i], there[i], op->name());
      if (++done == 3) break;
    }
    ops += done > 0;
    ASSERT_EQ(SecondHeap::get().pinned.load(), 0) << op->name();
    ASSERT_EQ(SecondHeap::get().wrong_reads.load(), 0) << op->name() << " writes to what it should read";
  }
  EXPECT_GT(ops, 150);
}

struct Net {
  Tensor w1, b1, w2;
};
Net make_net(Tier tier) {
  const TierScope scope(tier);
  Net n{ramp({8, 16}, 0.01), ramp({16}, 0.02), ramp({16, 4}, 0.03)};
  for (Tensor* t : {&n.w1, &n.b1, &n.w2}) {
    *t = t->to(tier);
    t->set_requires_grad();
  }
  return n;
}
Tensor loss_of(const Net& n, const Tensor& x, const Tensor& y) {
  return cross_entropy(matmul(gelu(matmul(x, n.w1) + n.b1), n.w2), y);
}
float train(const Net& n, int steps) {
  const Tensor x = ramp({32, 8}, 0.005), y = arange(32) % 4;
  float last = 0;
  for (int i = 0; i < steps; ++i) {
    const Tensor loss = loss_of(n, x, y);
    loss.backward();
    last = loss.item<float>();
    const NoGrad guard;
    for (Tensor p : {n.w1, n.b1, n.w2}) {
      p.add_(p.grad(), -0.5);
      p.set_grad({});
    }
  }
  return last;
}

TEST(Backends, TrainingIsTheSameToTheBit) {
  SecondHeap& heap = SecondHeap::get();
  const Net here = make_net(Tier::host), there = make_net(kSecond);
  const float wanted = train(here, 5);
  const int64_t fetches = heap.fetches, written = heap.write_backs;
  EXPECT_EQ(train(there, 5), wanted);
  EXPECT_GE(heap.fetches, fetches + 5 * 6);
  EXPECT_EQ(heap.write_backs, written + 5 * 3);  // an update each
  // And with all that the ops make there as well: activations, saved tensors, gradients.
  const Net all = make_net(kSecond);
  {
    const TierScope scope(kSecond);
    EXPECT_EQ(train(all, 5), wanted);
    EXPECT_EQ((all.w1 * 2.0).tier(), kSecond);
    EXPECT_EQ(zeros({3}).tier(), kSecond);
    EXPECT_EQ(empty({{3}, DType::f32, Device::meta(), std::nullopt}).tier(), Tier::meta);  // has no such memory
    EXPECT_EQ(nonzero(all.w1).tier(), Tier::host);  // its size depends on values: made by the op itself
  }
  for (const Net* n : {&there, &all}) {
    EXPECT_EQ(n->w1.to_vector<float>(), here.w1.to_vector<float>());
    EXPECT_EQ(n->b1.to_vector<float>(), here.b1.to_vector<float>());
    EXPECT_EQ(n->w2.to_vector<float>(), here.w2.to_vector<float>());
  }
  expect_settled();
}

TEST(Backends, MovingIsDifferentiable) {
  SecondHeap::get();
  Tensor x = ramp({4}).set_requires_grad();
  const Tensor y = (x * 2.0).to(kSecond);
  EXPECT_EQ(y.tier(), kSecond);
  sum(y * y).backward();
  const std::vector<float> v = x.to_vector<float>(), g = x.grad().to_vector<float>();
  for (size_t i = 0; i < v.size(); ++i) EXPECT_EQ(g[i], 8 * v[i]);
  expect_settled();
}

TEST(Backends, CountsByTagAndRefusesAtItsLimit) {
  SecondHeap& heap = SecondHeap::get();
  reset_peak(Device::cpu(), kSecond);
  const Stats before = stats(Device::cpu(), kSecond), host = stats(Device::cpu());
  Timeline timeline(Device::cpu(), 1000, kSecond);
  Tensor held;
  {
    const TagScope tag(Tag::parameter);
    const ModuleScope module("encoder");
    held = zeros({1 << 16}).to(kSecond);
  }
  const Stats now = stats(Device::cpu(), kSecond);
  const auto parameter = static_cast<size_t>(Tag::parameter), gradient = static_cast<size_t>(Tag::gradient);
  EXPECT_EQ(now.live[parameter], before.live[parameter] + (4 << 16));
  EXPECT_EQ(now.peak_total, before.live_total + (4 << 16));
  EXPECT_EQ(now.blocks, before.blocks + 1);
  EXPECT_LE(stats(Device::cpu()).live_total, host.live_total + (4 << 16));
  bool found = false;
  for (const BlockInfo& b : blocks(Device::cpu(), kSecond))
    found = found || (b.bytes == 4 << 16 && b.tag == Tag::parameter && has(b.holder, "encoder"));
  EXPECT_TRUE(found);
  EXPECT_TRUE(has(snapshot_json(Device::cpu(), kSecond), "\"tier\":\"second heap\""));
  held.storage()->retag(Tag::gradient);
  EXPECT_EQ(stats(Device::cpu(), kSecond).live[gradient], before.live[gradient] + (4 << 16));

  const int64_t previous = set_limit(now.live_total + 1000, Device::cpu(), kSecond);
  EXPECT_EQ(backend(Device::cpu(), kSecond).bound(Device::cpu()).free(), 1000);
  const std::string text = refusal([] { zeros({1 << 16}).to(kSecond); });
  EXPECT_TRUE(has(text, "cannot get 256.0 KiB for activation memory on second heap")) << text;
  EXPECT_TRUE(has(text, "encoder")) << text;
  EXPECT_EQ(stats(Device::cpu(), kSecond).live_total, now.live_total);
  zeros({100}).to(kSecond);
  set_limit(previous, Device::cpu(), kSecond);
  zeros({1 << 16}).to(kSecond);
  held = {};
  EXPECT_EQ(stats(Device::cpu(), kSecond).live_total, before.live_total);
  timeline.stop();
  const std::string json = timeline.to_json();
  EXPECT_TRUE(has(json, "\"tier\":\"second heap\"") && has(json, "encoder")) << json;
  EXPECT_EQ(timeline.size(), static_cast<int64_t>(before.blocks) + 7);  // three came and went, one changed its tag
  EXPECT_THROW(set_limit(1, Device::meta()), ValueError);
  static_cast<void>(heap);
}

TEST(Backends, WhatCannotBeBroughtIsTheCallsError) {
  SecondHeap& heap = SecondHeap::get();
  const Tensor x = ramp({64}), y = ramp({64}).to(kSecond), z = ramp({64}).to(kSecond);
  heap.fails = true;
  EXPECT_TRUE(has(refusal([&] { x + y; }), "there is no room for 256 bytes"));
  EXPECT_THROW(y.item<float>(), Error);
  EXPECT_THROW(Pin{y}, MemoryError);
  heap.fails = false;
  z.storage()->prefetch();
  heap.fails = true;
  EXPECT_THROW(z + y, MemoryError);  // the one that was held is let go
  heap.fails = false;
  EXPECT_EQ((x + y).to_vector<float>(), (x + x).to_vector<float>());
  expect_settled();
}

// Any number of threads may read a tensor at a time: pins count, and a block stays while one thread holds it.
TEST(Backends, ThreadsShareWhatMoves) {
  SecondHeap::get();
  const Net shared = make_net(kSecond);
  const Tensor x = ramp({32, 8}, 0.005).to(kSecond), y = arange(32) % 4;
  const float wanted = loss_of(shared, x, y).item<float>();
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) {
        if (i % 8 == 0) shared.w1.storage()->prefetch();
        const Tensor loss = loss_of(shared, x, y);
        if (loss.item<float>() != wanted) ++wrong;
        if (i % 10 == 0) loss.backward();
        // Blocks of one thread's own come and go beside it.
        const Tensor own = ramp({16}).to(kSecond);
        if (own.to_vector<float>()[3] != -0.25f) ++wrong;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_TRUE(std::isfinite(sum(shared.w1.grad()).item()));
  expect_settled();
}

}  // namespace
}  // namespace strata::memory
