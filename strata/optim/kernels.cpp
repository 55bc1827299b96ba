// Sends lists of tensors to the loops of their device.

#include "strata/optim/kernels.h"

#include <algorithm>
#include <vector>

namespace strata::optim {
namespace {

// Calls f(device, slabs) for each device that holds some of them.
template <class F>
void for_devices(std::span<const Slab> slabs, F&& f) {
  if (slabs.empty()) return;
  const Device first = slabs[0].device;
  if (std::all_of(slabs.begin(), slabs.end(), [&](const Slab& s) { return s.device == first; })) return f(first, slabs);
  std::vector<Slab> here, elsewhere;
  for (const Slab& s : slabs) (s.device == first ? here : elsewhere).push_back(s);
  f(first, std::span<const Slab>(here));
  for_devices(std::span<const Slab>(elsewhere), f);
}

}  // namespace

void run_rule(Rule rule, std::span<const Slab> slabs, const double* factor) {
  for_devices(slabs, [&](Device device, std::span<const Slab> part) {
    if (!device.is_cuda()) return run_rule_cpu(rule, part);
    const Tensor constants = empty_constants(part.size(), device);
    write_constants(rule, constants, part);
    run_rule_cuda(rule, part, constants, factor);
  });
}

double sum_of_squares(std::span<const Slab> slabs) {
  double sum = 0;
  for_devices(slabs, [&](Device device, std::span<const Slab> part) {
    sum += device.is_cuda() ? sum_of_squares_cuda(part, device).item<double>() : sum_of_squares_cpu(part);
  });
  return sum;
}

}  // namespace strata::optim
