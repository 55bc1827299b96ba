#include "strata/io/checkpoint.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "strata/core/error.h"
#include "strata/io/temp_dir.h"

namespace strata::io {
namespace {
namespace fs = std::filesystem;

Tensor filled(int64_t n, float value) {
  Tensor t = empty(TensorMeta{Shape{n}, DType::f32, Device::cpu()});
  for (int64_t i = 0; i < n; ++i) t.data<float>()[i] = value + static_cast<float>(i);
  return t;
}

std::string save(const std::string& run, int64_t step, int keep_last = 0, int64_t n = 10) {
  const auto value = static_cast<float>(step);
  return save_checkpoint(run, step, {{"model", {{"w", filled(n, value)}}}, {"optimizer", {{"m", filled(n, -value)}}}},
                         {{"rng", "seed=1"}, {"step_text", std::to_string(step)}}, keep_last);
}

std::vector<std::string> names(const std::string& run) {
  std::vector<std::string> result;
  for (const std::string& path : list_checkpoints(run)) result.push_back(fs::path(path).filename().string());
  return result;
}

// Everything in the directory, hidden names too.
int count_entries(const std::string& dir) {
  return static_cast<int>(std::distance(fs::directory_iterator(dir), fs::directory_iterator()));
}

void flip_bit(const std::string& path, size_t at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(at));
  const char c = static_cast<char>(file.get() ^ 4);
  file.seekp(static_cast<std::streamoff>(at));
  file.put(c);
}

std::string load_error(const std::string& dir) {
  try {
    load_checkpoint(dir);
  } catch (const IoError& e) {
    return e.what();
  }
  return "";
}

using Names = std::vector<std::string>;

TEST(Checkpoint, RoundTrip) {
  TempDir run;
  const std::string path = save(run / "deep/run", 1000);
  EXPECT_EQ(fs::path(path).filename(), "step-00001000");
  const Checkpoint c = load_checkpoint(path);
  EXPECT_EQ(c.step, 1000);
  EXPECT_EQ(c.state.at("rng"), "seed=1");
  EXPECT_EQ(c.state.at("step_text"), "1000");
  ASSERT_EQ(c.files.size(), 2u);
  EXPECT_EQ(c.files.at("model").at("w").data<float>()[3], 1003.0f);
  EXPECT_EQ(c.files.at("optimizer").at("m").data<float>()[0], -1000.0f);
  verify_checkpoint(path);
  const Checkpoint model = load_checkpoint(path, {"model"});
  EXPECT_EQ(model.files.size(), 1u);
  EXPECT_THROW(load_checkpoint(path, {"none"}), IoError);
  EXPECT_EQ(load_checkpoint(open_checkpoint(path), {"model"}).files.at("model").at("w").data<float>()[3], 1003.0f);
  EXPECT_THROW(load_checkpoint(FoundCheckpoint{}), ValueError);
  const Checkpoint state = load_checkpoint_state(path);
  EXPECT_EQ(state.step, 1000);
  EXPECT_EQ(state.state, c.state);
  EXPECT_TRUE(state.files.empty());
  const auto latest = find_latest_checkpoint(run / "deep/run");
  ASSERT_TRUE(latest);
  EXPECT_EQ(latest->step, 1000);
  EXPECT_EQ(latest->path, path);
  EXPECT_EQ(count_entries(run / "deep/run"), 1);
}

TEST(Checkpoint, BadArguments) {
  TempDir run;
  EXPECT_THROW(save(run.path(), -1), ValueError);
  EXPECT_THROW(save(run.path(), 1, -1), ValueError);
  EXPECT_THROW(save_checkpoint(run.path(), 1, {{"../x", {}}}, {}), ValueError);
  EXPECT_THROW(save_checkpoint(run.path(), 1, {}, {{"text", "\xff"}}), ValueError);
  EXPECT_THROW(save_checkpoint(run.path(), 1, {}, {{"text", std::string(65 << 20, 'x')}}), ValueError);
  EXPECT_EQ(count_entries(run.path()), 0);
  write_file(run / "file", "x");
  EXPECT_THROW(save(run / "file", 1), IoError);
  EXPECT_FALSE(find_latest_checkpoint(run / "none"));
  EXPECT_FALSE(find_latest_checkpoint(run.path()));
  EXPECT_THROW(load_checkpoint(run / "none"), IoError);
  EXPECT_THROW(load_checkpoint(run / "file"), IoError);
}

TEST(Checkpoint, EveryFlippedBitIsFound) {
  TempDir run;
  const std::string path = save(run.path(), 5);
  std::mt19937 random(3);
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "state.json"}) {
    const std::string file = path + "/" + name;
    const size_t size = fs::file_size(file);
    for (int i = 0; i < 40; ++i) {
      // the line break at the end of state.json is outside its checksum
      const size_t at = random() % (size - 1);
      flip_bit(file, at);
      // in state.json a bit may turn one blank of the indentation into another character, never into other content
      const std::string error = load_error(path);
      EXPECT_TRUE(error.find(name) != std::string::npos) << name << " byte " << at << ": '" << error << "'";
      flip_bit(file, at);
      EXPECT_EQ(load_error(path), "");
    }
  }
}

