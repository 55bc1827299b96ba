// A layer of experts that ranks share, forward and backward in bf16: milliseconds where all that come are taken, and
// within a capacity, as ops and as a CUDA graph.
//     strata launch -n 4 -- experts_bench [cpu|cuda|cuda-ops] [TOKENS DIM WIDTH EXPERTS PER_TOKEN]
// TOKENS are a rank's; cuda-ops writes where the time of the ops goes as well. Rank 0 writes a JSON object a line, as
// bench/pytorch/experts.py does for PyTorch.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "strata/autograd/autograd.h"
#include "strata/core/node.h"
#include "strata/core/rng.h"
#include "strata/cuda/graph.h"
#include "strata/cuda/runtime.h"
#include "strata/dist/group.h"
#include "strata/lab/profile.h"
#include "strata/nn/experts.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/random/random.h"

namespace {
using namespace strata;

constexpr int kWarm = 3, kTimed = 20;

struct Sizes {
  int64_t tokens = 8192, dim = 2048, width = 1024, experts = 32, per_token = 4;
};

double milliseconds(Device device, distributed::Group& g, const std::function<void()>& f) {
  const auto finished = [&] {
    if (device.is_cuda()) cuda::synchronize(device.index);
  };
  for (int i = 0; i < kWarm; ++i) f();
  finished();
  g.barrier();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kTimed; ++i) f();
  finished();
  return 1e3 * std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / kTimed;
}

void tell(const distributed::Group& g, const char* what, double ms, const Sizes& s) {
  if (g.rank() != 0) return;
  // Forward and backward are three times the products of forward.
  const double flop = 3.0 * 2 * 3 * static_cast<double>(s.tokens * s.per_token * s.dim * s.width);
  std::printf("{\"what\": \"%s\", \"ranks\": %d, \"ms\": %.3f, \"tflops\": %.1f}\n", what, g.size(), ms,
              flop / ms / 1e9);
  std::fflush(stdout);
}

int run(bool on_card, bool by_ops, const Sizes& s) {
  distributed::init();
  if (on_card) distributed::take_own_card();
  const Device device = on_card ? distributed::card() : Device::cpu();
  distributed::set_mesh(distributed::Mesh("ep=" + std::to_string(distributed::size())));
  distributed::Group& g = distributed::group("ep");
  const DeviceScope there(device);
  for (const double capacity : {0.0, 1.25}) {
    manual_seed(1);
    nn::ExpertsSpec spec{.count = s.experts, .per_token = s.per_token, .width = s.width, .normalise = true};
    spec.capacity = capacity;
    nn::Experts layer(s.dim, spec, nn::Activation::silu);
    for (auto& [name, t] : layer.named_parameters())
      if (t.dim() > 1) NoGrad(), Tensor(t).copy_(randn(t.shape()) * 0.02);
    layer.to(DType::bf16);
    layer.spread("ep");
    manual_seed(2 + static_cast<uint64_t>(g.rank()));
    Tensor x = randn({4, s.tokens / 4, s.dim}).to(DType::bf16);
    x.set_requires_grad();
    const Tensor gradient = randn(x.shape()).to(DType::bf16);
    const auto step = [&] {
      layer(x).backward(gradient);
      x.set_grad(Tensor());
      for (Tensor& t : layer.parameters()) t.set_grad(Tensor());
    };
    const std::string what = capacity > 0 ? "capacity 1.25" : "all that come";
    tell(g, what.c_str(), milliseconds(device, g, step), s);
    if (by_ops) {
      lab::OpProfile profile(device);
      for (int i = 0; i < kTimed; ++i) step();
      if (g.rank() == 0) std::printf("%s, %d steps\n%s\n", what.c_str(), kTimed, profile.table().c_str());
    }
    if (!on_card || capacity == 0) continue;
    cuda::Graph graph;
    graph.capture(step);
    tell(g, (what + ", in a graph").c_str(), milliseconds(device, g, [&] { graph.replay(); }), s);
  }
  distributed::shutdown();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::string where = argc < 2 ? "cuda" : argv[1];
    Sizes s;
    int64_t* const sizes[] = {&s.tokens, &s.dim, &s.width, &s.experts, &s.per_token};
    for (int i = 2; i < argc && i < 7; ++i) *sizes[i - 2] = std::atoll(argv[i]);
    return run(where != "cpu", where == "cuda-ops", s);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "experts_bench: %s\n", e.what());
    return 1;
  }
}
