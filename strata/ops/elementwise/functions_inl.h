// The functions of map(), one row each: a plain C++ expression, instantiated for the types that it computes in. In f64
// these are the reference for the vectorised kernels. The CPU's table (scalar_cpu.cpp) and the CUDA kernels (map_*.cu)
// come from the same rows.
//
// The includer defines a class Rows with floats<N>(Map, f), ints<N>, bits<N> (ints, of each bit alone), boolean<N>,
// numbers<N> (floats and ints) and everything<N> (numbers and bool), N being the number of operands, and asks for the
// rows it wants with STRATA_MAP_UNARY, STRATA_MAP_ACTIVATION, STRATA_MAP_ARITHMETIC and STRATA_MAP_COMPARISON.
// Functions may take constants last: c.a, c.b, c.c.

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "strata/core/error.h"
#include "strata/ops/elementwise/kernels.h"

#ifdef __CUDACC__
#define STRATA_HD __host__ __device__
#define STRATA_DEVICE __device__
#else
#define STRATA_HD
#define STRATA_DEVICE
#endif

namespace strata {
namespace {

// Integer arithmetic wraps around; unsigned 64-bit arithmetic has the same low bits.
STRATA_HD uint64_t wide(auto v) {
  return static_cast<uint64_t>(v);
}

template <class T>
STRATA_HD void check_divisor(T b, const char* op) {
#ifndef __CUDA_ARCH__  // a kernel cannot throw: what it divides by zero is unspecified
  check(b != 0, op, "integer division by zero");
#endif
}
template <class T>
STRATA_HD bool is_minus_one(T b) {
  return std::is_signed_v<T> && b == static_cast<T>(-1);
}

template <class T>
STRATA_HD T floor_quotient(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    check_divisor(b, "floor_divide");
    if (is_minus_one(b)) return static_cast<T>(0 - wide(a));  // the smallest number has no negative: it wraps
    const T q = static_cast<T>(a / b);
    return static_cast<T>(q - ((a % b != 0) && ((a < 0) != (b < 0))));
  } else {
    // As Python: the quotient of a - fmod(a, b), so that remainder and floor_divide agree.
    if (b == 0) return a / b;
    const T mod = std::fmod(a, b);
    T q = (a - mod) / b;
    if (mod != 0 && (b < 0) != (mod < 0)) q -= 1;
    if (q == 0) return std::copysign(T(0), a / b);
    const T f = std::floor(q);
    return q - f > T(0.5) ? f + 1 : f;
  }
}
template <class T>
STRATA_HD T trunc_quotient(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    check_divisor(b, "trunc_divide");
    if (is_minus_one(b)) return static_cast<T>(0 - wide(a));
    return static_cast<T>(a / b);
  } else {
    return std::trunc(a / b);
  }
}
template <class T>
STRATA_HD T floor_remainder(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    check_divisor(b, "remainder");
    if (is_minus_one(b)) return 0;
    const T r = static_cast<T>(a % b);
    return r != 0 && ((r < 0) != (b < 0)) ? static_cast<T>(r + b) : r;
  } else {
    const T r = std::fmod(a, b);
    return r != 0 && ((r < 0) != (b < 0)) ? r + b : r;
  }
}
template <class T>
STRATA_HD T trunc_remainder(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    check_divisor(b, "fmod");
    if (is_minus_one(b)) return 0;
    return static_cast<T>(a % b);
  } else {
    return std::fmod(a, b);
  }
}
template <class T>
STRATA_HD T power(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    if (b < 0) return a == 1 ? 1 : a == static_cast<T>(-1) ? static_cast<T>(b % 2 ? -1 : 1) : 0;
    uint64_t base = wide(a), result = 1;
    for (uint64_t e = wide(b); e; e >>= 1, base *= base)
      if (e & 1) result *= base;
    return static_cast<T>(result);
  } else {
    return std::pow(a, b);
  }
}
template <class T>
STRATA_HD T larger(T a, T b) {
  if constexpr (std::is_floating_point_v<T>)
    if (a != a) return a;
  return a > b ? a : b;
}
template <class T>
STRATA_HD T smaller(T a, T b) {
  if constexpr (std::is_floating_point_v<T>)
    if (a != a) return a;
  return a < b ? a : b;
}
template <class T>
STRATA_HD T logistic(T x) {
  // Exponentials of negative numbers only: no overflow, and full relative accuracy on both sides.
  const T e = std::exp(-std::abs(x));
  return (x >= 0 ? T(1) : e) / (1 + e);
}
template <class T>
STRATA_HD T soft_plus(T x) {
  return (x > 0 ? x : T(0)) + std::log1p(std::exp(-std::abs(x)));
}
template <class T>
STRATA_HD T normal_cdf(T x) {
  return T(0.5) * std::erfc(-x * T(0.70710678118654752440));
}
template <class T>
STRATA_HD T normal_pdf(T x) {
  return T(0.39894228040143267794) * std::exp(T(-0.5) * x * x);
}
template <class T>
struct TanhGelu {
  T tanh_u, du;  // u = sqrt(2 / pi) * (x + 0.044715 x^3)
  STRATA_HD explicit TanhGelu(T x) {
    const T k = T(0.79788456080286535588), c = T(0.044715);
    tanh_u = std::tanh(k * (x + c * x * x * x));
    du = k * (1 + 3 * c * x * x);
  }
};

