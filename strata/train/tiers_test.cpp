// Training under budgets: what a run computes does not depend on where its bytes are.

#include <filesystem>
#include <map>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "strata/core/error.h"
#include "strata/memory/allocator.h"
#include "strata/memory/tiers.h"
#include "strata/memory/transfers.h"
#include "strata/train/report.h"
#include "strata/train/run.h"
#include "strata/train/tier_plan.h"
#include "strata/train/trainer_test_util.h"

namespace strata {
namespace {

class Tiers : public TrainTest {
 protected:
  Tiers() {
    c_.model.layers = 4;
    c_.model.dim = 256;
    c_.model.context = 128;
    c_.batch = 8;
    c_.steps = 2;
    c_.save_every = 0;
    c_.memory.disk = "";
    std::filesystem::create_directories(dir_ / "disk");
  }
  TrainResult run(const char* name, const MemoryConfig& memory, bool resume = false) {
    TrainConfig c = c_;
    c.memory = memory;
    return train(c, {.out = dir_ / name, .resume = resume, .log = nullptr});
  }
  MemoryConfig with(const std::string& device) {
    MemoryConfig m;
    m.device = device;
    m.disk = dir_ / "disk";
    return m;
  }
  // The first of "state of ..".
  static std::string parameter_with_state(const std::set<std::string>& names) {
    for (const std::string& n : names)
      if (n.starts_with("state of ")) return n.substr(9);
    ADD_FAILURE() << "no state moved";
    return {};
  }
  std::string share(double part) {
    return std::to_string(static_cast<int64_t>(part * static_cast<double>(plan_tiers(c_, {}, {}).peak_without)));
  }
};

// ZeRO-Infinity, Horizon-LM, SSDTrain on the processor: state, weights and activations on a disk, each alone and
// together.
TEST_F(Tiers, EveryPlaceTrainsToTheSameBits) {
  for (const char* dtype : {"f32", "bf16"}) {
    c_.dtype = dtype;
    c_.model.layers = 3;
    const std::string plain = std::string("plain-") + dtype;
    const TrainResult wanted = run(plain.c_str(), {});
    int i = 0;
    const auto check = [&](auto&& set) {
      MemoryConfig m;
      m.disk = dir_ / "disk";
      set(m);
      const std::string name = std::string(dtype) + std::to_string(i++);
      SCOPED_TRACE(name);
      expect_same_checkpoints(wanted.checkpoint, run(name.c_str(), m).checkpoint);
    };
    check([](MemoryConfig& m) { m.activations = "disk"; });
    check([](MemoryConfig& m) { m.state = "disk"; });
    check([](MemoryConfig& m) { m.recompute = "blocks"; });
    check([](MemoryConfig& m) { m.parameters = m.state = "disk"; });
    check([](MemoryConfig& m) { m.parameters = m.state = m.activations = "disk", m.recompute = "blocks"; });
  }
  EXPECT_TRUE(std::filesystem::is_empty(dir_ / "disk"));  // files without names
}

// Every optimizer that a run can name, its state on a disk.
TEST_F(Tiers, AnyOptimizersStateHasAHome) {
  c_.model.layers = 1;
  for (const char* optimizer : {"adamw", "sgd", "lion", "adafactor", "muon"}) {
    SCOPED_TRACE(optimizer);
    c_.optim = OptimConfig{};
    c_.optim.optimizer = optimizer;
    c_.optim.lr = learning_rate(optimizer) / 10;
    c_.optim.weight_decay = 0;
    const std::string plain = std::string(optimizer) + "-plain", away = std::string(optimizer) + "-away";
    const TrainResult wanted = run(plain.c_str(), {});
    MemoryConfig m;
    m.disk = dir_ / "disk";
    m.state = "disk";
    expect_same_checkpoints(wanted.checkpoint, run(away.c_str(), m).checkpoint);
  }
}

TEST_F(Tiers, BudgetsAreKeptAndChangeNoNumber) {
  const TrainResult plain = run("plain", {});
  for (const double part : {0.8, 0.5, 0.4}) {
    const std::string name = "budget" + std::to_string(part), budget = share(part);
    SCOPED_TRACE(budget);
    const int64_t before = memory::stats(Device::cpu()).live_total;
    const TrainResult r = run(name.c_str(), with(budget));
    EXPECT_LE(r.peak_memory, std::stoll(budget));
    EXPECT_LT(r.peak_memory, plain.peak_memory);
    expect_same_checkpoints(plain.checkpoint, r.checkpoint);
    EXPECT_EQ(memory::stats(Device::cpu()).live_total, before);  // and all of it was given back
  }
  // A run afterwards has all the memory again.
  expect_same_checkpoints(plain.checkpoint, run("after", {}).checkpoint);
}

// Where nothing but calls run again, no byte moves; and the forecast is the peak.
TEST_F(Tiers, SingleCallsRunAgainToTheSameBits) {
  for (const char* dtype : {"f32", "bf16"}) {
    c_.dtype = dtype;
    c_.model.dim = 512;
    c_.model.layers = 3;
    MemoryConfig m;
    m.recompute = "calls";
    TrainConfig budgeted = c_;
    budgeted.memory = m;
    const TierPlan plan = plan_tiers(budgeted, {}, {});
    ASSERT_TRUE(plan.fits) << to_text(plan);
    EXPECT_GT(plan.calls.recomputed_bytes, 0) << to_text(plan);
    const std::string plain = std::string("plain-") + dtype, again = std::string("again-") + dtype;
    const TrainResult wanted = run(plain.c_str(), {}), r = run(again.c_str(), m);
    expect_same_checkpoints(wanted.checkpoint, r.checkpoint);
    EXPECT_LT(r.peak_memory, wanted.peak_memory);
    // The processor's kernels take workspace in backward, which no dry run sees.
    EXPECT_NEAR(static_cast<double>(r.peak_memory), static_cast<double>(plan.peak.device),
                0.08 * static_cast<double>(plan.peak.device));
  }
}

TEST_F(Tiers, AnotherBudgetGoesOnToTheSameBits) {
  c_.steps = 6;
  const TrainResult whole = run("whole", {});
  c_.max_seconds = 1e-3;  // stops after the first step, the schedule as it is
  const TrainResult first = run("parts", with(share(0.5)));
  EXPECT_EQ(first.step, 1);
  const std::string less = share(0.4);  // than weights and state take
  const TrainResult second = run("parts", with(less), true);
  EXPECT_EQ(second.step, 2);
  EXPECT_LE(second.peak_memory, std::stoll(less));
  c_.max_seconds = 0;
  const TrainResult last = run("parts", {}, true);
  EXPECT_TRUE(last.finished);
  expect_same_checkpoints(whole.checkpoint, last.checkpoint);
}

TEST_F(Tiers, ABudgetThatNoWayKeepsIsRefused) {
  try {
    run("little", with("64KiB"));
    FAIL() << "a model in 64 KiB";
  } catch (const MemoryError& e) {
    EXPECT_NE(std::string(e.what()).find("no way was found that keeps to the budget"), std::string::npos) << e.what();
    const std::string text = e.what(), told = "The smallest that would do: memory.device=";
    EXPECT_NE(text.find("64.00 KiB"), std::string::npos) << text;
    const size_t at = text.find(told);
    ASSERT_NE(at, std::string::npos) << text;
    const std::string least =
        text.substr(at + told.size(), text.find_first_of(" \n", at + told.size()) - at - told.size());
    EXPECT_TRUE(run("least", with(least)).finished) << least;
  }
  MemoryConfig nowhere = with("1GiB");
  nowhere.disk = dir_ / "no such folder";
  nowhere.state = "disk";
  EXPECT_THROW(run("nowhere", nowhere), IoError);
}

// The recorded step's time line: all that moves, named, beside compute.
TEST_F(Tiers, TheRecordedStepHasATrace) {
  MemoryConfig m;
  m.disk = dir_ / "disk";
  m.activations = m.state = m.parameters = "disk";
  c_.model.dim = 512;  // tensors of a MiB and more leave
  run("traced", m);
  const lab::Trace trace = read_trace(dir_ / "traced");
  std::map<std::string, std::set<std::string>> names;
  std::map<std::string, int64_t> bytes;
  for (const lab::TraceTrack& t : trace.tracks)
    for (const lab::TraceSpan& s : t.spans) {
      EXPECT_GE(s.begin, 0) << t.name << ": " << s.name;
      EXPECT_GE(s.end, s.begin) << t.name << ": " << s.name;
      names[t.name].insert(s.name);
      bytes[t.name] += s.bytes;
    }
  const std::string read = "read " + (dir_ / "disk"), write = "write " + (dir_ / "disk");
  EXPECT_GT(names["compute"].size(), 50u);
  EXPECT_GT(names["waiting"].size(), 0u);
  const std::string name = parameter_with_state(names[write]);
  EXPECT_TRUE(names[read].count("activations"));
  EXPECT_TRUE(names[write].count("activations"));
  EXPECT_TRUE(names[read].count(name)) << name;
  EXPECT_TRUE(names[read].count("state of " + name)) << name;
  EXPECT_TRUE(names[write].count("gradient of " + name)) << name;
  EXPECT_GT(bytes[read], 0);
  const lab::TraceSummary s = trace.summary();
  EXPECT_GT(s.compute, 0);
  EXPECT_LE(s.compute, s.seconds);
  EXPECT_LE(s.disk_hidden, s.disk);

  const std::string page = io::read_file(dir_ / "traced/report.html");
  EXPECT_NE(page.find("Time line of the recorded step"), std::string::npos);
  EXPECT_NE(page.find("compute busy"), std::string::npos);
  EXPECT_NE(report_html(read_run(dir_ / "traced")).find("compute busy"), std::string::npos);

  run("untraced", {});
  EXPECT_FALSE(std::filesystem::exists(dir_ / "untraced/step.trace.json"));
  EXPECT_EQ(io::read_file(dir_ / "untraced/report.html").find("Time line"), std::string::npos);
  EXPECT_TRUE(read_trace(dir_ / "untraced").tracks.empty());
  EXPECT_FALSE(memory::transfers_wanted());
}

}  // namespace
}  // namespace strata
