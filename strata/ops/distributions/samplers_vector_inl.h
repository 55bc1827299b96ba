// What the samplers need by the vector, for one processor level. No include guard: see strata/ops/vec/levels_inl.h.

#include "strata/ops/vec/functions_inl.h"
#if STRATA_VEC_LEVEL >= 1
#include "strata/ops/elementwise/double_functions_inl.h"
#endif

namespace strata::STRATA_VEC_NS {

#if STRATA_VEC_LEVEL >= 1
STRATA_INLINE VLU product_of_halves(VLU a, uint64_t b) {
#if STRATA_VEC_LEVEL >= 2
  return (VLU)_mm512_mul_epu32((__m512i)a, (__m512i)(VLU{} + b));
#else
  return (VLU)_mm256_mul_epu32((__m256i)a, (__m256i)(VLU{} + b));
#endif
}
#endif

#if STRATA_VEC_LEVEL >= 1
// philox() of the blocks c. Of each lane of c0 to c3 the low half counts.
STRATA_INLINE void philox_lanes(uint64_t seed, VLU c, VLU& c0, VLU& c1, VLU& c2, VLU& c3) {
  c0 = c, c1 = c >> 32, c2 = VLU{}, c3 = VLU{};
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const VLU p0 = product_of_halves(c0, 0xD2511F53u), p1 = product_of_halves(c2, 0xCD9E8D57u);
    c0 = (p1 >> 32) ^ c1 ^ static_cast<uint64_t>(k0);
    c2 = (p0 >> 32) ^ c3 ^ static_cast<uint64_t>(k1);
    c1 = p1;
    c3 = p0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
}
// uniform_f64(high, low).
STRATA_INLINE VD uniform_lanes(VLU high, VLU low) {
  const VLU bits = ((high << 32) | (low & static_cast<uint64_t>(0xFFFFFFFFu))) >> 11;
  return __builtin_convertvector((VL)bits, VD) * 0x1p-53;
}
// sampler::split() of the blocks c.
STRATA_INLINE void split_lanes(uint64_t seed, VLU c, VD& first, VD& second) {
  VLU c0, c1, c2, c3;
  philox_lanes(seed, c, c0, c1, c2, c3);
  first = uniform_lanes(c0, c1);
  second = 1.0 - uniform_lanes(c2, c3);
}
#endif

// The numbers of the blocks counter, counter + step, ... of a seed: those of block i in out[4 i] on.
static void draw_apart(uint64_t seed, uint64_t counter, uint64_t step, int64_t blocks, uint32_t* out) {
  int64_t b = 0;
#if STRATA_VEC_LEVEL >= 1
  constexpr int kCount = kLanes<double>;
  VLU lane;
  for (int i = 0; i < kCount; ++i) lane[i] = static_cast<uint64_t>(i) * step;
  for (; b + kCount <= blocks; b += kCount) {
    VLU c0, c1, c2, c3;
    philox_lanes(seed, lane + (counter + static_cast<uint64_t>(b) * step), c0, c1, c2, c3);
    for (int i = 0; i < kCount; ++i, out += 4) {
      out[0] = static_cast<uint32_t>(c0[i]);
      out[1] = static_cast<uint32_t>(c1[i]);
      out[2] = static_cast<uint32_t>(c2[i]);
      out[3] = static_cast<uint32_t>(c3[i]);
    }
  }
#endif
  for (; b < blocks; ++b, out += 4) {
    const auto bits = philox({seed, 0}, counter + static_cast<uint64_t>(b) * step);
    std::copy(bits.begin(), bits.end(), out);
  }
}

#if STRATA_VEC_LEVEL >= 1
// sampler::gamma_slope() of lanes, which go on together until the last has its sum.
STRATA_INLINE VD gamma_slopes(VD a, VD x) {
  const auto fits = (a > 1e-8) & (a <= 1000.0) & (x > 1e-300) & (x < 1e4);
  const VD of_a = fits ? a : set1(1.0), of_x = fits ? x : set1(1.0);
  const auto easy = fits & (of_x - of_a - of_a * (log_of(of_x) - log_of(of_a)) <= 15.9);  // not sampler::is_far()
  const VD p = easy ? of_a : set1(1.0), v = easy ? of_x : set1(1.0);
  VD n = p + 1.0, shift = VD{};
  for (int k = 0; k < 9; ++k) {
    const auto up = n < 10.0;
    shift = up ? shift + 1.0 / n : shift;
    n = up ? n + 1.0 : n;
  }
  const VD inverse = 1.0 / n, r = inverse * inverse;
  const VD series =
      r * (1.0 / 12 -
           r * (1.0 / 120 - r * (1.0 / 252 - r * (1.0 / 240 - r * (1.0 / 132 - r * (691.0 / 32760 - r / 12.0))))));
  const VD psi = log_of(n) - 0.5 * inverse - series - shift;
  VD term = set1(1.0), slope = log_of(v) - psi, sum = slope, at = p;
  VL going = ~VL{};  // lanes that are done keep their sum: no result depends on its neighbours
  for (int i = 1; i < 10000; ++i) {
    at = at + 1.0;
    const VD over = 1.0 / at;
    term = term * (v * over);
    slope = slope - over;
    sum = going ? fma(term, slope, sum) : sum;
    if (i % 4 != 0) continue;
    going = going & ~((at > v) & (term * (absolute(slope) + 1.0) < 1e-17 * absolute(sum)));
    if (!any_lane(going)) break;
  }
  VD y = -sum * v / p;
  if (any_lane(~easy)) [[unlikely]]
    for (int i = 0; i < kLanes<double>; ++i)
      if (!easy[i]) y[i] = sampler::gamma_slope(a[i], x[i]);
  return y;
}
#endif
// The first proposal of sampler::gamma() of elements whose first three blocks are those, 4 words an element each. Where
// it is refused, and where a is no positive number, y is -1.
static void gammas_of(const double* a, const uint32_t* const* blocks, double* y, int64_t n) {
#if STRATA_VEC_LEVEL >= 1
  constexpr int kCount = kLanes<double>;
  for (int64_t i = 0; i < n; i += kCount) {
    const int64_t k = std::min<int64_t>(kCount, n - i);
    double first[3][kCount] = {}, second[3][kCount] = {};
    for (int b = 0; b < 3; ++b)
      for (int64_t j = 0; j < kCount; ++j) {
        const int64_t at = 4 * (i + std::min(j, k - 1));
        sampler::split(blocks[b] + at, first[b][j], second[b][j]);
      }
    const VD shape = load_upto(a + i, k, 1.0);
    const auto small = shape < 1.0;
    const auto easy = (shape > 1e-3) & (shape < 1e100);
    const VD v = easy ? shape : set1(1.0), more = small ? v + 1.0 : v;
    const VD u = small ? load(second[1]) : load(second[0]), angle = small ? load(first[1]) : load(first[0]);
    const VD share = small ? load(second[2]) : load(second[1]);
    const VD d = more - 1.0 / 3, c = 1.0 / square_root(9.0 * d);
    const VD x = square_root(-2.0 * log_of(u)) * double_sine<1>(angle * 6.283185307179586);
    const VD t = fma(c, x, set1(1.0)), cube = t * t * t, square = x * x;
    auto taken = share < 1.0 - 0.0331 * square * square;
    if (any_lane(~taken))
      taken = taken | (log_of(share) < 0.5 * square + d * (1.0 - cube + log_of(t > 0.0 ? cube : set1(1.0))));
    taken = taken & (t > 0.0) & easy;
    VD result = d * cube;
    if (any_lane(small)) result = small ? result * exp(log_of(load(second[0])) / v) : result;
    store_upto(y + i, taken ? result : set1(-1.0), k);
  }
#else
  (void)a, (void)blocks;
  std::fill_n(y, n, -1.0);
#endif
}
#if STRATA_VEC_LEVEL >= 1
// Calls f(chosen elements, their streams' first blocks, how many) for lanes of those of n elements that choose() takes.
template <class Choose, class F>
STRATA_INLINE void for_chosen(uint64_t counter, int64_t n, const Choose& choose, const F& f) {
  constexpr int kCount = kLanes<double>;
  int64_t at[kCount] = {};
  int found = 0;
  const auto run = [&] {
    for (int j = found; j < kCount; ++j) at[j] = at[0];  // what fills the lanes is done twice
    VLU block;
    for (int j = 0; j < kCount; ++j) block[j] = counter + static_cast<uint64_t>(at[j]) * sampler::kBlocks;
    f(at, block);
    found = 0;
  };
  for (int64_t i = 0; i < n; ++i) {
    if (!choose(i)) continue;
    at[found++] = i;
    if (found == kCount) run();
  }
  if (found > 0) run();
}
STRATA_INLINE void store_at(const int64_t* at, VD v, double* y) {
  for (int j = 0; j < kLanes<double>; ++j) y[at[j]] = v[j];
}
#endif
// sampler::poisson() of n elements, whose streams begin at counter and sampler::kBlocks apart; of rates from 10 on the
// first proposal, where it is taken and not close. Other elements are -1.
static void poissons_of(const double* rates, uint64_t seed, uint64_t counter, double* y, int64_t n) {
  std::fill_n(y, n, -1.0);
#if STRATA_VEC_LEVEL >= 1
  constexpr int kCount = kLanes<double>;
  const auto few = [&](int64_t i) { return rates[i] >= 0 && sampler::PoissonProducts<double>::takes(rates[i]); };
  for_chosen(counter, n, few, [&](const int64_t* at, VLU block) {
    VD limit, product = set1(1.0), count = VD{};
    for (int j = 0; j < kCount; ++j) limit[j] = std::exp(-rates[at[j]]);
    VL going = ~VL{};
    for (int round = 0; round < sampler::PoissonProducts<double>::kMost && any_lane(going); ++round) {
      VD first, second;
      split_lanes(seed, block + static_cast<uint64_t>(round), first, second);
      product = product * second;
      going = going & (product > limit);
      count = going ? count + 1.0 : count;
    }
    store_at(at, count, y);
  });
  const auto many = [&](int64_t i) { return rates[i] >= 10 && rates[i] < 1e6; };
  for_chosen(counter, n, many, [&](const int64_t* at, VLU block) {
    VD rate, first, v;
    for (int j = 0; j < kCount; ++j) rate[j] = rates[at[j]];
    split_lanes(seed, block, first, v);
    const VD b = 0.931 + 2.53 * square_root(rate), a = -0.059 + 0.02483 * b;
    const VD u = first - 0.5, us = 0.5 - absolute(u), x = (2.0 * a / us + b) * u + rate + 0.43;
    VD k;
    for (int j = 0; j < kCount; ++j) k[j] = std::floor(x[j]);
    const auto sure = (us >= 0.07) & (v <= 0.9277 - 3.6224 / (b - 2.0) - 1e-9);
    // As PoissonRejection::settle(), log(k!) by Stirling's series from 3 on.
    const auto fits = (k >= 3.0) & (us >= 0.013);
    const VD safe = fits ? k : set1(3.0), m = safe + 1.0, r = 1.0 / (m * m);
    const VD side = fits ? us : set1(0.5);
    const VD left = log_of(v * (1.1239 + 1.1328 / (b - 3.4)) / (a / (side * side) + b));
    const VD log_m = log_of(m), terms = safe * log_of(rate) - rate;
    const VD factorial = (m - 0.5) * log_m - m + 0.91893853320467274178 +
                         (1.0 / 12 - (1.0 / 360 - (1.0 / 1260 - r / 1680.0) * r) * r) / m;
    const VD room = 1e-6 + 1e-12 * (absolute(terms) + absolute(factorial));
    // Where the floor would change with a rounding of x the element is left, too.
    const auto plain = absolute(x - k - 0.5) < 0.5 - 1e-9 * (absolute(x) + 1.0);
    store_at(at, (plain & (sure | (fits & (left + room <= terms - factorial)))) ? k : set1(-1.0), y);
  });
#else
  (void)rates, (void)seed, (void)counter;
#endif
}
// sampler::binomial() likewise, of few expected successes; other elements are -1.
static void binomials_of(const double* trials, const double* p, uint64_t seed, uint64_t counter, double* y, int64_t n) {
  std::fill_n(y, n, -1.0);
#if STRATA_VEC_LEVEL >= 1
  constexpr int kCount = kLanes<double>;
  const auto few = [&](int64_t i) {
    const double q = p[i] > 0.5 ? 1 - p[i] : p[i];
    return trials[i] >= 1 && trials[i] <= 9007199254740992.0 && p[i] <= 1 && q > 1e-300 &&
           std::floor(trials[i]) * q < 10;
  };
  for_chosen(counter, n, few, [&](const int64_t* at, VLU block) {
    VD count, rate, sum = VD{}, found = VD{};
    for (int j = 0; j < kCount; ++j) {
      const double share = p[at[j]];
      count[j] = std::floor(trials[at[j]]);
      rate[j] = std::log1p(-(share > 0.5 ? 1 - share : share));
    }
    VL going = ~VL{};
    for (int round = 0; round < 2 * sampler::kRounds && any_lane(going); ++round) {
      VD first, second;
      split_lanes(seed, block + static_cast<uint64_t>(round), first, second);
      const VD waited = log_of(second) / rate;
      VD whole = set1(0x1p52) + waited;  // floor() of what is not negative
      whole = whole - 0x1p52;
      whole = whole > waited ? whole - 1.0 : whole;
      whole = waited < 0x1p51 ? whole : waited;
      sum = sum + whole + 1.0;
      going = going & (sum <= count);
      found = going ? found + 1.0 : found;
    }
    for (int j = 0; j < kCount; ++j) y[at[j]] = p[at[j]] > 0.5 ? count[j] - found[j] : found[j];
  });
#else
  (void)trials, (void)p, (void)seed, (void)counter;
#endif
}
static void gamma_slopes_of(const double* a, const double* x, double* y, int64_t n) {
#if STRATA_VEC_LEVEL >= 1
  for_vectors<double>(n, [&](int64_t i, int64_t k) {
    store_upto(y + i, gamma_slopes(load_upto(a + i, k, 1.0), load_upto(x + i, k, 1.0)), k);
  });
#else
  for (int64_t i = 0; i < n; ++i) y[i] = sampler::gamma_slope(a[i], x[i]);
#endif
}

}  // namespace strata::STRATA_VEC_NS
