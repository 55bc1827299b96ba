// Sends lists of tensors to the loops of their device.

#include "strata/optim/kernels.h"

#include <algorithm>
#include <vector>

#include "strata/optim/count_inl.h"
#include "strata/optim/groups_inl.h"

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

EightBitStates eight_bit_states(Rule rule) {
  const auto of = []<class R>() {
    return in_eight_bits<R> ? EightBitStates{(1u << R::states) - 1, nonnegative<R>} : EightBitStates{};
  };
  switch (rule) {
#define STRATA_ONE_RULE(name, type) \
  case Rule::name:                  \
    return of.operator()<counted::type>();
    STRATA_RULES
#undef STRATA_ONE_RULE
  }
  return {};
}

void run_rule(Rule rule, std::span<const Slab> slabs, const double* factor) {
  for_devices(slabs, [&](Device device, std::span<const Slab> part) {
    if (!device.is_cuda()) return run_rule_cpu(rule, part);
    const Tensor constants = empty_constants(part.size(), device);
    write_constants(rule, constants, part);
    run_rule_cuda(rule, part, constants, factor);
  });
}

int64_t square_parts(int64_t numel, Device device) {
  return device.is_cuda() ? square_parts_cuda(numel) : square_parts_cpu(numel);
}
void squares_of(const Slab& s, double* to) {
  s.device.is_cuda() ? squares_cuda(s, to) : squares_cpu(s, to);
}
Tensor total_of(const Tensor& parts) {
  if (parts.device().is_cuda()) return total_cuda(parts);
  const auto* each = static_cast<const double*>(parts.raw_data());
  const Tensor sum = empty({Shape{}, DType::f64, Device::cpu(), std::nullopt});
  auto* to = static_cast<double*>(sum.raw_data());
  *to = 0;
  for (int64_t i = 0; i < parts.numel(); ++i) *to += each[i];
  return sum;
}

double sum_of_squares(std::span<const Slab> slabs) {
  double sum = 0;
  for_devices(slabs, [&](Device device, std::span<const Slab> part) {
    if (device.is_cuda()) {
      sum += sum_of_squares_cuda(part, device).item<double>();
    } else {
      double here = 0;
      for_groups(
          part, [](const Slab&) { return true; },
          [&](std::span<const Slab> group) { here = sum_of_squares_cpu(group, here); });
      sum += here;
    }
  });
  return sum;
}

}  // namespace strata::optim
