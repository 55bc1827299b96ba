// Saved tensors sent away and fetched: the same gradients, less memory, and what can fail.
#include "strata/autograd/offload.h"

#include <atomic>
#include <functional>
#include <optional>
#include <thread>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/autograd/function.h"
#include "strata/autograd/offload_test_util.h"
#include "strata/core/autocast.h"
#include "strata/core/recording.h"
#include "strata/core/samples.h"
#include "strata/memory/allocator.h"
#include "strata/memory/pressure.h"
#include "strata/memory/transfers.h"
#include "strata/ops/activation/activation.h"
#include "strata/ops/attention/attention.h"
#include "strata/ops/conv/conv.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/dropout/dropout.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/norm/norm.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/softmax/softmax.h"

namespace strata {
namespace {
TEST(Offload, MlpOfEveryFloatingType) {
  for (const DType t : {DType::f32, DType::f64, DType::bf16, DType::f16}) expect_same_bits(mlp, mlp_leaves(t));
}

TEST(Offload, ConvolutionsNormsAndPools) {
  expect_same_bits(
      [](const TensorList& p) {
        const Tensor a = relu(conv2d(p[0], p[1], {}));
        const Tensor b = group_norm(a, 2, p[2], p[3]);
        return sum(sigmoid(conv2d(b, p[4], {})) * 3.0);
      },
      {leaf({2, 3, 9, 7}), leaf({4, 3, 3, 3}, 2), leaf({4}, 3), leaf({4}, 4), leaf({2, 4, 3, 3}, 5)});
}

TEST(Offload, AttentionWithViewsOfOneStorage) {
  expect_same_bits(
      [](const TensorList& p) {
        const Tensor qkv = linear(rms_norm(p[0], {16}, p[1]), p[2]);  // [2, 11, 48]
        const Tensor heads = qkv.view({2, 11, 3, 2, 8}).permute({2, 0, 3, 1, 4});
        const Tensor out = scaled_dot_product_attention(heads[0], heads[1], heads[2], {}, 0.0, true);
        return sum(softmax(linear(dropout(out, 0.3), p[3]), -1) * p[4]);
      },
      {leaf({2, 11, 16}), leaf({16}, 2), leaf({48, 16}, 3), leaf({8, 8}, 4), leaf({2, 2, 11, 8}, 5)});
}

TEST(Offload, AutocastAndItsLowCopies) {
  const TensorList leaves = mlp_leaves();
  const auto offload = SavedTensorOffload::create(all_away());
  const auto low = [](const TensorList& p) {
    const AutocastScope scope(DType::bf16);
    return to(mlp(p), DType::f32);
  };
  EXPECT_EQ(gradients(low, leaves, offload), gradients(low, leaves, nullptr));
  // The weights' copies stay: 33 x 9 and 21 x 33 elements of 2 bytes are none of what was saved.
  for (const SavedRecord& r : offload->measured().saved) {
    EXPECT_NE(r.bytes, 33 * 9 * 2);
    EXPECT_NE(r.bytes, 21 * 33 * 2);
  }
}

TEST(Offload, StoragesMoveOnce) {
  Tensor x = leaf({64});
  const auto offload = SavedTensorOffload::create(all_away());
  Tensor y;
  {
    const SavedTensorOffload::Scope scope(offload);
    const Tensor h = x * 2.0;  // saved by four nodes, through three views
    y = sum(h * h) + sum(h.view({8, 8}).t() * h.view({8, 8})) + sum(exp(h.slice(0, 3, 60)) * h.slice(0, 3, 60));
  }
  const OffloadStats before = offload->stats();
  int of_h = 0;
  for (const SavedRecord& r : offload->measured().saved) of_h += r.bytes == 64 * 4;
  EXPECT_EQ(of_h, 1);
  y.backward();
  EXPECT_EQ(offload->stats().fetched, before.sent);
}

TEST(Offload, LeavesParametersIntegersAndSmallOnesStay) {
  const auto offload = SavedTensorOffload::create({.min_bytes = 200, .keep_bytes = 0, .adaptive = false});
  Tensor x = leaf({64}), w = leaf({64}, 2);
  {
    const SavedTensorOffload::Scope scope(offload);
    const Tensor y = x * w + sum((x * 1.0).slice(0, 0, 2) * (x.slice(0, 0, 2) * 3.0)) + relu(x.narrow(0, 0, 4)).sum();
    (void)y;
  }
  for (const SavedRecord& r : offload->measured().saved) EXPECT_GE(r.bytes, 200);
  EXPECT_EQ(offload->stats().saved, 64 * 4);  // x * 1.0
}

TEST(Offload, MemoryIsGivenBackDuringForwardAndFetchedNearBackward) {
  const int64_t n = 1 << 18, bytes = n * 4;
  Tensor x = full({n}, 0.5, DType::f32).set_requires_grad();
  const auto chain = [&](const TensorList&) {
    Tensor y = x;
    for (int i = 0; i < 12; ++i) y = sin(y * y);
    return sum(y);
  };
  const auto peak_of = [&](const std::shared_ptr<SavedTensorOffload>& offload) {
    x.set_grad({});
    memory::reset_peak(DeviceType::cpu);
    const int64_t before = live();
    (void)gradients(chain, {x}, offload);
    return memory::stats(DeviceType::cpu).peak_total - before;
  };
  const auto offload = SavedTensorOffload::create(all_away());
  const int64_t plain = peak_of(nullptr), away = peak_of(offload);
  EXPECT_EQ(offload->stats().device_peak, memory::stats(DeviceType::cpu).peak_total);
  EXPECT_GT(plain, 23 * bytes);
  EXPECT_LT(away, 8 * bytes);
}

// What comes back early stands beside what backward takes for itself: the peak is forward's.
TEST(Offload, WhatComesBackEarlyLeavesRoomForBackward) {
  OffloadOptions o = all_away();
  o.keep_bytes = 8 << 20;
  const auto offload = SavedTensorOffload::create(o);
  Tensor x = leaf({1 << 18});
  for (int pass = 0; pass < 2; ++pass) {
    x.set_grad({});
    memory::reset_peak(DeviceType::cpu);
    Tensor h = x;
    {
      const SavedTensorOffload::Scope scope(offload);
      for (int i = 0; i < 24; ++i) h = tanh(h);
      h = sum(h);
    }
    const int64_t forward = memory::stats(DeviceType::cpu).peak_total;
    memory::reset_peak(DeviceType::cpu);
    const int64_t fetched = offload->stats().fetched;
    h.backward();
    EXPECT_GE(offload->stats().fetched - fetched, 14 << 20);
    EXPECT_LE(memory::stats(DeviceType::cpu).peak_total, forward + 4096);  // scalars besides
  }
}

// In a graph forward is shorter than when a host queues it: less leaves.
TEST(Offload, AShorterPassSendsLess) {
  OffloadOptions o = all_away();
  o.adaptive = true;
  o.slowdown = 1;
  const auto offload = SavedTensorOffload::create(o);
  const TensorList leaves = mlp_leaves();
  for (int pass = 0; pass < 5; ++pass) gradients(mlp, leaves, offload);
  const OffloadMeasured m = offload->measured();
  offload->settle();
  const OffloadPlan whole = *offload->plan();
  offload->settle(2 * (m.forward_seconds + m.backward_seconds));  // what was measured is less
  EXPECT_EQ(offload->plan()->choices, whole.choices);
  offload->settle(1e-3 * (m.forward_seconds + m.backward_seconds));
  EXPECT_NEAR(offload->plan()->seconds, 1e-3 * whole.seconds, 1e-3 * whole.seconds);
  EXPECT_LE(offload->plan()->away_bytes, whole.away_bytes);
  EXPECT_EQ(gradients(mlp, leaves, offload), gradients(mlp, leaves, nullptr));
  EXPECT_THROW(offload->settle(-1), ValueError);
}

TEST(Offload, WhatIsStillNearIsUsedInPlace) {
  OffloadOptions o = all_away();
  o.keep_bytes = int64_t{1} << 30;
  const auto offload = SavedTensorOffload::create(o);
  const TensorList leaves = mlp_leaves();
  EXPECT_EQ(gradients(mlp, leaves, offload), gradients(mlp, leaves, nullptr));
  const OffloadStats s = offload->stats();
  EXPECT_EQ(s.sent, 0);
  EXPECT_EQ(s.fetched, 0);
  EXPECT_EQ(s.kept, s.saved);
}

TEST(Offload, ABoundOnWhatStaysIsKept) {
  const int64_t n = 1 << 16, bytes = n * 4;
  Tensor x = full({n}, 0.5, DType::f32).set_requires_grad();
  const Loss chain = [](const TensorList& p) {
    Tensor y = p[0];
    for (int i = 0; i < 12; ++i) y = sin(y * y);
    return sum(y);
  };
  OffloadOptions o = all_away();
  o.adaptive = true;
  o.most_kept = 4 * bytes;
  const auto offload = SavedTensorOffload::create(o);
  const std::vector<std::string> want = gradients(chain, {x}, nullptr);
  for (int pass = 0; pass < 4; ++pass) EXPECT_EQ(gradients(chain, {x}, offload), want);
  EXPECT_LE(offload->plan()->kept_bytes, o.most_kept);
  x.set_grad({});
  memory::reset_peak(DeviceType::cpu);
  const int64_t before = live();
  (void)gradients(chain, {x}, offload);
  EXPECT_LE(offload->stats().device_peak - before, o.most_kept + 6 * bytes);
}

// A batch that the loop holds is there whoever sends it.
TEST(Offload, WhatOthersHoldIsNotSentTwice) {
  OffloadOptions o = all_away();
  o.adaptive = true;
  o.slowdown = 100;
  const auto offload = SavedTensorOffload::create(o);
  const Tensor batch = Samples(DType::f32, 7).tensor({64, 32});
  const Tensor w = leaf({32, 32});
  const Loss loss = [&](const TensorList& p) {
    const Tensor h = tanh(matmul(batch, p[0]));
    return sum(h * h);
  };
  const std::vector<std::string> want = gradients(loss, {w}, nullptr);
  for (int pass = 0; pass < 4; ++pass) {
    const int64_t sent = offload->stats().sent;
    EXPECT_EQ(gradients(loss, {w}, offload), want);
    const std::vector<SavedRecord> saved = offload->measured().saved;
    ASSERT_EQ(saved.size(), 2u);  // the batch, and h
    EXPECT_EQ(offload->stats().sent - sent, (pass == 0 ? 2 : 1) * saved[1].bytes) << pass;
    EXPECT_TRUE(saved[0].held) << pass;
    EXPECT_FALSE(saved[1].held) << pass;
  }
}

// Backward has made more than it uses now, and a request finds no room: that goes, and is made once more.
TEST(Offload, BackwardLetsGoOfWhatItWantsLater) {
  const int64_t n = 1 << 16, bytes = n * 4;
  Tensor x = leaf({n});
  const Loss chain = [](const TensorList& p) {
    Tensor y = p[0];
    for (int i = 0; i < 4; ++i) y = sin(y);
    return sum(y * y);
  };
  const std::vector<std::string> want = gradients(chain, {x}, nullptr);
  OffloadOptions o = all_again();
  const auto offload = SavedTensorOffload::create(o);
  // The arguments of sin and the last result: all but the first, which is x, from the one before.
  const auto recompute = SavedPlace::recompute;
  offload->set_plan(OffloadPlan::of({recompute, recompute, recompute, recompute}));
  EXPECT_EQ(gradients(chain, {x}, offload), want);
  EXPECT_EQ(offload->stats().recomputed, 4 * bytes);
  // At the beginning of backward all four are there, with a gradient of each of two.
  x.set_grad({});
  give_all_back();
  const int64_t held = live();
  const int64_t before = memory::backend(Device::cpu()).set_limit(Device::cpu(), held + 5 * bytes + (64 << 10));
  const int64_t made = offload->stats().recomputed;
  EXPECT_EQ(gradients(chain, {x}, offload), want);
  memory::backend(Device::cpu()).set_limit(Device::cpu(), before);
  EXPECT_GT(offload->stats().recomputed - made, 4 * bytes);
}

// Whatever came back before it is wanted goes again where a call needs the room, also what came while others went.
TEST(Offload, BackwardRunsWithinWhatItsCallsTake) {
  constexpr int64_t kEach = int64_t{1} << 20;
  const Tensor x = leaf({kEach / 4});
  const Loss chain = sines(8);
  const std::vector<std::string> want = gradients(chain, {x}, nullptr);
  OffloadOptions o = all_away();
  o.fetch_bytes = int64_t{1} << 30;
  Tensor(x).set_grad({});
  give_all_back();
  const int64_t held = live();
  // A gradient, what sin saved, its cosine and their product; and halves of one more.
  for (int64_t halves = 8; halves <= 18; ++halves) {
    SCOPED_TRACE(halves);
    const auto offload = SavedTensorOffload::create(o);
    const int64_t before =
        memory::backend(Device::cpu()).set_limit(Device::cpu(), held + halves * kEach / 2 + (64 << 10));
    EXPECT_NO_THROW(EXPECT_EQ(gradients(chain, {x}, offload), want));
    memory::backend(Device::cpu()).set_limit(Device::cpu(), before);
    Tensor(x).set_grad({});
  }
}

TEST(Offload, AFixedPlanIsFollowed) {
  Tensor x = leaf({256});
  const auto loss = [](const TensorList& p) {
    const Tensor a = p[0] * 2.0, b = exp(sin(a)), c = sin(b * b);
    return sum(c * c);
  };
  const std::vector<std::string> want = gradients(loss, {x}, nullptr);
  OffloadOptions o = all_again();
  const auto offload = SavedTensorOffload::create(o);
  // a; exp's result; b * b; c
  offload->set_plan(OffloadPlan::of({SavedPlace::host, SavedPlace::keep, SavedPlace::recompute, SavedPlace::host}));
  EXPECT_EQ(gradients(loss, {x}, offload), want);
  const std::vector<SavedRecord> saved = offload->measured().saved;
  ASSERT_EQ(saved.size(), 4u);
  EXPECT_EQ(saved[0].place, SavedPlace::host);
  EXPECT_EQ(saved[1].place, SavedPlace::keep);
  EXPECT_EQ(saved[2].place, SavedPlace::recompute);
  EXPECT_EQ(saved[3].place, SavedPlace::host);
  const OffloadStats s = offload->stats();
  EXPECT_EQ(s.sent, 2 * 1024);
  EXPECT_EQ(s.kept, 1024);
  EXPECT_EQ(s.recomputed, 1024);
  EXPECT_THROW(offload->set_plan(OffloadPlan::of({SavedPlace::disk})), ValueError);

  // What was measured before does not replace it.
  o.adaptive = true;
  const auto measures = SavedTensorOffload::create(o);
  EXPECT_EQ(gradients(loss, {x}, measures), want);
  const OffloadPlan keeps = OffloadPlan::of({SavedPlace::keep, SavedPlace::host});
  measures->set_plan(keeps);
  for (int pass = 0; pass < 2; ++pass) EXPECT_EQ(gradients(loss, {x}, measures), want);
  EXPECT_TRUE(measures->settled());
  EXPECT_EQ(measures->plan()->choices, keeps.choices);
  EXPECT_THROW(SavedTensorOffload::create(all_away())->set_plan(OffloadPlan::of({SavedPlace::recompute})), ValueError);
}

TEST(Offload, WritesAfterSavingAreErrorsAsWithout) {
  for (const bool dies_first : {false, true}) {
    for (const OffloadOptions& o : {all_away(), all_again()}) {
      const auto offload = SavedTensorOffload::create(o);
      Tensor x = leaf({64});
      Tensor loss;
      {
        const SavedTensorOffload::Scope scope(offload);
        Tensor h = x * 2.0;
        loss = sum(h * h);
        h.detach().add_(1.0);
        if (!dies_first) {
          EXPECT_THROW(loss.backward(), AutogradError);
          continue;
        }
      }
      try {
        loss.backward();
        FAIL() << "no error";
      } catch (const AutogradError& e) {
        EXPECT_NE(std::string(e.what()).find("was overwritten by add"), std::string::npos) << e.what();
      }
    }
  }
}

TEST(Offload, ANewVersionIsAnotherTensor) {
  Tensor x = leaf({64});
  const auto loss = [](const TensorList& p) {
    Tensor h = p[0] * 2.0;
    const Tensor c = h.clone();
    const Tensor first = sum(exp(c));
    h.add_(c);  // h is saved by nobody before this
    return first + sum(sin(h));
  };
  const auto offload = SavedTensorOffload::create(all_away());
  EXPECT_EQ(gradients(loss, {x}, offload), gradients(loss, {x}, nullptr));
}

TEST(Offload, RetainedGraphsAndHigherDerivatives) {
  for (const OffloadOptions& o : {all_away(), all_again()}) {
    const auto offload = SavedTensorOffload::create(o);
    Tensor x = leaf({50}, 1, DType::f64), w = leaf({50}, 2, DType::f64);
    const auto f = [&] { return sum(exp(sin(x * w)) * w); };
    const auto thrice = [&](bool hooked) {
      std::optional<SavedTensorOffload::Scope> scope;
      if (hooked) scope.emplace(offload);
      const Tensor y = f();
      x.set_grad({});
      y.backward({}, true);
      y.backward({}, true);
      const TensorList g = grad({y}, {x, w}, {}, true);
      const TensorList gg = grad({sum(g[0] * g[1])}, {x, w}, {}, false, true);
      y.backward();
      EXPECT_THROW(y.backward(), AutogradError);
      return std::vector<std::string>{bits(x.grad()), bits(g[0]), bits(g[1]), bits(gg[0]), bits(gg[1])};
    };
    EXPECT_EQ(thrice(true), thrice(false));
    EXPECT_EQ(offload->stats().away_bytes, 0);
  }
}

TEST(Offload, GradToSomeInputs) {
  const auto offload = SavedTensorOffload::create(all_away());
  Tensor x = leaf({30}), w = leaf({30}, 2);
  const auto get = [&](bool hooked) {
    std::optional<SavedTensorOffload::Scope> scope;
    if (hooked) scope.emplace(offload);
    const Tensor h = x * w;
    return bits(grad({sum(sin(h) * h)}, {w})[0]);
  };
  EXPECT_EQ(get(true), get(false));
}

TEST(Offload, FunctionsOfOnesOwn) {
  struct Cube : Function<Cube> {
    static Tensor forward(Ctx& ctx, const Tensor& x) {
      const Tensor square = x * x;
      ctx.save_for_backward({x, square});
      return square * x;
    }
    static TensorList backward(Ctx& ctx, const TensorList& g) { return {g[0] * ctx.saved_tensors()[1] * 3.0}; }
  };
  const auto loss = [](const TensorList& p) { return sum(Cube::apply(p[0] * 2.0)); };
  expect_same_bits(loss, {leaf({70})});
}

TEST(Offload, ThreadsWithHooksOfTheirOwn) {
  std::vector<std::string> want;
  std::atomic<int> wrong{0};
  const auto work = [&](uint64_t seed) {
    const TensorList leaves = {leaf({16, 16}, seed), leaf({16, 16}, seed + 1)};
    const Loss loss = [](const TensorList& p) { return sum(gelu(matmul(gelu(matmul(p[0], p[1])), p[1]))); };
    const std::vector<std::string> plain = gradients(loss, leaves, nullptr);
    const auto offload = SavedTensorOffload::create(all_again());
    for (int i = 0; i < 30; ++i) wrong += gradients(loss, leaves, offload) != plain;
  };
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < 4; ++i) threads.emplace_back(work, 10 * i + 1);
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Offload, ThreadsOverOneObjectAndBackwardOnAnother) {
  OffloadOptions adaptive = all_again();
  adaptive.adaptive = true;
  adaptive.slowdown = 2;
  std::atomic<int> wrong{0};
  for (const OffloadOptions& o : {all_away(), all_again(), adaptive}) {
    const auto shared = SavedTensorOffload::create(o);
    const auto work = [&](uint64_t seed) {
      const TensorList leaves = {leaf({32}, seed)};
      const Loss loss = [](const TensorList& p) { return sum(sin(silu(exp(p[0] * 0.5) * p[0]) * p[0])); };
      const std::vector<std::string> plain = gradients(loss, leaves, nullptr);
      for (int i = 0; i < 50; ++i) wrong += gradients(loss, leaves, shared) != plain;
    };
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < 3; ++i) threads.emplace_back(work, 10 * i + 1);
    for (std::thread& t : threads) t.join();
    EXPECT_EQ(shared->stats().away_bytes, 0);
  }
  EXPECT_EQ(wrong, 0);
  const auto offload = SavedTensorOffload::create(all_away());
  Tensor x = leaf({32});
  Tensor y;
  {
    const SavedTensorOffload::Scope scope(offload);
    y = sum(sin(x * 2.0));
  }
  std::thread([&] { y.backward(); }).join();
  EXPECT_TRUE(x.grad().defined());
  EXPECT_EQ(offload->stats().away_bytes, 0);
}

