#pragma once
// Samplers for results of at most f32, on a card: the numbers of samplers_inl.h by functions good to 1e-12, which take
// a third of the instructions. What lies within their error of a decision is decided by samplers_inl.h itself from the
// same blocks of the stream, so that every decision is the one made there.

#include <bit>

#include "strata/ops/distributions/samplers_inl.h"

namespace strata::sampler {

/// 1 / x and 1 / sqrt(x) to some 1e-6, of an x in (1e-300, 1e300).
constexpr double rough_inverse(double x) {
#ifdef __CUDA_ARCH__
  double y;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(x));
  return y;
#else
  return static_cast<float>(1 / x);
#endif
}
constexpr double rough_inverse_root(double x) {
#ifdef __CUDA_ARCH__
  double y;
  asm("rsqrt.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(x));
  return y;
#else
  return static_cast<float>(1 / std::sqrt(x));
#endif
}
/// One of Newton's steps squares their errors.
constexpr double short_inverse(double x) {
  const double y = rough_inverse(x);
  return y * (2 - x * y);
}
constexpr double short_inverse_root(double x) {
  const double y = rough_inverse_root(x);
  return y + y * (0.5 - 0.5 * x * y * y);
}
/// The root of an x that is 0 or at least 1e-300.
constexpr double short_root(double x) {
  if (!(x > 0)) return 0;
  const double half = 0.5 * rough_inverse_root(x), y = 2 * x * half;
  return y + y * (0.5 - y * half);
}
// Of the polynomials' highest coefficients the lower 32 bits are 0, so that a card's instructions have them within.

/// log(x) of a normal positive x: by 2 atanh(f / (2 + f)), f = m - 1, of x = 2^e m with m in [0.7, 1.42).
constexpr double short_log(double x) {
  const auto bits = std::bit_cast<uint64_t>(x);
  // So that the exponent's bits count from the root of 1/2 on.
  const uint32_t shifted = static_cast<uint32_t>(bits >> 32) - 0x3FE6A09Eu;
  const int e = static_cast<int>(shifted) >> 20;
  const double m = std::bit_cast<double>(bits - (static_cast<uint64_t>(static_cast<uint32_t>(e) << 20) << 32));
  const double f = m - 1, s = f * short_inverse(2 + f), q = s * s;
  const double p =
      0.6666666666971813 +
      q * (0.39999998207090576 + q * (0.2857179641723633 + q * (0.22190475463867188 + q * 0.19363188743591309)));
  return e * 0.69314718055994530942 + s * (2 + q * p);
}
/// exp(x) of an x from -700 to 0.
constexpr double short_exp(double x) {
  // What is added leaves a whole number in the last bits.
  const double whole = x * 1.44269504088896340736 + 0x1.8p52, n = whole - 0x1.8p52;
  const double f = x - n * 0.69314718055994530942;
  const double p =
      1 +
      f * (0.9999999999797852 +
           f * (0.49999999999797934 +
                f * (0.16666666890945775 +
                     f * (0.041666666890957 + f * (0.008333266097949614 +
                                                   f * (0.0013888821677630362 +
                                                        f * (0.00019915866926782682 + f * 2.4876164022625967e-05)))))));
  return std::bit_cast<double>(std::bit_cast<uint64_t>(p) + (std::bit_cast<uint64_t>(whole) << 52));
}
/// cos(2 pi x) for x in [0, 1): - sin(2 pi z), z in [-1/4, 1/4].
constexpr double short_cosine_of_turns(double x) {
  const double z = 0.25 - std::abs(x - 0.5), q = z * z;
  return -z * (6.283185307177969 +
               q * (-41.34170223936919 +
                    q * (81.60524909835839 +
                         q * (-76.70584568536076 +
                              q * (42.05810546875 + q * (-15.081314086914062 + q * 3.6658554077148438))))));
}
/// uniform_f64() by numbers whose last bits are the words: two sums where a conversion takes eight times as long.
constexpr double uniform_of_words(uint32_t high, uint32_t low) {
  const double upper = std::bit_cast<double>(0x41E0000000000000u | (high >> 11));                  // 2^31 + its share
  const double lower = std::bit_cast<double>(0x3FE0000000000000u | ((high << 21) | (low >> 11)));  // 1/2 + its share
  return (upper - 2147483648.5) + lower;
}

/// x * y, for which the compiler adds a zero to the upper word unless it is told that both are of 32 bits.
constexpr uint64_t wide_product(uint32_t x, uint32_t y) {
#ifdef __CUDA_ARCH__
  uint64_t product;
  asm("mul.wide.u32 %0, %1, %2;" : "=l"(product) : "r"(x), "r"(y));
  return product;
#else
  return uint64_t{x} * y;
#endif
}
/// A stream whose blocks are looked at as words: philox()'s, as Stream<double> has them. The key has no base.
struct WordStream {
  RngKey key;
  uint64_t block;
  uint32_t words[4] = {};
  constexpr void draw() {
    const uint64_t counter = key.offset + block++;
    words[0] = static_cast<uint32_t>(counter), words[1] = static_cast<uint32_t>(counter >> 32), words[2] = words[3] = 0;
    uint32_t k0 = static_cast<uint32_t>(key.seed), k1 = static_cast<uint32_t>(key.seed >> 32);
    for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
      const uint64_t p0 = wide_product(words[0], 0xD2511F53u), p1 = wide_product(words[2], 0xCD9E8D57u);
      words[0] = static_cast<uint32_t>(p1 >> 32) ^ words[1] ^ k0;
      words[2] = static_cast<uint32_t>(p0 >> 32) ^ words[3] ^ k1;
      words[1] = static_cast<uint32_t>(p1), words[3] = static_cast<uint32_t>(p0);
    }
  }
  constexpr double first() const { return uniform_of_words(words[0], words[1]); }
  constexpr double second() const { return 1 - uniform_of_words(words[2], words[3]); }
  /// The stream `blocks` before, as numbers.
  constexpr Stream<double> back(uint64_t blocks) const { return {key, block - blocks}; }
};

