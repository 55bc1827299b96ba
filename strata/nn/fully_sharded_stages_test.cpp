// ZeRO 2 and 3 of the stages of a pipeline: the gradients of whole replicas, and what a rank holds.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <memory>

#include "strata/dist/collectives/placed.h"
#include "strata/dist/data_parallel.h"
#include "strata/dist/pipeline/pipeline.h"
#include "strata/dist/pipeline/schedules.h"
#include "strata/dist/processes_test_util.h"
#include "strata/dist/rank_threads.h"
#include "strata/memory/allocator.h"
#include "strata/nn/fully_sharded.h"
#include "strata/nn/fully_sharded_test_util.h"
#include "strata/ops/ops.h"
#include "strata/optim/optim.h"

namespace strata::nn {
namespace {

namespace pipeline = distributed::pipeline;
using distributed::Mesh;

constexpr int kMicros = 4, kRows = 3;

// Blocks that are shared out evenly among stages, a number at each end, and one that both ends read.
struct Blocks : Module {
  Blocks(int64_t width, int count) : Module("Blocks"), width(width) {
    manual_seed(3);
    for (int i = 0; i < count; ++i) all.push_back(Block(width));
    first = register_parameter("first", full({}, 0.9));
    last = register_parameter("last", full({}, 1.1));
  }
  int64_t width;
  ModuleList<Block> all = register_module("blocks", ModuleList<Block>());
  Tensor first, last;
};

struct Way {
  const char* schedule = "1f1b";
  int stages = 0;  // a rank; 0: as few as the schedule has
  int zero = 0;    // 0: DataParallel
  bool every_pass = true;
  int reshard_to = 0;
};

// Steps of a pipeline over "pp", whose ranks along "dp" have other micro-batches.
struct Staged final : pipeline::StageWork {
  Staged(const Way& way, int64_t width, int blocks)
      : net(width, blocks),
        table(pipeline::make_table(way.schedule, 2, kMicros, way.stages)),
        pipe(table, distributed::group("pp")) {
    const std::vector<int> here = table.stages_of(distributed::group("pp").rank());
    const auto is_here = [&](int stage) { return std::ranges::find(here, stage) != here.end(); };
    FullyShardedOptions o{
        .zero = way.zero, .bucket_bytes = 0, .reshard_to = way.reshard_to, .reduce_every_pass = way.every_pass};
    for (const Tensor& t : net.all[0].parameters()) o.bucket_bytes += t.nbytes();
    NamedTensors own;
    std::map<int, std::vector<std::string>> names;
    for (const auto& [name, t] : net.named_parameters()) {
      const int stage = stage_of(name);
      if (!is_here(stage)) {
        o.leave_out.push_back(name);
        continue;
      }
      own.emplace_back(name, t);
      names[stage].push_back(name);
      bytes += t.nbytes();
    }
    block_bytes = o.bucket_bytes;
    if (way.zero == 0) {
      replicas = std::make_unique<distributed::DataParallel>(own, distributed::group("dp"),
                                                             distributed::DataParallelOptions{block_bytes});
      parameters = own;
      return;
    }
    for (const auto& [stage, list] : names) {
      stages.push_back(stage);
      o.stages.push_back(list);
    }
    sharded = std::make_unique<FullySharded>(net, o);
    parameters = sharded->parameters();
  }
  int stage_of(const std::string& name) const {
    if (name == "first") return 0;
    if (name == "last") return table.stages - 1;
    return std::stoi(name.substr(std::string("blocks.").size())) / each();
  }
  int each() const { return static_cast<int>(net.all.size()) / table.stages; }