TEST(Offload, DroppedGraphsAndThrowingForwardsGiveAllBack) {
  for (const OffloadOptions& o : {all_away(), all_again()}) {
    const auto offload = SavedTensorOffload::create(o);
    const TensorList leaves = mlp_leaves();
    const std::vector<std::string> want = gradients(mlp, leaves, nullptr);
    for (Tensor t : leaves) t.set_grad({});
    const int64_t before = live();
    {
      const SavedTensorOffload::Scope scope(offload);
      (void)mlp(leaves);  // dropped
      EXPECT_THROW((void)matmul(gelu(matmul(leaves[0], leaves[1].t())), leaves[0]), ShapeError);
    }
    EXPECT_EQ(offload->stats().away_bytes, 0);
    EXPECT_EQ(live(), before);
    EXPECT_EQ(gradients(mlp, leaves, offload), want);
  }
}

TEST(Offload, NothingGrowsOverAThousandSteps) {
  OffloadOptions o = all_again();
  o.adaptive = true;
  const auto offload = SavedTensorOffload::create(o);
  Tensor x = leaf({40, 64}), w = leaf({64, 64}, 2);
  const Loss loss = [](const TensorList& p) { return sum(gelu(matmul(gelu(matmul(p[0], p[1])), p[1]))); };
  int64_t after_ten = 0;
  for (int i = 0; i < 1000; ++i) {
    (void)gradients(loss, {x, w}, offload);
    if (i == 9) after_ten = live();
  }
  EXPECT_EQ(live(), after_ten);
  EXPECT_EQ(offload->stats().away_bytes, 0);
  EXPECT_LE(offload->measured().saved.size(), 4u);
}

