// Nothing grows in a thousand steps with every mover on at once.

#include <dirent.h>
#include <malloc.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/autograd/offload.h"
#include "strata/core/parallel.h"
#include "strata/io/temp_dir.h"
#include "strata/lab/tracer.h"
#include "strata/memory/allocator.h"
#include "strata/memory/disk.h"
#include "strata/memory/tiers.h"
#include "strata/models/language_model.h"
#include "strata/models/model_test_util.h"
#include "strata/nn/streamed.h"
#include "strata/ops/factory/factory.h"
#include "strata/optim/home.h"
#include "strata/optim/optim.h"
#include "strata/train/run.h"
#include "strata/train/trainer_test_util.h"

namespace strata {
namespace {

int64_t entries(const char* folder) {
  int64_t n = 0;
  DIR* d = ::opendir(folder);
  while (::readdir(d) != nullptr) ++n;
  ::closedir(d);
  return n;
}
int64_t resident_bytes() {
  std::FILE* f = std::fopen("/proc/self/statm", "r");
  long long all = 0, resident = 0;
  const int got = std::fscanf(f, "%lld %lld", &all, &resident);
  std::fclose(f);
  return got == 2 ? resident * ::sysconf(_SC_PAGESIZE) : 0;
}

// What the process holds between two steps.
struct Held {
  int64_t own, on_disk, own_blocks, disk_blocks, disk_bytes, near, heap, resident, descriptors, threads;