/// What integers of T are computed in without a sign: 32 bits where they suffice.
template <class T>
using Word = std::conditional_t<sizeof(T) <= 4, uint32_t, uint64_t>;

template <class T>
STRATA_HD Word<T> size_of_whole(T v) {
  return v < 0 ? 0 - static_cast<Word<T>>(v) : static_cast<Word<T>>(v);
}
/// x % y of whole numbers to 2^15, y not 0: x / y lies at least 0.5 / y from the next quotient, which is more than what
/// rounding does to it. A card has no division of integers but 20 instructions in place of it.
STRATA_HD inline float small_remainder(float x, float y) {
#ifdef __CUDA_ARCH__
  float inverse;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(y));
#else
  const float inverse = 1 / y;
#endif
  constexpr float whole = 12582912;  // 1.5 * 2^23: sums with it are whole
  const float quotient = ((x + 0.5F) * inverse - 0.5F + whole) - whole;
  return x - quotient * y;
}
template <class T>
STRATA_HD Word<T> common_divisor(T a, T b) {
  if constexpr (sizeof(T) <= 2) {
    auto x = static_cast<float>(size_of_whole(a)), y = static_cast<float>(size_of_whole(b));
    while (y != 0) {
      const float r = small_remainder(x, y);
      x = y;
      y = r;
    }
    return static_cast<Word<T>>(x);
  } else {
    Word<T> x = size_of_whole(a), y = size_of_whole(b);
    while (y != 0) {
      const Word<T> r = x % y;
      x = y;
      y = r;
    }
    return x;
  }
}

