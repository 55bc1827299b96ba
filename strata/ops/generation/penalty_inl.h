#pragma once
// A logit under penalties, on either device.

#include "strata/ops/generation/generation_kernels.h"

#ifdef __CUDACC__
#define STRATA_PENALTY __host__ __device__ inline
#else
#define STRATA_PENALTY inline
#endif

namespace strata::generation {

// What is known of a token: this bit where it is in the history at all, and below it how often behind the prompt.
inline constexpr uint32_t kAnywhere = 0x80000000u;

struct Penalties {
  float repetition = 1, frequency = 0, presence = 0;
};
STRATA_PENALTY Penalties penalties_of(const PenaltyArgs& a, int64_t row) {
  Penalties p;
  if (a.repetition.at != nullptr) p.repetition = a.repetition.at[row * a.repetition.step];
  if (a.frequency.at != nullptr) p.frequency = a.frequency.at[row * a.frequency.step];
  if (a.presence.at != nullptr) p.presence = a.presence.at[row * a.presence.step];
  return p;
}

STRATA_PENALTY float penalised(float v, uint32_t seen, const Penalties& p) {
  if (seen == 0) return v;
  v = v < 0 ? v * p.repetition : v / p.repetition;
  const uint32_t written = seen & ~kAnywhere;
  if (written > 0) v -= p.frequency * static_cast<float>(written) + p.presence;
  return v;
}

}  // namespace strata::generation
