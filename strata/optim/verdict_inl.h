#pragma once
// Whether a step's update is made, and by what its gradients are scaled: the same lines on the host and on a device.

#include <cmath>
#include <concepts>

#include "strata/optim/kernels.h"
#include "strata/optim/optimizer.h"

namespace strata::optim {

/// Below this scale a gradient that is not finite is no longer taken for an overflow of the scaled one.
inline constexpr double kLeastScale = 0x1p-14;
inline constexpr double kMostScale = 0x1p40;

/// Slightly below max_norm / norm, as in PyTorch, so that rounding does not end above the limit.
constexpr double clip_scale(double norm, double max_norm) {
  const double s = max_norm / (norm + 1e-6);
  return s < 1 ? s : 1;
}

/// Fills `v`, whose outcome is the last step's: after one that diverged, none updates. constexpr so that it compiles
/// for devices, a template because compilers check a plain constexpr function for calls that cannot be.
template <std::same_as<Verdict> V>
constexpr void judge(V& v, double sum_of_squares, double loss, double max_norm, const ScaleRule& rule) {
  constexpr double infinity = __builtin_inf();
  const auto finite = [](double x) { return x < infinity && x > -infinity; };
  const double before = v.outcome;
  v.loss = loss;
  v.scale = rule.state ? rule.state[0] : 1;
  v.norm = ::sqrt(sum_of_squares) / v.scale;
  v.factor = __builtin_nan("");
  if (before == static_cast<double>(StepReport::diverged)) return;
  if (!finite(loss) || (!finite(v.norm) && (!rule.state || v.scale < kLeastScale))) {
    v.outcome = StepReport::diverged;
  } else if (!finite(v.norm)) {
    v.outcome = StepReport::skipped;
    rule.state[0] = v.scale * rule.backoff;
    rule.state[1] = 0;
  } else {
    v.outcome = StepReport::updated;
    v.factor = clip_scale(v.norm, max_norm) / v.scale;
    if (rule.state && (rule.state[1] += 1) >= rule.interval) {
      if (v.scale < kMostScale) rule.state[0] = v.scale * rule.growth;
      rule.state[1] = 0;
    }
  }
}

}  // namespace strata::optim
