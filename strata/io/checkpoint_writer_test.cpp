// Checkpoints written beside what goes on: the bytes of those that are waited for, and never half of one.

#include "strata/io/checkpoint_writer.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <thread>

#include <gtest/gtest.h>

#include "strata/core/child_test_util.h"
#include "strata/core/error_test_util.h"
#include "strata/core/placement.h"
#include "strata/dist/collectives/placed.h"
#include "strata/dist/rank_threads.h"
#include "strata/io/files.h"
#include "strata/io/rank_checkpoint.h"
#include "strata/io/temp_dir.h"
#include "strata/memory/allocator.h"
#include "strata/ops/ops.h"

namespace strata::io {
namespace {

namespace fs = std::filesystem;
using distributed::Mesh;
using distributed::run_as_ranks;

void is(bool ok, const std::string& what) {
  if (!ok) throw std::runtime_error(what);
}

// Every file of a folder, by name.
std::map<std::string, std::string> bytes_of(const std::string& folder) {
  std::map<std::string, std::string> all;
  for (const auto& f : fs::directory_iterator(folder)) all[f.path().filename()] = read_file(f.path());
  return all;
}

Tensor counted(const Shape& shape) {
  return arange(shape.product()).to(DType::f32).reshape(shape);
}

TensorFiles files(const Tensor& rows, const Tensor& plain) {
  return {{"model", {{"rows", rows}, {"plain", plain}, {"view", plain.t()}}},
          {"optimizer", {{"rows.step", full({}, 7.0)}, {"none", empty({0, 3})}}}};
}

TEST(CheckpointWriter, HasTheBytesOfOneThatIsWaitedFor) {
  const TempDir dir;
  const Tensor rows = counted({7, 5}), plain = counted({3, 4});
  const std::map<std::string, std::string> state{{"who", "alone"}};
  const std::string want = save_checkpoint(dir / "want", 3, files(rows, plain), state);
  CheckpointWriter writer;
  EXPECT_FALSE(writer.under_way());
  EXPECT_EQ(writer.finish(), "");
  for (const int64_t step : {int64_t{2}, int64_t{3}}) {
    const Tensor r = rows.clone(), p = plain.clone();
    writer.begin(dir / "got", step, files(r, p), state);
    EXPECT_TRUE(writer.under_way());
    Tensor(r).zero_();  // the steps that follow
    Tensor(p).zero_();
  }
  const std::string got = writer.finish();  // of 3; that of 2 was finished by begin()
  EXPECT_FALSE(writer.under_way());
  EXPECT_EQ(got, (dir / "got") + "/step-00000003");
  EXPECT_EQ(bytes_of(got), bytes_of(want));
  EXPECT_EQ(list_checkpoints(dir / "got").size(), 2u);
  EXPECT_EQ(writer.held_bytes(), static_cast<int64_t>((7 * 5 + 2 * 3 * 4 + 1) * sizeof(float)));
}

TEST(CheckpointWriter, OfSeveralRanksToo) {
  const TempDir dir;
  const Tensor rows = counted({7, 5}), plain = counted({3, 4});
  const auto state = [](int rank) { return std::map<std::string, std::string>{{"who", cat("rank ", rank)}}; };
  for (const std::string how : {"S(0) R", "S(0) S(0)", "S(0,segments=4+3) S(0,part)", "R S(1)"}) {
    run_as_ranks(Mesh("dp=2 tp=2"), [&](int rank) {
      distributed::Group& world = distributed::group("world");
      const Tensor r = distributed::distribute(rows, how);
      const std::string want = save_rank_checkpoint(world, dir / "want", 1, files(r, plain), state(rank));
      const Tensor lies = distributed::distribute(rows, how), p = plain.clone();
      CheckpointWriter writer(&world);
      writer.begin(dir / "got", 1, files(lies, p), state(rank));
      Tensor(local_part(lies)).zero_();
      Tensor(p).zero_();
      while (!writer.written()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      world.barrier();
      is(!fs::exists((dir / "got") + "/step-00000001"), "it is a checkpoint before all have written");
      world.barrier();
      const std::string got = writer.finish();
      is(bytes_of(got) == bytes_of(want), "other bytes");
      world.barrier();
    });
    const Checkpoint read = load_checkpoint((dir / "got") + "/step-00000001", {"model"});
    for (const auto& [name, t] : read.files.at("model"))
      EXPECT_EQ(t.to_vector<float>(), (name == "rows" ? rows : name == "view" ? plain.t() : plain).to_vector<float>());
    fs::remove_all(dir / "got");
  }
}

TEST(CheckpointWriter, WhatIsNotFinishedIsNoCheckpoint) {
  const TempDir dir;
  run_as_ranks(Mesh("dp=2"), [&](int) {
    distributed::Group& world = distributed::group("world");
    const Tensor rows = distributed::distribute(counted({6, 2}), "S(0)");
    save_rank_checkpoint(world, dir / "run", 1, {{"model", {{"w", rows}}}}, {});
    {
      CheckpointWriter writer(&world);
      writer.begin(dir / "run", 2, {{"model", {{"w", rows}}}}, {});
    }
    world.barrier();
  });
  EXPECT_EQ(bytes_of((dir / "run") + "/step-00000001").size(), 3u);
  EXPECT_EQ(std::distance(fs::directory_iterator(dir / "run"), fs::directory_iterator()), 1);
}

TEST(CheckpointWriter, AKillLeavesTheOneBefore) {
  const TempDir dir;
  const auto run = [&](int64_t step, bool killed) {
    run_as_ranks(Mesh("dp=2"), [&](int rank) {
      distributed::Group& world = distributed::group("world");
      const Tensor rows = distributed::distribute(counted({6, 2}) + static_cast<double>(step), "S(0)");
      CheckpointWriter writer(&world);
      writer.begin(dir / "run", step, {{"model", {{"w", rows}}}}, {});
      while (killed && !writer.written()) std::this_thread::yield();
      world.barrier();
      if (killed && rank == 1) ::raise(SIGKILL);
      if (killed) ::pause();
      writer.finish();
    });
    return 0;
  };
  run(1, false);
  EXPECT_EQ(in_child([&] { return run(2, true); }), 128 + SIGKILL);
  EXPECT_EQ(find_latest_checkpoint(dir / "run")->step, 1);
  run(3, false);  // clears what was left
  EXPECT_EQ(find_latest_checkpoint(dir / "run")->step, 3);
  EXPECT_EQ(std::distance(fs::directory_iterator(dir / "run"), fs::directory_iterator()), 2);
}

TEST(CheckpointWriter, AFullDiskIsNamed) {
  const TempDir dir;
  const auto limited = [](const std::function<int()>& body) {
    return in_child([&] {
      signal(SIGXFSZ, SIG_IGN);
      const rlimit limit{4096, 4096};
      setrlimit(RLIMIT_FSIZE, &limit);
      return body();
    });
  };
  const auto has = [](const std::string& text, const std::string& what) { return text.find(what) != text.npos; };
  EXPECT_EQ(limited([&] {
              CheckpointWriter writer;
              writer.begin(dir / "run", 1, {{"model", {{"w", ones({4})}}}}, {});
              if (writer.finish().empty()) return 1;
              writer.begin(dir / "run", 2, {{"model", {{"w", ones({4096})}}}}, {});
              if (!has(message<IoError>([&] { writer.finish(); }), "File too large")) return 2;
              if (writer.under_way()) return 3;
              writer.begin(dir / "run", 3, {{"model", {{"w", ones({4})}}}}, {});  // it goes on
              return writer.finish().empty() ? 4 : 0;
            }),
            0);
  EXPECT_EQ(list_checkpoints(dir / "run").size(), 2u);
  EXPECT_EQ(limited([&] {
              int wrong = 0;
              run_as_ranks(Mesh("dp=2"), [&](int rank) {
                distributed::Group& world = distributed::group("world");
                CheckpointWriter writer(&world);
                // Rank 0's part is too large.
                const Tensor w = distributed::distribute(ones({8192}), "S(0,unit=8192)");
                writer.begin(dir / "ranks", 1, {{"model", {{"w", w}, {"other", ones({2})}}}}, {});
                const std::string said = message<IoError>([&] { writer.finish(); });
                if (!has(said, "rank 0 could not save its part of step 1") || !has(said, "File too large"))
                  wrong = 1 + rank;
              });
              return wrong;
            }),
            0);
  EXPECT_TRUE(list_checkpoints(dir / "ranks").empty());
  EXPECT_EQ(std::distance(fs::directory_iterator(dir / "ranks"), fs::directory_iterator()), 0);
}

TEST(CheckpointWriter, RefusesWhatMakesNoSense) {
  const TempDir dir;
  CheckpointWriter writer;
  EXPECT_THROW(writer.begin(dir / "run", -1, {}, {}), ValueError);
  EXPECT_THROW(writer.begin(dir / "run", 1, {}, {}, -1), ValueError);
  EXPECT_THROW(writer.begin(dir / "run", 1,
                            {{"model", {{"w", empty(TensorMeta{{2}, DType::f32, Device::meta(), std::nullopt})}}}}, {}),
               DeviceError);
  EXPECT_FALSE(writer.under_way());
  writer.begin(dir / "run", 1, {{"a/b", {{"w", ones({2})}}}}, {});
  EXPECT_THROW(writer.finish(), ValueError);
  EXPECT_FALSE(fs::exists((dir / "run") + "/step-00000001"));
}

}  // namespace
}  // namespace strata::io
