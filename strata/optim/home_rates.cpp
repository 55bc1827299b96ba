// What a machine does for an update, measured, and the share of it that is best left to the CPU.

#include <algorithm>
#include <chrono>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/cuda/runtime.h"
#include "strata/memory/allocator.h"
#include "strata/ops/copy/copy.h"
#include "strata/optim/home.h"
#include "strata/optim/record.h"

namespace strata::optim {
namespace {

// The best of three, after one that is not counted.
template <class F>
double seconds(Device device, F&& work) {
  double best = 0;
  for (int i = 0; i < 4; ++i) {
    if (device.is_cuda()) cuda::synchronize(device.index);
    const auto begin = std::chrono::steady_clock::now();
    work();
    if (device.is_cuda()) cuda::synchronize(device.index);
    const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (i == 1 || (i > 1 && s < best)) best = s;
  }
  return std::max(best, 1e-9);
}

double update_rate(const OptimizerRecord& record, const OptionValues& options, Device device, DType dtype) {
  // More than a processor's caches hold; less where an update takes more than one pass over memory.
  constexpr int64_t kRows = 256;
  const int64_t tensors = device.is_cpu() && record.rule ? 256 : 64;
  AnyGroup group{{}, options};
  for (int64_t i = 0; i < tensors; ++i) {
    Tensor p = empty({{kRows, kRows}, dtype, device, std::nullopt}), g = empty(p.meta());
    fill_elements(p, 0.5);
    fill_elements(g, 0.25);
    p.set_requires_grad();
    p.set_grad(g);
    group.params.emplace_back(std::to_string(i), p);
  }
  const auto optimizer = record.make(record, {group});
  return static_cast<double>(tensors * kRows * kRows) / seconds(device, [&] { optimizer->step(); });
}

}  // namespace

double split_seconds(const HomeRates& rates, const HomeBytes& bytes, double cpu_share) {
  const double c = cpu_share, d = 1 - cpu_share;
  return std::max({c / rates.cpu, d / rates.device, (c * bytes.gradient + d * bytes.state) / rates.to_host,
                   (c * bytes.parameter + d * bytes.state) / rates.to_device});
}

double best_cpu_share(const HomeRates& rates, const HomeBytes& bytes) {
  double best = 1;
  for (int i = 63; i >= 0; --i)
    if (split_seconds(rates, bytes, i / 64.0) < split_seconds(rates, bytes, best)) best = i / 64.0;
  return best;
}

HomeRates measure_home_rates(const Optimizer& optimizer, Device device, DType dtype) {
  const OptimizerRecord* record = optimizer.record();
  check(record != nullptr && optimizer.num_groups() > 0, optimizer.name(),
        "has no record to measure it by: give cpu_share");
  const NoGrad guard;
  const memory::TagScope tag(memory::Tag::workspace);
  const memory::TierScope own{Tier()};
  const OptionValues options = record->values(optimizer.raw_options(0));
  HomeRates rates;
  {
    constexpr int64_t kBytes = int64_t{64} << 20;
    const Tier locked = device.is_cuda() ? Tier::pinned : Tier();
    const Tensor here = empty({{kBytes}, DType::u8, Device::cpu(), std::nullopt}, locked);
    const Tensor there = empty({{kBytes}, DType::u8, device, std::nullopt});
    fill_elements(here, 0);
    rates.to_device = kBytes / seconds(device, [&] { copy_elements(there, here); });
    rates.to_host = kBytes / seconds(device, [&] { copy_elements(here, there); });
  }
  rates.cpu = update_rate(*record, options, Device::cpu(), dtype);
  rates.device = device.is_cpu() ? rates.cpu : update_rate(*record, options, device, dtype);
  return rates;
}

}  // namespace strata::optim
