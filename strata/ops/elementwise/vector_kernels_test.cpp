// The vectorised kernels of doubles, whole numbers and special functions beside the plain loops and beside long double,
// on every processor level: accuracy, special values, and that no result depends on its place.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "strata/core/dispatch.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/copy/copy_kernels.h"
#include "strata/ops/elementwise/kernels.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/factory/ranges.h"
#include "strata/ops/vec/level.h"

namespace strata {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();

template <class F>
void on_every_level(F f) {
  for (int level = 0; level <= 3; ++level) {
    set_vec_level(level);
    if (vec_level() == level) f(level);
  }
  set_vec_level(-1);
}
MapParams params_of(double a = 0, double b = 0, double c = 0) {
  MapParams p;
  p.s[0] = a, p.s[1] = b, p.s[2] = c;
  return p;
}
std::vector<double> numbers(int64_t n, double low, double high, bool logarithmic, uint64_t seed = 1) {
  std::mt19937_64 g(seed);
  std::uniform_real_distribution<double> u(0, 1);
  std::vector<double> x(static_cast<size_t>(n));
  for (double& v : x)
    v = logarithmic ? std::exp(std::log(low) + (std::log(high) - std::log(low)) * u(g)) : low + (high - low) * u(g);
  return x;
}
std::vector<double> run(DenseMap f, const std::vector<double>& x, const std::vector<double>& more,
                        const MapParams& params) {
  std::vector<double> y(x.size());
  const void* in[] = {x.data(), more.data(), x.data()};
  f(y.data(), in, static_cast<int64_t>(x.size()), params);
  return y;
}
bool same(double a, double b) {
  return std::memcmp(&a, &b, sizeof a) == 0 || (a != a && b != b);
}

using Real = long double;
struct Function {
  const char* name;
  Map map;
  Real (*want)(Real);
  double low, high;
  bool logarithmic;
  double ulps;
  double a = 0, b = 0;
};
Real cdf(Real x) {
  return 0.5L * std::erfc(-x * 0.707106781186547524400844362104849L);
}
const Function kFunctions[] = {
    {"exp", Map::exp, std::exp, -700, 709.7, false, 1},
    {"exp2", Map::exp2, std::exp2, -1020, 1023.9, false, 1},
    {"expm1", Map::expm1, std::expm1, -40, 709, false, 2},
    {"expm1 near 0", Map::expm1, std::expm1, 1e-300, 1, true, 2},
    {"log", Map::log, std::log, 1e-320, 1e308, true, 1},
    {"log near 1", Map::log, std::log, 0.5, 2, false, 1},
    {"log2", Map::log2, std::log2, 0.5, 2, false, 1},
    {"log10", Map::log10, std::log10, 1e-300, 1e300, true, 1},
    {"log1p", Map::log1p, std::log1p, -0.9999, 5, false, 1},
    {"log1p near 0", Map::log1p, std::log1p, 1e-300, 1e300, true, 1},
    {"sin", Map::sin, std::sin, -10, 10, false, 1},
    {"cos", Map::cos, std::cos, -10, 10, false, 1},
    {"sin of more", Map::sin, std::sin, 1, 499999, true, 1},
    {"tan", Map::tan, std::tan, -10, 10, false, 2.5},
    {"asin", Map::asin, std::asin, -1, 1, false, 2},
    {"acos", Map::acos, std::acos, -1, 1, false, 1.5},
    {"atan", Map::atan, std::atan, -10, 10, false, 2},
    {"sinh", Map::sinh, std::sinh, 1e-300, 709, true, 2},
    {"cosh", Map::cosh, std::cosh, -709, 709, false, 2},
    {"tanh", Map::tanh, std::tanh, -20, 20, false, 2.5},
    {"asinh", Map::asinh, std::asinh, 1e-300, 1e300, true, 2},
    {"acosh", Map::acosh, std::acosh, 1, 10, false, 2},
    {"atanh", Map::atanh, std::atanh, -1, 1, false, 2},
    {"erf", Map::erf, std::erf, -6, 6, false, 2},
    {"erfc", Map::erfc, std::erfc, -6, 26, false, 4},
    {"ndtr", Map::ndtr, cdf, -37, 8, false, 5},
    {"sigmoid", Map::sigmoid, [](Real x) { return 1 / (1 + std::exp(-x)); }, -700, 700, false, 2.5},
    {"softplus", Map::softplus, [](Real x) { return std::log1p(std::exp(x)); }, -30, 30, false, 2, 1, 1000},
    {"mish", Map::mish, [](Real x) { return x * std::tanh(std::log1p(std::exp(x))); }, -30, 30, false, 4},
    {"gelu", Map::gelu, [](Real x) { return x * cdf(x); }, -30, 30, false, 6},
    {"silu", Map::silu, [](Real x) { return x / (1 + std::exp(-x)); }, -700, 30, false, 3},
    {"logit", Map::logit, [](Real x) { return std::log(x / (1 - x)); }, 1e-310, 0.9, true, 3, -1},
    {"power", Map::pow_scalar, [](Real x) { return std::pow(x, 100.5L); }, 0.01, 1000, true, 1, 100.5},
    {"power near 1", Map::pow_scalar, [](Real x) { return std::pow(x, 1e5L); }, 0.994, 1.006, false, 1, 1e5},
    {"power of", Map::scalar_pow, [](Real x) { return std::pow(3.0L, x); }, -600, 600, false, 1, 3},
};

// The lowest level has no vectors of doubles: there the library's own functions answer.
TEST(Doubles, WithinUnitsInTheLastPlace) {
  on_every_level([](int level) {
    for (const Function& f : kFunctions) {
      const DenseMap map = simd_double_map(f.map);
      if (!map) continue;
      const std::vector<double> x = numbers(4003, f.low, f.high, f.logarithmic);
      const std::vector<double> y = run(map, x, x, params_of(f.a, f.b));
      double worst = 0, at = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        const Real want = f.want(x[i]);
        const auto near = static_cast<double>(want);
        if (std::abs(near) < 1e-300) continue;  // subnormal numbers have fewer digits
        const double ulp = std::nextafter(std::abs(near), kInf) - std::abs(near);
        const auto error = static_cast<double>(std::abs(y[i] - want) / ulp);
        if (!(error <= worst)) worst = error, at = x[i];
      }
      EXPECT_LE(worst, f.ulps) << f.name << "(" << at << ") on level " << level;
    }
  });
}

