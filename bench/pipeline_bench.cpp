// The bubble of pipelines between processes of one machine, beside that of their tables.
//     strata launch -n 4 -- pipeline_bench [--micro-batches 8] [--milliseconds 20] [--products 512]
// A pass of a stage is either a sleep, which needs no processor (ranks may be more than cores: what is measured is the
// executor and its messages), or with --products a linear layer of that width, forward and backward. Rank 0 writes a
// JSON object a line: the table's bubble, with passes as long as they were measured, and the steps' own.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "strata/core/error.h"
#include "strata/core/parallel.h"
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
constexpr int64_t kRows = 256;

// Sleeps in the place of each pass. Nothing of the tape: the executor's part is all that there is.
struct Sleeps final : pipeline::StageWork {
  explicit Sleeps(double seconds, int stages) : seconds(seconds), stages(stages) {}
  Tensor forward(int stage, int, const Tensor& x) override {
    nap(1);
    const Tensor y = (x.defined() ? x : ones({kRows, 64})) * weight;
    return stage + 1 == stages ? mean(y) : y;
  }
  void before_gradients(const pipeline::Action& a) override { nap(a.pass == pipeline::Pass::backward ? 2 : 1); }
  void nap(double passes) const { std::this_thread::sleep_for(std::chrono::duration<double>(passes * seconds)); }
  double seconds;
  int stages;
  Tensor weight = ones({1}).set_requires_grad();
};

struct Products final : pipeline::StageWork {
  Products(int64_t width, int stages, int chunks) : width(width), stages(stages), layers(8 / chunks) {
    for (int i = 0; i < stages * layers; ++i)
      weights.push_back((randn({width, width}) * (1.0 / static_cast<double>(width))).set_requires_grad());
  }
  Tensor forward(int stage, int, const Tensor& x) override {
    Tensor y = x.defined() ? x : ones({kRows, width});
    for (int i = 0; i < layers; ++i) y = linear(y, weights[static_cast<size_t>(stage * layers + i)]);
    return stage + 1 == stages ? mean(y) : y;
  }
  int64_t width;
  int stages, layers;
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

int run(int micro_batches, double seconds, int64_t width) {
  distributed::init();
  set_num_threads(1);
  const int ranks = distributed::size();
  distributed::set_mesh(distributed::Mesh(cat("pp=", ranks)));
  distributed::Group& group = distributed::group("pp");
  for (const pipeline::ScheduleRecord& record : pipeline::schedule_records()) {
    const int chunks = record.most_stages == 1 ? 1 : 2;
    const pipeline::Table table = pipeline::make_table(record.name, ranks, micro_batches, chunks);
    pipeline::Pipeline p(table, group);
    Sleeps sleeps(seconds / chunks, table.stages);
    Products products(std::max<int64_t>(width, 1), table.stages, chunks);
    pipeline::StageWork& work = width > 0 ? static_cast<pipeline::StageWork&>(products) : sleeps;
    const TensorMeta between{{kRows, width > 0 ? width : 64}, DType::f32, Device::cpu(), std::nullopt};
    std::vector<double> bubbles, steps;
    pipeline::StageCost cost;
    for (int i = 0; i < kWarm + kSteps; ++i) {
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
    if (group.rank() != 0) continue;
    std::printf(
        "{\"schedule\": \"%s\", \"ranks\": %d, \"stages\": %d, \"micro_batches\": %d, \"table_bubble\": %.4f, "
        "\"measured_bubble\": %.4f, \"table_ms\": %.2f, \"measured_ms\": %.2f, \"live\": %d}\n",
        table.schedule.c_str(), ranks, table.stages, micro_batches, said.bubble, bubbles[kSteps / 2],
        1e3 * said.seconds, 1e3 * steps[kSteps / 2], std::ranges::max(p.proof().live));
    std::fflush(stdout);
  }
  distributed::shutdown();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  int micro_batches = 8;
  double milliseconds = 20;
  int64_t width = 0;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--micro-batches") == 0) micro_batches = std::atoi(argv[i + 1]);
    if (std::strcmp(argv[i], "--milliseconds") == 0) milliseconds = std::atof(argv[i + 1]);
    if (std::strcmp(argv[i], "--products") == 0) width = std::atoll(argv[i + 1]);
  }
  try {
    return run(micro_batches, milliseconds / 1e3, width);
  } catch (const Error& e) {
    std::fprintf(stderr, "pipeline_bench: %s\n", e.what());
    return 1;
  }
}
