// ZeRO 1, 2 and 3 against DataParallel, bit for bit, between ranks that are threads.

#include "strata/nn/fully_sharded.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "strata/autograd/autograd.h"
#include "strata/autograd/hooks.h"
#include "strata/core/autocast.h"
#include "strata/core/placement.h"
#include "strata/core/samples.h"
#include "strata/dist/collectives/placed.h"
#include "strata/dist/data_parallel.h"
#include "strata/dist/exact_gradients.h"
#include "strata/dist/parts_inl.h"
#include "strata/dist/processes_test_util.h"
#include "strata/dist/rank_threads.h"
#include "strata/nn/fully_sharded_test_util.h"
#include "strata/nn/tensor_parallel.h"
#include "strata/optim/optim.h"
#include "strata/optim/whole_squares_inl.h"

namespace strata::nn {
namespace {

using distributed::Mesh;
using distributed::run_as_ranks;

struct Way {
  int zero = 0;
  int ranks = 3;
  int passes = 1;
  bool adamw = true;
  bool clips = false;
  bool again = false;  // checkpointed blocks
  bool autocast = false;
  bool all_use = true;  // the scale
  int64_t width = Net::kWidth;
  FullyShardedOptions options = {};
  std::string mesh = "dp=3";
  bool cut = false;  // along "tp", before
};

// Rows in uneven units, columns, segments, and a table: what is cut is cut again.
distributed::ShardPlan plan_of(const Net& net) {
  distributed::ShardPlan plan;
  for (size_t i = 0; i < net.all.size(); ++i) {
    const std::string at = cat("blocks.", i, '.');
    const Placement rows = i == 0   ? Placement::sharded(0)
                           : i == 1 ? parse_placements("S(0,segments=4+2+7)")[0]
                                    : parse_placements("S(0,unit=13)")[0];  // all of it is rank 0's
    plan.weights.push_back({at + "up.weight", rows});
    plan.weights.push_back({at + "up.bias", rows});
    Placement columns = rows;
    columns.dim = 1;
    plan.weights.push_back({at + "down.weight", columns});
    plan.branches.push_back(cat("blocks.", i));
  }
  plan.weights.push_back({"table", Placement::sharded(0)});
  return plan;
}

std::unique_ptr<optim::Optimizer> make(const Way& way, const NamedTensors& params) {
  if (way.adamw) return std::make_unique<optim::AdamW>(params, optim::AdamWOptions{.lr = 1e-2, .weight_decay = 0.1});
  return std::make_unique<optim::SGD>(params, optim::SGDOptions{.lr = 0.05, .momentum = 0.9});
}

using Bytes = std::vector<std::pair<std::string, std::vector<float>>>;

struct Trained {
  Bytes parameters;
  std::vector<double> losses;
  bool operator==(const Trained&) const = default;
};

// What one rank's training gives.
Trained train_here(const Way& way, int rank, int steps = 4) {
  Trained result;
  Net net(static_cast<uint64_t>(rank + 1), way.width);  // rank 0's weights win
  if (way.cut) distributed::shard_module(net, plan_of(net), "tp", {.sequence = false});
  std::unique_ptr<distributed::DataParallel> ddp;
  std::unique_ptr<FullySharded> sharded;
  FullyShardedOptions o = way.options;
  o.zero = way.zero;
  if (way.zero == 0)
    ddp = std::make_unique<distributed::DataParallel>(net.named_parameters(),
                                                      distributed::group(way.cut ? "dp" : "world"));
  else
    sharded = std::make_unique<FullySharded>(net, o);
  NamedTensors params;
  if (sharded) {
    params = sharded->parameters();
  } else {
    for (const auto& [name, t] : net.named_parameters())
      if (t.requires_grad()) params.emplace_back(name, t);
  }
  const auto optimizer = make(way, params);
  for (int step = 0; step < steps; ++step) {
    optimizer->zero_grad();
    double total = 0;
    for (int pass = 0; pass < way.passes; ++pass) {
      const FullySharded::Pass scope(sharded.get());
      std::optional<AutocastScope> low;
      if (way.autocast) low.emplace(DType::bf16);
      const bool last = pass + 1 == way.passes;
      ddp ? ddp->reduce_next(last) : sharded->reduce_next(last);
      const int batch = way.cut ? distributed::group("dp").rank() : rank;
      const Tensor l = net.loss(words(batch, step, pass), way.all_use || batch == 1, way.again);
      total += l.item();
      l.backward();
    }
    ddp ? ddp->finish() : sharded->finish();
    way.clips ? void(optimizer->step_clipped(0.05)) : optimizer->step();
    if (sharded) sharded->gather_updated();
    result.losses.push_back(total);
  }
  for (const auto& [name, t] : net.named_parameters()) result.parameters.emplace_back(name, t.to_vector<float>());
  return result;
}

// Rank 0's parameters after some steps, and its losses.
Bytes train(const Way& way, std::vector<double>* losses = nullptr) {
  Trained result;
  run_as_ranks(Mesh(way.mesh), [&](int rank) {
    Trained mine = train_here(way, rank);
    if (rank == 0) result = std::move(mine);
  });
  if (losses) *losses = result.losses;
  return result.parameters;
}

void expect_same(const Way& way, const std::string& what) {
  Way plain = way;
  plain.zero = 0;
  plain.again = false;
  std::vector<double> want_losses, losses;
  const Bytes want = train(plain, &want_losses), got = train(way, &losses);
  EXPECT_EQ(losses, want_losses) << what;
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(got[i].first, want[i].first);
    EXPECT_EQ(got[i].second, want[i].second) << what << ": " << want[i].first;
  }
}

// Sums in another order.
void expect_near(const Bytes& got, const Bytes& want) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i)
    for (size_t k = 0; k < want[i].second.size(); ++k)
      ASSERT_NEAR(got[i].second[k], want[i].second[k], 1e-5 * (1 + std::abs(want[i].second[k]))) << want[i].first;
}

