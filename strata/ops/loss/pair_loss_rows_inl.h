// The losses of pairs in vectors, for one processor level. No include guard: see strata/ops/vec/levels_inl.h.

#include "strata/ops/vec/functions_inl.h"
#include "strata/ops/vec/logarithm_inl.h"

namespace strata::STRATA_VEC_NS {

// As pair_value().
template <PairLoss kind>
STRATA_INLINE VF pair_vector(VF x, VF t, VF p) {
  const VF d = x - t, a = absolute(d);
  if constexpr (kind == PairLoss::mse) {
    return d * d;
  } else if constexpr (kind == PairLoss::l1) {
    return a;
  } else if constexpr (kind == PairLoss::smooth_l1) {
    const VF inside = 0.5f * d * d / p, outside = a - 0.5f * p;
    return a < p ? inside : outside;
  } else if constexpr (kind == PairLoss::huber) {
    const VF inside = 0.5f * d * d, outside = p * (a - 0.5f * p);
    return a <= p ? inside : outside;
  } else if constexpr (kind == PairLoss::bce_with_logits) {
    return (x < 0.f ? VF{} : x) - x * t + log1p_unit(exp<false>(-absolute(x)));
  } else {
    if (p[0] != 0) return exp(t) * (t - x);
    const VF y = t * (log_of(t) - x);
    return t > 0.f ? y : (t == 0.f ? VF{} : set1(std::numeric_limits<float>::quiet_NaN()));
  }
}

STRATA_INLINE VD widened_sum(VF v) {
#if STRATA_VEC_LEVEL >= 2
  return _mm512_cvtps_pd(_mm512_castps512_ps256(v)) + _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1));
#elif STRATA_VEC_LEVEL == 1
  return _mm256_cvtps_pd(_mm256_castps256_ps128(v)) + _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1));
#else
  return VD{static_cast<double>(v[0]) + v[2], static_cast<double>(v[1]) + v[3]};
#endif
}

// The n losses to `loss`, or where that is null their sum, which is returned.
template <PairLoss kind, class T>
STRATA_INLINE double pair_rows(const T* x, const T* target, int64_t n, float param, T* loss) {
  const VF p = set1(param);
  VD sums[2] = {};
  int64_t i = 0;
  if (loss) {
    for (; i + kW <= n; i += kW) store(loss + i, pair_vector<kind>(load(x + i), load(target + i), p));
    if (i < n) {
      const VF y = pair_vector<kind>(load_upto(x + i, n - i, 1.f), load_upto(target + i, n - i, 1.f), p);
      store_upto(loss + i, y, n - i);
    }
    return 0;
  }
  for (; i + 2 * kW <= n; i += 2 * kW) {
    sums[0] += widened_sum(pair_vector<kind>(load(x + i), load(target + i), p));
    sums[1] += widened_sum(pair_vector<kind>(load(x + i + kW), load(target + i + kW), p));
  }
  for (; i < n; i += kW) {
    const int64_t k = std::min<int64_t>(kW, n - i);
    const VF y = pair_vector<kind>(load_upto(x + i, k, 1.f), load_upto(target + i, k, 1.f), p);
    sums[0] += widened_sum(keep_first<float>(y, k, 0.f));
  }
  return reduce_add(sums[0] + sums[1]);
}

template <class T>
static double pair_rows_of(PairLoss kind, const void* x, const void* target, int64_t n, float param, void* loss) {
  return dispatch_pair_loss(kind, [&](auto k) {
    return pair_rows<decltype(k)::value>(static_cast<const T*>(x), static_cast<const T*>(target), n, param,
                                         static_cast<T*>(loss));
  });
}
// For f32, bf16 and f16.
static double pair_rows_any(PairLoss kind, DType t, const void* x, const void* target, int64_t n, float param,
                            void* loss) {
  if (t == DType::f32) return pair_rows_of<float>(kind, x, target, n, param, loss);
  if (t == DType::bf16) return pair_rows_of<BFloat16>(kind, x, target, n, param, loss);
  return pair_rows_of<Half>(kind, x, target, n, param, loss);
}

}  // namespace strata::STRATA_VEC_NS
