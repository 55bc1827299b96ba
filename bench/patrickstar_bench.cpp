// A model of twice what the device may hold (Fang et al., "PatrickStar", 2021): weights, gradients and AdamW's state
// take 16 bytes a parameter, and the device has half of that, enforced. Bytes between the device and where the rest is,
// and time, of a training step: by static offload, which brings weights layer by layer for forward and again for
// backward and sends every gradient home; with a window over as many layers as there is room for; and as a plan would
// have it, weights and gradients on the device, state elsewhere.
//     patrickstar_bench [layers, 16] [dim, 256; on a card 2048] [batch, 2] [directory of the disk, without a card]
// On a card the rest is in page-locked memory, behind the bus; without one on a disk.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <vector>

#include "strata/autograd/recompute.h"
#include "strata/core/error.h"
#include "strata/core/parallel.h"
#include "strata/core/rng.h"
#include "strata/cuda/runtime.h"
#include "strata/memory/allocator.h"
#include "strata/memory/disk.h"
#include "strata/memory/tiers.h"
#include "strata/nn/container.h"
#include "strata/nn/streamed.h"
#include "strata/nn/transformer.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/optim/home.h"
#include "strata/optim/optim.h"

namespace {

using namespace strata;

constexpr int64_t kContext = 128;
constexpr int kSteps = 5;  // the first two make state and learn the order; they are not counted

struct Stack : nn::Module {
  Stack(int64_t layers, int64_t dim) : rotary({.dims = 64}) {
    for (int64_t i = 0; i < layers; ++i)
      blocks.push_back(nn::TransformerBlock(dim, nn::llama_layer({.dim = dim, .heads = dim / 64})));
  }
  Tensor loss(const Tensor& x, Recompute* recompute) const {
    const nn::Places places{.turns = {rotary.rows(0, x.size(1), x.size(1), x)}};
    nn::Residual r{x, {}};
    for (size_t i = 0; i < blocks.size(); ++i) {
      if (recompute) i + 1 < blocks.size() ? recompute->begin() : recompute->keep();
      r = blocks[i].step(r, places);
    }
    const Tensor y = r.sum().to(DType::f32);
    return mean(y * y);
  }
  nn::ModuleList<nn::TransformerBlock> blocks = register_module("blocks", nn::ModuleList<nn::TransformerBlock>());
  nn::RotaryTables rotary;
};

enum class Way { fixed, window, plan };
constexpr const char* kNames[] = {"static, layer by layer", "window", "weights stay"};

struct Setting {
  int64_t layers, dim, batch;
  Device device;
  Tier away;
};
struct Figures {
  int64_t in = 0, out = 0;
  double seconds = 0;
  std::vector<double> losses;
};

int64_t parameter_bytes(const nn::Module& net) {
  int64_t bytes = 0;
  for (const Tensor& p : net.parameters()) bytes += p.nbytes();
  return bytes;
}

// With `limit` 0 nothing is elsewhere.
Figures train(Way way, const Setting& s, int64_t limit) {
  const DeviceScope on(s.device);
  manual_seed(1);
  std::optional<memory::TierScope> home;
  if (limit > 0 && way != Way::plan) home.emplace(s.away);  // weights are made where they live
  Stack net(s.layers, s.dim);
  net.to(DType::bf16);
  home.reset();
  const Tensor x = randn({s.batch, kContext, s.dim}, DType::f32).to(DType::bf16);
  optim::AdamW optimizer(net.named_parameters(), {.lr = 1e-3, .low = {.master_weights = true}});
  memory::Backend& own = memory::backend(s.device);
  std::optional<nn::Streamed> streamed;
  int64_t before = 0, near = 0, update_near = 0;
  if (limit > 0) {
    const int64_t all = parameter_bytes(net), part = all / s.layers;
    // A layer's state is fetched while another's is updated and a third's leaves.
    optimizer.set_home({.where = s.device.is_cuda() ? Tier(Tier::host) : s.away, .group_bytes = 6 * part});
    const int64_t groups = 4 * (6 + 2) * part;
    update_near = way == Way::fixed ? groups : std::max(groups, limit * 3 / 4 - (way == Way::plan ? 2 * all : 0));
    near = way == Way::fixed ? 4 * part : update_near;  // two layers, and the gradient of each
    if (way != Way::plan)
      streamed.emplace(net, nn::StreamOptions{.tier = s.away, .near_bytes = way == Way::fixed ? 2 * part : near / 2});
    before = own.set_limit(s.device, limit);
  }
  Figures f;
  for (int step = 0; step < kSteps; ++step) {
    if (s.device.is_cuda()) cuda::synchronize();
    const memory::NearStats was = memory::near_stats(s.device, s.away);
    const auto begin = std::chrono::steady_clock::now();
    const auto allow = [&](int64_t bytes) {
      if (limit == 0) return;
      if (near != update_near) memory::backend(s.device, s.away).release_cached();
      memory::set_near_limit(bytes, s.device, s.away);
    };
    allow(near);
    {
      std::optional<nn::StreamScope> scope;
      std::optional<Recompute> recompute;
      if (streamed) {
        scope.emplace(*streamed);
      } else {
        recompute.emplace();
      }
      const Tensor loss = net.loss(x, recompute ? &*recompute : nullptr);
      loss.backward();
      f.losses.push_back(loss.item());
    }
    allow(update_near);
    optimizer.step();
    optimizer.zero_grad();
    if (s.device.is_cuda()) cuda::synchronize();
    if (step < 2) continue;
    const memory::NearStats is = memory::near_stats(s.device, s.away);
    f.in += (is.bytes_in - was.bytes_in) / (kSteps - 2);
    f.out += (is.bytes_out - was.bytes_out) / (kSteps - 2);
    f.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() /
                 static_cast<double>(kSteps - 2);
  }
  if (limit > 0) {
    own.set_limit(s.device, before);
    memory::set_near_limit(0, s.device, s.away);
  }
  return f;
}

}  // namespace