TEST(FullySharded, HasTheBitsOfDataParallel) {
  for (const int zero : {1, 2, 3}) {
    for (const bool adamw : {true, false}) {
      for (const bool clips : {false, true}) {
        expect_same({.zero = zero, .adamw = adamw, .clips = clips},
                    cat("zero=", zero, adamw ? " AdamW" : " SGD", clips ? " clipped" : ""));
      }
    }
  }
}

TEST(FullySharded, WhateverTheBucketsAndTheRanks) {
  for (const int zero : {2, 3}) {
    for (const int64_t bytes : {int64_t{1}, int64_t{500}}) {
      for (const char* mesh : {"dp=1", "dp=2", "dp=4"}) {
        expect_same({.zero = zero, .options = {.bucket_bytes = bytes}, .mesh = mesh}, cat("zero=", zero, ' ', mesh));
      }
    }
  }
}

// Backward goes on where small gradients follow a large one that still travels. Rank 1 holds the second large one back
// until rank 0 has come to the end of its backward, where it would not come if it waited for that one.
TEST(FullySharded, SmallGradientsDoNotWaitForALargeOne) {
  distributed::on_processes(2, [](int rank) {
    distributed::set_mesh(Mesh("dp=2"));
    Sequential net(Linear(8, 8, false), Linear(8, 64, false), Linear(64, 64, false), Linear(64, 64, false));
    const NamedTensors all = net.named_parameters();
    const auto told = std::filesystem::temp_directory_path() / cat("strata-backward-", getppid());
    bool came = true;
    HookHandle first, third;
    if (rank == 0)
      first = register_post_accumulate_grad_hook(all[0].second, [&](const Tensor&) { std::ofstream{told}; });
    else
      third = register_post_accumulate_grad_hook(all[2].second, [&](const Tensor&) {
        for (int i = 0; i < 500 && !std::filesystem::exists(told); ++i)
          std::this_thread::sleep_for(std::chrono::milliseconds(10));
        came = std::filesystem::exists(told);
      });
    FullySharded sharded(net, {.zero = 2, .bucket_bytes = 1});
    sum(net.forward(Samples(DType::f32, 3).tensor({4, 8}))).backward();
    sharded.finish();
    EXPECT_TRUE(came);
    for (const auto& [name, p] : sharded.parameters()) EXPECT_TRUE(p.grad().defined()) << name;
    if (rank == 1) std::filesystem::remove(told);
  });
}

