// Adapters of experts, by the program as its users start it: trained, merged, written with.

#include <string>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "apps/strata/child.h"
#include "strata/generate/text_model_test_util.h"
#include "strata/io/checkpoint.h"
#include "strata/io/files.h"
#include "strata/io/temp_dir.h"

namespace strata::cli {
namespace {

class ExpertAdapters : public testing::Test {
 protected:
  void SetUp() override {
    write_text_model(dir_ / "mixtral", "mixtral");
    std::string text;
    for (int i = 0; i < 400; ++i) text += cat("the ", i % 7, " foxes ");
    io::write_file(dir_ / "text.txt", text);
  }
  Result train(const std::string& out, const std::string& more, const std::string& flags = {}) const {
    return strata(cat("train --quiet ", flags, " --init ", dir_ / "mixtral", " --data ", dir_ / "text.txt", " --out ",
                      dir_ / out,
                      " --set tune.method=lora model.context=32 train.batch=4 train.threads=1 train.sample_tokens=0 "
                      "train.lr=1e-2 ",
                      more));
  }
  io::TensorMap adapters(const std::string& out) const {
    return io::load_checkpoint(io::list_checkpoints(dir_ / out).back()).files.at("model");
  }
  void expect_same(const std::string& one, const std::string& other) const {
    const io::TensorMap a = adapters(one), b = adapters(other);
    ASSERT_EQ(a.size(), b.size());
    for (const auto& [name, t] : a) EXPECT_EQ(t.to_vector<float>(), b.at(name).to_vector<float>()) << name;
  }
  io::TempDir dir_;
};

TEST_F(ExpertAdapters, AreTrainedMergedAndWriteTheSameText) {
  const std::string targets = "'tune.targets=q_proj experts' 'tune.ranks=experts.down_proj=2' ";
  Result r = train("run", targets + "train.steps=8");
  ASSERT_EQ(r.status, 0) << r.output;
  EXPECT_EQ(adapters("run").at("blocks.1.mlp.experts.lora_down.down_proj.A").shape(), (Shape{4, 2, 48}));
  const nlohmann::json config = nlohmann::json::parse(io::read_file(dir_ / "run/adapter/adapter_config.json"));
  EXPECT_EQ(config.at("target_parameters"), nlohmann::json({"experts.down_proj", "experts.gate_up_proj"}));

  // Stopped and gone on with, and with blocks that run again, to the same bits.
  r = train("again", targets + "train.steps=5");
  ASSERT_EQ(r.status, 0) << r.output;
  r = train("again", targets + "train.steps=8", "--resume");
  ASSERT_EQ(r.status, 0) << r.output;
  r = train("blocks", targets + "train.steps=8 memory.recompute=blocks");
  ASSERT_EQ(r.status, 0) << r.output;
  expect_same("run", "blocks");

  r = strata(cat("model merge ", dir_ / "mixtral", " ", dir_ / "run/adapter", " --out ", dir_ / "merged"));
  ASSERT_EQ(r.status, 0) << r.output;
  const auto written = [&](const std::string& model) {
    const Result text = strata("generate --checkpoint " + model + " --prompt 'the 3' --tokens 24 --temperature 0");
    EXPECT_EQ(text.status, 0) << text.output;
    return text.output;
  };
  const std::string tuned = written(dir_ / "run");
  EXPECT_EQ(written(dir_ / "merged"), tuned);
  EXPECT_NE(written(dir_ / "mixtral"), tuned);
}

TEST_F(ExpertAdapters, WhatTheyAreNotForIsRefusedByName) {
  for (const auto& [settings, words] :
       std::vector<std::pair<std::string, std::string>>{{"tune.targets=experts tune.dropout=0.1", "tune.dropout"},
                                                        {"tune.targets=experts tune.method=dora", "(dora)"},
                                                        {"tune.targets=gate_up_proj", "experts.gate_up_proj"}}) {
    const Result r = train("refused", settings + " train.steps=1");
    EXPECT_NE(r.status, 0) << settings;
    EXPECT_NE(r.output.find(words), std::string::npos) << r.output;
  }
}

}  // namespace
}  // namespace strata::cli
