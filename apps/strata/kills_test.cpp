// Ranks of a training that are killed at random moments, again and again: what comes out is what comes out undisturbed,
// and nothing is left behind. STRATA_KILLS=1000 is the long run (scripts/test-kills).

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "apps/strata/child.h"
#include "strata/io/checkpoint.h"
#include "strata/io/files.h"
#include "strata/io/temp_dir.h"
#include "strata/train/metrics.h"

namespace strata::cli {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;
constexpr int kRanks = 4;

std::string text_of(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Processes of this machine for which `is` holds, given their folder in /proc.
template <class Is>
std::vector<pid_t> processes(Is&& is) {
  std::vector<pid_t> found;
  std::error_code ignored;
  for (const fs::directory_entry& e : fs::directory_iterator("/proc", ignored)) {
    const std::string name = e.path().filename();
    if (std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; }) && is(e.path()))
      found.push_back(static_cast<pid_t>(std::stol(name)));
  }
  return found;
}
// The ranks that a launcher has started and that are there yet.
std::vector<pid_t> ranks_of(pid_t launcher) {
  return processes([&](const fs::path& p) {
    const std::string stat = text_of(p / "stat");  // pid (name) state parent
    const size_t at = stat.rfind(") ");
    return at != stat.npos && stat.substr(at + 4).starts_with(std::to_string(launcher) + " ") && stat[at + 2] != 'Z';
  });
}

