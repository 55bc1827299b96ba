// One row per elementwise function: a plain C++ expression, instantiated for the types that it computes in. In f64 these are
// the reference for the vectorised kernels.

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <type_traits>

#include "strata/core/error.h"
#include "strata/ops/elementwise/kernels.h"

namespace strata {
namespace {

template <class T>
struct Constants {
  T a, b, c;
  explicit Constants(const MapParams& p) : a(p.s[0].to<T>()), b(p.s[1].to<T>()), c(p.s[2].to<T>()) {}
};

// Functions may take the constants last or leave them out. A bool result is stored as bool, any other as T.
template <class F, class T, int N>
void dense(void* out, const void* const* in, int64_t n, const MapParams& params) {
  const F f{};
  const Constants<T> c(params);
  const auto call = [&](auto... v) {
    if constexpr (std::is_invocable_v<F, decltype(v)..., const Constants<T>&>) return f(v..., c);
    else return f(v...);
  };
  const T* a = static_cast<const T*>(in[0]);
  const T* b = static_cast<const T*>(in[1]);
  const T* d = static_cast<const T*>(in[2]);
  const auto store = [&](auto result_at) {
    using O = std::conditional_t<std::is_same_v<decltype(result_at(0)), bool>, bool, T>;
    O* y = static_cast<O*>(out);
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<O>(result_at(i));
  };
  if constexpr (N == 1) store([&](int64_t i) { return call(a[i]); });
  else if constexpr (N == 2) store([&](int64_t i) { return call(a[i], b[i]); });
  else store([&](int64_t i) { return call(a[i], b[i], d[i]); });
}

// where(): the first operand is the condition.
template <class T>
void dense_where(void* out, const void* const* in, int64_t n, const MapParams&) {
  const uint8_t* c = static_cast<const uint8_t*>(in[0]);
  const T* a = static_cast<const T*>(in[1]);
  const T* b = static_cast<const T*>(in[2]);
  T* y = static_cast<T*>(out);
  for (int64_t i = 0; i < n; ++i) y[i] = c[i] ? a[i] : b[i];
}

using Table = std::array<std::array<DenseMap, kNumDTypes>, static_cast<size_t>(Map::count)>;

class Rows {
 public:
  Table table{};

  template <int N, class F>
  void floats(Map m, F) {
    set<float, N, F>(m);
    set<double, N, F>(m);
  }
  template <int N, class F>
  void ints(Map m, F) {
    set<uint8_t, N, F>(m);
    set<int8_t, N, F>(m);
    set<int16_t, N, F>(m);
    set<int32_t, N, F>(m);
    set<int64_t, N, F>(m);
  }
  template <int N, class F>
  void boolean(Map m, F) {
    set<bool, N, F>(m);
  }
  template <int N, class F>
  void numbers(Map m, F f) {
    floats<N>(m, f);
    ints<N>(m, f);
  }
  template <int N, class F>
  void everything(Map m, F f) {
    numbers<N>(m, f);
    boolean<N>(m, f);
  }
  template <class T>
  void where() {
    table[static_cast<size_t>(Map::where)][static_cast<size_t>(dtype_of<T>)] = dense_where<T>;
  }

