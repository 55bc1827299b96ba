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

// Of work(), which runs while what beside() begins is under way: the best of three, after one that is not counted.
template <class F, class Begin>
double seconds(Device device, F&& work, Begin&& beside) {
  double best = 0;
  for (int i = 0; i < 4; ++i) {
    if (device.is_cuda()) cuda::synchronize(device.index);
    beside();
    const auto begin = std::chrono::steady_clock::now();
    work();
    if (device.is_cuda()) cuda::synchronize(device.index);
    const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (i == 1 || (i > 1 && s < best)) best = s;
  }
  return std::max(best, 1e-9);
}

// Elements a second, while begin() is under way, or by several steps where a device runs them.
template <class F>
double update_rate(const OptimizerRecord& record, const OptionValues& options, Device device, DType dtype, F&& begin) {
  // More than a processor's caches hold; less where an update takes more than one pass over memory.
  const int64_t rows = device.is_cpu() ? 256 : 1024, tensors = !device.is_cpu() ? 16 : record.rule ? 256 : 64;
  AnyGroup group{{}, options};
  for (int64_t i = 0; i < tensors; ++i) {
    Tensor p = empty({{rows, rows}, dtype, device, std::nullopt}), g = empty(p.meta());
    fill_elements(p, 0.5);
    fill_elements(g, 0.25);
    p.set_requires_grad();
    p.set_grad(g);
    group.params.emplace_back(std::to_string(i), p);
  }
  const auto optimizer = record.make(record, {group});
  const int steps = device.is_cpu() ? 1 : 8;
  const auto run = [&] {
    for (int i = 0; i < steps; ++i) optimizer->step();
  };
  return static_cast<double>(steps * tensors * rows * rows) / seconds(device, run, begin);
}

// Copies of both directions on streams of a card, for some milliseconds.
class Copies {
 public:
  Copies(Device device, const Tensor& here, const Tensor& there) : device_(device), here_(here), there_(there) {
    here2_ = empty(here.meta(), Tier::pinned);
    there2_ = empty(there.meta());
    fill_elements(here2_, 0);
    fill_elements(there2_, 0);
  }
  ~Copies() { cuda::synchronize(device_.index); }
  Copies(const Copies&) = delete;
  void begin() {
    cuda::synchronize(device_.index);  // of what was begun before
    for (const bool back : {false, true}) {
      const cuda::StreamScope scope(cuda::Stream::create(device_.index));
      for (int i = 0; i < 16; ++i) {
        if (back) {
          cuda::copy_to_pinned(here2_, there2_);
        } else {
          copy_elements(there_, here_);
        }
      }
    }
  }

 private:
  Device device_;
  Tensor here_, there_, here2_, there2_;
};

}  // namespace

double split_seconds(const HomeRates& rates, const HomeBytes& bytes, double cpu_share) {
  const double c = cpu_share, d = 1 - cpu_share;
  const double cpu = d > 0 && bytes.state > 0 ? rates.cpu_beside_copies : rates.cpu;
  return std::max({c / cpu, d / rates.device, (c * bytes.gradient + d * bytes.state) / rates.to_host,
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
  const auto nothing = [] {};
  {
    constexpr int64_t kBytes = int64_t{64} << 20;
    const Tier locked = device.is_cuda() ? Tier::pinned : Tier();
    const Tensor here = empty({{kBytes}, DType::u8, Device::cpu(), std::nullopt}, locked);
    const Tensor there = empty({{kBytes}, DType::u8, device, std::nullopt});
    fill_elements(here, 0);
    rates.to_device = kBytes / seconds(
                                   device, [&] { copy_elements(there, here); }, nothing);
    rates.to_host = kBytes / seconds(
                                 device, [&] { copy_elements(here, there); }, nothing);
    rates.cpu = rates.cpu_beside_copies = rates.device = update_rate(*record, options, Device::cpu(), dtype, nothing);
    if (device.is_cpu()) return rates;
    Copies copies(device, here, there);
    rates.cpu_beside_copies = update_rate(*record, options, Device::cpu(), dtype, [&] { copies.begin(); });
  }
  rates.device = update_rate(*record, options, device, dtype, nothing);
  return rates;
}

}  // namespace strata::optim
