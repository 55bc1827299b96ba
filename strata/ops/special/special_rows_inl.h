// The special functions as rows of map() (elementwise/functions_inl.h): computed in double, whatever the dtype, but on
// a card f32, bf16 and f16 in f32 where that is good to a few units in the last place (special_card_inl.h).

#include "strata/ops/elementwise/kernels.h"
#include "strata/ops/special/polynomials_inl.h"
#include "strata/ops/special/special_inl.h"
#ifdef __CUDACC__
#include "strata/ops/special/special_card_inl.h"
#endif

#ifdef __CUDACC__
#define STRATA_DEVICE __device__
#else
#define STRATA_DEVICE
#endif

namespace strata {
namespace {

// `f` of doubles; on a card `on_card` of the type that the dtype computes in.
#ifdef __CUDACC__
#define STRATA_SPECIAL_ROW(name, f, on_card) r.floats<1>(Map::name, [] __device__(auto x) { return on_card(x); })
#else
#define STRATA_SPECIAL_ROW(name, f, on_card) \
  r.floats<1>(Map::name, [](auto x) { return static_cast<decltype(x)>(f(static_cast<double>(x))); })
#endif
// With the order of the function in c.a.
#define STRATA_SPECIAL_ORDER(name, f)                                                  \
  r.floats<1>(Map::name, [] STRATA_DEVICE(auto x, const auto& c) {                     \
    return static_cast<decltype(x)>(f(static_cast<int>(c.a), static_cast<double>(x))); \
  })

#ifdef __CUDACC__
struct CardPolynomial {
  template <class X, class N, class K>
  __device__ X operator()(X x, N n, const K& c) const {
    return card_polynomial(static_cast<int>(c.a), static_cast<int>(c.b), x, static_cast<X>(n));
  }
};
#endif

void special_rows(Rows& r) {
  STRATA_SPECIAL_ROW(lgamma, log_gamma, ::lgamma);
  STRATA_SPECIAL_ROW(digamma, digamma_of, card_digamma);
  STRATA_SPECIAL_ROW(erfinv, erfinv_of, ::erfinv);
  STRATA_SPECIAL_ROW(erfcx, erfcx_of, ::erfcx);
  STRATA_SPECIAL_ROW(ndtr, ndtr_of, ::normcdf);
  STRATA_SPECIAL_ROW(ndtri, ndtri_of, ::normcdfinv);
  STRATA_SPECIAL_ROW(log_ndtr, log_ndtr_of, card_log_ndtr);
  STRATA_SPECIAL_ROW(entr, entr_of, card_entr);
  STRATA_SPECIAL_ROW(sinc, sinc_of, card_sinc);
#ifdef __CUDACC__
  r.floats<1>(Map::bessel_j,
              [] __device__(auto x, const auto& c) { return card_bessel<false>(static_cast<int>(c.a), x); });
  r.floats<1>(Map::bessel_y,
              [] __device__(auto x, const auto& c) { return card_bessel<true>(static_cast<int>(c.a), x); });
  r.floats<1>(Map::spherical_bessel_j,
              [] __device__(auto x, const auto& c) { return card_spherical_j(static_cast<int>(c.a), x); });
  r.floats<1>(Map::bessel_i,
              [] __device__(auto x, const auto& c) { return card_bessel_i(static_cast<int>(c.a), x, c.b != 0); });
  r.floats<1>(Map::bessel_k,
              [] __device__(auto x, const auto& c) { return card_bessel_k(static_cast<int>(c.a), x, c.b != 0); });
  r.floats<1>(Map::airy, [] __device__(auto x, const auto& c) { return card_airy(x, c.a != 0); });
  r.floats<1>(Map::polygamma, [] __device__(auto x, const auto& c) { return card_polygamma(c.a, c.b, x); });
  r.floats<1>(Map::logit, [] __device__(auto x, const auto& c) { return card_logit(x, c.a); });
  r.floats<2>(Map::zeta, [] __device__(auto s, auto q) {
    if constexpr (sizeof s == 4)
      return card_zeta(s, q);
    else
      return zeta_of(s, q);
  });
  r.floats<2>(Map::polynomial, CardPolynomial());
  r.floats<2>(Map::igamma,
              [] __device__(auto a, auto x, const auto& c) { return card_incomplete_gamma(a, x, c.a != 0); });
#else
  STRATA_SPECIAL_ORDER(bessel_j, bessel_j);
  STRATA_SPECIAL_ORDER(bessel_y, bessel_y);
  STRATA_SPECIAL_ORDER(spherical_bessel_j, spherical_bessel_j);
  // c.b: scaled by exp(-|x|), or exp(x).
  r.floats<1>(Map::bessel_i, [](auto x, const auto& c) {
    const int n = static_cast<int>(c.a);
    return static_cast<decltype(x)>(c.b != 0 ? scaled_bessel_i(n, x) : bessel_i(n, x));
  });
  r.floats<1>(Map::bessel_k, [](auto x, const auto& c) {
    const double scaled = scaled_bessel_k(static_cast<int>(c.a), x);
    return static_cast<decltype(x)>(c.b != 0 || scaled == kInf ? scaled : scaled * std::exp(-static_cast<double>(x)));
  });
  // c.a: whether the derivative is wanted.
  r.floats<1>(Map::airy, [](auto x, const auto& c) { return static_cast<decltype(x)>(airy(x, c.a != 0)); });
  // c.a: the order; c.b: (-1)^(order + 1), which a large order in f32 would lose.
  r.floats<1>(Map::polygamma,
              [](auto x, const auto& c) { return static_cast<decltype(x)>(polygamma_of(c.a, c.b, x)); });
  // c.a and 1 - c.a: what x is limited to.
  r.floats<1>(Map::logit, [](auto x, const auto& c) {
    const double eps = c.a, v = x;
    return static_cast<decltype(x)>(logit_of(eps < 0 ? v : v < eps ? eps : v > 1 - eps ? 1 - eps : v));
  });
  r.floats<2>(Map::zeta, [](auto s, auto q) { return static_cast<decltype(s)>(zeta_of(s, q)); });
  // c.a: which family; c.b: which derivative.
  r.floats<2>(Map::polynomial, [](auto x, auto n, const auto& c) {
    return static_cast<decltype(x)>(orthogonal_polynomial(static_cast<int>(c.a), static_cast<int>(c.b), x, n));
  });
  // c.a: whether the upper function is wanted.
  r.floats<2>(Map::igamma,
              [](auto a, auto x, const auto& c) { return static_cast<decltype(a)>(incomplete_gamma(a, x, c.a != 0)); });
#endif
}

}  // namespace
}  // namespace strata

#undef STRATA_SPECIAL_ROW
#undef STRATA_SPECIAL_ORDER
#undef STRATA_DEVICE
