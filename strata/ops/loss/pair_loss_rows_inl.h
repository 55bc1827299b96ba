// The losses of pairs in vectors, for one processor level. No include guard: see strata/ops/vec/levels_inl.h.

#include "strata/ops/vec/functions_inl.h"
#include "strata/ops/vec/logarithm_inl.h"

namespace strata::STRATA_VEC_NS {

// log(1 + e^-|x|)
STRATA_INLINE VF softplus_rest(VF x) {
  return log1p_unit(exp<false>(-absolute(x)));
}
STRATA_INLINE VD softplus_rest(VD x) {
  return log1p_inside(exp(-absolute(x)));
}

// As pair_value(), in lanes of R.
template <PairLoss kind, class R>
STRATA_INLINE V<R> pair_vector(V<R> x, V<R> t, V<R> p) {
  constexpr R half{0.5};
  const V<R> d = x - t, a = absolute(d);
  if constexpr (kind == PairLoss::mse) {
    return d * d;
  } else if constexpr (kind == PairLoss::l1) {
    return a;
  } else if constexpr (kind == PairLoss::smooth_l1) {
    const V<R> inside = half * d * d / p, outside = a - half * p;
    return a < p ? inside : outside;
  } else if constexpr (kind == PairLoss::huber) {
    const V<R> inside = half * d * d, outside = p * (a - half * p);
    return a <= p ? inside : outside;
  } else if constexpr (kind == PairLoss::bce_with_logits) {
    return (x < R{0} ? V<R>{} : x) - x * t + softplus_rest(x);
  } else {
    if (p[0] != 0) return exp(t) * (t - x);
    const V<R> y = t * (log_of(t) - x);
    return t > R{0} ? y : (t == R{0} ? V<R>{} : set1(std::numeric_limits<R>::quiet_NaN()));
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

STRATA_INLINE VD widened_sum(VD v) {
  return v;
}

// The n losses to `loss`, or where that is null their sum, which is returned.
template <PairLoss kind, class T>
STRATA_INLINE double pair_rows(const T* x, const T* target, int64_t n, double param, T* loss) {
  using R = Real<T>;
  constexpr int64_t kStep = kLanes<T>;
  const V<R> p = set1(static_cast<R>(param));
  VD sums[2] = {};
  int64_t i = 0;
  if (loss) {
    for (; i + kStep <= n; i += kStep) store(loss + i, pair_vector<kind, R>(load(x + i), load(target + i), p));
    if (i < n) {
      const V<R> y = pair_vector<kind, R>(load_upto(x + i, n - i, 1), load_upto(target + i, n - i, 1), p);
      store_upto(loss + i, y, n - i);
    }
    return 0;
  }
  for (; i + 2 * kStep <= n; i += 2 * kStep) {
    sums[0] += widened_sum(pair_vector<kind, R>(load(x + i), load(target + i), p));
    sums[1] += widened_sum(pair_vector<kind, R>(load(x + i + kStep), load(target + i + kStep), p));
  }
  for (; i < n; i += kStep) {
    const int64_t k = std::min(kStep, n - i);
    const V<R> y = pair_vector<kind, R>(load_upto(x + i, k, 1), load_upto(target + i, k, 1), p);
    sums[0] += widened_sum(keep_first<R>(y, k, 0));
  }
  return reduce_add(sums[0] + sums[1]);
}

template <class T>
static double pair_rows_of(PairLoss kind, const void* x, const void* target, int64_t n, double param, void* loss) {
  return dispatch_pair_loss(kind, [&](auto k) {
    return pair_rows<decltype(k)::value>(static_cast<const T*>(x), static_cast<const T*>(target), n, param,
                                         static_cast<T*>(loss));
  });
}
// For every floating dtype.
static double pair_rows_any(PairLoss kind, DType t, const void* x, const void* target, int64_t n, double param,
                            void* loss) {
  if (t == DType::f64) return pair_rows_of<double>(kind, x, target, n, param, loss);
  if (t == DType::f32) return pair_rows_of<float>(kind, x, target, n, param, loss);
  if (t == DType::bf16) return pair_rows_of<BFloat16>(kind, x, target, n, param, loss);
  return pair_rows_of<Half>(kind, x, target, n, param, loss);
}

}  // namespace strata::STRATA_VEC_NS
