// The bubble of pipelines between processes of one machine, beside that of their tables.
//     strata launch -n 4 -- pipeline_bench [--micro-batches 8] [--milliseconds 20] [--products 512] [--rows 256]
//                                          [--device cpu] [--dtype f32]
// A pass of a stage is either a sleep, which needs no processor (ranks may be more than cores: what is measured is the
// executor and its messages), or with --products linear layers of that width, eight a rank, forward and backward: on
// the processor or a card each (--device cuda), beside bench/pytorch/pipeline.py. Rank 0 writes a JSON object a line:
// the table's bubble, with passes as long as they were measured, and the steps' own; on cards also the step's time
// where it is one CUDA graph.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "strata/core/error.h"
#include "strata/core/parallel.h"
#include "strata/cuda/graph.h"
#include "strata/cuda/runtime.h"
#include "strata/dist/pipeline/pipeline.h"
#include "strata/dist/pipeline/schedules.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"

namespace {
using namespace strata;
namespace pipeline = strata::distributed::pipeline;

constexpr int kWarm = 2, kSteps = 5;

struct Settings {
  int micro_batches = 8;
  double seconds = 0.02;
  int64_t width = 0, rows = 256;
  bool cards = false;
  DType dtype = DType::f32;
};

// Sleeps in the place of each pass. Nothing of the tape: the executor's part is all that there is.
struct Sleeps final : pipeline::StageWork {
  Sleeps(double seconds, int stages, int64_t rows) : seconds(seconds), stages(stages), rows(rows) {}
  Tensor forward(int stage, int, const Tensor& x) override {
    nap(1);
    const Tensor y = (x.defined() ? x : ones({rows, 64})) * weight;
    return stage + 1 == stages ? mean(y) : y;
  }
  void before_gradients(const pipeline::Action& a) override { nap(a.pass == pipeline::Pass::backward ? 2 : 1); }
  void nap(double passes) const { std::this_thread::sleep_for(std::chrono::duration<double>(passes * seconds)); }
  double seconds;
  int stages;
  int64_t rows;
  Tensor weight = ones({1}).set_requires_grad();
};

struct Products final : pipeline::StageWork {
  Products(const Settings& s, const std::vector<int>& own, int stages, int chunks)
      : stages(stages), layers(8 / chunks), weights(static_cast<size_t>(stages * layers)) {
    if (s.width == 0) return;
    // As bench/pytorch/pipeline.py's layers begin: what numbers there are decides what power, and so what clock, a card
    // has.
    const double most = 1 / std::sqrt(static_cast<double>(s.width));
    input = ones({s.rows, s.width}, s.dtype);
    for (const int stage : own)
      for (int i = 0; i < layers; ++i)
        weights[static_cast<size_t>(stage * layers + i)] =
            ((rand({s.width, s.width}) * 2 - 1) * most).to(s.dtype).set_requires_grad();
  }
  Tensor forward(int stage, int, const Tensor& x) override {
    Tensor y = x.defined() ? x : input;
    for (int i = 0; i < layers; ++i) y = linear(y, weights[static_cast<size_t>(stage * layers + i)]);
    return stage + 1 == stages ? mean(y) : y;
  }
  int stages, layers;
  Tensor input;
  std::vector<Tensor> weights;
};

// Each pass's mean seconds, for the table.
pipeline::StageCost costs_of(const std::vector<std::vector<pipeline::ActionSpan>>& spans) {
  double seconds[4] = {}, counts[4] = {};
  for (const auto& rank : spans) {
    for (const pipeline::ActionSpan& s : rank) {
      seconds[static_cast<int>(s.action.pass)] += s.end - s.begin;
      counts[static_cast<int>(s.action.pass)] += 1;
    }
  }
  for (int i = 0; i < 4; ++i) seconds[i] = counts[i] > 0 ? seconds[i] / counts[i] : 0;
  if (counts[1] > 0) return {seconds[0], seconds[1], 0};
  return {seconds[0], seconds[2], seconds[3]};
}

// Milliseconds of a step as one graph, the slowest rank's, median of several.
double graphed_ms(pipeline::Pipeline& p, Products& work, const TensorMeta& between) {
  const int device = between.device.index;
  const auto step = [&] {
    for (Tensor& w : work.weights)
      if (w.defined()) w.set_grad({});
    p.run(work, between);
  };
  cuda::Graph graph{cuda::GraphPool(device)};
  try {
    graph.capture(step);
  } catch (const Error& e) {  // on every rank alike: the other figures stand
    std::fprintf(stderr, "pipeline_bench: no graph: %s\n", e.what());
    return 0;
  }
  std::vector<double> times;
  cuda::Event begin(true, device), end(true, device);
  for (int i = 0; i < kWarm + kSteps; ++i) {
    cuda::synchronize(device);
    distributed::group("pp").barrier();
    begin.record(cuda::current_stream(device));
    graph.replay();
    end.record(cuda::current_stream(device));
    end.synchronize();
    double ms = end.elapsed_ms(begin);
    distributed::group("pp").run("slowest", [&](distributed::Communicator& c) {
      c.all_reduce(&ms, 1, DType::f64, distributed::Reduction::max);
    });
    if (i >= kWarm) times.push_back(ms);
  }
  std::ranges::sort(times);
  return times[times.size() / 2];
}

int run(const Settings& s) {
  distributed::init();
  if (s.cards) distributed::take_own_card();
  set_num_threads(1);
  const Device device = s.cards ? distributed::card() : Device::cpu();
  const DeviceScope there(device);
  const int ranks = distributed::size();
  distributed::set_mesh(distributed::Mesh(cat("pp=", ranks)));
  distributed::Group& group = distributed::group("pp");
  for (const pipeline::ScheduleRecord& record : pipeline::schedule_records()) {
    const int chunks = record.most_stages == 1 ? 1 : 2;
    const pipeline::Table table = pipeline::make_table(record.name, ranks, s.micro_batches, chunks);
    pipeline::Pipeline p(table, group);
    Sleeps sleeps(s.seconds / chunks, table.stages, s.rows);
    Products products(s, table.stages_of(group.rank()), table.stages, chunks);
    pipeline::StageWork& work = s.width > 0 ? static_cast<pipeline::StageWork&>(products) : sleeps;
    const TensorMeta between{{s.rows, s.width > 0 ? s.width : 64}, s.dtype, device, std::nullopt};
    std::vector<double> bubbles, steps;
    pipeline::StageCost cost;
    for (int i = 0; i < kWarm + kSteps; ++i) {
      for (Tensor& w : products.weights)
        if (w.defined()) w.set_grad({});
      p.time_next();
      p.run(work, between);
      const auto spans = p.all_spans();
      double end = 0;
      for (const auto& rank : spans) end = std::max(end, rank.back().end);
      if (i < kWarm) continue;
      bubbles.push_back(pipeline::measured_bubble(spans));
      steps.push_back(end);
      cost = costs_of(spans);
    }
    std::ranges::sort(bubbles);
    std::ranges::sort(steps);
    const pipeline::Simulation said = pipeline::simulate(table, {cost});
    const double graphed = s.cards ? graphed_ms(p, products, between) : 0;
    if (group.rank() != 0) continue;
    std::printf(
        "{\"schedule\": \"%s\", \"ranks\": %d, \"stages\": %d, \"micro_batches\": %d, \"table_bubble\": %.4f, "
        "\"measured_bubble\": %.4f, \"table_ms\": %.2f, \"measured_ms\": %.2f, \"live\": %d, "
        "\"graph_ms\": %.2f}\n",
        table.schedule.c_str(), ranks, table.stages, s.micro_batches, said.bubble, bubbles[kSteps / 2],
        1e3 * said.seconds, 1e3 * steps[kSteps / 2], std::ranges::max(p.proof().live), graphed);
    std::fflush(stdout);
  }
  distributed::shutdown();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Settings s;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--micro-batches") == 0) s.micro_batches = std::atoi(argv[i + 1]);
    if (std::strcmp(argv[i], "--milliseconds") == 0) s.seconds = std::atof(argv[i + 1]) / 1e3;
    if (std::strcmp(argv[i], "--products") == 0) s.width = std::atoll(argv[i + 1]);
    if (std::strcmp(argv[i], "--rows") == 0) s.rows = std::atoll(argv[i + 1]);
    if (std::strcmp(argv[i], "--device") == 0) s.cards = std::strcmp(argv[i + 1], "cuda") == 0;
    if (std::strcmp(argv[i], "--dtype") == 0) s.dtype = parse_dtype(argv[i + 1]);
  }
  try {
    check(!s.cards || s.width > 0, "pipeline_bench", "--device cuda is for --products");
    return run(s);
  } catch (const Error& e) {
    std::fprintf(stderr, "pipeline_bench: %s\n", e.what());
    return 1;
  }
}
