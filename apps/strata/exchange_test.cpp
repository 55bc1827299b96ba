// parallel.reduce: runs whose ranks send a fraction of their gradients' bytes.

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "apps/strata/ranks_test_util.h"
#include "strata/dist/gradient_exchange.h"

namespace strata::cli {
namespace {

struct Way {
  std::string name, settings;  // those for a run of some dozens of steps
};
std::vector<Way> ways() {
  return {{"int8", ""},
          {"int4", ""},
          {"powersgd", ""},
          {"onebit", "--set parallel.reduce_warmup=10 "},
          {"demo", "--set train.optimizer=lion --set train.lr=6e-3 --set parallel.reduce_keep=128 "},
          {"local_sgd", "--set parallel.reduce_every=4 "},
          {"diloco", "--set parallel.reduce_every=8 "}};
}
std::string with(const Way& w) {
  return "--set parallel.reduce=" + w.name + " " + w.settings;
}

class Reduce : public RanksTest {
 protected:
  // Whose optimizer may have no state.
  std::string learned(const std::string& out) const {
    const auto found = io::find_latest_checkpoint(dir_ / out);
    if (!found) return "";
    std::string bytes;
    for (const auto& [name, tensors] : io::load_checkpoint(*found).files) bytes += name + io::encode_safetensors(tensors);
    return bytes;
  }
  std::string exchange(const std::string& out) const {
    const auto found = io::find_latest_checkpoint(dir_ / out);
    return found ? io::encode_safetensors(io::load_checkpoint(*found).files.at("exchange")) : "";
  }
};

TEST_F(Reduce, EveryRecordIsTried) {
  std::vector<std::string> tried{"plain"}, all;
  for (const Way& w : ways()) tried.push_back(w.name);
  for (const distributed::ExchangeRecord& r : distributed::exchange_records()) all.emplace_back(r.name);
  EXPECT_EQ(tried, all);
}

// Two ranks for all of them, four for some.
TEST_F(Reduce, LossesAreNearThoseOfWholeGradients) {
  const std::string more = "--set train.eval_every=60 --set train.save_every=0 --steps 60 ";
  const Result plain = strata(on(2, "plain") + more);
  ASSERT_EQ(plain.status, 0) << plain.output;
  const auto want = metrics("plain");
  EXPECT_TRUE(std::isnan(want[0].sent_bytes));
  for (const Way& w : ways()) {
    SCOPED_TRACE(w.name);
    const int ranks = w.name == "int4" || w.name == "demo" ? 4 : 2;
    const Result r = strata(on(ranks, w.name) + more + with(w));
    ASSERT_EQ(r.status, 0) << r.output;
    EXPECT_NE(r.output.find("parallel.reduce = " + w.name + ": a rank sent "), std::string::npos) << r.output;
    const auto got = metrics(w.name);
    ASSERT_EQ(got.size(), 60U);
    double sent = 0, plain_bytes = 0;
    for (size_t i = 20; i < 60; ++i) sent += got[i].sent_bytes, plain_bytes += got[i].plain_bytes;
    std::printf("%s on %d ranks: loss %.4f and %.4f, %.1f times fewer bytes\n", w.name.c_str(), ranks, got[59].valid_loss,
                want[59].valid_loss, plain_bytes / sent);
    // demo, with the learning rates of another update, is held to learn as much as that alone.
    EXPECT_LE(got[59].valid_loss, 1.02 * want[59].valid_loss);
    EXPECT_GE(got[5].exchange_s, 0);
  }
}

// Between two meetings, and behind the warm-up's end.
TEST_F(Reduce, ARunGoesOnToTheSameBits) {
  const std::string more = "--set train.eval_every=5 --set train.schedule=constant --set train.save_every=0 ";
  for (const Way& w : ways()) {
    SCOPED_TRACE(w.name);
    const std::string settings = more + with(w) + (w.name == "onebit" ? "--set parallel.reduce_warmup=5 " : "");
    const Result whole = strata(on(2, w.name) + settings + "--steps 11");
    ASSERT_EQ(whole.status, 0) << whole.output;
    const std::string out = w.name + "2";
    ASSERT_EQ(strata(on(2, out) + settings + "--steps 7").status, 0);
    const Result again = strata("launch -n 2 -- " + std::string(program()) + " train --resume --steps 11 --out " + (dir_ / out));
    ASSERT_EQ(again.status, 0) << again.output;
    EXPECT_EQ(again.output.find("left out"), std::string::npos) << again.output;
    EXPECT_EQ(learned(out), learned(w.name));
    EXPECT_EQ(metrics(out)[10].loss, metrics(w.name)[10].loss);
  }
  // On other ranks: what all had alike alone, and told.
  const std::string on_four = "launch -n 4 -- " + std::string(program()) + " train --resume --steps 13 --out ";
  for (const std::string out : {"int8", "onebit", "local_sgd"}) {
    const Result four = strata(on_four + (dir_ / out));
    ASSERT_EQ(four.status, 0) << four.output;
    EXPECT_NE(four.output.find("what 2 ranks had kept back of parallel.reduce = " + out + " is left out: there are 4 now"),
              std::string::npos)
        << four.output;
    EXPECT_LT(metrics(out)[12].loss, metrics(out)[0].loss);
  }
  const Result one = strata("train --resume --steps 14 --out " + (dir_ / "local_sgd"));
  EXPECT_EQ(one.status, 0) << one.output;
  const Result moments = strata("train --resume --steps 14 --out " + (dir_ / "onebit"));
  EXPECT_NE(moments.status, 0);
  EXPECT_NE(moments.output.find("parallel.reduce was onebit on 4 ranks and is onebit on 1"), std::string::npos) << moments.output;
  const Result other = strata("launch -n 4 -- " + std::string(program()) + " train --resume --steps 14 --out " + (dir_ / "int8") +
                              " --set parallel.reduce=powersgd");
  ASSERT_EQ(other.status, 0) << other.output;
  EXPECT_NE(other.output.find("parallel.reduce was int8 and is powersgd, which begins anew"), std::string::npos) << other.output;
}

// ZeRO 1 takes its rows of the same gradients, and passes that add up travel once.
TEST_F(Reduce, ItGoesWithZeroAccumulationAndUnevenRows) {
  const std::string more = "--steps 6 --set train.accumulate=2 --set train.save_every=0 --set 'parallel.shares=3 1' ";
  for (const std::string name : {"int8", "powersgd"}) {
    const std::string kind = more + "--set parallel.reduce=" + name + " ";
    ASSERT_EQ(strata(on(2, name) + kind).status, 0);
    const Result zero = strata(on(2, name + "zero") + kind + "--set parallel.zero=1");
    ASSERT_EQ(zero.status, 0) << zero.output;
    EXPECT_EQ(weights(name + "zero"), weights(name)) << name;
    EXPECT_EQ(exchange(name + "zero"), exchange(name)) << name;
  }
}

}  // namespace
}  // namespace strata::cli
