// Plans for budgets: what they keep to, what they prefer, what they say.

#include "strata/train/tier_plan.h"

#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "strata/core/error.h"
#include "strata/train/estimate.h"

namespace strata {
namespace {

// 60 MB of weights, gradients and state, 50 MB of activations.
TrainConfig config_of(std::vector<std::string> more, bool cuda = true) {
  more.insert(more.begin(), {"model.layers=4", "model.dim=256", "model.heads=4", "model.context=256", "train.batch=8"});
  if (cuda) more.insert(more.begin(), "train.device=cuda");
  return parse_config("", "test", more);
}

// A card that computes for as long as the bus takes for a third of what is saved, each way.
constexpr lab::Limits kCard{.gb_s = 3000, .gflops = 30000, .matmul_f32 = 30000, .matmul_bf16 = 600000};
constexpr TierRates kFast{
    .to_host = 50e9, .from_host = 50e9, .disk_write = 2.5e9, .disk_read = 4e9, .host_memory = 1e11};

int64_t peak_without(const TrainConfig& c) {
  return plan_tiers(c, kCard, kFast).peak_without;
}

TEST(TierPlan, NothingMovesWhereNothingIsBounded) {
  const TierPlan p = plan_tiers(config_of({}), kCard, kFast);
  EXPECT_FALSE(p.moves());
  EXPECT_TRUE(p.fits);
  EXPECT_EQ(p.peak.device, p.peak_without);
  EXPECT_EQ(p.peak.host + p.peak.disk, 0);
  EXPECT_EQ(p.seconds, p.seconds_without);
  EXPECT_EQ(p.bound, "compute");
  EXPECT_NEAR(static_cast<double>(p.peak.device), static_cast<double>(estimate_memory(config_of({})).peak),
              0.01 * static_cast<double>(p.peak.device));
}

TEST(TierPlan, NothingMovesWhereAllFits) {
  const TierPlan p = plan_tiers(config_of({"memory.device=100GiB"}), kCard, kFast);
  EXPECT_FALSE(p.moves());
  EXPECT_TRUE(p.fits);
}

TEST(TierPlan, KeepsToBudgets) {
  const int64_t all = peak_without(config_of({}));
  int64_t last = all + 1;
  double seconds = 0;
  for (const double share : {0.9, 0.7, 0.5, 0.4}) {
    const auto budget = static_cast<int64_t>(share * static_cast<double>(all));
    const TierPlan p = plan_tiers(config_of({"memory.device=" + std::to_string(budget)}), kCard, kFast);
    EXPECT_TRUE(p.fits) << share << "\n" << to_text(p);
    EXPECT_TRUE(p.moves());
    EXPECT_LE(p.peak.device, budget);
    EXPECT_LT(p.peak.device, last);
    EXPECT_GE(p.seconds, seconds * 0.999);  // less room is never faster
    last = budget;
    seconds = p.seconds;
  }
}

// A table keeps moments in f32 where other weights have 8 bits, and all of its state is near at once.
TEST(TierPlan, TheStateOfATableIsNearAsAWhole) {
  const std::vector<std::string> settings{"model.vocab=50000",
                                          "data.tokenizer=ids",
                                          "train.dtype=bf16",
                                          "train.param_dtype=bf16",
                                          "train.param_update=compensated",
                                          "train.state_8bit=true",
                                          "memory.state=host"};
  const TierPlan p = plan_tiers(config_of(settings), kCard, kFast);
  constexpr int64_t kTable = 50000 * 256;
  EXPECT_EQ(record_dry_step(config_of(settings)).largest_state, kTable * (4 + 4 + 2) + 8);  // and the count
  EXPECT_GE(p.near, kTable * (4 + 4 + 2));
}

TEST(TierPlan, SaysWhereNoWayFits) {
  const TierPlan p = plan_tiers(config_of({"memory.device=1MiB"}), kCard, kFast);
  EXPECT_FALSE(p.fits);
  EXPECT_NE(to_text(p).find("No way was found"), std::string::npos) << to_text(p);
  EXPECT_LT(p.peak.device, p.peak_without);
}

TEST(TierPlan, PrefersWhatCostsLess) {
  const auto budget = "memory.device=" + std::to_string(peak_without(config_of({})) * 8 / 10);
  // Over a bus as fast as memory everything may leave; over one that is as slow as a modem blocks are computed again.
  TierRates fast = kFast, slow = kFast;
  fast.to_host = fast.from_host = 3e12;
  slow.to_host = slow.from_host = 1e5;
  const TierPlan quick = plan_tiers(config_of({budget}), kCard, fast);
  const TierPlan again = plan_tiers(config_of({budget}), kCard, slow);
  EXPECT_EQ(quick.recomputed, 0) << to_text(quick);
  EXPECT_GT(again.recomputed + again.calls.recomputed_bytes, 0) << to_text(again);
  EXPECT_EQ(again.activations, Place::device);
  EXPECT_EQ(again.state, Place::device);
}

// Single calls free more a second than whole blocks: a budget that they reach is theirs.
TEST(TierPlan, SingleCallsRunAgainBeforeBlocks) {
  const int64_t all = peak_without(config_of({"train.dtype=bf16"}));
  TierRates slow = kFast;
  slow.to_host = slow.from_host = 1e5;
  const auto budget = "memory.device=" + std::to_string(all * 9 / 10);
  const TierPlan p = plan_tiers(config_of({"train.dtype=bf16", budget}), kCard, slow);
  EXPECT_TRUE(p.fits) << to_text(p);
  EXPECT_EQ(p.recomputed, 0) << to_text(p);
  EXPECT_GT(p.calls.recomputed_bytes, 0);
  EXPECT_TRUE(p.moves());
  EXPECT_NE(to_text(p).find("which single calls make again"), std::string::npos) << to_text(p);
  const TierPlan blocks = plan_tiers(config_of({"train.dtype=bf16", budget, "memory.recompute=blocks"}), kCard, slow);
  EXPECT_LT(p.seconds, blocks.seconds);
  // Asked for without a bound they are few; beside activations that leave, those decide of calls themselves.
  const TierPlan few = plan_tiers(config_of({"train.dtype=bf16", "memory.recompute=calls"}), kCard, kFast);
  EXPECT_GT(few.calls.recomputed_bytes, 0);
  EXPECT_LT(few.calls.recomputed_bytes, p.calls.recomputed_bytes);
  const TierPlan away = plan_tiers(config_of({"memory.recompute=calls", "memory.activations=host"}), kCard, kFast);
  EXPECT_EQ(away.activations, Place::host);
  EXPECT_TRUE(away.calls.choices.empty());
}

// Eight layers of Llama 8B's shape, 4 x 4096 tokens, on an H200: what is saved is at most three tenths of what it was,
// as the first leave while forward runs and calls make others again, within a tenth more time. Either alone does not do
// it.
TEST(TierPlan, ActivationsOfLlamaLayersDownBySeventyPercent) {
  const auto plan = [](std::vector<std::string> more) {
    more.insert(more.begin(),
                {"model.family=llama", "model.layers=8", "model.dim=4096", "model.heads=32", "model.kv_heads=8",
                 "model.ffn_dim=14336", "model.vocab=1024", "model.context=4096", "model.tied_embeddings=false",
                 "data.tokenizer=ids", "train.device=cuda", "train.dtype=bf16", "train.batch=4", "memory.host=110GiB"});
    const lab::KnownCard& card = lab::known_card("h200");
    return plan_tiers(parse_config("", "test", more), card.limits, rates_of(card));
  };
  const TierPlan whole = plan({"memory.device=100GiB"});
  ASSERT_FALSE(whole.moves());
  // Weights, gradients and two moments in f32, and the weights' copies in bf16, stay where they are.
  constexpr int64_t kWeights = 8 * (int64_t{4096} * (4096 + 1024) * 2 + int64_t{4096} * 14336 * 3) + 2 * 4096 * 1024;
  constexpr int64_t kStays = kWeights * (4 * 4 + 2);
  const int64_t saved = whole.peak_without - kStays;
  ASSERT_GT(saved, int64_t{12} << 30);
  const std::string device = "memory.device=" + std::to_string(kStays + saved * 3 / 10 + (int64_t{512} << 20));
  const std::vector<std::string> kept{device, "memory.state=device", "memory.parameters=device"};
  const TierPlan both = plan(kept);
  EXPECT_TRUE(both.fits) << to_text(both);
  EXPECT_LE(both.peak.device - kStays, saved * 3 / 10) << to_text(both);
  EXPECT_LE(both.seconds, 1.1 * both.seconds_without) << to_text(both);
  EXPECT_EQ(both.activations, Place::host);
  EXPECT_GT(both.leaving, int64_t{4} << 30) << to_text(both);
  EXPECT_GT(both.again, int64_t{2} << 30) << to_text(both);
  EXPECT_NE(to_text(both).find("; single calls make "), std::string::npos) << to_text(both);
  for (const char* alone : {"memory.activations=keep", "memory.recompute=none"}) {
    std::vector<std::string> settings = kept;
    settings.push_back(alone);
    const TierPlan p = plan(settings);
    EXPECT_TRUE(!p.fits || p.seconds > 1.1 * p.seconds_without) << to_text(p);
  }
}

// Low-precision copies move, f32 weights stay home, and the table has its place: by bytes over the bus, with an update
// through the device that reads gradients, weights and state and writes all but gradients, while the next forward runs.
TEST(TierPlan, WeightsAreForecastByTheirBytes) {
  const TrainConfig c = config_of(
      {"train.dtype=bf16", "model.vocab=512", "memory.parameters=host", "memory.state=host", "memory.update=device"});
  const TierPlan p = plan_tiers(c, kCard, {.to_host = 5e8, .from_host = 5e8, .host_memory = 1e11});
  const MemoryEstimate e = estimate_memory(c);
  const double weights = 4.0 * static_cast<double>(e.parameter_count), state = static_cast<double>(e.optimizer);
  const double rate = 0.9 * 5e8;
  // In: copies twice, but for those that are still near, of which forward's is beside the update; then the update.
  const double update = (state + 2 * weights) / rate;
  EXPECT_GT(p.seconds, update);
  EXPECT_LT(p.seconds, update + 2.6 * weights / rate + p.seconds_without);
  EXPECT_EQ(p.bound, "the bus");
  EXPECT_FALSE(p.in_place.empty());
  EXPECT_LT(static_cast<double>(p.weights_near), weights);
}

// Who updates changes no bit where the rule promises so: then both do.
// Who updates, on machines of made-up speed: all read and write the same bytes of the host's memory, of which the
// processor and a card's copies together reach a tenth more; and what a slow bus cannot bring the processor updates.
TEST(TierPlan, UpdatesAreForecastByWhatBoundsThem) {
  const auto seconds = [](const char* who, double bus, double memory) {
    const TrainConfig c = config_of({"train.dtype=bf16", "model.vocab=512", "memory.parameters=host",
                                     "memory.state=host", std::string("memory.update=") + who});
    const TierPlan p = plan_tiers(c, kCard, {.to_host = bus, .from_host = bus, .host_memory = memory});
    EXPECT_GT(p.seconds, p.seconds_without) << to_text(p);
    return p.seconds;
  };
  const MemoryEstimate e = estimate_memory(config_of({"train.dtype=bf16", "model.vocab=512"}));
  const double weights = 4.0 * static_cast<double>(e.parameter_count), state = static_cast<double>(e.optimizer);
  const double bytes = 2 * state + 3.5 * weights;  // weights in and out, gradients, copies in bf16
  // Bound by the host's memory.
  constexpr double kSlow = 1e7, kQuick = 1e13;
  const double cpu = seconds("cpu", kQuick, kSlow), both = seconds("split", kQuick, kSlow);
  EXPECT_NEAR(cpu, bytes / (1.2 * kSlow), 0.1 * cpu);
  EXPECT_NEAR(cpu / both, 1.1, 0.01);
  EXPECT_NEAR(seconds("device", kQuick, kSlow), both, 0.01 * both);
  // Bound by the bus: copies, which come twice, and gradients cross it whoever updates, state only for the card.
  const double far = seconds("cpu", kSlow, kQuick), card = seconds("device", kSlow, kQuick);
  EXPECT_NEAR(card - far, (state + weights) / (0.9 * kSlow), 0.35 * card);
  EXPECT_LT(far, 0.7 * card);
  EXPECT_NEAR(seconds("split", kSlow, kQuick), far, 0.05 * far);
  // Between them both are never slower than either alone.
  for (const double memory : {1e9, 1e10, 1e11})
    EXPECT_LE(seconds("split", 5e9, memory),
              1.001 * std::min(seconds("cpu", 5e9, memory), seconds("device", 5e9, memory)))
        << memory;
}

TEST(TierPlan, UpdatesByBothWhereNoBitChanges) {
  const auto plan = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"train.dtype=bf16", "memory.parameters=host", "memory.state=host"});
    return plan_tiers(config_of(more), kCard, {.to_host = 2e9, .from_host = 2e9, .host_memory = 5e9});
  };
  const TierPlan both = plan({});
  EXPECT_EQ(both.update, Updater::split);
  EXPECT_EQ(both.bound, "the host's update");
  const TierPlan card = plan({"memory.update=device"});
  EXPECT_LT(both.seconds, card.seconds);
  EXPECT_EQ(plan({"train.optimizer=nadam"}).update, Updater::device);
  EXPECT_EQ(plan({"train.state_8bit=true"}).update, Updater::device);
  EXPECT_EQ(plan({"train.param_dtype=bf16", "train.param_update=stochastic"}).update, Updater::device);
  EXPECT_EQ(plan({"train.grad_clip=0"}).seconds, both.seconds);
}