// They come straight to their places, the others by way of one buffer: weights of 401 rows of 200 on 3 ranks, and those
// of 200 rows of 401 on 4.
TEST(FullySharded, LargeParametersBesideSmallOnes) {
  for (const int zero : {1, 2, 3}) expect_same({.zero = zero, .width = 200}, cat("zero=", zero));
  expect_same({.zero = 3, .width = 200, .options = {.reshard_to = 2}, .mesh = "dp=4"}, "to 2 of 4");
}

TEST(FullySharded, PassesAddUp) {
  for (const int zero : {1, 2}) expect_same({.zero = zero, .passes = 3}, cat("zero=", zero));
  expect_same({.zero = 3, .passes = 3, .options = {.reduce_every_pass = false}}, "whole gradients add up");
  // Where every pass's gradients travel, sums are taken in another order.
  const Way way{.zero = 3, .passes = 3, .adamw = false};
  Way plain = way;
  plain.zero = 0;
  const Bytes want = train(plain), got = train(way);
  expect_near(got, want);
}

TEST(FullySharded, WhatOneRankUsesCountsAsZeroOnTheOthers) {
  for (const int zero : {1, 2, 3}) expect_same({.zero = zero, .all_use = false}, cat("zero=", zero));
}

TEST(FullySharded, BlocksThatRunAgainAreGatheredAgain) {
  expect_same({.zero = 3, .again = true}, "checkpoint");
}

// Elements that this process has gathered of blocks' parameters in bf16 and in f32, by the flight recorder, of a step.
std::pair<int64_t, int64_t> gathered_of_blocks(int64_t step) {
  int64_t low = 0, full = 0;
  for (const distributed::CollectiveEntry& e : distributed::recorder().entries()) {
    if (e.step != step || !e.what.starts_with("gather blocks.")) continue;
    const auto elements = [&](const std::string& dtype) {
      const size_t at = e.what.find(dtype);
      return at == std::string::npos ? 0 : std::stoll(e.what.substr(at + dtype.size()));
    };
    low += elements(" bf16 [");
    full += elements(" f32 [");
  }
  return {low, full};
}

// Threads that are ranks share the lock of autocast's copies, so that these are processes.
TEST(FullySharded, CopiesForAutocastAreGatheredInItsPrecision) {
  distributed::on_processes(2, [](int rank) {
    distributed::set_mesh(Mesh("dp=2"));
    for (const int zero : {1, 2, 3}) {
      const Way way{.zero = zero, .autocast = true};
      Way plain = way;
      plain.zero = 0;
      EXPECT_EQ(train_here(way, rank), train_here(plain, rank)) << zero;
    }
    // What a linear layer has comes in bf16 once there is a copy.
    Net net(1);
    FullySharded sharded(net);
    optim::SGD optimizer(sharded.parameters(), {.lr = 0.01});
    for (int step = 0; step < 3; ++step) {
      distributed::recorder().set_step(100 + step);
      {
        const FullySharded::Pass pass(&sharded);
        const AutocastScope low(DType::bf16);
        net.loss(words(rank, step, 0), true).backward();
      }
      sharded.finish();
      optimizer.step();
      optimizer.zero_grad();
      sharded.gather_updated();
    }
    const auto [low, full] = gathered_of_blocks(102);
    const Block& b = net.all[0];
    const int64_t layers = b.up.weight.numel() + b.up.bias.numel() + b.down.weight.numel() + b.down.bias.numel();
    // Three blocks; the last is still there when its backward comes, and two come again.
    EXPECT_EQ(low, 5 * layers);
    EXPECT_EQ(full, 5 * 2 * Net::kWidth);  // the norms
  });
}