// Of every function that has both kinds of kernels: special values as the plain loop gives them, near values elsewhere,
// and the same bits wherever an element lies.
TEST(Doubles, AgreeWithThePlainLoops) {
  const double special[] = {0.0,   -0.0, 1,     -1,     0.5,    -0.5,   2,     -2,     3,     1e-310, -1e-310, 1e-20,
                            1e300, kInf, -kInf, kNan,   1e-300, -1e300, 709.5, -745.2, 710.2, 27.5,   5e-324,  1.5,
                            37.5,  1e10, -1e10, 600000, 20.5,   -20.5,  1e100, -3.5,   88.7,  -104,   0.25,    4};
  on_every_level([&](int level) {
    for (size_t m = 0; m < static_cast<size_t>(Map::count); ++m) {
      const Map f = static_cast<Map>(m);
      const DenseMap numbers = simd_double_map(f), plain = scalar_map(f, DType::f64);
      const DenseMap map = numbers ? numbers : simd_special_map(f, DType::f64);
      // Far below 0 the plain form of gelu's approximation is 1 - 1.
      if (!map || f == Map::where || f == Map::gelu_tanh || f == Map::gelu_tanh_backward) continue;
      std::vector<double> x, more;
      for (const double v : special)
        for (const double w : special) x.push_back(v), more.push_back(w);
      const bool digits = f == Map::bessel_i || f == Map::polygamma || f == Map::polynomial;
      const MapParams params = f == Map::polynomial   ? params_of(11, 0)
                               : digits               ? params_of(1, 1)
                               : f == Map::logit      ? params_of(-1)
                               : f == Map::hardtanh   ? params_of(-1, 1)
                               : f == Map::clamp      ? params_of(-1, 1)
                               : f == Map::pow_scalar ? params_of(1.7)
                                                      : params_of(1, 2, 3);
      const std::vector<double> got = run(map, x, more, params), want = run(plain, x, more, params);
      for (size_t i = 0; i < x.size(); ++i) {
        const double bound = 1e-13 * std::abs(want[i]) + 1e-307;
        // Where both are huge or nothing at all, formulas may leave the range one after the other.
        const bool edge = std::abs(want[i]) > 1e307 && std::abs(got[i]) > 1e307;
        EXPECT_TRUE(same(got[i], want[i]) || std::abs(got[i] - want[i]) <= bound || edge)
            << "function " << m << " of " << x[i] << ", " << more[i] << ": " << got[i] << ", wanted " << want[i]
            << " on level " << level;
      }
      // Shifted by one element, and one by one.
      for (size_t i = 0; i < 100; ++i) {
        double alone = 0;
        const void* in[] = {&x[i], &more[i], &x[i]};
        map(&alone, in, 1, params);
        EXPECT_TRUE(same(alone, got[i])) << "function " << m << " of " << x[i] << " alone on level " << level;
      }
      std::vector<double> shifted(x.size() - 1);
      const void* in[] = {x.data() + 1, more.data() + 1, x.data() + 1};
      map(shifted.data(), in, static_cast<int64_t>(shifted.size()), params);
      for (size_t i = 0; i < shifted.size(); ++i)
        EXPECT_TRUE(same(shifted[i], got[i + 1])) << "function " << m << " of " << x[i + 1] << " on level " << level;
    }
  });
}

