#pragma once
// Gradients that live elsewhere, brought near a few at a time for a pass that reads each once.

#include <algorithm>
#include <span>
#include <vector>

#include "strata/core/op_call.h"
#include "strata/optim/kernels.h"

namespace strata::optim {

/// Whether a slab's gradient has no address now: `tensors` has it then.
inline bool is_away(const Slab& s) {
  return s.grad == nullptr && s.numel > 0;
}

/// f(group) for the slabs that takes(slab) names, in order: all at once, or where gradients are away groups whose
/// gradients are held near while f runs.
template <class Takes, class F>
void for_groups(std::span<const Slab> slabs, Takes&& takes, F&& f) {
  if (std::ranges::none_of(slabs, is_away)) return f(slabs);
  constexpr int64_t kGroupBytes = int64_t{2} << 20;
  for (size_t i = 0; i < slabs.size();) {
    strata::detail::Pins pins;
    std::vector<Slab> group;
    for (int64_t bytes = 0; i < slabs.size(); ++i) {
      Slab s = slabs[i];
      if (!takes(s)) continue;
      bytes += s.numel * size_of(s.grad_dtype);
      if (!group.empty() && bytes > kGroupBytes) break;
      if (is_away(s)) {
        pins.hold(s.tensors->grad, Access::read);
        s.grad = s.tensors->grad.raw_data();
      }
      group.push_back(std::move(s));
    }
    if (i < slabs.size() && is_away(slabs[i])) slabs[i].tensors->grad.storage()->prefetch();
    if (!group.empty()) f(std::span<const Slab>(group));
  }
}

}  // namespace strata::optim
