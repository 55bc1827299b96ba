// What goes wrong with tiers in a training run: a clear error or a clean retry, never a wrong number, never a lost
// checkpoint, and nothing left behind. docs/design/tiers.md has the table.

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include <unistd.h>

#include <gtest/gtest.h>

#include "strata/core/error.h"
#include "strata/cuda/runtime.h"
#include "strata/memory/allocator.h"
#include "strata/memory/disk.h"
#include "strata/memory/disk_faults_test_util.h"
#include "strata/memory/tiers.h"
#include "strata/ops/factory/factory.h"
#include "strata/train/run.h"
#include "strata/train/tier_plan.h"
#include "strata/train/trainer_test_util.h"

namespace strata {
namespace {

namespace fs = std::filesystem;
using memory::DiskTransfer;

constexpr const char* kWays[] = {"activations", "state", "weights", "all"};

class TierFaults : public TrainTest {
 protected:
  TierFaults() {
    c_.model.layers = 3;
    c_.model.dim = 256;
    c_.model.context = 128;
    c_.batch = 8;
    c_.steps = 6;
    c_.save_every = 2;
    at_step_ = nullptr;
    steps_ = 0;
  }
  // One for all: how fast its disk is is measured once.
  static const std::string& disk() {
    static const io::TempDir folder;
    static const std::string path = [] {
      fs::create_directories(folder / "disk");
      return folder / "disk";
    }();
    return path;
  }
  static MemoryConfig way(const std::string& name) {
    MemoryConfig m;
    m.disk = disk();
    if (name == "activations" || name == "all") m.activations = "disk";
    if (name == "state" || name == "all") m.state = "disk";
    if (name == "weights" || name == "all") m.parameters = "disk";
    return m;
  }
  // `at_step` is called after each step with its number, before it is saved.
  TrainResult run(const std::string& name, const MemoryConfig& memory, bool resume = false,
                  std::function<void(int)> at_step = nullptr) {
    TrainConfig c = c_;
    c.memory = memory;
    at_step_ = std::move(at_step);
    steps_ = 0;
    const auto after = [] {
      ++steps_;
      if (at_step_) at_step_(steps_);
      return false;
    };
    return train(c, {.out = dir_ / name, .resume = resume, .stop_requested = after, .log = nullptr});
  }
  const std::string& plain() {
    if (plain_.empty()) plain_ = run("plain", {}).checkpoint;
    return plain_;
  }
  // What a failure said; empty where the run came to its end, which then has the bits of an undisturbed one. Where it
  // did not, what was saved goes on to those bits.
  template <class E>
  std::string outcome(const std::string& name, const MemoryConfig& memory, memory::FaultyDisks& disks,
                      const std::function<void(int)>& at_step) {
    plain();
    const int64_t before = memory::stats(Device::cpu()).live_total;
    std::string text;
    try {
      const TrainResult r = run(name, memory, false, at_step);
      EXPECT_TRUE(r.finished);
      expect_same_checkpoints(plain(), r.checkpoint);
    } catch (const E& e) {
      text = e.what();
    }
    at_step_ = nullptr;
    if (at_step) at_step(0);  // what it holds goes
    disks.clear();
    memory::release_cached();  // what is under way ends
    EXPECT_LE(memory::stats(Device::cpu()).live_total, before) << text;
    EXPECT_TRUE(fs::is_empty(disk()));
    if (text.empty()) return text;
    if (has_run(dir_ / name)) {
      EXPECT_GE(find_run(dir_ / name).state.step, 2) << text;  // at least what was saved before the fault
    }
    const TrainResult last = run(name, memory, true);
    EXPECT_TRUE(last.finished);
    expect_same_checkpoints(plain(), last.checkpoint);
    return text;
  }