// A table of which rows are read, tied to the head, in autocast: in f32 at the beginning, where it does not come behind
// what is for the blocks, and in bf16 at the end.
TEST(FullySharded, WhatTheFirstCallReadsComesFirst) {
  distributed::on_processes(2, [](int rank) {
    distributed::set_mesh(Mesh("dp=2"));
    struct Tied : Module {
      Tied() : Module("Tied") {
        manual_seed(1);
        table = register_parameter("table", randn({64, 8}) * 0.3);
        for (int i = 0; i < 3; ++i) blocks.push_back(Block(8));
      }
      Tensor loss(const Tensor& words) const {
        Tensor x = index_select(table, 0, words);
        for (const Block& b : blocks) x = b.forward(x);
        return mean(square(linear(x, table)));
      }
      ModuleList<Block> blocks = register_module("blocks", ModuleList<Block>());
      Tensor table;
    };
    Tied net;
    FullySharded sharded(net, {.bucket_bytes = 1});  // travel while backward runs
    optim::SGD optimizer(sharded.parameters(), {.lr = 0.01});
    for (int step = 0; step < 3; ++step) {
      distributed::recorder().set_step(200 + step);
      {
        const FullySharded::Pass pass(&sharded);
        const AutocastScope low(DType::bf16);
        net.loss(words(rank, step, 0)).backward();
      }
      sharded.finish();
      optimizer.step();
      optimizer.zero_grad();
      sharded.gather_updated();
    }
    std::vector<std::string> gathers;
    for (const distributed::CollectiveEntry& e : distributed::recorder().entries())
      if (e.step == 202 && e.what.starts_with("gather ")) gathers.push_back(e.what);
    ASSERT_GT(gathers.size(), 4u);
    EXPECT_EQ(gathers[0], "gather table f32 [512]");
    EXPECT_TRUE(gathers[1].starts_with("gather blocks.0.")) << gathers[1];
    EXPECT_EQ(std::ranges::count(gathers, "gather table in bf16 bf16 [512]"), 1);
    // The table, three blocks, the table, and the blocks again, the last of which is still there: gradients that have
    // come ask for nothing.
    EXPECT_LE(gathers.size(), 7u);
    for (const std::string& g : gathers)
      EXPECT_TRUE(!g.starts_with("gather blocks.") || g.find(" more ") != std::string::npos) << g;
    EXPECT_EQ(sharded.stats().unforeseen, 0);
  });
}

TEST(FullySharded, ParametersMayStayWholeOrUntilBackward) {
  expect_same({.zero = 3, .options = {.reshard_to = 1}}, "never resharded");
  expect_same({.zero = 3, .options = {.whole_below = 20}}, "small ones whole");
}

TEST(FullySharded, BlocksMayLieAmongNeighboursUntilBackward) {
  for (const int n : {2, 4}) {
    expect_same({.zero = 3, .options = {.reshard_to = n}, .mesh = "dp=4"}, cat("to ", n));
    expect_same({.zero = 3, .again = true, .options = {.reshard_to = n}, .mesh = "dp=4"}, cat("checkpoint, to ", n));
    expect_same({.zero = 3, .passes = 2, .options = {.reshard_to = n, .reduce_every_pass = false}, .mesh = "dp=4"},
                cat("passes, to ", n));
  }
}

