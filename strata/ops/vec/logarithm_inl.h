// Logarithms of vectors for one processor level; functions_inl.h comes before it. No include guard: see levels_inl.h.

namespace strata::STRATA_VEC_NS {

template <int N>
STRATA_INLINE VF polynomial(VF x, const float (&c)[N]) {
  VF p = set1(c[0]);
#pragma GCC unroll 40
  for (int i = 1; i < N; ++i) p = fma(p, x, set1(c[i]));
  return p;
}

// A positive number as 2^exponent * (1 + fraction), fraction in [sqrt(1/2) - 1, sqrt(2) - 1], and log(1 + fraction).
struct LogParts {
  VF exponent, log_fraction;
};
STRATA_INLINE LogParts log_parts(VF x) {
  const auto tiny = x < 1.17549435e-38f;
  x = tiny ? x * 8388608.f : x;
  // Unsigned, since a negative x, which log_special() sets right, overflows.
  const VU u = bits<VU>(x);
  const VI e = bits<VI>(u - 0x3f3504f3u) >> 23;
  const VF f = bits<VF>(u - (bits<VU>(e) << 23)) - 1.f;
  // (log(1 + f) - f + f^2 / 2) / f^3: 7e-8
  static constexpr float c[] = {0.0697161147f, -0.114797338f, 0.116854199f, -0.124256873f, 0.142490576f,
                                -0.166678023f, 0.200007157f,  -0.24999997f, 0.333333312f};
  const VF f2 = f * f;
  const VF log_fraction = fma(f2 * f, polynomial(f, c), fma(f2, set1(-0.5f), f));
  const VF exponent = __builtin_convertvector(e, VF);
  return {tiny ? exponent - 23.f : exponent, log_fraction};
}
// The values of a logarithm that no formula gives.
STRATA_INLINE VF log_special(VF x, VF y) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  y = x == inf ? x : y;
  y = x == 0.f ? set1(-inf) : y;
  return x < 0.f ? set1(std::numeric_limits<float>::quiet_NaN()) : (x != x ? x : y);
}
STRATA_INLINE VF log_of(VF x) {
  const LogParts l = log_parts(x);
  const VF low = fma(l.exponent, set1(-2.12194440054690583e-4f), l.log_fraction);
  return log_special(x, fma(l.exponent, set1(0.693359375f), low));
}
// log(1 + x): the rounding of 1 + x is made good by x / ((1 + x) - 1).
STRATA_INLINE VF log1p_of(VF x) {
  const VF u = x + 1.f, d = u - 1.f;
  const VF y = log_of(u) * (x / d);
  return d == 0.f ? x : (u > 3.4028234e38f ? u : y);
}
// log(1 + e) for 0 <= e <= 1
STRATA_INLINE VF log1p_unit(VF e) {
  const VF u = e + 1.f;
  const LogParts l = log_parts(u);
  const VF y = fma(l.exponent, set1(0.693147181f), l.log_fraction);
  return y + (e - (u - 1.f)) / u;
}

}  // namespace strata::STRATA_VEC_NS