TEST(Offload, OtherShapesMeanAnotherPlan) {
  OffloadOptions o = all_again();
  o.adaptive = true;
  const auto offload = SavedTensorOffload::create(o);
  int settled = 0;
  for (const int64_t rows : {9, 9, 9, 5, 5, 9, 30, 30}) {
    const TensorList leaves = {leaf({rows, 16}), leaf({16, 16}, 2)};
    const Loss loss = [](const TensorList& p) { return sum(gelu(matmul(gelu(matmul(p[0], p[1])), p[1]))); };
    EXPECT_EQ(gradients(loss, leaves, offload), gradients(loss, leaves, nullptr)) << rows;
    offload->settle();
    settled += offload->settled();
  }
  EXPECT_EQ(settled, 1);  // after three alike
}

// Kept where it was asked for, and while somebody looks at what moves.
TEST(Offload, ALogOfTransfers) {
  for (const bool asked : {true, false}) {
    OffloadOptions o = all_away();
    o.log = asked;
    const auto offload = SavedTensorOffload::create(o);
    const TensorList leaves = mlp_leaves();
    OffloadStats before;
    if (!asked) {
      (void)gradients(mlp, leaves, offload);
      EXPECT_TRUE(offload->transfers().empty());
      before = offload->stats();
    }
    {
      std::optional<memory::TransferLog> watched;
      if (!asked) watched.emplace();
      (void)gradients(mlp, leaves, offload);
    }
    const std::vector<OffloadTransfer> log = offload->transfers();
    const OffloadStats s = offload->stats();
    int64_t out = 0, in = 0;
    for (const OffloadTransfer& t : log) {
      (t.out ? out : in) += t.bytes;
      EXPECT_LE(t.begin, t.end);
    }
    EXPECT_EQ(out, s.sent - before.sent);
    EXPECT_EQ(in, s.fetched - before.fetched);
    EXPECT_GT(out, 0);
    EXPECT_TRUE(offload->transfers().empty());
  }
}