TEST(TierPlan, TakesWhatTheKeysSay) {
  const TierPlan p =
      plan_tiers(config_of({"memory.state=host", "memory.update=cpu", "memory.recompute=blocks"}), kCard, kFast);
  EXPECT_EQ(p.state, Place::host);
  EXPECT_EQ(p.update, Updater::cpu);
  EXPECT_EQ(p.recomputed, 4);
  EXPECT_EQ(p.activations, Place::device);
  EXPECT_GT(p.peak.host, 20'000'000);  // two moments of 3.2 M weights
  EXPECT_LT(p.peak.device, p.peak_without);
  const TierPlan d = plan_tiers(config_of({"memory.disk=/tmp", "memory.activations=disk"}), kCard, kFast);
  EXPECT_EQ(d.activations, Place::disk);
  EXPECT_GT(d.leaving, 0);
}

TEST(TierPlan, OnTheProcessorTheDiskIsTheOtherTier) {
  const TrainConfig free = config_of({}, false);
  const TierPlan all = plan_tiers(free, {.gb_s = 20, .gflops = 100, .matmul_f32 = 100, .matmul_bf16 = 200}, kFast);
  EXPECT_FALSE(all.moves());
  const auto budget = "memory.device=" + std::to_string(all.peak_without / 3);
  const TierPlan p = plan_tiers(config_of({budget, "memory.disk=/tmp"}, false),
                                {.gb_s = 20, .gflops = 100, .matmul_f32 = 100, .matmul_bf16 = 200}, kFast);
  EXPECT_TRUE(p.fits) << to_text(p);
  EXPECT_LE(p.peak.device, all.peak_without / 3);
  EXPECT_GT(p.peak.disk, 0);
  EXPECT_EQ(p.peak.host, 0);
}

