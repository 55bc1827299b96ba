// The special functions as rows of map() (elementwise/functions_inl.h): computed in double, whatever the dtype, but on
// a card f32 in f32 where that is good to a few units in the last place: a function in double is some hundred
// instructions there, of which a multiprocessor does half as many at a time.

#include "strata/ops/elementwise/kernels.h"
#include "strata/ops/special/polynomials_inl.h"
#include "strata/ops/special/special_inl.h"

#ifdef __CUDACC__
#define STRATA_DEVICE __device__
#else
#define STRATA_DEVICE
#endif

namespace strata {
namespace {

#define STRATA_SPECIAL_ROW(name, f) \
  r.floats<1>(Map::name, [] STRATA_DEVICE(auto x) { return static_cast<decltype(x)>(f(static_cast<double>(x))); })
#ifdef __CUDACC__
#define STRATA_SPECIAL_SINGLE(name, f, single)      \
  r.floats<1>(Map::name, [] STRATA_DEVICE(auto x) { \
    if constexpr (sizeof x == 4)                    \
      return single(x);                             \
    else                                            \
      return static_cast<decltype(x)>(f(x));        \
  })
#else
#define STRATA_SPECIAL_SINGLE(name, f, single) STRATA_SPECIAL_ROW(name, f)
#endif
// With the order of the function in c.a.
#define STRATA_SPECIAL_ORDER(name, f)                                                  \
  r.floats<1>(Map::name, [] STRATA_DEVICE(auto x, const auto& c) {                     \
    return static_cast<decltype(x)>(f(static_cast<int>(c.a), static_cast<double>(x))); \
  })

void special_rows(Rows& r) {
  STRATA_SPECIAL_ROW(lgamma, log_gamma);
  STRATA_SPECIAL_ROW(digamma, digamma_of);
  STRATA_SPECIAL_SINGLE(erfinv, erfinv_of, erfinvf);
  STRATA_SPECIAL_ROW(erfcx, erfcx_of);
  STRATA_SPECIAL_ROW(ndtr, ndtr_of);
  STRATA_SPECIAL_SINGLE(ndtri, ndtri_of, normcdfinvf);
  STRATA_SPECIAL_ROW(log_ndtr, log_ndtr_of);
  STRATA_SPECIAL_ROW(entr, entr_of);
  STRATA_SPECIAL_SINGLE(sinc, sinc_of, sinc_single);
  STRATA_SPECIAL_ORDER(bessel_j, bessel_j);
  STRATA_SPECIAL_ORDER(bessel_y, bessel_y);
  STRATA_SPECIAL_ORDER(spherical_bessel_j, spherical_bessel_j);
  // c.b: scaled by exp(-|x|), or exp(x).
  r.floats<1>(Map::bessel_i, [] STRATA_DEVICE(auto x, const auto& c) {
    const int n = static_cast<int>(c.a);
    return static_cast<decltype(x)>(c.b != 0 ? scaled_bessel_i(n, x) : bessel_i(n, x));
  });
  r.floats<1>(Map::bessel_k, [] STRATA_DEVICE(auto x, const auto& c) {
    const double scaled = scaled_bessel_k(static_cast<int>(c.a), x);
    return static_cast<decltype(x)>(c.b != 0 || scaled == kInf ? scaled : scaled * std::exp(-static_cast<double>(x)));
  });
  // c.a: whether the derivative is wanted.
  r.floats<1>(Map::airy,
              [] STRATA_DEVICE(auto x, const auto& c) { return static_cast<decltype(x)>(airy(x, c.a != 0)); });
  // c.a: the order; c.b: (-1)^(order + 1), which a large order in f32 would lose.
  r.floats<1>(Map::polygamma,
              [] STRATA_DEVICE(auto x, const auto& c) { return static_cast<decltype(x)>(polygamma_of(c.a, c.b, x)); });
  // c.a and 1 - c.a: what x is limited to.
  r.floats<1>(Map::logit, [] STRATA_DEVICE(auto x, const auto& c) {
    const double eps = c.a, v = x;
    return static_cast<decltype(x)>(logit_of(eps < 0 ? v : v < eps ? eps : v > 1 - eps ? 1 - eps : v));
  });
  r.floats<2>(Map::zeta, [] STRATA_DEVICE(auto s, auto q) { return static_cast<decltype(s)>(zeta_of(s, q)); });
  // c.a: whether the upper function is wanted.
  r.floats<2>(Map::igamma, [] STRATA_DEVICE(auto a, auto x, const auto& c) {
    return static_cast<decltype(a)>(incomplete_gamma(a, x, c.a != 0));
  });
  // c.a: which family; c.b: which derivative.
  r.floats<2>(Map::polynomial, [] STRATA_DEVICE(auto x, auto n, const auto& c) {
    return static_cast<decltype(x)>(orthogonal_polynomial(static_cast<int>(c.a), static_cast<int>(c.b), x, n));
  });
}

}  // namespace
}  // namespace strata

#undef STRATA_SPECIAL_ROW
#undef STRATA_SPECIAL_SINGLE
#undef STRATA_SPECIAL_ORDER
#undef STRATA_DEVICE
