#include "strata/train/plan/plan.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>
#include <random>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "strata/core/error.h"
#include "strata/core/parallel.h"
#include "strata/core/rng.h"
#include "strata/io/files.h"
#include "strata/io/temp_dir.h"
#include "strata/memory/allocator.h"
#include "strata/train/estimate.h"
#include "strata/train/plan/auto_layout.h"
#include "strata/train/plan/forecast_inl.h"
#include "strata/train/plan/rank_order.h"
#include "strata/train/ranks.h"

namespace strata::plan {
namespace {

template <class E, class F>
std::string message(F&& f) {
  try {
    f();
  } catch (const E& e) {
    return e.what();
  }
  return "";
}

// Of a processor's order of size.
Machine machine() {
  return {.name = "made up",
          .limits = {.gb_s = 10, .gflops = 50, .matmul_f32 = 100, .matmul_bf16 = 100},
          .efficiency = 0.5,
          .call_us = 5,
          .memory = int64_t{4} << 30,
          .links = {.transport = "gloo",
                    .ranks_per_host = 4,
                    .inside = {.gb_s = 2, .latency_us = 20},
                    .between = {.gb_s = 0.5, .latency_us = 50},
                    .overlap = 0.5}};
}
TrainConfig small(const std::vector<std::string>& more = {}) {
  std::vector<std::string> s{"model.layers=4", "model.dim=64",  "model.heads=4",   "model.context=32",
                             "model.vocab=256", "train.batch=16", "train.accumulate=1"};
  s.insert(s.end(), more.begin(), more.end());
  return parse_config("", "test", s);
}
const Planned* find(const Plan& plan, const std::string& layout) {
  const auto at = std::ranges::find_if(plan.layouts, [&](const Planned& p) { return p.layout.to_text() == layout; });
  return at == plan.layouts.end() ? nullptr : &*at;
}

TEST(PlanMachine, IsReadAsItIsWritten) {
  Machine m = machine();
  m.share = 0.75;
  m.links.pairs.assign(9, {1.5, 7});
  const Machine same = machine_from_json(m.to_json(), "links.json");
  EXPECT_EQ(same.name, m.name);
  EXPECT_EQ(same.limits.matmul_f32, 100);
  EXPECT_EQ(same.efficiency, 0.5);
  EXPECT_EQ(same.call_us, 5);
  EXPECT_EQ(same.share, 0.75);
  EXPECT_EQ(same.memory, m.memory);
  EXPECT_EQ(same.links, m.links);
  EXPECT_EQ(same.links.ranks(), 3);
}

TEST(PlanMachine, ErrorsNameTheByteOrTheKey) {
  const auto of = [](const std::string& text) { return message<IoError>([&] { machine_from_json(text, "links.json"); }); };
  const auto without = [](const char* from, const char* to) {
    std::string text = machine().to_json();
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, std::string(from).size(), to);
  };
  EXPECT_EQ(of("{\"name\": "), "links.json: is no JSON at byte 10");
  EXPECT_EQ(of("[]"), "links.json: '' is no object");
  EXPECT_EQ(of("{}"), "links.json: 'limits' is not there");
  EXPECT_EQ(of(without("\"overlap\": 0.5", "\"overlap\": 1.5")), "links.json: 'links.overlap' is 1.5, wanted 0 to 1");
  EXPECT_EQ(of(without("\"gloo\"", "\"smoke\"")), "links.json: 'links.transport' is 'smoke', wanted nccl, gloo or mpi");
  EXPECT_EQ(of(without("\"call_us\": 5.0", "\"call_us\": \"5\"")), "links.json: 'call_us' is no number");
  Machine m = machine();
  m.links.pairs.assign(5, {1, 1});
  EXPECT_EQ(of(m.to_json()), "links.json: 'links.pairs' has 5 entries, no square number");
  m.links.pairs.assign(4, {1, 1});
  m.links.pairs[3].gb_s = 0;
  EXPECT_EQ(of(m.to_json()), "links.json: 'links.pairs' has an entry 3 that is no pair of GB/s, above 0, and microseconds");
  EXPECT_NE(message<ValueError>([] { machine_of_card("h000"); }).find("h200"), std::string::npos);
}

TEST(PlanNetwork, CollectivesTakeWhatTheSlowestRankSends) {
  const Machine m = machine();
  const Network net(m.links, 8);
  // Four of one host: 2 * 3/4 of 2 MB at 2 GB/s, and 2 * 3 messages' way.
  EXPECT_NEAR(net.seconds(Collective::all_reduce, {1, 4}, 2e6), 1.5 * 2e6 / 2e9 + 6 * 20e-6, 1e-12);
  EXPECT_NEAR(net.seconds(Collective::all_gather, {1, 4}, 2e6), 0.75 * 2e6 / 2e9 + 3 * 20e-6, 1e-12);
  // One of each host: the slow way.
  EXPECT_NEAR(net.seconds(Collective::all_reduce, {4, 2}, 1e6), 1e6 / 0.5e9 + 2 * 50e-6, 1e-12);
  // Eight: of seven messages three stay.
  EXPECT_NEAR(net.seconds(Collective::reduce_scatter, {1, 8}, 8e6), 1e6 * (3 / 2e9 + 4 / 0.5e9) + 7 * 50e-6, 1e-12);
  EXPECT_EQ(net.seconds(Collective::all_reduce, {1, 1}, 1e6), 0);
  // Rings of cards: four ways from host to host, but where each host has one member.
  Machine cards = machine();
  cards.links.transport = "nccl";
  const Network rings(cards.links, 8);
  EXPECT_NEAR(rings.seconds(Collective::all_gather, {1, 8}, 8e6), 7e6 / 2e9 + 3 * 50e-6, 1e-12);
  EXPECT_NEAR(rings.seconds(Collective::all_gather, {4, 2}, 8e6), 4e6 / 0.5e9 + 1 * 50e-6, 1e-12);
}

TEST(PlanNetwork, OnePairIsSlow) {
  Machine m = machine();
  m.links.pairs.assign(16, {2, 20});
  m.links.pairs[1] = m.links.pairs[4] = {0.1, 20};  // ranks 0 and 1
  const Network as_they_come(m.links, 4), other(m.links, 4, {0, 2, 1, 3});
  const double slow = as_they_come.seconds(Collective::all_reduce, {1, 2}, 1e6);
  EXPECT_NEAR(slow, 1e6 / 0.1e9 + 40e-6, 1e-12);
  EXPECT_NEAR(other.seconds(Collective::all_reduce, {1, 2}, 1e6), 1e6 / 2e9 + 40e-6, 1e-12);
  EXPECT_NEAR(other.seconds(Collective::all_reduce, {2, 2}, 1e6), slow, 1e-12);
  EXPECT_NE(message<ValueError>([&] { Network(m.links, 4, {0, 1, 1, 3}); }).find("once"), std::string::npos);
  EXPECT_NE(message<ValueError>([&] { Network(m.links, 8); }).find("of 4 ranks"), std::string::npos);
}

TEST(PlanLanes, MessagesRunBesideTheComputing) {
  Lanes free(1);
  const double sent = free.start(3, 300);  // 0 to 3
  free.compute(2);
  free.start(2, 100);  // 3 to 5
  EXPECT_EQ(sent, 3);
  free.wait(sent);
  EXPECT_DOUBLE_EQ(free.exposed(), 1);
  EXPECT_DOUBLE_EQ(free.exposed_bytes(), 100);
  free.compute(1);
  free.finish();
  EXPECT_DOUBLE_EQ(free.now(), 5);
  EXPECT_DOUBLE_EQ(free.exposed_bytes(), 150);
  EXPECT_DOUBLE_EQ(free.sent(), 400);
  // What travels takes half of the computing's pace.
  Lanes slow(0.5);
  slow.start(1, 1);
  slow.compute(4);
  EXPECT_DOUBLE_EQ(slow.now(), 4.5);
  // Passes that are alike.
  const Lanes before = slow;
  slow.compute(1);
  slow.send(1, 8);
  slow.again(before, 3);
  EXPECT_DOUBLE_EQ(slow.now(), 4.5 + 4 * 2);
  EXPECT_DOUBLE_EQ(slow.sent(), 33);
  EXPECT_DOUBLE_EQ(slow.exposed_bytes(), 32);
}

TEST(PlanFront, IsThatOfBruteForce) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::pair<double, double>> points;
    for (int i = 0; i < 1 + round % 40; ++i) points.emplace_back(random() % 12, random() % 12);
    // One of each point that nothing beats: no other is as good in both and better in one.
    std::vector<std::pair<double, double>> want;
    for (const auto& a : points) {
      const bool beaten = std::ranges::any_of(points, [&](const auto& b) {
        return b.first <= a.first && b.second <= a.second && b != a;
      });
      if (!beaten && std::ranges::find(want, a) == want.end()) want.push_back(a);
    }
    std::ranges::sort(want);
    std::vector<std::pair<double, double>> got;
    for (const size_t i : pareto_front(points)) got.push_back(points[i]);
    ASSERT_EQ(got, want) << round;
  }
}