/// Gamma<double>, but for the factor of shapes below 1: gamma_boost().
struct NarrowGamma {
  static constexpr int kMost = kRounds;
  static constexpr int kEnough = 8;       ///< of a warp's lanes: the logarithms are for one proposal in twelve
  static constexpr double kLeast = 1e-3;  ///< t below which its error counts
  double d = 0, c = 0, x = 0, t = 0, v = 0, share = 0;

  constexpr bool begin(double a, WordStream& s, double& result) {
    result = a > 0 ? a : a == 0 ? 0 : std::numeric_limits<double>::quiet_NaN();
    if (!(a > 0) || a > std::numeric_limits<double>::max()) return false;
    if (a < 1) {
      ++s.block;  // gamma_boost()'s
      a += 1;
    }
    d = a - 1.0 / 3, c = short_inverse_root(9 * d);
    return true;
  }
  constexpr Step propose(WordStream& s) {
    s.draw();
    x = short_root(-2 * short_log(s.second())) * short_cosine_of_turns(s.first());
    t = 1 + c * x, v = t * t * t;
    s.draw();
    share = s.second();
    if (t < kLeast) return t < -kLeast ? Step::refused : Step::doubtful;
    return share < 1 - 1e-9 - 0.0331 * x * x * x * x ? Step::taken : Step::doubtful;
  }
  constexpr bool settle(const WordStream& s) {
    if (t >= kLeast) {
      const double gap = short_log(share) - (0.5 * x * x + d * (1 - v + short_log(v)));
      if (std::abs(gap) > 1e-9 + d * (1e-10 * std::abs(1 - v) + 4e-16)) return gap < 0;
    }
    Gamma<double> exactly;
    exactly.d = d, exactly.c = inverse_root(9 * d);
    Stream<double> again = s.back(2);
    const Step step = exactly.propose(again);
    v = exactly.v;
    return step == Step::taken || (step == Step::doubtful && exactly.settle());
  }
  constexpr double result() const { return d * v; }
  constexpr double otherwise() const { return d; }
};
/// What a gamma number of shape a + 1 is multiplied by for one of shape a in (0, 1); the stream is at its first block.
constexpr double gamma_boost(double a, WordStream s) {
  s.draw();
  const double power = short_log(s.second()) * short_inverse(a);
  return power > -700 ? short_exp(power) : 0;
}

