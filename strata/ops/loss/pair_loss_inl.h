#pragma once
// The formulas of the losses of pairs, for the kernels of every device.

#include <cmath>
#include <limits>

#include "strata/ops/loss/loss_kernel.h"

#ifdef __CUDACC__
#define STRATA_PAIR_INLINE __host__ __device__ inline
#else
#define STRATA_PAIR_INLINE inline
#endif

namespace strata {

// The loss of one pair; p as `param` of pair_loss_cpu. NaN stays NaN.
template <PairLoss kind, class R>
STRATA_PAIR_INLINE R pair_value(R x, R t, R p) {
  const R d = x - t, a = std::fabs(d);
  if constexpr (kind == PairLoss::mse)
    return d * d;
  else if constexpr (kind == PairLoss::l1)
    return a;
  else if constexpr (kind == PairLoss::smooth_l1)
    return a < p ? R(0.5) * d * d / p : a - R(0.5) * p;
  else if constexpr (kind == PairLoss::huber)
    return a <= p ? R(0.5) * d * d : p * (a - R(0.5) * p);
  else if constexpr (kind == PairLoss::bce_with_logits)
    return (x < 0 ? R(0) : x) - x * t + std::log1p(std::exp(-std::fabs(x)));
  else if (p != 0)
    return std::exp(t) * (t - x);
  else
    return t > 0 ? t * (std::log(t) - x) : (t == 0 ? R(0) : static_cast<R>(NAN));
}

}  // namespace strata

#undef STRATA_PAIR_INLINE