TEST(PlanLayouts, SettingsSayTheLayout) {
  const TrainConfig config = small({"train.accumulate=2"});
  for (const ParallelLayout& l : candidates(config, 4)) {
    const TrainConfig want = l.applied(config);
    TrainConfig got = config;
    try {
      got = parse_config(to_toml(config), "test", l.settings(config));
    } catch (const ValueError&) {
      EXPECT_THROW(validate(want), ValueError) << l.to_text();
      continue;
    }
    ASSERT_EQ(got, want) << l.to_text();
    EXPECT_EQ(want.batch * want.accumulate, 32);
  }
}

TEST(PlanLayouts, WhatIsSetStays) {
  const std::vector<ParallelLayout> all = candidates(small({"parallel.tp=2", "parallel.zero=3"}), 4);
  ASSERT_FALSE(all.empty());
  for (const ParallelLayout& l : all) {
    EXPECT_EQ(l.tp, 2);
    EXPECT_EQ(l.zero, 3);
    EXPECT_EQ(l.ranks(), 4);
  }
}

// What a zero-bubble schedule has wait: of each weight matrix one product, whatever op the gradients come from, and no
// product of two activations. On a machine that takes time for operations alone.
TEST(PlanProfile, WeightsGradientsAreTheirProducts) {
  Machine m = machine();
  m.limits = {.gb_s = 1e9, .gflops = 100, .matmul_f32 = 100, .matmul_bf16 = 100};
  m.efficiency = 1, m.call_us = 0;
  // Biases beside weights; none; copies for autocast.
  for (const std::string more : {"model.family=gpt", "model.family=llama", "train.dtype=bf16"}) {
    SCOPED_TRACE(more);
    const TrainConfig config = small({more});
    const Profile p(config, m);
    double block = 0;
    for (const auto& [name, t] : p.decoder()->blocks[0].named_parameters())
      if (t.dim() == 2) block += static_cast<double>(t.numel());
    const auto head = static_cast<double>(config.model.vocab * config.model.dim);
    constexpr double kRows = 3;
    const double once = 2 * kRows * p.tokens / 1e11;
    const LayerTimes t = p.times(1, kRows, 1, 1, false), again = p.times(1, kRows, 1, 1, true);
    EXPECT_NEAR(t.weight, once * block, 0.02 * once * block);
    EXPECT_GT(t.input, once * block);  // and attention's
    EXPECT_NEAR(t.input + t.weight, t.backward, 1e-3 * t.backward);
    // A block that keeps its inputs runs again in each half.
    EXPECT_NEAR(again.backward, t.backward + t.forward, 0.02 * t.backward);
    EXPECT_NEAR(again.input, t.input + t.forward, 0.02 * t.backward);
    EXPECT_NEAR(again.weight, t.weight + t.forward, 0.02 * t.backward);
    EXPECT_NEAR(p.times(p.layers().size() - 1, kRows, 1, 1, false).weight, once * head, 0.02 * once * head);
    EXPECT_EQ(p.times(0, kRows, 1, 1, false).weight, 0);  // a look-up
  }
}

