#pragma once
// Normal numbers by Box and Muller's transform, with the same bits on every device: logarithm, sine and cosine are
// written here, in operations that IEEE 754 rounds one way only. A library's logf differs from the next one's in the
// last bit, and weights that were drawn on a card would not be those drawn on the host. Without branches, so that
// loops over it are vectorised. Templates, so that they compile for CUDA devices, as inverse_normal() in
// random_kernels.h.

#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <numbers>
#include <type_traits>

namespace strata::box_muller {

/// a * b + c, rounded twice: a fused operation would give other bits.
template <std::floating_point R>
constexpr R mul_add(R a, R b, R c) {
#ifdef __CUDA_ARCH__
  if constexpr (std::is_same_v<R, float>) {
    return __fadd_rn(__fmul_rn(a, b), c);
  } else {
    return __dadd_rn(__dmul_rn(a, b), c);
  }
#else
  return a * b + c;
#endif
}

namespace detail {
template <class R>
struct Bits {  // of f32
  using Int = int32_t;
  static constexpr int kMantissa = 23, kLog = 5, kSin = 4, kCos = 5;
};
template <>
struct Bits<double> {
  using Int = int64_t;
  static constexpr int kMantissa = 52, kLog = 11, kSin = 8, kCos = 9;  // terms of the series below
};
/// 1 / n!
template <class R>
constexpr R one_over_factorial(int n) {
  double f = 1;
  for (int i = 2; i <= n; ++i) f *= i;
  return static_cast<R>(1 / f);
}
/// 2 / (2 k + 3), k-th coefficient of (2 artanh(s) - 2 s) / s^3 in s^2.
template <class R>
constexpr R artanh_term(int k) {
  return static_cast<R>(2.0 / (2 * k + 3));
}
/// (-1)^(k+1) / (2 k + 3)!: (sin(a) - a) / a^3 in a^2; (-1)^(k+1) / (2 k + 2)!: (cos(a) - 1) / a^2.
template <class R>
constexpr R sin_term(int k) {
  return (k % 2 == 0 ? -1 : 1) * one_over_factorial<R>(2 * k + 3);
}
template <class R>
constexpr R cos_term(int k) {
  return (k % 2 == 0 ? -1 : 1) * one_over_factorial<R>(2 * k + 2);
}
/// Horner's rule over the terms k, ..., Terms - 1, whose values are constants of the program.
template <auto Term, int Terms, int K = 0, class R>
constexpr R series(R x) {
  constexpr R term = Term(K);
  if constexpr (K + 1 == Terms) {
    return term;
  } else {
    return mul_add(series<Term, Terms, K + 1>(x), x, term);
  }
}
}  // namespace detail

/// log(u) for a normal u > 0: u = 2^e m with m in [sqrt(1/2), sqrt(2)), log(m) = 2 artanh((m - 1) / (m + 1)).
template <std::floating_point R>
constexpr R log_of(R u) {
  using B = detail::Bits<R>;
  using Int = typename B::Int;
  constexpr Int root_half = std::bit_cast<Int>(std::numbers::sqrt2_v<R> / 2);
  const Int bits = std::bit_cast<Int>(u);
  const Int e = (bits - root_half) >> B::kMantissa;
  const R m = std::bit_cast<R>(bits - e * (Int{1} << B::kMantissa));
  const R f = m - 1, s = f / (f + 2), z = s * s;
  const R tail = detail::series<detail::artanh_term<R>, B::kLog>(z);
  return mul_add(static_cast<R>(e), std::numbers::ln2_v<R>, mul_add(s * z, tail, s + s));
}

/// cos(2 pi v) and sin(2 pi v) for v in [0, 1): the nearest quarter turn is taken off, which is exact.
template <std::floating_point R>
constexpr void turn(R v, R& cos_v, R& sin_v) {
  using B = detail::Bits<R>;
  const R t = 4 * v;
  const int q = static_cast<int>(t + R{0.5});
  const R a = (t - static_cast<R>(q)) * (std::numbers::pi_v<R> / 2), z = a * a;
  const R s = mul_add(a * z, detail::series<detail::sin_term<R>, B::kSin>(z), a);
  const R c = mul_add(z, detail::series<detail::cos_term<R>, B::kCos>(z), R{1});
  const R x = (q & 1) != 0 ? s : c, y = (q & 1) != 0 ? c : s;
  cos_v = ((q + 1) & 2) != 0 ? -x : x;
  sin_v = (q & 2) != 0 ? -y : y;
}

/// Two normal numbers of uniform u in (0, 1] and v in [0, 1).
template <std::floating_point R>
constexpr void pair(R u, R v, R mean, R std, R& first, R& second) {
  R c{}, s{};
  turn(v, c, s);
  const R r = std * std::sqrt(R{-2} * log_of(u));
  first = mul_add(r, c, mean);
  second = mul_add(r, s, mean);
}

}  // namespace strata::box_muller
