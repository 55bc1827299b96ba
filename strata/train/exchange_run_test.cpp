// parallel.reduce as a setting: what it is refused beside, and what an update and an estimate are then.

#include "strata/train/exchange_run_inl.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "strata/core/error_test_util.h"
#include "strata/dist/gradient_exchange.h"
#include "strata/train/config.h"
#include "strata/train/estimate.h"

namespace strata {
namespace {

using distributed::ExchangeOption;
using distributed::ExchangeRecord;
using distributed::ExchangeRefusal;

std::string refused(const std::vector<std::string>& settings) {
  return message<ValueError>([&] { parse_config("", "test", settings); });
}
bool has(const std::string& text, const std::string& piece) {
  return text.find(piece) != std::string::npos;
}

// A value of the option as settings have it.
std::string text_of(const ExchangeOption& o, double value) {
  return o.whole ? std::to_string(static_cast<int64_t>(value)) : cat(value);
}

std::string rule_of(const ExchangeRecord& r) {
  return cat("train.optimizer=", r.optimizers.empty() ? "adamw" : r.optimizers);
}

TEST(ExchangeSettings, AreRefusedBesideWhatTheRecordSays) {
  for (const ExchangeRecord& r : distributed::exchange_records()) {
    const std::string kind = cat("parallel.reduce=", r.name), rule = rule_of(r);
    EXPECT_EQ(parse_config("", "test", {kind, rule}).parallel.reduce, r.name);
    for (const ExchangeRefusal& f : r.refuses) {
      const std::string value = f.texts == "*"    ? "1 1"
                                : f.texts.empty() ? std::to_string(static_cast<int>(f.most) + 1)
                                                  : std::string(f.texts);
      const std::string said = refused({kind, rule, cat(f.key, "=", value)});
      EXPECT_TRUE(has(said, cat("parallel.reduce = ", r.name, " is not for ", f.key, " = "))) << said;
      EXPECT_TRUE(has(said, std::string(f.why))) << said;
    }
    for (const ExchangeOption& o : distributed::exchange_options()) {
      const std::string key = cat("parallel.reduce_", o.name);
      const std::string set = cat(key, "=", text_of(o, o.value({}) == o.min ? o.max : o.min));
      if (r.reads(o.name)) {
        EXPECT_NO_THROW(parse_config("", "test", {kind, rule, set})) << set;
        EXPECT_TRUE(has(refused({kind, rule, cat(key, "=", text_of(o, o.max * 2 + 1))}), key));
      } else {
        EXPECT_TRUE(has(refused({kind, rule, set}), cat(key, " is not read with parallel.reduce = ", r.name)));
      }
    }
  }
  EXPECT_TRUE(has(refused({"parallel.reduce=onebit", "train.optimizer=lion"}), "is for train.optimizer = adamw, not lion"));
  EXPECT_TRUE(has(refused({"parallel.reduce=int9"}), "'int9' is not one of: plain int8"));
}

TEST(ExchangeSettings, AreWrittenAndRead) {
  const TrainConfig c = parse_config("", "test", {"parallel.reduce=diloco", "parallel.reduce_every=7", "parallel.reduce_outer_lr=0.5"});
  EXPECT_EQ(c.parallel.reduce_options.every, 7);
  EXPECT_EQ(c.parallel.reduce_options.outer_lr, 0.5);
  EXPECT_EQ(parse_config(to_toml(c)), c);
  EXPECT_TRUE(has(config_help(), "parallel.reduce_every")) << config_help();
}

// A direction is taken by SGD without momentum, with the settings' decay; one rank has nothing to exchange.
TEST(ExchangeSettings, ADirectionIsTakenBySgd) {
  const TrainConfig c = parse_config("", "test", {"parallel.reduce=onebit"}), plain = parse_config("", "test", {});
  OptimConfig o = ExchangeRun::update(c, 2);
  EXPECT_EQ(o.optimizer, "sgd");
  EXPECT_EQ(o.number("momentum"), 0);
  EXPECT_EQ(o.weight_decay, c.optim.weight_decay);
  EXPECT_EQ(ExchangeRun::update(c, 1), c.optim);
  EXPECT_EQ(ExchangeRun::update(plain, 2), plain.optim);
  RunState apart, alone;
  apart.config = alone.config = c;
  apart.ranks = 2;
  EXPECT_NO_THROW(ExchangeRun::check_same_update(apart, c, 4));
  EXPECT_NO_THROW(ExchangeRun::check_same_update(alone, c, 1));
  EXPECT_NO_THROW(ExchangeRun::check_same_update(alone, parse_config("", "test", {"parallel.reduce=int8"}), 2));
  for (const auto& [then, ranks, text] :
       {std::tuple(&apart, 1, "was onebit on 2 ranks and is onebit on 1"), std::tuple(&alone, 2, "on 1 ranks and is onebit on 2")})
    EXPECT_TRUE(has(message<ValueError>([&] { ExchangeRun::check_same_update(*then, c, ranks); }), text)) << text;
}

TEST(ExchangeSettings, AreInTheEstimate) {
  const std::vector<std::string> two{"parallel.dp=2"};
  const MemoryEstimate plain = estimate_memory(parse_config("", "test", two));
  EXPECT_EQ(plain.exchange, 0);
  for (const ExchangeRecord& r : distributed::exchange_records()) {
    if (r.name == "plain") continue;
    const MemoryEstimate e = estimate_memory(parse_config("", "test", {two[0], rule_of(r), cat("parallel.reduce=", r.name)}));
    EXPECT_LT(e.sends_gradients, plain.sends_gradients / 3) << r.name;
    EXPECT_GT(e.sends_gradients, 0) << r.name;
    EXPECT_GE(e.exchange, plain.parameters / 2) << r.name;
  }
}

}  // namespace
}  // namespace strata
