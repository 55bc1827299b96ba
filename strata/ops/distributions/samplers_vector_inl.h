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

// The numbers of the blocks counter, counter + step, ... of a seed: those of block i in out[4 i] on.
static void draw_apart(uint64_t seed, uint64_t counter, uint64_t step, int64_t blocks, uint32_t* out) {
  int64_t b = 0;
#if STRATA_VEC_LEVEL >= 1
  constexpr int kCount = kLanes<double>;
  VLU lane;
  for (int i = 0; i < kCount; ++i) lane[i] = static_cast<uint64_t>(i) * step;
  for (; b + kCount <= blocks; b += kCount) {
    // Of each lane the low half counts; what stands above it is not looked at.
    const VLU c = lane + (counter + static_cast<uint64_t>(b) * step);
    VLU c0 = c, c1 = c >> 32, c2 = VLU{}, c3 = VLU{};
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
