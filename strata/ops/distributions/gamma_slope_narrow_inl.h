#pragma once
// The derivative of gamma numbers for their shape, for results of at most f32, in f32: sampler::gamma_slope() to some
// 1e-6 of it. Compiled for the processor by its test.

#include <bit>

#include "strata/ops/distributions/samplers_inl.h"

namespace strata::sampler {
namespace slope {

inline constexpr float kLeast = 0.01F, kMost = 8;  ///< of x / a, for near_shape()

/// The polynomial of those coefficients, the constant first.
template <class... More>
constexpr float powers(float x, float first, More... more) {
  if constexpr (sizeof...(more) == 0)
    return first;
  else
    return first + x * powers(x, more...);
}
/// log(1 + f) of an f in [-0.3, 0.42].
constexpr float log_near_one(float f) {
  const float s = quotient(f, 2 + f), q = s * s;
  return s * powers(q, 2, 0.66666667F, 0.40000122F, 0.28550802F, 0.23330964F);
}
/// log(ratio), and ratio is 1 + more, whose digits count near 1.
constexpr float log_of_ratio(float ratio, float more) {
  const uint32_t bits = std::bit_cast<uint32_t>(ratio);
  const int e = static_cast<int>(bits - 0x3F3504F3u) >> 23;  // counted from the root of 1/2 on
  const float f = std::bit_cast<float>(bits - (static_cast<uint32_t>(e) << 23)) - 1;
  return static_cast<float>(e) * 0.69314718F + log_near_one(e == 0 ? more : f);
}

/// For r = x / a from kLeast to kMost and a of at least 1: r (log(r) / (r - 1) + F / (a + 0.4)). The first term is what
/// is left for large shapes; F, of log(r) and 1 / (a + 0.4), is smooth: its Chebyshev coefficients fall tenfold with
/// each degree. Those above 1e-7 are here, for each power of the logarithm, which is made to go from -1 to 1.
constexpr float near_shape(float a, float x) {
  const float inverse = quotient(1, a), ratio = x * inverse, more = (x - a) * inverse;
  const float t = log_of_ratio(ratio, more), v = quotient(1, a + 0.4F), s = t * 0.29919464F + 0.377842236F;
  const float sum =
      powers(s, powers(v, 0.278730136F, 0.118925585F, 0.0298557682F, -0.00560331637F, 0.00379600176F, 0.00212387999F),
             powers(v, -0.296390808F, -0.0681208446F, 0.0200955136F, 0.0169112405F, -0.0194736182F, 0.00584081993F),
             powers(v, -0.0486788948F, -0.0851980217F, -0.0350099788F, 0.0321462202F, -0.00608497387F, -0.00176502636F),
             powers(v, 0.118752778F, 0.0181066261F, -0.0493574454F, -0.0227726513F, 0.034482136F, -0.0107754351F),
             powers(v, 0.0432545888F, 0.0691542745F, 0.020050309F, -0.0474554305F, 0.012234519F),
             powers(v, -0.0459478382F, 0.00478026178F, 0.0540290108F, 0.00137381559F, -0.023427788F, 0.00573443391F),
             powers(v, -0.0268926437F, -0.0412604152F, 0.00537258955F, 0.027212911F, -0.00578369087F),
             powers(v, 0.0141049346F, -0.0114438068F, -0.0342039141F, 0.0135231757F, 0.00425915901F),
             powers(v, 0.0125636334F, 0.017396725F, -0.0128334601F, -0.00484872416F),
             powers(v, -0.00313404161F, 0.00810810454F, 0.00935182874F, -0.00598382738F),
             powers(v, -0.00409825361F, -0.00368737971F, 0.00450139696F), powers(v, 0.000387201118F, -0.00235217396F),
             powers(v, 0.000685870619F));
  return ratio * ((more == 0 ? 1 : quotient(t, more)) + v * sum);
}
/// log(x) - psi(a + 1).
constexpr float log_less_psi(float a, float x) {
  const float v = quotient(1, a + 1), ratio = x * v;
  // psi(a + 1) - log(a + 1)
  const float psi = powers(v, 3.17067233e-09F, -0.500000512F, -0.083319954F, -0.000131367791F, 0.00894607582F,
                           -0.00139145613F, -0.00300934994F, 0.00219801946F, -0.000507126272F);
  return log_of_ratio(ratio, (x - a - 1) * v) - psi;
}
/// Below: gamma_slope()'s series, whose parts do not cancel for x up to about 1 or below a.
constexpr float by_series(float a, float x) {
  float term = 1, slope = log_less_psi(a, x), sum = slope;
  for (int i = 1; i < 24; ++i) {
    const float over = quotient(1, a + static_cast<float>(i));
    term *= x * over;
    slope -= over;
    sum += term * slope;
    if (term * (std::abs(slope) + 1) < 1e-8F * std::abs(sum)) break;
  }
  return -sum * (x / a);
}
/// Above: (log(x) - psi(a)) S + dS / da of S = Gamma(a, x) x^(1 - a) e^x = x / (x + 1 - a - (1 - a) / (x + 3 - a - 2 (2
/// - a) / ..)) (DLMF 8.9.2), from its last fraction on together with the derivative. All terms are positive.
constexpr float by_fraction(float a, float x) {
  int n = x < 2 ? 20 : x < 4 ? 12 : 8;
  const float from = x + 1 - a;
  float f = from + static_cast<float>(2 * n), f_a = -1;
  for (; n > 0; --n) {
    const auto i = static_cast<float>(n);
    const float over = quotient(1, f), share = i * (i - a) * over;
    f = from + 2 * (i - 1) - share;
    f_a = -1 + (i + share * f_a) * over;
  }
  const float over = quotient(1, f);
  return x * over * (log_less_psi(a, x) + 1 / a - f_a * over);
}

/// Whether near_shape() is for these.
constexpr bool is_near_shape(float a, float x) {
  return a >= 1 && a < 1e30F && x >= kLeast * a && x <= kMost * a;
}
/// The others of is_ordinary().
constexpr float away_from_shape(float a, float x) {
  return x <= (a < 1 ? 1 : a) ? by_series(a, x) : by_fraction(a, x);
}

}  // namespace slope

/// Whether narrow_gamma_slope() is for these: neither numbers near f32's ends nor what is no shape or sample.
constexpr bool is_ordinary(float a, float x) {
  return a > 1e-30F && a < 1e30F && x > 1e-30F && x < 1e30F && x > a * 1e-30F;
}
constexpr float narrow_gamma_slope(float a, float x) {
  return slope::is_near_shape(a, x) ? slope::near_shape(a, x) : slope::away_from_shape(a, x);
}

}  // namespace strata::sampler
