#pragma once
// `strata train` over several processes of this machine, for tests.

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "apps/strata/child.h"
#include "strata/io/checkpoint.h"
#include "strata/io/files.h"
#include "strata/io/temp_dir.h"
#include "strata/train/metrics.h"

namespace strata::cli {

/// The process of this machine that is rank `rank` of the job that works in `folder`, of which every rank's command
/// line speaks; 0 where there is none.
inline pid_t rank_process(const std::string& folder, int rank) {
  const auto text = [](const std::filesystem::path& file) {
    std::ifstream in(file, std::ios::binary);
    return '\0' + std::string(std::istreambuf_iterator<char>(in), {});
  };
  const std::string wanted = '\0' + ("RANK=" + std::to_string(rank)) + '\0';
  std::error_code ignored;
  for (const std::filesystem::directory_entry& e : std::filesystem::directory_iterator("/proc", ignored)) {
    const std::string name = e.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    if (text(e.path() / "cmdline").find(folder) != std::string::npos &&
        text(e.path() / "environ").find(wanted) != std::string::npos)
      return static_cast<pid_t>(std::stol(name));
  }
  return 0;
}

/// A small text and settings, and the program on several ranks.
class RanksTest : public testing::Test {
 protected:
  RanksTest() {
    std::string text;
    for (int i = 0; i < 800; ++i) text += "line " + std::to_string(i % 37) + " of a small text\n";
    io::write_file(dir_ / "text.txt", text);
    io::write_file(dir_ / "tiny.toml",
                   "[model]\nlayers = 2\ndim = 32\nheads = 2\ncontext = 16\n[train]\nbatch = 8\nsteps = 40\n"
                   "sample_tokens = 0\nthreads = 1\nwarmup = 2\neval_every = 20\nsave_every = 10\n");
  }
  std::string train(const std::string& out) const {
    return "train " + (dir_ / "tiny.toml") + " --data " + (dir_ / "text.txt") + " --out " + (dir_ / out) + " ";
  }
  std::string on(int ranks, const std::string& out) const {
    return "launch -n " + std::to_string(ranks) + " -- " + program() + " " + train(out);
  }
  std::vector<StepMetrics> metrics(const std::string& out) const {
    return read_metrics((dir_ / out) + "/metrics.jsonl");
  }
  // Of the newest checkpoint, however many ranks wrote it: the bytes of its weights and of the optimizer's state.
  std::string weights(const std::string& out) const {
    const auto found = io::find_latest_checkpoint(dir_ / out);
    if (!found) return "";
    const io::Checkpoint c = io::load_checkpoint(*found);
    return io::encode_safetensors(c.files.at("model")) + io::encode_safetensors(c.files.at("optimizer"));
  }
  // Kills what `child` starts once `out` has a checkpoint, and goes on by `resume`, until the lock of the rank that
  // dies is gone.
  void kill_and_resume(Child& child, const std::string& out, const std::string& resume, Result& resumed) const {
    const auto begin = std::chrono::steady_clock::now();
    while (!io::find_latest_checkpoint(dir_ / out) && child.running()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      ASSERT_LT(std::chrono::steady_clock::now() - begin, std::chrono::minutes(2));
    }
    child.kill(SIGKILL);  // its ranks end with it
    child.wait();
    for (int tries = 0; tries < 50; ++tries) {
      resumed = strata(resume);
      if (resumed.status == 0 || resumed.output.find("another process") == std::string::npos) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }
  io::TempDir dir_;
};

}  // namespace strata::cli