#ifdef STRATA_MAP_UNARY
void unary_rows(Rows& r) {
  r.numbers<1>(Map::neg, [] STRATA_DEVICE(auto x) {
    if constexpr (std::is_integral_v<decltype(x)>)
      return 0 - wide(x);
    else
      return -x;
  });
  r.numbers<1>(Map::abs, [] STRATA_DEVICE(auto x) {
    if constexpr (std::is_integral_v<decltype(x)>)
      return x < 0 ? 0 - wide(x) : wide(x);
    else
      return std::abs(x);
  });
  r.numbers<1>(Map::sign, [] STRATA_DEVICE(auto x) {
    using T = decltype(x);
    if constexpr (std::is_floating_point_v<T>)
      return x != x ? x : static_cast<T>((x > 0) - (x < 0));
    else
      return static_cast<T>((x > 0) - (x < 0));
  });
  r.numbers<1>(Map::square, [] STRATA_DEVICE(auto x) {
    if constexpr (std::is_integral_v<decltype(x)>)
      return wide(x) * wide(x);
    else
      return x * x;
  });
  r.floats<1>(Map::reciprocal, [] STRATA_DEVICE(auto x) { return 1 / x; });
  r.floats<1>(Map::sqrt, [] STRATA_DEVICE(auto x) { return std::sqrt(x); });
  r.floats<1>(Map::rsqrt, [] STRATA_DEVICE(auto x) { return 1 / std::sqrt(x); });
  r.floats<1>(Map::exp, [] STRATA_DEVICE(auto x) { return std::exp(x); });
  r.floats<1>(Map::exp2, [] STRATA_DEVICE(auto x) { return std::exp2(x); });
  r.floats<1>(Map::expm1, [] STRATA_DEVICE(auto x) { return std::expm1(x); });
  r.floats<1>(Map::log, [] STRATA_DEVICE(auto x) { return std::log(x); });
  r.floats<1>(Map::log2, [] STRATA_DEVICE(auto x) { return std::log2(x); });
  r.floats<1>(Map::log10, [] STRATA_DEVICE(auto x) { return std::log10(x); });
  r.floats<1>(Map::log1p, [] STRATA_DEVICE(auto x) { return std::log1p(x); });
  r.floats<1>(Map::sin, [] STRATA_DEVICE(auto x) { return std::sin(x); });
  r.floats<1>(Map::cos, [] STRATA_DEVICE(auto x) { return std::cos(x); });
  r.floats<1>(Map::tan, [] STRATA_DEVICE(auto x) { return std::tan(x); });
  r.floats<1>(Map::asin, [] STRATA_DEVICE(auto x) { return std::asin(x); });
  r.floats<1>(Map::acos, [] STRATA_DEVICE(auto x) { return std::acos(x); });
  r.floats<1>(Map::atan, [] STRATA_DEVICE(auto x) { return std::atan(x); });
  r.floats<1>(Map::sinh, [] STRATA_DEVICE(auto x) { return std::sinh(x); });
  r.floats<1>(Map::cosh, [] STRATA_DEVICE(auto x) { return std::cosh(x); });
  r.floats<1>(Map::tanh, [] STRATA_DEVICE(auto x) { return std::tanh(x); });
  r.floats<1>(Map::asinh, [] STRATA_DEVICE(auto x) { return std::asinh(x); });
  r.floats<1>(Map::acosh, [] STRATA_DEVICE(auto x) { return std::acosh(x); });
  r.floats<1>(Map::atanh, [] STRATA_DEVICE(auto x) { return std::atanh(x); });
  r.floats<1>(Map::erf, [] STRATA_DEVICE(auto x) { return std::erf(x); });
  r.floats<1>(Map::erfc, [] STRATA_DEVICE(auto x) { return std::erfc(x); });
  r.floats<1>(Map::floor, [] STRATA_DEVICE(auto x) { return std::floor(x); });
  r.floats<1>(Map::ceil, [] STRATA_DEVICE(auto x) { return std::ceil(x); });
  r.floats<1>(Map::round, [] STRATA_DEVICE(auto x) { return std::nearbyint(x); });
  // c.a: 10^|decimals|, c.b: whether these are negative. What leaves the range has no decimals to round.
  r.floats<1>(Map::round_decimals, [] STRATA_DEVICE(auto x, const auto& c) {
    using T = decltype(x);
    if (c.b != 0) {
      const T q = std::nearbyint(x / c.a);
      return q == 0 ? q : q * c.a;
    }
    const T p = x * c.a;
    return std::abs(p) <= std::numeric_limits<T>::max() ? std::nearbyint(p) / c.a : x;
  });
  r.floats<1>(Map::trunc, [] STRATA_DEVICE(auto x) { return std::trunc(x); });
  r.floats<1>(Map::frac, [] STRATA_DEVICE(auto x) { return x - std::trunc(x); });
  // The bounds are ordered so that NaN stays and max wins over min, as in PyTorch.
  r.numbers<1>(Map::clamp, [] STRATA_DEVICE(auto x, const auto& c) {
    const auto low = x < c.a ? c.a : x;
    return low > c.b ? c.b : low;
  });
  r.floats<1>(Map::nan_to_num, [] STRATA_DEVICE(auto x, const auto& c) {
    using T = decltype(x);
    constexpr T most = std::numeric_limits<T>::max();
    return x != x ? c.a : x > most ? c.b : x < -most ? c.c : x;
  });
  r.floats<1>(Map::replace_between, [] STRATA_DEVICE(auto x, const auto& c) { return x >= c.a && x <= c.b ? c.c : x; });
  r.floats<1>(Map::softshrink, [] STRATA_DEVICE(auto x, const auto& c) {
    return x > c.a ? x - c.a : x < -c.a ? x + c.a : x != x ? x : decltype(x)(0);
  });
  r.floats<1>(Map::angle, [] STRATA_DEVICE(auto x) {
    using T = decltype(x);
    return x != x ? x : x < 0 ? T(3.14159265358979323846) : T(0);
  });
  r.floats<1>(Map::pow_scalar, [] STRATA_DEVICE(auto x, const auto& c) { return std::pow(x, c.a); });
  r.ints<1>(Map::pow_scalar, [] STRATA_DEVICE(auto x, const auto& c) { return power(x, c.a); });
  r.floats<1>(Map::scalar_pow, [] STRATA_DEVICE(auto x, const auto& c) { return std::pow(c.a, x); });
  r.floats<1>(Map::add_scalar, [] STRATA_DEVICE(auto x, const auto& c) { return x + c.a; });
  r.floats<1>(Map::rsub_scalar, [] STRATA_DEVICE(auto x, const auto& c) { return c.a - x; });
  r.floats<1>(Map::div_scalar, [] STRATA_DEVICE(auto x, const auto& c) { return x / c.a; });
  r.floats<1>(Map::mul_scalar, [] STRATA_DEVICE(auto x, const auto& c) { return x * c.a; });
  r.bits<1>(Map::bitwise_not, [] STRATA_DEVICE(auto x) { return ~x; });
  r.boolean<1>(Map::bitwise_not, [] STRATA_DEVICE(bool x) { return !x; });
  r.everything<1>(Map::logical_not, [] STRATA_DEVICE(auto x) { return !x; });
  r.floats<1>(Map::isnan, [] STRATA_DEVICE(auto x) { return x != x; });
  r.floats<1>(Map::isinf, [] STRATA_DEVICE(auto x) { return std::abs(x) > std::numeric_limits<decltype(x)>::max(); });
  r.floats<1>(Map::isfinite,
              [] STRATA_DEVICE(auto x) { return std::abs(x) <= std::numeric_limits<decltype(x)>::max(); });
  r.floats<1>(Map::isposinf, [] STRATA_DEVICE(auto x) { return x > std::numeric_limits<decltype(x)>::max(); });
  r.floats<1>(Map::isneginf, [] STRATA_DEVICE(auto x) { return x < -std::numeric_limits<decltype(x)>::max(); });
  r.floats<1>(Map::signbit, [] STRATA_DEVICE(auto x) { return std::copysign(decltype(x)(1), x) < 0; });
  r.ints<1>(Map::signbit, [] STRATA_DEVICE(auto x) { return x < 0; });
  r.floats<1>(Map::frexp_mantissa, [] STRATA_DEVICE(auto x) {
    int e = 0;
    return std::frexp(x, &e);
  });
  r.floats<1>(Map::frexp_exponent, [] STRATA_DEVICE(auto x) {
    using T = decltype(x);
    int e = 0;
    std::frexp(x, &e);
    return std::abs(x) <= std::numeric_limits<T>::max() ? static_cast<T>(e)
                                                        : T(0);  // unspecified in C where not finite
  });
}
#endif

