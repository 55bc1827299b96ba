// What a rank keeps with ZeRO, by the allocator's count, and what it sends when.

#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <map>
#include <thread>

#include "strata/autograd/autograd.h"
#include "strata/core/autocast.h"
#include "strata/core/node.h"
#include "strata/core/placement.h"
#include "strata/core/samples.h"
#include "strata/cuda/runtime.h"
#include "strata/dist/collectives/placed.h"
#include "strata/dist/data_parallel.h"
#include "strata/dist/processes_test_util.h"
#include "strata/memory/allocator.h"
#include "strata/nn/fully_sharded.h"
#include "strata/nn/fully_sharded_test_util.h"
#include "strata/nn/sharded_costs.h"
#include "strata/ops/ops.h"
#include "strata/optim/optim.h"

namespace strata::nn {
namespace {

using distributed::Mesh;

// Bytes that this process has sent to others.
int64_t sent_bytes() {
  int64_t bytes = 0;
  for (const char* group : {"dp", "dp+dp", "dp+dp:2"})
    distributed::group(group).run("bytes", [&](distributed::Communicator& c) { bytes += c.sent_bytes(); });
  return bytes;
}

// Bytes of parameters, gradients and optimizer state at the peak of a step, and what it sends.
struct StepBytes {
  int64_t held = 0, sent = 0;
};
StepBytes bytes_of_step(Net& net, FullySharded* sharded, distributed::DataParallel* ddp, int rank, int passes = 1) {
  NamedTensors params = sharded ? sharded->parameters() : NamedTensors();
  for (const auto& [name, t] : sharded ? NamedTensors() : net.named_parameters())
    if (t.requires_grad()) params.emplace_back(name, t);
  optim::AdamW optimizer(params);
  StepBytes bytes;
  for (int step = 0; step < 4; ++step) {
    memory::reset_peak(Device::cpu());
    bytes = {.sent = -sent_bytes()};
    for (int i = 0; i < passes; ++i) {
      const FullySharded::Pass pass(sharded);
      const bool last = i + 1 == passes;
      sharded ? sharded->reduce_next(last) : ddp->reduce_next(last);
      net.loss(words(rank, step, i), true).backward();
    }
    sharded ? sharded->finish() : ddp->finish();
    optimizer.step();
    if (sharded) sharded->gather_updated();
    const memory::Stats s = memory::stats(Device::cpu());
    for (const memory::Tag tag : {memory::Tag::parameter, memory::Tag::gradient, memory::Tag::optimizer})
      bytes.held += s.peak[static_cast<size_t>(tag)];
    bytes.sent += sent_bytes();
    optimizer.zero_grad();
  }
  return bytes;
}

TEST(FullySharded, ARankHasItsShareOfTheMemory) {
  distributed::on_processes(4, [](int rank) {
    distributed::set_mesh(Mesh("dp=4"));
    constexpr int kBlocks = 8, kMoments = 2;
    std::map<int, int64_t> bytes;
    int64_t whole = 0, trained = 0, block = 0;
    for (const int zero : {0, 1, 2, 3}) {
      Net net(1, 256, kBlocks);
      block = 0;
      for (const Tensor& t : net.all[0].parameters()) block += t.nbytes();
      whole = trained = 0;
      for (const Tensor& t : net.parameters()) {
        whole += t.nbytes();
        trained += t.requires_grad() ? t.nbytes() : 0;
      }
      const FullyShardedOptions o{.zero = zero, .bucket_bytes = block};
      if (zero == 0) {
        distributed::DataParallel ddp(net.named_parameters(), distributed::group("dp"), {.bucket_bytes = block});
        bytes[0] = bytes_of_step(net, nullptr, &ddp, rank).held;
      } else {
        FullySharded sharded(net, o);
        bytes[zero] = bytes_of_step(net, &sharded, nullptr, rank).held;
      }
    }
    // What is not counted: blocks of up to 4 KiB. Parts of dimension 0 are uneven: 129 rows of 513, and few.
    const double slack = 0.02 * static_cast<double>(whole), w = static_cast<double>(whole),
                 b = static_cast<double>(block);
    if (rank == 0)
      std::printf("bytes of a rank of 4: whole %ld, block %ld, DDP %ld, ZeRO %ld %ld %ld\n", static_cast<long>(whole),
                  static_cast<long>(block), static_cast<long>(bytes[0]), static_cast<long>(bytes[1]),
                  static_cast<long>(bytes[2]), static_cast<long>(bytes[3]));
    EXPECT_GE(static_cast<double>(bytes[0]), w + (1 + kMoments) * static_cast<double>(trained) - slack);
    EXPECT_LE(static_cast<double>(bytes[1]), (2 + kMoments / 4.0) * w + slack);
    EXPECT_LE(static_cast<double>(bytes[2]), (1 + (1 + kMoments) / 4.0) * w + 2 * b + slack);
    // Two slots: two blocks that are whole, and two blocks' gradients.
    EXPECT_LE(static_cast<double>(bytes[3]), (2 + kMoments) / 4.0 * w + 2 * 2 * b + slack);
    EXPECT_LT(bytes[3], bytes[2]);
    EXPECT_LT(bytes[2], bytes[1]);
    EXPECT_LT(bytes[1], bytes[0]);
  });
}

// The bits of DataParallel over several passes cost whole gradients: three quarters of them more, on four ranks.
TEST(FullySharded, WholeGradientsOfPassesTakeTheirBytes) {
  distributed::on_processes(4, [](int rank) {
    distributed::set_mesh(Mesh("dp=4"));
    std::map<bool, int64_t> bytes;
    int64_t trained = 0, block = 0;
    for (const bool every : {true, false}) {
      Net net(1, 256, 8);
      block = trained = 0;
      for (const Tensor& t : net.all[0].parameters()) block += t.nbytes();
      for (const Tensor& t : net.parameters()) trained += t.requires_grad() ? t.nbytes() : 0;
      FullySharded sharded(net, {.zero = 3, .bucket_bytes = block, .reduce_every_pass = every});
      bytes[every] = bytes_of_step(net, &sharded, nullptr, rank, 3).held;
    }
    if (rank == 0)
      std::printf("bytes of a rank of 4, three passes: parts %ld, whole gradients %ld\n",
                  static_cast<long>(bytes[true]), static_cast<long>(bytes[false]));
    EXPECT_LE(static_cast<double>(bytes[true]), static_cast<double>(trained) * 1.05 + 5.0 * static_cast<double>(block));
    EXPECT_GT(bytes[false] - bytes[true], trained / 4);
  });
}

// What is said before of any layout is what a rank has and sends then.
TEST(ShardedCosts, AreWhatARankHasAndSends) {
  distributed::on_processes(4, [](int rank) {
    distributed::set_mesh(Mesh("dp=4"));
    for (const FullyShardedOptions& way :
         {FullyShardedOptions{.zero = 0}, FullyShardedOptions{.zero = 1}, FullyShardedOptions{.zero = 2},
          FullyShardedOptions{.zero = 3}, FullyShardedOptions{.zero = 3, .reshard_to = 1},
          FullyShardedOptions{.zero = 3, .reshard_to = 2}, FullyShardedOptions{.zero = 3, .whole_below = 1 << 17}}) {
      SCOPED_TRACE(cat("zero=", way.zero, " reshard_to=", way.reshard_to, " whole_below=", way.whole_below));
      Net net(1, 256, 8);
      int64_t trained = 0;
      for (const Tensor& t : net.parameters()) trained += t.requires_grad() ? t.nbytes() : 0;
      FullyShardedOptions o = way;
      o.bucket_bytes = int64_t{1} << 20;
      const ShardedCosts costs = sharded_costs(net, o, 4);
      StepBytes bytes;
      if (o.zero == 0) {
        distributed::DataParallel ddp(net.named_parameters(), distributed::group("dp"),
                                      {.bucket_bytes = o.bucket_bytes});
        bytes = bytes_of_step(net, nullptr, &ddp, rank);
      } else {
        FullySharded sharded(net, o);
        bytes = bytes_of_step(net, &sharded, nullptr, rank);
      }
      const double held = static_cast<double>(costs.parameters + costs.gathered + costs.gradients + costs.buckets) +
                          2 * costs.updated * static_cast<double>(trained);
      const auto sent = static_cast<double>(costs.sends_parameters + costs.sends_gradients);
      if (rank == 0)
        std::printf("zero %d reshard_to %d whole_below %ld: held %ld, said %.0f; sent %ld, said %.0f\n", o.zero,
                    o.reshard_to, static_cast<long>(o.whole_below), static_cast<long>(bytes.held), held,
                    static_cast<long>(bytes.sent), sent);
      EXPECT_LE(static_cast<double>(bytes.held), 1.02 * held);
      EXPECT_GE(static_cast<double>(bytes.held), 0.8 * held);
      EXPECT_NEAR(static_cast<double>(bytes.sent), sent, 0.05 * sent);
    }
  });
}

// A table at both ends, or a head of its own.
struct Looked : Module {
  static constexpr int64_t kRows = 4096, kDim = 64, kIds = 40, kClasses = 16;
  explicit Looked(bool tied) : Module("Looked"), tied(tied) {}
  Tensor loss(int rank, int step) const {
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < kIds; ++i) ids.push_back((i * i * 31 + rank * 77 + step * 5) % kRows);
    const Tensor x = table(from_span<int64_t>(ids, {kIds}));
    const AutocastScope low(DType::bf16);
    return tied ? linear_cross_entropy(x, table.weight, from_span<int64_t>(ids, {kIds})) : mean(square(head(x)));
  }
  bool tied;
  Embedding table = register_module("table", Embedding(kRows, kDim));
  Linear head = register_module("head", Linear(kDim, kClasses));
};

// What a rank sends of a table that is looked up by its rows, by the bytes that its ids and rows have.
TEST(ShardedCosts, ATableByItsRows) {
  distributed::on_processes(4, [](int rank) {
    distributed::set_mesh(Mesh("dp=4"));
    constexpr int64_t kN = 4, kRow = Looked::kDim * 4, kTable = Looked::kRows * kRow, kT = Looked::kIds;
    constexpr int64_t kForward = (kN - 1) * kT * (kRow + 8), kBackward = (kN - 1) * kT * kRow;
    for (const bool tied : {false, true}) {
      int64_t more = 0;  // of the table that is read whole
      for (const bool by_rows : {true, false}) {
        SCOPED_TRACE(cat(tied ? "tied" : "untied", by_rows ? ", by rows" : ", whole"));
        Looked net(tied);
        FullyShardedOptions o{.zero = 3};
        if (!by_rows) o.rows_from = INT64_MAX;
        std::map<std::string, int64_t> reads;  // by autocast
        if (tied) reads["table.weight"] = 2 + 4;
        const ShardedCosts costs =
            sharded_costs(net, o, 4, 1, {}, {}, reads, {{"table.weight", {.ids = {kT}, .others = tied}}});
        FullySharded sharded(net, o);
        optim::SGD optimizer(sharded.parameters(), {.lr = 0.01});
        int64_t sent = 0;
        for (int step = 0; step < 4; ++step) {
          sent = -sent_bytes();
          {
            const FullySharded::Pass pass(&sharded);
            net.loss(rank, step).backward();
          }
          sharded.finish();
          optimizer.step();
          optimizer.zero_grad();
          sharded.gather_updated();
          sent += sent_bytes();
        }
        const int64_t copy = tied ? kTable / 2 * 3 / 4 : 0;  // which the head reads, in bf16
        const int64_t whole = copy + 2 * (kTable * 3 / 4);
        const int64_t want = !by_rows ? whole : kForward + kBackward + (tied ? copy + kTable * 3 / 4 : 0);
        const auto said = static_cast<double>(costs.sends_parameters + costs.sends_gradients);
        if (rank == 0)
          std::printf("%s table, %s: sent %ld, said %.0f, by the formula %ld\n", tied ? "tied" : "untied",
                      by_rows ? "by rows" : "whole", static_cast<long>(sent), said, static_cast<long>(want));
        // The head's weights come to a few KiB.
        EXPECT_NEAR(static_cast<double>(sent), static_cast<double>(want), 5e3);
        more += by_rows ? want - sent : sent - want;
        EXPECT_NEAR(static_cast<double>(sent), said, 0.01 * said + 2e3);
      }
      // To the byte: the number of ids, and two bytes of which gradients there are.
      EXPECT_EQ(more, -(kN - 1) * (8 + 2));
    }
  });
}

TEST(ShardedCosts, OfOneRankAndOfNonsense) {
  const Net net(1);
  int64_t whole = 0;
  for (const Tensor& t : net.parameters()) whole += t.nbytes();
  const ShardedCosts alone = sharded_costs(net, {.zero = 3}, 1);
  EXPECT_EQ(alone.parameters, whole);
  EXPECT_EQ(alone.sends_parameters + alone.sends_gradients, 0);
  EXPECT_EQ(alone.updated, 1.0);
  EXPECT_THROW(sharded_costs(net, {.zero = 4}, 2), ValueError);
  EXPECT_THROW(sharded_costs(net, {.zero = 3}, 0), ValueError);
  EXPECT_THROW(sharded_costs(net, {.zero = 3, .reshard_to = 3}, 4), ValueError);
  // Gradients of every pass travel, or once.
  const ShardedCosts every = sharded_costs(net, {.zero = 3}, 2, 3);
  const ShardedCosts once = sharded_costs(net, {.zero = 3, .reduce_every_pass = false}, 2, 3);
  EXPECT_GT(every.sends_gradients, 2 * once.sends_gradients);
  EXPECT_EQ(every.sends_parameters, once.sends_parameters);
}

// Calls of a group in a step by this process whose text begins so.
int calls_of(const std::string& group, int64_t step, const std::string& begin) {
  int n = 0;
  for (const distributed::CollectiveEntry& e : distributed::recorder().entries())
    n += e.step == step && e.group == group && e.what.starts_with(begin);
  return n;
}

void train_some(Net& net, FullySharded& sharded, int rank, int first, int end) {
  optim::SGD optimizer(sharded.parameters(), {.lr = 0.01});
  for (int step = first; step < end; ++step) {
    distributed::recorder().set_step(step);
    {
      const FullySharded::Pass pass(&sharded);
      net.loss(words(rank, step, 0), true).backward();
    }
    sharded.finish();
    optimizer.step();
    optimizer.zero_grad();
    sharded.gather_updated();
  }
}

TEST(FullySharded, ABlockIsOneCallOfItsGroup) {
  distributed::on_processes(2, [](int rank) {
    distributed::set_mesh(Mesh("dp=2"));
    Net net(1, 16, 3);
    {
      FullySharded sharded(net, {.zero = 3});
      train_some(net, sharded, rank, 0, 3);
      EXPECT_EQ(calls_of("dp+dp", 2, "gather blocks."), 5);  // the last block's is still there in backward
      EXPECT_LE(calls_of("dp+dp", 2, ""), 5 + 3);            // and those of what the root has
      EXPECT_EQ(calls_of("dp", 2, "parts of gradients"), 1);
    }
    Net other(1, 16, 3);
    FullySharded sharded(other, {.zero = 2});
    train_some(other, sharded, rank, 3, 6);
    EXPECT_EQ(calls_of("dp+dp", 5, "gather "), 1);  // updated parts
  });
}

TEST(FullySharded, BackwardGathersAmongNeighbours) {
  distributed::on_processes(4, [](int rank) {
    distributed::set_mesh(Mesh("dp=4"));
    Net net(1, 16, 4);
    FullySharded sharded(net, {.zero = 3, .reshard_to = 2});
    train_some(net, sharded, rank, 0, 3);
    EXPECT_EQ(calls_of("dp+dp", 2, "gather blocks."), 4);
    EXPECT_EQ(calls_of("dp+dp:2", 2, "gather blocks."), 3);
    // A forward alone leaves nothing behind.
    distributed::recorder().set_step(3);
    for (int i = 0; i < 2; ++i) {
      const NoGrad guard;
      const FullySharded::Pass pass(&sharded);
      net.loss(words(rank, i, 0), true);
    }
    EXPECT_EQ(calls_of("dp+dp:2", 3, "gather "), 0);
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

struct Head : Module {
  Head() : Module("Head") {
    const NoGrad guard;
    weight.copy_(Samples(DType::f32, 7).tensor({kClasses, kWidth}));
  }
  static constexpr int64_t kClasses = 512, kWidth = 64;
  Tensor weight = new_parameter("weight", {kClasses, kWidth});
};

// The loss of an output layer reads autocast's copy: the f32 weights stay where they lie. The gradient has the bits
// that it has without parts.
using HeadLoss = Tensor (*)(const Tensor& x, const Tensor& weight, const Tensor& targets);
void expect_low_copy_alone(HeadLoss loss_of) {
  distributed::on_processes(4, [&](int) {
    distributed::set_mesh(Mesh("dp=4"));
    const Tensor x = Samples(DType::f32, 3).tensor({24, Head::kWidth});
    std::vector<int64_t> ids;
    for (int64_t i = 0; i < 24; ++i) ids.push_back(i * 37 % Head::kClasses);
    const Tensor targets = from_span<int64_t>(ids, {24});
    const auto pass = [&](const Head& head) {
      const AutocastScope autocast(DType::bf16);
      const Tensor loss = loss_of(x, head.weight, targets);
      loss.backward();
      return loss.item();
    };
    Head whole, head;
    const double want = pass(whole);
    FullySharded sharded(head, {.zero = 3});
    for (int step = 0; step < 3; ++step) {
      sharded.parameters()[0].second.set_grad({});
      const int64_t before = sent_bytes();
      {
        const FullySharded::Pass scope(&sharded);
        EXPECT_EQ(pass(head), want);
      }
      sharded.finish();
      constexpr int64_t kElements = Head::kClasses * Head::kWidth * 3 / 4;  // that a rank sends of one exchange
      if (step > 0) {
        EXPECT_LT(sent_bytes() - before, kElements * 13 / 2) << "2 bytes of the copy and 4 of the gradient";
      }
    }
    const Tensor got = distributed::full_tensor(sharded.parameters()[0].second.grad());
    EXPECT_TRUE(equal(got, whole.weight.grad()));
  });
}

TEST(FullySharded, ALossFetchesTheLowCopyAlone) {
  expect_low_copy_alone([](const Tensor& x, const Tensor& weight, const Tensor& targets) {
    return linear_cross_entropy(x, weight, targets);
  });
}

// As models call it: a composed op, which reads nothing itself.
TEST(FullySharded, AHeadsLossFetchesTheLowCopyAlone) {
  expect_low_copy_alone([](const Tensor& x, const Tensor& weight, const Tensor& targets) {
    return head_cross_entropy(x, weight, targets);
  });
}

// On a card the optimizer writes autocast's copies beside the parts, so that a pass has them without a cast.
TEST(FullyShardedOnCard, TheOptimizerWritesTheCopies) {
  if (cuda::device_count() == 0) GTEST_SKIP() << "needs a card";
  distributed::on_processes(1, [](int) {
    distributed::set_mesh(Mesh("dp=1"));
    const DeviceScope there(Device::cuda(0));
    const Tensor x = Samples(DType::f32, 3).tensor({24, Head::kWidth}).to(Device::cuda(0));
    const auto train = [&](const Head& head, FullySharded* sharded) {
      optim::AdamW optimizer(sharded ? sharded->parameters() : head.named_parameters(), {.lr = 0.01});
      std::vector<double> losses;
      for (int step = 0; step < 4; ++step) {
        {
          const FullySharded::Pass pass(sharded);
          const AutocastScope autocast(DType::bf16);
          const Tensor y = linear(x, head.weight), loss = sum(y * y);
          loss.backward();
          losses.push_back(loss.item());
        }
        if (sharded) sharded->finish();
        optimizer.step();
        if (sharded) sharded->gather_updated();
        optimizer.zero_grad();
        if (!sharded || step == 0) continue;
        const Tensor part = strata::detail::here(sharded->parameters()[0].second);
        EXPECT_TRUE(autograd_meta(part).low.is_current(part, DType::bf16)) << "step " << step;
      }
      return losses;
    };
    const Head whole, head;
    const std::vector<double> want = train(whole, nullptr);
    FullySharded sharded(head, {.zero = 3});
    EXPECT_EQ(train(head, &sharded), want);
  });
}

}  // namespace
}  // namespace strata::nn
