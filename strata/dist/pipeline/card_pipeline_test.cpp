// Pipelines between cards: with a library that plays NCCL, whose messages go on beside the caller and where large ones
// end only when both sides have begun them; and between cards where there are enough.

#include <algorithm>
#include <csignal>
#include <map>
#include <thread>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/cuda/graph.h"
#include "strata/cuda/runtime.h"
#include "strata/dist/lane_test_util.h"
#include "strata/dist/pipeline/pipeline.h"
#include "strata/dist/pipeline/schedules.h"
#include "strata/dist/processes_test_util.h"
#include "strata/ops/ops.h"

namespace strata::distributed::pipeline {
namespace {

class CardPipelines : public testing::TestWithParam<bool> {
 protected:
  bool played() const { return GetParam(); }
  void on_each(int size, const std::function<void(int)>& body, ProcessesOptions options = {}) const {
    // A rank asks only when it has its card.
    if (!played() && std::getenv("STRATA_RANKS_OF_TEST") == nullptr && cuda::device_count() < size)
      GTEST_SKIP() << "needs " << size << " cards, and there are " << cuda::device_count();
    on_processes(
        size,
        [&](int rank) {
          if (played()) {
            play_streams();
          } else {
            take_own_card();
          }
          const DeviceScope there(here());
          set_mesh(Mesh(cat("pp=", size)));
          body(rank);
        },
        std::move(options));
  }
  Device here() const { return played() ? Device::cpu() : Device::cuda(0); }
  TensorMeta between(int64_t rows, DType dtype = DType::f32) const { return {{rows, 8}, dtype, here(), std::nullopt}; }
};
INSTANTIATE_TEST_SUITE_P(Ways, CardPipelines, testing::Bool(),
                         [](const auto& info) { return std::string(info.param ? "PlayedCards" : "Cards"); });

struct Stages final : StageWork {
  Stages(int stages, int micro_batches, int64_t rows, DType type = DType::f32) : dtype(type) {
    Generator g(11);
    const Device there = zeros({1}).device();
    for (int s = 0; s < stages; ++s) {
      weights.push_back((randn({8, 8}, DType::f32, g) * 0.4).to(dtype).to(there));
      weights.back().set_requires_grad();
    }
    for (int m = 0; m < micro_batches; ++m) inputs.push_back(randn({rows, 8}, DType::f32, g).to(dtype).to(there));
  }
  Tensor forward(int stage, int micro, const Tensor& x) override {
    if (at) at(stage, micro);
    const Tensor in = x.defined() ? x : inputs[static_cast<size_t>(micro)];
    const Tensor y = in + tanh(linear(in, weights[static_cast<size_t>(stage)]));
    if (stage + 1 < static_cast<int>(weights.size())) return y;
    return mean(square(y)) * (1.0 / static_cast<double>(inputs.size()));
  }
  // What one process has that cuts at the same places, where bf16 is rounded.
  std::vector<Tensor> wanted() {
    for (int m = 0; m < static_cast<int>(inputs.size()); ++m) {
      TensorList x{Tensor()}, y;
      for (int s = 0; s < static_cast<int>(weights.size()); ++s) {
        y.push_back(forward(s, m, x.back()));
        x.push_back(y.back().detach());
        x.back().set_requires_grad();
      }
      Tensor gy;
      for (size_t s = weights.size(); s-- > 0; gy = x[s].defined() ? x[s].grad() : Tensor()) backward({y[s]}, {gy});
    }
    std::vector<Tensor> all;
    for (Tensor& w : weights) {
      all.push_back(w.grad());
      w.set_grad({});
    }
    return all;
  }
  DType dtype;
  TensorList weights, inputs;
  std::function<void(int, int)> at;
};

void expect_bits_of_one(const Table& table, const TensorMeta& meta, int rank) {
  Stages work(table.stages, table.micro_batches, meta.shape[0], meta.dtype);
  const std::vector<Tensor> want = work.wanted();
  Pipeline pipeline(table, group("pp"));
  for (int step = 0; step < 2; ++step) {
    for (Tensor& w : work.weights) w.set_grad({});
    pipeline.time_next();
    pipeline.run(work, meta);
    for (const int s : table.stages_of(rank)) {
      const auto at = static_cast<size_t>(s);
      EXPECT_TRUE(equal(work.weights[at].grad(), want[at])) << table.schedule << ", stage " << s;
    }
    const std::vector<Action>& mine = table.actions[static_cast<size_t>(rank)];
    const std::vector<ActionSpan>& spans = pipeline.spans();
    ASSERT_EQ(spans.size(), mine.size());
    for (size_t i = 0; i < mine.size(); ++i) {
      EXPECT_EQ(spans[i].action, mine[i]);
      EXPECT_LE(spans[i].begin, spans[i].end);
      EXPECT_GE(spans[i].waited, 0);
      if (i > 0) {
        EXPECT_GE(spans[i].begin, spans[i - 1].end);
      }
    }
    const double bubble = measured_bubble(pipeline.all_spans());
    EXPECT_GE(bubble, 0);
    EXPECT_LT(bubble, 1);
  }
}

TEST_P(CardPipelines, TwoRanksHaveTheBitsOfOne) {
  on_each(2, [&](int rank) {
    for (const ScheduleRecord& record : schedule_records())
      for (const int m : {1, 3, 8})
        expect_bits_of_one(
            make_table(record.name, 2, m, std::max(record.least_stages, record.most_stages == 1 ? 1 : 2)), between(3),
            rank);
  });
}

// Messages that nothing between the ranks holds: each side waits for the other.
TEST_P(CardPipelines, LargeMessagesOfFourRanks) {
  on_each(4, [&](int rank) {
    for (const ScheduleRecord& record : schedule_records())
      expect_bits_of_one(make_table(record.name, 4, 8, record.most_stages == 1 ? 1 : 2), between(1 << 14), rank);
    expect_bits_of_one(make_table("1f1b", 4, 8), between(1 << 14, DType::bf16), rank);
  });
}

// As if a card put all branches of a graph into one queue: computing and the messages of all ways begin one behind the
// other, and each end of a message holds up what comes behind it.
TEST_P(CardPipelines, OneQueueForAllGoesOn) {
  if (!played()) GTEST_SKIP() << "cards have their own queues";
  struct InTheQueue final : StageWork {
    InTheQueue(Stages& w, PlayedStream& q) : work(w), queue(q) {}
    Tensor forward(int stage, int micro, const Tensor& x) override {
      queue.wait(queue.queued());
      return work.forward(stage, micro, x);
    }
    void before_gradients(const Action&) override { queue.wait(queue.queued()); }
    Stages& work;
    PlayedStream& queue;
  };
  // Whoever waits for ever is told so.
  ProcessesOptions options;
  options.init.timeout = std::chrono::seconds(20);
  on_each(
      4,
      [&](int rank) {
        PlayedStream& queue = play_one_queue();
        for (const ScheduleRecord& record : schedule_records()) {
          const Table table = make_table(record.name, 4, 6, record.most_stages == 1 ? 1 : 2);
          Stages work(table.stages, 6, 1 << 13);
          const std::vector<Tensor> want = work.wanted();
          InTheQueue queued(work, queue);
          Pipeline(table, group("pp")).run(queued, between(1 << 13));
          for (const int s : table.stages_of(rank)) {
            const auto at = static_cast<size_t>(s);
            EXPECT_TRUE(equal(work.weights[at].grad(), want[at])) << table.schedule << ", stage " << s;
          }
        }
      },
      options);
}

TEST_P(CardPipelines, ForwardAlone) {
  on_each(2, [&](int rank) {
    const NoGrad guard;
    Stages work(4, 3, 1 << 13);
    double want = 0, got = 0;
    for (int m = 0; m < 3; ++m) {
      Tensor x;
      for (int s = 0; s < 4; ++s) x = work.forward(s, m, x);
      want += x.item();
    }
    struct Sum final : StageWork {
      Sum(Stages& w, double& t) : work(w), total(t) {}
      Tensor forward(int stage, int micro, const Tensor& x) override {
        const Tensor y = work.forward(stage, micro, x);
        if (stage == 3) total += y.item();
        return y;
      }
      Stages& work;
      double& total;
    } sum(work, got);
    Pipeline(forward_table(make_table("interleaved", 2, 4, 2), 3), group("pp")).run(sum, between(1 << 13));
    EXPECT_EQ(got, rank == 1 ? want : 0);
  });
}

// A sender is ahead of the receiver by what both have room for, and no more.
TEST_P(CardPipelines, BuffersAreBounded) {
  if (!played()) GTEST_SKIP() << "the host does not wait for cards";
  on_each(2, [&](int rank) {
    constexpr int kMicros = 12, kBuffers = 2;
    Stages work(2, kMicros, 1 << 14);
    bool ahead = false;
    work.at = [&](int stage, int micro) {
      if (stage != rank) return;
      const std::string key = "begun/";
      if (stage == 1) {
        store().set(cat(key, micro), "yes");
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
      } else if (const int taken = micro - 2 * kBuffers - 2; taken >= 0) {
        EXPECT_EQ(store().get(cat(key, taken), std::chrono::milliseconds(0)), "yes") << micro;
      } else if (micro > 0) {
        try {
          (void)store().get(cat(key, micro - 1), std::chrono::milliseconds(0));
        } catch (const DistributedError&) {
          ahead = true;
        }
      }
    };
    Pipeline pipeline(make_table("gpipe", 2, kMicros), group("pp"), kBuffers);
    EXPECT_EQ(pipeline.proof().buffers, kBuffers);
    pipeline.run(work, between(1 << 14));
    EXPECT_TRUE(ahead || rank == 1);
  });
}

TEST_P(CardPipelines, AnotherTableIsNamed) {
  on_each(2, [&](int rank) {
    Pipeline pipeline(make_table(rank == 0 ? "1f1b" : "gpipe", 2, 4), group("pp"));
    Stages work(2, 4, 3);
    expect_failure({"rank 1 called pipeline(gpipe, 2 stages, 4 micro-batches", "where rank 0 called pipeline(1f1b"},
                   [&] { pipeline.run(work, between(3)); });
  });
}

TEST_P(CardPipelines, AKilledStageIsNamedOnAllRanks) {
  ProcessesOptions options;
  options.ends = {0, 0, -SIGKILL, 0};
  on_each(
      4,
      [&](int rank) {
        Stages work(4, 8, 1 << 14);
        Pipeline pipeline(make_table("1f1b", 4, 8), group("pp"));
        pipeline.run(work, between(1 << 14));
        work.at = [&](int stage, int micro) {
          if (stage == 2 && rank == 2 && micro == 5) raise(SIGKILL);
        };
        expect_failure({"rank 2", "no heartbeat", "message("}, [&] {
          // A card's rank is told when it next uses the card.
          for (int i = 0; i < 200; ++i) {
            pipeline.run(work, between(1 << 14));
            work.weights[0].sum().item();
          }
        });
      },
      options);
}

// Other messages than the other side's, of as many bytes: the cards notice nothing, the ranks do.
TEST_P(CardPipelines, AnotherMessageIsNamed) {
  on_each(2, [&](int rank) {
    const Group::Way way{0, 1, 7};
    Group& g = group("pp");
    g.connect(here(), std::array{way});
    g.connect(here(), std::array{way});
    const auto message = [&](const std::string& what) {
      const Tensor t = full({4}, rank + 1.0);
      (rank == 0 ? g.send(t, way, what) : g.receive(t, way, what)).wait();
      return t;
    };
    for (const char* what : {"message(one)", "message(two)"})
      EXPECT_EQ(message(what).to_vector<float>(), std::vector<float>(4, 1));
    expect_failure({"rank 1 called message(four) where rank 0 called message(three)", "pp>0>1>7/cuda #4"}, [&] {
      message(rank == 0 ? "message(three)" : "message(four)");
      for (int i = 0; i < 200; ++i) {
        ones({1}).item();
        message("message(five)");
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      }
    });
  });
}

TEST_P(CardPipelines, WaysThatAreNoneAreNamed) {
  on_each(2, [&](int rank) {
    Group& g = group("pp");
    for (const Group::Way& way : {Group::Way{0, 0, 1}, Group::Way{0, 2, 1}, Group::Way{-1, 1, 1}})
      EXPECT_THROW(g.connect(here(), std::array{way}), ValueError);
    std::vector<Group::Way> many;
    for (uint64_t i = 0; i < 25; ++i) many.push_back({0, 1, 100 + i});
    try {
      g.connect(here(), many);
      ADD_FAILURE();
    } catch (const ValueError& e) {
      EXPECT_NE(std::string(e.what()).find("more than 16 ways"), std::string::npos) << e.what();
    }
    const Group::Way other{1 - rank, rank, 1}, absent{rank, 1 - rank, 9};
    EXPECT_THROW(g.send(ones({2}), other, "message"), ValueError);
    EXPECT_THROW(g.send(ones({2, 2}).t(), absent, "message"), ValueError);
    try {
      g.send(ones({2}), absent, "message");
      ADD_FAILURE();
    } catch (const ValueError& e) {
      EXPECT_NE(std::string(e.what()).find(cat("way 9 from rank ", rank)), std::string::npos) << e.what();
    }
  });
}

// A whole step in a graph, beside the same steps one op at a time: the same bits.
TEST_P(CardPipelines, AStepIsCapturedWhole) {
  if (played()) GTEST_SKIP() << "graphs are of cards";
  on_each(2, [&](int rank) {
    for (const ScheduleRecord& record : schedule_records()) {
      const std::string_view schedule = record.name;
      const Table table = make_table(schedule, 2, 6, record.most_stages == 1 ? 1 : 2);
      std::vector<std::vector<float>> ends;
      for (const bool graphed : {false, true}) {
        Stages work(table.stages, 6, 1 << 12);
        Pipeline pipeline(table, group("pp"));
        const auto own = static_cast<size_t>(table.stages_of(rank)[0]);
        const auto step = [&] {
          for (Tensor& w : work.weights) w.set_grad({});
          pipeline.run(work, between(1 << 12));
          const NoGrad guard;
          for (const int s : table.stages_of(rank)) {
            const Tensor& w = work.weights[static_cast<size_t>(s)];
            copy_elements(w, w - w.grad() * 0.5);
          }
        };
        cuda::Graph graph;
        for (int i = 0; i < 6; ++i) {
          if (graphed && i == 2) graph.capture(step);
          if (graph.empty()) {
            step();
          } else {
            graph.replay();
          }
        }
        ends.push_back(work.weights[own].to_vector<float>());
      }
      EXPECT_EQ(ends[0], ends[1]) << schedule;
    }
  });
}

}  // namespace
}  // namespace strata::distributed::pipeline
