// Vectorised kernels of the special functions in f32 and f64, for one processor level; the lowest, which has no fused
// multiply-add, leaves them to the plain loops. No include guard: see strata/ops/vec/levels_inl.h.

#include "strata/ops/vec/functions_inl.h"
//
#include "strata/ops/elementwise/vec_map_inl.h"
#if STRATA_VEC_LEVEL >= 1
#include "strata/ops/elementwise/double_functions_inl.h"
//
#include "strata/ops/special/fits_inl.h"
//
#include "strata/ops/special/special_vector_inl.h"
//
#include "strata/ops/special/sums_vector_inl.h"
//
#include "strata/ops/special/bessel_vector_inl.h"
#endif

namespace strata::STRATA_VEC_NS {

// f of doubles for vectors of floats, rounded once.
template <class F>
struct Widened {
  template <class... X>
  STRATA_INLINE VF of(const VecConstants& c, X... x) {
    const DoubleConstants constants(c.a[0], c.b[0], c.c[0]);
    const F f{};
    return in_double([&](auto... v) { return vec_call(f, constants, v...); }, x...);
  }
  VF operator()(VF x, const VecConstants& c) const { return of(c, x); }
  VF operator()(VF x, VF y, const VecConstants& c) const { return of(c, x, y); }
};

struct SpecialTable {
  DenseMap f32[static_cast<size_t>(Map::count)] = {}, f64[static_cast<size_t>(Map::count)] = {};
  template <int N, class F>
  void single(Map m, F) {
    f32[static_cast<size_t>(m)] = vec_map<Widened<F>, N, float>;
  }
  template <int N, class F>
  void wide(Map m, F) {
    f64[static_cast<size_t>(m)] = vec_map<F, N, double>;
  }
  template <int N, class F>
  void row(Map m, F f) {
    single<N>(m, f);
    wide<N>(m, f);
  }
};

#if STRATA_VEC_LEVEL >= 1
static void special_vector_rows(SpecialTable& t) {
  using C = const DoubleConstants&;
  t.row<1>(Map::lgamma, [](VD x) { return log_gamma_vector(x); });
  t.row<1>(Map::digamma, [](VD x) { return digamma_vector(x); });
  t.row<1>(Map::erfcx, [](VD x) { return erfcx_vector(x); });
  t.row<1>(Map::log_ndtr, [](VD x) { return log_normal_below(x); });
  t.wide<1>(Map::erfinv, [](VD x) { return erfinv_vector(x); });
  t.single<1>(Map::erfinv, [](VD x) { return erfinv_for_f32(x); });
  t.wide<1>(Map::ndtri, [](VD x) { return normal_quantile(x); });
  t.single<1>(Map::ndtri, [](VD x) { return normal_quantile_for_f32(x); });
  t.row<1>(Map::sinc, [](VD x) { return sinc_vector(x); });
  t.row<1>(Map::polygamma, [](VD x, C c) { return polygamma_vector(x, c.a[0], c.b[0]); });
  t.row<1>(Map::airy, [](VD x, C c) { return airy_vector(x, c.a[0] != 0); });
  t.row<2>(Map::polynomial,
           [](VD x, VD n, C c) { return polynomial_vector(static_cast<int>(c.a[0]), static_cast<int>(c.b[0]), x, n); });
  t.row<2>(Map::zeta, [](VD s, VD q) { return zeta_vector<true>(s, q); });
  t.row<2>(Map::igamma, [](VD a, VD x, C c) { return incomplete_gamma_vector<true>(a, x, c.a[0] != 0); });
  t.wide<1>(Map::bessel_j, [](VD x, C c) { return bessel_vector<false>(x, c.a[0]); });
  t.wide<1>(Map::bessel_y, [](VD x, C c) { return bessel_vector<true>(x, c.a[0]); });
  t.wide<1>(Map::bessel_i, [](VD x, C c) { return bessel_i_vector(x, c.a[0], c.b[0] != 0); });
  t.wide<1>(Map::bessel_k, [](VD x, C c) { return bessel_k_vector(x, c.a[0], c.b[0] != 0); });
  t.wide<1>(Map::spherical_bessel_j, [](VD x, C c) { return spherical_bessel_vector(x, c.a[0]); });
  // Fewer terms.
  t.single<2>(Map::zeta, [](VD s, VD q) { return zeta_vector<false>(s, q); });
  t.single<2>(Map::igamma, [](VD a, VD x, C c) { return incomplete_gamma_vector<false>(a, x, c.a[0] != 0); });
}
#endif

static DenseMap special_map_of(Map m, bool wide) {
  static const SpecialTable table = [] {
    SpecialTable t;
#if STRATA_VEC_LEVEL >= 1
    special_vector_rows(t);
#endif
    return t;
  }();
  return (wide ? table.f64 : table.f32)[static_cast<size_t>(m)];
}

}  // namespace strata::STRATA_VEC_NS