// The meta device has no bytes, but the same accounts, to a tensor: the host does not count the smallest blocks, so
// that what just fits is fetched a call earlier on one than on the other.
TEST(Offload, DryRunsCountTheSamePeak) {
  const auto peak_on = [](Device d) {
    const DeviceScope scope(d);
    Tensor x = full({1 << 16}, 0.5, DType::f32).set_requires_grad();
    const auto offload = SavedTensorOffload::create(all_away());
    memory::reset_peak(d);
    const int64_t before = memory::stats(d).live_total;
    Tensor y = x;
    {
      const SavedTensorOffload::Scope hooks(offload);
      for (int i = 0; i < 16; ++i) y = sin(y * y);
      y = sum(y);
    }
    y.backward();
    return memory::stats(d).peak_total - before;
  };
  EXPECT_NEAR(static_cast<double>(peak_on(Device::meta())), static_cast<double>(peak_on(Device::cpu())),
              (1 << 18) + 4096);
}

TEST(Offload, BadOptions) {
  EXPECT_THROW(SavedTensorOffload::create({.away = SavedPlace::keep}), ValueError);
  EXPECT_THROW(SavedTensorOffload::create({.away = SavedPlace::recompute}), ValueError);
  EXPECT_THROW(SavedTensorOffload::create({.away = SavedPlace::disk}), ValueError);
  EXPECT_THROW(SavedTensorOffload::create({.min_bytes = 0}), ValueError);
  EXPECT_THROW(SavedTensorOffload::create({.slowdown = 0.9}), ValueError);
  EXPECT_THROW(SavedTensorOffload::Scope(nullptr), ValueError);
}

}  // namespace
}  // namespace strata
