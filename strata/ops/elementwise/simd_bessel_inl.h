// Bessel functions of orders 0 to 2 on f32 vectors, for one processor level: computed in double, where a polynomial
// fits each side of |x| = 8, and rounded once. simd_inl.h includes this. Coefficients are of interpolations at
// Chebyshev nodes, the highest power first; absolute errors stand beside them.

#include "strata/ops/elementwise/bessel_fits_inl.h"

namespace strata::STRATA_VEC_NS {

constexpr double kTwoByPi = 0.63661977236758134;

struct Turn {
  VD sin, cos;
};
// For 0 <= x <= 1e6: 2e-11
STRATA_INLINE Turn turn_of(VD x) {
  const VD t = x * kTwoByPi + kToInteger, n = t - kToInteger;
  VD r = fma(n, set1(-1.5707963267948966), x);
  r = fma(n, set1(-6.123233995736766e-17), r);
  const VD z = r * r;
  const VD sin_r = fma(r * z, polynomial(z, TurnFit::sine), r), cos_r = polynomial(z, TurnFit::cosine);
  const VLU q = bits<VLU>(t);
  const auto odd = (q & 1) != 0;
  const VD sine = odd ? cos_r : sin_r, cosine = odd ? sin_r : cos_r;
  return {bits<VD>(bits<VLU>(sine) ^ ((q & 2) << 62)), bits<VD>(bits<VLU>(cosine) ^ (((q + 1) & 2) << 62))};
}

// J, or Y of the second kind, of a >= 0.
template <int kOrder, bool kSecond>
STRATA_INLINE VD bessel_in_double(VD a) {
  using Fit = BesselFit<kOrder>;
  const VD t = fma(a * a, set1(1.0 / 32), set1(-1.0));
  VD small = polynomial(t, Fit::j);
  if constexpr (kSecond) {
    const VD log_half = (log2_in_double(a > 0.0 ? a : set1(1.0)) - 1.0) * kLn2;
    VD y = small * log_half * kTwoByPi + polynomial(t, Fit::y);
    if constexpr (kOrder == 1) y = y * a - kTwoByPi / a;
    small = y;
  } else if constexpr (kOrder == 1) {
    small = small * a;
  }
  const VD w = 8.0 / a, v = fma(w * w, set1(2.0), set1(-1.0));
  const VD p = polynomial(v, Fit::p), q = polynomial(v, Fit::q) * w;
  const Turn turn = turn_of(a);
  // The angle less a quarter of a half turn, or three; both divided by sqrt(1/2).
  const VD c = kOrder == 0 ? turn.cos + turn.sin : turn.sin - turn.cos;
  const VD s = kOrder == 0 ? turn.sin - turn.cos : -(turn.sin + turn.cos);
  const VD size = square_root(0.31830988618379067 / a);
  const VD large = size * (kSecond ? p * s + q * c : p * c - q * s);
  return a < 8.0 ? small : large;
}
// J of order 2: by the recurrence, or near 0, where that would cancel, by its series (DLMF 10.2.2).
STRATA_INLINE VD bessel_j2_in_double(VD a) {
  static constexpr double series[] = {-1.0 / 23040, 1.0 / 384, -1.0 / 12, 1.0};
  const VD z = a * a, small = z * 0.125 * polynomial(z, series);
  const VD y = bessel_in_double<1, false>(a) * (2.0 / a) - bessel_in_double<0, false>(a);
  return a < 0.1 ? small : y;
}
template <int kOrder, bool kSecond>
STRATA_INLINE VF bessel_of(VF x) {
  const VF a = absolute(x);
  VF y = in_double(
      [](VD v) {
        if constexpr (kOrder == 2)
          return bessel_j2_in_double(v);
        else
          return bessel_in_double<kOrder, kSecond>(v);
      },
      a);
  const auto hard = !(a <= 1e6f);
  if (any_lane(hard)) [[unlikely]]
    for (int i = 0; i < kW; ++i) {
      const double v = a[i];
      if (hard[i]) y[i] = static_cast<float>(kSecond ? ::yn(kOrder, v) : ::jn(kOrder, v));
    }
  constexpr float inf = std::numeric_limits<float>::infinity();
  if constexpr (kSecond)
    return x > 0.f ? y : (x == 0.f ? set1(-inf) : set1(std::numeric_limits<float>::quiet_NaN()));
  else
    return kOrder == 1 ? (x < 0.f ? -y : y) : y;
}

// exp(-a) I (of order 1: that / a) in a / 4 - 1 up to 8, 8e-10; sqrt(a) exp(-a) I in 16 / a - 1 beyond, 5e-13.
template <int kOrder>
STRATA_INLINE VD scaled_bessel_i_in_double(VD a) {
  static constexpr double small0[] = {
      0.0003359461388227254, -0.0008508526976662284, 0.0004696248731186064, -0.0007596967284124182,
      0.004062653646672037,  -0.00800984960667441,   0.01166163406360824,   -0.01886512598838978,
      0.03029740853237876,   -0.04331379367909357,   0.05674911084395445,   -0.06946451493109221,
      0.07927874418670428,   -0.08497304959010592,   0.08734321532557372,   -0.08904288918698641,
      0.09451563189402233,   -0.1130043361086427,    0.2070019212239867};
  static constexpr double small1[] = {
      4.598305152779168e-05, -0.0001235527779827754, 0.0001004799214795294, -0.0002031783551235218,
      0.0007994663836924781, -0.001697630371323935,  0.002969059017748294,  -0.00542831465539487,
      0.009598630764419986,  -0.01561382963762449,   0.02368259371734132,   -0.03366142390080357,
      0.04467500363540858,   -0.05528129039883324,   0.06376737911929498,   -0.06848253478920088,
      0.06805760032013919,   -0.06112433922221312,   0.04468770987560883};
  static constexpr double large0[] = {1.438948522067502e-09,  -1.794736986277928e-09, -1.107844914708054e-08,
                                      -3.129235389379339e-09, 2.328204415627863e-08,  4.483006522394567e-08,
                                      8.832709824016947e-08,  2.958822597031155e-07,  1.483890396865963e-06,
                                      1.11432104477177e-05,   0.0001362160729518169,  0.003360551977471066,
                                      0.4021765094450081};
  static constexpr double large1[] = {-1.431223826995075e-09, 2.04073384357194e-09,   1.152074970679174e-08,
                                      2.715623589684366e-09,  -2.532662993501473e-08, -4.889955499438114e-08,
                                      -9.956119860640906e-08, -3.468322137661388e-07, -1.834959589881515e-06,
                                      -1.503873319182206e-05, -0.0002192357621633099, -0.00974957718670756,
                                      0.3893984590258723};
  const VD t = fma(a, set1(0.25), set1(-1.0)), v = 16.0 / a - 1.0;
  VD small, large;
  if constexpr (kOrder == 0)
    small = polynomial(t, small0), large = polynomial(v, large0);
  else
    small = a * polynomial(t, small1), large = polynomial(v, large1);
  return a < 8.0 ? small : large / square_root(a);
}
// Of order 2: by the recurrence, or where that would cancel by its series (DLMF 10.25.2).
STRATA_INLINE VD scaled_bessel_i2_in_double(VD a) {
  static constexpr double series[] = {1.0 / 914457600, 1.0 / 14515200, 1.0 / 302400, 1.0 / 8640,
                                      1.0 / 360,       1.0 / 24,       1.0 / 3,      1.0};
  const VD z = a * a * 0.25, small = z * 0.5 * polynomial(z, series) * exp2_in_double(a * -kLog2OfE);
  const VD y = scaled_bessel_i_in_double<0>(a) - scaled_bessel_i_in_double<1>(a) * (2.0 / a);
  return a < 2.0 ? small : y;
}
template <int kOrder>
STRATA_INLINE VF bessel_i_of(VF x, bool scaled) {
  const VF a = absolute(x);
  VF y = in_double(
      [scaled](VD v) {
        VD e;
        if constexpr (kOrder == 2)
          e = scaled_bessel_i2_in_double(v);
        else
          e = scaled_bessel_i_in_double<kOrder>(v);
        return scaled ? e : e * exp2_in_double(v * kLog2OfE);
      },
      a);
  constexpr float inf = std::numeric_limits<float>::infinity();
  if (!scaled) y = a > 200.f ? set1(inf) : y;
  return kOrder == 1 ? (x < 0.f ? -y : y) : y;
}

// exp(x) K for x > 0, or K. Up to 2 its logarithm (DLMF 10.31.1), with I (of order 1: I / x) and the regular part (of
// order 1: that / x) in x^2 / 2 - 1, 4e-16; sqrt(x) exp(x) K in 4 / x - 1 beyond, 2e-13.
template <int kOrder>
STRATA_INLINE VD bessel_k_in_double(VD x, bool scaled) {
  static constexpr double i0[] = {2.539859795500469e-12, 3.273598657087546e-10, 3.236227356256843e-08,
                                  2.357578961582825e-06, 0.0001198206858163198, 0.003928565105644117,
                                  0.07358986836105336,   0.635861728156068,     1.566082929756351};
  static constexpr double i1[] = {1.403255002995983e-13, 2.031922759155545e-11, 2.29127349069517e-09,
                                  1.941736408515695e-07, 1.178789493946883e-05, 0.0004792827432654976,
                                  0.01178569531691043,   0.1471797367221067,    0.6358617281560686};
  static constexpr double k0[] = {5.452518955297021e-12, 6.623804964397095e-10, 6.093361903313605e-08,
                                  4.054506560573069e-06, 0.0001828055582790983, 0.005053392643212586,
                                  0.07177701034240511,   0.3404973210133794,    -0.3036207729157555};
  static constexpr double k1[] = {-3.089196986292076e-13, -4.235880161698382e-11, -4.473708984959004e-09,
                                  -3.495829764899654e-07, -1.910976234234195e-05, -0.0006724746609661541,
                                  -0.01325464294892061,   -0.1086646214849512,    -0.05745585613520533};
  static constexpr double large0[] = {
      -4.517635015431853e-09, 9.289732192100893e-09, -1.5430897839566e-09,   5.494646332855072e-09,
      -4.682249642595075e-08, 1.138434232893518e-07, -2.661668408798046e-07, 7.373670273615848e-07,
      -2.191901957415165e-06, 7.003672812320202e-06, -2.473511200181041e-05, 9.956036524997731e-05,
      -0.0004797690612242204, 0.003032891819043874,  -0.03107146182485462,   1.218595338513322};
  static constexpr double large1[] = {
      5.080193799995846e-09, -1.050340658266609e-08, 1.992886824430319e-09, -6.858577808388801e-09,
      5.4579705308425e-08,   -1.34232276184177e-07,  3.199262170735581e-07, -9.006471460109734e-07,
      2.730848649660324e-06, -8.962805038959306e-06, 3.284376240304615e-05, -0.0001395900156678506,
      0.0007357241598760003, -0.005566729889887925,  0.1033497377538263,    1.363151890371419};
  const VD t = fma(x * x, set1(0.5), set1(-1.0)), v = 4.0 / x - 1.0;
  const VD log_half = (log2_in_double(x > 0.0 ? x : set1(1.0)) - 1.0) * kLn2;
  VD small, large;
  if constexpr (kOrder == 0)
    small = polynomial(t, k0) - log_half * polynomial(t, i0), large = polynomial(v, large0);
  else
    small = x * (log_half * polynomial(t, i1) + polynomial(t, k1)) + 1.0 / x, large = polynomial(v, large1);
  large = large / square_root(x);
  const VD factor = exp2_in_double(scaled ? x * kLog2OfE : x * -kLog2OfE);
  return x < 2.0 ? (scaled ? small * factor : small) : (scaled ? large : large * factor);
}
template <int kOrder>
STRATA_INLINE VF bessel_k_of(VF x, bool scaled) {
  const VF y = in_double([scaled](VD v) { return bessel_k_in_double<kOrder>(v, scaled); }, x);
  constexpr float inf = std::numeric_limits<float>::infinity();
  const VF whole = x == inf ? VF{} : y;
  return x > 0.f ? whole : (x == 0.f ? set1(inf) : set1(std::numeric_limits<float>::quiet_NaN()));
}

// Orders that have no vector code are computed one by one.
static void vec_by_scalar(Map m, void* y, const void* const* in, int64_t n, const MapParams& params) {
  const DenseMap f = scalar_map(m, DType::f32);
  if (params.step[0] != 0 || n == 0) return f(y, in, n, params);
  f(y, in, 1, params);
  float* const to = static_cast<float*>(y);
  std::fill_n(to + 1, n - 1, to[0]);
}
template <Map kMap, class... F>
static void vec_of_order(void* y, const void* const* in, int64_t n, const MapParams& params) {
  constexpr DenseMap orders[] = {vec_map<F, 1, float>...};
  const int order = params.s[0].to<int>();
  if (order >= static_cast<int>(sizeof...(F))) return vec_by_scalar(kMap, y, in, n, params);
  orders[order](y, in, n, params);
}
template <Map kMap, class Table, class... F>
static void vec_order_row(Table& t, F...) {
  t.map[static_cast<size_t>(kMap)] = vec_of_order<kMap, F...>;
}

// sin(pi x) / (pi x), and sin(x) / x up to 1e6, beyond that one by one.
STRATA_INLINE VF sinc_of(VF x) {
  const VF r = x - 2.f * nearest(x * 0.5f), a = absolute(r), part = a > 0.5f ? 1.f - a : a;
  const VF y =
      in_double([](VD p, VD size) { return turn_of(p * 3.1415926535897932).sin / (size * 3.1415926535897932); }, part,
                absolute(x));
  const VF signed_y = (bits<VI>(r) ^ bits<VI>(x)) < 0 ? -y : y;
  return x == 0.f ? set1(1.f) : signed_y;
}
STRATA_INLINE VF sine_over(VF x) {
  const VF a = absolute(x);
  VF y = in_double([](VD v) { return turn_of(v).sin / v; }, a);
  const auto hard = !(a <= 1e6f);
  if (any_lane(hard)) [[unlikely]]
    for (int i = 0; i < kW; ++i)
      if (hard[i]) y[i] = a[i] > 3.4028234e38f ? 0.f : static_cast<float>(std::sin(static_cast<double>(a[i])) / a[i]);
  return a == 0.f ? set1(1.f) : (x != x ? x : y);
}
// Its derivative with the sign changed, the spherical Bessel function of order 1 (DLMF 10.49.3), where the difference
// cancels by its series (DLMF 10.53.1).
STRATA_INLINE VF spherical_bessel_j1_of(VF x) {
  const VF a = absolute(x);
  VF y = in_double(
      [](VD v) {
        static constexpr double series[] = {1.0 / 93405312000, -1.0 / 518918400, 1.0 / 3991680, -1.0 / 45360,
                                            1.0 / 840,         -1.0 / 30,        1.0 / 3};
        const Turn turn = turn_of(v);
        const VD above = (turn.sin / v - turn.cos) / v;
        return v < 1.0 ? v * polynomial(v * v, series) : above;
      },
      a);
  const auto hard = !(a <= 1e6f);
  if (any_lane(hard)) [[unlikely]]
    for (int i = 0; i < kW; ++i)
      if (hard[i]) {
        const double v = a[i];
        y[i] = a[i] > 3.4028234e38f ? 0.f : static_cast<float>((std::sin(v) / v - std::cos(v)) / v);
      }
  return x != x ? x : (x < 0.f ? -y : y);
}
// The normal distribution up to x: the bell in double, since its exponent's rounding would show in the tail.
STRATA_INLINE VF normal_below(VF x) {
  const VF a = absolute(x);
  const VF bell = in_double([](VD v) { return exp2_in_double(v * v * (-0.5 * kLog2OfE)); }, a);
  const VF tail = bell * erfcx_of(a * 0.70710678118654752f) * 0.5f;
  return x != x ? x : (x < 0.f ? tail : 1.f - tail);
}

template <class Table>
static void vec_bessel_rows(Table& t) {
  using C = const VecConstants&;
  t.template row<1>(Map::sinc, [](VF x) { return sinc_of(x); });
  t.template row<1>(Map::ndtr, [](VF x) { return normal_below(x); });
  // 16 bits show none of the digits for which the bell is taken in double.
  t.template halves<1>(
      Map::ndtr, [](VF x) { return normal(x).cdf; }, [](VF x) { return brief::normal(x).cdf; });
  vec_order_row<Map::spherical_bessel_j>(
      t, [](VF x) { return sine_over(x); }, [](VF x) { return spherical_bessel_j1_of(x); });
  vec_order_row<Map::bessel_j>(
      t, [](VF x) { return bessel_of<0, false>(x); }, [](VF x) { return bessel_of<1, false>(x); },
      [](VF x) { return bessel_of<2, false>(x); });
  vec_order_row<Map::bessel_y>(
      t, [](VF x) { return bessel_of<0, true>(x); }, [](VF x) { return bessel_of<1, true>(x); });
  vec_order_row<Map::bessel_i>(
      t, [](VF x, C c) { return bessel_i_of<0>(x, c.b[0] != 0); },
      [](VF x, C c) { return bessel_i_of<1>(x, c.b[0] != 0); },
      [](VF x, C c) { return bessel_i_of<2>(x, c.b[0] != 0); });
  vec_order_row<Map::bessel_k>(
      t, [](VF x, C c) { return bessel_k_of<0>(x, c.b[0] != 0); },
      [](VF x, C c) { return bessel_k_of<1>(x, c.b[0] != 0); });
}

}  // namespace strata::STRATA_VEC_NS
