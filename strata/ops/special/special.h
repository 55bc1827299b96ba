#pragma once
// Special functions, by PyTorch's names (torch.special). They are computed in double and rounded once to the
// argument's dtype; integers and bool become default_dtype(). Two tensors broadcast and promote. Every argument takes a
// bounded time. Poles, infinities and NaN give what PyTorch gives, unless a function says otherwise.

#include <optional>

#include "strata/core/tensor.h"

namespace strata {

/// @name Gamma and zeta
/// @{
Tensor lgamma(const Tensor& x);   ///< log |Gamma(x)|; infinite at 0 and the negative integers
Tensor digamma(const Tensor& x);  ///< the derivative of lgamma; NaN at the negative integers, -inf at 0, inf at -0
/// The n-th derivative of digamma. Throws ValueError for a negative n.
Tensor polygamma(int64_t n, const Tensor& x);
/// The logarithm of the gamma function of p dimensions. Throws ValueError unless 1 <= p <= 1024.
Tensor mvlgamma(const Tensor& x, int64_t p);
/// Hurwitz's zeta: the sum of (q + k)^-x over k >= 0. Infinite at x = 1 and where q is 0 or a negative integer; NaN for
/// x < 1, and for other negative q unless x is whole.
Tensor zeta(const Tensor& x, const Tensor& q);
/// The regularised lower incomplete gamma function P(a, x). NaN for negative arguments. Its gradient is that in x;
/// AutogradError where a wants one, as in PyTorch.
Tensor igamma(const Tensor& a, const Tensor& x);
Tensor igammac(const Tensor& a, const Tensor& x);  ///< 1 - igamma(a, x), the upper function
/// @}

/// @name Error functions and the normal distribution
/// @{
Tensor erfinv(const Tensor& x);    ///< the inverse of erf; infinite at -1 and 1, NaN beyond
Tensor erfcx(const Tensor& x);     ///< exp(x^2) erfc(x)
Tensor ndtr(const Tensor& x);      ///< the share of a standard normal distribution below x
Tensor ndtri(const Tensor& x);     ///< the inverse of ndtr; infinite at 0 and 1, NaN beyond
Tensor log_ndtr(const Tensor& x);  ///< log ndtr(x), also where ndtr underflows
/// @}

/// @name Logarithms and the like
/// @{
Tensor entr(const Tensor& x);  ///< -x log x; 0 at 0, -inf below
/// log(x / (1 - x)), x limited to [eps, 1 - eps] where eps is given; NaN outside [0, 1] without it.
Tensor logit(const Tensor& x, std::optional<double> eps = {});
Tensor sinc(const Tensor& x);  ///< sin(pi x) / (pi x); 1 at 0
/// a * log1p(b); 0 where a is 0 (NaN where b is NaN).
Tensor xlog1py(const Tensor& a, const Tensor& b);
/// @}

/// @name Bessel and Airy functions
/// The rules of i0, i1, their scaled forms, bessel_j0 and bessel_j1 may be differentiated up to 16 times.
/// @{
Tensor i0(const Tensor& x);                         ///< the modified function of the first kind, order 0
Tensor i0e(const Tensor& x);                        ///< exp(-|x|) i0(x)
Tensor i1(const Tensor& x);                         ///< order 1
Tensor i1e(const Tensor& x);                        ///< exp(-|x|) i1(x)
Tensor bessel_j0(const Tensor& x);                  ///< the first kind, order 0
Tensor bessel_j1(const Tensor& x);                  ///< the first kind, order 1
Tensor bessel_y0(const Tensor& x);                  ///< the second kind, order 0; -inf at 0, NaN below
Tensor bessel_y1(const Tensor& x);                  ///< the second kind, order 1; -inf at 0, NaN below
Tensor modified_bessel_i0(const Tensor& x);         ///< i0 by its other name
Tensor modified_bessel_i1(const Tensor& x);         ///< i1 by its other name
Tensor modified_bessel_k0(const Tensor& x);         ///< the modified function of the second kind; inf at 0, NaN below
Tensor modified_bessel_k1(const Tensor& x);         ///< order 1; inf at 0, NaN below
Tensor scaled_modified_bessel_k0(const Tensor& x);  ///< exp(x) modified_bessel_k0(x)
Tensor scaled_modified_bessel_k1(const Tensor& x);  ///< exp(x) modified_bessel_k1(x)
Tensor spherical_bessel_j0(const Tensor& x);        ///< sin(x) / x; 1 at 0
Tensor airy_ai(const Tensor& x);                    ///< Airy's Ai
/// @}

/// @name Orthogonal polynomials of order n
/// The fraction of n is dropped; a negative order gives 0. The gradient in x may be taken up to 7 times; n has none.
/// Hermite's and Laguerre's polynomials and derivatives are NaN for n above 100000, and where the recurrence overflows.
/// @{
Tensor chebyshev_polynomial_t(const Tensor& x, const Tensor& n);          ///< first kind: cos(n acos x)
Tensor chebyshev_polynomial_u(const Tensor& x, const Tensor& n);          ///< second kind
Tensor chebyshev_polynomial_v(const Tensor& x, const Tensor& n);          ///< third kind
Tensor chebyshev_polynomial_w(const Tensor& x, const Tensor& n);          ///< fourth kind
Tensor shifted_chebyshev_polynomial_t(const Tensor& x, const Tensor& n);  ///< of 2 x - 1
Tensor shifted_chebyshev_polynomial_u(const Tensor& x, const Tensor& n);  ///< of 2 x - 1
Tensor shifted_chebyshev_polynomial_v(const Tensor& x, const Tensor& n);  ///< of 2 x - 1
Tensor shifted_chebyshev_polynomial_w(const Tensor& x, const Tensor& n);  ///< of 2 x - 1
Tensor hermite_polynomial_h(const Tensor& x, const Tensor& n);            ///< the physicists': H_1 = 2 x
Tensor hermite_polynomial_he(const Tensor& x, const Tensor& n);           ///< the probabilists': He_1 = x
Tensor laguerre_polynomial_l(const Tensor& x, const Tensor& n);           ///< L_1 = 1 - x
Tensor legendre_polynomial_p(const Tensor& x, const Tensor& n);           ///< P_1 = x
/// @}

}  // namespace strata
