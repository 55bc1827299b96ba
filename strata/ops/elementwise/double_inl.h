// Vectorised f64 kernels of the elementwise functions, for one processor level; the lowest, which has no fused
// multiply-add, leaves them to the plain loops. No include guard: see strata/ops/vec/levels_inl.h.

#include "strata/ops/vec/functions_inl.h"
//
#include "strata/ops/elementwise/vec_map_inl.h"
#if STRATA_VEC_LEVEL >= 1
#include "strata/ops/elementwise/double_functions_inl.h"
#endif

namespace strata::STRATA_VEC_NS {

struct DoubleTable {
  DenseMap map[static_cast<size_t>(Map::count)] = {};
  template <int N, class F>
  void row(Map m, F) {
    map[static_cast<size_t>(m)] = vec_map<F, N, double>;
  }
};

#if STRATA_VEC_LEVEL >= 1
static void double_unary_rows(DoubleTable& t) {
  using C = const DoubleConstants&;
  t.row<1>(Map::neg, [](VD x) { return -x; });
  t.row<1>(Map::abs, [](VD x) { return absolute(x); });
  t.row<1>(Map::sign, [](VD x) { return x != x ? x : (x > 0.0 ? set1(1.0) : (x < 0.0 ? set1(-1.0) : VD{})); });
  t.row<1>(Map::square, [](VD x) { return x * x; });
  t.row<1>(Map::reciprocal, [](VD x) { return 1.0 / x; });
  t.row<1>(Map::sqrt, [](VD x) { return square_root(x); });
  t.row<1>(Map::rsqrt, [](VD x) { return 1.0 / square_root(x); });
  t.row<1>(Map::exp, [](VD x) { return exp(x); });
  t.row<1>(Map::exp2, [](VD x) { return exp2_of(x, VD{}); });
  t.row<1>(Map::expm1, [](VD x) { return expm1_of(x); });
  t.row<1>(Map::log, [](VD x) { return log_of(x); });
  t.row<1>(Map::log2, [](VD x) { return log2_of(x); });
  t.row<1>(Map::log10, [](VD x) { return log10_of(x); });
  t.row<1>(Map::log1p, [](VD x) { return log1p_of(x); });
  t.row<1>(Map::sin, [](VD x) { return double_sine<0>(x); });
  t.row<1>(Map::cos, [](VD x) { return double_sine<1>(x); });
  t.row<1>(Map::tan, [](VD x) { return double_tan(x); });
  t.row<1>(Map::asin, [](VD x) { return double_asin(x); });
  t.row<1>(Map::acos, [](VD x) { return double_acos(x); });
  t.row<1>(Map::atan, [](VD x) { return double_atan(x); });
  t.row<1>(Map::sinh, [](VD x) { return double_sinh(x); });
  t.row<1>(Map::cosh, [](VD x) { return double_cosh(x); });
  t.row<1>(Map::tanh, [](VD x) { return tanh_of(x); });
  t.row<1>(Map::asinh, [](VD x) { return double_asinh(x); });
  t.row<1>(Map::acosh, [](VD x) { return double_acosh(x); });
  t.row<1>(Map::atanh, [](VD x) { return double_atanh(x); });
  t.row<1>(Map::erf, [](VD x) { return double_erf(x); });
  t.row<1>(Map::erfc, [](VD x) { return double_erfc(x); });
  t.row<1>(Map::trunc, [](VD x) { return truncated(x); });
  t.row<1>(Map::round, [](VD x) { return nearest(x); });
  t.row<1>(Map::frac, [](VD x) { return x - truncated(x); });
  t.row<1>(Map::round_decimals, [](VD x, C c) {
    if (c.b[0] != 0) {
      const VD q = nearest(x / c.a);
      return q == 0.0 ? q : q * c.a;
    }
    const VD p = x * c.a;
    return absolute(p) <= std::numeric_limits<double>::max() ? nearest(p) / c.a : x;
  });
  t.row<1>(Map::floor, [](VD x) { return floor_of(x); });
  t.row<1>(Map::ceil, [](VD x) {
    const VD w = truncated(x);
    return w < x ? with_sign_of(w + 1.0, x) : w;
  });
  t.row<1>(Map::clamp, [](VD x, C c) {
    const VD low = x < c.a ? c.a : x;
    return low > c.b ? c.b : low;
  });
  t.row<1>(Map::nan_to_num, [](VD x, C c) {
    constexpr double most = std::numeric_limits<double>::max();
    return x != x ? c.a : (x > most ? c.b : (x < -most ? c.c : x));
  });
  t.row<1>(Map::replace_between, [](VD x, C c) { return x >= c.a ? (x <= c.b ? c.c : x) : x; });
  t.row<1>(Map::softshrink, [](VD x, C c) { return x > c.a ? x - c.a : (x < -c.a ? x + c.a : (x != x ? x : VD{})); });
  t.row<1>(Map::angle, [](VD x) { return x != x ? x : (x < 0.0 ? set1(3.14159265358979323846) : VD{}); });
  t.row<1>(Map::frexp_mantissa, [](VD x) { return split_of(x).mantissa; });
  t.row<1>(Map::frexp_exponent, [](VD x) { return split_of(x).exponent; });
  t.row<1>(Map::pow_scalar, [](VD x, C c) {
    const double e = c.a[0];
    if (e == 0.0) return set1(1.0);
    if (e == 1.0) return x;
    if (e == 3.0) return x * x * x;
    if (e == 4.0) return (x * x) * (x * x);
    if (e == -2.0) return 1.0 / (x * x);
    return double_power(x, c.a);
  });
  t.row<1>(Map::scalar_pow, [](VD x, C c) { return double_power(c.a, x); });
  t.row<1>(Map::add_scalar, [](VD x, C c) { return x + c.a; });
  t.row<1>(Map::rsub_scalar, [](VD x, C c) { return c.a - x; });
  t.row<1>(Map::mul_scalar, [](VD x, C c) { return x * c.a; });
  t.row<1>(Map::div_scalar, [](VD x, C c) { return x / c.a; });
}

static void double_activation_rows(DoubleTable& t) {
  using C = const DoubleConstants&;
  t.row<1>(Map::sigmoid, [](VD x) { return logistic_of(x); });
  t.row<1>(Map::logsigmoid, [](VD x) { return -softplus_of(-x); });
  t.row<1>(Map::softplus, [](VD x, C c) {
    const VD v = x * c.a;
    return v > c.b ? x : softplus_of(v) / c.a;
  });
  t.row<1>(Map::relu, [](VD x) { return x < 0.0 ? VD{} : x; });
  t.row<1>(Map::leaky_relu, [](VD x, C c) { return x > 0.0 ? x : x * c.a; });
  t.row<1>(Map::elu, [](VD x, C c) { return x > 0.0 ? x * c.b : c.a * c.b * expm1_of(x > 0.0 ? VD{} : x * c.c); });
  t.row<1>(Map::hardtanh, [](VD x, C c) { return x < c.a ? c.a : (x > c.b ? c.b : x); });
  t.row<1>(Map::hardsigmoid, [](VD x) {
    const VD v = x + 3.0;
    return (v < 0.0 ? VD{} : (v > 6.0 ? set1(6.0) : v)) / 6.0;
  });
  t.row<1>(Map::hardswish, [](VD x) {
    const VD v = x + 3.0;
    return x * (v < 0.0 ? VD{} : (v > 6.0 ? set1(6.0) : v)) / 6.0;
  });
  t.row<1>(Map::mish, [](VD x) {
    // tanh(log(1 + w)) = w (w + 2) / (w (w + 2) + 2), w = e^x
    const VD w = exp(x > 40.0 ? set1(40.0) : x), u = w * (w + 2.0);
    return x * (u / (u + 2.0));
  });
  t.row<1>(Map::gelu, [](VD x) { return x * double_normal(x).cdf; });
  t.row<1>(Map::gelu_tanh, [](VD x) { return x * double_gelu_gate(x); });
  t.row<1>(Map::silu, [](VD x) { return x * logistic_of(x); });

  t.row<2>(Map::sigmoid_backward, [](VD g, VD y) { return g * y * (1.0 - y); });
  t.row<2>(Map::tanh_backward, [](VD g, VD y) { return g * (1.0 - y * y); });
  t.row<2>(Map::rsqrt_backward, [](VD g, VD y) { return g * y * (y * y) * -0.5; });
  t.row<2>(Map::relu_backward, [](VD g, VD y) { return y > 0.0 ? g : VD{}; });
  t.row<2>(Map::leaky_relu_backward, [](VD g, VD x, C c) { return x > 0.0 ? g : g * c.a; });
  t.row<2>(Map::elu_backward,
           [](VD g, VD x, C c) { return x > 0.0 ? g * c.b : g * (c.a * c.b * c.c * exp(x > 0.0 ? VD{} : x * c.c)); });
  t.row<2>(Map::hardtanh_backward, [](VD g, VD x, C c) { return x > c.a ? (x < c.b ? g : VD{}) : VD{}; });
  t.row<2>(Map::clamp_backward, [](VD g, VD x, C c) { return x >= c.a ? (x <= c.b ? g : VD{}) : VD{}; });
  t.row<2>(Map::replace_between_backward, [](VD g, VD x, C c) { return x >= c.a ? (x <= c.b ? VD{} : g) : g; });
  t.row<2>(Map::hardswish_backward,
           [](VD g, VD x) { return x <= -3.0 ? VD{} : (x >= 3.0 ? g : g * (x / 3.0 + 0.5)); });
  t.row<2>(Map::mish_backward, [](VD g, VD x) {
    const VD w = exp(x > 40.0 ? set1(40.0) : x), u = w * (w + 2.0), y = u / (u + 2.0);
    return g * fma(x * (w / (1.0 + w)), 1.0 - y * y, y);
  });
  t.row<2>(Map::softplus_backward, [](VD g, VD x, C c) {
    const VD v = x * c.a;
    return v > c.b ? g : g * logistic_of(v);
  });
  t.row<2>(Map::gelu_backward, [](VD g, VD x) { return g * double_gelu_slope(x); });
  t.row<2>(Map::gelu_tanh_backward, [](VD g, VD x) {
    const VD s = double_gelu_gate(x), du = fma(x * x, set1(kGeluScale * 3 * 0.044715), set1(kGeluScale));
    return g * fma(x * s * (1.0 - s), du, s);
  });
  t.row<2>(Map::silu_backward, [](VD g, VD x) {
    const VD s = logistic_of(x);
    return g * (s * fma(x, 1.0 - s, set1(1.0)));
  });
}

static void double_arithmetic_rows(DoubleTable& t) {
  using C = const DoubleConstants&;
  t.row<2>(Map::add, [](VD a, VD b, C c) { return fma(c.a, b, a); });
  t.row<2>(Map::sub, [](VD a, VD b, C c) { return fma(-c.a, b, a); });
  t.row<2>(Map::mul, [](VD a, VD b) { return a * b; });
  t.row<2>(Map::div, [](VD a, VD b) { return a / b; });
  t.row<2>(Map::floor_divide, [](VD a, VD b) { return floor_quotient_of(a, b); });
  t.row<2>(Map::trunc_divide, [](VD a, VD b) { return truncated(a / b); });
  t.row<2>(Map::remainder, [](VD a, VD b) { return floor_remainder_of(a, b); });
  t.row<2>(Map::fmod, [](VD a, VD b) { return trunc_remainder_of(a, b); });
  t.row<2>(Map::pow, [](VD a, VD b) { return double_power(a, b); });
  t.row<2>(Map::maximum, [](VD a, VD b) { return a != a ? a : (a > b ? a : b); });
  t.row<2>(Map::minimum, [](VD a, VD b) { return a != a ? a : (a < b ? a : b); });
  t.row<2>(Map::fmax, [](VD a, VD b) { return a != a ? b : (b != b ? a : (a > b ? a : b)); });
  t.row<2>(Map::fmin, [](VD a, VD b) { return a != a ? b : (b != b ? a : (a < b ? a : b)); });
  t.row<2>(Map::atan2, [](VD y, VD x) { return double_atan2(y, x); });
  t.row<2>(Map::ldexp, [](VD a, VD b) {
    // Whole exponents do not pass through 2^b, which may leave the range where the product does not.
    const VD near = b > 2000.0 ? set1(2000.0) : (b < -2000.0 ? set1(-2000.0) : b);
    const auto whole = (truncated(near) == near) & (absolute(b) < 100000.0);
    VD y = scale_by_power(a, whole ? near : VD{});
    const VL rare = ~(VL)whole;
    if (any_lane(rare)) [[unlikely]]
      for (int i = 0; i < kLanes<double>; ++i)
        if (rare[i]) y[i] = a[i] * std::exp2(b[i]);
    return y;
  });
  t.row<2>(Map::hypot, [](VD a, VD b) { return double_hypot(a, b); });
  t.row<2>(Map::logaddexp, [](VD a, VD b) {
    const VD y = (a > b ? a : b) + log1p_inside(exp(-absolute(a - b)));
    return a == b ? a + 0.69314718055994531 : y;  // equal infinities too
  });
  t.row<2>(Map::logaddexp2, [](VD a, VD b) {
    const VD y = fma(log1p_inside(exp2_of(-absolute(a - b), VD{})), set1(kLog2OfE), a > b ? a : b);
    return a == b ? a + 1.0 : y;
  });
  t.row<2>(Map::xlogy, [](VD a, VD b) { return b != b ? b : (a == 0.0 ? VD{} : a * log_of(b)); });
  t.row<2>(Map::xlog1py, [](VD a, VD b) { return b != b ? b : (a == 0.0 ? VD{} : a * log1p_of(b)); });
  t.row<2>(Map::copysign, [](VD a, VD b) { return with_sign_of(a, b); });
  t.row<2>(Map::heaviside, [](VD a, VD b) { return a == 0.0 ? b : (a > 0.0 ? set1(1.0) : VD{}); });
  t.row<2>(Map::prelu, [](VD a, VD b) { return a > 0.0 ? a : a * b; });
  t.row<2>(Map::nextafter, [](VD a, VD b) {
    // The numbers of one sign are in the order of their bits.
    const VLU u = bits<VLU>(a), one = u | 1;
    const VD least = with_sign_of(bits<VD>(one & 1), b);
    const VL up = (a < b) == (a > 0.0);  // -1 away from 0, 0 towards it
    const VD next = bits<VD>(u - bits<VLU>(up) - bits<VLU>(up + 1));
    const VD y = a == 0.0 ? least : next;
    return a != a ? a : (b != b ? b : (a == b ? b : y));
  });
  t.row<3>(Map::addcmul, [](VD x, VD a, VD b, C c) { return fma(c.a * a, b, x); });
  t.row<3>(Map::addcdiv, [](VD x, VD a, VD b, C c) { return fma(c.a, a / b, x); });
  t.row<3>(Map::lerp, [](VD a, VD b, VD w) {
    const VD d = b - a;
    return w < 0.5 ? fma(w, d, a) : fma(d, w - 1.0, b);
  });
  t.row<1>(Map::entr, [](VD x) {
    const VD y = x == 0.0 ? VD{} : -x * log_of(x);
    return x < 0.0 ? set1(-kInfinity) : (x != x ? x : y);
  });
  t.row<1>(Map::logit, [](VD x, C c) {
    const double eps = c.a[0];
    if (eps < 0) return double_logit(x);
    const VD low = x < eps ? c.a : x;
    return double_logit(low > 1.0 - eps ? set1(1.0 - eps) : low);
  });
  t.row<1>(Map::ndtr, [](VD x) { return double_normal(x).cdf; });
}
#endif

static DoubleTable make_double_table() {
  DoubleTable t;
#if STRATA_VEC_LEVEL >= 1
  double_unary_rows(t);
  double_activation_rows(t);
  double_arithmetic_rows(t);
#endif
  return t;
}
static DenseMap double_map_of(Map m) {
  static const DoubleTable table = make_double_table();
  return table.map[static_cast<size_t>(m)];
}

}  // namespace strata::STRATA_VEC_NS