// Others' work lengthens what ranks compute, and not what was measured beside it.
TEST(Plans, WhatOthersLeaveIsComputedWith) {
  Machine alone = machine(), half = machine();
  alone.links.overlap = half.links.overlap = 1;
  half.share = 0.5;
  const Profile all(small(), alone), some(small(), half);
  Forecaster of_all(all), of_some(some);
  for (const ParallelLayout& l : {ParallelLayout{.dp = 4}, ParallelLayout{.dp = 2, .tp = 2, .zero = 2},
                                  ParallelLayout{.pp = 4, .micro_batches = 4}}) {
    const Forecast a = of_all(l), b = of_some(l);
    EXPECT_NEAR(b.computes, 2 * a.computes, 1e-9) << l.to_text();
    EXPECT_GT(b.seconds, a.seconds + 0.9 * a.computes) << l.to_text();
    EXPECT_LT(b.seconds, 2 * a.seconds) << l.to_text();
    EXPECT_EQ(b.sent, a.sent) << l.to_text();
    EXPECT_EQ(b.peak, a.peak) << l.to_text();
  }
}

// What training refuses is never offered, and all that was asked for is accounted for.
TEST(Plans, EveryLayoutCanBeTrained) {
  const TrainConfig config = small();
  const Plan plan = plan_layouts(config, 4, machine(), {.sure = 3});
  ASSERT_GT(plan.layouts.size(), 20U);
  int64_t left_out = 0;
  for (const LeftOut& r : plan.left_out) left_out += r.layouts;
  EXPECT_EQ(plan.layouts.size() + static_cast<size_t>(left_out), candidates(config, 4).size());
  for (size_t i = 0; i < plan.layouts.size(); ++i) {
    const Planned& p = plan.layouts[i];
    EXPECT_EQ(check_layout(p.layout.applied(config), 4), p.layout.dp);
    EXPECT_GT(p.forecast.seconds, 0);
    EXPECT_GE(p.forecast.seconds, p.forecast.computes - 1e-12) << p.layout.to_text();
    EXPECT_GT(p.forecast.sent, 0);
    EXPECT_LE(p.forecast.exposed_bytes, p.forecast.sent + 1) << p.layout.to_text();
    if (i > 0) {
      EXPECT_GE(p.forecast.seconds, plan.layouts[i - 1].forecast.seconds);
    }
  }
  const auto refused = std::ranges::find_if(plan.left_out, [](const LeftOut& r) { return r.reason.find("parallel.") != std::string::npos; });
  ASSERT_NE(refused, plan.left_out.end());
  const nlohmann::json j = nlohmann::json::parse(to_json(plan));
  EXPECT_EQ(j["layouts"].size(), plan.layouts.size());
  EXPECT_EQ(j["layouts"][0]["settings"][0], "parallel.dp=" + std::to_string(plan.layouts[0].layout.dp));
  const std::string text = to_text(plan, 3);
  EXPECT_NE(text.find("The first: --set parallel.dp="), std::string::npos) << text;
  EXPECT_NE(text.find("left out:"), std::string::npos) << text;
}