  Tensor forward(int stage, int micro, const Tensor& x) override {
    Tensor y = x.defined() ? x : inputs[static_cast<size_t>(micro)] * net.first;
    for (int i = 0; i < each(); ++i) y = net.all[static_cast<size_t>(stage * each() + i)].forward(y);
    return stage + 1 < table.stages ? y : mean(square(y * net.last)) * (1.0 / kMicros);
  }
  void before_gradients(const pipeline::Action& a) override {
    const bool last = a.micro + 1 == kMicros;
    if (replicas) return replicas->reduce_next(last);
    const auto stage = static_cast<size_t>(std::ranges::find(stages, a.stage) - stages.begin());
    sharded->reduce_next(stage, last, a.pass != pipeline::Pass::input_gradient);
  }
  void step(int number) {
    Generator random(static_cast<uint64_t>(100 * number + distributed::group("dp").rank()));
    inputs.clear();
    for (int m = 0; m < kMicros; ++m) inputs.push_back(randn({kRows, net.width}, DType::f32, random));
    {
      const FullySharded::Pass pass(sharded.get());
      pipe.run(*this, {{kRows, net.width}, DType::f32, Device::cpu(), {}});
    }
    replicas ? replicas->finish() : sharded->finish();
  }
  // Whole ones.
  std::map<std::string, std::vector<float>> gradients() const {
    std::map<std::string, std::vector<float>> all;
    for (const auto& [name, t] : parameters) all[name] = distributed::full_tensor(t.grad()).to_vector<float>();
    return all;
  }