  std::string plain_;
  static std::function<void(int)> at_step_;  // what is called has no state of its own
  static int steps_;
};
std::function<void(int)> TierFaults::at_step_;
int TierFaults::steps_ = 0;

TEST_F(TierFaults, ShortAndInterruptedRequestsChangeNothing) {
  memory::FaultyDisks disks;
  std::mt19937 random(7);
  disks->length = [&](const DiskTransfer& t) {
    const size_t part = (random() % t.nbytes / memory::kDiskPage + 1) * memory::kDiskPage;
    return std::min(t.nbytes, random() % 2 == 0 ? part : t.nbytes);
  };
  disks->answer = [&](DiskTransfer&, int64_t n) {
    return random() % 8 == 0 ? -EINTR : random() % 8 == 0 ? -EAGAIN : n;
  };
  int64_t again = 0;
  const auto count = [&](int) { again = memory::disk()->stats().retried; };
  EXPECT_TRUE(run("short", way("all"), false, count).finished);
  EXPECT_GT(again, 100);
  expect_same_checkpoints(plain(), dir_ / "short/step-00000006");
}

TEST_F(TierFaults, ASlowDiskChangesNothing) {
  c_.steps = 3;
  memory::FaultyDisks disks;
  disks->before = [](const DiskTransfer& t) {
    std::this_thread::sleep_for(std::chrono::microseconds(t.write ? 900 : 300));
  };
  EXPECT_TRUE(run("slow", way("all")).finished);
  disks->before = nullptr;
  expect_same_checkpoints(plain(), dir_ / "slow/step-00000003");
}

// No read succeeds in the fourth step and after it, or from its end on, when it is to be saved.
TEST_F(TierFaults, AReadThatFailsEndsTheRunAndWhatWasSavedGoesOn) {
  for (const int last : {3, 4})
    for (const char* name : kWays) {
      if (last == 4 && std::string(name) != "all") continue;
      SCOPED_TRACE(cat(name, " ", last));
      memory::FaultyDisks disks;
      const std::string text = outcome<IoError>(cat("read-", name, last), way(name), disks, [&](int step) {
        const std::lock_guard lock(disks->mutex);
        if (step == last) disks->answer = [](DiskTransfer& t, int64_t n) { return t.write ? n : -EIO; };
      });
      EXPECT_NE(text.find("DiskStore: reading " + disk() + ", byte "), std::string::npos) << text;
      EXPECT_NE(text.find("Input/output error"), std::string::npos) << text;
    }
}

// The same of writes. Activations that cannot leave stay.
TEST_F(TierFaults, AWriteThatFailsEndsTheRunOrIsDoneWithout) {
  for (const int error : {EIO, ENOSPC})
    for (const char* name : kWays) {
      if (error == ENOSPC && std::string(name) != "state") continue;
      SCOPED_TRACE(cat(name, " ", error));
      memory::FaultyDisks disks;
      const std::string text = outcome<Error>(cat("write-", name, error), way(name), disks, [&](int step) {
        const std::lock_guard lock(disks->mutex);
        if (step == 3) disks->answer = [error](DiskTransfer& t, int64_t n) { return t.write ? -error : n; };
      });
      if (std::string(name) == "activations") {
        EXPECT_EQ(text, "");
        continue;
      }
      EXPECT_NE(text.find("DiskStore: writing " + disk() + ", byte "), std::string::npos) << text;
      EXPECT_NE(text.find(std::generic_category().message(error)), std::string::npos) << text;
    }
}

// A bit that comes back as another one.
TEST_F(TierFaults, APageWhoseChecksumFailsIsNeverComputedWith) {
  for (const char* name : kWays) {
    SCOPED_TRACE(name);
    memory::FaultyDisks disks;
    const std::string text = outcome<IoError>(std::string("sum-") + name, way(name), disks, [&](int step) {
      const std::lock_guard lock(disks->mutex);
      if (step == 3)
        disks->answer = [](DiskTransfer& t, int64_t n) {
          if (!t.write && n > 0) t.data[n / 2] ^= std::byte{16};
          return n;
        };
    });
    EXPECT_NE(text.find("this page is not what was written"), std::string::npos) << text;
  }
}

// Room is taken before anything is written to it. What has to have some ends the run; activations stay.
TEST_F(TierFaults, AFullDiskIsToldBeforeAnythingIsLost) {
  for (const char* name : kWays) {
    SCOPED_TRACE(name);
    memory::FaultyDisks disks;
    disks->reserve = [](int64_t, int64_t) { return ENOSPC; };
    const std::string text = outcome<MemoryError>(std::string("full-") + name, way(name), disks, nullptr);
    if (std::string(name) == "activations") {
      EXPECT_EQ(text, "");
      continue;
    }
    EXPECT_NE(text.find("No space left on device"), std::string::npos) << text;
    EXPECT_NE(text.find(disk()), std::string::npos) << text;
  }
}

// Others in the process (as other processes would, of a bound that both are within) take memory while a run is within
// its budget: it makes do with less, or says who holds what.
TEST_F(TierFaults, MemoryThatOthersTakeMeanwhile) {
  MemoryConfig m = way("all");
  const int64_t whole = plan_tiers(c_, {}, {}).peak_without, device = whole / 10 * 7;
  m.device = std::to_string(device);
  for (const auto& [part, name] : {std::pair(0.5, "half"), std::pair(0.9, "much")}) {
    SCOPED_TRACE(name);
    memory::FaultyDisks disks;  // that behave
    Tensor others;
    const std::string text = outcome<MemoryError>(name, m, disks, [&](int step) {
      if (step == 3) others = zeros({static_cast<int64_t>(part * static_cast<double>(device) / 4)});
      if (step == 0) others = {};
    });
    if (text.empty()) {
      EXPECT_LT(part, 0.9);
      continue;
    }
    EXPECT_NE(text.find("cannot get "), std::string::npos) << text;
    EXPECT_NE(text.find("are in use and the limit is "), std::string::npos) << text;
  }
}

// Killed while a write is under way, in the middle of a step: no clean-up of any kind runs.
TEST_F(TierFaults, KilledWhileItWritesLeavesNothingAndGoesOn) {
  // The process that is killed is this test again, with other temporary folders.
  ::setenv("STRATA_KILLED_RUN", (dir_ / "killed").c_str(), 0);
  ::setenv("STRATA_KILLED_DISK", disk().c_str(), 0);
  ::setenv("STRATA_KILLED_TEXT", c_.data.path.c_str(), 0);
  const std::string out = ::getenv("STRATA_KILLED_RUN"), folder = ::getenv("STRATA_KILLED_DISK");
  const std::string text = ::getenv("STRATA_KILLED_TEXT");
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto killed = [&] {
    memory::FaultyDisks disks;
    std::atomic<int> writes{-1};
    disks->before = [&](const DiskTransfer& t) {
      if (t.write && writes >= 0 && ++writes == 20) ::kill(::getpid(), SIGKILL);
    };
    TrainConfig c = c_;
    c.memory = way("all");
    c.memory.disk = folder;
    c.data.path = text;
    static std::atomic<int>* begin = &writes;
    train(c, {.out = out,
              .stop_requested =
                  [] {
                    if (++steps_ == 3) *begin = 0;
                    return false;
                  },
              .log = nullptr});
  };
  EXPECT_EXIT(killed(), testing::KilledBySignal(SIGKILL), "");
  for (const char* name : {"STRATA_KILLED_RUN", "STRATA_KILLED_DISK", "STRATA_KILLED_TEXT"}) ::unsetenv(name);
  EXPECT_TRUE(fs::is_empty(disk()));
  EXPECT_EQ(find_run(dir_ / "killed").state.step, 2);
  const TrainResult last = run("killed", way("all"), true);
  EXPECT_TRUE(last.finished);
  expect_same_checkpoints(plain(), last.checkpoint);
}

// Of a card: what has to be in page-locked memory says that there is none, activations stay on the card.
TEST_F(TierFaults, PageLockedMemoryThatEnds) {
  if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  c_.device = "cuda";
  c_.graph = "off";
  struct Limit {
    const int64_t before = memory::set_limit(1 << 20, Device::cpu(), Tier::pinned);
    ~Limit() { memory::set_limit(before, Device::cpu(), Tier::pinned); }
  };
  MemoryConfig m;
  m.activations = "host";
  {
    const Limit limit;
    EXPECT_TRUE(run("activations", m).finished);
  }
  expect_same_checkpoints(plain(), dir_ / "activations/step-00000006");
  m = {};
  m.state = "host";
  try {
    const Limit limit;
    run("state", m);
    ADD_FAILURE() << "state in page-locked memory that there is not";
  } catch (const MemoryError& e) {
    EXPECT_NE(std::string(e.what()).find("page-locked"), std::string::npos) << e.what();
  }
  expect_same_checkpoints(plain(), run("state", m, true).checkpoint);
}

}  // namespace
}  // namespace strata
