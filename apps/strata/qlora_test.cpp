// Adapters on weights of four bits, in less memory than the dense weights take (QLoRA, arXiv:2305.14314).

#include <cstdlib>

#include <gtest/gtest.h>

#include "apps/strata/child.h"
#include "apps/strata/tiny_llama_test_util.h"
#include "strata/core/rng.h"
#include "strata/io/checkpoint.h"
#include "strata/io/temp_dir.h"
#include "strata/memory/allocator.h"

namespace strata::cli {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// A Llama whose layers have 34 million weights, 135 MiB in f32.
class Qlora : public testing::Test {
 protected:
  static constexpr int64_t kWidth = 768, kLayers = 8, kVocab = 12;
  static constexpr int64_t kDenseBytes = kLayers * kWidth * kWidth * 15 / 2 * 4;  // of the layers, in f32

  void SetUp() override {
    manual_seed(5);
    write_tiny_llama(dir_.path(), kVocab, 64, kWidth, kLayers);
    std::string vocab = R"("<unk>": 0)", text;
    for (int i = 1; i < kVocab; ++i) vocab += cat(", \"w", i, "\": ", i);
    io::write_file(dir_ / "tokenizer.json",
                   cat(R"({"version": "1.0", "added_tokens": [], "normalizer": null, "post_processor": null,
                           "pre_tokenizer": {"type": "WhitespaceSplit"}, "decoder": null,
                           "model": {"type": "WordLevel", "unk_token": "<unk>", "vocab": {)",
                       vocab, "}}}"));
    for (int i = 0; i < 2000; ++i) text += cat("w", 1 + i * i % 11, ' ');
    io::write_file(dir_ / "text.txt", text);
    memory::release_cached();  // a child's peak begins with what its parent has
  }
  std::vector<std::string> settings(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all{"model.init=" + dir_.path(),
                                 "data.path=" + (dir_ / "text.txt"),
                                 "tune.method=lora",
                                 "tune.quantize=nf4",
                                 "model.context=32",
                                 "train.batch=2",
                                 "train.steps=3",
                                 "train.threads=1",
                                 "train.sample_tokens=0"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  static std::string joined(const std::vector<std::string>& words) {
    std::string all;
    for (const std::string& w : words) all += w + " ";
    return all;
  }
  std::string train(const std::string& out, const std::vector<std::string>& more = {}) const {
    return "train --quiet --out " + (dir_ / out) + " --set " + joined(settings(more));
  }
  io::TensorMap adapters(const std::string& out) const {
    return io::load_checkpoint(io::list_checkpoints(dir_ / out).back()).files.at("model");
  }
  // The number before "MiB" that follows `before`.
  static double mib_after(const std::string& text, const std::string& before) {
    const size_t at = text.find(before);
    EXPECT_NE(at, std::string::npos) << text;
    return at == std::string::npos ? 0 : std::strtod(text.c_str() + at + before.size(), nullptr);
  }
  io::TempDir dir_;
};

// Also of the whole process, its programs and libraries too, less than the dense weights alone would take.
TEST_F(Qlora, TrainsInLessThanTheDenseWeights) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer has memory of its own";
#endif
  std::vector<std::string> words{"train", "--quiet", "--out", dir_ / "whole", "--set"};
  for (const std::string& s : settings()) words.push_back(s);
  Child child(words);
  ASSERT_EQ(child.wait(), 0);
  EXPECT_LT(child.peak_resident(), kDenseBytes);

  // What is forecast is what it takes.
  const Result forecast = strata("estimate --no-limits --set " + joined(settings()));
  ASSERT_EQ(forecast.status, 0) << forecast.output;
  const Result again = strata(train("again"));
  ASSERT_EQ(again.status, 0) << again.output;
  const double reserved = mib_after(again.output, "of tensors, "), peak = mib_after(forecast.output, "\npeak");
  EXPECT_LT(reserved, 1.03 * peak) << forecast.output << again.output;
  EXPECT_GT(reserved, 0.85 * peak) << forecast.output << again.output;
}

// Nor is the dense model of a run of ours there, which QLoRA goes on from.
TEST_F(Qlora, GoesOnFromARunOfOursInLessThanTheDenseWeights) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer has memory of its own";
#endif
  const Result whole =
      strata(train("ours", {"tune.method=full", "tune.quantize=none", "train.steps=1", "train.optimizer=sgd"}));
  ASSERT_EQ(whole.status, 0) << whole.output;
  std::vector<std::string> words{"train", "--quiet", "--out", dir_ / "on", "--set"};
  for (const std::string& s : settings({"model.init=" + (dir_ / "ours")})) words.push_back(s);
  Child child(words);
  ASSERT_EQ(child.wait(), 0);
  EXPECT_LT(child.peak_resident(), kDenseBytes);
  EXPECT_EQ(adapters("on").size(), static_cast<size_t>(2 * 7 * kLayers));
  // And so says the forecast.
  const Result forecast = strata("estimate --no-limits --set " + joined(settings({"model.init=" + (dir_ / "ours")})));
  ASSERT_EQ(forecast.status, 0) << forecast.output;
  EXPECT_LT(mib_after(forecast.output, "\npeak") * kMiB, kDenseBytes);
}

// Under half of what the dense weights take, and no more addresses than a small machine has: the same bits.
TEST_F(Qlora, ABudgetBelowTheDenseWeightsChangesNoBit) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer has memory of its own";
#endif
  const Result whole = strata(train("whole"));
  ASSERT_EQ(whole.status, 0) << whole.output;
  const Result refused = strata(train("little", {"memory.device=20MiB"}));
  EXPECT_EQ(refused.status, 1) << refused.output;
  const double least = mib_after(refused.output, "The smallest that would do: memory.device=");
  EXPECT_GT(least, 20);
  EXPECT_LT(least * kMiB, kDenseBytes / 2);
  const std::string budget = cat("memory.device=", static_cast<int64_t>(least), "MiB");
  const Result bounded = strata(train("bounded", {budget}), "ulimit -v 1200000;");
  ASSERT_EQ(bounded.status, 0) << bounded.output;
  EXPECT_LE(mib_after(bounded.output, "of tensors, "), least) << bounded.output;
  const io::TensorMap a = adapters("whole"), b = adapters("bounded");
  ASSERT_EQ(a.size(), static_cast<size_t>(2 * 7 * kLayers));
  for (const auto& [name, t] : a) EXPECT_EQ(t.to_vector<float>(), b.at(name).to_vector<float>()) << name;
}

}  // namespace
}  // namespace strata::cli