#ifdef STRATA_MAP_ACTIVATION
void activation_rows(Rows& r) {
  r.floats<1>(Map::sigmoid, [] STRATA_DEVICE(auto x) { return logistic(x); });
  r.floats<1>(Map::logsigmoid, [] STRATA_DEVICE(auto x) { return -soft_plus(-x); });
  r.floats<1>(Map::softplus,
              [] STRATA_DEVICE(auto x, const auto& c) { return x * c.a > c.b ? x : soft_plus(x * c.a) / c.a; });
  r.numbers<1>(Map::relu, [] STRATA_DEVICE(auto x) { return x < 0 ? decltype(x)(0) : x; });
  r.floats<1>(Map::leaky_relu, [] STRATA_DEVICE(auto x, const auto& c) { return x > 0 ? x : x * c.a; });
  r.floats<1>(Map::elu,
              [] STRATA_DEVICE(auto x, const auto& c) { return x > 0 ? x * c.b : c.a * c.b * std::expm1(x * c.c); });
  r.floats<1>(Map::hardtanh, [] STRATA_DEVICE(auto x, const auto& c) { return x < c.a ? c.a : x > c.b ? c.b : x; });
  r.floats<1>(Map::hardsigmoid, [] STRATA_DEVICE(auto x) {
    using T = decltype(x);
    const T v = x + 3;
    return (v < 0 ? T(0) : v > 6 ? T(6) : v) / 6;
  });
  r.floats<1>(Map::hardswish, [] STRATA_DEVICE(auto x) {
    using T = decltype(x);
    const T v = x + 3;
    return x * (v < 0 ? T(0) : v > 6 ? T(6) : v) / 6;
  });
  r.floats<1>(Map::mish, [] STRATA_DEVICE(auto x) { return x * std::tanh(soft_plus(x)); });
  r.floats<1>(Map::gelu, [] STRATA_DEVICE(auto x) { return x * normal_cdf(x); });
  r.floats<1>(Map::gelu_tanh, [] STRATA_DEVICE(auto x) { return decltype(x)(0.5) * x * (1 + TanhGelu(x).tanh_u); });
  r.floats<1>(Map::silu, [] STRATA_DEVICE(auto x) { return x * logistic(x); });

  r.floats<2>(Map::sigmoid_backward, [] STRATA_DEVICE(auto g, auto y) { return g * y * (1 - y); });
  r.floats<2>(Map::tanh_backward, [] STRATA_DEVICE(auto g, auto y) { return g * (1 - y * y); });
  r.floats<2>(Map::rsqrt_backward, [] STRATA_DEVICE(auto g, auto y) { return g * y * (y * y) * decltype(y)(-0.5); });
  // Without a limit (c.a below 0) NaN outside [0, 1], where x (1 - x) is below 0.
  r.floats<2>(Map::logit_backward, [] STRATA_DEVICE(auto g, auto x, const auto& c) {
    using T = decltype(x);
    if (c.a < 0) {
      const T product = x * (1 - x);
      return product >= 0 ? g / product : std::numeric_limits<T>::quiet_NaN();
    }
    return x >= c.a && x <= 1 - c.a ? g / (x * (1 - x)) : T(0);
  });
  r.floats<2>(Map::relu_backward, [] STRATA_DEVICE(auto g, auto y) { return y > 0 ? g : decltype(g)(0); });
  r.floats<2>(Map::leaky_relu_backward,
              [] STRATA_DEVICE(auto g, auto x, const auto& c) { return x > 0 ? g : g * c.a; });
  r.floats<2>(Map::elu_backward, [] STRATA_DEVICE(auto g, auto x, const auto& c) {
    return x > 0 ? g * c.b : g * (c.a * c.b * c.c * std::exp(x * c.c));
  });
  r.floats<2>(Map::hardtanh_backward,
              [] STRATA_DEVICE(auto g, auto x, const auto& c) { return x > c.a && x < c.b ? g : decltype(g)(0); });
  r.numbers<2>(Map::clamp_backward,
               [] STRATA_DEVICE(auto g, auto x, const auto& c) { return x >= c.a && x <= c.b ? g : decltype(g)(0); });
  r.floats<2>(Map::replace_between_backward,
              [] STRATA_DEVICE(auto g, auto x, const auto& c) { return x >= c.a && x <= c.b ? decltype(g)(0) : g; });
  r.floats<2>(Map::hardswish_backward, [] STRATA_DEVICE(auto g, auto x) {
    using T = decltype(x);
    return x <= -3 ? T(0) : x >= 3 ? g : g * (x / 3 + T(0.5));
  });
  r.floats<2>(Map::mish_backward, [] STRATA_DEVICE(auto g, auto x) {
    const auto t = std::tanh(soft_plus(x));
    return g * (t + x * logistic(x) * (1 - t * t));
  });
  r.floats<2>(Map::softplus_backward,
              [] STRATA_DEVICE(auto g, auto x, const auto& c) { return x * c.a > c.b ? g : g * logistic(x * c.a); });
  r.floats<2>(Map::gelu_backward, [] STRATA_DEVICE(auto g, auto x) { return g * (normal_cdf(x) + x * normal_pdf(x)); });
  r.floats<2>(Map::gelu_tanh_backward, [] STRATA_DEVICE(auto g, auto x) {
    using T = decltype(x);
    const TanhGelu<T> t(x);
    return g * (T(0.5) * (1 + t.tanh_u) + T(0.5) * x * (1 - t.tanh_u * t.tanh_u) * t.du);
  });
  r.floats<2>(Map::silu_backward, [] STRATA_DEVICE(auto g, auto x) {
    const auto s = logistic(x);
    return g * s * (1 + x * (1 - s));
  });
}
#endif

