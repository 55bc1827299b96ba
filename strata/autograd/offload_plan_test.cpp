// What goes away and what is computed again, from measured times.
#include "strata/autograd/offload_plan.h"

#include <functional>

#include <gtest/gtest.h>

#include "strata/core/error.h"

namespace strata {
namespace {

constexpr int64_t kMiB = 1 << 20;

// `n` storages of a MiB, one saved every millisecond; backward takes twice as long as forward.
OffloadMeasured even(int n, double out_rate, double in_rate) {
  OffloadMeasured m;
  for (int i = 0; i < n; ++i) m.saved.push_back({.bytes = kMiB, .seconds = 1e-3 * i});
  m.forward_seconds = 1e-3 * n;
  m.backward_seconds = 2e-3 * n;
  m.out_rate = out_rate;
  m.in_rate = in_rate;
  m.seconds_per_flop = 1e-12;
  m.seconds_per_byte = 1e-10;
  return m;
}
std::vector<SavedPlace> places(const OffloadPlan& p) {
  std::vector<SavedPlace> all;
  for (const auto& c : p.choices) all.push_back(c.place);
  return all;
}
int count(const OffloadPlan& p, SavedPlace place) {
  int n = 0;
  for (const auto& c : p.choices) n += c.place == place;
  return n;
}

TEST(OffloadPlan, WhatTheLinkTakesDuringForwardIsTheFirstSaved) {
  const double rate = kMiB / 4e-3;  // a storage in four milliseconds
  const OffloadPlan p = plan_offload(even(40, rate, rate), {.slowdown = 1});
  EXPECT_EQ(count(p, SavedPlace::host), 10);
  for (size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(p.choices[i].place, SavedPlace::host) << i;
    // Storage i is there after 4 (i + 1) milliseconds, when so many and one more have been saved.
    EXPECT_NEAR(p.choices[i].release_at, std::min(4 * (static_cast<int>(i) + 1) + 1, 40), 1) << i;
  }
  EXPECT_EQ(p.away_bytes, 10 * kMiB);
  EXPECT_EQ(p.kept_bytes, 30 * kMiB);
  EXPECT_DOUBLE_EQ(p.seconds, 0.12);
}

TEST(OffloadPlan, AFastLinkTakesAllButWhatIsSavedTooLate) {
  const OffloadPlan p = plan_offload(even(10, 1e15, 1e15), {.slowdown = 1});
  EXPECT_EQ(count(p, SavedPlace::host), 10);
  OffloadMeasured late = even(10, kMiB / 0.6e-3, 1e15);
  late.saved.back().seconds = late.forward_seconds;
  EXPECT_EQ(plan_offload(late, {.slowdown = 1}).choices.back().place, SavedPlace::keep);
}

TEST(OffloadPlan, AllowedTimeIsWaitedForTheLink) {
  const double rate = kMiB / 4e-3;
  const OffloadPlan p = plan_offload(even(40, rate, rate), {.slowdown = 1.1});  // 12 ms more: 3 storages
  EXPECT_EQ(count(p, SavedPlace::host), 13);
  EXPECT_NEAR(p.seconds, 0.132, 1e-9);
}

// Waiting is done while memory is filled, not when it is full.
TEST(OffloadPlan, WhatIsHeldNeverPassesWhatStays) {
  const double rate = kMiB / 4e-3;
  for (const double slowdown : {1.0, 1.2, 1.5, 3.0}) {
    const OffloadMeasured m = even(40, rate, rate);
    const OffloadPlan p = plan_offload(m, {.slowdown = slowdown});
    int64_t held = 0;
    for (int32_t i = 0; i < 40; ++i) {
      held += kMiB;
      for (const auto& c : p.choices) held -= c.release_at == i + 1 ? kMiB : 0;
      EXPECT_LE(held, p.kept_bytes + kMiB) << slowdown << " after " << i;
    }
    EXPECT_EQ(held, p.kept_bytes);
    EXPECT_LE(p.seconds, 0.12 * slowdown + 1e-9);
  }
}

TEST(OffloadPlan, TheWayBackBoundsItToo) {
  const OffloadPlan p = plan_offload(even(40, 1e15, kMiB / 8e-3), {.slowdown = 1});
  EXPECT_EQ(count(p, SavedPlace::host), 9);  // 95% of 80 ms, 8 ms each
}

TEST(OffloadPlan, CallsRunAgainWhereThatFreesMoreThanTheLink) {
  const double rate = kMiB / 4e-3;
  OffloadMeasured m = even(40, rate, rate);
  for (int i = 0; i < 40; i += 2) {
    m.saved[static_cast<size_t>(i)].call = i;
    m.saved[static_cast<size_t>(i)].cost = {0, 1e6};  // 0.1 ms
  }
  m.saved[1].call = m.saved[3].call = 100;  // 1 ms for two: 0.5 a storage
  m.saved[1].cost = m.saved[3].cost = {1e9, 0};
  m.saved[5].call = 101;  // 5 ms: longer than the link takes
  m.saved[5].cost = {5e9, 0};
  const OffloadPlan p = plan_offload(m, {.slowdown = 1.03, .recompute = true});  // 3.6 ms
  EXPECT_EQ(count(p, SavedPlace::recompute), 22);
  EXPECT_EQ(p.choices[1].place, SavedPlace::recompute);
  EXPECT_EQ(p.choices[3].place, SavedPlace::recompute);
  EXPECT_NE(p.choices[5].place, SavedPlace::recompute);
  EXPECT_EQ(count(p, SavedPlace::host), 8);  // from the fifth on, which is saved at 5 ms
  EXPECT_EQ(count(plan_offload(m, {.slowdown = 1.03}), SavedPlace::recompute), 0);
}

TEST(OffloadPlan, CallsAloneWhereNothingLeaves) {
  OffloadMeasured m = even(40, 1e15, 1e15);  // a link that would take all
  for (size_t i = 0; i < 40; i += 2) {
    m.saved[i].call = static_cast<int32_t>(i);
    m.saved[i].cost = {0, i < 20 ? 1e6 : 5e5};
  }
  const OffloadPlan all =
      plan_offload(m, {.slowdown = 100, .keep_bytes = 1, .recompute = true, .away = SavedPlace::keep});
  EXPECT_EQ(count(all, SavedPlace::recompute), 20);
  EXPECT_EQ(count(all, SavedPlace::host), 0);
  EXPECT_EQ(all.kept_bytes, 20 * kMiB);
  // The fastest first, and no more than is asked for.
  const OffloadPlan some =
      plan_offload(m, {.slowdown = 100, .keep_bytes = 30 * kMiB, .recompute = true, .away = SavedPlace::keep});
  EXPECT_EQ(some.recomputed_bytes, 10 * kMiB);
  for (size_t i = 0; i < 40; ++i)
    EXPECT_EQ(some.choices[i].place, i >= 20 && i % 2 == 0 ? SavedPlace::recompute : SavedPlace::keep) << i;
}

TEST(OffloadPlan, ChainsOfWhatIsMadeAgainAreShort) {
  OffloadMeasured m = even(20, 0, 0);
  for (size_t i = 1; i < 20; ++i) {
    m.saved[i].call = static_cast<int32_t>(i);
    m.saved[i].cost = {0, 1};
    m.saved[i].reads = {static_cast<int32_t>(i) - 1};
  }
  const OffloadPlan p = plan_offload(m, {.slowdown = 2, .recompute = true});
  EXPECT_EQ(count(p, SavedPlace::recompute), 15);
  int links = 0;
  for (const auto& c : p.choices) {
    links = c.place == SavedPlace::recompute ? links + 1 : 0;
    EXPECT_LE(links, 3);
  }
}

// Bytes of what was saved that are there while backward uses storage `i`: what stays of those before it, and what the
// calls that run again until then have read and made, which is wanted itself later.
int64_t held_in_backward(const OffloadMeasured& m, const OffloadPlan& p, size_t i) {
  std::vector<bool> here(m.saved.size());
  const std::function<void(size_t)> need = [&](size_t k) {
    if (here[k]) return;
    here[k] = true;
    if (p.choices[k].place != SavedPlace::recompute) return;
    for (const int32_t r : m.saved[k].reads) need(static_cast<size_t>(r));
  };
  for (size_t k = 0; k < m.saved.size(); ++k) here[k] = p.choices[k].place == SavedPlace::keep;
  for (size_t k = m.saved.size(); k-- > i;) need(k);
  int64_t bytes = 0;
  for (size_t k = 0; k <= i; ++k) bytes += here[k] ? m.saved[k].bytes : 0;
  return bytes;
}

// Chains of what is made again from what is made again are there while the first of them is used.
TEST(OffloadPlan, BackwardKeepsToTheBoundToo) {
  for (const int64_t stays : {2, 4, 8}) {
    OffloadMeasured m = even(24, 1e15, 1e15);  // a link that takes all
    for (size_t i = 1; i < 24; ++i) {
      m.saved[i].call = static_cast<int32_t>(i);
      m.saved[i].cost = {0, 1};
      m.saved[i].reads = {static_cast<int32_t>(i) - 1};
    }
    m.out_rate = kMiB / 1e-2;  // slower than any call
    const OffloadPlan p = plan_offload(m, {.slowdown = 100, .keep_bytes = stays * kMiB, .recompute = true});
    EXPECT_EQ(p.kept_bytes, stays * kMiB);
    EXPECT_GT(count(p, SavedPlace::recompute), 2) << stays;
    for (size_t i = 0; i < 24; ++i) EXPECT_LE(held_in_backward(m, p, i), (stays + 1) * kMiB) << stays << " at " << i;
  }
  // One that takes more on its way than there is room for.
  OffloadMeasured m = even(6, kMiB / 1e-2, 1e15);
  m.saved[4].call = 4;
  m.saved[4].cost = {0, 1};
  m.saved[4].reads = {3};
  const OffloadLimits limits{.slowdown = 100, .keep_bytes = 4 * kMiB, .recompute = true};
  EXPECT_EQ(plan_offload(m, limits).choices[4].place, SavedPlace::recompute);
  m.saved[4].beside = 2 * kMiB;
  EXPECT_EQ(plan_offload(m, limits).choices[4].place, SavedPlace::keep);
  EXPECT_EQ(plan_offload(m, limits).kept_bytes, 4 * kMiB);
}

TEST(OffloadPlan, WhatOthersHoldStaysAndCountsNowhere) {
  OffloadMeasured m = even(10, 1e15, 1e15);
  for (const size_t i : {0u, 4u}) {
    m.saved[i].held = true;
    m.saved[i].call = static_cast<int32_t>(i);
    m.saved[i].cost = {0, 1};
  }
  const OffloadPlan p = plan_offload(m, {.slowdown = 100, .keep_bytes = 3 * kMiB, .recompute = true});
  EXPECT_EQ(p.kept_bytes, 3 * kMiB);
  EXPECT_EQ(p.away_bytes, 5 * kMiB);
  EXPECT_EQ(p.recomputed_bytes, 0);
  EXPECT_EQ(p.choices[0].place, SavedPlace::keep);
  EXPECT_EQ(p.choices[4].place, SavedPlace::keep);
  EXPECT_EQ(count(p, SavedPlace::host), 5);
}

TEST(OffloadPlan, NoMoreThanIsAskedFor) {
  const double rate = kMiB / 4e-3;
  OffloadMeasured m = even(40, rate, rate);
  for (auto& s : m.saved) s.cost = {0, 1e6};
  for (size_t i = 0; i < 40; ++i) m.saved[i].call = static_cast<int32_t>(i);
  EXPECT_EQ(count(plan_offload(m, {.keep_bytes = 40 * kMiB}), SavedPlace::keep), 40);
  const OffloadPlan link = plan_offload(m, {.slowdown = 1.5, .keep_bytes = 33 * kMiB, .recompute = true});
  EXPECT_EQ(link.kept_bytes, 33 * kMiB);
  EXPECT_EQ(count(link, SavedPlace::recompute), 0);
  const OffloadPlan both = plan_offload(m, {.slowdown = 1.5, .keep_bytes = 20 * kMiB, .recompute = true});
  EXPECT_EQ(both.kept_bytes, 20 * kMiB);
  EXPECT_LE(both.seconds, 0.12 + 11 * 1e-4);
}

TEST(OffloadPlan, WhatRanAgainIsCountedOnceACall) {
  OffloadMeasured m = even(4, 1, 1);
  for (size_t i = 0; i < 3; ++i) {
    m.saved[i].call = i < 2 ? 7 : 8;
    m.saved[i].cost = {1e9, 0};
    m.saved[i].place = SavedPlace::recompute;
  }
  EXPECT_DOUBLE_EQ(seconds_again(m), 2e-3);
}

TEST(OffloadPlan, WithoutALinkOrAnythingSaved) {
  EXPECT_EQ(count(plan_offload(even(5, 0, 0), {}), SavedPlace::keep), 5);
  EXPECT_TRUE(plan_offload({}, {}).choices.empty());
  EXPECT_EQ(places(OffloadPlan::of({SavedPlace::host, SavedPlace::keep})),
            (std::vector<SavedPlace>{SavedPlace::host, SavedPlace::keep}));
  EXPECT_EQ(name_of(SavedPlace::recompute), "recompute");
}

TEST(OffloadPlan, BadLimits) {
  EXPECT_THROW(plan_offload({}, {.slowdown = 0.5}), ValueError);
  EXPECT_THROW(plan_offload({}, {.away = SavedPlace::recompute}), ValueError);
}

}  // namespace
}  // namespace strata