int main(int argc, char** argv) {
  const bool card = cuda::device_count() > 0;
  const auto number = [&](int i, int64_t otherwise) { return argc > i ? std::atoll(argv[i]) : otherwise; };
  const Setting s{.layers = number(1, 16),
                  .dim = number(2, card ? 2048 : 256),
                  .batch = number(3, 2),
                  .device = card ? Device::cuda() : Device::cpu(),
                  .away = card ? Tier(Tier::pinned) : memory::kDisk};
  if (argc > 4) memory::use_disk({.directories = {argv[4]}});
  int64_t parameters = 0;
  {
    const DeviceScope dry(Device::meta());
    for (const Tensor& p : Stack(s.layers, s.dim).parameters()) parameters += p.numel();
  }
  const int64_t need = 16 * parameters, limit = need / 2;
  const auto gb = [](int64_t bytes) { return static_cast<double>(bytes) * 1e-9; };
  std::printf("%s: %lld layers of dim %lld, %.1f M parameters: %.2f GB of weights, gradients and state, limit %.2f\n",
              card ? cuda::properties().name.c_str() : "the CPU", static_cast<long long>(s.layers),
              static_cast<long long>(s.dim), static_cast<double>(parameters) * 1e-6, gb(need), gb(limit));
  const Figures resident = train(Way::plan, s, 0);
  std::printf("%-24s %8.1f ms a step\n", "all on the device", resident.seconds * 1e3);
  int64_t fixed = 0;
  for (const Way way : {Way::fixed, Way::window, Way::plan}) {
    try {
      const Figures f = train(way, s, limit);
      if (way == Way::fixed) fixed = f.in + f.out;
      std::printf("%-24s %8.1f ms a step, %.3f GB in, %.3f out, %.2f of static, %.1f bytes a parameter; %s\n",
                  kNames[static_cast<int>(way)], f.seconds * 1e3, gb(f.in), gb(f.out),
                  static_cast<double>(f.in + f.out) / static_cast<double>(std::max<int64_t>(fixed, 1)),
                  static_cast<double>(f.in + f.out) / static_cast<double>(parameters),
                  f.losses == resident.losses ? "losses as on the device" : "LOSSES DIFFER");
    } catch (const Error& e) {
      std::printf("%-24s %s\n", kNames[static_cast<int>(way)], e.what());
    }
    std::fflush(stdout);
  }
  return 0;
}