TEST(SpecialVectors, AgreeWithThePlainLoops) {
  struct Case {
    Map map;
    double low, high;
    bool logarithmic;
    double a = 0, b = 0, more_low = 0, more_high = 0;
    double bound = 1e-14;
  };
  const Case cases[] = {{Map::lgamma, 0, 20, false},
                        {Map::lgamma, 0.99, 2.01, false},
                        {Map::lgamma, 1e-300, 1e300, true},
                        {Map::lgamma, -20, 0, false, 0, 0, 0, 0, 1e-12},
                        {Map::digamma, 0, 20, false},
                        {Map::digamma, 1.46, 1.4633, false},
                        {Map::digamma, 1e-300, 1e300, true},
                        {Map::digamma, -20, 0, false, 0, 0, 0, 0, 1e-11},
                        {Map::polygamma, -20, 20, false, 1, 1, 0, 0, 1e-13},
                        {Map::polygamma, 0.01, 200, true, 3, 1},
                        {Map::polygamma, 0.01, 200, true, 9, 1},
                        {Map::erfcx, -26, 20, false},
                        {Map::erfcx, 1e-10, 1e300, true},
                        {Map::log_ndtr, -40, 5, false},
                        {Map::erfinv, -1, 1, false},
                        {Map::erfinv, 1e-300, 1, true},
                        {Map::ndtri, 0, 1, false},
                        {Map::ndtri, 1e-310, 1, true},
                        {Map::airy, -9, 10, false, 0, 0, 0, 0, 1e-11},
                        {Map::airy, -9, 10, false, 1, 0, 0, 0, 1e-11},
                        {Map::sinc, -20, 20, false, 0, 0, 0, 0, 1e-13}};
  on_every_level([&](int level) {
    for (const Case& c : cases) {
      const DenseMap map = simd_special_map(c.map, DType::f64), plain = scalar_map(c.map, DType::f64);
      if (!map) continue;
      const std::vector<double> x = numbers(3001, c.low, c.high, c.logarithmic);
      const MapParams params = params_of(c.a, c.b);
      const std::vector<double> got = run(map, x, x, params), want = run(plain, x, x, params);
      for (size_t i = 0; i < x.size(); ++i)
        EXPECT_LE(std::abs(got[i] - want[i]), c.bound * std::abs(want[i]) + 1e-307)
            << "function " << static_cast<int>(c.map) << " of " << x[i] << ": " << got[i] << ", wanted " << want[i]
            << " on level " << level;
    }
  });
}

