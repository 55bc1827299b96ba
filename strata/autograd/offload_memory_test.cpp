// Saved tensors sent away and fetched: which move, when their memory is given back, by which plan.
#include "strata/autograd/offload.h"

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/autograd/offload_test_util.h"
#include "strata/core/recording.h"
#include "strata/memory/allocator.h"
#include "strata/ops/activation/activation.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/norm/norm.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/softmax/softmax.h"

namespace strata {
namespace {

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

TEST(Offload, ALogOfTransfers) {
  OffloadOptions o = all_away();
  o.log = true;
  const auto offload = SavedTensorOffload::create(o);
  const TensorList leaves = mlp_leaves();
  (void)gradients(mlp, leaves, offload);
  const std::vector<OffloadTransfer> log = offload->transfers();
  const OffloadStats s = offload->stats();
  int64_t out = 0, in = 0;
  for (const OffloadTransfer& t : log) {
    (t.out ? out : in) += t.bytes;
    EXPECT_LE(t.begin, t.end);
  }
  EXPECT_EQ(out, s.sent);
  EXPECT_EQ(in, s.fetched);
  EXPECT_GT(out, 0);
  EXPECT_TRUE(offload->transfers().empty());
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

}  // namespace
}  // namespace strata
