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
          {"demo", "--set parallel.reduce_decay=0.95 "},
          {"local_sgd", "--set parallel.reduce_every=4 "},
          {"diloco", "--set parallel.reduce_every=8 "}};
}
std::string with(const Way& w) {
  return "--set parallel.reduce=" + w.name + " " + w.settings;
}

class Reduce : public RanksTest {
 protected:
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
    EXPECT_LE(got[59].valid_loss, 1.02 * want[59].valid_loss);
    EXPECT_GE(got[5].exchange_s, 0);
  }
}

}  // namespace
}  // namespace strata::cli