// In f32 the double's result, rounded: at most a neighbour of the plain loop's.
TEST(SpecialVectors, OfFloatsAreTheDoubleRounded) {
  struct Case {
    Map map;
    double low, high, more_low, more_high;
    double a = 0, b = 0;
    bool whole = false;
  };
  std::vector<Case> cases = {{Map::lgamma, -20, 40, 0, 1},
                             {Map::digamma, -20, 40, 0, 1},
                             {Map::erfcx, -9, 20, 0, 1},
                             {Map::log_ndtr, -40, 8, 0, 1},
                             {Map::ndtri, 0, 1, 0, 1},
                             {Map::zeta, 1, 20, -2, 20},
                             {Map::zeta, 1, 1.5, 0.01, 20},
                             {Map::igamma, 0, 20, 0, 20},
                             {Map::igamma, 0, 20, 0, 20, 1},
                             {Map::igamma, 0, 300, 0, 300},
                             {Map::igamma, 0, 300, 0, 300, 1},
                             {Map::igamma, 0, 2, 0, 2, 1},
                             {Map::polygamma, -5, 20, 0, 1, 1, 1},
                             {Map::polygamma, -5, 20, 0, 1, 2, -1}};
  for (int family = 0; family < 12; ++family)
    cases.push_back({Map::polynomial, -1.5, 1.5, -1, 50, static_cast<double>(family), 0, true});
  on_every_level([&](int level) {
    for (const Case& c : cases) {
      const DenseMap map = simd_special_map(c.map, DType::f32), plain = scalar_map(c.map, DType::f32);
      if (!map) continue;
      const std::vector<double> wide = numbers(2003, c.low, c.high, false);
      const std::vector<double> more_wide = numbers(2003, c.more_low, c.more_high, false, 2);
      std::vector<float> x(wide.begin(), wide.end()), more(more_wide.begin(), more_wide.end());
      if (c.whole)
        for (float& v : more) v = std::floor(v);
      std::vector<float> got(x.size()), want(x.size());
      const void* in[] = {x.data(), more.data(), x.data()};
      map(got.data(), in, static_cast<int64_t>(x.size()), params_of(c.a, c.b));
      plain(want.data(), in, static_cast<int64_t>(x.size()), params_of(c.a, c.b));
      for (size_t i = 0; i < x.size(); ++i) {
        if (want[i] == got[i] || (want[i] != want[i] && got[i] != got[i])) continue;
        const float ulp = std::nextafter(std::abs(want[i]), std::numeric_limits<float>::infinity()) - std::abs(want[i]);
        EXPECT_LE(std::abs(got[i] - want[i]), ulp)
            << "function " << static_cast<int>(c.map) << " (" << c.a << ") of " << x[i] << ", " << more[i] << ": "
            << got[i] << ", wanted " << want[i] << " on level " << level;
      }
    }
  });
}