// The front of the plan is that of all its layouts, point by point.
TEST(Plans, TheFrontIsExact) {
  const Plan plan = plan_layouts(small(), 4, machine(), {.sure = 0});
  for (const Planned& a : plan.layouts) {
    const bool beaten = std::ranges::any_of(plan.layouts, [&](const Planned& b) {
      return b.forecast.seconds <= a.forecast.seconds && b.forecast.peak <= a.forecast.peak &&
             (b.forecast.seconds < a.forecast.seconds || b.forecast.peak < a.forecast.peak);
    });
    EXPECT_FALSE(a.on_front && beaten) << a.layout.to_text();
    if (a.on_front || beaten) continue;
    const bool same = std::ranges::any_of(plan.layouts, [&](const Planned& b) {
      return b.on_front && b.forecast.seconds == a.forecast.seconds && b.forecast.peak == a.forecast.peak;
    });
    EXPECT_TRUE(same) << a.layout.to_text();
  }
}

// The forecast's memory beside the trainer's own estimate, for rows, passes and shares that were not measured.
TEST(Plans, MemoryIsTheEstimates) {
  const TrainConfig config = small({"model.dim=256", "train.batch=64"});
  const Plan plan = plan_layouts(config, 4, machine(), {.sure = 0});
  int looked_at = 0;
  double off = 0;
  for (size_t i = 0; i < plan.layouts.size(); i += 7) {
    const Planned& p = plan.layouts[i];
    if (p.layout.pp > 1) continue;
    const auto want = static_cast<double>(estimate_memory(p.layout.applied(config)).peak);
    EXPECT_NEAR(static_cast<double>(p.forecast.peak), want, 0.25 * want) << p.layout.to_text();
    off += std::abs(static_cast<double>(p.forecast.peak) / want - 1);
    ++looked_at;
  }
  EXPECT_GT(looked_at, 8);
  EXPECT_LT(off / looked_at, 0.05);
}

