// ZeRO 1, 2 and 3 against DataParallel, bit for bit, between ranks that are threads; what a rank keeps; what travels
// when.

#include "strata/nn/fully_sharded.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "strata/autograd/autograd.h"
#include "strata/autograd/checkpoint.h"
#include "strata/core/autocast.h"
#include "strata/core/placement.h"
#include "strata/dist/collectives/placed.h"
#include "strata/dist/data_parallel.h"
#include "strata/dist/processes_test_util.h"
#include "strata/dist/rank_threads.h"
#include "strata/memory/allocator.h"
#include "strata/nn/nn.h"
#include "strata/ops/ops.h"
#include "strata/optim/optim.h"

namespace strata::nn {
namespace {

using distributed::Mesh;
using distributed::run_as_ranks;

// What an expectation of every rank says.
void is(bool ok, const std::string& what) {
  if (!ok) throw std::runtime_error(what);
}

struct Block : Module {
  explicit Block(int64_t width) : Module("Block"), up(width, 2 * width + 1), down(2 * width + 1, width), norm(width) {
    register_module("up", up);
    register_module("down", down);
    register_module("norm", norm);
  }
  Tensor forward(const Tensor& x) const {
    const ModuleCall in(*this);
    return x + down(gelu(up(norm(x))));
  }
  Linear up, down;
  LayerNorm norm;
};

// A tied table at both ends, blocks, a scale that only some ranks use, a number, a frozen matrix, one that nobody uses.
struct Net : Module {
  static constexpr int64_t kWords = 11, kWidth = 6;
  explicit Net(uint64_t seed, int64_t width = kWidth, int blocks = 3) : Module("Net") {
    static std::mutex mutex;  // ranks are threads, and draw from one generator
    const std::lock_guard lock(mutex);
    manual_seed(seed);
    table = register_parameter("table", randn({kWords, width}) * 0.3);
    for (int i = 0; i < blocks; ++i) all.push_back(Block(width));
    scale = register_parameter("scale", ones({width}));
    number = register_parameter("number", full({}, 0.9));
    Generator same(7);  // what is frozen DataParallel leaves to each rank
    frozen = register_parameter("frozen", randn({width, width}, DType::f32, same) * 0.3);
    frozen.set_requires_grad(false);
    idle = register_parameter("idle", randn({3, 2}));
    pair = register_parameter("pair", randn({2, width}));  // fewer rows than ranks
  }
  Tensor loss(const Tensor& words, bool scaled, bool again = false) const {
    Tensor x = index_select(table, 0, words);
    for (const Block& b : all) x = again ? checkpoint([&b](const Tensor& t) { return b.forward(t); }, x) : b.forward(x);
    if (scaled) x = x * scale;
    x = matmul(x, frozen) * number + sum(pair, {0}, false);
    return mean(square(matmul(x, table.t())));
  }
  ModuleList<Block> all = register_module("blocks", ModuleList<Block>());
  Tensor table, scale, number, frozen, idle, pair;
};

Tensor words(int rank, int step, int pass) {
  std::vector<int64_t> w;
  for (int64_t i = 0; i < 9; ++i) w.push_back((i * (rank + 2) + 3 * step + 5 * pass) % Net::kWords);
  return from_span<int64_t>(w, {9});
}

struct Way {
  int zero = 0;
  int ranks = 3;
  int passes = 1;
  bool adamw = true;
  bool clips = false;
  bool again = false;  // checkpointed blocks
  bool autocast = false;
  bool all_use = true;  // the scale
  FullyShardedOptions options = {};
  std::string mesh = "dp=3";
};

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
  Net net(static_cast<uint64_t>(rank + 1));  // rank 0's weights win
  std::unique_ptr<distributed::DataParallel> ddp;
  std::unique_ptr<FullySharded> sharded;
  FullyShardedOptions o = way.options;
  o.zero = way.zero;
  if (way.zero == 0)
    ddp = std::make_unique<distributed::DataParallel>(net.named_parameters(), distributed::group("world"));
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
      const Tensor l = net.loss(words(rank, step, pass), way.all_use || rank == 1, way.again);
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

// Bytes that this process has gathered of parameters in bf16 and in f32, by the flight recorder, of a step.
std::pair<int, int> gathers_of(int64_t step) {
  int low = 0, full = 0;
  for (const distributed::CollectiveEntry& e : distributed::recorder().entries()) {
    if (e.step != step || !e.what.starts_with("gather ") || e.what.find(".weight") == std::string::npos) continue;
    (e.what.find(" bf16 [") != std::string::npos ? low : full) += e.what.find("norm") == std::string::npos ? 1 : 0;
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
    // A linear layer's weight comes in bf16 once there is a copy.
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
    const auto [low, full] = gathers_of(102);
    EXPECT_EQ(low, 2 * 3 + 2);  // two layers of three blocks; one block has gone when its backward comes
    EXPECT_EQ(full, 0);
  });
}

TEST(FullySharded, ParametersMayStayWholeOrUntilBackward) {
  expect_same({.zero = 3, .options = {.reshard_after_forward = false}}, "never resharded");
  expect_same({.zero = 3, .options = {.whole_below = 20}}, "small ones whole");
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

// Bytes of parameters, gradients and optimizer state at the peak of a step.
int64_t bytes_of_step(Net& net, FullySharded* sharded, distributed::DataParallel* ddp, int rank) {
  NamedTensors params = sharded ? sharded->parameters() : NamedTensors();
  for (const auto& [name, t] : sharded ? NamedTensors() : net.named_parameters())
    if (t.requires_grad()) params.emplace_back(name, t);
  optim::AdamW optimizer(params);
  int64_t bytes = 0;
  for (int step = 0; step < 4; ++step) {
    memory::reset_peak(Device::cpu());
    {
      const FullySharded::Pass pass(sharded);
      net.loss(words(rank, step, 0), true).backward();
    }
    sharded ? sharded->finish() : ddp->finish();
    optimizer.step();
    if (sharded) sharded->gather_updated();
    const memory::Stats s = memory::stats(Device::cpu());
    bytes = 0;
    for (const memory::Tag tag : {memory::Tag::parameter, memory::Tag::gradient, memory::Tag::optimizer})
      bytes += s.peak[static_cast<size_t>(tag)];
    optimizer.zero_grad();
  }
  return bytes;
}

TEST(FullySharded, ARankHasItsShareOfTheMemory) {
  distributed::on_processes(4, [](int rank) {
    distributed::set_mesh(Mesh("dp=4"));
    constexpr int kBlocks = 8, kMoments = 2;
    std::map<int, int64_t> bytes;
    int64_t whole = 0, block = 0;
    for (const int zero : {0, 1, 2, 3}) {
      Net net(1, 256, kBlocks);
      block = 0;
      for (const Tensor& t : net.all[0].parameters()) block += t.nbytes();
      whole = 0;
      for (const Tensor& t : net.parameters()) whole += t.nbytes();
      const FullyShardedOptions o{.zero = zero, .bucket_bytes = block};
      if (zero == 0) {
        distributed::DataParallel ddp(net.named_parameters(), distributed::group("dp"), {.bucket_bytes = block});
        bytes[0] = bytes_of_step(net, nullptr, &ddp, rank);
      } else {
        FullySharded sharded(net, o);
        bytes[zero] = bytes_of_step(net, &sharded, nullptr, rank);
      }
    }
    // What is not counted: blocks of up to 4 KiB. Parts of dimension 0 are uneven: 129 rows, and few.
    const double slack = 0.1 * static_cast<double>(whole), w = static_cast<double>(whole),
                 b = static_cast<double>(block);
    if (rank == 0)
      std::printf("bytes of a rank of 4: whole %ld, block %ld, DDP %ld, ZeRO %ld %ld %ld\n", static_cast<long>(whole),
                  static_cast<long>(block), static_cast<long>(bytes[0]), static_cast<long>(bytes[1]),
                  static_cast<long>(bytes[2]), static_cast<long>(bytes[3]));
    EXPECT_GE(static_cast<double>(bytes[0]), (2 + kMoments) * w - slack);
    EXPECT_LE(static_cast<double>(bytes[1]), (2 + kMoments / 4.0) * w + slack);
    EXPECT_LE(static_cast<double>(bytes[2]), (1 + (1 + kMoments) / 4.0) * w + 2 * b + slack);
    // Two blocks that are whole, and their gradients; and those of a third on their way from one to the other.
    EXPECT_LE(static_cast<double>(bytes[3]), (2 + kMoments) / 4.0 * w + 3 * 2 * b + slack);
    EXPECT_LT(bytes[3], bytes[2]);
    EXPECT_LT(bytes[2], bytes[1]);
    EXPECT_LT(bytes[1], bytes[0]);
  });
}

// Holds the end of a block's forward until the next block is being gathered, as long as a machine may take for it.
struct WaitsForTheNext final : ModulePolicy {
  void leave(const Module& module) noexcept override {
    if (module.kind() != "Block" || !active) return;
    const int next = module.path().back() - '0' + 1;
    const std::string what = cat("gather blocks.", next, ".");
    const auto begun = [&] {
      for (const distributed::CollectiveEntry& e : distributed::recorder().entries())
        if (e.step == step && e.group == "dp+dp" && e.what.starts_with(what)) return true;
      return false;
    };
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (next < blocks && !begun()) {
      if (std::chrono::steady_clock::now() > end) return void(++late);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  bool active = false;
  int64_t step = 0;
  int blocks = 0, late = 0;
};

TEST(FullySharded, TheNextBlockIsGatheredWhileOneComputes) {
  distributed::on_processes(2, [](int rank) {
    distributed::set_mesh(Mesh("dp=2"));
    constexpr int kBlocks = 5;
    Net net(1, 16, kBlocks);
    FullySharded sharded(net);
    optim::SGD optimizer(sharded.parameters(), {.lr = 0.01});
    WaitsForTheNext waits;
    waits.blocks = kBlocks;
    const ModulePolicyScope scope(waits);
    for (int step = 0; step < 3; ++step) {
      distributed::recorder().set_step(waits.step = 10 + step);
      waits.active = step > 0;  // the first shows the way
      {
        const FullySharded::Pass pass(&sharded);
        net.loss(words(rank, step, 0), true).backward();
      }
      sharded.finish();
      optimizer.step();
      optimizer.zero_grad();
      sharded.gather_updated();
    }
    EXPECT_EQ(waits.late, 0);
    EXPECT_GT(sharded.stats().bytes_ahead, 2 * sharded.stats().bytes_late / 3);
    EXPECT_EQ(sharded.stats().unforeseen, 0);
  });
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

TEST(FullySharded, RefusesWhatMakesNoSense) {
  run_as_ranks(Mesh("dp=2"), [](int) {
    Net net(1);
    for (const FullyShardedOptions& o :
         {FullyShardedOptions{.zero = 4}, FullyShardedOptions{.axis = "tp"}, FullyShardedOptions{.replicas = "dp"},
          FullyShardedOptions{.bucket_bytes = 0}, FullyShardedOptions{.whole_below = -1}}) {
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
