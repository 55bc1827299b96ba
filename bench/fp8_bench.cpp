// Training steps on a card in bf16 and in fp8, captured in a graph, with AdamW and f32 weights: the shape of Llama 3.2B
// (vocabulary and all), four layers of Llama 8B's shape, and the loss of a small model over 300 steps.
//     fp8_bench [layers of the first, 28] [steps of the last, 300] [a text that it learns byte by byte]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "bench/device_time.h"
#include "strata/core/rng.h"
#include "strata/memory/allocator.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/matmul/linear_fp8.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/random/random.h"
#include "strata/train/run.h"
#include "strata/train/step_runner.h"

namespace {

using namespace strata;

struct Precision {
  const char *name, *dtype, *scaling;
};
constexpr Precision kPrecisions[] = {
    {"bf16", "bf16", "tensor"}, {"fp8", "fp8", "tensor"}, {"fp8 by row", "fp8", "row"}};

// A file's bytes; without a file something made up: each token follows from the two before it, but for one in eight.
std::vector<int64_t> text(int64_t n, int64_t vocab, const char* path = nullptr) {
  std::vector<int64_t> t{1, 2};
  if (path != nullptr) {
    std::ifstream in(path, std::ios::binary);
    const std::string all{std::istreambuf_iterator<char>(in), {}};
    if (all.size() < 2) std::fprintf(stderr, "fp8_bench: nothing to read in %s\n", path), std::exit(2);
    t.clear();
    for (int64_t i = 0; i < n; ++i)
      t.push_back(static_cast<unsigned char>(all[static_cast<size_t>(i) % all.size()]) % vocab);
    return t;
  }
  uint64_t state = 1;
  for (int64_t i = 2; i < n; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const auto draw = static_cast<int64_t>(state >> 33);
    t.push_back(draw % 8 == 0 ? draw / 8 % vocab
                              : (3 * t[static_cast<size_t>(i - 1)] + 5 * t[static_cast<size_t>(i - 2)] + 7) % vocab);
  }
  return t;
}

// A model on the card, and batches for it.
struct Work {
  Work(const ModelConfig& m, int64_t batch, int64_t batches, const char* path = nullptr) {
    config.model = m;
    config.batch = batch;
    config.device = "cuda";
    config.graph = "auto";
    const int64_t tokens = batch * m.context;
    const std::vector<int64_t> all =
        text(batches * tokens + 1, path != nullptr ? m.vocab : std::min<int64_t>(m.vocab, 64), path);
    for (int64_t i = 0; i < batches; ++i) {
      data::Batch b;
      for (const int64_t shift : {0, 1}) {
        const auto from = all.begin() + i * tokens + shift;
        b.push_back(
            from_span<int64_t>(std::vector<int64_t>(from, from + tokens), {batch, m.context}).to(Device::cuda()));
      }
      data.push_back(b);
    }
    placed = {data[0][0].clone(), data[0][1].clone()};
  }
  // Milliseconds of each step after the first three, and the losses of all.
  std::vector<double> run(const Precision& p, int64_t steps, double rate, std::vector<double>& losses,
                          uint64_t seed = 1) {
    config.dtype = p.dtype;
    config.fp8_scaling = p.scaling;
    manual_seed(seed);
    {
      DeviceScope on(Device::cuda());
      model = make_model(config);
    }
    model->train();
    optimizer = make_optimizer(config.optim, model->named_parameters(), 0, model->table_names());
    const Ranks ranks(config);
    StepRunner runner(*model, *optimizer, config, Device::cuda(), ranks);
    std::vector<double> ms;
    for (int64_t s = 0; s < steps; ++s) {
      const data::Batch& next = data[static_cast<size_t>(s) % data.size()];
      for (size_t i = 0; i < 2; ++i) copy_elements(placed[i], next[i]);
      runner.begin();
      runner.launch({placed}, rate * std::min(1.0, static_cast<double>(s + 1) / 20));
      losses.push_back(runner.read().loss);
      if (s == 2) memory::reset_peak(DeviceType::cuda);
      if (s > 2) ms.push_back(1e3 * runner.seconds());
    }
    const std::string note = runner.take_note();
    if (note.find("no CUDA graph") != std::string::npos) std::printf("  %s\n", note.c_str());
    return ms;
  }
  void free() {
    optimizer.reset();
    model.reset();
    memory::release_cached();
  }
  TrainConfig config;
  std::vector<data::Batch> data;
  data::Batch placed;
  std::shared_ptr<LanguageModel> model;
  std::unique_ptr<optim::Optimizer> optimizer;
};

void time_steps(const char* name, const ModelConfig& m) {
  Work work(m, 4, 2);
  double of_bf16 = 0;
  for (const Precision& p : kPrecisions) {
    std::vector<double> losses, ms = work.run(p, 10, 1e-4, losses);
    std::nth_element(ms.begin(), ms.begin() + static_cast<std::ptrdiff_t>(ms.size() / 2), ms.end());
    const double median = ms[ms.size() / 2];
    if (of_bf16 == 0) of_bf16 = median;
    std::printf("%-28s %-11s %8.2f ms a step  %7.0f tokens/s  %.2fx bf16  loss %.4f after 10 steps\n", name, p.name,
                median, 1e3 * 4 * static_cast<double>(m.context) / median, of_bf16 / median, losses.back());
    std::fflush(stdout);
    work.free();
  }
}

void compare_losses(int64_t steps, const char* path) {
  const ModelConfig m{.family = "llama", .layers = 6, .dim = 512, .heads = 8, .context = 512, .vocab = 512};
  Work work(m, 16, path != nullptr ? 136 : 50, path);
  double of_bf16 = 0;
  std::vector<std::pair<Precision, uint64_t>> all;
  for (const Precision& p : kPrecisions) all.emplace_back(p, 1);
  all.push_back({{"bf16, seed 2", "bf16", "tensor"}, 2});  // what says nothing
  for (const auto& [p, seed] : all) {
    std::vector<double> losses, ms = work.run(p, steps, 1e-3, losses, seed);
    const size_t last = std::min<size_t>(50, losses.size());
    double mean = 0;
    for (size_t i = losses.size() - last; i < losses.size(); ++i) mean += losses[i] / static_cast<double>(last);
    if (of_bf16 == 0) of_bf16 = mean;
    std::printf("loss, mean of the last %zu of %lld steps: %-11s %.5f  %+.3f%%\n", last, static_cast<long long>(steps),
                p.name, mean, 100 * (mean / of_bf16 - 1));
    std::fflush(stdout);
    work.free();
  }
}

// The parts of a layer: making codes, and the three products.
void time_parts(const char* name, int64_t rows, int64_t in, int64_t out) {
  DeviceScope on(Device::cuda());
  NoGrad guard;
  const Tensor x = randn({rows, in}).to(DType::bf16), w = randn({out, in}), low = w.to(DType::bf16);
  const double tera = 2e-9 * static_cast<double>(rows) * static_cast<double>(in) * static_cast<double>(out);
  const double product = device_ms(1, [&](int64_t) { linear(x, low); });
  std::printf("%-28s bf16 product %.3f ms %4.0f TFLOP/s", name, product, tera / product);
  for (const char* scaling : {"tensor", "row"}) {
    const double codes = device_ms(1, [&](int64_t) { fp8_codes(x, "e4m3", scaling); }),
                 of_weight = device_ms(1, [&](int64_t) { fp8_codes(w, "e4m3", scaling); });
    const double whole = device_ms(1, [&](int64_t) { linear_fp8(x, w, {}, scaling); });
    // linear_fp8 without a gradient makes no transposed codes of x: its own part is less than `codes`.
    std::printf("; fp8 %s: codes of x %.3f ms %4.0f GB/s, of the weight %.3f ms %4.0f GB/s, all %.3f ms", scaling,
                codes, 6e-6 * static_cast<double>(x.numel()) / codes, of_weight,
                10e-6 * static_cast<double>(w.numel()) / of_weight, whole);
  }
  std::printf("\n");
}

}  // namespace

int main(int argc, char** argv) {
  using namespace strata;
  if (!Rows::on_a_card()) return 0;
  const int64_t layers = argc > 1 ? std::atoll(argv[1]) : 28, steps = argc > 2 ? std::atoll(argv[2]) : 300;
  time_parts("8192 x 3072 -> 16384", 8192, 3072, 16384);
  time_parts("8192 x 8192 -> 3072", 8192, 8192, 3072);
  time_parts("8192 x 4096 -> 28672", 8192, 4096, 28672);
  if (steps > 0) compare_losses(steps, argc > 3 ? argv[3] : nullptr);
  time_steps("Llama 8B's layers, 4 of them", {.family = "llama",
                                              .layers = 4,
                                              .dim = 4096,
                                              .heads = 32,
                                              .kv_heads = 8,
                                              .context = 2048,
                                              .vocab = 1024,
                                              .ffn_dim = 14336});
  if (layers > 0)
    time_steps("Llama 3.2B", {.family = "llama",
                              .layers = layers,
                              .dim = 3072,
                              .heads = 24,
                              .kv_heads = 8,
                              .context = 2048,
                              .vocab = 128256,
                              .ffn_dim = 8192});
  return 0;
}