TEST(Plans, WhatDoesNotFitIsLeftOut) {
  const TrainConfig config = small({"model.dim=128", "train.batch=32"});
  const Plan all = plan_layouts(config, 4, machine(), {.sure = 0});
  std::vector<int64_t> peaks;
  for (const Planned& p : all.layouts) peaks.push_back(p.forecast.peak);
  std::ranges::sort(peaks);
  const int64_t memory = peaks[peaks.size() / 3];
  const Plan some = plan_layouts(config, 4, machine(), {.memory = memory, .sure = 1000});
  ASSERT_FALSE(some.layouts.empty());
  EXPECT_LT(some.layouts.size(), all.layouts.size() / 2);
  for (const Planned& p : some.layouts) {
    EXPECT_LE(p.forecast.peak, memory);
    if (p.layout.pp > 1) continue;
    EXPECT_LE(estimate_memory(p.layout.applied(config)).peak, memory) << p.layout.to_text();
  }
  const auto why = std::ranges::find_if(some.left_out, [](const LeftOut& r) { return r.reason.find("memory") != std::string::npos; });
  ASSERT_NE(why, some.left_out.end());
  EXPECT_GT(why->least, memory);
  const Plan none = plan_layouts(config, 4, machine(), {.memory = 1000});
  EXPECT_TRUE(none.layouts.empty());
}

TEST(Plans, MoreSharingTakesLessAndSendsMore) {
  const Plan plan = plan_layouts(small({"train.batch=4", "model.dim=128"}), 4, machine(), {.sure = 0});
  const Planned *whole = find(plan, "dp 4"), *third = find(plan, "dp 4, zero 3");
  const Planned *again = find(plan, "dp 4, blocks run again"), *stages = find(plan, "pp 4, 1f1b, 4 micro-batches");
  ASSERT_TRUE(whole && third && again && stages);
  EXPECT_LT(third->forecast.parameters + third->forecast.optimizer, whole->forecast.parameters + whole->forecast.optimizer);
  EXPECT_GT(third->forecast.sent, whole->forecast.sent);
  EXPECT_GT(again->forecast.computes, whole->forecast.computes);
  EXPECT_EQ(whole->forecast.bubble, 0);
  EXPECT_GT(stages->forecast.bubble, 0.2);
  EXPECT_LT(stages->forecast.optimizer, whole->forecast.optimizer / 2);
}

// Stages whose ranks along dp share them once more: by how each of ZeRO's steps does.
TEST(Plans, StagesInPartsTakeLess) {
  const TrainConfig config = small({"model.dim=128", "model.layers=8"});
  const Profile profile(config, machine());
  Forecaster of(profile);
  std::vector<Forecast> f;
  for (const int64_t zero : {0, 1, 2, 3})
    f.push_back(of({.dp = 2, .pp = 2, .zero = zero, .schedule = "1f1b", .micro_batches = 4}));
  for (size_t zero = 1; zero < 4; ++zero) EXPECT_EQ(f[zero].optimizer, f[0].optimizer / 2) << zero;
  EXPECT_EQ(f[2].parameters, f[0].parameters);
  EXPECT_LT(f[3].parameters, f[0].parameters);
  EXPECT_EQ(f[2].sent, f[0].sent);  // a reduce_scatter, and the updated weights' all_gather
  EXPECT_GT(f[3].sent, f[2].sent);  // weights for each pass, gradients behind each
  EXPECT_GE(f[3].seconds, f[2].seconds);
  const Profile kept(small({"model.dim=128", "model.layers=8", "parallel.reshard=never", "parallel.every_pass=false"}), machine());
  const Forecast once = Forecaster(kept)({.dp = 2, .pp = 2, .zero = 3, .schedule = "1f1b", .micro_batches = 4});
  EXPECT_LT(once.sent, f[3].sent);
  EXPECT_GT(once.parameters, f[3].parameters);
}

