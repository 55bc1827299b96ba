#include <algorithm>
#include <vector>

#include "strata/core/parallel.h"
#include "strata/ops/generation/penalty_inl.h"

namespace strata::generation {

void penalise_logits_cpu(const PenaltyArgs& a, const float* x, float* y) {
  parallel_for(0, a.rows, 1, [&](int64_t begin, int64_t end) {
    std::vector<uint32_t> seen(static_cast<size_t>(a.columns));
    for (int64_t b = begin; b < end; ++b) {
      std::fill(seen.begin(), seen.end(), 0);
      const int64_t *const row = a.history + b * a.places, length = std::clamp<int64_t>(a.lengths[b], 0, a.places);
      for (int64_t t = 0; t < length; ++t) {
        check<IndexError>(row[t] >= 0 && row[t] < a.columns, "penalise_logits", "token ", row[t], " at place ", t,
                          " of row ", b, " is not among ", a.columns, " logits");
        uint32_t& s = seen[static_cast<size_t>(row[t])];
        s = t < a.prompts[b] ? s | kAnywhere : (s + 1) | kAnywhere;
      }
      const Penalties p = penalties_of(a, b);
      for (int64_t i = 0; i < a.columns; ++i)
        y[b * a.columns + i] = penalised(x[b * a.columns + i], seen[static_cast<size_t>(i)], p);
    }
  });
}

void bias_logits_cpu(const BiasArgs& a, float* y) {
  for (int64_t b = 0; b < a.rows; ++b) {
    const bool active = a.counts == nullptr || a.counts[b] < a.limits[b];
    for (int64_t j = 0; j < a.n; ++j) {
      const int64_t id = a.ids[b * a.step + j];
      check<IndexError>(id < a.columns, "bias_logits", "id ", id, " is not among ", a.columns, " logits");
      if (active && id >= 0) y[b * a.columns + id] += a.values[b * a.step + j];
    }
  }
}

}  // namespace strata::generation