TEST(WholeNumbers, VectorsGiveWhatThePlainLoopsGive) {
  on_every_level([](int level) {
    for (size_t m = 0; m < static_cast<size_t>(Map::count); ++m)
      for (const DType t : {DType::u8, DType::i8, DType::i16, DType::i32, DType::i64, DType::boolean}) {
        const Map f = static_cast<Map>(m);
        const DenseMap map = simd_map(f, t), plain = scalar_map(f, t);
        if (!map) continue;
        ASSERT_TRUE(plain);
        dispatch_all(t, "test", [&]<class T>() {
          if constexpr (std::is_same_v<T, bool> || std::is_integral_v<T>) {
            std::mt19937_64 g(m);
            constexpr size_t n = 331;
            alignas(64) T x[n + 64], more[n + 64], got[n] = {}, want[n] = {};
            for (size_t i = 0; i < n + 64; ++i) {
              x[i] = static_cast<T>(g());
              // Shifts within and beyond the type's bits.
              more[i] = i % 2 == 0 ? static_cast<T>(g()) : static_cast<T>(g() % 70);
              if constexpr (std::is_same_v<T, bool>) x[i] = g() % 2, more[i] = g() % 2;
              const bool divides =
                  f == Map::floor_divide || f == Map::trunc_divide || f == Map::remainder || f == Map::fmod;
              if (divides && more[i] == 0) more[i] = 1;
              if (divides && i % 16 == 9) more[i] = static_cast<T>(-1);
            }
            x[0] = std::numeric_limits<T>::min();
            x[1] = std::numeric_limits<T>::max();
            const void* in[] = {x, more, x};
            MapParams params = params_of(1, 100, 3);
            map(got, in, n, params);
            plain(want, in, n, params);
            for (size_t i = 0; i < n; ++i)
              ASSERT_EQ(got[i], want[i]) << "function " << m << " of " << +x[i] << ", " << +more[i] << " in "
                                         << static_cast<int>(t) << " on level " << level;
            // One operand that stands for all.
            T repeated[n];
            for (T& v : repeated) v = more[5];
            const void* one[] = {x, repeated, x};
            plain(want, one, n, params);
            params.step[1] = 0;
            const void* first[] = {x, more + 5, x};
            map(got, first, n, params);
            for (size_t i = 0; i < n; ++i) ASSERT_EQ(got[i], want[i]) << "function " << m << ", repeated";
          }
        });
      }
  });
}

// Functions that have kernels of 16 bits alone: every number there is, beside long double. Below the least normal
// number what counts is the distance in units of the least one.
TEST(Halves, EveryNumberIsNearlyRoundedRight) {
  struct Case {
    const char* name;
    Map map;
    Real (*want)(Real);
    double a = 0;
  };
  const Case cases[] = {
      {"erf", Map::erf, [](Real x) { return std::erf(x); }},
      {"ndtr", Map::ndtr, cdf},
      {"logit", Map::logit, [](Real x) { return x < 0 || x > 1 ? Real(kNan) : std::log(x / (1 - x)); }, -1},
      {"logit within 0.01", Map::logit,
       [](Real x) {
         const Real v = x < 0.01L ? 0.01L : (x > 0.99L ? 0.99L : x);
         return x != x ? x : std::log(v / (1 - v));
       },
       0.01},
  };
  on_every_level([&](int level) {
    for (const DType t : {DType::f16, DType::bf16}) {
      const int digits = t == DType::f16 ? 11 : 8, least = t == DType::f16 ? -14 : -126;
      for (const Case& c : cases) {
        const DenseMap map = simd_map(c.map, t);
        ASSERT_TRUE(map) << c.name;
        std::vector<uint16_t> x(65536), y(65536);
        for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint16_t>(i);
        const void* in[] = {x.data(), x.data(), x.data()};
        map(y.data(), in, 65536, params_of(c.a));
        std::vector<float> from(65536), got(65536);
        const auto widen = t == DType::f16 ? converters().f16_to_f32 : converters().bf16_to_f32;
        widen(from.data(), x.data(), 65536);
        widen(got.data(), y.data(), 65536);
        for (size_t i = 0; i < x.size(); ++i) {
          const Real want = c.want(from[i]);
          if (want != want || std::isinf(static_cast<float>(want))) {
            EXPECT_TRUE(same(got[i], static_cast<float>(want))) << c.name << "(" << from[i] << ") is " << got[i];
            continue;
          }
          // The processor's own rounding to bf16, which the highest level has, takes these as 0.
          if (t == DType::bf16 && std::abs(want) < 0x1p-126L && got[i] == 0) continue;
          const Real unit =
              std::ldexp(Real(1), std::max(std::ilogb(want == 0 ? Real(1e-300) : want), least) - digits + 1);
          EXPECT_LE(std::abs(got[i] - want) / unit, 0.75)
              << c.name << "(" << from[i] << ") is " << got[i] << " on level " << level;
        }
      }
    }
  });
}
// What is done to the bits is what the plain loops of f32 do.
TEST(Halves, SignsByBits) {
  on_every_level([&](int level) {
    std::vector<uint16_t> x(65536), more(65536), y(65536);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<uint16_t>(i), more[i] = static_cast<uint16_t>(i * 40503u);
    for (const DType t : {DType::f16, DType::bf16})
      for (const Map f : {Map::neg, Map::abs, Map::copysign})
        for (const int8_t step : {1, 0}) {
          const void* in[] = {x.data(), more.data() + 77, x.data()};
          MapParams params;
          params.step[1] = step;
          simd_map(f, t)(y.data(), in, 60001, params);
          for (size_t i = 0; i < 60001; ++i) {
            const uint16_t sign = more[77 + (step ? i : 0)];
            const int want = f == Map::neg   ? x[i] ^ 0x8000
                             : f == Map::abs ? x[i] & 0x7fff
                                             : (x[i] & 0x7fff) | (sign & 0x8000);
            ASSERT_EQ(y[i], want) << "function " << static_cast<int>(f) << " of " << x[i] << " on level " << level;
          }
        }
  });
}

