// What ranks say when a collective between their cards goes wrong, with a library that plays NCCL, and between cards
// where there are enough; graphs; data parallelism the way of cards.

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "strata/autograd/autograd.h"
#include "strata/core/node.h"
#include "strata/cuda/graph.h"
#include "strata/cuda/runtime.h"
#include "strata/dist/collectives/collectives.h"
#include "strata/dist/data_parallel.h"
#include "strata/dist/lane_test_util.h"
#include "strata/dist/processes_test_util.h"
#include "strata/ops/ops.h"

namespace strata::distributed {
namespace {

using Clock = std::chrono::steady_clock;

class DeviceGroups : public testing::TestWithParam<bool> {
 protected:
  bool played() const { return GetParam(); }
  void on_each(int size, const std::function<void(int)>& body, ProcessesOptions options = {}) const {
    // A rank asks only when it has its card.
    if (!played() && std::getenv("STRATA_RANKS_OF_TEST") == nullptr && cuda::device_count() < size) {
      GTEST_SKIP() << "needs " << size << " cards, and there are " << cuda::device_count();
    }
    on_processes(
        size,
        [&](int rank) {
          if (played()) {
            play_cards();
          } else {
            take_own_card();
          }
          const DeviceScope there(played() ? Device::cpu() : Device::cuda(0));
          body(rank);
        },
        std::move(options));
  }
  // A call that goes wrong, which NCCL need not notice: what comes after it is told.
  static void told(const std::function<void()>& call) {
    call();
    for (int i = 0; i < 200; ++i) {
      ones({1}).item();
      all_reduce(ones({1}), "max");
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Ways, DeviceGroups, testing::Bool(),
                         [](const auto& info) { return std::string(info.param ? "PlayedCards" : "Cards"); });

TEST_P(DeviceGroups, AnotherShapeIsNamedOnEveryRank) {
  on_each(2, [](int rank) {
    EXPECT_EQ(group("world").way_of_cards(), "");
    all_reduce(ones({300}));
    EXPECT_TRUE(group("world").way_of_cards().starts_with("NCCL 2.")) << group("world").way_of_cards();
    expect_failure({"rank 1 called all_reduce(sum) f32 [500000] where rank 0 called all_reduce(sum) f32 [400000]",
                    "world/cuda #2"},
                   [&] { told([&] { all_reduce(ones({rank == 1 ? 500000 : 400000})); }); });
    // The job is over, and says why again.
    expect_failure({"rank 1 called"}, [] { all_reduce(ones({3})); });
  });
}

// NCCL notices nothing where as many bytes travel in the same way.
TEST_P(DeviceGroups, AnotherReductionIsNamed) {
  on_each(2, [](int rank) {
    expect_failure({"rank 1 called all_reduce(max) f32 [4] where rank 0 called all_reduce(sum) f32 [4]"},
                   [&] { told([&] { all_reduce(ones({4}), rank == 1 ? "max" : "sum"); }); });
  });
}

TEST_P(DeviceGroups, ASkippedCollectiveIsNamed) {
  on_each(2, [](int rank) {
    expect_failure({"rank 1 called all_reduce(sum) f32 [2] where rank 0 called all_gather(dim 0) f32 [900000]"}, [&] {
      told([&] {
        if (rank != 1) all_gather(ones({900000}));
        all_reduce(ones({2}));
      });
    });
  });
}

TEST_P(DeviceGroups, AKilledRankIsNamed) {
  on_each(2,
          [](int rank) {
            all_reduce(ones({1})).item();
            if (rank == 1) raise(SIGKILL);
            expect_failure({"rank 1", "no heartbeat", "all_reduce(sum) f32 [7]"},
                           [] { told([] { all_reduce(ones({7})); }); });
          },
          {.init = {}, .ends = {0, -SIGKILL}});
}

TEST_P(DeviceGroups, ARankThatEndsIsNamed) {
  on_each(2, [](int rank) {
    all_reduce(ones({1})).item();
    if (rank == 1) {
      expect_failure({"rank 0", "all_reduce(sum) f32 [7]", "rank 1", "leaving"}, [] { shutdown(); });
    } else {
      expect_failure({"rank 0 waits for rank 1", "all_reduce(sum) f32 [7]", "leaving"},
                     [] { told([] { all_reduce(ones({7})); }); });
    }
  });
}

TEST_P(DeviceGroups, ARankThatWaitsTooLongSaysForWhom) {
  on_each(2,
          [](int rank) {
            all_reduce(ones({1})).item();
            if (rank == 1) std::this_thread::sleep_for(std::chrono::seconds(7));
            expect_failure(rank == 0 ? std::initializer_list<std::string>{"rank 0 waits for rank 1"}
                                     : std::initializer_list<std::string>{"all_reduce(sum) f32 [7]"},
                           [] { told([] { all_reduce(ones({7})); }); });
          },
          {.init = {.complain = std::chrono::milliseconds(1000), .timeout = std::chrono::milliseconds(3000)}});
}

TEST_P(DeviceGroups, TheRecorderHasWhatTheCardDid) {
  on_each(2, [](int rank) {
    for (int i = 0; i < 3; ++i) all_reduce(full({2}, rank + 1.0 * i)).to_vector<float>();
    std::this_thread::sleep_for(std::chrono::milliseconds(600));
    std::vector<uint64_t> numbers;
    for (const CollectiveEntry& e : recorder().entries()) {
      if (e.group != "world/cuda") continue;
      numbers.push_back(e.sequence);
      EXPECT_EQ(e.what, "all_reduce(sum) f32 [2]");
      EXPECT_GT(e.ended, 0);
    }
    EXPECT_EQ(numbers, std::vector<uint64_t>({1, 2, 3}));
  });
}

// Work that is waited for later.
TEST_P(DeviceGroups, WorkBesideTheCallersStream) {
  on_each(2, [](int rank) {
    Tensor x = full({1000}, rank + 1.0), y = full({10}, rank + 2.0);
    const auto reduce = [](Tensor t) {
      return group("world").start(
          t.device(), cat("mine ", t.shape()),
          [t](Collectives& c) mutable { c.all_reduce(t.raw_data(), t.numel(), t.dtype(), Reduction::sum); }, {t});
    };
    Work first = reduce(x), second = reduce(y);
    first.wait();
    second.wait();
    second.wait();
    EXPECT_EQ(x.to_vector<float>(), std::vector<float>(1000, 3));
    EXPECT_EQ(y.to_vector<float>(), std::vector<float>(10, 5));
  });
}

struct Small {
  explicit Small(int rank) {
    Generator g(static_cast<uint64_t>(rank) + 3);
    const Device there = zeros({1}).device();
    for (const auto& [name, shape] : std::vector<std::pair<std::string, Shape>>{{"a", {6, 30}}, {"b", {30, 2}}}) {
      Tensor t = randn(shape, DType::f32, g).to(there);
      t.set_requires_grad(true);
      all.emplace_back(name, t);
    }
  }
  Tensor loss(const Tensor& x) const { return mean(square(matmul(relu(matmul(x, all[0].second)), all[1].second))); }
  DataParallel::Parameters all;
};
Tensor rows(int rank, int step) {
  Generator g(static_cast<uint64_t>(10 + rank + 100 * step));
  return randn({8, 6}, DType::f32, g).to(zeros({1}).device());
}

// Of every step, with the buckets of the first and of the later ones.
void check_gradients(int rank) {
  Small net(rank), alone(0);
  DataParallel ddp(net.all, group("world"), {.bucket_bytes = 500});
  for (int step = 0; step < 3; ++step) {
    std::vector<std::vector<float>> want;
    for (int r = 0; r < 2; ++r) {
      for (auto& [name, t] : alone.all) t.set_grad(Tensor());
      alone.loss(rows(r, step)).backward();
      for (size_t p = 0; p < 2; ++p) {
        const std::vector<float> g = alone.all[p].second.grad().to_vector<float>();
        if (r == 0) want.push_back(g);
        for (size_t i = 0; r == 1 && i < g.size(); ++i) want[p][i] = (want[p][i] + g[i]) / 2;
      }
    }
    for (auto& [name, t] : net.all) t.set_grad(Tensor());
    net.loss(rows(rank, step)).backward();
    ddp.finish();
    for (size_t p = 0; p < 2; ++p) {
      const std::vector<float> got = net.all[p].second.grad().to_vector<float>();
      for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[p][i], 1e-5) << step << ' ' << p;
    }
  }
  EXPECT_EQ(ddp.buckets(), 2);
}

TEST_P(DeviceGroups, DataParallelGradientsAreTheAverages) {
  on_each(2, check_gradients);
}

// As a program does that sees all cards and takes its own by number: nothing may go to the one that CUDA takes by
// itself.
TEST(DeviceGroup, CardsTakenByNumber) {
  if (std::getenv("STRATA_RANKS_OF_TEST") == nullptr && cuda::device_count() < 2)
    GTEST_SKIP() << "needs two cards, and there are " << cuda::device_count();
  on_processes(2, [](int rank) {
    EXPECT_EQ(card(), Device::cuda(rank));
    const DeviceScope there(card());
    Tensor x = empty({1000}), y = empty({1000}, DType::f64);
    fill_elements(x, 3.0);
    copy_elements(y, x);
    EXPECT_EQ(y.to_vector<double>(), std::vector<double>(1000, 3.0));
    check_gradients(rank);
  });
}

// A whole step in a graph, beside the same steps one op at a time: the same bits.
TEST_P(DeviceGroups, AStepIsCapturedWhole) {
  if (played()) GTEST_SKIP() << "graphs are of cards";
  on_each(2, [](int rank) {
    std::vector<std::vector<float>> ends;
    for (const bool graphed : {false, true}) {
      Small net(rank);
      DataParallel ddp(net.all, group("world"), {.bucket_bytes = 500});
      Tensor x = rows(rank, 0);
      const auto step = [&] {
        for (auto& [name, t] : net.all) t.set_grad(Tensor());
        net.loss(x).backward();
        ddp.finish();
        NoGrad guard;
        for (auto& [name, t] : net.all) copy_elements(t, t - t.grad() * 0.05);
      };
      cuda::Graph graph;
      for (int i = 0; i < 6; ++i) {
        x.copy_(rows(rank, i));
        if (graphed && i == 2) graph.capture(step);
        if (graph.empty()) {
          step();
        } else {
          graph.replay();
        }
      }
      ends.push_back(net.all[0].second.to_vector<float>());
    }
    EXPECT_EQ(ends[0], ends[1]);
    EXPECT_EQ(all_gather(from_span<float>(ends[0], {180}).to(zeros({1}).device())).to_vector<float>().size(), 360u);
    std::this_thread::sleep_for(std::chrono::milliseconds(600));
    EXPECT_GT(recorder().now().sequence, 20u);
  });
}

// What a graph holds counts when it is replayed, each time.
TEST_P(DeviceGroups, ReplaysCountAsCalls) {
  if (!played()) GTEST_SKIP() << "by a graph that is played";
  on_each(2, [](int) {
    all_reduce(ones({5}));
    HostLane::capture_number = 7;
    all_reduce(ones({2}));
    all_reduce(ones({3}));
    HostLane::capture_number = 0;
    ASSERT_EQ(HostLane::replays.size(), 1u);
    for (int i = 0; i < 2; ++i) HostLane::replays[0].second();
    all_reduce(ones({6}));
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // the ranks compare
    all_reduce(ones({4}));
    std::this_thread::sleep_for(std::chrono::milliseconds(600));
    std::vector<std::string> calls;
    for (const CollectiveEntry& e : recorder().entries()) {
      if (e.group == "world/cuda") calls.push_back(cat(e.sequence, " ", e.what));
    }
    // The played card computed at the capture, not at the replays: it is two calls behind.
    EXPECT_EQ(calls, std::vector<std::string>({"1 all_reduce(sum) f32 [5]", "2 all_reduce(sum) f32 [2]",
                                               "3 all_reduce(sum) f32 [3]", "4 all_reduce(sum) f32 [2]",
                                               "5 all_reduce(sum) f32 [3]"}));
  });
}

// NCCL may wait without end for graphs when it is to free what it holds: a job ends all the same, at once where a graph
// had calls.
TEST_P(DeviceGroups, NothingHoldsUpTheEnd) {
  if (!played()) GTEST_SKIP() << "with a library that holds it up";
  for (const bool captured : {false, true}) {
    if (captured && std::getenv("STRATA_RANKS_OF_TEST") != nullptr) continue;
    on_each(2, [](int) {
      setenv("STRATA_FAKE_NCCL_HOLDS", "1", 1);
      const bool graph = std::getenv("STRATA_TEST_GRAPH") != nullptr;
      all_reduce(ones({5}));
      HostLane::capture_number = graph ? 7 : 0;
      all_reduce(ones({2}));
      HostLane::capture_number = 0;
      const Clock::time_point begun = Clock::now();
      shutdown();
      EXPECT_LT(std::chrono::duration<double>(Clock::now() - begun).count(), graph ? 2.5 : kPromised);
    });
    setenv("STRATA_TEST_GRAPH", "1", 1);
  }
  unsetenv("STRATA_TEST_GRAPH");
}

TEST_P(DeviceGroups, MessagesAreBetweenTwo) {
  on_each(3, [](int rank) {
    for (int i = 0; i < 3; ++i) {
      if (rank == 0) send(full({5}, i + 1.0), 2);
      if (rank == 2) {
        EXPECT_EQ(receive(zeros({5}), 0).to_vector<float>(), std::vector<float>(5, static_cast<float>(i) + 1));
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1500));  // the ranks compare their calls
    EXPECT_EQ(all_reduce(ones({2})).to_vector<float>(), std::vector<float>(2, 3));
  });
}

TEST(DeviceGroup, TwoRanksOnOneCardAreRefused) {
  if (cuda::device_count() == 0) GTEST_SKIP() << "needs a card, and there is none";
  on_processes(2, [](int) {
    expect_failure({"ranks 0 and 1 are on one card", "cuda:0"}, [] { all_reduce(ones({2}).to(Device::cuda(0))); });
  });
}

TEST(DeviceGroup, TheFirstDifferenceOfTheRanksCalls) {
  const auto found = detail::first_difference(
      "dp/cuda", {"3 a\n4 b f32\n5 c\n", "", "4 b f32\n5 d\n6 e\n", "1 zero\n5 c\n6 f\nnot a line\n 9\n"});
  ASSERT_EQ(found.size(), 4u);
  EXPECT_EQ(found[0].what, "c");
  EXPECT_EQ(found[0].sequence, 5u);
  EXPECT_EQ(found[0].group, "dp/cuda");
  EXPECT_EQ(found[1].group, "");
  EXPECT_EQ(found[2].what, "d");
  EXPECT_EQ(found[3].what, "c");
  EXPECT_TRUE(detail::first_difference("dp/cuda", {"1 a\n", "", "1 a\n2 b\n"}).empty());
}

TEST(DeviceGroup, WantsQueuesUnlessTheEnvironmentSays) {
  const char* const name = "CUDA_DEVICE_MAX_CONNECTIONS";
  const char* const given = std::getenv(name);
  const std::string before = given != nullptr ? given : "";
  unsetenv(name);
  detail::want_queues();
  EXPECT_STREQ(std::getenv(name), "32");
  setenv(name, "4", 1);
  detail::want_queues();
  EXPECT_STREQ(std::getenv(name), "4");
  given != nullptr ? setenv(name, before.c_str(), 1) : unsetenv(name);
}

TEST(DeviceGroup, ARankTakesItsCard) {
  EXPECT_EQ(detail::own_card(nullptr, 2, 4), "2");
  EXPECT_EQ(detail::own_card("4,5,GPU-77", 2, 3), "GPU-77");
  EXPECT_EQ(detail::own_card("7", 1, 4), "7");
  EXPECT_EQ(detail::own_card("", 1, 4), "");
  EXPECT_EQ(detail::own_card("1,2", 0, 1), "1,2");
  EXPECT_THROW(detail::own_card("1,2", 0, 3), DistributedError);
}

}  // namespace
}  // namespace strata::distributed