TEST(TierPlan, HostsBudgetCounts) {
  const TierPlan p = plan_tiers(config_of({"memory.state=host", "memory.host=1MiB"}), kCard, kFast);
  EXPECT_FALSE(p.fits);
}

TEST(TierPlan, AccumulatedPassesCount) {
  const TierPlan one = plan_tiers(config_of({"memory.state=host"}), kCard, kFast);
  const TierPlan eight = plan_tiers(config_of({"memory.state=host", "train.accumulate=8"}), kCard, kFast);
  EXPECT_GT(eight.seconds, 4 * one.seconds_without);
  EXPECT_LT(eight.seconds / eight.seconds_without, one.seconds / one.seconds_without);  // the update is shared
}

TEST(TierPlan, Text) {
  const TierPlan p = plan_tiers(
      config_of({"memory.parameters=device", "memory.state=host", "memory.update=split", "memory.device=1GiB"}), kCard,
      kFast);
  const std::string s = to_text(p);
  for (const char* part : {"weights       on the device", "by the host's processor and the device together",
                           "of 1.00 GiB", "host          ", "were everything on the device"})
    EXPECT_NE(s.find(part), std::string::npos) << part << "\n" << s;
}

// What a plan takes is compared with what is free, tier by tier.
TEST(TierPlanRoom, IsAskedForInEveryTier) {
  TierPlan p;
  p.peak = {.device = 90 << 20, .host = 200 << 20, .disk = 300 << 20};
  const memory::Bound device{"a card", 150 << 20, 60 << 20}, host{"a machine", 200 << 20, 0},
      disk{"disk /d", 400 << 20, 100 << 20};
  require_room(p, device, host, disk);
  const auto refusal = [&](const memory::Bound& d, const memory::Bound& h, const memory::Bound& k) -> std::string {
    try {
      require_room(p, d, h, k);
    } catch (const MemoryError& e) {
      return e.what();
    }
    return "fits";
  };
  const auto less = [](memory::Bound b) { return ++b.used, b; };
  const std::string text = refusal(less(device), host, disk);
  EXPECT_NE(
      text.find("the plan takes 90.00 MiB of the device's memory, of which 90.00 MiB are free (a card: 150.0 MiB, "
                "60.00 MiB in use); memory.device bounds it"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("activations "), std::string::npos) << text;  // the plan
  EXPECT_NE(refusal(device, less(host), disk).find("of the host's memory"), std::string::npos);
  EXPECT_NE(refusal(device, host, less(disk)).find("of the disk, "), std::string::npos);
}

}  // namespace
}  // namespace strata
