#include "strata/dist/pipeline/pipeline.h"

#include <csignal>
#include <map>
#include <thread>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/dist/pipeline/schedules.h"
#include "strata/dist/processes_test_util.h"
#include "strata/dist/rank_threads.h"
#include "strata/ops/ops.h"

namespace strata::distributed::pipeline {
namespace {

constexpr int64_t kRows = 3, kDim = 8;

// Stages of two layers each. Made of the same numbers for each number of ranks.
struct Model {
  Model(int stages, int micro_batches) {
    manual_seed(11);
    const auto weight = [](const Shape& s) { return (randn(s) * 0.4).set_requires_grad(); };
    for (int s = 0; s < stages; ++s) weights.push_back({weight({kDim, kDim}), weight({kDim}), weight({kDim, kDim})});
    for (int m = 0; m < micro_batches; ++m) inputs.push_back(randn({kRows, kDim}));
  }
  Tensor forward(int stage, int micro, const Tensor& x) const {
    const TensorList& w = weights[static_cast<size_t>(stage)];
    const Tensor in = x.defined() ? x : inputs[static_cast<size_t>(micro)];
    const Tensor y = in + linear(rms_norm(tanh(linear(in, w[0])), {kDim}, w[1]), w[2]);
    if (stage + 1 < static_cast<int>(weights.size())) return y;
    return mean(square(y)) * (1.0 / static_cast<double>(inputs.size()));
  }
  std::vector<Tensor> take_grads() {
    std::vector<Tensor> all;
    for (const TensorList& stage : weights)
      for (Tensor t : stage) {
        all.push_back(t.grad());
        t.set_grad({});
      }
    return all;
  }
  std::vector<TensorList> weights;
  TensorList inputs;
};

struct Work final : StageWork {
  explicit Work(const Model& m) : model(m) {}
  Tensor forward(int stage, int micro, const Tensor& x) override {
    const Tensor y = model.forward(stage, micro, x);
    if (stage + 1 == static_cast<int>(model.weights.size())) loss += y.item();
    return y;
  }
  void before_gradients(const Action& a) override { told.push_back(a); }
  void after_gradients(const Action& a) override {
    told_after.push_back(a);
    if (a.micro > 0 || a.pass != Pass::input_gradient) return;
    // Of the first micro-batch alone what is asked for.
    const TensorList& w = model.weights[static_cast<size_t>(a.stage)];
    EXPECT_TRUE(w[2].grad().defined());
    EXPECT_FALSE(w[0].grad().defined());
  }
  TensorList never_late(int stage) override { return {model.weights[static_cast<size_t>(stage)][2]}; }
  const Model& model;
  double loss = 0;
  std::vector<Action> told, told_after;
};

TensorMeta between() {
  return {{kRows, kDim}, DType::f32, Device::cpu(), std::nullopt};
}

void expect_bits_of_one(const Table& table) {
  Model model(table.stages, table.micro_batches);
  double want_loss = 0;
  for (int m = 0; m < table.micro_batches; ++m) {
    Tensor x;
    for (int s = 0; s < table.stages; ++s) x = model.forward(s, m, x);
    want_loss += x.item();
    x.backward();
  }
  const std::vector<Tensor> want = model.take_grads();
  run_as_ranks(Mesh(cat("pp=", table.ranks)), [&](int rank) {
    Pipeline pipeline(table, group("pp"));
    for (int step = 0; step < 2; ++step) {  // the second one finds nothing of the first
      for (const int s : table.stages_of(rank))
        for (Tensor t : model.weights[static_cast<size_t>(s)]) t.set_grad({});
      Work work(model);
      pipeline.run(work, between());
      EXPECT_EQ(work.loss, table.rank_of.back() == rank ? want_loss : 0);
      const std::vector<Action>& mine = table.actions[static_cast<size_t>(rank)];
      ASSERT_EQ(pipeline.spans().size(), mine.size());
      size_t gradients = 0;
      for (size_t i = 0; i < mine.size(); ++i) {
        EXPECT_EQ(pipeline.spans()[i].action, mine[i]);
        EXPECT_LE(pipeline.spans()[i].begin, pipeline.spans()[i].end);
        if (mine[i].pass == Pass::forward) continue;
        EXPECT_EQ(work.told[gradients++], mine[i]);
      }
      EXPECT_EQ(gradients, work.told.size());
      EXPECT_EQ(work.told_after, work.told);
      const auto all = pipeline.all_spans();
      ASSERT_EQ(all.size(), static_cast<size_t>(table.ranks));
      for (int r = 0; r < table.ranks; ++r)
        for (size_t i = 0; i < all[static_cast<size_t>(r)].size(); ++i)
          EXPECT_EQ(all[static_cast<size_t>(r)][i].action, table.actions[static_cast<size_t>(r)][i]);
      EXPECT_EQ(all[static_cast<size_t>(rank)].back().end, pipeline.spans().back().end);
      const double bubble = measured_bubble(all);
      EXPECT_GE(bubble, 0);
      EXPECT_LT(bubble, 1);
    }
  });
  const std::vector<Tensor> got = model.take_grads();
  for (size_t i = 0; i < want.size(); ++i) EXPECT_TRUE(equal(got[i], want[i])) << table.schedule << ", weight " << i;
}

TEST(Pipeline, GradientsHaveTheBitsOfOneProcess) {
  for (const ScheduleRecord& record : schedule_records()) {
    for (const int ranks : {1, 2, 3, 4}) {
      for (const int m : {1, 2, 5, 8}) {
        for (int chunks = record.least_stages; chunks <= std::max(record.most_stages, record.least_stages + 1);
             ++chunks) {
          if (record.most_stages != 0 && chunks > record.most_stages) continue;
          SCOPED_TRACE(testing::Message() << record.name << " " << ranks << " " << m << " " << chunks);
          expect_bits_of_one(make_table(record.name, ranks, m, chunks));
        }
      }
    }
  }
}

TEST(Pipeline, ForwardAloneKeepsNothing) {
  const Table table = forward_table(make_table("interleaved", 2, 4, 2), 3);
  const Model model(4, 3);
  run_as_ranks(Mesh("pp=2"), [&](int rank) {
    const NoGrad guard;
    Pipeline pipeline(table, group("pp"));
    Work work(model);
    pipeline.run(work, between());
    double want = 0;
    for (int m = 0; m < 3; ++m) {
      Tensor x;
      for (int s = 0; s < 4; ++s) x = model.forward(s, m, x);
      want += x.item();
    }
    EXPECT_EQ(work.loss, rank == 1 ? want : 0);
  });
}

TEST(Pipeline, BetweenProcesses) {
  on_processes(4, [](int rank) {
    set_mesh(Mesh("pp=4"));
    for (const char* schedule : {"1f1b", "zb-h1", "breadth-first", "zb-v"}) {
      const Table table = make_table(schedule, 4, 8, schedule[0] == 'b' ? 2 : 0);
      Model model(table.stages, table.micro_batches);
      for (int m = 0; m < table.micro_batches; ++m) {
        Tensor x;
        for (int s = 0; s < table.stages; ++s) x = model.forward(s, m, x);
        x.backward();
      }
      const std::vector<Tensor> want = model.take_grads();
      Pipeline pipeline(table, group("pp"));
      Work work(model);
      pipeline.run(work, between());
      for (const int s : table.stages_of(rank))
        for (size_t i = 0; i < 3; ++i)
          EXPECT_TRUE(equal(model.weights[static_cast<size_t>(s)][i].grad(), want[3 * static_cast<size_t>(s) + i]));
    }
  });
}

// Messages that no buffer of the system holds.
TEST(Pipeline, LargeMessagesBetweenProcesses) {
  on_processes(3, [](int rank) {
    set_mesh(Mesh("pp=3"));
    struct Big final : StageWork {
      Tensor forward(int stage, int, const Tensor& x) override {
        const Tensor y = (x.defined() ? x : ones({1 << 20}).set_requires_grad()) * w;
        return stage == 2 ? mean(y) : y;
      }
      Tensor w = full({1}, 2.0).set_requires_grad();
    } work;
    Pipeline pipeline(make_table("1f1b", 3, 6), group("pp"));
    pipeline.run(work, {{1 << 20}, DType::f32, Device::cpu(), std::nullopt});
    EXPECT_NEAR(work.w.grad().item(), 6 * 4, 1e-3) << rank;
  });
}

TEST(Pipeline, AnotherTableIsNamed) {
  on_processes(2, [](int rank) {
    set_mesh(Mesh("pp=2"));
    Pipeline pipeline(make_table(rank == 0 ? "1f1b" : "gpipe", 2, 4), group("pp"));
    const Model model(2, 4);
    Work work(model);
    expect_failure({"rank 1 called pipeline(gpipe, 2 stages, 4 micro-batches", "where rank 0 called pipeline(1f1b"},
                   [&] { pipeline.run(work, between()); });
  });
}

TEST(Pipeline, AnotherKindOfMessageIsNamed) {
  on_processes(2, [](int rank) {
    set_mesh(Mesh("pp=2"));
    Pipeline pipeline(make_table("1f1b", 2, 4), group("pp"));
    const Model model(2, 4);
    Work work(model);
    TensorMeta meta = between();
    if (rank == 1) meta.dtype = DType::bf16;
    expect_failure({"bf16 [3, 8] where rank 0 called pipeline(1f1b"}, [&] { pipeline.run(work, meta); });
  });
}

TEST(Pipeline, AKilledStageIsNamedOnAllRanks) {
  ProcessesOptions options;
  options.ends = {0, 0, -SIGKILL, 0};
  on_processes(
      4,
      [](int rank) {
        set_mesh(Mesh("pp=4"));
        struct Dying final : StageWork {
          Dying(const Model& m, int r) : model(m), rank(r) {}
          Tensor forward(int stage, int micro, const Tensor& x) override {
            if (rank == 2 && micro == 5) raise(SIGKILL);
            return model.forward(stage, micro, x);
          }
          const Model& model;
          int rank;
        };
        const Model model(4, 8);
        Dying work(model, rank);
        Pipeline pipeline(make_table("1f1b", 4, 8), group("pp"));
        expect_failure({"rank 2", "heart"}, [&] { pipeline.run(work, between()); });
      },
      options);
}

TEST(Pipeline, WrongStagesAreNamed) {
  EXPECT_THROW(Pipeline(make_table("1f1b", 2, 2), group("world")), ValueError);
  struct Wrong final : StageWork {
    Tensor forward(int stage, int, const Tensor& x) override {
      if (stage == 0) return first;
      return square(x);
    }
    Tensor first;
  };
  for (const auto& [first, piece] : {std::pair{ones({2}), "F of micro-batch 0 at stage 0 made"},
                                     std::pair{ones({3}, DType::f64), "F of micro-batch 0 at stage 0 made"},
                                     std::pair{ones({3}), "wanted one number"}}) {
    try {
      run_as_ranks(Mesh("pp=2"), [&, first = first](int) {
        Wrong work;
        work.first = first;
        Pipeline(make_table("gpipe", 2, 1), group("pp")).run(work, {{3}, DType::f32, Device::cpu(), std::nullopt});
      });
      ADD_FAILURE() << piece;
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find(piece), std::string::npos) << e.what();
    }
  }
}

}  // namespace
}  // namespace strata::distributed::pipeline
