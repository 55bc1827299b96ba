#pragma once
// For tests that train: a small model, a text with something to learn, and runs compared bit for bit.

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "strata/core/parallel.h"
#include "strata/io/checkpoint.h"
#include "strata/io/files.h"
#include "strata/io/temp_dir.h"
#include "strata/train/metrics.h"
#include "strata/train/trainer.h"

namespace strata {

class TrainTest : public testing::Test {
 protected:
  TrainTest() {
    io::write_file(dir_ / "text.txt", sample_text());
    c_.model.layers = 2;
    c_.model.dim = 32;
    c_.model.heads = 4;
    c_.model.context = 32;
    c_.data.path = dir_ / "text.txt";
    c_.batch = 4;
    c_.threads = 1;
    c_.eval_every = 0;
    c_.save_every = 0;
    c_.sample_tokens = 0;
    c_.optim.warmup = 5;
  }
  ~TrainTest() override { set_num_threads(threads_); }

  static std::string sample_text() {
    std::string text;
    for (int i = 0; i < 400; ++i) text += "the " + std::to_string(i % 23) + " quick brown foxes jump; ";
    return text;
  }
  // With which the optimizer of this name learns something in a few steps.
  static double learning_rate(const std::string& optimizer) {
    return optimizer == "adadelta"    ? 20
           : optimizer == "sgd"       ? 0.5
           : optimizer == "adafactor" ? 0.1
           : optimizer == "asgd"      ? 3
           : optimizer == "adagrad"   ? 0.02
                                      : 3e-3;
  }
  std::vector<StepMetrics> metrics(const char* name) {
    return read_metrics(dir_ / (std::string(name) + "/metrics.jsonl"));
  }

  // The checkpoints in two folders: weights, optimizer, random numbers and the place in the data.
  static void expect_same_checkpoints(const std::string& one, const std::string& other) {
    const io::Checkpoint x = io::load_checkpoint(one), y = io::load_checkpoint(other);
    ASSERT_EQ(x.step, y.step);
    for (const auto& [file, tensors] : x.files) {
      const io::TensorMap& others = y.files.at(file);
      ASSERT_EQ(tensors.size(), others.size()) << file;
      ASSERT_FALSE(tensors.empty()) << file;
      for (const auto& [key, t] : tensors) {
        const Tensor& u = others.at(key);
        ASSERT_EQ(t.shape(), u.shape()) << key;
        const auto *p = static_cast<const char*>(t.raw_data()), *q = static_cast<const char*>(u.raw_data());
        EXPECT_TRUE(std::equal(p, p + t.nbytes(), q)) << file << ": " << key;
      }
    }
    for (const auto& [key, text] : x.state) {
      if (key != "config" && key != "elapsed_s" && key != "log") {
        EXPECT_EQ(text, y.state.at(key)) << key;
      }
    }
  }

  const int threads_ = num_threads();
  io::TempDir dir_;
  TrainConfig c_;
};

}  // namespace strata
