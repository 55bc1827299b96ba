// Functions of vectors that several families have in their loops, for one processor level. No include guard: see
// levels_inl.h.

#include "strata/ops/vec/doubles_inl.h"

namespace strata::STRATA_VEC_NS {

STRATA_INLINE VF absolute(VF x) {
  return bits<VF>(bits<VU>(x) & 0x7fffffffu);
}
STRATA_INLINE VF with_sign_of(VF magnitude, VF sign) {
  return bits<VF>((bits<VU>(magnitude) & 0x7fffffffu) | (bits<VU>(sign) & 0x80000000u));
}
STRATA_INLINE VF nearest(VF x) {
#if STRATA_VEC_LEVEL >= 2
  return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#elif STRATA_VEC_LEVEL == 1
  return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#else
  // Adding 2^23 leaves no bits for a fraction, and rounds halves to even.
  const VF big = set1(8388608.f);
  VF t = absolute(x);
#if defined(__clang__)
  volatile VF sum = t + big;
  t = sum - big;
#else
  t = (t + big) - big;
#endif
  return absolute(x) < big ? with_sign_of(t, x) : x;
#endif
}
STRATA_INLINE VF power_of_two(VF n) {  // n whole, -126 <= n <= 127
#if STRATA_VEC_LEVEL >= 2
  return _mm512_scalef_ps(set1(1.f), n);
#else
  return bits<VF>((__builtin_convertvector(n, VI) + 127) << 23);
#endif
}

// e^x - 1 for x <= 87, relative error 2e-7: 2^n (e^r - 1) + (2^n - 1) with r = x - n ln2.
STRATA_INLINE VF expm1_below(VF x) {
  x = x < -30.f ? set1(-30.f) : x;
  const VF n = nearest(x * 1.44269504088896341f);
  const ExpRest e = exp_rest(x, n);
  const VF scale = power_of_two(n);
  return fma(scale, fma(e.p * e.r, e.r, e.r), scale - 1.f);
}

// tanh |x| = m / (m + 2), m = e^(2|x|) - 1; 1 from |x| = 10 on.
STRATA_INLINE VF tanh_of(VF x) {
  const VF a = absolute(x);
  const VF m = expm1_below(a > 10.f ? set1(20.f) : a + a);
  return x != x ? x : with_sign_of(m / (m + 2.f), x);
}

}  // namespace strata::STRATA_VEC_NS