  static Held now() {
    const Device cpu = Device::cpu();
    memory::release_cached();  // what is under way ends
    const memory::Stats own = memory::stats(cpu), disk = memory::stats(cpu, memory::kDisk);
    return {.own = own.live_total,
            .on_disk = disk.live_total,
            .own_blocks = own.blocks,
            .disk_blocks = disk.blocks,
            .disk_bytes = memory::disk()->bound().used,
            .near = memory::near_stats(cpu, memory::kDisk).bytes,
            .heap = static_cast<int64_t>(::mallinfo2().uordblks),
            .resident = resident_bytes(),
            .descriptors = entries("/proc/self/fd"),
            .threads = entries("/proc/self/task")};
  }
};

TEST(Leaks, AThousandStepsWithEveryMoverOn) {
  const io::TempDir dir;
  const int threads = num_threads();
  set_num_threads(1);
  // Not past the cache, so that a busy disk makes nobody wait.
  memory::use_disk({.directories = {dir.path()}, .direct = false});
  {
    manual_seed(1);
    const std::shared_ptr<LanguageModel> made = make_model(small_model("gpt", 2, 16, 32));
    const LanguageModel& model = *made;
    nn::Streamed streamed(model, {.tier = memory::kDisk, .recompute = false});
    optim::AdamW optimizer(model.named_parameters(), {.lr = 1e-3});
    optimizer.set_home({.where = memory::kDisk, .group_bytes = 64 << 10});
    const auto offload = SavedTensorOffload::create(
        {.away = SavedPlace::disk, .disk = memory::disk(), .min_bytes = 1, .keep_bytes = 0, .adaptive = false});
    const Tensor x = stepping_tokens(2, 16, 3, 32), y = stepping_tokens(2, 16, 5, 32);
    const auto step = [&] {
      optimizer.zero_grad();
      const nn::StreamScope scope(streamed);
      Tensor loss;
      {
        const SavedTensorOffload::Scope saved(offload);
        loss = model.loss(x, y);
      }
      loss.backward();
      optimizer.step_clipped(1);
      return loss.item();
    };
    const double first = step();
    // Of what lives there: the rest comes and goes.
    memory::set_near_limit(memory::stats(Device::cpu(), memory::kDisk).live_total / 8 * 5, Device::cpu(),
                           memory::kDisk);
    constexpr int kWarm = 200, kSteps = 1000;
    Held before{};
    for (int i = 1; i < kSteps; ++i) {
      if (i == kWarm) before = Held::now();
      if (i % 50 != 0) {
        step();
        continue;
      }
      lab::Tracer tracer;  // who listens leaves nothing either
      step();
      EXPECT_GT(tracer.finish().tracks.size(), 1u);
    }
    const Held after = Held::now();
    EXPECT_LT(step(), first);  // it has learnt
    EXPECT_GT(offload->stats().sent, 0);
    EXPECT_GT(memory::disk()->stats().bytes_read, 0);
    EXPECT_EQ(after.own, before.own);
    EXPECT_EQ(after.own_blocks, before.own_blocks);
    EXPECT_EQ(after.on_disk, before.on_disk);
    EXPECT_EQ(after.disk_blocks, before.disk_blocks);
    EXPECT_EQ(after.disk_bytes, before.disk_bytes);
    EXPECT_EQ(after.near, before.near);
    EXPECT_EQ(after.descriptors, before.descriptors);
    EXPECT_LE(after.threads, before.threads);
    EXPECT_LE(after.heap, before.heap + (64 << 10));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    EXPECT_LE(after.resident, before.resident + (4 << 20));  // the heap's holes move
#endif
  }
  memory::set_near_limit(0, Device::cpu(), memory::kDisk);
  memory::release_cached();  // the last writes end
  EXPECT_EQ(memory::disk()->bound().used, 0);
  EXPECT_TRUE(std::filesystem::is_empty(dir.path()));  // the file has no name
  set_num_threads(threads);
}

// The same of `strata train`: metrics, checkpoints and reports beside the movers.
class LeaksOfARun : public TrainTest {
 protected:
  static Held before_, after_;
  static int steps_;
  static std::string disk_;
};
Held LeaksOfARun::before_{}, LeaksOfARun::after_{};
int LeaksOfARun::steps_ = 0;
std::string LeaksOfARun::disk_;

TEST_F(LeaksOfARun, AThousandSteps) {
  constexpr int kWarm = 250, kSteps = 1000;
  disk_ = dir_ / "disk";
  std::filesystem::create_directories(disk_);
  c_.steps = kSteps + 1;
  c_.save_every = 50;
  c_.keep_last = 2;
  c_.accumulate = 2;
  c_.memory.disk = disk_;
  c_.memory.parameters = c_.memory.state = c_.memory.activations = "disk";
  c_.memory.recompute = "blocks";
  steps_ = 0;
  const auto sample = [] {
    ++steps_;
    if (steps_ == kWarm) before_ = Held::now();
    if (steps_ == kSteps) after_ = Held::now();
    if (steps_ % 100 == 0) {
      EXPECT_TRUE(std::filesystem::is_empty(disk_));  // files have no names
    }
    return false;
  };
  const TrainResult r = train(c_, {.out = dir_ / "run", .stop_requested = sample, .log = nullptr});
  EXPECT_TRUE(r.finished);
  EXPECT_EQ(steps_, kSteps + 1);
  EXPECT_GT(before_.on_disk, 0);
  EXPECT_EQ(after_.own, before_.own);
  EXPECT_EQ(after_.own_blocks, before_.own_blocks);
  EXPECT_EQ(after_.on_disk, before_.on_disk);
  EXPECT_EQ(after_.disk_blocks, before_.disk_blocks);
  EXPECT_EQ(after_.disk_bytes, before_.disk_bytes);
  EXPECT_EQ(after_.descriptors, before_.descriptors);
  EXPECT_LE(after_.threads, before_.threads);
  // The loader's thread makes batches that this one frees, which keeps up to 1 MiB of their size for itself before the
  // loader gets them back: Allocator.BlocksThatPassFromThreadToThreadAreBounded.
  EXPECT_LE(after_.heap, before_.heap + (512 << 10));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LE(after_.resident, before_.resident + (4 << 20));
#endif
  memory::release_cached();
  EXPECT_EQ(memory::disk()->bound().used, 0);
  EXPECT_TRUE(std::filesystem::is_empty(disk_));
  // Of the run: two checkpoints and the files that the guide names, and nothing that was to go.
  EXPECT_EQ(io::list_checkpoints(dir_ / "run").size(), 2u);
  for (const auto& e : std::filesystem::recursive_directory_iterator(dir_ / "run"))
    EXPECT_EQ(e.path().filename().string().find("tmp"), std::string::npos) << e.path();
}

}  // namespace
}  // namespace strata
