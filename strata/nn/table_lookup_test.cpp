// Tables of ZeRO 3 that are looked up and updated by the rows that a batch names: the bits of those that are read
// whole.

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>

#include "strata/autograd/autograd.h"
#include "strata/autograd/checkpoint.h"
#include "strata/autograd/hooks.h"
#include "strata/core/autocast.h"
#include "strata/core/placement.h"
#include "strata/dist/data_parallel.h"
#include "strata/dist/exact_gradients.h"
#include "strata/dist/parts_inl.h"
#include "strata/dist/processes_test_util.h"
#include "strata/dist/rank_threads.h"
#include "strata/dist/table_rows_inl.h"
#include "strata/nn/fully_sharded.h"
#include "strata/nn/fully_sharded_test_util.h"
#include "strata/optim/optim.h"

namespace strata::nn {
namespace {

using distributed::Mesh;
using distributed::run_as_ranks;

constexpr int64_t kWide = 6;

// How a table is read.
struct Reads {
  int64_t words = 101;  // uneven on 2, 3 and 4 ranks
  bool tied = false;
  bool twice = false;   // two lookups
  bool again = false;   // in a checkpointed function
  bool scaled = false;  // by a parameter that rank 1 alone uses, whose gradient is the first to come
  bool unused = false;  // rank 1's loss does not depend on it
  bool frozen = false;
  std::optional<int64_t> padding;
  DType dtype = DType::f32;
};

struct Texts : Module {
  Texts(uint64_t seed, const Reads& reads) : Module("Texts"), reads(reads), table(drawn(seed, reads)) {
    register_module("table", table);
    const std::lock_guard lock(drawing());
    manual_seed(seed + 1);
    for (int i = 0; i < 2; ++i) blocks.push_back(Block(kWide));
    if (!reads.tied) head.emplace(register_module("head", Linear(kWide, 5)));
    if (reads.scaled) {
      shift = register_parameter("shift", full({kWide}, 0.5));  // both come together
      scale = register_parameter("scale", full({kWide}, 1.25));
    }
    if (reads.dtype != DType::f32) to(reads.dtype);
    if (reads.frozen) table.weight.set_requires_grad(false);
  }
  static std::mutex& drawing() {  // ranks are threads, and draw from one generator
    static std::mutex mutex;
    return mutex;
  }
  static Embedding drawn(uint64_t seed, const Reads& reads) {
    const std::lock_guard lock(drawing());
    manual_seed(reads.frozen ? 1 : seed);
    return Embedding(reads.words, kWide, reads.padding);
  }
  Tensor loss(const Tensor& ids, int rank) const {
    const auto looked_up = [this](const Tensor& at) {
      if (!reads.again) return table(at);
      return checkpoint([this, at](const Tensor& one) { return table(at) * one; }, ones({1}).set_requires_grad());
    };
    Tensor x = looked_up(ids);
    if (reads.twice) x = x * 0.5 + looked_up((ids * 3 + 1) % Scalar(reads.words));
    if (reads.unused && rank == 1) x = x.detach();
    for (const Block& b : blocks) x = b.forward(x);
    if (reads.scaled) x = x + shift;
    if (reads.scaled && rank == 1) x = x * scale;
    return mean(square(reads.tied ? linear(x, table.weight) : (*head)(x)).to(DType::f32));
  }
  Reads reads;
  Embedding table;
  ModuleList<Block> blocks = register_module("blocks", ModuleList<Block>());
  std::optional<Linear> head;
  Tensor shift, scale;
};

// Some words more than once, of all parts; of each rank another number of them.
Tensor ids_of(int rank, int step, int pass, const Reads& reads, bool alike = false) {
  std::vector<int64_t> ids;
  const int64_t n = alike ? 6 : 4 + (rank + step + pass) % 3;
  for (int64_t i = 0; i < n; ++i) ids.push_back((i / 2 * 37 + rank * 11 + 5 * step + 23 * pass) % reads.words);
  if (reads.padding) ids.back() = *reads.padding;
  return from_span<int64_t>(ids, {1, n});
}

struct Way {
  Reads reads;
  std::string mesh = "dp=3";
  int passes = 1;
  bool clips = false;
  bool sgd = false;
  FullyShardedOptions options = {};
};

using Bytes = std::vector<std::pair<std::string, std::vector<float>>>;
struct Trained {
  std::vector<double> losses;
  Bytes parameters;
  int64_t by_rows = 0, gathers = 0;  // calls of the last step
  bool operator==(const Trained& o) const { return losses == o.losses && parameters == o.parameters; }
};

// Of ranks that are threads and have one recorder of the newest calls: those of a step whose text begins so.
int64_t calls_of(int64_t step, const std::string& begin) {
  int64_t n = 0;
  for (const distributed::CollectiveEntry& e : distributed::recorder().entries())
    n += e.step == step && e.what.starts_with(begin);
  return n;
}
int64_t new_step() {
  static std::atomic<int64_t> last{1000};
  return ++last;
}

enum class Read : uint8_t { replicas, whole, rows };

// What rank 0's training gives. Of `whole` and `rows` by ZeRO 3.
Trained train(const Way& way, Read read, int steps = 4) {
  Trained result;
  const int64_t last = new_step();
  run_as_ranks(Mesh(way.mesh), [&](int rank) {
    Texts net(static_cast<uint64_t>(rank + 1), way.reads);  // rank 0's weights win
    std::unique_ptr<distributed::DataParallel> ddp;
    std::unique_ptr<FullySharded> sharded;
    NamedTensors params;
    if (read == Read::replicas) {
      ddp = std::make_unique<distributed::DataParallel>(net.named_parameters(), distributed::group("world"));
      for (const auto& [name, t] : net.named_parameters())
        if (t.requires_grad()) params.emplace_back(name, t);
    } else {
      FullyShardedOptions o = way.options;
      o.rows_from = read == Read::rows ? 0 : std::numeric_limits<int64_t>::max();
      sharded = std::make_unique<FullySharded>(net, o);
      params = sharded->parameters();
    }
    std::unique_ptr<optim::Optimizer> optimizer;
    if (way.sgd)
      optimizer = std::make_unique<optim::SGD>(params, optim::SGDOptions{.lr = 0.05});
    else
      optimizer = std::make_unique<optim::AdamW>(params, optim::AdamWOptions{.lr = 1e-2, .weight_decay = 0.1});
    std::vector<double> losses;
    for (int step = 0; step < steps; ++step) {
      distributed::recorder().set_step(step + 1 == steps ? last : 0);
      optimizer->zero_grad();
      for (int pass = 0; pass < way.passes; ++pass) {
        const FullySharded::Pass scope(sharded.get());
        const bool ends = pass + 1 == way.passes;
        ddp ? ddp->reduce_next(ends) : sharded->reduce_next(ends);
        const Tensor l = net.loss(ids_of(rank, step, pass, way.reads), rank);
        losses.push_back(l.item());
        l.backward();
      }
      ddp ? ddp->finish() : sharded->finish();
      way.clips ? void(optimizer->step_clipped(0.05)) : optimizer->step();
      if (sharded) sharded->gather_updated();
    }
    Trained mine{
        .losses = losses, .by_rows = calls_of(last, "rows of table"), .gathers = calls_of(last, "gather table")};
    for (const auto& [name, t] : net.named_parameters()) mine.parameters.emplace_back(name, t.to_vector<float>());
    if (rank == 0) result = std::move(mine);
  });
  return result;
}

void expect_near(const Trained& got, const Trained& want, double within) {
  for (size_t i = 0; i < want.losses.size(); ++i) EXPECT_NEAR(got.losses[i], want.losses[i], within) << i;
  ASSERT_EQ(got.parameters.size(), want.parameters.size());
  for (size_t i = 0; i < want.parameters.size(); ++i)
    for (size_t k = 0; k < want.parameters[i].second.size(); ++k)
      ASSERT_NEAR(got.parameters[i].second[k], want.parameters[i].second[k], within) << want.parameters[i].first;
}

void expect_bits(const Way& way, const std::string& what, bool of_replicas = true) {
  SCOPED_TRACE(what);
  const Trained rows = train(way, Read::rows), whole = train(way, Read::whole);
  EXPECT_GT(rows.by_rows, 0) << "the rows do not travel";
  EXPECT_EQ(rows.gathers, 0) << "the table travels";
  EXPECT_GT(whole.gathers, 0);
  EXPECT_EQ(whole.by_rows, 0);
  EXPECT_EQ(rows, whole);
  if (of_replicas) {
    EXPECT_EQ(rows, train(way, Read::replicas));
  }
}

TEST(TableLookup, AnUntiedTableHasTheBitsOfOneThatIsReadWhole) {
  for (const char* mesh : {"dp=2", "dp=3", "dp=4"})
    for (const bool clips : {false, true})
      expect_bits({.mesh = mesh, .clips = clips}, cat(mesh, clips ? " clipped" : ""));
  expect_bits({.sgd = true}, "SGD");
  expect_bits({.options = {.bucket_bytes = 1}}, "buckets of one");
  expect_bits({.mesh = "dp=4", .options = {.reshard_to = 2}}, "kept among neighbours");
}

TEST(TableLookup, OneThatIsReadInManyWays) {
  expect_bits({.reads = {.twice = true}}, "twice");
  expect_bits({.reads = {.again = true}}, "in a checkpoint");
  expect_bits({.reads = {.padding = 40}}, "padding");
  expect_bits({.reads = {.twice = true, .padding = 100}}, "padding, twice");
  expect_bits({.reads = {.unused = true}}, "a rank without a gradient");
  expect_bits({.reads = {.dtype = DType::bf16}}, "in bf16");
  // Others wait in their backward for what a rank sends when its pass ends: it asks nobody before.
  expect_bits({.reads = {.scaled = true}, .options = {.bucket_bytes = 1}}, "a gradient that one rank has alone");
}

TEST(TableLookup, PassesAddUp) {
  expect_bits({.passes = 3}, "each travels", false);
  const Way way{.passes = 3, .options = {.reduce_every_pass = false, .looked_up = {"table.weight"}}};
  expect_bits(way, "whole gradients add up");
  expect_bits({.reads = {.padding = 3}, .options = {.reduce_every_pass = false, .looked_up = {"table.weight"}}},
              "a whole gradient, with padding");
  expect_bits({.options = {.reshard_to = 1, .looked_up = {"table.weight"}}}, "parameters stay");
}

TEST(TableLookup, AFrozenTable) {
  expect_bits({.reads = {.frozen = true}}, "frozen");
  expect_bits({.reads = {.frozen = true, .padding = 40}, .passes = 2, .options = {.reduce_every_pass = false}},
              "frozen, whole gradients");
}

TEST(TableLookup, ReplicasOfTheParts) {
  for (const char* mesh : {"out=2 dp=2", "dp=2 out=2", "out=2 dp=3"})
    expect_bits({.mesh = mesh, .options = {.replicas = "out"}}, mesh, false);
}

// What is added up in another order: the head's gradients and the rows'.
TEST(TableLookup, ATiedTable) {
  for (const bool twice : {false, true}) {
    for (const int passes : {1, 2}) {
      const Way way{.reads = {.tied = true, .twice = twice}, .passes = passes, .sgd = true};
      const Trained rows = train(way, Read::rows);
      EXPECT_GT(rows.by_rows, 0);
      expect_near(rows, train(way, Read::whole), 1e-6);
      expect_near(rows, train(way, Read::replicas), 1e-6);
    }
  }
  // Of replicas and a rank whose loss does not depend on the rows.
  for (const Way& way :
       {Way{.reads = {.tied = true}, .mesh = "out=2 dp=2", .sgd = true, .options = {.replicas = "out"}},
        Way{.reads = {.tied = true, .unused = true}, .clips = true, .sgd = true, .options = {.bucket_bytes = 1}}}) {
    const Trained rows = train(way, Read::rows);
    EXPECT_GT(rows.by_rows, 0);
    expect_near(rows, train(way, Read::whole), 1e-6);
  }
}

// In autocast a tied head reads the copy in bf16, and nobody the table in f32. Threads that are ranks share the lock of
// autocast's copies, so that these are processes.
TEST(TableLookup, InAutocastNoTableIsGatheredInF32) {
  distributed::on_processes(2, [](int rank) {
    distributed::set_mesh(Mesh("dp=2"));
    int64_t number = 100;
    for (const bool tied : {true, false}) {
      const Reads reads{.words = 64, .tied = tied};
      std::vector<float> table[2];
      for (const bool by_rows : {true, false}) {
        Texts net(1, reads);
        FullySharded sharded(net, {.rows_from = by_rows ? 0 : std::numeric_limits<int64_t>::max()});
        optim::SGD optimizer(sharded.parameters(), {.lr = 0.01});
        for (int step = 0; step < 3; ++step) {
          distributed::recorder().set_step(++number);
          {
            const FullySharded::Pass pass(&sharded);
            const AutocastScope low(DType::bf16);
            net.loss(ids_of(rank, step, 0, reads), rank).backward();
          }
          sharded.finish();
          optimizer.step();
          optimizer.zero_grad();
          sharded.gather_updated();
        }
        EXPECT_EQ(calls_of(number, "gather table.weight in bf16"), tied ? 1 : 0);
        EXPECT_EQ(calls_of(number, "gather table.weight f32"), by_rows ? 0 : 1);
        EXPECT_EQ(calls_of(number, "rows of table.weight f32"), by_rows ? 1 : 0);
        // The head's gradient travels, and of rows alone none as large as the table.
        EXPECT_EQ(calls_of(number, cat("parts of gradients 0 f32 [", 64 * kWide, "]")), tied && by_rows ? 1 : 0);
        table[by_rows] = net.table.weight.to_vector<float>();
      }
      for (size_t i = 0; i < table[0].size(); ++i) EXPECT_NEAR(table[0][i], table[1][i], tied ? 1e-6 : 0);
    }
  });
}

// What is kept as it is.
TEST(TableLookup, TablesThatAreReadWhole) {
  const auto reads_whole = [](const Way& way, const std::string& what) {
    SCOPED_TRACE(what);
    const Trained rows = train(way, Read::rows);
    EXPECT_EQ(rows.by_rows, 0);
    EXPECT_EQ(rows, train(way, Read::whole));
  };
  reads_whole({.options = {.reduce_every_pass = false}}, "whole gradients, and who else reads it is not said");
  reads_whole({.options = {.reshard_to = 1}}, "parameters stay");
  reads_whole({.reads = {.words = 30}}, "as many ids as rows");
  reads_whole({.mesh = "dp=1"}, "one rank");
}

// Micro-batches' sums have the bits of one process.
TEST(TableLookup, SumsOfMicroBatches) {
  const auto run = [](int ranks, bool looked_up) {
    std::vector<Bytes> of(static_cast<size_t>(ranks));
    int64_t by_rows = 0;
    const int64_t at = new_step();
    run_as_ranks(Mesh(cat("dp=", ranks)), [&](int rank) {
      const Reads reads;
      Texts net(static_cast<uint64_t>(rank + 1), reads);
      constexpr int64_t kMicro = 4;
      distributed::recorder().set_step(at);
      std::optional<distributed::ExactGradients> exact;
      std::optional<FullySharded> sharded;
      if (ranks == 1) {
        exact.emplace(net.named_parameters(), nullptr, kMicro);
      } else {
        FullyShardedOptions o{.rows_from = 0, .micro_batches = kMicro};
        if (looked_up) o.looked_up = {"table.weight"};
        sharded.emplace(net, o);
      }
      optim::SGD optimizer(sharded ? sharded->parameters() : net.named_parameters(), {.lr = 0.05});
      for (int step = 0; step < 3; ++step) {
        optimizer.zero_grad();
        for (int64_t i = 0; i < kMicro / ranks; ++i) {
          const auto number = static_cast<int>(i * ranks + rank);
          const FullySharded::Pass scope(sharded ? &*sharded : nullptr);
          if (sharded) sharded->reduce_next(i + 1 == kMicro / ranks);
          net.loss(ids_of(number, step, 0, reads, true), 0).backward();
          if (exact) exact->add();
        }
        exact ? exact->finish() : sharded->finish();
        optimizer.step();
        if (sharded) sharded->gather_updated();
      }
      if (rank == 0) by_rows = calls_of(at, "rows of table");
      for (const auto& [name, t] : net.named_parameters())
        of[static_cast<size_t>(rank)].emplace_back(name, t.to_vector<float>());
    });
    EXPECT_EQ(by_rows > 0, looked_up);
    return of[0];
  };
  const Bytes one = run(1, false);
  for (const int ranks : {2, 4})
    for (const bool looked_up : {true, false}) EXPECT_EQ(run(ranks, looked_up), one) << ranks << looked_up;
}

// Rows of a table by themselves: what lies there, bit for bit.
TEST(TableLookup, WhatLiesInRows) {
  const int64_t at = new_step();
  run_as_ranks(Mesh("dp=3"), [&](int rank) {
    distributed::recorder().set_step(at);
    Embedding table(50, 2);
    const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
    {
      const NoGrad guard;
      table.weight.fill_(1);
      table.weight.narrow(0, 20, 1).copy_(from_span<float>(std::vector<float>{nan, -inf}, {1, 2}));
      table.weight.narrow(0, 49, 1).copy_(from_span<float>(std::vector<float>{-0.0F, 0.0F}, {1, 2}));
    }
    FullySharded sharded(table, {.rows_from = 0});
    const auto look_up = [&](const std::vector<int64_t>& ids, DType dtype = DType::i64) {
      const FullySharded::Pass pass(&sharded);
      const NoGrad guard;
      return table(from_span<int64_t>(ids, {static_cast<int64_t>(ids.size())}).to(dtype));
    };
    const std::vector<float> y = look_up({0, 49, 33}, DType::i32).to_vector<float>();
    is(y[0] == 1 && y[1] == 1 && y[4] == 1, "rows beside a NaN");
    is(y[2] == 0 && std::signbit(y[2]) && y[3] == 0 && !std::signbit(y[3]), "zeros' signs");
    const std::vector<float> n = look_up({20}).to_vector<float>();
    is(std::isnan(n[0]) && n[1] == -inf, "a row that is not finite");
    // Ranks without ids, and a call of none.
    const Tensor some = look_up(rank == 1 ? std::vector<int64_t>{17} : std::vector<int64_t>{});
    is(some.shape() == Shape({rank == 1 ? 1 : 0, 2}), "one rank's id");
    is(look_up({}).shape() == Shape({0, 2}), "nobody's");
    is(calls_of(at, "rows of weight") > 0, "it was read whole");
  });
}

// Fewer rows than ranks: some have none.
TEST(TableLookup, PartsWithoutRows) {
  run_as_ranks(Mesh("dp=4"), [](int) {
    distributed::Group& group = distributed::group("dp");
    const Tensor whole = arange(6, DType::f32).view({3, 2});
    distributed::TableRows rows("table", distributed::Cut(whole.shape(), 4).part(whole, group.rank()).clone(), 3, group,
                                group);
    is(!rows.may_pay(), "rows of three pay");
    const Tensor ids = from_span<int64_t>(std::vector<int64_t>{2, 0}, {2});
    const auto asked = rows.ask(ids, rows.agree(2, 0));
    is(rows.look_up(asked).to_vector<float>() == std::vector<float>({4, 5, 0, 1}), "rows");
    const distributed::TableRows::Given given{&asked, ones({2, 2})};
    const Tensor g = rows.gradient({&given, 1});
    const std::vector<float> want = group.rank() == 3   ? std::vector<float>()
                                    : group.rank() == 1 ? std::vector<float>({0, 0})
                                                        : std::vector<float>({1, 1});
    is(g.to_vector<float>() == want, "gradients");
  });
}

// An id that is none is told by the rank that has it, before anything is sent.
TEST(TableLookup, AnIdThatIsOutOfRange) {
  std::string told;
  try {
    run_as_ranks(Mesh("dp=3"), [](int rank) {
      Texts net(1, {});
      FullySharded sharded(net, {.rows_from = 0});
      const FullySharded::Pass pass(&sharded);
      net.loss(from_span<int64_t>(std::vector<int64_t>{3, rank == 1 ? 101 : 5}, {1, 2}), rank);
    });
  } catch (const IndexError& e) {
    told = e.what();
  }
  EXPECT_NE(told.find("index 101 at position 1 is out of range for a table of 101 rows"), told.npos) << told;
}

// The others' exchange ends with an error that names it.
TEST(TableLookup, OfProcessesTheOthersNameIt) {
  distributed::on_processes(3,
                            [](int rank) {
                              distributed::set_mesh(Mesh("dp=3"));
                              Texts net(1, {});
                              FullySharded sharded(net, {.rows_from = 0});
                              const auto pass = [&] {
                                const FullySharded::Pass scope(&sharded);
                                net.loss(from_span<int64_t>(std::vector<int64_t>{3, rank == 1 ? -1 : 5}, {1, 2}), rank);
                              };
                              if (rank != 1)
                                return distributed::expect_failure({"rank 1", "ids of table.weight"}, pass);
                              EXPECT_THROW(pass(), IndexError);
                              std::_Exit(::testing::Test::HasFailure() ? 1 : 0);
                            },
                            {.ends = {0, 0, 0}});
}

TEST(TableLookup, WhatItIsNotFor) {
  distributed::on_processes(2, [](int rank) {
    distributed::set_mesh(Mesh("dp=2"));
    const Reads reads;
    Texts net(1, reads);
    FullySharded sharded(net, {.rows_from = 0});
    const auto rows = [] { return calls_of(0, "rows of table"); };
    distributed::recorder().set_step(0);
    const int64_t before = rows();
    // Outside of a pass all of it is read.
    net.loss(ids_of(rank, 0, 0, reads), rank);
    is(rows() == before, "outside of a pass");
    {
      const FullySharded::Pass pass(&sharded);
      bool refused = false;
      try {
        const Tensor l = net.loss(ids_of(rank, 0, 0, reads), rank);
        l.backward({}, true, true);
      } catch (const AutogradError& e) {
        refused = std::string(e.what()).find("no second derivative") != std::string::npos;
      }
      is(refused, "a second derivative");
    }
    sharded.finish();
    is(rows() > before, "within a pass");
    // Who watches its gradient is shown all of it.
    const int64_t then = rows();
    int64_t seen = 0;
    HookHandle hook = register_hook(net.table.weight, [&](const Tensor& g) { seen = g.numel(); });
    {
      const FullySharded::Pass pass(&sharded);
      net.loss(ids_of(rank, 1, 0, reads), rank).backward();
    }
    is(seen == net.table.weight.numel(), "the hook saw something else");
    is(rows() == then, "rows though a hook watches");
    hook.remove();
    bool refused = false;
    try {
      Texts other(1, reads);
      const FullySharded names(other, {.looked_up = {"tabel.weight"}});
    } catch (const ValueError& e) {
      refused = std::string(e.what()).find("looked_up names no parameter") != std::string::npos;
    }
    is(refused, "a name that is none");
  });
}

}  // namespace
}  // namespace strata::nn