  Blocks net;
  pipeline::Table table;
  pipeline::Pipeline pipe;
  int64_t bytes = 0, block_bytes = 0;  // of this rank's stages, and of a block
  std::vector<int> stages;
  std::unique_ptr<distributed::DataParallel> replicas;
  std::unique_ptr<FullySharded> sharded;
  NamedTensors parameters;
  TensorList inputs;
};

// Averages of every pass are added in another order.
TEST(FullySharded, StagesHaveTheGradientsOfWholeReplicas) {
  distributed::on_processes(4, [](int) {
    distributed::set_mesh(Mesh("pp=2 dp=2"));
    for (const auto& record : pipeline::schedule_records()) {
      const std::string schedule(record.name);
      const char* const name = schedule.c_str();
      Staged plain({name}, 6, 8);
      std::vector<std::unique_ptr<Staged>> ways;
      for (const Way& way : {Way{name, 0, 2}, Way{name, 0, 3, false}, Way{name, 0, 3, false, 1}, Way{name, 0, 3},
                             Way{name, 0, 3, true, 2}})
        ways.push_back(std::make_unique<Staged>(way, 6, 8));
      for (int step = 0; step < 3; ++step) {
        plain.step(step);
        const auto want = plain.gradients();
        for (size_t i = 0; i < ways.size(); ++i) {
          SCOPED_TRACE(cat(name, ", way ", i, ", step ", step));
          ways[i]->step(step);
          const auto got = ways[i]->gradients();
          ASSERT_EQ(got.size(), want.size());
          for (const auto& [parameter, g] : want) {
            if (i < 3) {
              EXPECT_EQ(got.at(parameter), g) << parameter;
              continue;
            }
            for (size_t k = 0; k < g.size(); ++k) ASSERT_NEAR(got.at(parameter)[k], g[k], 1e-6) << parameter;
          }
          for (auto [parameter, t] : ways[i]->parameters) t.set_grad({});
        }
        for (auto [parameter, t] : plain.parameters) t.set_grad({});
      }
    }
  });
}

TEST(FullySharded, StagesHoldTheirShareOfTheMemory) {
  distributed::on_processes(4, [](int rank) {
    distributed::set_mesh(Mesh("pp=2 dp=2"));
    using memory::Tag;
    struct Held {
      double parameters = 0, gradients = 0, after = 0, states = 0;  // at the peak of a step; gradients behind it
    };
    double whole = 0, block = 0;
    const auto held = [&](const Way& way) {
      Staged run(way, 128, 16);
      whole = static_cast<double>(run.bytes), block = static_cast<double>(run.block_bytes);
      double others = -whole;  // what other ranks' stages have
      for (const Tensor& t : run.net.parameters()) others += static_cast<double>(t.nbytes());
      optim::AdamW optimizer(run.parameters);
      Held h;
      for (int step = 0; step < 3; ++step) {
        memory::reset_peak(Device::cpu());
        run.step(step);
        const memory::Stats s = memory::stats(Device::cpu());
        const auto of = [](const auto& bytes, Tag tag) { return static_cast<double>(bytes[static_cast<size_t>(tag)]); };
        h.parameters = of(s.peak, Tag::parameter) - others;
        h.gradients = of(s.peak, Tag::gradient);
        h.after = of(s.live, Tag::gradient);
        optimizer.step();
        if (run.sharded) run.sharded->gather_updated();
        h.states = of(memory::stats(Device::cpu()).live, Tag::optimizer);
        optimizer.zero_grad();
      }
      if (rank == 0)
        std::printf("%s, zero %d, reshard %d: of %.0f bytes %.0f, gradients %.0f, then %.0f, states %.0f\n",
                    way.schedule, way.zero, way.reshard_to, whole, h.parameters, h.gradients, h.after, h.states);
      return h;
    };
    for (const char* schedule : {"1f1b", "zb-h1", "breadth-first"}) {
      SCOPED_TRACE(schedule);
      const int stages = schedule == std::string("breadth-first") ? 2 : 1;
      const Held plain = held({.schedule = schedule, .stages = stages}),
                 two = held({.schedule = schedule, .stages = stages, .zero = 2}),
                 three = held({.schedule = schedule, .stages = stages, .zero = 3}),
                 near = held({.schedule = schedule, .stages = stages, .zero = 3, .reshard_to = 1});
      const double slack = 0.1 * whole;  // blocks are larger under sanitizers, and which gradient comes first varies
      // Whole gradients add up beside the buckets of the step before.
      EXPECT_GE(plain.gradients, (stages == 1 ? 2 : 1.5) * whole - slack);
      EXPECT_GE(plain.after, whole - slack);
      EXPECT_GE(plain.states, 2 * whole - slack);
      for (const Held& h : {two, three, near}) {
        EXPECT_LE(h.after, whole / 2 + slack);
        EXPECT_LE(h.states, whole + slack);
      }
      EXPECT_LE(two.parameters, whole + slack);
      // A stage's whole ones until they travel, and behind that parts: of two stages one after the other.
      EXPECT_LE(two.gradients, (stages == 1 ? whole : 0.75 * whole) + 2 * block + slack);
      // Two blocks that are whole, and two blocks' gradients.
      EXPECT_LE(three.parameters, whole / 2 + 2 * block + slack);
      EXPECT_LE(three.gradients, whole / 2 + 2 * block + slack);
      // What was gathered stays until the end of the step.
      EXPECT_GE(near.parameters, 1.5 * whole - slack);
      EXPECT_LE(near.gradients, whole / 2 + 2 * block + slack);
    }
  });
}

// By the name of what is wrong.
TEST(FullySharded, StagesThatMakeNoSenseAreRefused) {
  distributed::run_as_ranks(Mesh("dp=2"), [](int) {
    const Blocks net(6, 1);
    std::vector<std::string> all;
    for (const auto& [name, t] : net.named_parameters()) all.push_back(name);
    const std::vector<std::string> rest(all.begin() + 1, all.end());
    for (const auto& [o, piece] : std::vector<std::pair<FullyShardedOptions, std::string>>{
             {{.zero = 1, .stages = {all}}, "zero is 1, and stages are for 2 and 3"},
             {{.zero = 1, .joined = {all[0]}}, "zero is 1, and stages are for 2 and 3"},
             {{.zero = 2, .micro_batches = 4, .stages = {all}}, "micro_batches is 4, which is not for stages"},
             {{.zero = 2, .stages = {rest}}, all[0] + " is in 0 of the 1 stages, wanted one"},
             {{.zero = 3, .stages = {all, {all[0]}}}, all[0] + " is in 2 of the 2 stages, wanted one"}}) {
      std::string text;
      try {
        const FullySharded sharded(net, o);
      } catch (const ValueError& e) {
        text = e.what();
      }
      is(text.find(piece) != std::string::npos, cat("no '", piece, "' in: ", text));
    }
    FullySharded sharded(net, {.zero = 2, .stages = {all}});
    bool refused = false;
    try {
      sharded.reduce_next(1, true, true);
    } catch (const ValueError&) {
      refused = true;
    }
    is(refused, "a stage that there is not is taken");
  });
}

}  // namespace
}  // namespace strata::nn