class Kills : public testing::Test {
 protected:
  Kills() {
    std::string text;
    for (int i = 0; i < 400; ++i) text += "line " + std::to_string(i % 37) + " of a small text\n";
    io::write_file(dir_ / "text.txt", text);
    io::write_file(dir_ / "tiny.toml",
                   "[model]\nlayers = 2\ndim = 32\nheads = 2\ncontext = 16\ndropout = 0.1\n[train]\nbatch = 8\n"
                   "steps = 60\nsample_tokens = 0\nthreads = 1\nwarmup = 2\neval_every = 0\nsave_every = 2\n"
                   "keep_last = 2\n");
  }
  std::vector<std::string> arguments(const std::string& out, bool resume) const {
    std::vector<std::string> all{
        "launch",           "-n",     std::to_string(kRanks), "--grace", "1",        "--",     program(), "train",
        dir_ / "tiny.toml", "--data", dir_ / "text.txt",      "--out",   dir_ / out, "--quiet"};
    if (resume) all.emplace_back("--resume");
    return all;
  }
  std::string line(const std::string& out) const {
    std::string all;
    for (const std::string& a : arguments(out, true)) all += a + " ";
    return all;
  }
  // Ends the child, or fails the test where it does not end.
  int end_of(Child& child) {
    const auto begin = Clock::now();
    while (child.running() && Clock::now() - begin < std::chrono::minutes(5))
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    EXPECT_FALSE(child.running()) << "the launcher is there five minutes after a rank was killed";
    return child.running() ? -1 : child.wait();
  }
  std::string weights(const std::string& out) const {
    const auto found = io::find_latest_checkpoint(dir_ / out);
    if (!found) return "";
    const io::Checkpoint c = io::load_checkpoint(*found);
    return std::to_string(c.step) + io::encode_safetensors(c.files.at("model")) +
           io::encode_safetensors(c.files.at("optimizer"));
  }
  void check_nothing_left(const std::string& out) const {
    const std::string folder = dir_ / out;
    for (int tries = 0; tries < 200; ++tries) {  // a killed process takes a moment to be gone
      if (of_folder(folder).empty()) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    EXPECT_TRUE(of_folder(folder).empty()) << "processes are left";
  }
  static std::vector<pid_t> of_folder(const std::string& folder) {
    return processes([&](const fs::path& p) { return text_of(p / "cmdline").find(folder) != std::string::npos; });
  }
  io::TempDir dir_;
};

TEST_F(Kills, AnyRankAtAnyMomentChangesNothing) {
  const char* given = std::getenv("STRATA_KILLS");
  const int wanted = given != nullptr ? std::atoi(given) : 12;
  auto begin = Clock::now();
  const Result whole = strata(line("whole"));
  ASSERT_EQ(whole.status, 0) << whole.output;
  auto all = std::chrono::duration<double>(Clock::now() - begin).count();
  const std::string want = weights("whole");
  ASSERT_FALSE(want.empty());

  const char* seed = std::getenv("STRATA_KILLS_SEED");
  std::mt19937 random(seed != nullptr ? std::atoi(seed) : 20261126);
  int kills = 0, runs = 0;
  for (int lives = 0; kills < wanted && !HasFailure(); ++runs) {
    const std::string out = "run" + std::to_string(runs);
    for (bool first = true; !HasFailure(); first = false) {
      ASSERT_LT(++lives, 20 * wanted + 20) << "after " << kills << " kills: lives are lost to something else";
      if (kills == wanted) {  // undisturbed to its end
        Result last;
        for (int tries = 0; tries < 100; ++tries) {  // until the lock of a dying rank 0 is gone
          last = strata(line(out));
          if (last.status == 0 || last.output.find("another process") == std::string::npos) break;
          std::this_thread::sleep_for(std::chrono::milliseconds(100));
        }
        ASSERT_EQ(last.status, 0) << "after " << kills << " kills: " << last.output;
        break;
      }
      Child child(arguments(out, true));
      // Mostly before its end: later lives begin where earlier ones were.
      const double moment = std::uniform_real_distribution<>(0, 0.6 * all)(random);
      begin = Clock::now();
      while (child.running() && Clock::now() - begin < std::chrono::duration<double>(moment))
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      const std::vector<pid_t> ranks = child.running() ? ranks_of(child.pid()) : std::vector<pid_t>();
      bool killed = false;
      if (!ranks.empty())
        killed = ::kill(ranks[std::uniform_int_distribution<size_t>(0, ranks.size() - 1)(random)], SIGKILL) == 0;
      kills += killed;
      const int status = end_of(child);
      // The machine may be less busy than it was.
      if (status == 0 && first && !killed) all = std::chrono::duration<double>(Clock::now() - begin).count();
      if (status == 0) break;  // its last step was done: the run is whole
    }
    EXPECT_EQ(weights(out), want) << "after " << kills << " kills, run " << runs;
    check_nothing_left(out);
    std::printf("%d kills in %d runs, each of the same bits as undisturbed\n", kills, runs + 1);
    std::fflush(stdout);
    for (const fs::directory_entry& e : fs::directory_iterator(dir_ / out)) {
      const std::string name = e.path().filename();
      EXPECT_EQ(name.find("tmp"), std::string::npos) << name;
    }
    fs::remove_all(dir_ / out);
  }
  EXPECT_EQ(kills, wanted);
}

// The others stay, and a new process comes for each that is killed: how long until a step is done that nobody had done.
TEST_F(Kills, WithNewProcessesTheOthersGoOn) {
  const char* given = std::getenv("STRATA_KILLS");
  const int wanted = given != nullptr ? std::atoi(given) : 3;
  const std::string steps = std::to_string(20 + 20 * wanted);
  const auto with = [&](const std::string& out) {
    std::vector<std::string> all = arguments(out, false);
    all.insert(all.begin() + 1, {"--restarts", std::to_string(wanted)});
    for (const char* s : {"--steps", steps.c_str(), "--set", "parallel.mirror=1", "train.save_every=0"})
      all.emplace_back(s);
    return all;
  };
  std::string whole;
  for (const std::string& a : with("whole")) whole += a + " ";
  const Result undisturbed = strata(whole);
  ASSERT_EQ(undisturbed.status, 0) << undisturbed.output;

  Child child(with("run"));
  std::mt19937 random(20261127);
  const auto last = [&] {
    const std::string log = (dir_ / "run") + "/metrics.jsonl";
    const std::vector<StepMetrics> all = fs::exists(log) ? read_metrics(log) : std::vector<StepMetrics>();
    return all.empty() ? int64_t{0} : all.back().step;
  };
  std::vector<double> seconds;
  for (int64_t next = 5; static_cast<int>(seconds.size()) < wanted; next = last() + 3) {
    const auto end = Clock::now() + std::chrono::minutes(2);
    const auto until = [&](int64_t step) {
      while (last() < step && child.running() && Clock::now() < end)
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      return last() >= step;
    };
    ASSERT_TRUE(until(next)) << "after " << seconds.size() << " kills";
    std::this_thread::sleep_for(std::chrono::milliseconds(std::uniform_int_distribution<>(0, 20)(random)));
    std::vector<pid_t> ranks = ranks_of(child.pid());
    std::erase_if(ranks, [](pid_t p) {  // what watches over the launcher is a copy of it
      return text_of("/proc/" + std::to_string(p) + "/cmdline").find("launch") != std::string::npos;
    });
    ASSERT_FALSE(ranks.empty());
    const auto killed = Clock::now();
    ASSERT_EQ(::kill(ranks[std::uniform_int_distribution<size_t>(0, ranks.size() - 1)(random)], SIGKILL), 0);
    // A step that was under way may be done without the killed one.
    ASSERT_TRUE(until(last() + 2)) << "after kill " << seconds.size() + 1;
    seconds.push_back(std::chrono::duration<double>(Clock::now() - killed).count());
  }
  EXPECT_EQ(end_of(child), 0);
  EXPECT_EQ(weights("run"), weights("whole"));
  check_nothing_left("run");
  std::ranges::sort(seconds);
  std::printf(
      "%d kills: the step behind the next is done after %.2f s at best, %.2f s in the middle, %.2f s at worst\n",
      wanted, seconds.front(), seconds[seconds.size() / 2], seconds.back());
}

}  // namespace
}  // namespace strata::cli