// What tensor parallelism leaves a rank is cut again: the bits of whole replicas of the parts.
TEST(FullySharded, PartsOfCutParameters) {
  for (const int zero : {1, 2, 3}) {
    for (const bool clips : {false, true})
      expect_same({.zero = zero, .clips = clips, .mesh = "dp=2 tp=2", .cut = true}, cat("zero=", zero));
    expect_same({.zero = zero, .all_use = false, .mesh = "dp=3 tp=2", .cut = true}, cat("three, zero=", zero));
  }
  expect_same({.zero = 3, .again = true, .mesh = "tp=2 dp=2", .cut = true}, "checkpoint");
  expect_same({.zero = 3,
               .passes = 2,
               .options = {.reshard_to = 2, .reduce_every_pass = false},
               .mesh = "dp=4 tp=2",
               .cut = true},
              "neighbours, passes");
}

// Parts among all ranks of two axes.
TEST(FullySharded, SeveralAxesAreOne) {
  for (const int zero : {1, 2, 3})
    expect_same({.zero = zero, .clips = true, .options = {.axis = "dp+cp"}, .mesh = "dp=2 cp=2"}, cat("zero=", zero));
}

TEST(FullySharded, ACutParameterLiesOnBothAxes) {
  run_as_ranks(Mesh("dp=2 tp=2"), [](int rank) {
    Net net(1);
    const std::vector<float> want = net.all[1].up.weight.to_vector<float>();
    distributed::shard_module(net, plan_of(net), "tp");
    FullySharded sharded(net, {.zero = 3});
    for (const auto& [name, t] : sharded.parameters()) {
      if (name == "blocks.1.up.weight") {
        is(distributed::placements_of(t) == "S(0,segments=4+2+7) S(0,part)", distributed::placements_of(t));
        is(local_part(t).size(0) == (rank == 0 ? 4 : 3), cat("rows: ", local_part(t).size(0)));
        is(distributed::full_tensor(t).to_vector<float>() == want, "the whole is another one");
      }
      if (name == "blocks.1.down.weight")
        is(distributed::placements_of(t) == "S(1,segments=4+2+7) S(0)", distributed::placements_of(t));
      if (name == "blocks.1.norm.weight") is(distributed::placements_of(t) == "S(0)", distributed::placements_of(t));
    }
    is(lies_in_parts(net.all[1].up.weight), "it does not come and go");
    is(distributed::placements_of(as_it_lies(net.all[1].up.weight)) == "S(0,segments=4+2+7) S(0,part)", "as it lies");
    // Parts along the axis itself are no parameters of it.
    bool refused = false;
    try {
      Net other(1);
      distributed::shard_module(other, plan_of(other), "dp");
      const FullySharded twice(other, {.zero = 1});
    } catch (const ValueError& e) {
      refused = std::string(e.what()).find("lies in parts along 'dp' already") != std::string::npos;
    }
    is(refused, "taken");
  });
}

TEST(FullySharded, ReplicasAverageParts) {
  // Sums of sums: another order than all at once.
  for (const int zero : {1, 2, 3}) {
    Way way{.zero = zero, .adamw = false, .options = {.replicas = "out"}, .mesh = "out=2 dp=2"};
    Way plain = way;
    plain.zero = 0;
    const Bytes want = train(plain), got = train(way);
    expect_near(got, want);
  }
}

TEST(FullySharded, ARankHasItsRows) {
  run_as_ranks(Mesh("dp=3"), [](int rank) {
    Net net(1);
    const std::vector<float> whole = net.table.to_vector<float>();
    FullySharded sharded(net, {.zero = 3});
    is(net.table.to_vector<float>() == whole, "the table is another one");
    for (const auto& [name, t] : sharded.parameters()) {
      if (name == "number") continue;
      is(is_placed(t) && distributed::placements_of(t) == "S(0)",
         cat(name, " lies as ", distributed::placements_of(t)));
      if (name == "pair") is(local_part(t).size(0) == (rank < 2 ? 1 : 0), "the parts of 2 rows");
      if (name == "table") {
        const std::vector<float> part = local_part(t).to_vector<float>();
        const size_t begin = rank == 0 ? 0 : rank == 1 ? 4 * 6 : 8 * 6;
        is(part == std::vector<float>(whole.begin() + static_cast<int64_t>(begin),
                                      whole.begin() + static_cast<int64_t>(begin + part.size())),
           "the rows are others");
      }
    }
    is(sharded.blocks().size() >= 3, "no blocks");
  });
}

