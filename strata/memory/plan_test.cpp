// simulate() against what can be worked out by hand, and the stretches of a real step.

#include "strata/memory/plan.h"

#include <gtest/gtest.h>

#include <numeric>

#include "strata/autograd/autograd.h"
#include "strata/core/error.h"
#include "strata/core/tensor.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/reduce/reduce.h"

namespace strata::memory {
namespace {

// A chain of `n` layers: forward call i reads storage i and makes storage i + 1 of 100 bytes; backward call n + j reads
// what forward call n - 1 - j made. Each is freed after its last use.
Recording chain(int n, int64_t bytes = 100) {
  Recording r;
  for (int i = 0; i <= n; ++i) {
    RecordedStorage s;
    s.nbytes = bytes;
    s.tag = i == 0 ? Tag::data : Tag::activation;
    s.born = i - 1;
    s.freed = i == 0 ? 2 * n : 2 * n - i + 1;
    r.storages.push_back(s);
    RecordedValue v;
    v.storage = i;
    r.values.push_back(v);
  }
  const auto call = [&](Phase phase, std::vector<int32_t> reads, int32_t makes) {
    RecordedCall c;
    c.phase = phase;
    for (const int32_t v : reads) c.args.emplace_back(ValueIndex{v});
    if (makes >= 0) c.results.push_back({makes});
    r.calls.push_back(std::move(c));
  };
  for (int i = 0; i < n; ++i) call(Phase::forward, {i}, i + 1);
  for (int i = n; i > 0; --i) call(Phase::backward, {i}, -1);
  return r;
}

std::vector<double> each(const Recording& r, double seconds) {
  return std::vector<double>(r.calls.size(), seconds);
}

TEST(Plan, NothingAwayIsTheRecording) {
  const Recording r = chain(4);
  const Movement m = simulate(r, each(r, 1), {}, {});
  EXPECT_EQ(m.seconds, 8);
  EXPECT_EQ(m.forward, 4);
  EXPECT_EQ(m.waited, 0);
  EXPECT_EQ(m.peak, r.peak_bytes().first);
  EXPECT_EQ(m.peak, 500);
  EXPECT_EQ(m.out + m.in + m.elsewhere, 0);
}

TEST(Plan, StretchesOfAChain) {
  const Recording r = chain(4);
  const std::vector<Away> found = saved_stretches(r, 1);
  // Storage 4 is read by the next call: it is in use until then, and away for no call.
  EXPECT_EQ(found, (std::vector<Away>{{1, 1, 7, true}, {2, 2, 6, true}, {3, 3, 5, true}, {4, 3, 4, true}}));
  EXPECT_TRUE(saved_stretches(r, 101).empty());
}

TEST(Plan, StretchesThatRunAgain) {
  Recording r = chain(6);
  std::vector<double> seconds = each(r, 1);
  EXPECT_EQ(end_of_phase(r, 0), 6);
  EXPECT_EQ(end_of_phase(r, 6), 12);
  // Calls 0 to 2 make storages 1 to 3. Call 3 reads the last, which stays; backward reads 2 at call 10, 1 at call 11.
  run_again(r, seconds, 0, 3);
  ASSERT_EQ(r.storages.size(), 9u);
  EXPECT_EQ(r.storages[1].freed, 2);
  EXPECT_EQ(r.storages[2].freed, 3);
  EXPECT_EQ(r.storages[3].freed, 10);
  for (const size_t again : {7u, 8u}) EXPECT_EQ(r.storages[again].born, 10);
  EXPECT_EQ(r.storages[7].freed, 12);
  EXPECT_EQ(r.storages[8].freed, 11);
  const auto read = [&](size_t call) {
    return r.values[static_cast<size_t>(std::get<ValueIndex>(r.calls[call].args[0]).at)].storage;
  };
  EXPECT_EQ(read(2), 2);  // forward as it was
  EXPECT_EQ(read(9), 3);
  EXPECT_EQ(read(10), 8);
  EXPECT_EQ(read(11), 7);
  EXPECT_EQ(seconds[10], 4);
  EXPECT_EQ(std::accumulate(seconds.begin(), seconds.end(), 0.0), 15);
  EXPECT_EQ(simulate(r, seconds, {}, {}).seconds, 15);
  EXPECT_EQ(saved_stretches(r, 1).size(), 4u);  // what runs again is there to be sent no more
  // What comes into a stretch is there when it runs again, before backward itself reads it, also where it would not.
  Recording middle = chain(6);
  seconds = each(middle, 1);
  run_again(middle, seconds, 2, 5);  // 3 and 4, from 2; backward reads 4 at call 8
  EXPECT_EQ(saved_stretches(middle, 1)[1], (Away{2, 2, 8, true}));
  Recording left = chain(6);
  left.calls[10].args.clear();  // whose backward does not read storage 2
  left.storages[2].freed = 3;
  run_again(left, seconds, 2, 5);
  EXPECT_EQ(left.storages[2].freed, 9);
  EXPECT_EQ(saved_stretches(left, 1)[1], (Away{2, 2, 8, true}));
  // Nothing is saved of a stretch of which backward reads nothing.
  Recording forward = chain(2);
  forward.calls.resize(2);
  for (RecordedStorage& s : forward.storages) s.freed = 2;
  std::vector<double> two(2, 1);
  run_again(forward, two, 0, 2);
  EXPECT_EQ(forward.storages.size(), 3u);
  EXPECT_EQ(two[0] + two[1], 2);
}

TEST(Plan, TransfersHideUnderCompute) {
  const Recording r = chain(8);
  const auto found = saved_stretches(r, 1);
  // A transfer takes half a call: each leaves during the call after its last use.
  const Movement m = simulate(r, each(r, 1), std::span(found).first(4), {.link = {200, 200}, .window = 100});
  EXPECT_EQ(m.seconds, 16);
  EXPECT_EQ(m.waited, 0);
  EXPECT_EQ(m.out, 400);
  EXPECT_EQ(m.left, 5.5);
  EXPECT_EQ(m.in, 400);
  EXPECT_EQ(m.elsewhere, 400);
  EXPECT_EQ(m.peak, 600);  // data, 5 to 8, and one that is fetched ahead; without: data and 1 to 8
}

// Backward has used 8 when it is at call 9, and 7 at call 10: what it wants at calls 12 to 15 has come by then.
TEST(Plan, WhatLeftComesBackWhereRoomIs) {
  const Recording r = chain(8);
  std::vector<Away> found = saved_stretches(r, 1);
  found.resize(4);
  const MoveRules rules{.link = {200, 50}, .window = 0};  // two calls long
  const Movement one = simulate(r, each(r, 1), found, rules);
  for (Away& a : found) a.early = true;
  const Movement early = simulate(r, each(r, 1), found, rules);
  EXPECT_EQ(one.seconds, 19);    // each but the first begins when the one before is used
  EXPECT_EQ(early.seconds, 17);  // the last is there at 16 s, and wanted at 15 s
  EXPECT_EQ(early.peak, one.peak);
  EXPECT_EQ(early.in, one.in);
  // A call between that takes much for itself leaves no room for any.
  Recording tight = r;
  RecordedStorage large;
  large.nbytes = 300;
  large.tag = Tag::activation;
  large.born = 11;
  large.freed = 12;
  tight.storages.push_back(large);
  const Movement held = simulate(tight, each(tight, 1), found, rules);
  EXPECT_GT(held.seconds, early.seconds);
  EXPECT_LE(held.peak, 700);
}

TEST(Plan, SlowLinksAreWaitedFor) {
  const Recording r = chain(4);
  const auto found = saved_stretches(r, 1);
  // 10 calls long: storage 1 leaves from call 1's end (2 s) to 12 s, is wanted at call 7 (7 s), and comes until 22 s.
  const Movement m = simulate(r, each(r, 1), std::span(found).first(1), {.link = {10, 10}});
  EXPECT_EQ(m.seconds, 23);
  EXPECT_EQ(m.waited, 15);
}

TEST(Plan, WhatHasNotBegunToLeaveStays) {
  const Recording r = chain(4);
  const auto found = saved_stretches(r, 1);
  // The link is busy with storage 1 until 12 s: 2 and 3 are wanted again before.
  const Movement m = simulate(r, each(r, 1), std::span(found).first(3), {.link = {10, 10}});
  EXPECT_EQ(m.forwarded, 200);
  EXPECT_EQ(m.out, 100);
  EXPECT_EQ(m.in, 100);
  EXPECT_EQ(m.seconds, 23);
}

TEST(Plan, ABudgetIsKeptByWaiting) {
  const Recording r = chain(8);
  const auto found = saved_stretches(r, 1);
  const Movement free = simulate(r, each(r, 1), found, {.link = {50, 50}});
  const Movement kept = simulate(r, each(r, 1), found, {.link = {50, 50}, .budget = 400, .window = 100});
  EXPECT_GT(free.peak, 400);
  EXPECT_LE(kept.peak, 400);
  EXPECT_GT(kept.seconds, free.seconds);
  EXPECT_GT(kept.waited, 0);
}

TEST(Plan, ABudgetThatCannotBeKeptIsPassed) {
  const Recording r = chain(8);
  EXPECT_EQ(simulate(r, each(r, 1), {}, {.budget = 400}).peak, 900);
}

TEST(Plan, OthersCount) {
  const Recording r = chain(2);
  EXPECT_EQ(simulate(r, each(r, 1), {}, {.others = 1000}).peak, 1000 + r.peak_bytes().first);
}

TEST(Plan, WhatIsAtHomeComesWhenItIsWanted) {
  Recording r = chain(4);
  // A parameter that calls 1 (forward) and 6 (backward) read.
  RecordedStorage p;
  p.nbytes = 1000;
  p.tag = Tag::parameter;
  p.freed = static_cast<int32_t>(r.calls.size());
  r.storages.push_back(p);
  RecordedValue v;
  v.storage = 5;
  r.values.push_back(v);
  for (const size_t c : {1u, 6u}) r.calls[c].args.emplace_back(ValueIndex{5});
  const std::vector<Away> home = home_stretches(r, Tag::parameter);
  EXPECT_EQ(home, (std::vector<Away>{{5, -1, 1, false}, {5, 1, 6, false}, {5, 6, 8, false}}));
  const Movement m = simulate(r, each(r, 1), home, {.link = {1000, 1000}});
  EXPECT_EQ(m.in, 2000);
  EXPECT_EQ(m.out, 0);
  EXPECT_EQ(m.waited, 0);  // it comes during calls 0 and 2
  EXPECT_EQ(m.elsewhere, 1000);
  EXPECT_EQ(home_stretches(r, Tag::optimizer).size(), 0u);
  // Written by the last of them: it goes out once.
  r.calls[6].phase = Phase::update;
  r.calls[6].targets.push_back({5});
  const Movement w = simulate(r, each(r, 1), home_stretches(r, Tag::parameter), {.link = {1000, 1000}});
  EXPECT_EQ(w.out, 1000);
}

// Weights of 1000 bytes of eight calls, four of forward and four of backward, in order and back.
Recording chain_of_weights() {
  Recording r = chain(4);
  for (int i = 0; i < 4; ++i) {
    RecordedStorage p;
    p.nbytes = 1000;
    p.tag = Tag::parameter;
    p.freed = static_cast<int32_t>(r.calls.size());
    r.storages.push_back(p);
    RecordedValue v;
    v.storage = 5 + i;
    r.values.push_back(v);
    for (const int c : {i, 7 - i}) r.calls[static_cast<size_t>(c)].args.emplace_back(ValueIndex{5 + i});
  }
  return r;
}

TEST(Plan, WeightsAreCountedApart) {
  const Recording r = chain_of_weights();
  std::vector<Away> home = home_stretches(r, std::vector<int32_t>{5, 6, 7, 8});
  for (Away& a : home) a.apart = true;
  const int64_t others = r.peak_bytes().first - 4000;
  // A weight comes in half a call. The first is there when the step begins; two are near at once.
  const Movement two = simulate(r, each(r, 1), home, {.link = {2000, 2000}, .near = 2000});
  EXPECT_EQ(two.waited, 0);
  EXPECT_EQ(two.near, 2000);
  EXPECT_EQ(two.peak, others);  // what is apart is not in it
  EXPECT_EQ(two.out, 0);
  EXPECT_EQ(two.left, 0);
  // In forward three come; the last two are still near for backward, which brings two.
  EXPECT_EQ(two.in, 3000 + 2000);
  EXPECT_EQ(two.forward_in, 3000);
  // Where all fit, each comes once.
  const Movement all = simulate(r, each(r, 1), home, {.link = {2000, 2000}, .near = 4000});
  EXPECT_EQ(all.in, 3000);
  EXPECT_EQ(all.near, 4000);
  // One at a time is waited for: half a call each.
  const Movement one = simulate(r, each(r, 1), home, {.link = {2000, 2000}, .near = 1000});
  EXPECT_EQ(one.in, 3000 + 3000);
  EXPECT_EQ(one.waited, 3);
  // Over a slow link time is its: three weights before the last of forward can begin.
  const Movement slow = simulate(r, each(r, 1), home, {.link = {200, 200}, .near = 2000});
  EXPECT_GE(slow.seconds, 25);
  home[0].apart = false;
  EXPECT_THROW(simulate(r, each(r, 1), home, {.link = {1, 1}}), ValueError);
}

TEST(Plan, StretchesWithinAPhase) {
  Recording r = chain_of_weights();
  r.calls[3].args.emplace_back(ValueIndex{5});  // the first weight again, in forward
  const std::vector<int32_t> first{5};
  EXPECT_EQ(home_stretches(r, first), (std::vector<Away>{{5, 3, 7, false}, {5, 7, 8, false}}));
  EXPECT_EQ(home_stretches(r, first, 2), (std::vector<Away>{{5, 0, 3, false}, {5, 3, 7, false}, {5, 7, 8, false}}));
  RecordedStorage unused;
  unused.nbytes = 10;
  unused.freed = 8;
  r.storages.push_back(unused);
  EXPECT_EQ(home_stretches(r, std::vector<int32_t>{9}), (std::vector<Away>{{9, -1, 8, false}}));
}

TEST(Plan, ARealStep) {
  const DeviceScope dry(Device::meta());
  const Tensor x = empty({{64, 32}, DType::f32, Device::meta(), std::nullopt});
  TensorList w;
  {
    const TagScope tag(Tag::parameter);
    for (int i = 0; i < 6; ++i)
      w.push_back(empty({{32, 32}, DType::f32, Device::meta(), std::nullopt}).set_requires_grad());
  }
  const Recording r = record([&] {
    Tensor h = x;
    for (const Tensor& m : w) h = tanh(matmul(h, m));
    sum(h).backward();
  });
  const auto found = saved_stretches(r, 4096);
  EXPECT_EQ(found.size(), 6u);                               // each tanh's result
  EXPECT_EQ(home_stretches(r, Tag::parameter).size(), 16u);  // the first is read by the first call, and by no rule
  const Movement all = simulate(r, each(r, 1e-3), {}, {});
  EXPECT_EQ(all.peak, r.peak_bytes().first);
  const Movement less = simulate(r, each(r, 1e-3), std::span(found).first(4), {.link = {1e9, 1e9}, .window = 8192});
  EXPECT_LE(less.peak, all.peak - 8192);
  EXPECT_EQ(less.seconds, all.seconds);
}

TEST(Plan, RefusesWhatMakesNoSense) {
  const Recording r = chain(4);
  const auto times = each(r, 1);
  const MoveRules rules{.link = {1, 1}};
  const auto with = [&](std::vector<Away> a) { simulate(r, times, a, rules); };
  EXPECT_THROW(with({{9, 1, 2, true}}), ValueError);
  EXPECT_THROW(with({{1, 2, 2, true}}), ValueError);
  EXPECT_THROW(with({{1, 1, 9, true}}), ValueError);
  EXPECT_THROW(with({{1, 1, 4, true}, {1, 3, 7, true}}), ValueError);
  EXPECT_THROW(with({{4, 4, 7, true}}), ValueError);  // freed at 5
  EXPECT_THROW(simulate(r, std::vector<double>{1}, {}, {}), ValueError);
  EXPECT_THROW(simulate(r, times, std::vector<Away>{{1, 1, 7, true}}, {}), ValueError);
}

}  // namespace
}  // namespace strata::memory