#ifdef STRATA_MAP_ARITHMETIC
void arithmetic_rows(Rows& r) {
  r.floats<2>(Map::add, [] STRATA_DEVICE(auto a, auto b, const auto& c) { return a + c.a * b; });
  r.ints<2>(Map::add, [] STRATA_DEVICE(auto a, auto b, const auto& c) { return wide(a) + wide(c.a) * wide(b); });
  r.boolean<2>(Map::add, [] STRATA_DEVICE(bool a, bool b, const auto& c) { return a || (c.a && b); });
  r.floats<2>(Map::sub, [] STRATA_DEVICE(auto a, auto b, const auto& c) { return a - c.a * b; });
  r.ints<2>(Map::sub, [] STRATA_DEVICE(auto a, auto b, const auto& c) { return wide(a) - wide(c.a) * wide(b); });
  r.floats<2>(Map::mul, [] STRATA_DEVICE(auto a, auto b) { return a * b; });
  r.ints<2>(Map::mul, [] STRATA_DEVICE(auto a, auto b) { return wide(a) * wide(b); });
  r.boolean<2>(Map::mul, [] STRATA_DEVICE(bool a, bool b) { return a && b; });
  r.floats<2>(Map::div, [] STRATA_DEVICE(auto a, auto b) { return a / b; });
  r.numbers<2>(Map::floor_divide, [] STRATA_DEVICE(auto a, auto b) { return floor_quotient(a, b); });
  r.numbers<2>(Map::trunc_divide, [] STRATA_DEVICE(auto a, auto b) { return trunc_quotient(a, b); });
  r.numbers<2>(Map::remainder, [] STRATA_DEVICE(auto a, auto b) { return floor_remainder(a, b); });
  r.numbers<2>(Map::fmod, [] STRATA_DEVICE(auto a, auto b) { return trunc_remainder(a, b); });
  r.numbers<2>(Map::pow, [] STRATA_DEVICE(auto a, auto b) { return power(a, b); });
  r.numbers<2>(Map::maximum, [] STRATA_DEVICE(auto a, auto b) { return larger(a, b); });
  r.boolean<2>(Map::maximum, [] STRATA_DEVICE(bool a, bool b) { return a || b; });
  r.numbers<2>(Map::minimum, [] STRATA_DEVICE(auto a, auto b) { return smaller(a, b); });
  r.boolean<2>(Map::minimum, [] STRATA_DEVICE(bool a, bool b) { return a && b; });
  r.floats<2>(Map::fmax, [] STRATA_DEVICE(auto a, auto b) { return a != a ? b : b != b ? a : a > b ? a : b; });
  r.ints<2>(Map::fmax, [] STRATA_DEVICE(auto a, auto b) { return a > b ? a : b; });
  r.floats<2>(Map::fmin, [] STRATA_DEVICE(auto a, auto b) { return a != a ? b : b != b ? a : a < b ? a : b; });
  r.ints<2>(Map::fmin, [] STRATA_DEVICE(auto a, auto b) { return a < b ? a : b; });
  r.floats<2>(Map::atan2, [] STRATA_DEVICE(auto a, auto b) { return std::atan2(a, b); });
  r.floats<2>(Map::hypot, [] STRATA_DEVICE(auto a, auto b) { return std::hypot(a, b); });
  r.floats<2>(Map::logaddexp, [] STRATA_DEVICE(auto a, auto b) {
    if (a == b) return a + decltype(a)(0.69314718055994530942);  // equal infinities too
    return (a > b ? a : b) + std::log1p(std::exp(-std::abs(a - b)));
  });
  r.floats<2>(Map::xlogy, [] STRATA_DEVICE(auto a, auto b) {
    return b != b ? b : a == 0 ? decltype(a)(0) : a * std::log(b);
  });
  r.floats<2>(Map::xlog1py, [] STRATA_DEVICE(auto a, auto b) {
    return b != b ? b : a == 0 ? decltype(a)(0) : a * std::log1p(b);
  });
  r.floats<2>(Map::logaddexp2, [] STRATA_DEVICE(auto a, auto b) {
    using T = decltype(a);
    if (a == b) return a + T(1);  // equal infinities too
    return (a > b ? a : b) + std::log1p(std::exp2(-std::abs(a - b))) * T(1.44269504088896340736);
  });
  r.floats<2>(Map::copysign, [] STRATA_DEVICE(auto a, auto b) { return std::copysign(a, b); });
  r.floats<2>(Map::prelu, [] STRATA_DEVICE(auto a, auto b) { return a > 0 ? a : a * b; });
  r.floats<2>(Map::nextafter, [] STRATA_DEVICE(auto a, auto b) { return std::nextafter(a, b); });
  r.numbers<2>(Map::heaviside, [] STRATA_DEVICE(auto a, auto b) { return a == 0 ? b : decltype(a)(a > 0); });
  r.floats<2>(Map::ldexp, [] STRATA_DEVICE(auto a, auto b) {
    // Whole exponents do not pass through 2^b, which may leave the range where the product does not.
    return std::abs(b) < 100000 && b == std::trunc(b) ? std::ldexp(a, static_cast<int>(b)) : a * std::exp2(b);
  });
  r.ints<2>(Map::gcd, [] STRATA_DEVICE(auto a, auto b) { return common_divisor(a, b); });
  r.ints<2>(Map::lcm, [] STRATA_DEVICE(auto a, auto b) {
    const auto divisor = common_divisor(a, b);
    return divisor == 0 ? decltype(divisor){0} : size_of_whole(a) / divisor * size_of_whole(b);
  });
  r.floats<3>(Map::lerp, [] STRATA_DEVICE(auto a, auto b, auto w) {
    return w < decltype(w)(0.5) ? a + w * (b - a) : b - (b - a) * (1 - w);  // exact at both ends
  });
  r.floats<3>(Map::addcmul, [] STRATA_DEVICE(auto x, auto a, auto b, const auto& c) { return x + c.a * a * b; });
  r.ints<3>(Map::addcmul, [] STRATA_DEVICE(auto x, auto a, auto b, const auto& c) {
    return wide(x) + wide(c.a) * wide(a) * wide(b);
  });
  r.floats<3>(Map::addcdiv, [] STRATA_DEVICE(auto x, auto a, auto b, const auto& c) { return x + c.a * (a / b); });
}
#endif

