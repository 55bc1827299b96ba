// What `strata estimate` says, against the memory that `strata train` takes.

#include <algorithm>
#include <filesystem>
#include <limits>

#include <gtest/gtest.h>

#include "apps/strata/child.h"
#include "strata/io/files.h"
#include "strata/io/temp_dir.h"
#include "strata/train/estimate.h"

namespace strata::cli {
namespace {

// The most memory that was resident while a few steps were trained. The least of three runs: beside other programs,
// threads that wait hold more at once.
int64_t peak_of_training(const std::string& folder, const std::vector<std::string>& settings) {
  std::vector<std::string> arguments{"train",
                                     "--data",
                                     folder + "/text.txt",
                                     "--out",
                                     folder + "/run",
                                     "--steps",
                                     "4",
                                     "--quiet",
                                     "--set",
                                     "train.sample_tokens=0",
                                     "train.eval_every=0",
                                     "train.threads=2"};
  arguments.insert(arguments.end(), settings.begin(), settings.end());
  int64_t least = std::numeric_limits<int64_t>::max();
  for (int k = 0; k < 3; ++k) {
    std::filesystem::remove_all(folder + "/run");
    Child child(arguments);
    EXPECT_EQ(child.wait(), 0);
    least = std::min(least, child.peak_resident());
  }
  return least;
}

TEST(Estimate, WithinFivePercentOfThePeakResidentGrowth) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's own memory is resident too";
#endif
  // With AVX-512 oneDNN keeps the machine code and the tables of each shape of a product: some 20 MB in these runs,
  // however large their tensors are.
  setenv("DNNL_MAX_CPU_ISA", "AVX2", 1);
  const io::TempDir dir;
  std::string text;
  while (text.size() < 100000) text += "a line of text that is as good as any other\n";
  io::write_file(dir / "text.txt", text);
  const std::vector<std::string> smallest{"model.layers=1", "model.dim=16", "model.heads=2", "model.context=16",
                                          "train.batch=1"};
  const int64_t program = peak_of_training(dir.path(), smallest);
  for (const std::vector<std::string>& settings : std::vector<std::vector<std::string>>{
           {"model.layers=4", "model.dim=256"},
           {"model.layers=4", "model.dim=512", "train.batch=4", "train.accumulate=2", "train.optimizer=sgd"},
           {"model.family=llama", "model.dim=384", "model.heads=8", "model.kv_heads=4", "train.dtype=bf16"},
           {"model.layers=4", "model.dim=512", "train.dtype=bf16", "train.param_dtype=bf16", "train.low_state=true"},
           {"model.layers=4", "model.dim=512", "train.dtype=bf16", "train.param_dtype=bf16",
            "train.param_update=master"}}) {
    const double growth = static_cast<double>(peak_of_training(dir.path(), settings) - program);
    const double estimate = static_cast<double>(estimate_memory(parse_config("", "test", settings)).peak);
    EXPECT_NEAR(estimate / growth, 1, 0.05)
        << settings[0] << " " << settings[1] << ": " << estimate << " and " << growth;
  }
}

TEST(Estimate, Parts) {
  const MemoryEstimate e =
      estimate_memory(parse_config("", "test", {"model.layers=2", "model.dim=64", "model.heads=4"}));
  const int64_t block = 64 * 192 + 192 + 64 * 64 + 64 + 2 * 64 * 256 + 256 + 64 + 4 * 64;
  EXPECT_EQ(e.parameter_count, 2 * block + 256 * 64 + 256 * 64 + 2 * 64);
  const auto near = [&](int64_t bytes, int64_t times) {
    EXPECT_GE(bytes, 4 * times * e.parameter_count);
    EXPECT_LE(bytes, 4 * times * e.parameter_count * 11 / 10);  // pages
  };
  near(e.parameters, 1);
  near(e.gradients, 1);
  near(e.optimizer, 2);
  EXPECT_GT(e.activations, 0);
  EXPECT_GT(e.peak, e.parameters + e.optimizer + e.activations - 1);
}

TEST(Estimate, WeightsIn16Bits) {
  const auto estimate = [](std::vector<std::string> more) {
    more.insert(more.end(), {"model.layers=2", "model.dim=256", "model.heads=4", "train.dtype=bf16"});
    return estimate_memory(parse_config("", "test", more));
  };
  const MemoryEstimate f32 = estimate({});
  const auto per_parameter = [&](int64_t bytes) {
    return static_cast<double>(bytes) / static_cast<double>(f32.parameter_count);
  };
  const auto expect = [&](std::vector<std::string> more, double parameters, double gradients, double optimizer) {
    more.push_back("train.param_dtype=bf16");
    const MemoryEstimate e = estimate(more);
    EXPECT_NEAR(per_parameter(e.parameters), parameters, 0.15) << more[0];
    EXPECT_NEAR(per_parameter(e.gradients), gradients, 0.15) << more[0];
    EXPECT_NEAR(per_parameter(e.optimizer), optimizer, 0.2) << more[0];
    EXPECT_LT(e.peak, f32.peak) << more[0];
  };
  EXPECT_NEAR(per_parameter(f32.parameters), 6, 0.15);  // with autocast's copies
  expect({"train.param_update=stochastic"}, 2, 2, 8);
  expect({"train.param_update=nearest"}, 2, 2, 8);
  expect({"train.param_update=stochastic", "train.low_state=true"}, 2, 2, 4);
  expect({"train.param_update=stochastic", "train.optimizer=sgd", "train.momentum=0"}, 2, 2, 0);
  const MemoryEstimate master = estimate({"train.param_dtype=bf16", "train.param_update=master"});
  EXPECT_NEAR(per_parameter(master.optimizer), 12, 0.2);
}

// What `strata train` reported on an H200: peak memory of tensors (bench/results, 2026-11-21).
TEST(Estimate, OfACardTakesItsWay) {
  const std::vector<std::string> card{"train.device=cuda", "train.dtype=bf16"};
  const auto peak_gib = [&](std::vector<std::string> settings) {
    settings.insert(settings.end(), card.begin(), card.end());
    return static_cast<double>(estimate_memory(parse_config("", "test", settings)).peak) / (1 << 30);
  };
  EXPECT_NEAR(peak_gib({"model.layers=12", "model.dim=768", "model.heads=12", "model.context=1024", "model.vocab=50304",
                        "train.batch=32"}),
              11.70, 0.05 * 11.70);
  EXPECT_NEAR(peak_gib({"model.family=llama", "model.layers=16", "model.dim=2048", "model.heads=32", "model.kv_heads=8",
                        "model.ffn_dim=8192", "model.context=2048", "model.vocab=128256", "train.batch=4",
                        "train.grad_dtype=bf16"}),
              27.44, 0.05 * 27.44);
}

TEST(Estimate, Command) {
  const Result r = strata("estimate --set model.dim=8192 model.layers=100 model.heads=64");
  EXPECT_EQ(r.status, 0) << r.output;
  for (const char* word :
       {"parameters", "gradients", "optimizer", "activations", "peak", "GiB", "free", "in use", "It does not fit"})
    EXPECT_NE(r.output.find(word), std::string::npos) << word << "\n" << r.output;
  const Result small = strata("estimate --dtype bf16 --set model.layers=1 model.dim=16 model.heads=2 train.batch=1");
  EXPECT_EQ(small.status, 0);
  EXPECT_NE(small.output.find(", bf16\n"), std::string::npos) << small.output;
  EXPECT_NE(small.output.find("It fits: "), std::string::npos) << small.output;
  EXPECT_EQ(strata("estimate --dtype f17").status, 2);
  const Result card = strata("estimate --device cuda:63");
  EXPECT_EQ(card.status, 0);
  EXPECT_NE(card.output.find("not known: there is no cuda:63 here"), std::string::npos) << card.output;
}

TEST(Estimate, TellsOfAStep) {
  const io::TempDir dir;
  const std::string page = dir / "memory.html";
  const Result r = strata("estimate --by module --memory-timeline " + page + " --set model.layers=2 model.dim=64");
  EXPECT_EQ(r.status, 0) << r.output;
  for (const char* text : {"A step of ", " GFLOP, at least ", " moved\n", "on this machine: ", " tokens/s at most\n",
                           "blocks.*.", "least ms", "memory "})
    EXPECT_NE(r.output.find(text), std::string::npos) << text << "\n" << r.output;
  EXPECT_NE(io::read_file(page).find("\"forecast\":true"), std::string::npos);
  const Result unmeasured = strata("estimate --no-limits --by phase --set model.layers=1 model.dim=16 model.heads=2");
  EXPECT_EQ(unmeasured.status, 0);
  EXPECT_NE(unmeasured.output.find("backward"), std::string::npos) << unmeasured.output;
  EXPECT_EQ(unmeasured.output.find("tokens/s"), std::string::npos) << unmeasured.output;
  EXPECT_EQ(strata("estimate --by layer").status, 2);
}

// The plan of a budget, for a card that is elsewhere.
TEST(Estimate, PlansBudgets) {
  const std::string arguments =
      "estimate --device cuda --card h200 --set model.layers=12 model.dim=768 model.heads=12 model.context=1024 "
      "model.vocab=50304 train.batch=32 train.dtype=bf16 ";
  const Result r = strata(arguments + "memory.device=8GiB");
  EXPECT_EQ(r.status, 0) << r.output;
  for (const char* text : {"weights ", "state ", "activations ", "of 8.00 GiB", "without tiers",
                           "s were everything on the device", "on an NVIDIA H200"})
    EXPECT_NE(r.output.find(text), std::string::npos) << text << "\n" << r.output;
  EXPECT_EQ(r.output.find("No way was found"), std::string::npos) << r.output;
  EXPECT_EQ(strata(arguments + "memory.device=8192MiB").output, r.output);
  const Result little = strata(arguments + "memory.device=10MiB");
  EXPECT_EQ(little.status, 0);
  EXPECT_NE(little.output.find("No way was found"), std::string::npos) << little.output;
  EXPECT_EQ(strata(arguments + "memory.device=8G").status, 2);
  EXPECT_EQ(strata("estimate --card h1000").status, 2);
}

// A model that no machine has room for is refused before anything is made; where a smaller batch helps, that is told.
TEST(Estimate, TrainRefusesWhatDoesNotFit) {
  const io::TempDir dir;
  io::write_file(dir / "text.txt", std::string(20000, 'a'));
  const std::string arguments = "train --data " + (dir / "text.txt") + " --out " + (dir / "run") + " --set ";
  const Result r = strata(arguments + "model.dim=65536 model.layers=64 model.heads=512");
  EXPECT_EQ(r.status, 1);
  for (const char* word : {"parameters", "peak", "in use", "It does not fit: ", "strata: error: the model does not fit",
                           "--no-memory-check"})
    EXPECT_NE(r.output.find(word), std::string::npos) << word << "\n" << r.output;
  EXPECT_FALSE(std::filesystem::exists(dir / "run"));
  const Result batch = strata(arguments + "model.layers=1 model.dim=64 train.batch=1048576");
  EXPECT_EQ(batch.status, 1);
  EXPECT_NE(batch.output.find("--set train.batch="), std::string::npos) << batch.output;
  // Who knows better is believed, and fails at the first tensor.
  const Result forced = strata(arguments + "model.dim=65536 model.layers=64 model.heads=512 --no-memory-check");
  EXPECT_EQ(forced.status, 1);
  EXPECT_NE(forced.output.find("strata: error: cannot get "), std::string::npos) << forced.output;
}

// With a budget it is the plan that says whether a run fits, not what all of it would take at once.
TEST(Estimate, ABudgetIsAskedInsteadOfTheWhole) {
  const io::TempDir dir;
  io::write_file(dir / "text.txt", std::string(20000, 'a'));
  const Result r = strata("train --data " + (dir / "text.txt") + " --out " + (dir / "run") +
                          " --set model.dim=65536 model.layers=4 model.heads=512 memory.device=1GiB");
  EXPECT_EQ(r.status, 1);
  EXPECT_NE(r.output.find("no way was found that keeps to the budget"), std::string::npos) << r.output;
  EXPECT_EQ(r.output.find("It does not fit: "), std::string::npos) << r.output;
}

TEST(Estimate, UlimitCounts) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer reserves more address space than any limit";
#endif
  const Result r = strata("estimate --set model.layers=24 model.dim=2048 model.heads=16", "ulimit -v 6000000;");
  EXPECT_EQ(r.status, 0);
  EXPECT_NE(r.output.find("(ulimit -v: 5.72 GiB, "), std::string::npos) << r.output;
  EXPECT_NE(r.output.find("It does not fit"), std::string::npos) << r.output;
}

}  // namespace
}  // namespace strata::cli