// What training by the sums of `micro_batches` gives, and the norms: on one rank with whole gradients, else with parts.
struct Summed {
  Bytes parameters;
  std::vector<double> norms;
  bool operator==(const Summed&) const = default;
};
Summed summed(int zero, int ranks, int64_t micro_batches, FullyShardedOptions o = {}, bool cut = false) {
  std::vector<Summed> of(static_cast<size_t>(ranks * (cut ? 2 : 1)));
  run_as_ranks(Mesh(cat("dp=", ranks, cut ? " tp=2" : "")), [&](int at) {
    const int rank = cut ? at / 2 : at;
    // Wide enough that ranks share chunks of the norm, and have whole ones alone.
    Net net(static_cast<uint64_t>(rank + 1), cut ? Net::kWidth : 130, cut ? 3 : 2);
    if (cut) distributed::shard_module(net, plan_of(net), "tp", {.sequence = false});
    std::optional<distributed::ExactGradients> exact;
    std::optional<FullySharded> sharded;
    std::optional<optim::WholeSquares> squares;
    NamedTensors trained;
    for (const auto& [name, t] : net.named_parameters())
      if (t.requires_grad()) trained.emplace_back(name, t);
    o.zero = zero, o.micro_batches = micro_batches;
    if (zero == 0) {
      exact.emplace(trained, nullptr, micro_batches);
    } else {
      sharded.emplace(net, o);
      std::vector<optim::WholeSquares::Gradient> gradients;
      const NamedTensors parts = sharded->parameters();
      for (size_t i = 0; i < parts.size(); ++i) {
        const Tensor& whole = trained[i].second;
        is(parts[i].first == trained[i].first, "another order");
        std::vector<int64_t> begins(static_cast<size_t>(ranks) + 1, 1);
        begins[0] = 0;
        if (whole.dim() > 0) begins = distributed::Cut(strata::detail::here(whole).shape(), ranks).begins;
        gradients.push_back({parts[i].second, whole, begins});
      }
      squares.emplace(gradients, "dp");
    }
    optim::AdamW optimizer(sharded ? sharded->parameters() : trained, {.lr = 1e-2, .weight_decay = 0.1});
    Summed& mine = of[static_cast<size_t>(at)];
    for (int step = 0; step < 3; ++step) {
      optimizer.zero_grad();
      const int64_t own = micro_batches / ranks;
      for (int64_t i = 0; i < own; ++i) {
        const auto number = static_cast<int>(i * ranks + rank);
        const FullySharded::Pass scope(sharded ? &*sharded : nullptr);
        if (sharded) sharded->reduce_next(i + 1 == own);
        net.loss(words(number, step, 0), number % 3 == 1).backward();
        if (exact) exact->add();
        is(number % 2 == 1 || !net.table.grad().defined(), "a whole gradient stays");
      }
      exact ? exact->finish() : sharded->finish();
      const Tensor report = optimizer.step_guarded({.max_norm = 0.05, .squares = squares ? squares->sum() : Tensor()});
      mine.norms.push_back(optim::StepReport::of(report.data<double>()).norm);
      if (sharded) sharded->gather_updated();
    }
    for (const auto& [name, t] : net.named_parameters()) mine.parameters.emplace_back(name, t.to_vector<float>());
  });
  for (const Summed& s : of) EXPECT_EQ(s, of[0]) << "ranks differ";
  return of[0];
}