TEST(Checkpoint, SaysWhatIsWrong) {
  TempDir run;
  const std::string path = save(run.path(), 5);
  flip_bit(path + "/model.safetensors", fs::file_size(path + "/model.safetensors") - 1);
  EXPECT_NE(load_error(path).find("its xxh64 is "), std::string::npos) << load_error(path);
  fs::resize_file(path + "/model.safetensors", 20);
  EXPECT_NE(load_error(path).find("has 20 bytes, state.json says"), std::string::npos) << load_error(path);
  fs::remove(path + "/model.safetensors");
  EXPECT_NE(load_error(path).find("No such file"), std::string::npos);
  fs::resize_file(path + "/state.json", 20);
  EXPECT_NE(load_error(path).find("not valid JSON"), std::string::npos);
  std::ofstream(path + "/state.json") << R"({"format":"other"})";
  EXPECT_NE(load_error(path).find("field 'format'"), std::string::npos);
  fs::remove(path + "/state.json");
  EXPECT_NE(load_error(path).find("state.json"), std::string::npos);
}

TEST(Checkpoint, LatestSkipsBrokenOnes) {
  TempDir run;
  save(run.path(), 1);
  save(run.path(), 2);
  const std::string three = save(run.path(), 3);
  flip_bit(three + "/model.safetensors", 100);
  fs::create_directory(run / "step-00000004");  // no files at all
  fs::create_directory(run / ".tmp-step-00000009-1");
  fs::create_directory(run / "step-12");  // not a name that we give
  write_file(run / "step-00000008", "a file");
  std::vector<std::string> warnings;
  const auto latest = find_latest_checkpoint(run.path(), &warnings);
  ASSERT_TRUE(latest);
  EXPECT_EQ(latest->step, 2);
  ASSERT_EQ(warnings.size(), 2u);
  EXPECT_NE(warnings[0].find("step-00000004"), std::string::npos);
  EXPECT_NE(warnings[1].find("xxh64"), std::string::npos);
}

TEST(Checkpoint, DeepNestingIsDamage) {
  TempDir run;
  save(run.path(), 1);
  const std::string two = save(run.path(), 2);
  for (const char* open : {"[", "{\"a\":"}) {
    std::string deep = "{\"format\":";
    for (int i = 0; i < 100'000; ++i) deep += open;
    write_file(two + "/state.json", deep);
    EXPECT_NE(load_error(two).find("nests deeper than"), std::string::npos) << load_error(two);
    std::vector<std::string> warnings;
    EXPECT_EQ(find_latest_checkpoint(run.path(), &warnings)->step, 1);
    EXPECT_EQ(warnings.size(), 1u);
  }
}

TEST(Checkpoint, OneThatWasFoundCanBeReadWhenItIsDeleted) {
  TempDir run;
  save(run.path(), 1);
  const auto found = find_latest_checkpoint(run.path());
  ASSERT_TRUE(found);
  const FoundCheckpoint open = open_checkpoint(found->path);
  save(run.path(), 2, 1);
  ASSERT_FALSE(fs::exists(found->path));
  EXPECT_EQ(load_checkpoint_state(*found).step, 1);
  EXPECT_EQ(load_checkpoint(*found).files.at("model").at("w").data<float>()[0], 1.0f);
  EXPECT_EQ(load_checkpoint(open).files.at("optimizer").at("m").data<float>()[0], -1.0f);
  EXPECT_THROW(load_checkpoint(found->path), IoError);
}

// A run that keeps one checkpoint, and somebody who reads beside it.
TEST(Checkpoint, ReadersBesideAWriterThatKeepsOne) {
  TempDir run;
  save(run.path(), 1);
  const pid_t pid = fork();
  if (pid == 0) {
    try {
      for (int64_t s = 2;; ++s) save(run.path(), s, 1, 1000);
    } catch (...) {
    }
    _exit(1);
  }
  int64_t last = 0;
  // On a busy machine the writer may not have had its turn after 300.
  for (int i = 0; i < 300 || (last < 3 && i < 100'000); ++i) {
    std::vector<std::string> warnings;
    const auto found = find_latest_checkpoint(run.path(), &warnings);
    ASSERT_TRUE(found) << i;
    ASSERT_TRUE(warnings.empty()) << warnings[0];
    ASSERT_GE(found->step, last);
    last = found->step;
    ASSERT_EQ(load_checkpoint_state(*found).step, last);
    ASSERT_EQ(load_checkpoint(*found, {"model"}).files.at("model").at("w").data<float>()[0], static_cast<float>(last));
  }
  kill(pid, SIGKILL);
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status)) << "the writer failed by itself";
  EXPECT_GT(last, 1);
}

