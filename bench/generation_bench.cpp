// Generation with the shape of a Llama of random weights: tokens/s of reading a prompt, milliseconds of a step that
// writes a token for each row, op by op and (on a card) as a replayed graph, and how often a step asks for memory.
//     generation_bench [cpu|cuda] [LAYERS] [DIM] [HEADS] [KV HEADS] [VOCABULARY] [CONTEXT] [f32|bf16]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "strata/core/rng.h"
#include "strata/cuda/runtime.h"
#include "strata/generate/sequences.h"
#include "strata/memory/allocator.h"
#include "strata/models/language_model.h"

namespace {

using namespace strata;

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Step {
  double ms = 0, requests = 0;
};

// The median of the third step and those after it; a step ends when the host has its tokens.
Step measure(Sequences& rows, Device device) {
  std::vector<double> ms;
  int64_t before = 0;
  constexpr int kSteps = 30;
  for (int i = 0; i < kSteps + 2; ++i) {
    if (i == 2) before = memory::stats(device).allocations;
    const double from = seconds();
    rows.step();
    const std::vector<int64_t> ids = rows.ids().to_vector<int64_t>();
    if (i >= 2) ms.push_back((seconds() - from) * 1e3);
  }
  std::sort(ms.begin(), ms.end());
  return {ms[ms.size() / 2], static_cast<double>(memory::stats(device).allocations - before) / kSteps};
}

}  // namespace

int main(int argc, char** argv) {
  const auto argument = [&](int i, const char* usual) { return std::string(argc > i ? argv[i] : usual); };
  const auto number = [&](int i, const char* usual) { return std::atoll(argument(i, usual).c_str()); };
  const Device device = parse_device(argument(1, "cpu"));
  ModelConfig c;
  c.family = "llama";
  c.layers = number(2, "4");
  c.dim = number(3, "256");
  c.heads = number(4, "8");
  c.kv_heads = number(5, "4");
  c.vocab = number(6, "32000");
  c.context = number(7, "1024");
  manual_seed(1);
  std::shared_ptr<LanguageModel> model;
  {
    const DeviceScope there(device);
    model = make_model(c);
  }
  if (argument(8, "f32") == "bf16") model->to(DType::bf16);
  std::printf("%lld layers of %lld, vocabulary %lld, context %lld, %s, on %s\n", static_cast<long long>(c.layers),
              static_cast<long long>(c.dim), static_cast<long long>(c.vocab), static_cast<long long>(c.context),
              argument(8, "f32").c_str(), to_string(device).c_str());
  std::printf(
      "| rows | prompt, tokens/s | a step, op by op | requests for memory | a step, replayed | requests | tokens/s "
      "|\n");
  std::printf("|---|---|---|---|---|---|---|\n");
  for (const int64_t batch : {1, 8, 32}) {
    const std::vector<int64_t> prompt(static_cast<size_t>(c.context / 2), 1);
    double read = 0;
    Step steps[2];
    for (const bool graph : {false, true}) {
      if (graph && !device.is_cuda()) continue;
      Sequences rows(model, batch, {.graph = graph});
      rows.start(0, prompt, {});  // what happens at first use only
      const double from = seconds();
      rows.start(0, prompt, {.temperature = 0.8, .top_p = 0.95});
      if (device.is_cuda()) cuda::synchronize();
      read = static_cast<double>(prompt.size()) / (seconds() - from);
      for (int64_t r = 1; r < batch; ++r) rows.copy(0, r, static_cast<uint64_t>(r));
      steps[graph] = measure(rows, device);
    }
    const Step& fast = device.is_cuda() ? steps[1] : steps[0];
    std::printf("| %lld | %.0f | %.3f ms | %.0f |", static_cast<long long>(batch), read, steps[0].ms,
                steps[0].requests);
    if (device.is_cuda())
      std::printf(" %.3f ms | %.0f |", steps[1].ms, steps[1].requests);
    else
      std::printf(" | |");
    std::printf(" %.0f |\n", static_cast<double>(batch) / fast.ms * 1e3);
  }
  return 0;
}
