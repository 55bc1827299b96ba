// What saved tensors that leave a card cost and save: a training step of GPT-2 124M (32 x 1024), or of eight layers of
// Llama 8B's shape (4 x 4096), bf16 autocast and AdamW, without offload and with it. Prints milliseconds a step, the
// peak of the card's memory, the peak above what is there between steps (activations, gradients and what kernels take),
// what left, and what the link could take during forward at 55 GB/s; and whether losses and weights are those without,
// bit for bit.
//     offload_bench gpt2|llama [graph] [disk DIRECTORY]
// from the repository's root, or with STRATA_SOURCE_DIR naming it.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "strata/autograd/autograd.h"
#include "strata/autograd/offload.h"
#include "strata/core/autocast.h"
#include "strata/core/rng.h"
#include "strata/cuda/graph.h"
#include "strata/cuda/runtime.h"
#include "strata/memory/allocator.h"
#include "strata/models/language_model.h"
#include "strata/ops/factory/factory.h"
#include "strata/optim/optim.h"
#include "strata/train/config.h"

namespace {

using namespace strata;
constexpr double kLink = 55e9, kGiB = 1 << 30;
constexpr int kWarm = 5, kRounds = 3, kSteps = 4;

struct Work {
  ModelConfig model;
  int64_t batch = 0, context = 0;
  bool keeps_gradients = false;
};

// The shapes of configs/; of the larger one eight layers, and a text of few words.
Work work_of(bool llama) {
  const char* source = std::getenv("STRATA_SOURCE_DIR");
  const std::string configs = std::string(source ? source : ".") + "/configs/";
  const TrainConfig c = llama ? load_config(configs + "llama-8b.toml", {"model.layers=8", "model.vocab=1024"})
                              : load_config(configs + "gpt2-124m.toml");
  return {.model = c.model, .batch = c.batch, .context = c.model.context, .keeps_gradients = llama};
}

Tensor tokens_of(const Work& w, int64_t step) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < w.batch * w.context; ++i) ids.push_back((i * step + i / 7) % w.model.vocab);
  return from_span<int64_t>(ids, {w.batch, w.context}).to(Device::cuda());
}

struct Result {
  double ms = 0;
  int64_t peak = 0, above = 0;
  double loss = 0, weights = 0;
  OffloadStats stats;
  OffloadMeasured measured;
  OffloadPlan plan;
};

// With `keeps_gradients` their memory is there between steps, and not above it.
// `pass_seconds`: of forward and backward in a graph, where that is known.
Result run(const Work& w, const std::shared_ptr<SavedTensorOffload>& offload, bool graph, double pass_seconds = 0) {
  const Device card = Device::cuda();
  manual_seed(5);
  const DeviceScope on(card);
  const auto model = make_model(w.model);
  optim::AdamW optimizer(model->parameters(), {.lr = 1e-4});
  const Tensor tokens = tokens_of(w, 3), targets = tokens_of(w, 5);
  Tensor loss;
  const auto step = [&] {
    optimizer.zero_grad(!w.keeps_gradients);
    {
      std::optional<SavedTensorOffload::Scope> scope;
      if (offload) scope.emplace(offload);
      const AutocastScope low(DType::bf16);
      loss = model->loss(tokens, targets);
    }
    loss.backward();
    optimizer.step_guarded({.max_norm = 1, .loss = loss.detach().to(DType::f32)});
  };
  Result r;
  for (int i = 0; i < kWarm; ++i) {
    step();
    cuda::synchronize();
    if (offload) offload->settle();
  }
  loss = Tensor();
  optimizer.zero_grad(!w.keeps_gradients);
  memory::release_cached();
  const int64_t between = memory::stats(card).live_total;
  memory::reset_peak(card);
  OffloadStats before;
  if (offload) before = offload->stats();
  step();
  cuda::synchronize();
  r.peak = memory::stats(card).peak_total;
  r.above = r.peak - between;
  if (offload) {
    r.stats = offload->stats();
    r.stats.sent -= before.sent;
    r.stats.recomputed -= before.recomputed;
    r.stats.fetched -= before.fetched;
    r.measured = offload->measured();
    if (offload->plan()) r.plan = *offload->plan();
  }
  std::optional<cuda::Graph> captured;
  if (graph) {
    optimizer.zero_grad(!w.keeps_gradients);
    loss = Tensor();
    if (offload) offload->settle(pass_seconds);
    memory::release_cached();
    captured.emplace();
    captured->capture(step);
    r.peak = between + captured->pool().reserved_bytes();
  }
  const cuda::Stream stream = cuda::current_stream();
  std::vector<double> ms;
  for (int round = 0; round < kRounds; ++round) {
    cuda::Event begin(true), end(true);
    begin.record(stream);
    for (int i = 0; i < kSteps; ++i) {
      if (captured)
        captured->replay();
      else
        step();
    }
    end.record(stream);
    end.synchronize();
    ms.push_back(end.elapsed_ms(begin) / kSteps);
  }
  std::sort(ms.begin(), ms.end());
  r.ms = ms[kRounds / 2];
  r.loss = loss.item();
  for (const Tensor& p : model->parameters()) r.weights += p.detach().to(DType::f64).abs().sum().item();
  return r;
}