/// PoissonProducts<double>: products in f32, with room for its errors.
struct NarrowPoissonProducts {
  static constexpr int kMost = PoissonProducts<double>::kMost;
  static constexpr int kEnough = 1;
  static constexpr float kRoom = 3e-5F;  ///< 200 products and as many conversions are within 2.4e-5
  double rate = 0;
  float limit = 0, product = 1;
  int count = 0;

  constexpr bool begin(double given, WordStream&, double& result) {
    result = std::numeric_limits<double>::quiet_NaN();
    rate = given, limit = std::exp(-static_cast<float>(given));
    return given >= 0;
  }
  constexpr Step propose(WordStream& s) {
    s.draw();
    // Of 64 bits: one less than 2^64 minus the word has all but the last.
    product *= static_cast<float>(~s.words[2]) * 0x1p-32F + static_cast<float>(~s.words[3]) * 0x1p-64F;
    if (product < limit * (1 - kRoom)) return Step::taken;
    if (product <= limit * (1 + kRoom)) return Step::doubtful;
    ++count;
    return Step::refused;
  }
  constexpr bool settle(const WordStream& s) {
    Stream<double> again = s.back(static_cast<uint64_t>(count) + 1);
    double exactly = 1;
    for (int i = 0; i <= count; ++i) {
      again.draw();
      exactly *= again.second;
    }
    if (exactly <= std::exp(-rate)) return true;
    ++count;
    return false;
  }
  constexpr double result() const { return count; }
  constexpr double otherwise() const { return count; }
};

/// PoissonRejection<double>.
struct NarrowPoissonRejection {
  static constexpr int kMost = PoissonRejection<double>::kMost;
  static constexpr int kEnough = 1;
  PoissonRejection<double> at;

  constexpr bool begin(double given, WordStream&, double& result) {
    result = given;  // NaN too
    if (!(given <= std::numeric_limits<double>::max())) return false;
    at.rate = given, at.b = 0.931 + 2.53 * short_root(given), at.a = -0.059 + 0.02483 * at.b;
    at.sure = 0.9277F - quotient(3.6224F, static_cast<float>(at.b - 2));
    return true;
  }
  constexpr Step propose(WordStream& s) {
    s.draw();
    const double u = s.first() - 0.5;
    at.v = s.second(), at.us = 0.5 - std::abs(u);
    if (!(at.us > 1e-6)) return Step::doubtful;
    const double away = (2 * at.a * short_inverse(at.us) + at.b) * u, x = away + at.rate + 0.43;
    at.k = std::floor(x);
    const double room = 1e-9 * (1 + std::abs(away)) + 4e-16 * at.rate;
    if (std::abs(x - at.k - 0.5) > 0.5 - room) return Step::doubtful;
    if (at.us >= 0.07) {
      const float above = static_cast<float>(at.v) - at.sure;
      if (above < -1e-5F) return Step::taken;
      if (above < 1e-5F) return Step::doubtful;
    }
    if (at.k < 0 || (at.us < 0.013 && at.v > at.us)) return Step::refused;
    return at.nearly_settled();
  }
  constexpr bool settle(const WordStream& s) {
    Stream<double> again = s.back(1);
    double result = 0;
    at.begin(at.rate, again, result);
    const Step step = at.propose(again);
    return step == Step::taken || (step == Step::doubtful && at.settle());
  }
  constexpr double result() const { return at.k; }
  constexpr double otherwise() const { return at.otherwise(); }
};

}  // namespace strata::sampler