#ifdef STRATA_MAP_COMPARISON
void comparison_rows(Rows& r) {
  r.everything<2>(Map::eq, [] STRATA_DEVICE(auto a, auto b) { return a == b; });
  r.everything<2>(Map::ne, [] STRATA_DEVICE(auto a, auto b) { return a != b; });
  r.everything<2>(Map::lt, [] STRATA_DEVICE(auto a, auto b) { return a < b; });
  r.everything<2>(Map::le, [] STRATA_DEVICE(auto a, auto b) { return a <= b; });
  r.everything<2>(Map::gt, [] STRATA_DEVICE(auto a, auto b) { return a > b; });
  r.everything<2>(Map::ge, [] STRATA_DEVICE(auto a, auto b) { return a >= b; });
  r.everything<2>(Map::logical_and, [] STRATA_DEVICE(auto a, auto b) { return a && b; });
  r.everything<2>(Map::logical_or, [] STRATA_DEVICE(auto a, auto b) { return a || b; });
  r.everything<2>(Map::logical_xor, [] STRATA_DEVICE(auto a, auto b) { return !a != !b; });
  r.bits<2>(Map::bitwise_and, [] STRATA_DEVICE(auto a, auto b) { return a & b; });
  r.bits<2>(Map::bitwise_or, [] STRATA_DEVICE(auto a, auto b) { return a | b; });
  r.bits<2>(Map::bitwise_xor, [] STRATA_DEVICE(auto a, auto b) { return a ^ b; });
  r.boolean<2>(Map::bitwise_and, [] STRATA_DEVICE(bool a, bool b) { return a && b; });
  r.boolean<2>(Map::bitwise_or, [] STRATA_DEVICE(bool a, bool b) { return a || b; });
  r.boolean<2>(Map::bitwise_xor, [] STRATA_DEVICE(bool a, bool b) { return a != b; });
  r.ints<2>(Map::left_shift, [] STRATA_DEVICE(auto a, auto b) {
    using W = Word<decltype(a)>;
    const W n = static_cast<W>(b);  // what is below 0 is far too large
    return n < 8 * sizeof(a) ? static_cast<W>(static_cast<W>(a) << n) : W{0};
  });
  r.ints<2>(Map::right_shift, [] STRATA_DEVICE(auto a, auto b) {
    using T = decltype(a);
    using W = Word<T>;
    constexpr W most = 8 * sizeof(W) - 1;
    const W n = static_cast<W>(b);  // what is below 0 is far too large
    return static_cast<T>(static_cast<std::make_signed_t<W>>(a) >> (n < most ? n : most));
  });
  // c.a: rtol, c.b: atol, c.c: whether two NaN are close.
  r.floats<2>(Map::isclose, [] STRATA_DEVICE(auto a, auto b, const auto& c) {
    using T = decltype(a);
    if (a == b) return true;
    if (a != a || b != b) return a != a && b != b && c.c != 0;
    const T most = std::numeric_limits<T>::max();
    return std::abs(b) <= most && std::abs(a) <= most && std::abs(a - b) <= c.b + std::abs(c.a * b);
  });
}
#endif

}  // namespace
}  // namespace strata

#undef STRATA_HD
#undef STRATA_DEVICE
