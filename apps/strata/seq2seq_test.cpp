// Models that read one text and write another, by the program as its users start it.

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "apps/strata/child.h"
#include "strata/core/error.h"
#include "strata/generate/text_model_test_util.h"
#include "strata/io/temp_dir.h"
#include "strata/train/metrics.h"

namespace strata::cli {
namespace {

namespace fs = std::filesystem;

class Seq2SeqRuns : public testing::Test {
 protected:
  void SetUp() override {
    const char *models = std::getenv("STRATA_MODELS"), *source = std::getenv("STRATA_SOURCE_DIR");
    const fs::path root = models ? fs::path(models) : fs::path(source ? source : ".") / "build/models";
    for (const char* name : {"t5-plain", "t5-gated"}) {
      if (!fs::exists(root / name / "config.json")) continue;
      const std::string folder = dir_ / name;
      fs::copy(root / name, folder);
      io::write_file(folder + "/tokenizer.json", character_tokenizer());
      io::write_file(folder + "/tokenizer_config.json",
                     R"({"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"})");
      folders_.push_back(folder);
    }
    if (folders_.empty()) GTEST_SKIP() << "no T5 of transformers in " << root << ": scripts/make_models.py writes them";
    // The words of a text from its end to its beginning.
    std::string rows;
    const std::string words[] = {"ab", "cd", "ef", "gh"};
    for (int i = 0; i < 64; ++i) {
      const std::string &first = words[i % 4], &second = words[i / 4 % 4];
      rows += nlohmann::json{{"input", first + second}, {"target", second + first}}.dump() + "\n";
    }
    io::write_file(dir_ / "rows.jsonl", rows);
  }
  std::string settings(const std::string& model) const {
    return cat("--set model.init=", model, " data.path=", dir_ / "rows.jsonl",
               " data.format=seq2seq model.context=32 train.batch=16 train.lr=0.01 train.weight_decay=0 ",
               "train.steps=40 train.sample_tokens=0 train.threads=1 ");
  }
  std::string training(const std::string& model, const std::string& out) const {
    return cat("train --quiet --out ", dir_ / out, ' ', settings(model));
  }
  std::vector<StepMetrics> metrics(const std::string& out) const {
    return read_metrics((dir_ / out) + "/metrics.jsonl");
  }
  io::TempDir dir_;
  std::vector<std::string> folders_;
};

TEST_F(Seq2SeqRuns, LearnAndAnswer) {
  for (const std::string& folder : folders_) {
    SCOPED_TRACE(folder);
    const std::string out = fs::path(folder).filename().string() + "-run";
    const Result r = strata(training(folder, out));
    ASSERT_EQ(r.status, 0) << r.output;
    EXPECT_NE(r.output.find("40 steps, loss "), std::string::npos) << r.output;
    const auto all = metrics(out);
    ASSERT_EQ(all.size(), 40u);
    EXPECT_LT(all.back().loss, 0.7 * all.front().loss) << all.front().loss;
    const Result answer =
        strata(cat("generate --checkpoint ", dir_ / out, " --prompt abcd --temperature 0 --tokens 5"));
    EXPECT_EQ(answer.status, 0) << answer.output;
  }
}

TEST_F(Seq2SeqRuns, GoOnByThemselves) {
  const Result whole = strata(training(folders_[0], "whole") + "train.save_every=20");
  ASSERT_EQ(whole.status, 0) << whole.output;
  fs::create_directories(dir_ / "again");
  fs::copy(dir_ / "whole/step-00000020", dir_ / "again/step-00000020", fs::copy_options::recursive);
  const Result again = strata("train --quiet --resume --out " + (dir_ / "again"));
  ASSERT_EQ(again.status, 0) << again.output;
  EXPECT_EQ(metrics("again").back().step, 40);
  EXPECT_EQ(metrics("again").back().loss, metrics("whole").back().loss);
}

TEST_F(Seq2SeqRuns, AreEstimated) {
  for (const std::string& folder : folders_) {
    const Result r = strata("estimate --no-limits " + settings(folder));
    EXPECT_EQ(r.status, 0) << r.output;
    for (const char* part : {" parameters; batch 16 of 32 tokens", "It fits: ", "A step of "})
      EXPECT_NE(r.output.find(part), std::string::npos) << r.output;
    EXPECT_TRUE(r.output.starts_with(folder + ": ")) << r.output;
  }
}

TEST_F(Seq2SeqRuns, AreForOneRank) {
  const Result r = strata(cat("launch -n 2 -- ", program(), ' ', training(folders_[0], "two")));
  EXPECT_NE(r.status, 0);
  EXPECT_NE(r.output.find("data.format = seq2seq is for one rank"), std::string::npos) << r.output;
  EXPECT_FALSE(fs::exists(dir_ / "two/metrics.jsonl"));
}

}  // namespace
}  // namespace strata::cli
