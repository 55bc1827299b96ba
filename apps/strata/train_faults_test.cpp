// Training runs that are stopped, killed, damaged or short of disk: what is told, and what is still there.

#include <chrono>
#include <filesystem>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "apps/strata/child.h"
#include "apps/strata/train_test_util.h"
#include "strata/core/error.h"
#include "strata/io/checkpoint.h"
#include "strata/io/files.h"
#include "strata/train/metrics.h"

namespace strata::cli {
namespace {

namespace fs = std::filesystem;

using TrainFaults = TrainCommandTest;

TEST_F(TrainFaults, OneProcessAtATimeTrainsIntoAFolder) {
  const std::string out = dir_ / "run";
  const std::string more = "train --resume --out " + out + " --steps 12";
  {
    Child child({"train", dir_ / "tiny.toml", "--data", dir_ / "text.txt", "--out", out, "--steps", "1000000", "--set",
                 "train.save_every=2", "train.eval_every=0"});
    wait_for([&] { return !child.running() || has_saved(out); });
    expect_one_line_error(strata(more), 1, "another process is training into '" + out + "'");
    EXPECT_TRUE(child.running());
    child.kill(SIGTERM);
    EXPECT_EQ(child.wait(), 0);
  }
  // Whoever is gone holds nothing.
  EXPECT_EQ(strata(more).status, 0);
}

TEST_F(TrainFaults, AnotherTextIsRefusedWhereARunGoesOn) {
  const std::string out = dir_ / "run";
  ASSERT_EQ(strata(tiny() + "--out " + out).status, 0);
  const std::string text = io::read_file(dir_ / "text.txt");
  std::string changed = text;
  changed[100] = '#';  // as long as before
  for (const std::string& other : {changed, text + text}) {
    io::write_file(dir_ / "text.txt", other);
    expect_one_line_error(strata("train --resume --steps 8 --out " + out), 1, "is not the text that the run in");
  }
  io::write_file(dir_ / "text.txt", text);
  EXPECT_EQ(strata("train --resume --steps 8 --out " + out).status, 0);
  EXPECT_TRUE(fs::exists(out + "/step-00000008"));
}

TEST_F(TrainFaults, DamagedCheckpointsAreToldAndPassedOver) {
  const std::string out = dir_ / "run";
  ASSERT_EQ(strata(tiny() + "--out " + out + " --set train.save_every=2").status, 0);
  ASSERT_TRUE(fs::exists(out + "/step-00000002"));
  const std::string last = out + "/step-00000004/model.safetensors";
  fs::resize_file(last, fs::file_size(last) - 1);
  const std::string copy = dir_ / "copy";
  fs::copy(out, copy, fs::copy_options::recursive);
  const Result quiet = strata("train --resume --quiet --out " + copy + " --steps 6");
  EXPECT_EQ(quiet.status, 0) << quiet.output;
  EXPECT_TRUE(quiet.output.starts_with("skipping the broken checkpoint '" + copy + "/step-00000004'")) << quiet.output;
  EXPECT_EQ(quiet.output.find("going on"), std::string::npos) << quiet.output;
  const Result r = strata("train --resume --out " + out + " --steps 6");
  EXPECT_EQ(r.status, 0) << r.output;
  EXPECT_NE(r.output.find("skipping the broken checkpoint '" + out + "/step-00000004'"), std::string::npos) << r.output;
  EXPECT_NE(r.output.find("going on after step 2"), std::string::npos) << r.output;
  // The damaged one was kept until good ones replaced it; with none left the run is not begun anew over it.
  for (const std::string& checkpoint : io::list_checkpoints(out)) fs::resize_file(checkpoint + "/state.json", 20);
  const size_t left = io::list_checkpoints(out).size();
  expect_one_line_error(strata("train --resume --out " + out), 1, "no checkpoint is whole: the broken checkpoint");
  expect_one_line_error(strata(tiny() + "--out " + out), 1, "--resume");
  expect_one_line_error(strata("generate --checkpoint " + out), 1, "no checkpoint is whole");
  EXPECT_EQ(io::list_checkpoints(out).size(), left);
}

TEST_F(TrainFaults, AFolderThatCannotBeWritten) {
  const std::string out = dir_ / "run";
  ASSERT_EQ(strata(tiny() + "--out " + out).status, 0);
  if (::geteuid() == 0) GTEST_SKIP() << "root writes everywhere";
  fs::permissions(out, fs::perms::owner_read | fs::perms::owner_exec);
  expect_one_line_error(strata("train --resume --steps 8 --out " + out), 1, "Permission denied");
  expect_one_line_error(strata(tiny() + "--out " + out + "/more"), 1, "Permission denied");
  fs::permissions(out, fs::perms::owner_all);
  EXPECT_TRUE(fs::exists(out + "/step-00000004/model.safetensors"));
}

TEST_F(TrainFaults, DivergenceIsOneLineAndKeepsWhatWasSaved) {
  const std::string out = dir_ / "run";
  const Result r =
      strata(tiny() + "--steps 300 --out " + out +
             " --set train.optimizer=sgd train.lr=1000 train.grad_clip=0 train.warmup=3 train.save_every=1");
  expect_one_line_error(r, 1, "The newest checkpoint is " + out);
  EXPECT_EQ(r.output.find("-nan"), std::string::npos) << r.output;
  EXPECT_NE(io::read_file(out + "/report.html").find("stopped at step"), std::string::npos);
  EXPECT_TRUE(io::find_latest_checkpoint(out).has_value());
}

// `strata train ... | head`: nobody reads on.
TEST_F(TrainFaults, AReaderThatWentAwaySavesAndStops) {
  const std::string out = dir_ / "run";
  strata(tiny() + "--out " + out + " --steps 1000000 --set train.save_every=0 train.eval_every=1 2>&1 | head -3");
  ASSERT_EQ(io::list_checkpoints(out).size(), 1u);
  EXPECT_TRUE(io::find_latest_checkpoint(out).has_value());
  EXPECT_TRUE(fs::exists(out + "/report.html"));
}

// The first Ctrl-C waits for a step that takes long; the second does not.
TEST_F(TrainFaults, SecondInterruptEndsAtOnceAndKeepsWhatWasSaved) {
  const std::string out = dir_ / "run";
  ASSERT_EQ(strata(tiny() + "--out " + out).status, 0);
  Child child(
      {"train", "--resume", "--out", out, "--steps", "1000", "--set", "train.batch=20000", "train.save_every=0"});
  wait_for([&] { return !child.running() || fs::file_size(out + "/metrics.jsonl") > 0; });
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  // Two that come before the process has its turn are one.
  wait_for([&] {
    child.kill(SIGINT);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return !child.running();
  });
  EXPECT_EQ(child.wait(), 128 + SIGINT);
  EXPECT_TRUE(fs::exists(out + "/step-00000004/model.safetensors"));
  EXPECT_EQ(strata("train --resume --steps 6 --out " + out + " --set train.batch=2").status, 0);
}

// No file may grow past a few blocks: what a full disk does to a checkpoint. The signal of that limit ends nothing.
TEST_F(TrainFaults, OutOfDiskKeepsTheLastCheckpoint) {
  const std::string out = dir_ / "run";
  ASSERT_EQ(strata(tiny() + "--out " + out).status, 0);
  const Result r = strata("train --resume --out " + out + " --steps 6", "ulimit -f 8;");
  expect_one_line_error(r, 1, "File too large");
  EXPECT_NE(r.output.find(out), std::string::npos) << r.output;
  EXPECT_TRUE(fs::exists(out + "/step-00000004/model.safetensors"));
  EXPECT_FALSE(fs::exists(out + "/step-00000006"));
  const Result later = strata("train --resume --out " + out + " --steps 6");
  EXPECT_EQ(later.status, 0) << later.output;
  EXPECT_TRUE(fs::exists(out + "/step-00000006"));
}

TEST_F(TrainFaults, InterruptSavesAndStops) {
  const std::string out = dir_ / "run";
  Child child({"train", dir_ / "tiny.toml", "--data", dir_ / "text.txt", "--out", out, "--steps", "1000000", "--set",
               "train.save_every=0", "train.eval_every=0"});
  wait_for([&] {
    return !child.running() || (fs::exists(out + "/metrics.jsonl") && fs::file_size(out + "/metrics.jsonl") > 0);
  });
  child.kill(SIGINT);
  EXPECT_EQ(child.wait(), 0);
  const auto metrics = read_metrics(out + "/metrics.jsonl");
  ASSERT_FALSE(metrics.empty());
  char name[32];
  std::snprintf(name, sizeof name, "/step-%08lld", static_cast<long long>(metrics.back().step));
  EXPECT_TRUE(fs::exists(out + name)) << name;
  EXPECT_TRUE(fs::exists(out + "/report.html"));
}

// A small disk that fills up: the error says so, and the older checkpoint goes on once there is room.
TEST_F(TrainFaults, FullDiskKeepsTheLastCheckpoint) {
  if (::geteuid() != 0 || std::system("unshare -m true 2>/dev/null") != 0)
    GTEST_SKIP() << "this user may not mount a small file system";
  const std::string disk = dir_ / "disk", out = disk + "/run";
  fs::create_directory(disk);
  const std::string again = std::string(program()) + " train --resume --out " + out + " --steps ";
  const Result r =
      strata("--version", "unshare -m sh -c \"mount -t tmpfs -o size=4m none " + disk + " && " + program() + " " +
                              tiny() + "--out " + out + " --quiet; cat /dev/zero >" + disk + "/fill; " + again +
                              "6; echo status \\$?; rm " + disk + "/fill; " + again + "6\";");
  EXPECT_NE(r.output.find("No space left on device"), std::string::npos) << r.output;
  EXPECT_NE(r.output.find("status 1"), std::string::npos) << r.output;
  EXPECT_NE(r.output.find("going on after step 4"), std::string::npos) << r.output;
  EXPECT_NE(r.output.find("finished: 6 steps"), std::string::npos) << r.output;
}

TEST_F(TrainFaults, LogsInAFolderWithoutACheckpointAreKept) {
  const std::string out = dir_ / "run";
  ASSERT_EQ(strata(tiny() + "--out " + out + " --set train.save_every=-1").status, 0);
  const std::string log = io::read_file(out + "/metrics.jsonl"), page = io::read_file(out + "/report.html");
  const Result r = strata(tiny() + "--out " + out);
  EXPECT_EQ(r.status, 0) << r.output;
  EXPECT_NE(r.output.find("is kept as '" + out + "/metrics.1.jsonl'"), std::string::npos) << r.output;
  EXPECT_NE(r.output.find("is kept as '" + out + "/report.1.html'"), std::string::npos) << r.output;
  EXPECT_EQ(io::read_file(out + "/metrics.1.jsonl"), log);
  EXPECT_EQ(io::read_file(out + "/report.1.html"), page);
  EXPECT_EQ(read_metrics(out + "/metrics.jsonl").size(), 4u);
}

TEST_F(TrainFaults, WhatAKilledRunLeftIsRemoved) {
  const std::string out = dir_ / "run";
  fs::create_directories(out + "/data");
  for (const char* name : {"/data/.train.tokens.tmp.0", "/data/.train.tokens.tmp.2147483647.1", "/.report.html.tmp.0",
                           "/.report.html.tmp.2147483647.12", "/.keep.me"})
    io::write_file(out + name, "half");
  fs::create_directory(out + "/.tmp-step-00000001-1-1");
  ASSERT_EQ(strata(tiny() + "--out " + out).status, 0);
  std::vector<std::string> hidden;
  for (const fs::directory_entry& e : fs::recursive_directory_iterator(out))
    if (e.path().filename().string().starts_with('.')) hidden.push_back(e.path().filename());
  EXPECT_EQ(hidden, std::vector<std::string>{".keep.me"});
}

TEST_F(TrainFaults, DamagedTokensAreBuiltAgain) {
  const std::string out = dir_ / "run", tokens = out + "/data/train.tokens";
  ASSERT_EQ(strata(tiny() + "--out " + out + " --steps 6").status, 0);
  const std::string whole = io::read_file(tokens), weights = io::read_file(out + "/step-00000006/model.safetensors");
  fs::remove_all(out);
  ASSERT_EQ(strata(tiny() + "--out " + out).status, 0);
  std::string damaged = whole;
  damaged[5000] ^= 1;
  io::write_file(tokens, damaged);
  const Result r = strata("train --resume --out " + out + " --steps 6");
  EXPECT_EQ(r.status, 0) << r.output;
  EXPECT_NE(r.output.find("are damaged, their checksum is another; it was built again"), std::string::npos) << r.output;
  EXPECT_EQ(io::read_file(tokens), whole);
  io::write_file(tokens, damaged);
  fs::remove(dir_ / "text.txt");
  expect_one_line_error(strata("train --resume --out " + out + " --steps 8"), 1, "train.tokens': byte 88: ");
}

TEST_F(TrainFaults, TokensThatAreCutWhileTheyAreUsedEndTheRunWithAReason) {
  const std::string out = dir_ / "run";
  const Result r =
      strata(tiny() + "--quiet --out " + out + " --steps 1000000 --set train.save_every=2 train.eval_every=0 & " +
             "until ls -d " + out + "/step-* >/dev/null 2>&1 || ! kill -0 $!; do sleep 0.02; done; truncate -s 100 " +
             out + "/data/train.tokens; wait $!");
  expect_one_line_error(r, 1, "it was cut while it was in use");
  EXPECT_TRUE(has_saved(out));
}

TEST_F(TrainFaults, ABrokenLogNeverRefusesTheResume) {
  const std::string out = dir_ / "run", log = out + "/metrics.jsonl";
  ASSERT_EQ(strata(tiny() + "--out " + out).status, 0);
  const std::string lines = io::read_file(log);
  const size_t second = lines.find('\n') + 1;
  io::write_file(log, lines.substr(0, second) + "rubbish\n" + lines.substr(second));
  const Result r = strata("train --resume --out " + out + " --steps 5");
  EXPECT_EQ(r.status, 0) << r.output;
  EXPECT_NE(r.output.find("line 2 is no step of a run. It is kept as"), std::string::npos) << r.output;
  EXPECT_EQ(read_metrics(log).size(), 5u);
  io::write_file(log, lines.substr(second));
  const Result lost = strata("train --resume --out " + out + " --steps 6");
  EXPECT_EQ(lost.status, 0) << lost.output;
  EXPECT_NE(lost.output.find("there is no line for step 1"), std::string::npos) << lost.output;
}

TEST_F(TrainFaults, DeeplyNestedStateFallsBackToTheOlderCheckpoint) {
  const std::string out = dir_ / "run";
  ASSERT_EQ(strata(tiny() + "--out " + out + " --set train.save_every=2").status, 0);
  io::write_file(out + "/step-00000004/state.json", std::string(100'000, '[') + std::string(100'000, ']'));
  const Result r = strata("train --resume --out " + out + " --steps 6");
  EXPECT_EQ(r.status, 0) << r.output;
  EXPECT_NE(r.output.find("going on after step 2"), std::string::npos) << r.output;
  EXPECT_EQ(strata("generate --checkpoint " + out + " --tokens 1").status, 0);
}

// Killed at 20 random moments, many of them while a checkpoint is written, and resumed: the same bits as unbroken.
TEST_F(TrainFaults, KilledAndResumedIsTheSameToTheBit) {
  constexpr int kKills = 20, kSteps = 400;
  const auto arguments = [&](const std::string& out) {
    return std::vector<std::string>{"train",
                                    dir_ / "tiny.toml",
                                    "--data",
                                    dir_ / "text.txt",
                                    "--out",
                                    out,
                                    "--resume",
                                    "--steps",
                                    std::to_string(kSteps),
                                    "--set",
                                    "model.dropout=0.1",
                                    "train.save_every=3",
                                    "train.eval_every=50",
                                    "train.sample_tokens=0"};
  };
  const std::string unbroken = dir_ / "unbroken", killed = dir_ / "killed";
  ASSERT_EQ(Child(arguments(unbroken)).wait(), 0);

  const auto steps_done = [&] {
    return fs::exists(killed + "/metrics.jsonl") ? static_cast<int>(read_metrics(killed + "/metrics.jsonl").size()) : 0;
  };
  std::mt19937 random(20240607);
  int done = 0, ended_by_kill = 0;
  for (int kill = 0; kill < kKills; ++kill) {
    // Some right after the start, most some steps further on.
    const int ahead = std::uniform_int_distribution(1, 2 * (kSteps - done) / (kKills - kill + 3) + 1)(random);
    const int target = kill % 5 == 0 ? 0 : done + ahead;
    Child child(arguments(killed));
    while (child.running() && steps_done() < target) std::this_thread::sleep_for(std::chrono::microseconds(200));
    std::this_thread::sleep_for(std::chrono::microseconds(std::uniform_int_distribution(0, 20000)(random)));
    child.kill(SIGKILL);
    const int status = child.wait();
    ASSERT_TRUE(status == 128 + SIGKILL || status == 0) << status;
    ended_by_kill += status != 0;
    done = steps_done();
  }
  EXPECT_GE(ended_by_kill, 15);
  ASSERT_EQ(Child(arguments(killed)).wait(), 0);
  for (const char* file : {"/step-00000400/model.safetensors", "/step-00000400/optimizer.safetensors"}) {
    ASSERT_TRUE(fs::exists(killed + file));
    EXPECT_EQ(io::read_file(unbroken + file), io::read_file(killed + file)) << file;
  }
  const auto a = read_metrics(unbroken + "/metrics.jsonl"), b = read_metrics(killed + "/metrics.jsonl");
  ASSERT_EQ(a.size(), static_cast<size_t>(kSteps));
  ASSERT_EQ(b.size(), static_cast<size_t>(kSteps));
  for (size_t i = 0; i < a.size(); ++i) EXPECT_EQ(a[i].loss, b[i].loss) << i;
}

// The same with weights, state and activations on a disk: a kill leaves nothing there, and what goes on, also with
// another budget, ends at the bits of a run that moves nothing.
TEST_F(TrainFaults, KilledWithTiersOnLeavesNothingBehind) {
  const std::string plain = dir_ / "plain", killed = dir_ / "killed", disk = dir_ / "disk";
  fs::create_directory(disk);
  const auto arguments = [&](const std::string& out, const std::vector<std::string>& memory) {
    std::vector<std::string> all{"train",
                                 dir_ / "tiny.toml",
                                 "--data",
                                 dir_ / "text.txt",
                                 "--out",
                                 out,
                                 "--resume",
                                 "--steps",
                                 "60",
                                 "--set",
                                 "train.save_every=5",
                                 "train.eval_every=0",
                                 "train.sample_tokens=0"};
    all.insert(all.end(), memory.begin(), memory.end());
    return all;
  };
  ASSERT_EQ(Child(arguments(plain, {})).wait(), 0);
  const std::vector<std::string> away{"memory.disk=" + disk, "memory.parameters=disk", "memory.state=disk",
                                      "memory.activations=disk"};
  {
    Child child(arguments(killed, away));
    wait_for([&] { return !child.running() || has_saved(killed); });
    child.kill(SIGKILL);
    ASSERT_EQ(child.wait(), 128 + SIGKILL);
  }
  EXPECT_TRUE(fs::is_empty(disk));
  ASSERT_EQ(Child(arguments(killed, {"memory.disk=" + disk, "memory.parameters=auto", "memory.state=disk",
                                     "memory.activations=auto"}))
                .wait(),
            0);
  EXPECT_TRUE(fs::is_empty(disk));
  for (const char* file : {"/step-00000060/model.safetensors", "/step-00000060/optimizer.safetensors"})
    EXPECT_EQ(io::read_file(plain + file), io::read_file(killed + file)) << file;
}

}  // namespace
}  // namespace strata::cli