// Several processes that save into one run leave each other's unfinished checkpoints alone.
TEST(Checkpoint, WritersBesideEachOther) {
  TempDir run;
  std::vector<pid_t> children;
  for (int c = 0; c < 3; ++c) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    try {
      for (int64_t s = 0; s < 40; ++s) save(run.path(), s % 4, 2, 2000);
      _exit(0);
    } catch (const std::exception& e) {
      fprintf(stderr, "%s\n", e.what());
      _exit(1);
    }
  }
  for (const pid_t pid : children) {
    int status = 0;
    waitpid(pid, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_TRUE(find_latest_checkpoint(run.path()));
  for (const fs::directory_entry& e : fs::directory_iterator(run.path()))
    EXPECT_TRUE(e.path().filename().string().starts_with("step-")) << e.path();
}

TEST(Checkpoint, KeepsTheLastN) {
  TempDir run;
  for (int step = 1; step <= 5; ++step) save(run.path(), step * 10, 2);
  EXPECT_EQ(names(run.path()), (Names{"step-00000040", "step-00000050"}));
  EXPECT_EQ(count_entries(run.path()), 2);
  save(run.path(), 60);
  EXPECT_EQ(names(run.path()).size(), 3u);
  EXPECT_THROW(prune_checkpoints(run.path(), 0), ValueError);
}

TEST(Checkpoint, NeverDeletesTheNewestValidOne) {
  TempDir run;
  save(run.path(), 1);
  save(run.path(), 2);
  flip_bit(save(run.path(), 3) + "/model.safetensors", 100);
  flip_bit(save(run.path(), 4) + "/optimizer.safetensors", 100);
  prune_checkpoints(run.path(), 1);
  EXPECT_EQ(names(run.path()), (Names{"step-00000002", "step-00000003", "step-00000004"}));
  EXPECT_EQ(find_latest_checkpoint(run.path())->step, 2);
}

TEST(Checkpoint, NeverDeletesWhatWasJustWritten) {
  TempDir run;
  save(run.path(), 100);
  save(run.path(), 200);
  save(run.path(), 50, 1);  // a run that was taken back to an earlier step
  const Names left = names(run.path());
  EXPECT_NE(std::find(left.begin(), left.end(), "step-00000050"), left.end());
}

TEST(Checkpoint, ReplacesTheSameStep) {
  TempDir run;
  save(run.path(), 7, 0, 10);
  const std::string path = save(run.path(), 7, 0, 20);
  EXPECT_EQ(load_checkpoint(path).files.at("model").at("w").numel(), 20);
  EXPECT_EQ(count_entries(run.path()), 1);
}

TEST(Checkpoint, FullDiskKeepsTheOldOne) {
  TempDir run;
  save(run.path(), 1);
  const pid_t pid = fork();
  if (pid == 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{8192, 8192};
    setrlimit(RLIMIT_FSIZE, &limit);
    int status = 1;
    try {
      save(run.path(), 2, 1, 100'000);
    } catch (const IoError& e) {
      status = std::strstr(e.what(), "needs 4000") && std::strstr(e.what(), "model.safetensors") ? 0 : 2;
    }
    _exit(status);
  }
  int status = 0;
  waitpid(pid, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(find_latest_checkpoint(run.path())->step, 1);
  EXPECT_EQ(count_entries(run.path()), 1);
}

// A process that saves without pause is killed at random moments: there is always a newest whole checkpoint, and it is
// never older than the last one whose saving was finished.
TEST(Checkpoint, SurvivesKills) {
  TempDir run;
  std::mt19937 random(7);
  int64_t step = 0;
  for (int kill_number = 0; kill_number < 20; ++kill_number) {
    int pipe_ends[2];
    ASSERT_EQ(pipe(pipe_ends), 0);
    const pid_t pid = fork();
    if (pid == 0) {
      close(pipe_ends[0]);
      try {
        for (int64_t s = step + 1;; ++s) {
          save(run.path(), s, 2, 50'000);
          if (write(pipe_ends[1], &s, sizeof s) != sizeof s) _exit(1);
        }
      } catch (...) {
        _exit(1);
      }
    }
    close(pipe_ends[1]);
    int64_t finished = step, s = 0;
    if (read(pipe_ends[0], &s, sizeof s) == sizeof s) finished = s;  // at least one, so that the kills make progress
    usleep(random() % 30'000);
    kill(pid, SIGKILL);
    while (read(pipe_ends[0], &s, sizeof s) == sizeof s) finished = s;
    close(pipe_ends[0]);
    int status = 0;
    waitpid(pid, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child failed by itself";
    std::vector<std::string> warnings;
    const auto latest = find_latest_checkpoint(run.path(), &warnings);
    ASSERT_TRUE(latest);
    EXPECT_TRUE(warnings.empty()) << warnings[0];
    EXPECT_GE(latest->step, finished);
    EXPECT_EQ(load_checkpoint(latest->path).files.at("model").at("w").data<float>()[0],
              static_cast<float>(latest->step));
    step = latest->step;
  }
  EXPECT_GE(step, 20);
}

}  // namespace
}  // namespace strata::io