// Rows in one call have the bits that they have one by one, whichever operands are one number a row.
TEST(Rows, OfOneCallAreThoseOfMany) {
  on_every_level([&](int level) {
    for (const DType t : {DType::f32, DType::f16, DType::bf16})
      for (const Map f : {Map::add, Map::div, Map::prelu, Map::addcmul})
        for (const int64_t n : {16, 37, 100})
          for (int one = 0; one < 8; ++one) {
            const int64_t rows = 5, size = size_of(t), step = n + 3;
            const int inputs = f == Map::addcmul ? 3 : 2;
            const RowsMap many = simd_rows_map(f, t);
            ASSERT_TRUE(many);
            std::vector<char> memory[4];
            char* p[4];
            int64_t strides[4], row_strides[4];
            for (int k = 0; k <= inputs; ++k) {
              const std::vector<double> drawn = numbers(rows * step + 64, 0.5, 2, false, static_cast<uint64_t>(k) + 7);
              const Tensor v = to(from_span<double>(drawn, {rows * step + 64}), t);
              memory[k].assign(static_cast<const char*>(v.raw_data()),
                               static_cast<const char*>(v.raw_data()) + v.nbytes());
              p[k] = memory[k].data();
              strides[k] = k > 0 && (one >> (k - 1) & 1) ? 0 : size;
              row_strides[k] = step * size;
            }
            many(p, strides, row_strides, n, rows, params_of(0.5));
            for (int64_t row = 0; row < rows; ++row) {
              std::vector<char> operand[3], want(static_cast<size_t>(n * size));
              const void* in[3] = {};
              for (int k = 0; k < inputs; ++k) {
                const char* from = p[k + 1] + row * row_strides[k + 1];
                for (int64_t i = 0; i < n; ++i)
                  operand[k].insert(operand[k].end(), from + i * strides[k + 1], from + i * strides[k + 1] + size);
                in[k] = operand[k].data();
              }
              simd_map(f, t)(want.data(), in, n, params_of(0.5));
              EXPECT_EQ(std::memcmp(want.data(), p[0] + row * row_strides[0], want.size()), 0)
                  << "function " << static_cast<int>(f) << ", n " << n << ", repeated " << one << " on level " << level;
            }
          }
  });
}

// where() with any of its operands one element that stands for all.
TEST(WholeNumbers, ChosenFromOneElement) {
  on_every_level([](int level) {
    for (const DType t : {DType::u8, DType::i16, DType::i32, DType::f64})
      dispatch_all(t, "test", [&]<class T>() {
        if constexpr (std::is_arithmetic_v<T>) {
          constexpr int64_t n = 131;
          uint8_t condition[n];
          T yes[n], no[n], got[n];
          for (int64_t i = 0; i < n; ++i)
            condition[i] = i % 3 == 1, yes[i] = static_cast<T>(i), no[i] = static_cast<T>(n - i);
          for (int steps = 0; steps < 8; ++steps) {
            MapParams params = params_of(0);
            for (int k = 0; k < 3; ++k) params.step[k] = steps >> k & 1;
            for (const int64_t at : {0, 1}) {  // of a condition that is false, and one that is true
              const void* in[] = {condition + at, yes, no};
              const int64_t many = n - at;
              simd_map(Map::where, t)(got, in, many, params);
              for (int64_t i = 0; i < many; ++i) {
                const bool which = condition[at + i * params.step[0]] != 0;
                EXPECT_EQ(got[i], which ? yes[i * params.step[1]] : no[i * params.step[2]])
                    << i << ", steps " << steps << ", level " << level;
              }
            }
          }
        }
      });
  });
}

