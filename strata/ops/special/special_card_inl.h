#pragma once
// The special functions as a card computes them: in C, float for results of f32, bf16 and f16 and double for f64, by
// polynomials where special_inl.h has sums. A multiprocessor does 64 operations of f64 a cycle, a division is some
// twenty of them, and the threads of a warp wait for the one with the longest sum. special_inl.h has the arguments that
// have no polynomial here. Plain C++, so that a test on the processor sees the same text.

#include <cmath>
#include <cstddef>
#include <iterator>
#include <limits>
#include <utility>

#include "strata/ops/elementwise/bessel_fits_inl.h"
#include "strata/ops/special/fits_inl.h"
#include "strata/ops/special/polynomials_inl.h"
#include "strata/ops/special/special_inl.h"

#ifdef __CUDACC__
#define STRATA_CARD __device__ __forceinline__
#else
#define STRATA_CARD inline
#endif

namespace strata {
namespace {

template <const auto& kTable, size_t I>
struct TermOf {
  static constexpr double value = kTable[I];
};
/// The polynomial with the coefficients of a table.
template <const auto& kTable, class C>
STRATA_CARD C by_table(C x) {
  return [&]<size_t... I>(std::index_sequence<I...>) {
    C y = static_cast<C>(TermOf<kTable, 0>::value);
    ((y = std::fma(y, x, static_cast<C>(TermOf<kTable, I + 1>::value))), ...);
    return y;
  }
  (std::make_index_sequence<std::size(kTable) - 1>());
}

template <class C>
constexpr C kCardInf = std::numeric_limits<C>::infinity();
template <class C>
constexpr C kCardNan = std::numeric_limits<C>::quiet_NaN();

// sin(pi x) and cos(pi x), and 1 / sqrt(x)
template <class C>
STRATA_CARD C sine_of_half_turns(C x) {
#ifdef __CUDACC__
  return ::sinpi(x);
#else
  return static_cast<C>(sin_pi(x));
#endif
}
template <class C>
STRATA_CARD C cosine_of_half_turns(C x) {
#ifdef __CUDACC__
  return ::cospi(x);
#else
  return static_cast<C>(cos_pi(x));
#endif
}
template <class C>
STRATA_CARD C inverse_root(C x) {
#ifdef __CUDACC__
  return ::rsqrt(x);
#else
  return 1 / std::sqrt(x);
#endif
}

// ---- gamma and its kin

// On [1, 2] by digamma / (x - its zero), reached by the recurrence, whose terms are put together as one fraction; from
// 10 on DLMF 5.11.2, below 0 5.5.4.
template <class C>
STRATA_CARD C card_digamma(C x) {
  if (x == 0) return std::copysign(kCardInf<C>, -x);
  C v = x, cotangent = 0;
  if (x < 0) {
    const C r = x - std::rint(x);
    if (r == 0) return kCardNan<C>;
    cotangent = static_cast<C>(kPi) * cosine_of_half_turns(r) / sine_of_half_turns(r);
    v = 1 - x;
  }
  C y;
  if (v >= 10) {
    const C inverse = 1 / v, square = inverse * inverse;
    y = std::log(v) - std::fma(square, by_table<CardFits<C>::digamma_tail>(square), inverse / 2);
  } else {
    constexpr double zero = 1.4616321449683622;
    constexpr C high = static_cast<C>(zero), low = static_cast<C>(zero - high + 9.549995429965697e-17);
    C at = v, under = 1, over = 0;
    if (v < 1) under = v, over = -1, at = v + 1;
    while (at > 2) {
      at -= 1;
      over = std::fma(over, at, under);
      under *= at;
    }
    y = std::fma((at - high) - low, by_table<CardFits<C>::digamma_near>(at - static_cast<C>(1.5)), over / under);
  }
  return y - cotangent;
}

// DLMF 5.15.8, reached by the recurrence, two terms as one fraction; below 1/2 5.15.6.
template <class C>
STRATA_CARD C card_trigamma(C x) {
  if (x == -kCardInf<C>) return kCardNan<C>;
  constexpr int kFar = sizeof(C) == 4 ? 6 : 8;
  const bool mirrored = x < static_cast<C>(0.5);
  C v = mirrored ? 1 - x : x, sum = 0;
  while (v < kFar) {
    const C a = v * v, b = (v + 1) * (v + 1);
    sum += (a + b) / (a * b);
    v += 2;
  }
  const C inverse = 1 / v, square = inverse * inverse;
  const C tail = std::fma(square, by_table<CardFits<C>::trigamma_tail>(square), C(1));
  const C y = sum + std::fma(inverse, tail, square / 2);
  if (!mirrored) return y;
  const C ratio = static_cast<C>(kPi) / sine_of_half_turns(x);
  return std::fma(ratio, ratio, -y);
}

// x^n for whole n > 0
template <class C>
STRATA_CARD C whole_power_of(C x, int n) {
  C y = 1;
  for (; n > 0; n >>= 1, x *= x)
    if (n & 1) y *= x;
  return y;
}
// B_2k / (2k)!
struct EulerMaclaurin {
  static constexpr double terms[] = {0.08333333333333333,    -0.001388888888888889,  3.306878306878307e-05,
                                     -8.267195767195768e-07, 2.08767569878681e-08,   -5.284190138687493e-10,
                                     1.3382536530684679e-11, -3.3896802963225827e-13};
};
// `tail` with the corrections of Euler and Maclaurin: term k is B_2k / (2k)! times `factor`, which next(2k + 1, 2k + 2)
// takes on.
template <int kTerms, class C, class Next>
STRATA_CARD C corrections(C tail, C factor, Next&& next) {
  [&]<size_t... K>(std::index_sequence<K...>) {
    ((tail = std::fma(factor, static_cast<C>(TermOf<EulerMaclaurin::terms, K>::value), tail),
      factor *= next(static_cast<C>(2.0 * K + 1), static_cast<C>(2.0 * K + 2))),
     ...);
  }
  (std::make_index_sequence<kTerms>());
  return tail;
}

// The n-th derivative of digamma, `sign` being (-1)^(n+1): n! sign zeta(n + 1, x), DLMF 25.11.28 behind 12 terms.
template <class C>
STRATA_CARD C card_polygamma(C order, C sign, C x) {
  if (order == 1) return card_trigamma(x);
  constexpr bool kSingle = sizeof(C) == 4;
  // The powers of what is larger leave the range of f32.
  constexpr C least = static_cast<C>(kSingle ? 1e-30 : 1e-15);
  const C most = static_cast<C>(!kSingle ? 1e15 : order <= 4 ? 1e6 : 1e2);
  if (!(order <= 16 && x > least && x < most)) return static_cast<C>(polygamma_of(order, sign, x));
  const int n = static_cast<int>(order), s = n + 1;
  C factorial = sign;
  for (int k = 2; k <= n; ++k) factorial *= static_cast<C>(k);
  C sum = 0;
  for (int k = 0; k < 12; ++k) sum += whole_power_of(1 / (x + static_cast<C>(k)), s);
  const C inverse = 1 / (x + 12), square = inverse * inverse, scale = whole_power_of(inverse, n);
  const C tail = corrections<8>(1 / static_cast<C>(n) + inverse / 2, static_cast<C>(s) * square,
                                [&](C a, C b) { return square * ((static_cast<C>(s) + a) * (static_cast<C>(s) + b)); });
  return std::fma(scale, tail, sum) * factorial;
}

// Hurwitz's zeta in f32's digits: the terms themselves, whose powers are those of the library.
STRATA_CARD float card_zeta(float s, float q) {
  if (!(s > 1 && s < 60 && q > 1e-4f && q < 1e6f)) return static_cast<float>(zeta_of(s, q));
  constexpr int kTerms = 9;
  float sum = std::pow(q, -s);
  for (int k = 1; k < kTerms; ++k) {
    const float w = q + static_cast<float>(k), term = std::pow(w, -s);
    sum += term;
    if (term * w <= 1e-9f * sum * (s - 1)) return sum;  // what is left is less than term w / (s - 1)
  }
  const float w = q + kTerms, inverse = 1 / w, square = inverse * inverse;
  const float tail =
      corrections<5>(w / (s - 1) + 0.5f, s * inverse, [&](float a, float b) { return square * ((s + a) * (s + b)); });
  return std::fma(std::pow(w, -s), tail, sum);
}

// The incomplete gamma functions as in incomplete_gamma(), for a so small that the power's logarithm has digits enough:
// x^a e^-x / Gamma(a + 1) in double, what it is multiplied by in C.
template <class C>
STRATA_CARD C card_incomplete_gamma(C given_a, C given_x, bool upper) {
  constexpr bool kSingle = sizeof(C) == 4;
  const double a = given_a, x = given_x;
  const bool easy = a > 1e-3 && a < (kSingle ? 200 : 20) && x > 1e-10 && x < (kSingle ? 1000 : 60);
  if (!easy || (upper && a < 1 && x < 1.1)) return static_cast<C>(incomplete_gamma(a, x, upper));
  if (kSingle && a >= 20 && std::abs(x - a) <= 0.4 * a) {
    const double inverse = 1 / a, mu = (x - a) * inverse, half_square = -log1p_less(mu);
    const double eta = std::copysign(std::sqrt(2 * half_square), mu), root = std::sqrt(a / 2);
    double sum = 0;
    for (int k = 3; k >= 0; --k) {
      double c = 0;
      for (int n = 8; n >= 0; --n) c = c * eta + kGammaTail[k][n];
      sum = sum * inverse + c;
    }
    const double rest = std::exp(-a * half_square) / std::sqrt(2 * kPi * a) * sum;
    return static_cast<C>(upper ? 0.5 * std::erfc(eta * root) + rest : 0.5 * std::erfc(-eta * root) - rest);
  }
  const double prefix = std::exp(a * std::log(x) - x - log_gamma(a + 1));
  const C p = given_a, v = given_x;
  if (x < a + 1 || x < 1.1) {
    constexpr C kDigits = static_cast<C>(kSingle ? 1e-9 : 1e-17);
    C n = p, term = 1, sum = 1;
    for (int k = 0; k < 1000; ++k) {  // two terms with one quotient
      const C first = n + 1, second = n + 2, both = v / (first * second);
      const C one = term * (both * second);
      term = one * (both * first);
      sum += one + term;
      n = second;
      if (term <= kDigits * sum) break;
    }
    const double lower = prefix * static_cast<double>(sum);
    return static_cast<C>(upper ? 1 - lower : lower);
  }
  // The continued fraction by the recurrence of numerators and denominators, which are kept near 1.
  constexpr C kStill = static_cast<C>(kSingle ? 1e-7 : 2e-15);
  C b = v + 1 - p, below = 1, here = b, over_below = 0, over = 1, before = 0;
  for (int k = 1; k < 2000; k += 4) {
#ifdef __CUDACC__
#pragma unroll
#endif
    for (int j = 0; j < 4; ++j) {
      const C n = static_cast<C>(k + j), an = n * (p - n);
      b += 2;
      const C next = std::fma(b, here, an * below), over_next = std::fma(b, over, an * over_below);
      below = here, over_below = over, here = next, over = over_next;
    }
    const C scale = 1 / here, fraction = over * scale;
    below *= scale, over_below *= scale, over = fraction, here = 1;
    const bool still = !(std::abs(fraction - before) > kStill * std::abs(fraction));
    before = fraction;
    if (still) break;
  }
  const double q = prefix * a * static_cast<double>(before);
  return static_cast<C>(upper ? q : 1 - q);
}

// ---- the normal distribution and logarithms

#ifdef __CUDACC__
template <class C>
STRATA_CARD C card_log_ndtr(C x) {
  constexpr C half = C(0.5), root_half = static_cast<C>(kSqrtHalf);
  if (x < -1) return std::log(half * ::erfcx(-x * root_half)) - half * x * x;
  return std::log1p(-half * std::erfc(x * root_half));
}
#endif
template <class C>
STRATA_CARD C card_sinc(C x) {
  // Below, the quotient would be one of subnormals.
  constexpr C least = static_cast<C>(sizeof(C) == 4 ? 0x1p-13 : 0x1p-28);
  return std::abs(x) < least ? C(1) : sine_of_half_turns(x) / (static_cast<C>(kPi) * x);
}
template <class C>
STRATA_CARD C card_entr(C x) {
  return x > 0 ? -x * std::log(x) : x == 0 ? C(0) : x != x ? x : -kCardInf<C>;
}
// `eps`, where it is not negative, and 1 less it are what x is limited to.
template <class C>
STRATA_CARD C card_logit(C x, C eps) {
  const C v = eps < 0 ? x : x < eps ? eps : x > 1 - eps ? 1 - eps : x;
  if constexpr (sizeof(C) == 4) {
    // Twice the area tangent of w by its series near 1/2, where the logarithm of the odds would lose digits.
    const C w = 2 * v - 1, z = w * w;
    const C near = std::fma(
        w * z * 2,
        std::fma(std::fma(std::fma(std::fma(std::fma(z, C(1.0 / 13), C(1.0 / 11)), z, C(1.0 / 9)), z, C(1.0 / 7)), z,
                          C(1.0 / 5)),
                 z, C(1.0 / 3)),
        w * 2);
    return z < C(0.0625) ? near : std::log(v / (1 - v));
  }
  if (v < C(0.25) || v > C(0.75)) return std::log(v) - std::log1p(-v);
  return std::log1p((2 * v - 1) / (1 - v));
}

// ---- Bessel functions

// J, or Y, of order 0 or 1, of 0 < a <= 1e6, in double for results of f32: a polynomial on each side of 8
// (elementwise/bessel_fits_inl.h). Quotients and roots begin in f32, and one step of Newton's gives them the digits.
template <int kOrder, bool kSecond>
STRATA_CARD double bessel_in_double(double a) {
  using Fit = BesselFit<kOrder>;
  constexpr double two_by_pi = 2 / kPi;
  if (a < 8) {
    const double t = std::fma(a * a, 1.0 / 32, -1.0), j = by_table<Fit::j>(t);
    if constexpr (!kSecond) return kOrder == 1 ? j * a : j;
    const double y = std::fma(j * two_by_pi, std::log(a / 2), by_table<Fit::y>(t));
    return kOrder == 1 ? y * a - two_by_pi / a : y;
  }
  const double start = 8.f / static_cast<float>(a), w = start * std::fma(a * -0.125, start, 2.0);
  const double v = std::fma(w * w, 2.0, -1.0), p = by_table<Fit::p>(v), q = by_table<Fit::q>(v) * w;
  const double n = std::rint(a * two_by_pi),
               r = std::fma(n, -6.123233995736766e-17, std::fma(n, -1.5707963267948966, a));
  const double z = r * r, sine = std::fma(r * z, by_table<TurnFit::sine>(z), r), cosine = by_table<TurnFit::cosine>(z);
  const int quarter = static_cast<int>(n) & 3;
  const double first = quarter % 2 == 0 ? sine : cosine, second = quarter % 2 == 0 ? cosine : sine;
  const double sin_a = quarter >= 2 ? -first : first, cos_a = quarter == 1 || quarter == 2 ? -second : second;
  // The angle less a quarter of a half turn, or three; both divided by sqrt(1/2).
  const double c = kOrder == 0 ? cos_a + sin_a : sin_a - cos_a, s = kOrder == 0 ? sin_a - cos_a : -(sin_a + cos_a);
  const double square = a * kPi, root = inverse_root(static_cast<float>(square));
  const double size = root * std::fma(square * -0.5, root * root, 1.5);
  return size * (kSecond ? p * s + q * c : p * c - q * s);
}
// The power series to x = 2 (DLMF 10.2.2), in z = x^2 / 4. J_0's 1 - z, which cancels, takes what z lost in rounding.
struct BesselSeries {
  static constexpr double j0[] = {-1.0 / 25401600, 1.0 / 518400, -1.0 / 14400, 1.0 / 576, -1.0 / 36, 1.0 / 4};
  static constexpr double j1[] = {-1.0 / 203212800, 1.0 / 3628800, -1.0 / 86400, 1.0 / 2880,
                                  -1.0 / 144,       1.0 / 12,      -1.0 / 2,     1};
};
STRATA_CARD float bessel_j_near(int n, float x) {
  const float half = x / 2, z = half * half;
  if (n == 1) return half * by_table<BesselSeries::j1>(z);
  const float lost = std::fma(half, half, -z) * std::fma(z, -0.42f, 1.f);  // times the slope
  return std::fma(z * z, by_table<BesselSeries::j0>(z), (1 - z) - lost);
}
template <bool kSecond, class C>
STRATA_CARD C card_bessel(int n, C x) {
  if constexpr (sizeof(C) == 4) {
    if (!kSecond && n < 2 && std::abs(x) <= 2) return bessel_j_near(n, x);
    const double a = std::abs(x);
    if (n < 2 && a <= 1e6 && (!kSecond || x > 0)) {
      const double y = n == 0 ? bessel_in_double<0, kSecond>(a) : bessel_in_double<1, kSecond>(a);
      return static_cast<C>(!kSecond && n == 1 && x < 0 ? -y : y);
    }
  }
  return static_cast<C>(kSecond ? bessel_y(n, x) : bessel_j(n, x));
}

// I_n, or that times exp(-|x|).
template <class C>
STRATA_CARD C card_bessel_i(int n, C x, bool scaled) {
  using Fit = CardFits<C>;
  const C a = std::abs(x);
  if (n > 2) return static_cast<C>(scaled ? scaled_bessel_i(n, x) : bessel_i(n, x));
  C y;
  if (a <= 8) {
    const C z = a * a;
    y = n == 0 ? by_table<Fit::i0>(z) : n == 1 ? by_table<Fit::i1>(z) * a : by_table<Fit::i2>(z) * z;
    if (scaled) y *= std::exp(-a);
  } else {
    const C t = 16 / a - 1;
    y = n == 1 ? by_table<Fit::i1_far>(t) : by_table<Fit::i0_far>(t);
    if (n == 2) y -= 2 / a * by_table<Fit::i1_far>(t);
    y *= inverse_root(a);
    if (!scaled) {
      const C half = std::exp(a / 2);
      y = a > 1500 ? kCardInf<C> : y * half * half;
    }
  }
  return n == 1 && x < 0 ? -y : y;
}

// K_n, n 0 or 1, or that times exp(x).
template <class C>
STRATA_CARD C card_bessel_k(int n, C x, bool scaled) {
  using Fit = CardFits<C>;
  if (!(x > 0)) return x == 0 ? kCardInf<C> : kCardNan<C>;
  if (x <= 2) {
    const C z = x * x, log_half = std::log(x / 2);
    const C y = n == 0 ? by_table<Fit::k0_near>(z) - log_half * by_table<Fit::k0_log>(z)
                       : 1 / x + x / 2 * (log_half * by_table<Fit::k1_log>(z) - by_table<Fit::k1_near>(z));
    return scaled ? y * std::exp(x) : y;
  }
  const C t = 4 / x - 1, y = (n == 0 ? by_table<Fit::k0_far>(t) : by_table<Fit::k1_far>(t)) * inverse_root(x);
  return scaled ? y : y * std::exp(-x);
}

// sin(x) / x to x = 2 in f32's digits: its series in x^2.
struct SineSeries {
  static constexpr double terms[] = {-1.0 / 1307674368000, 1.0 / 6227020800, -1.0 / 39916800, 1.0 / 362880,
                                     -1.0 / 5040,          1.0 / 120,        -1.0 / 6,        1};
};
// The spherical function of the first kind.
template <class C>
STRATA_CARD C card_spherical_j(int n, C x) {
  const C a = std::abs(x);
  if (n > 1) return static_cast<C>(spherical_bessel_j(n, x));
  if (a == kCardInf<C>) return 0;
  if (sizeof(C) == 4 && n == 0 && a <= 2) return by_table<SineSeries::terms>(x * x);
  if (n == 0) return x == 0 ? C(1) : std::sin(x) / x;
  if (a < 1) return x * by_table<CardFits<C>::j1>(x * x);
  return (std::sin(x) / x - std::cos(x)) / x;
}

// Airy's Ai, or its derivative: a Taylor series of y'' = x y around the nearest point of a table.
template <class C>
STRATA_CARD C card_airy(C x, bool derivative) {
  if (!(std::abs(x) <= 10)) return static_cast<C>(airy(x, derivative));
  constexpr int kTerms = sizeof(C) == 4 ? 11 : 21;
  const int at = static_cast<int>(std::rint(2 * x));
  const C from = static_cast<C>(at) / 2, h = x - from;
  C a0 = static_cast<C>(kAiry[at + 20][0]), a1 = static_cast<C>(kAiry[at + 20][1]), a2 = from * a0 / 2;
  C value = std::fma(h, std::fma(h, a2, a1), a0), slope = std::fma(2 * h, a2, a1), power = h * h;
  [&]<size_t... N>(std::index_sequence<N...>) {
    const auto next = [&](C over, C by) {  // 1 / ((n + 1) (n + 2)), n + 2
      const C a3 = std::fma(from, a1, a0) * over;
      slope = std::fma(by * a3, power, slope);
      power *= h;
      value = std::fma(a3, power, value);
      a0 = a1, a1 = a2, a2 = a3;
    };
    (next(static_cast<C>(1.0 / ((N + 2) * (N + 3))), static_cast<C>(N + 3)), ...);
  }
  (std::make_index_sequence<kTerms>());
  return derivative ? slope : value;
}

// ---- orthogonal polynomials

constexpr int kReciprocals = 32;
STRATA_SPECIAL_TABLE double kReciprocalOf[kReciprocals] = {
    1.0,      1.0 / 2,  1.0 / 3,  1.0 / 4,  1.0 / 5,  1.0 / 6,  1.0 / 7,  1.0 / 8,  1.0 / 9,  1.0 / 10, 1.0 / 11,
    1.0 / 12, 1.0 / 13, 1.0 / 14, 1.0 / 15, 1.0 / 16, 1.0 / 17, 1.0 / 18, 1.0 / 19, 1.0 / 20, 1.0 / 21, 1.0 / 22,
    1.0 / 23, 1.0 / 24, 1.0 / 25, 1.0 / 26, 1.0 / 27, 1.0 / 28, 1.0 / 29, 1.0 / 30, 1.0 / 31, 1.0 / 32};
// orthogonal_polynomial() itself or its first derivative, by the recurrence: in float for f32 up to an order of 16,
// whose steps lose few digits.
template <class C>
STRATA_CARD C polynomial_by_steps(int kind, int derivative, C x, int n) {
  C before = 0, now = 1, slope_before = 0, slope = 0;
  for (int k = 0; k < n; ++k) {
    // p_(k+1) = (a x + b) p_k - c p_(k-1)
    C a = 2, b = 0, c = 1;
    if (kind == kHermiteH) {
      c = static_cast<C>(2 * k);
    } else if (kind == kHermiteHe) {
      a = 1, c = static_cast<C>(k);
    } else if (kind == kLaguerre || kind == kLegendre) {
      C over;
      if constexpr (sizeof(C) == 4)
        over = 1 / static_cast<C>(k + 1);
      else
        over = k < kReciprocals ? kReciprocalOf[k] : 1.0 / (k + 1);
      a = kind == kLaguerre ? -over : 2 - over;
      b = kind == kLaguerre ? 2 - over : C(0);
      c = 1 - over;
    } else if (k == 0) {
      a = kind == kChebyshevT ? 1 : 2;
      b = kind == kChebyshevV ? -1 : kind == kChebyshevW ? 1 : 0;
    }
    const C by = std::fma(a, x, b);
    if (derivative == 1) {
      const C next = std::fma(by, slope, std::fma(a, now, -c * slope_before));
      slope_before = slope, slope = next;
    }
    const C next = std::fma(by, now, -c * before);
    before = now, now = next;
  }
  return now != now ? now : derivative == 0 ? now : slope;
}
template <class C>
STRATA_CARD C card_polynomial(int family, int derivative, C given, C order) {
  const C n = std::trunc(order);
  const bool shifted = family >= 4 && family < 8;
  const int kind = shifted ? family - 4 : family;
  if (derivative > 1 || !(n <= (kind < 4 ? 32 : 1000)) || given != given)
    return static_cast<C>(orthogonal_polynomial(family, derivative, given, order));
  if (n < 0) return 0;
  const C chain = shifted && derivative == 1 ? 2 : 1;
  if (sizeof(C) == 4 && n <= 16)
    return chain * polynomial_by_steps(kind, derivative, shifted ? 2 * given - 1 : given, static_cast<int>(n));
  const double x = shifted ? 2 * static_cast<double>(given) - 1 : given;
  return chain * static_cast<C>(polynomial_by_steps(kind, derivative, x, static_cast<int>(n)));
}

}  // namespace
}  // namespace strata

#undef STRATA_CARD