// A job that no machine here could run: the plan is there, whatever its size.
TEST(Plans, ThousandsOfRanks) {
  const TrainConfig config = parse_config("", "test",
                                          {"model.family=llama", "model.layers=8", "model.dim=512", "model.heads=8",
                                           "model.context=256", "model.vocab=1024", "train.batch=4096", "train.device=cuda",
                                           "train.dtype=bf16"});
  const Plan plan = plan_layouts(config, 4096, machine_of_card("h200"), {.sure = 1});
  ASSERT_FALSE(plan.layouts.empty());
  for (const Planned& p : plan.layouts) EXPECT_EQ(p.layout.ranks(), 4096);
}

// Experts make a further axis; what is no decoder has fewer, each refused by name.
TEST(Plans, ModelsOfOtherKinds) {
  const Plan plan = plan_layouts(small({"model.experts=4"}), 4, machine(), {.sure = 0});
  EXPECT_NE(find(plan, "dp 4, experts on 4"), nullptr);
  EXPECT_NE(find(plan, "dp 4"), nullptr);
  const Plan chats = plan_layouts(small({"data.format=chat"}), 2, machine(), {.sure = 0});
  EXPECT_TRUE(chats.layouts.empty());
  ASSERT_FALSE(chats.left_out.empty());
  EXPECT_NE(chats.left_out[0].reason.find("data.format"), std::string::npos);
}

TEST(RankOrder, TheSlowPairIsAvoided) {
  const TrainConfig config = small({"model.dim=128"});
  Machine m = machine();
  m.links.pairs.assign(16, {2, 20});
  m.links.pairs[1] = m.links.pairs[4] = {0.05, 20};  // ranks 0 and 1, neighbours along tp as they come
  const ParallelLayout layout{.dp = 2, .tp = 2};
  const RankOrder order = order_ranks(config, layout, m);
  EXPECT_LT(order.seconds, 0.8 * order.as_they_come);
  // No order is faster.
  const Profile profile(config, m);
  Forecaster forecaster(profile);
  std::vector<int> o{0, 1, 2, 3};
  double least = 1e9;
  do {
    least = std::min(least, forecaster.seconds(layout, o));
  } while (std::ranges::next_permutation(o).found);
  EXPECT_EQ(order.seconds, least);
  EXPECT_EQ(order.seconds, forecaster.seconds(layout, order.ranks));
  // The pair is not of one tp group, whose exchanges are the heavier ones.
  const auto place = [&](int rank) { return std::ranges::find(order.ranks, rank) - order.ranks.begin(); };
  EXPECT_NE(place(0) / 2, place(1) / 2);
}

TEST(RankOrder, MoreRanksGetBetterByExchanging) {
  const TrainConfig config = small({"train.batch=24"});
  Machine m = machine();
  m.links.pairs.assign(144, {2, 20});
  for (const auto& [a, b] : {std::pair(0, 1), std::pair(4, 5)})
    m.links.pairs[static_cast<size_t>(12 * a + b)] = m.links.pairs[static_cast<size_t>(12 * b + a)] = {0.05, 20};
  const RankOrder order = order_ranks(config, {.dp = 6, .tp = 2}, m);
  EXPECT_LT(order.seconds, 0.9 * order.as_they_come);
  std::vector<int> sorted = order.ranks;
  std::ranges::sort(sorted);
  std::vector<int> all(12);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(sorted, all);
}