 private:
  template <class T, int N, class F>
  void set(Map m) {
    table[static_cast<size_t>(m)][static_cast<size_t>(dtype_of<T>)] = dense<F, T, N>;
  }
};

// Integer arithmetic wraps around; unsigned 64-bit arithmetic has the same low bits.
uint64_t wide(auto v) { return static_cast<uint64_t>(v); }

template <class T>
void check_divisor(T b, std::string_view op) {
  check(b != 0, op, "integer division by zero");
}
template <class T>
bool is_minus_one(T b) {
  return std::is_signed_v<T> && b == static_cast<T>(-1);
}

template <class T>
T floor_quotient(T a, T b) {
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
T trunc_quotient(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    check_divisor(b, "trunc_divide");
    if (is_minus_one(b)) return static_cast<T>(0 - wide(a));
    return static_cast<T>(a / b);
  } else {
    return std::trunc(a / b);
  }
}
template <class T>
T floor_remainder(T a, T b) {
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
T trunc_remainder(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    check_divisor(b, "fmod");
    if (is_minus_one(b)) return 0;
    return static_cast<T>(a % b);
  } else {
    return std::fmod(a, b);
  }
}
template <class T>
T power(T a, T b) {
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
T larger(T a, T b) {
  if constexpr (std::is_floating_point_v<T>)
    if (a != a) return a;
  return a > b ? a : b;
}
template <class T>
T smaller(T a, T b) {
  if constexpr (std::is_floating_point_v<T>)
    if (a != a) return a;
  return a < b ? a : b;
}
template <class T>
T logistic(T x) {
  // Exponentials of negative numbers only: no overflow, and full relative accuracy on both sides.
  const T e = std::exp(-std::abs(x));
  return (x >= 0 ? T(1) : e) / (1 + e);
}
template <class T>
T soft_plus(T x) {
  return std::max(x, T(0)) + std::log1p(std::exp(-std::abs(x)));
}
template <class T>
T normal_cdf(T x) {
  return T(0.5) * std::erfc(-x * T(0.70710678118654752440));
}
template <class T>
T normal_pdf(T x) {
  return T(0.39894228040143267794) * std::exp(T(-0.5) * x * x);
}
template <class T>
struct TanhGelu {
  T tanh_u, du;  // u = sqrt(2 / pi) * (x + 0.044715 x^3)
  explicit TanhGelu(T x) {
    const T k = T(0.79788456080286535588), c = T(0.044715);
    tanh_u = std::tanh(k * (x + c * x * x * x));
    du = k * (1 + 3 * c * x * x);
  }
};

void unary_rows(Rows& r) {
  r.numbers<1>(Map::neg, [](auto x) {
    if constexpr (std::is_integral_v<decltype(x)>) return 0 - wide(x);
    else return -x;
  });
  r.numbers<1>(Map::abs, [](auto x) {
    if constexpr (std::is_integral_v<decltype(x)>) return x < 0 ? 0 - wide(x) : wide(x);
    else return std::abs(x);
  });
  r.numbers<1>(Map::sign, [](auto x) {
    using T = decltype(x);
    if constexpr (std::is_floating_point_v<T>) return x != x ? x : static_cast<T>((x > 0) - (x < 0));
    else return static_cast<T>((x > 0) - (x < 0));
  });
  r.numbers<1>(Map::square, [](auto x) {
    if constexpr (std::is_integral_v<decltype(x)>) return wide(x) * wide(x);
    else return x * x;
  });
  r.floats<1>(Map::reciprocal, [](auto x) { return 1 / x; });
  r.floats<1>(Map::sqrt, [](auto x) { return std::sqrt(x); });
  r.floats<1>(Map::rsqrt, [](auto x) { return 1 / std::sqrt(x); });
  r.floats<1>(Map::exp, [](auto x) { return std::exp(x); });
  r.floats<1>(Map::exp2, [](auto x) { return std::exp2(x); });
  r.floats<1>(Map::expm1, [](auto x) { return std::expm1(x); });
  r.floats<1>(Map::log, [](auto x) { return std::log(x); });
  r.floats<1>(Map::log2, [](auto x) { return std::log2(x); });
  r.floats<1>(Map::log10, [](auto x) { return std::log10(x); });
  r.floats<1>(Map::log1p, [](auto x) { return std::log1p(x); });
  r.floats<1>(Map::sin, [](auto x) { return std::sin(x); });
  r.floats<1>(Map::cos, [](auto x) { return std::cos(x); });
  r.floats<1>(Map::tan, [](auto x) { return std::tan(x); });
  r.floats<1>(Map::asin, [](auto x) { return std::asin(x); });
  r.floats<1>(Map::acos, [](auto x) { return std::acos(x); });
  r.floats<1>(Map::atan, [](auto x) { return std::atan(x); });
  r.floats<1>(Map::sinh, [](auto x) { return std::sinh(x); });
  r.floats<1>(Map::cosh, [](auto x) { return std::cosh(x); });
  r.floats<1>(Map::tanh, [](auto x) { return std::tanh(x); });
  r.floats<1>(Map::asinh, [](auto x) { return std::asinh(x); });
  r.floats<1>(Map::acosh, [](auto x) { return std::acosh(x); });
  r.floats<1>(Map::atanh, [](auto x) { return std::atanh(x); });
  r.floats<1>(Map::erf, [](auto x) { return std::erf(x); });
  r.floats<1>(Map::erfc, [](auto x) { return std::erfc(x); });
  r.floats<1>(Map::floor, [](auto x) { return std::floor(x); });
  r.floats<1>(Map::ceil, [](auto x) { return std::ceil(x); });
  r.floats<1>(Map::round, [](auto x) { return std::nearbyint(x); });
  r.floats<1>(Map::trunc, [](auto x) { return std::trunc(x); });
  r.floats<1>(Map::frac, [](auto x) { return x - std::trunc(x); });
  // The bounds are ordered so that NaN stays and max wins over min, as in PyTorch.
  r.numbers<1>(Map::clamp, [](auto x, const auto& c) {
    const auto low = x < c.a ? c.a : x;
    return low > c.b ? c.b : low;
  });
  r.floats<1>(Map::nan_to_num, [](auto x, const auto& c) {
    using T = decltype(x);
    constexpr T most = std::numeric_limits<T>::max();
    return x != x ? c.a : x > most ? c.b : x < -most ? c.c : x;
  });
  r.floats<1>(Map::pow_scalar, [](auto x, const auto& c) { return std::pow(x, c.a); });
  r.ints<1>(Map::pow_scalar, [](auto x, const auto& c) { return power(x, c.a); });
  r.floats<1>(Map::scalar_pow, [](auto x, const auto& c) { return std::pow(c.a, x); });
  r.floats<1>(Map::add_scalar, [](auto x, const auto& c) { return x + c.a; });
  r.floats<1>(Map::rsub_scalar, [](auto x, const auto& c) { return c.a - x; });
  r.floats<1>(Map::div_scalar, [](auto x, const auto& c) { return x / c.a; });
  r.floats<1>(Map::mul_scalar, [](auto x, const auto& c) { return x * c.a; });
  r.ints<1>(Map::bitwise_not, [](auto x) { return ~x; });
  r.boolean<1>(Map::bitwise_not, [](bool x) { return !x; });
  r.everything<1>(Map::logical_not, [](auto x) { return !x; });
  r.floats<1>(Map::isnan, [](auto x) { return x != x; });
  r.floats<1>(Map::isinf, [](auto x) { return std::abs(x) > std::numeric_limits<decltype(x)>::max(); });
  r.floats<1>(Map::isfinite, [](auto x) { return std::abs(x) <= std::numeric_limits<decltype(x)>::max(); });
}

void activation_rows(Rows& r) {
  r.floats<1>(Map::sigmoid, [](auto x) { return logistic(x); });
  r.floats<1>(Map::logsigmoid, [](auto x) { return -soft_plus(-x); });
  r.floats<1>(Map::softplus, [](auto x, const auto& c) { return x * c.a > c.b ? x : soft_plus(x * c.a) / c.a; });
  r.numbers<1>(Map::relu, [](auto x) { return x < 0 ? decltype(x)(0) : x; });
  r.floats<1>(Map::leaky_relu, [](auto x, const auto& c) { return x > 0 ? x : x * c.a; });
  r.floats<1>(Map::elu, [](auto x, const auto& c) { return x > 0 ? x * c.b : c.a * c.b * std::expm1(x); });
  r.floats<1>(Map::hardtanh, [](auto x, const auto& c) { return x < c.a ? c.a : x > c.b ? c.b : x; });
  r.floats<1>(Map::hardsigmoid, [](auto x) {
    using T = decltype(x);
    const T v = x + 3;
    return (v < 0 ? T(0) : v > 6 ? T(6) : v) / 6;
  });
  r.floats<1>(Map::hardswish, [](auto x) {
    using T = decltype(x);
    const T v = x + 3;
    return x * (v < 0 ? T(0) : v > 6 ? T(6) : v) / 6;
  });
  r.floats<1>(Map::mish, [](auto x) { return x * std::tanh(soft_plus(x)); });
  r.floats<1>(Map::gelu, [](auto x) { return x * normal_cdf(x); });
  r.floats<1>(Map::gelu_tanh, [](auto x) { return decltype(x)(0.5) * x * (1 + TanhGelu(x).tanh_u); });
  r.floats<1>(Map::silu, [](auto x) { return x * logistic(x); });

  r.floats<2>(Map::sigmoid_backward, [](auto g, auto y) { return g * y * (1 - y); });
  r.floats<2>(Map::tanh_backward, [](auto g, auto y) { return g * (1 - y * y); });
  r.floats<2>(Map::relu_backward, [](auto g, auto y) { return y > 0 ? g : decltype(g)(0); });
  r.floats<2>(Map::leaky_relu_backward, [](auto g, auto x, const auto& c) { return x > 0 ? g : g * c.a; });
  r.floats<2>(Map::elu_backward, [](auto g, auto x, const auto& c) {
    return x > 0 ? g * c.b : g * (c.a * c.b * std::exp(x));
  });
  r.floats<2>(Map::hardtanh_backward, [](auto g, auto x, const auto& c) { return x > c.a && x < c.b ? g : decltype(g)(0); });
  r.numbers<2>(Map::clamp_backward, [](auto g, auto x, const auto& c) { return x >= c.a && x <= c.b ? g : decltype(g)(0); });
  r.floats<2>(Map::hardswish_backward, [](auto g, auto x) {
    using T = decltype(x);
    return x < -3 ? T(0) : x > 3 ? g : g * (x / 3 + T(0.5));
  });
  r.floats<2>(Map::mish_backward, [](auto g, auto x) {
    const auto t = std::tanh(soft_plus(x));
    return g * (t + x * logistic(x) * (1 - t * t));
  });
  r.floats<2>(Map::softplus_backward, [](auto g, auto x, const auto& c) { return x * c.a > c.b ? g : g * logistic(x * c.a); });
  r.floats<2>(Map::gelu_backward, [](auto g, auto x) { return g * (normal_cdf(x) + x * normal_pdf(x)); });
  r.floats<2>(Map::gelu_tanh_backward, [](auto g, auto x) {
    using T = decltype(x);
    const TanhGelu<T> t(x);
    return g * (T(0.5) * (1 + t.tanh_u) + T(0.5) * x * (1 - t.tanh_u * t.tanh_u) * t.du);
  });
  r.floats<2>(Map::silu_backward, [](auto g, auto x) {
    const auto s = logistic(x);
    return g * s * (1 + x * (1 - s));
  });
}

void arithmetic_rows(Rows& r) {
  r.floats<2>(Map::add, [](auto a, auto b, const auto& c) { return a + c.a * b; });
  r.ints<2>(Map::add, [](auto a, auto b, const auto& c) { return wide(a) + wide(c.a) * wide(b); });
  r.boolean<2>(Map::add, [](bool a, bool b, const auto& c) { return a || (c.a && b); });
  r.floats<2>(Map::sub, [](auto a, auto b, const auto& c) { return a - c.a * b; });
  r.ints<2>(Map::sub, [](auto a, auto b, const auto& c) { return wide(a) - wide(c.a) * wide(b); });
  r.floats<2>(Map::mul, [](auto a, auto b) { return a * b; });
  r.ints<2>(Map::mul, [](auto a, auto b) { return wide(a) * wide(b); });
  r.boolean<2>(Map::mul, [](bool a, bool b) { return a && b; });
  r.floats<2>(Map::div, [](auto a, auto b) { return a / b; });
  r.numbers<2>(Map::floor_divide, [](auto a, auto b) { return floor_quotient(a, b); });
  r.numbers<2>(Map::trunc_divide, [](auto a, auto b) { return trunc_quotient(a, b); });
  r.numbers<2>(Map::remainder, [](auto a, auto b) { return floor_remainder(a, b); });
  r.numbers<2>(Map::fmod, [](auto a, auto b) { return trunc_remainder(a, b); });
  r.numbers<2>(Map::pow, [](auto a, auto b) { return power(a, b); });
  r.numbers<2>(Map::maximum, [](auto a, auto b) { return larger(a, b); });
  r.boolean<2>(Map::maximum, [](bool a, bool b) { return a || b; });
  r.numbers<2>(Map::minimum, [](auto a, auto b) { return smaller(a, b); });
  r.boolean<2>(Map::minimum, [](bool a, bool b) { return a && b; });
  r.floats<2>(Map::fmax, [](auto a, auto b) { return a != a ? b : b != b ? a : a > b ? a : b; });
  r.ints<2>(Map::fmax, [](auto a, auto b) { return a > b ? a : b; });
  r.floats<2>(Map::fmin, [](auto a, auto b) { return a != a ? b : b != b ? a : a < b ? a : b; });
  r.ints<2>(Map::fmin, [](auto a, auto b) { return a < b ? a : b; });
  r.floats<2>(Map::atan2, [](auto a, auto b) { return std::atan2(a, b); });
  r.floats<2>(Map::hypot, [](auto a, auto b) { return std::hypot(a, b); });
  r.floats<2>(Map::logaddexp, [](auto a, auto b) {
    if (a == b) return a + decltype(a)(0.69314718055994530942);  // equal infinities too
    return std::max(a, b) + std::log1p(std::exp(-std::abs(a - b)));
  });
  r.floats<2>(Map::xlogy, [](auto a, auto b) { return b != b ? b : a == 0 ? decltype(a)(0) : a * std::log(b); });
  r.floats<3>(Map::lerp, [](auto a, auto b, auto w) {
    return w < decltype(w)(0.5) ? a + w * (b - a) : b - (b - a) * (1 - w);  // exact at both ends
  });
  r.floats<3>(Map::addcmul, [](auto x, auto a, auto b, const auto& c) { return x + c.a * a * b; });
  r.ints<3>(Map::addcmul, [](auto x, auto a, auto b, const auto& c) { return wide(x) + wide(c.a) * wide(a) * wide(b); });
  r.floats<3>(Map::addcdiv, [](auto x, auto a, auto b, const auto& c) { return x + c.a * (a / b); });
}

void comparison_rows(Rows& r) {
  r.everything<2>(Map::eq, [](auto a, auto b) { return a == b; });
  r.everything<2>(Map::ne, [](auto a, auto b) { return a != b; });
  r.everything<2>(Map::lt, [](auto a, auto b) { return a < b; });
  r.everything<2>(Map::le, [](auto a, auto b) { return a <= b; });
  r.everything<2>(Map::gt, [](auto a, auto b) { return a > b; });
  r.everything<2>(Map::ge, [](auto a, auto b) { return a >= b; });
  r.everything<2>(Map::logical_and, [](auto a, auto b) { return a && b; });
  r.everything<2>(Map::logical_or, [](auto a, auto b) { return a || b; });
  r.everything<2>(Map::logical_xor, [](auto a, auto b) { return !a != !b; });
  r.ints<2>(Map::bitwise_and, [](auto a, auto b) { return a & b; });
  r.ints<2>(Map::bitwise_or, [](auto a, auto b) { return a | b; });
  r.ints<2>(Map::bitwise_xor, [](auto a, auto b) { return a ^ b; });
  r.boolean<2>(Map::bitwise_and, [](bool a, bool b) { return a && b; });
  r.boolean<2>(Map::bitwise_or, [](bool a, bool b) { return a || b; });
  r.boolean<2>(Map::bitwise_xor, [](bool a, bool b) { return a != b; });
  r.ints<2>(Map::left_shift, [](auto a, auto b) {
    return b < 0 || wide(b) >= 8 * sizeof(a) ? uint64_t{0} : wide(a) << b;
  });
  r.ints<2>(Map::right_shift, [](auto a, auto b) {
    using T = decltype(a);
    return static_cast<T>(b < 0 || wide(b) >= 8 * sizeof(a) ? (a < 0 ? T(-1) : T(0)) : a >> b);
  });
  // c.a: rtol, c.b: atol, c.c: whether two NaN are close.
  r.floats<2>(Map::isclose, [](auto a, auto b, const auto& c) {
    using T = decltype(a);
    if (a == b) return true;
    if (a != a || b != b) return a != a && b != b && c.c != 0;
    const T most = std::numeric_limits<T>::max();
    return std::abs(b) <= most && std::abs(a) <= most && std::abs(a - b) <= c.b + std::abs(c.a * b);
  });
  r.where<bool>();
  r.where<uint8_t>();
  r.where<int8_t>();
  r.where<int16_t>();
  r.where<int32_t>();
  r.where<int64_t>();
  r.where<float>();
  r.where<double>();
}

Table make_table() {
  Rows r;
  unary_rows(r);
  activation_rows(r);
  arithmetic_rows(r);
  comparison_rows(r);
  return r.table;
}

}  // namespace

DenseMap scalar_map(Map f, DType type) {
  static const Table table = make_table();
  return table[static_cast<size_t>(f)][static_cast<size_t>(type)];
}

}  // namespace strata
