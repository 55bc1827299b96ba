// What recorders see of saved tensors that leave and come back: a step in which they stayed.

#include <algorithm>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/autograd/offload.h"
#include "strata/core/recording.h"
#include "strata/core/recording_marks.h"
#include "strata/core/samples.h"
#include "strata/core/storage_watch.h"
#include "strata/ops/activation/activation.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/reduce/reduce.h"

namespace strata {
namespace {

Recording step(const std::shared_ptr<SavedTensorOffload>& offload) {
  Tensor x = Samples(DType::f32, 1).tensor({128, 64}).set_requires_grad();
  return record([&] {
    Tensor y;
    {
      std::optional<SavedTensorOffload::Scope> scope;
      if (offload) scope.emplace(offload);
      y = sum(sin(gelu(sin(x * 2.0)) * 3.0));
    }
    y.backward();
  });
}

TEST(OffloadRecording, StoragesLiveAsIfTheyHadStayed) {
  const Recording plain = step(nullptr);
  OffloadOptions options{.min_bytes = 1, .keep_bytes = 0, .queue_bytes = 0, .fetch_bytes = 0, .adaptive = false};
  for (const bool recompute : {false, true}) {
    options.recompute = recompute;
    const auto offload = SavedTensorOffload::create(options);
    const Recording away = step(offload);
    EXPECT_GT(offload->stats().sent + offload->stats().recomputed, 0);
    if (recompute) continue;  // calls are more then
    ASSERT_EQ(away.calls.size(), plain.calls.size());
    ASSERT_EQ(away.storages.size(), plain.storages.size());
    for (size_t i = 0; i < plain.storages.size(); ++i) {
      EXPECT_EQ(away.storages[i].born, plain.storages[i].born) << i;
      EXPECT_NEAR(away.storages[i].freed, plain.storages[i].freed, 1) << i;  // tokens end a little later
    }
    EXPECT_EQ(away.peak_bytes().first, plain.peak_bytes().first);
  }
}

TEST(OffloadRecording, AStorageThatReturns) {
  Tensor x = ones({64});
  Recorder recorder;
  Tensor y = x * 2.0;
  EXPECT_EQ(detail::recorded_calls(), 1);
  Tensor copy = y.detach();
  {
    const detail::ThreadModeScope plain({false, 0});
    copy = y.clone();
  }
  detail::storage_returns(*copy.storage(), detail::watch_number(*y.storage()));
  y = {};
  (void)(x * 3.0);
  (void)(copy * 4.0);
  copy = {};
  (void)(x * 5.0);
  const Recording r = recorder.finish();
  EXPECT_EQ(detail::recorded_calls(), 0);
  ASSERT_EQ(r.calls.size(), 4u);
  const auto storage = [&](ValueIndex v) { return r.values[static_cast<size_t>(v.at)].storage; };
  EXPECT_EQ(storage(std::get<ValueIndex>(r.calls[2].args[0])), storage(r.calls[0].results[0]));
  EXPECT_EQ(r.storages[static_cast<size_t>(storage(r.calls[0].results[0]))].freed, 3);
  // One that no recorder knows is a storage of its own.
  detail::storage_returns(*x.storage(), uint64_t{1} << 60);
}

// What a call made of it, as a gradient that goes to its home: two for a moment.
TEST(OffloadRecording, ACopyThatACallMade) {
  Tensor x = ones({64});
  Recorder recorder;
  Tensor y = x * 2.0;
  Tensor copy = y.clone();
  detail::storage_returns(*copy.storage(), detail::watch_number(*y.storage()));
  y = {};
  (void)(copy * 4.0);
  (void)(copy * 5.0);
  const Recording r = recorder.finish();
  ASSERT_EQ(r.calls.size(), 4u);
  const auto storage = [&](ValueIndex v) { return r.values[static_cast<size_t>(v.at)].storage; };
  const int32_t made = storage(r.calls[0].results[0]), cloned = storage(r.calls[1].results[0]);
  EXPECT_EQ(r.storages[static_cast<size_t>(cloned)].freed, 2);
  EXPECT_EQ(storage(std::get<ValueIndex>(r.calls[3].args[0])), made);
  EXPECT_EQ(r.storages[static_cast<size_t>(made)].freed, 4);
  copy = {};
}

// A scope around steps and one within: whichever ends first.
TEST(OffloadRecording, ObserversEndInAnyOrder) {
  const Tensor x = ones({8});
  auto first = std::make_unique<Recorder>();
  (void)(x * 2.0);
  auto second = std::make_unique<Recorder>();
  (void)(x * 3.0);
  EXPECT_EQ(first->finish().calls.size(), 2u);
  first.reset();
  (void)(x * 4.0);
  auto third = std::make_unique<Recorder>();
  (void)(x * 5.0);
  EXPECT_EQ(second->finish().calls.size(), 3u);
  (void)(x * 6.0);
  EXPECT_EQ(third->finish().calls.size(), 2u);
  second.reset();
  third.reset();
  (void)(x * 7.0);
  EXPECT_FALSE(t_mode.unusual & kObserved);
}

}  // namespace
}  // namespace strata
