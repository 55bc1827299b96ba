// A stack of Llama's blocks whose parameters live in page-locked host memory, beside the same at home on the card:
// milliseconds of forward and backward, the card's memory at most (Horizon-LM: the same for any number of layers;
// Superpipeline: less than half), and what the bus allows.
//     streamed_bench [LAYERS] [BATCH] [DIM] [GB/s of the bus]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <vector>

#include "strata/autograd/autograd.h"
#include "strata/autograd/recompute.h"
#include "strata/core/rng.h"
#include "strata/cuda/runtime.h"
#include "strata/memory/allocator.h"
#include "strata/memory/tiers.h"
#include "strata/nn/container.h"
#include "strata/nn/streamed.h"
#include "strata/nn/transformer.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/random/random.h"

namespace {

using namespace strata;

struct Stack : nn::Module {
  Stack(int64_t layers, int64_t dim) : rotary({.dims = 128}) {
    const nn::LayerSpec layer =
        nn::llama_layer({.dim = dim, .heads = dim / 128, .kv_heads = std::max<int64_t>(dim / 512, 1)});
    for (int64_t i = 0; i < layers; ++i) blocks.push_back(nn::TransformerBlock(dim, layer));
  }
  Tensor forward(const Tensor& x, Recompute* recompute) const {
    const nn::Places places{.turns = {rotary.rows(0, x.size(1), x.size(1), x)}};
    nn::Residual r{x, {}};
    for (size_t i = 0; i < blocks.size(); ++i) {
      if (recompute) i + 1 < blocks.size() ? recompute->begin() : recompute->keep();
      r = blocks[i].step(r, places);
    }
    return r.sum();
  }
  nn::ModuleList<nn::TransformerBlock> blocks = register_module("blocks", nn::ModuleList<nn::TransformerBlock>());
  nn::RotaryTables rotary;
};

struct Figures {
  double ms = 0, gib = 0;
};

// Of the third to fifth step, the median.
template <class Step>
Figures measure(const Stack& net, Step&& step) {
  const Device card = Device::cuda();
  std::vector<double> ms;
  Figures f;
  for (int i = 0; i < 5; ++i) {
    for (Tensor p : net.parameters()) p.set_grad({});
    cuda::synchronize();
    memory::reset_peak(card);
    const auto start = std::chrono::steady_clock::now();
    step();
    cuda::synchronize();
    if (i >= 2)
      ms.push_back(std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
    f.gib = static_cast<double>(memory::stats(card).peak_total) / (1 << 30);
  }
  std::sort(ms.begin(), ms.end());
  f.ms = ms[ms.size() / 2];
  return f;
}

}  // namespace

int main(int argc, char** argv) {
  if (cuda::device_count() == 0) {
    std::printf("%s\n", cuda::unavailable_reason().c_str());
    return 0;
  }
  const auto number = [&](int i, double otherwise) { return argc > i ? std::atof(argv[i]) : otherwise; };
  const auto layers = static_cast<int64_t>(number(1, 8)), batch = static_cast<int64_t>(number(2, 4));
  const auto dim = static_cast<int64_t>(number(3, 4096));
  const double bus = number(4, 55) * 1e9;
  const Device card = Device::cuda();
  const DeviceScope on(card);
  manual_seed(1);
  Stack net(layers, dim);
  net.to(DType::bf16);
  const Tensor x = randn({batch, 2048, dim}, DType::bf16), gy = randn({batch, 2048, dim}, DType::bf16);
  int64_t bytes = 0;
  for (const Tensor& p : net.parameters()) bytes += p.nbytes();
  std::printf("%s: %lld layers of dim %lld, batch %lld x 2048, %.2f GB of bf16 parameters\n\n",
              cuda::properties().name.c_str(), static_cast<long long>(layers), static_cast<long long>(dim),
              static_cast<long long>(batch), static_cast<double>(bytes) / 1e9);
  std::printf(
      "| parameters | activations | ms a step | GiB at most | GB in | GB out | bound of the bus, ms |\n"
      "|---|---|---|---|---|---|---|\n");
  const auto row = [](const char* where, const char* activations, Figures f, double in, double out, double bound) {
    std::printf("| %s | %s | %.1f | %.2f | %.2f | %.2f | %.1f |\n", where, activations, f.ms, f.gib, in / 1e9,
                out / 1e9, bound * 1e3);
    std::fflush(stdout);
  };
  row("card", "kept", measure(net, [&] { net.forward(x, nullptr).backward(gy); }), 0, 0, 0);
  row("card", "again",
      measure(net,
              [&] {
                Recompute recompute;
                net.forward(x, &recompute).backward(gy);
              }),
      0, 0, 0);
  for (const int parts : {2, 3}) {
    for (const bool away : {false, true}) {
      nn::Streamed streamed(net, {.parts_near = parts, .inputs = away ? Tier::pinned : Tier()});
      const int64_t part = streamed.near_bytes() / parts;
      memory::set_near_limit(streamed.near_bytes() + part + (away ? 4 * x.nbytes() : 0), card, Tier::pinned);
      memory::NearStats before;
      const Figures f = measure(net, [&] {
        before = memory::near_stats(card, Tier::pinned);
        const nn::StreamScope scope(streamed);
        net.forward(x, nullptr).backward(gy);
      });
      const memory::NearStats after = memory::near_stats(card, Tier::pinned);
      const auto in = static_cast<double>(after.bytes_in - before.bytes_in);
      const auto out = static_cast<double>(after.bytes_out - before.bytes_out);
      char where[64];
      std::snprintf(where, sizeof where, "host, %d parts near", parts);
      row(where, away ? "again, inputs on the host" : "again", f, in, out, std::max(in, out) / bus);
      if (parts == 3 && away) std::printf("\n%s", streamed.report().c_str());
    }
  }
  return 0;
}