TEST(FullySharded, SumsOfMicroBatchesHaveTheBitsOfOneProcess) {
  for (const auto& [micro_batches, all_ranks] :
       std::vector<std::pair<int64_t, std::vector<int>>>{{8, {2, 4}}, {6, {2, 3}}, {4, {4}}}) {
    const Summed one = summed(0, 1, micro_batches);
    EXPECT_GT(one.norms[0], 0.05) << "nothing is clipped";
    for (const int ranks : all_ranks)
      for (const int zero : {2, 3})
        EXPECT_EQ(summed(zero, ranks, micro_batches), one)
            << "zero " << zero << ", " << ranks << " ranks, " << micro_batches;
  }
  const Summed one = summed(0, 1, 4);
  for (const int64_t bytes : {int64_t{1}, int64_t{3000}, int64_t{200'000}})
    EXPECT_EQ(summed(3, 2, 4, {.bucket_bytes = bytes}), one) << bytes;
  EXPECT_EQ(summed(3, 4, 4, {.reshard_to = 2}), one);
  EXPECT_EQ(summed(3, 2, 4, {.whole_below = 5000}), one);
  // Of weights that another axis has cut: those of one way of cutting.
  const Summed cut = summed(2, 1, 4, {}, true);
  for (const int zero : {2, 3}) EXPECT_EQ(summed(zero, 2, 4, {}, true), cut) << zero;
}

TEST(FullySharded, MicroBatchesAreCounted) {
  run_as_ranks(Mesh("dp=2"), [](int rank) {
    Net net(1);
    const auto error = [](const auto& f) -> std::string {
      try {
        f();
      } catch (const ValueError& e) {
        return e.what();
      }
      return "nothing";
    };
    const auto says = [](const std::string& text, const std::string& piece) {
      is(text.find(piece) != text.npos, text);
    };
    says(error([&] { const FullySharded odd(net, {.zero = 2, .micro_batches = 3}); }),
         "3 micro-batches, which 2 ranks");
    says(error([&] { const FullySharded first(net, {.zero = 1, .micro_batches = 2}); }), "which is for zero 2 and 3");
    FullySharded sharded(net, {.zero = 2, .micro_batches = 4});
    says(error([&] { net.loss(words(rank, 0, 0), true).backward(); }), "told of no micro-batch");
    sharded.reduce_next(false);
    net.loss(words(rank, 0, 0), true).backward();
    says(error([&] { sharded.finish(); }), "has 2 micro-batches of the step, and 1 have come");
    sharded.reduce_next(false);
    net.loss(words(rank, 0, 0), true).backward();
    says(error([&] { sharded.reduce_next(true); }), "and all have come");
    says(error([&] {
           const optim::WholeSquares one({{net.scale, net.scale, {0, 6}}}, "dp");
         }),
         "has 2 places, wanted one for each of the 2 ranks of 'dp' and the end");
    optim::SGD optimizer({{"scale", net.scale}}, {.lr = 1});
    bool refused = false;
    try {
      optimizer.step_guarded({.squares = ones({})});
    } catch (const DTypeError& e) {
      refused = std::string(e.what()).find("the squares must be f64") != std::string::npos;
    }
    is(refused, "squares in f32 are taken");
  });
}

TEST(FullySharded, RefusesWhatMakesNoSense) {
  run_as_ranks(Mesh("dp=2"), [](int) {
    Net net(1);
    for (const FullyShardedOptions& o :
         {FullyShardedOptions{.zero = 4}, FullyShardedOptions{.axis = "tp"}, FullyShardedOptions{.replicas = "dp"},
          FullyShardedOptions{.bucket_bytes = 0}, FullyShardedOptions{.whole_below = -1},
          FullyShardedOptions{.reshard_to = -1}, FullyShardedOptions{.reshard_to = 3}}) {
      bool refused = false;
      try {
        const FullySharded sharded(net, o);
      } catch (const ValueError&) {
        refused = true;
      }
      is(refused, "taken");
    }
  });
}

}  // namespace
}  // namespace strata::nn