TEST(Questions, VectorsAnswerWhatThePlainLoopsAnswer) {
  const double special[] = {0.0, -0.0, 1, -1, 5e-324, kInf, -kInf, kNan, -kNan, 1e308, -1e308};
  std::vector<double> x, more;
  for (int round = 0; round < 3; ++round)
    for (const double v : special)
      for (const double w : special) x.push_back(v), more.push_back(w);
  on_every_level([&](int level) {
    for (size_t m = 0; m < static_cast<size_t>(Map::count); ++m) {
      const Map f = static_cast<Map>(m);
      const DenseMap map = simd_whole_map(f, DType::f64), plain = scalar_map(f, DType::f64);
      if (!map || f == Map::where) continue;  // which is no question
      std::vector<uint8_t> got(x.size()), want(x.size());
      const void* in[] = {x.data(), more.data(), x.data()};
      map(got.data(), in, static_cast<int64_t>(x.size()), {});
      plain(want.data(), in, static_cast<int64_t>(x.size()), {});
      EXPECT_EQ(got, want) << "function " << m << " on level " << level;
    }
  });
}

TEST(EverySecondElement, IsGatheredWithoutReadingPastTheEnd) {
  on_every_level([](int level) {
    for (const int64_t size : {1, 2, 4, 8})
      for (const int64_t n : {0, 1, 2, 15, 16, 17, 64, 65, 129}) {
        std::vector<char> from(static_cast<size_t>(n == 0 ? 0 : (2 * n - 1) * size)), to(static_cast<size_t>(n * size));
        for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<char>(i * 7 + 3);
        gather_second(size, to.data(), from.data(), n);
        for (int64_t i = 0; i < n; ++i)
          EXPECT_EQ(std::memcmp(to.data() + i * size, from.data() + 2 * i * size, static_cast<size_t>(size)), 0)
              << "element " << i << " of " << n << ", " << size << " bytes each, on level " << level;
      }
  });
}

TEST(StridedLines, AreCopiedWhereTheyBelongAndNowhereElse) {
  on_every_level([](int level) {
    for (const DType t : {DType::u8, DType::i16, DType::i32, DType::i64})
      for (const int64_t n : {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 33, 64, 65, 130})
        for (const int64_t from_step : {1, 2, 3})
          for (const int64_t to_step : {1, 2}) {
            const int64_t rows = 6, width = n * from_step + 1, wide = n * to_step + 2, size = size_of(t);
            const Tensor from = arange(1, rows * width + 1, 1, DType::i64).to(t).view({rows, width});
            const Tensor to = zeros({rows, wide}, t);
            to.slice(1, 2, wide, to_step).copy_(from.slice(1, 1, width, from_step));
            const char *a = static_cast<const char*>(from.raw_data()), *b = static_cast<const char*>(to.raw_data());
            std::vector<char> want(static_cast<size_t>(to.nbytes()));
            for (int64_t r = 0; r < rows; ++r)
              for (int64_t i = 0; i < n; ++i)
                std::memcpy(want.data() + (r * wide + 2 + i * to_step) * size,
                            a + (r * width + 1 + i * from_step) * size, static_cast<size_t>(size));
            ASSERT_EQ(std::memcmp(want.data(), b, want.size()), 0)
                << n << " elements of " << size << " bytes, steps " << from_step << " and " << to_step << ", level "
                << level;
          }
  });
}

}  // namespace
}  // namespace strata
