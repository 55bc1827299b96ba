#pragma once
// For tests that train on several processes: runs beside one process's, and what settings are refused.

#include <cmath>
#include <cstdlib>
#include <functional>
#include <string>

#include "strata/core/error_test_util.h"
#include "strata/dist/processes_test_util.h"
#include "strata/train/ranks.h"
#include "strata/train/trainer_test_util.h"

namespace strata {

class RankRunsTest : public TrainTest {
 public:
  using Change = std::function<void(TrainConfig&)>;

 protected:
  RankRunsTest() {
    c_.steps = 8;
    c_.eval_every = 4;
    c_.eval_batches = 3;
    c_.optim.warmup = 2;
    c_.optim.schedule = "constant";
    // The processes of a test have one folder, the first one's.
    if (const char* const shared = std::getenv("STRATA_RANK_RUNS"))
      folder_ = shared;
    else
      setenv("STRATA_RANK_RUNS", folder_.c_str(), 1);
    c_.data.path = folder_ + "text.txt";
  }
  ~RankRunsTest() override {
    if (!is_rank()) unsetenv("STRATA_RANK_RUNS");
  }
  static bool is_rank() { return std::getenv("STRATA_RANKS_OF_TEST") != nullptr; }

  void run(const std::string& out, const Change& change, bool resume = false) {
    TrainConfig c = c_;
    change(c);
    train(c, {.out = folder_ + out, .resume = resume, .log = nullptr});
  }
  // Losses and norms of each step, and losses of validation.
  void expect_same(const std::string& one, const std::string& out, double most = 1e-5) {
    SCOPED_TRACE(out);
    const auto want = read_metrics(folder_ + one + "/metrics.jsonl"),
               got = read_metrics(folder_ + out + "/metrics.jsonl");
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < want.size(); ++i) {
      EXPECT_NEAR(got[i].loss, want[i].loss, most) << "step " << i + 1;
      EXPECT_NEAR(got[i].grad_norm, want[i].grad_norm, 10 * most) << "step " << i + 1;
      if (!std::isnan(want[i].valid_loss)) {
        EXPECT_NEAR(got[i].valid_loss, want[i].valid_loss, most) << "step " << i + 1;
      }
    }
  }
  std::string weights(const std::string& out) const {
    return io::encode_safetensors(
        io::load_checkpoint(io::find_latest_checkpoint(folder_ + out).value()).files.at("model"));
  }
  static void refuses(const TrainConfig& config, const std::string& piece) {
    const std::string text = message<Error>([&] { const Ranks ranks(config); });
    EXPECT_NE(text.find(piece), std::string::npos) << "no '" << piece << "' in: " << text;
  }

  std::string folder_ = dir_ / "";
};

}  // namespace strata