void print(const char* name, const Result& r, const Result& plain) {
  const double seconds = r.measured.forward_seconds;
  std::printf("| %s | %.1f | %.3f | %.2f | %.2f | %.2f | %.2f | %.2f | %.1f | %.1f | %.2f | %s |\n", name, r.ms,
              r.ms / plain.ms, static_cast<double>(r.peak) / kGiB, static_cast<double>(r.above) / kGiB,
              static_cast<double>(r.above) / static_cast<double>(plain.above), static_cast<double>(r.stats.sent) / kGiB,
              static_cast<double>(r.stats.recomputed) / kGiB, r.measured.out_rate / 1e9, seconds * 1e3,
              seconds * kLink / kGiB, r.loss == plain.loss && r.weights == plain.weights ? "yes" : "NO");
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  if (cuda::device_count() == 0) {
    std::printf("no CUDA device: %s\n", cuda::unavailable_reason().c_str());
    return 0;
  }
  const std::string name = argc > 1 ? argv[1] : "gpt2";
  bool graph = false;
  std::string directory;
  for (int i = 2; i < argc; ++i) {
    if (std::strcmp(argv[i], "graph") == 0) graph = true;
    if (std::strcmp(argv[i], "disk") == 0 && i + 1 < argc) directory = argv[++i];
  }
  if (name != "gpt2" && name != "llama") {
    std::printf("offload_bench gpt2|llama [graph] [disk DIRECTORY]\n");
    return 1;
  }
  const bool llama = name == "llama";
  const Work w = work_of(llama);
  std::printf("%s: %s, %lld x %lld%s\n\n", cuda::properties().name.c_str(), name.c_str(),
              static_cast<long long>(w.batch), static_cast<long long>(w.context), graph ? ", one CUDA graph" : "");
  // The planner's step is forward and backward: what the optimizer takes beside it (about a tenth for these layers) may
  // be spent too.
  OffloadOptions away{.slowdown = llama ? 1.022 : 1.02};
  if (!directory.empty()) {
    away.away = SavedPlace::disk;
    away.disk = std::make_shared<memory::DiskStore>(memory::DiskOptions{.directories = {directory}});
  }
  OffloadOptions both = away;
  both.recompute = true;
  both.slowdown = llama ? 1.085 : 1.05;  // steps take 3% more than is planned
  OffloadOptions more = both;
  more.slowdown = llama ? 1.28 : 1.2;

  const Result plain = run(w, nullptr, graph);
  std::printf(
      "| saved tensors | ms a step | ratio | peak, GiB | above the rest, GiB | of that without | sent, GiB | computed "
      "again, "
      "GiB | link, GB/s | forward, ms | bound of sent in forward, GiB | same bits "
      "|\n|---|---|---|---|---|---|---|---|---|---|---|---|\n");
  print("kept", plain, plain);
  const auto row = [&](const char* title, const OffloadOptions& o) {
    const auto offload = SavedTensorOffload::create(o);
    const Result r = run(w, offload, graph, plain.ms / 1e3);
    print(title, r, plain);
    if (!r.stats.last_failure.empty()) std::printf("refused: %s\n", r.stats.last_failure.c_str());
    return r;
  };
  const Result a = row(directory.empty() ? "to the host, 1.02" : "to the disk, 1.02", away);
  if (graph) {  // by the times of passes that the host queued
    const auto offload = SavedTensorOffload::create(away);
    print("by the times without a graph", run(w, offload, graph), plain);
  }
  OffloadOptions calls = both;
  calls.away = SavedPlace::keep;
  if (directory.empty()) (void)row("none leaves, computed again", calls);
  const Result b = row(llama ? "and computed again, 1.10" : "and computed again, 1.08", both);
  if (directory.empty()) (void)row(llama ? "and computed again, 1.25" : "and computed again, 1.20", more);
  int64_t saved = 0;
  for (const SavedRecord& s : a.measured.saved) saved += s.bytes;
  std::printf(
      "\nsaved: %.2f GiB in %zu storages; planned: %.2f GiB away of %.2f; with recomputation %.2f away, %.2f again, "
      "%.1f ms expected\n",
      static_cast<double>(saved) / kGiB, a.measured.saved.size(), static_cast<double>(a.plan.away_bytes) / kGiB,
      static_cast<double>(saved) / kGiB, static_cast<double>(b.plan.away_bytes) / kGiB,
      static_cast<double>(b.plan.recomputed_bytes) / kGiB, b.plan.seconds * 1e3);
}
