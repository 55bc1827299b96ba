// AdamW's update by where its state lives and who updates: parameters a second beside the bounds from bytes. Parameters
// of bf16 with weights and moments in f32 (12 bytes of state), on a card; without one on the CPU, where the state may
// be on disk.
//     optim_home_bench [million parameters, 1000] [directory for the state on disk]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <tuple>

#include "strata/core/node.h"
#include "strata/core/parallel.h"
#include "strata/cuda/runtime.h"
#include "strata/memory/allocator.h"
#include "strata/memory/disk.h"
#include "strata/memory/tiers.h"
#include "strata/ops/copy/copy.h"
#include "strata/optim/home.h"
#include "strata/optim/optim.h"

namespace {

using namespace strata;
using namespace strata::optim;
using Who = StateHome::Who;

constexpr int64_t kNear = int64_t{512} << 20;  // of state that is at home elsewhere

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Weights of a transformer's layers of this width, as many as make n elements.
TensorList make_params(int64_t n, Device device, Tier tier = {}) {
  constexpr int64_t kWidth = 2048;
  TensorList all;
  const auto add = [&](const Shape& shape) {
    Tensor p = empty({shape, DType::bf16, device, std::nullopt}), g = empty(p.meta());
    fill_elements(p, 0.5);
    fill_elements(g, 0.25);
    if (!(tier == Tier())) p = p.to(tier), g = g.to(tier);
    p.set_requires_grad();
    p.set_grad(g);
    all.push_back(p);
    n -= p.numel();
  };
  while (n > 0)
    for (const Shape& s : {Shape{3 * kWidth, kWidth}, Shape{kWidth, kWidth}, Shape{4 * kWidth, kWidth},
                           Shape{kWidth, 4 * kWidth}, Shape{kWidth}})
      if (n > 0) add(s);
  return all;
}

void measure(const char* name, const StateHome& home, int64_t n, Device device, double bound) {
  TensorList params;
  try {
    params = make_params(n, device, home.ahead ? Tier::pinned : Tier());
    int64_t elements = 0;
    for (const Tensor& p : params) elements += p.numel();
    AdamW o(params, {.lr = 1e-4, .low = {.master_weights = true}});
    o.set_home(home);
    const auto step = [&] {
      const double begin = now();
      o.step();
      if (home.ahead) o.finish();
      if (device.is_cuda()) cuda::synchronize();
      return now() - begin;
    };
    const double first = step();
    double best = step();
    for (int i = 0; i < 3; ++i) best = std::min(best, step());
    const double rate = static_cast<double>(elements) / best;
    std::printf("%-22s %8.1f ms %7.2f G parameters/s %7.2f by bytes %4.0f%%  (first %.1f s", name, best * 1e3,
                rate * 1e-9, bound * 1e-9, 100 * rate / bound, first);
    if (home.who == Who::split) std::printf(", share of the CPU %.2f", o.home().cpu_share);
    if (home.where == memory::kDisk)
      std::printf(", state %.2f GB/s each way", 12e-9 * static_cast<double>(elements) / best);
    std::printf(")\n");
  } catch (const Error& e) {
    std::printf("%-22s %s\n", name, e.what());
  }
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t n = (argc > 1 ? std::atoll(argv[1]) : 1000) * 1000 * 1000;
  const bool card = cuda::device_count() > 0;
  const Device device = card ? Device::cuda() : Device::cpu();
  if (argc > 2) {
    memory::use_disk({.directories = {argv[2]}});
    for (const Device d : {Device::cpu(), device}) memory::set_near_limit(kNear, d, memory::kDisk);
  }
  if (card) memory::set_near_limit(kNear, device, Tier::pinned);
  Tensor p = empty({{1}, DType::bf16, device, std::nullopt});
  p.set_requires_grad();
  const HomeRates r = measure_home_rates(AdamW(TensorList{p}, {.low = {.master_weights = true}}), device, DType::bf16);
  std::printf(
      "%lld M parameters, %d threads; copies %.1f GB/s to the host, %.1f GB/s to the device; updates from their "
      "own memory: CPU %.2f (%.2f beside copies), device %.2f G parameters/s\n",
      static_cast<long long>(n / 1000000), num_threads(), r.to_host * 1e-9, r.to_device * 1e-9, r.cpu * 1e-9,
      r.cpu_beside_copies * 1e-9, r.device * 1e-9);
  const HomeBytes bytes{.gradient = 2, .parameter = 2, .state = 12},
      resident{.gradient = 2, .parameter = 2, .state = 0};
  const auto bound = [&](double share, const HomeBytes& b) { return 1 / split_seconds(r, b, share); };
  measure("resident", {}, n, device, r.device);
  if (!card) {
    if (argc > 2) measure("disk", {.where = memory::kDisk}, n, device, r.device);
    return 0;
  }
  measure("cpu", {.who = Who::cpu}, n, device, bound(1, bytes));
  measure("device, streamed", {.where = Tier::host}, n, device, bound(0, bytes));
  const double share = best_cpu_share(r, bytes);
  measure("split", {.where = Tier::host, .who = Who::split, .cpu_share = share}, n, device, bound(share, bytes));
  measure("split, half", {.where = Tier::host, .who = Who::split, .cpu_share = 0.5}, n, device, bound(0.5, bytes));
  // Everything at home on the host: gradients were brought there before, and parameters stay.
  const HomeBytes pieces{.gradient = 0, .parameter = 0, .state = 16};
  for (const auto& [name, who, part] : {std::tuple{"ahead, cpu", Who::cpu, 1.0},
                                        {"ahead, device", Who::device, 0.0},
                                        {"ahead, both", Who::split, -1.0}})
    measure(name, {.where = Tier::host, .who = who, .ahead = true}, n, device,
            bound(part < 0 ? best_cpu_share(r, pieces) : part, pieces));
  // Half of the state stays on the card: Deep Optimizer States' static part.
  measure("split, half resident", {.who = Who::split, .cpu_share = 0.5}, n, device, bound(0.5, resident));
  if (argc > 2) {
    measure("cpu, disk", {.where = memory::kDisk, .who = Who::cpu}, n, device, bound(1, bytes));
    measure("device, disk", {.where = memory::kDisk}, n, device, bound(0, bytes));
  }
  return 0;
}