TEST(MachineFor, SaysWhereTheNumbersAreFrom) {
  const TrainConfig config = small();
  const io::TempDir dir;
  const std::string path = dir / "links.json";
  Machine m = machine();
  m.links.pairs.assign(16, {1.5, 7});
  io::write_file(path, m.to_json());
  EXPECT_EQ(machine_for(config, 4, {.links = path}).links, m.links);
  const Machine two = machine_for(config, 4, {.links = path, .hosts = 2});
  EXPECT_EQ(two.links.ranks_per_host, 2);
  EXPECT_TRUE(two.links.pairs.empty());
  EXPECT_EQ(machine_for(config, 4, {.card = "h200"}).name, machine_of_card("h200").name);
  const auto refused = [&](int64_t ranks, const MachineSource& s) {
    return message<ValueError>([&] { machine_for(config, ranks, s); });
  };
  EXPECT_NE(refused(4, {}).find("what goes between ranks is not known"), std::string::npos);
  EXPECT_EQ(refused(4, {.links = path, .hosts = 3}), "plan: 3 hosts do not divide the 4 ranks");
  EXPECT_NE(refused(4, {.links = path, .card = "h200"}).find("one of them"), std::string::npos);
  EXPECT_NE(refused(0, {.card = "h200"}).find("at least 1"), std::string::npos);
  EXPECT_NE(message<IoError>([&] { machine_for(config, 4, {.links = dir / "none.json"}); }).find("none.json"), std::string::npos);
}

// A program that plans goes on with the random numbers that it would have had.
TEST(Plans, DrawNoRandomNumbers) {
  const RngKey before = default_generator().state();
  plan_layouts(small({"model.dropout=0.1", "train.batch=4"}), 2, machine(), {.sure = 1, .find_order = true});
  EXPECT_EQ(default_generator().state().seed, before.seed);
  EXPECT_EQ(default_generator().state().offset, before.offset);
}

TEST(AutoLayout, OneRankPlansForItself) {
  const TrainConfig config = small({"parallel.auto=true", "train.batch=4"});
  const TrainConfig settled = settle_layout(config);
  EXPECT_FALSE(settled.parallel.automatic);
  EXPECT_EQ(settled.batch * settled.accumulate, 4);
  EXPECT_EQ(settled.parallel.dp, 1);
  EXPECT_EQ(settle_layout(settled), settled);
  const TrainConfig lost = small({"parallel.auto=true", "parallel.links=/nowhere/links.json"});
  EXPECT_NE(message<ValueError>([&] { settle_layout(lost); }).find("/nowhere/links.json"), std::string::npos);
}

TEST(MeasureMachine, AloneHasLimitsAndNoLinks) {
  const Machine m = measure_machine(Device::cpu());
  EXPECT_GT(m.limits.gb_s, 0);
  EXPECT_GT(m.limits.matmul_f32, 0);
  EXPECT_GT(m.efficiency, 0);
  EXPECT_LE(m.efficiency, 1);
  EXPECT_GE(m.call_us, 0);
  EXPECT_GT(m.share, 0);
  EXPECT_LE(m.share, 1);
  EXPECT_GT(m.memory, 0);
  EXPECT_TRUE(m.links.pairs.empty());
}

// Of one thread beside three a processor some quarter is left, which is no slower processor.
TEST(MeasureMachine, OthersWorkIsAShareAndNotASpeed) {
  const int before = num_threads();
  set_num_threads(1);
  const Machine quiet = measure_machine(Device::cpu());
  std::atomic<bool> done = false;
  std::vector<std::thread> others;
  for (unsigned i = 0; i < 3 * std::max(std::thread::hardware_concurrency(), 1U); ++i)
    others.emplace_back([&] {
      while (!done.load(std::memory_order_relaxed)) {
      }
    });
  const Machine busy = measure_machine(Device::cpu());
  done = true;
  for (std::thread& t : others) t.join();
  set_num_threads(before);
  EXPECT_LT(busy.share, 0.6);
  EXPECT_LT(busy.share, 0.8 * quiet.share);
  // Where two threads of a core share its units it is slower, too; by the clock it would be a quarter.
  EXPECT_GT(busy.limits.matmul_f32, 0.45 * quiet.limits.matmul_f32);
}

}  // namespace
}  // namespace strata::plan
