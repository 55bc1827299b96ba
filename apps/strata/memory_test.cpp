// Runs for which there is too little of something, as their users see them: what is told, and what becomes of the run.

#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include <unistd.h>

#include <gtest/gtest.h>

#include "apps/strata/child.h"
#include "strata/io/checkpoint.h"
#include "strata/io/files.h"
#include "strata/io/temp_dir.h"
#include "strata/memory/budget.h"
#include "strata/train/metrics.h"

namespace strata::cli {
namespace {

namespace fs = std::filesystem;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kLimits = false;  // a sanitizer reserves more address space than any limit
#else
constexpr bool kLimits = true;
#endif
// Leaves some 500 MiB for tensors.
constexpr const char* kLittle = "ulimit -v 1000000;";

class LittleMemory : public testing::Test {
 protected:
  LittleMemory() {
    std::string text;
    for (int i = 0; i < 2000; ++i) text += "line " + std::to_string(i % 37) + " of a small text\n";
    io::write_file(dir_ / "text.txt", text);
    // Takes 720 MiB, nearly all of it activations.
    io::write_file(dir_ / "large.toml",
                   "[model]\nlayers = 8\ndim = 64\nheads = 4\ncontext = 128\n[train]\nbatch = 160\nsteps = 2\n"
                   "sample_tokens = 0\nthreads = 1\nwarmup = 2\neval_every = 0\n");
    io::write_file(dir_ / "small.toml",
                   "[model]\nlayers = 4\ndim = 128\nheads = 4\ncontext = 64\n[train]\nbatch = 4\nsteps = 6\n"
                   "sample_tokens = 0\nthreads = 1\nwarmup = 2\neval_every = 0\nsave_every = 2\n");
    fs::create_directory(dir_ / "disk");
  }
  std::string train(const std::string& config, const std::string& out) const {
    return "train " + (dir_ / config) + " --data " + (dir_ / "text.txt") + " --out " + (dir_ / out) + " --quiet ";
  }
  // The settings that follow `before` in what was printed, and that the step's time does.
  static std::string advised(const std::string& output, const std::string& before) {
    const std::regex wanted(before +
                            "(--set memory\\.device=[0-9.]+[MG]iB( memory\\.disk=\\S+)?) \\(([0-9.e-]+) s a "
                            "step, ([0-9.]+) times one with room\\)");
    std::smatch found;
    if (!std::regex_search(output, found, wanted)) {
      ADD_FAILURE() << output;
      return {};
    }
    EXPECT_GT(std::stod(found[3]), 0) << output;
    EXPECT_GE(std::stod(found[4]), 0.9) << output;
    return found[1];
  }
  std::vector<double> losses(const std::string& out) const {
    std::vector<double> all;
    for (const StepMetrics& m : read_metrics(dir_ / out + "/metrics.jsonl")) all.push_back(m.loss);
    return all;
  }
  void expect_same_weights(const std::string& a, const std::string& b) const {
    const std::vector<std::string> x = io::list_checkpoints(dir_ / a), y = io::list_checkpoints(dir_ / b);
    ASSERT_TRUE(!x.empty() && !y.empty());
    for (const char* file : {"/model.safetensors", "/optimizer.safetensors"})
      EXPECT_EQ(io::read_file(x.back() + file), io::read_file(y.back() + file)) << file;
  }
  io::TempDir dir_;
};

// Refused before it begins, or ended by a request that finds no room: the settings that are told make the same run fit
// under the same limit, and change none of its numbers.
TEST_F(LittleMemory, AnErrorPrintsTheBudgetWithWhichTheRunFits) {
  if (!kLimits) GTEST_SKIP() << "a sanitizer reserves more address space than any limit";
  ASSERT_EQ(strata(train("large.toml", "plain")).status, 0);
  const Result refused = strata(train("large.toml", "refused"), kLittle);
  EXPECT_EQ(refused.status, 1) << refused.output;
  EXPECT_FALSE(fs::exists(dir_ / "refused"));
  const std::string first =
      advised(refused.output, "the model does not fit into the memory that is free; it would with ");
  const Result ended = strata(train("large.toml", "ended") + "--no-memory-check", kLittle);
  EXPECT_EQ(ended.status, 1) << ended.output;
  EXPECT_NE(ended.output.find("cannot get "), std::string::npos) << ended.output;
  EXPECT_NE(ended.output.find("the limit is "), std::string::npos) << ended.output;
  const std::string second = advised(ended.output, "It would fit with ");
  for (const std::string& settings : {first, second}) {
    const std::string out = "fits" + std::to_string(settings == second);
    const Result fits = strata(train("large.toml", out) + settings, kLittle);
    EXPECT_EQ(fits.status, 0) << settings << "\n" << fits.output;
    EXPECT_EQ(losses(out), losses("plain"));
    expect_same_weights(out, "plain");
  }
}

// Keys of [memory] that say what moves, and no budget: what the plan takes is compared with what is free.
TEST_F(LittleMemory, KeysWithoutABudgetAreCheckedBeforeTheRun) {
  if (!kLimits) GTEST_SKIP() << "a sanitizer reserves more address space than any limit";
  const std::string keys = "--set memory.state=disk memory.disk=" + (dir_ / "disk");
  const Result refused = strata(train("large.toml", "refused") + keys, kLittle);
  EXPECT_EQ(refused.status, 1) << refused.output;
  EXPECT_TRUE(
      std::regex_search(refused.output, std::regex("the plan takes [0-9.]+ [MG]iB of the device's memory, of which "
                                                   "[0-9.]+ MiB are free \\(ulimit -v: [0-9.]+ [MG]iB, ")))
      << refused.output;
  EXPECT_NE(refused.output.find("state         on disk"), std::string::npos) << refused.output;  // the plan
  EXPECT_FALSE(io::find_latest_checkpoint(dir_ / "refused"));
  // The keys stay; a budget beside them makes it fit.
  const std::string settings = advised(refused.output, "It would fit with ");
  EXPECT_EQ(settings.find("memory.disk"), std::string::npos) << settings;
  const Result fits = strata(train("large.toml", "fits") + keys + settings.substr(settings.find(' ')), kLittle);
  EXPECT_EQ(fits.status, 0) << fits.output;
  const Result forced = strata(train("large.toml", "forced") + keys + " --no-memory-check", kLittle);
  EXPECT_EQ(forced.status, 1) << forced.output;
  EXPECT_NE(forced.output.find("cannot get "), std::string::npos) << forced.output;
}

// A file system that is too small for what is to go there: told before the run; where nobody asks, at the first tensor
// that finds no room, and what was saved goes on elsewhere to the same bits.
TEST_F(LittleMemory, ASmallDiskIsTold) {
  if (::geteuid() != 0 || std::system("unshare -m true 2>/dev/null") != 0)
    GTEST_SKIP() << "this user may not mount a small file system";
  ASSERT_EQ(strata(train("small.toml", "plain")).status, 0);
  const std::string disk = dir_ / "disk", run = train("small.toml", "run");
  ASSERT_EQ(strata(train("small.toml", "run") + "--steps 2").status, 0);
  const std::string keys = "--steps 6 --resume --set memory.state=disk memory.parameters=disk memory.disk=" + disk;
  const auto in_small = [&](const std::string& arguments) {
    return strata("--version", "unshare -m sh -c \"mount -t tmpfs -o size=6m none " + disk + " && " + program() + " " +
                                   arguments + "; echo status \\$?\";");
  };
  const Result refused = in_small(run + keys);
  EXPECT_NE(refused.output.find(" of the disk, of which "), std::string::npos) << refused.output;
  EXPECT_NE(refused.output.find("status 1"), std::string::npos) << refused.output;
  EXPECT_EQ(refused.output.find("It would fit with"), std::string::npos) << refused.output;  // memory lacks nothing
  const Result forced = in_small(run + keys + " --no-memory-check");
  EXPECT_NE(forced.output.find("No space left on device"), std::string::npos) << forced.output;
  EXPECT_NE(forced.output.find("status 1"), std::string::npos) << forced.output;
  const Result last = strata(run + keys);
  EXPECT_EQ(last.status, 0) << last.output;
  expect_same_weights("run", "plain");
  EXPECT_TRUE(fs::is_empty(disk));
}

}  // namespace
}  // namespace strata::cli
