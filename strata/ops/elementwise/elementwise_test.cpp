// What the generated verification does not see: promotion, special values, in-place forms, errors of values, every
// processor level, and accuracy over whole ranges.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "strata/autograd/autograd.h"
#include "strata/core/node.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/elementwise/kernels.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/vec/level.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

template <class T>
Tensor vec(std::vector<T> v) {
  return from_span<T>(std::span<const T>(v), {static_cast<int64_t>(v.size())});
}
Tensor f32(std::vector<float> v) {
  return vec<float>(std::move(v));
}
std::vector<float> floats(const Tensor& t) {
  return t.to_vector<float>();
}

TEST(Promotion, TensorsNumbersAndZeroDimensions) {
  const Tensor i32 = full({2}, 3, DType::i32), u8 = full({2}, 3, DType::u8), b16 = full({2}, 3, DType::bf16);
  const Tensor zero_dim_f64 = full({}, 0.5, DType::f64), zero_dim_i64 = full({}, 2);
  EXPECT_EQ((i32 + u8).dtype(), DType::i32);
  EXPECT_EQ((i32 * 2.0).dtype(), DType::f32);
  EXPECT_EQ((u8 - 1).dtype(), DType::u8);
  EXPECT_EQ((i32 / 2).dtype(), DType::f32);
  EXPECT_EQ((i32 % 2).dtype(), DType::i32);
  EXPECT_EQ((b16 * 0.1).dtype(), DType::bf16);
  EXPECT_EQ((b16 + full({2}, 1, DType::f16)).dtype(), DType::f32);
  EXPECT_EQ((b16 + zero_dim_f64).dtype(), DType::bf16);
  EXPECT_EQ((i32 + zero_dim_f64).dtype(), DType::f64);
  EXPECT_EQ((i32 + zero_dim_i64).dtype(), DType::i32);
  EXPECT_EQ((full({2}, true) + 1).dtype(), DType::i64);
  EXPECT_EQ(exp(i32).dtype(), DType::f32);
  EXPECT_EQ((i32 > 2.5).dtype(), DType::boolean);
  EXPECT_EQ(sum(i32 > 2.5).item<int>(), 2);
  EXPECT_EQ(pow(i32, 2).dtype(), DType::i32);
  EXPECT_EQ(pow(i32, 0.5).dtype(), DType::f32);
  EXPECT_EQ(floor(i32).dtype(), DType::i32);
  EXPECT_EQ(where(full({2}, true), i32, 1.5).dtype(), DType::f32);
  EXPECT_EQ(clamp(i32, 0, 2.5).dtype(), DType::f32);
}

TEST(Promotion, NumbersKeepTheirDigitsInBf16) {
  const Tensor x = full({1}, 255, DType::bf16);
  EXPECT_EQ((x * 0.1).item<float>(), static_cast<float>(BFloat16(255.0f * 0.1f)));
  EXPECT_EQ((x + 0.4).item<float>(), static_cast<float>(BFloat16(255.4f)));
}

TEST(Arithmetic, IntegersWrapAndDivideLikePython) {
  EXPECT_EQ((full({1}, 250, DType::u8) + 10).item<int>(), 4);
  EXPECT_EQ(neg(full({1}, -128, DType::i8)).item<int>(), -128);
  EXPECT_EQ(floor_divide(full({1}, -7), 2).item<int>(), -4);
  EXPECT_EQ(div(full({1}, -7), full({1}, 2), "trunc").item<int>(), -3);
  EXPECT_EQ((full({1}, -7) % 3).item<int>(), 2);
  EXPECT_EQ(fmod(full({1}, -7), 3).item<int>(), -1);
  EXPECT_EQ(floor_divide(full({1}, INT64_MIN), -1).item<int64_t>(), INT64_MIN);
  EXPECT_EQ((full({1}, INT64_MIN) % -1).item<int64_t>(), 0);
  EXPECT_EQ(pow(full({1}, 3), 4).item<int>(), 81);
  EXPECT_FLOAT_EQ((f32({-7.5f}) % 2.0).item<float>(), 0.5f);
  EXPECT_FLOAT_EQ(floor_divide(f32({-7.5f}), 2.0).item<float>(), -4.0f);
  EXPECT_EQ(bitwise_left_shift(full({1}, 1, DType::u8), full({1}, 9, DType::u8)).item<int>(), 0);
  EXPECT_EQ(bitwise_right_shift(full({1}, -8), full({1}, 70)).item<int>(), -1);
}

// Shifts by all that leaves nothing, or the sign alone: as many bits as there are, more, and less than none.
TEST(Arithmetic, ShiftsBeyondTheBitsLeaveZeroOrTheSign) {
  for (const DType type : {DType::u8, DType::i8, DType::i16, DType::i32, DType::i64}) {
    const int bits = 8 * static_cast<int>(size_of(type));
    for (const int v : {5, -7, 127}) {
      if (v < 0 && type == DType::u8) continue;
      for (const int by : {0, 1, 3, 7, 8, bits - 1, bits, bits + 1, 33, 65, 100, -1, -64}) {
        if (by < 0 && type == DType::u8) continue;
        const Tensor a = full({37}, v, type), b = full({37}, by, type);
        const bool over = by < 0 || by >= bits;
        const int64_t left = over ? 0 : static_cast<int64_t>(static_cast<uint64_t>(int64_t{v}) << by);
        const int64_t right = over ? (v < 0 ? -1 : 0) : int64_t{v} >> by;
        EXPECT_EQ(bitwise_left_shift(a, b).to_vector<int64_t>(),
                  full({37}, left, DType::i64).to(type).to_vector<int64_t>())
            << cat(type, " ", v, " << ", by);
        EXPECT_EQ(bitwise_right_shift(a, b).to_vector<int64_t>(), std::vector<int64_t>(37, right))
            << cat(type, " ", v, " >> ", by);
      }
    }
  }
}

TEST(Arithmetic, IntegerDivisionByZeroIsAnError) {
  const Tensor a = full({40000}, 3), zero = full({1}, 0);
  EXPECT_THROW(floor_divide(a, zero), ValueError);
  EXPECT_THROW(trunc_divide(a, zero), ValueError);
  EXPECT_THROW(a % zero, ValueError);
  EXPECT_THROW(fmod(a, zero), ValueError);
  EXPECT_TRUE(std::isinf((a / zero).select(0, 0).item<float>()));
  EXPECT_THROW(pow(a, -1), ValueError);
  EXPECT_THROW(div(a, a, "ceil"), ValueError);
}

TEST(Arithmetic, BoolIsLogic) {
  const Tensor t = full({1}, true), f = full({1}, false);
  EXPECT_EQ((t + t).dtype(), DType::boolean);
  EXPECT_TRUE((t + t).item<bool>());
  EXPECT_FALSE((t * f).item<bool>());
  EXPECT_THROW(t - f, DTypeError);
  EXPECT_THROW(-t, DTypeError);
  EXPECT_THROW(t.to(DType::f32) & f, DTypeError);
}

// The functions of one argument, with the double-precision function that each must follow.
struct Named {
  const char* name;
  Tensor (*f)(const Tensor&);
  double (*want)(double);
  double low, high;  // where it is compared
  double ulps;
};
double gelu_of(double x) {
  return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
}
double gelu_tanh_of(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
double sigmoid_of(double x) {
  return 1 / (1 + std::exp(-x));
}
double softplus_of(double x) {
  return std::fmax(x, 0) + std::log1p(std::exp(-std::fabs(x)));
}
const Named kFunctions[] = {
    {"exp", exp, std::exp, -86.5, 88.7, 3},
    {"exp2", exp2, std::exp2, -125, 127.9, 4},
    {"expm1", expm1, std::expm1, -20, 80, 4},
    {"log", log, std::log, 1e-38, 10, 3},
    {"log large", log, std::log, 1, 1e30, 3},
    {"log2", log2, std::log2, 1e-3, 100, 4},
    {"log10", log10, std::log10, 1e-3, 1000, 4},
    {"log1p", log1p, std::log1p, -0.999, 50, 5},
    {"log1p near 0", log1p, std::log1p, -1e-3, 1e-3, 4},
    {"tanh", tanh, std::tanh, -12, 12, 5},
    {"tanh near 0", tanh, std::tanh, -1e-3, 1e-3, 4},
    {"erf", erf, std::erf, -5, 5, 5},
    {"erfc", erfc, std::erfc, -5, 9, 80},  // without fused multiply-add the rounding of x^2 shows in the tail
    {"sigmoid", sigmoid, sigmoid_of, -80, 80, 5},
    {"rsqrt", rsqrt, [](double x) { return 1 / std::sqrt(x); }, 1e-6, 1e6, 3},
};

TEST(Accuracy, WithinUnitsInTheLastPlaceOnEveryLevel) {
  constexpr int64_t n = 20011;  // not a multiple of any vector
  for (int level = 0; level <= 3; ++level) {
    set_vec_level(level);
    if (vec_level() != level) continue;
    for (const Named& f : kFunctions) {
      std::vector<float> x(n);
      for (int64_t i = 0; i < n; ++i)
        x[static_cast<size_t>(i)] = static_cast<float>(f.low + (f.high - f.low) * static_cast<double>(i) / n);
      const std::vector<float> y = floats(f.f(f32(x)));
      double worst = 0, at = 0;
      for (size_t i = 0; i < y.size(); ++i) {
        const double want = f.want(x[i]);
        const float nearest = static_cast<float>(want);
        const double ulp = std::fabs(std::nextafter(nearest, kInf) - static_cast<double>(nearest));
        const double error = std::fabs(y[i] - want) / ulp;
        if (!(error <= worst)) worst = error, at = x[i];
      }
      EXPECT_LE(worst, f.ulps) << f.name << "(" << at << ") on level " << level;
    }
    // Near their zeros relative errors say nothing: these are compared in absolute terms.
    std::vector<float> x(n);
    for (int64_t i = 0; i < n; ++i) x[static_cast<size_t>(i)] = -12 + 24.0f * static_cast<float>(i) / n;
    const auto close = [&](const char* name, const Tensor& y, double (*want)(double)) {
      const std::vector<float> v = floats(y);
      double worst = 0;
      for (size_t i = 0; i < v.size(); ++i)
        worst = std::fmax(worst, std::fabs(v[i] - want(x[i])) / (1 + std::fabs(x[i])));
      EXPECT_LE(worst, 3e-7) << name << " on level " << level;
    };
    close("sin", sin(f32(x)), std::sin);
    close("cos", cos(f32(x)), std::cos);
    close("gelu", gelu(f32(x)), gelu_of);
    close("gelu tanh", gelu(f32(x), "tanh"), gelu_tanh_of);
    close("silu", silu(f32(x)), [](double v) { return v * sigmoid_of(v); });
    close("softplus", softplus(f32(x), 1, 30), softplus_of);
    close("mish", mish(f32(x)), [](double v) { return v * std::tanh(softplus_of(v)); });
  }
  set_vec_level(-1);
}

TEST(SpecialValues, InfinitiesAndNanOnEveryLevel) {
  const Tensor x = f32({kNan, kInf, -kInf, 0.0f, -0.0f, 1e30f, -1e30f, 1e-40f});
  struct Case {
    const char* name;
    Tensor (*f)(const Tensor&);
    double (*want)(double);
  };
  const Case cases[] = {
      {"exp", exp, std::exp},
      {"exp2", exp2, std::exp2},
      {"expm1", expm1, std::expm1},
      {"log", log, std::log},
      {"log2", log2, std::log2},
      {"log10", log10, std::log10},
      {"log1p", log1p, std::log1p},
      {"tanh", tanh, std::tanh},
      {"erf", erf, std::erf},
      {"erfc", erfc, std::erfc},
      {"sin", sin, std::sin},
      {"cos", cos, std::cos},
      {"sigmoid", sigmoid, sigmoid_of},
      {"sqrt", sqrt, std::sqrt},
      {"floor", floor, std::floor},
      {"ceil", ceil, std::ceil},
      {"round", round, std::nearbyint},
      {"trunc", trunc, std::trunc},
      {"abs", abs, std::fabs},
      {"relu", relu, [](double v) { return v < 0 ? 0 : v; }},
      {"softplus", [](const Tensor& t) { return softplus(t); }, softplus_of},
  };
  for (int level = 0; level <= 3; ++level) {
    set_vec_level(level);
    if (vec_level() != level) continue;
    for (const Case& c : cases) {
      const std::vector<float> in = floats(x), y = floats(c.f(x));
      for (size_t i = 0; i < in.size(); ++i) {
        const float want = static_cast<float>(c.want(in[i]));
        if (std::isnan(want))
          EXPECT_TRUE(std::isnan(y[i])) << c.name << "(" << in[i] << ") = " << y[i] << " on level " << level;
        else if (std::isinf(want))
          EXPECT_EQ(y[i], want) << c.name << "(" << in[i] << ") on level " << level;
        else
          EXPECT_NEAR(y[i], want, 1e-5 * std::fabs(want) + 1e-37) << c.name << "(" << in[i] << ") on level " << level;
      }
    }
  }
  set_vec_level(-1);
  EXPECT_TRUE(std::isnan(maximum(f32({kNan}), f32({1})).item<float>()));
  EXPECT_TRUE(std::isnan(minimum(f32({1}), f32({kNan})).item<float>()));
  EXPECT_EQ(fmax(f32({kNan}), f32({1})).item<float>(), 1);
  EXPECT_TRUE(std::isnan(clamp(f32({kNan}), 0, 1).item<float>()));
  EXPECT_EQ(floats(nan_to_num(f32({kNan, kInf, -kInf}), 1.5, 7, -7)), (std::vector<float>{1.5f, 7, -7}));
  EXPECT_FALSE(equal(f32({kNan}), f32({kNan})));
  EXPECT_TRUE(allclose(f32({kNan, kInf}), f32({kNan, kInf}), 1e-5, 1e-8, true));
}

TEST(Bf16, RoundsOnceToNearestEven) {
  // Every bf16 number through the vectorised path, against f32 arithmetic and one rounding.
  std::vector<BFloat16> all(65536);
  for (size_t i = 0; i < all.size(); ++i) {
    const auto bits = static_cast<uint16_t>(i);
    std::memcpy(static_cast<void*>(&all[i]), &bits, 2);
  }
  const Tensor x = vec<BFloat16>(all);
  for (int level = 0; level <= 3; ++level) {
    set_vec_level(level);
    if (vec_level() != level) continue;
    const std::vector<BFloat16> y = (x * 1.01171875).to_vector<BFloat16>();
    int wrong = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      const float product = static_cast<float>(all[i]) * 1.01171875f;
      // The processor's own bf16 conversion takes numbers below the smallest normal one for 0.
      if (std::fabs(product) < 1.2e-38f) continue;
      wrong += std::isnan(product) ? !std::isnan(static_cast<float>(y[i])) : BFloat16(product).bits != y[i].bits;
    }
    EXPECT_EQ(wrong, 0) << "on level " << level;
  }
  set_vec_level(-1);
}

TEST(Bf16, FunctionsRoundAlmostAsTheExactResultOnEveryLevel) {
  // Every number, a function of its own arithmetic: at most 0.54 units in the last place of bf16 (0.5 would be exact).
  struct Function {
    const char* name;
    Tensor (*f)(const Tensor&);
    double (*want)(double);
  };
  const Function functions[] = {{"exp", exp, std::exp},
                                {"exp2", exp2, std::exp2},
                                {"tanh", tanh, std::tanh},
                                {"sigmoid", sigmoid, sigmoid_of},
                                {"sin", sin, std::sin},
                                {"cos", cos, std::cos},
                                {"log", log, std::log},
                                {"sqrt", sqrt, std::sqrt},
                                {"abs", abs, std::fabs},
                                {"silu", silu, [](double v) { return v * sigmoid_of(v); }},
                                {"gelu", [](const Tensor& x) { return gelu(x); }, gelu_of},
                                {"gelu tanh", [](const Tensor& x) { return gelu(x, "tanh"); },
                                 [](double v) {
                                   const double u = std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v);
                                   return v / (1 + std::exp(-2 * u));
                                 }}};
  std::vector<BFloat16> all(65536);
  for (size_t i = 0; i < all.size(); ++i) {
    const auto bits = static_cast<uint16_t>(i);
    std::memcpy(static_cast<void*>(&all[i]), &bits, 2);
  }
  const Tensor x = vec<BFloat16>(all);
  for (int level = 0; level <= 3; ++level) {
    set_vec_level(level);
    if (vec_level() != level) continue;
    for (const Function& f : functions) {
      const std::vector<BFloat16> y = f.f(x).to_vector<BFloat16>();
      double worst = 0, at = 0;
      for (size_t i = 0; i < all.size(); ++i) {
        const double v = static_cast<float>(all[i]), want = f.want(v), got = static_cast<float>(y[i]);
        if (std::isnan(want)) {
          EXPECT_TRUE(std::isnan(got) || std::isinf(v)) << f.name << "(" << v << ") on level " << level;
          continue;
        }
        // Results below the normal numbers may be 0; factors of gelu are, before its product is.
        if (std::fabs(want) < 3e-36) {
          EXPECT_LT(std::fabs(got), 3.1e-36) << f.name << "(" << v << ") on level " << level;
          continue;
        }
        if (std::fabs(want) > 3.38e38) continue;  // rounds to infinity, or almost
        const double unit = std::ldexp(1.0, std::ilogb(want) - 7), error = std::fabs(got - want) / unit;
        if (!(error <= worst)) worst = error, at = v;
      }
      EXPECT_LE(worst, 0.54) << f.name << "(" << at << ") on level " << level;
    }
  }
  set_vec_level(-1);
}

TEST(Layouts, StridedBroadcastAndLargeRunsAgree) {
  const int64_t n = 3000;
  const Tensor x = cumsum(ones({n * 7}), 0).reshape({n, 7}) * 0.001, row = x.select(0, 5), column = x.narrow(1, 2, 1);
  for (DType t : {DType::f32, DType::bf16, DType::f64}) {
    const Tensor a = x.to(t), r = row.to(t), c = column.to(t);
    const Tensor want = a * r.expand({n, 7}).contiguous();
    EXPECT_TRUE(equal(a * r, want));
    EXPECT_TRUE(equal(a.t().contiguous().t() * r, want));
    EXPECT_TRUE(equal(a * c, a * c.expand({n, 7}).contiguous()));
    EXPECT_TRUE(equal(c * a, a * c.expand({n, 7}).contiguous()));
    EXPECT_TRUE(equal(exp(a.slice(0, 1, n, 3)), exp(a.slice(0, 1, n, 3).contiguous())));
    EXPECT_TRUE(equal(a + a.select(0, 0).select(0, 0), a + full({n, 7}, a.select(0, 0).select(0, 0).item(), t)));
  }
}

TEST(Layouts, ResultsPastTheCachesAreTheSame) {
  // 36 MB of results are written around the caches; odd offsets make every head and tail.
  const int64_t n = (int64_t{36} << 20) / 4;
  const Tensor x = cumsum(full({n}, 1e-6), 0);
  const Tensor y = x * 2.5, part = x.narrow(0, n - 1000, 1000) * 2.5;
  EXPECT_TRUE(equal(y.narrow(0, n - 1000, 1000), part));
  EXPECT_TRUE(equal(y.narrow(0, 0, 1001), x.narrow(0, 0, 1001) * 2.5));
  EXPECT_TRUE(equal(y / 2.5 - x < 1e-5, full({n}, true)));
}

TEST(InPlace, WritesAndRecords) {
  Tensor x = f32({-1, 2});
  relu_(x);
  EXPECT_EQ(floats(x), (std::vector<float>{0, 2}));
  sub_(x, 1);
  div_(x, f32({2, 2}));
  EXPECT_EQ(floats(x), (std::vector<float>{-0.5f, 0.5f}));
  clamp_(x, 0);
  exp_(x);
  EXPECT_FLOAT_EQ(floats(x)[0], 1);
  EXPECT_FLOAT_EQ(floats(x)[1], std::exp(0.5f));
  Tensor i = full({2}, 3);
  EXPECT_THROW(i.add_(0.5), DTypeError);
  EXPECT_THROW(div_(i, 2), DTypeError);
  i.mul_(4);
  EXPECT_EQ(i.to_vector<int>(), (std::vector<int>{12, 12}));

  Tensor w = f32({0.5f, -0.5f}).set_requires_grad();
  Tensor y = w * 2.0;
  tanh_(y);
  sum(y).backward();
  const float t = std::tanh(1.0f);
  EXPECT_NEAR(floats(w.grad())[0], 2 * (1 - t * t), 1e-6);
}

TEST(InPlace, OverlappingArgumentsAreCopiedFirst) {
  Tensor x = from_span<float>(std::vector<float>{1, 2, 3, 4}, {2, 2});
  x.add_(x.t());
  EXPECT_EQ(floats(x), (std::vector<float>{2, 5, 5, 8}));
}

TEST(Gradients, KinksAndTies) {
  Tensor x = f32({0, 1, -1}).set_requires_grad();
  sum(relu(x)).backward();
  EXPECT_EQ(floats(x.grad()), (std::vector<float>{0, 1, 0}));
  Tensor a = f32({1, 2}).set_requires_grad(), b = f32({1, 3}).set_requires_grad();
  sum(maximum(a, b)).backward();
  EXPECT_EQ(floats(a.grad()), (std::vector<float>{0.5f, 0}));
  EXPECT_EQ(floats(b.grad()), (std::vector<float>{0.5f, 1}));
  Tensor base = f32({0, 0}).set_requires_grad(), e = f32({2, 0}).set_requires_grad();
  sum(pow(base, e)).backward();
  EXPECT_EQ(floats(base.grad()), (std::vector<float>{0, 0}));
  EXPECT_EQ(floats(e.grad()), (std::vector<float>{0, 0}));
  Tensor up = f32({0, 2, 0}).set_requires_grad(), right = f32({0, 0, 4}).set_requires_grad();
  sum(atan2(up, right)).backward();
  EXPECT_EQ(floats(up.grad()), (std::vector<float>{0, 0, 0.25f}));
  EXPECT_EQ(floats(right.grad()), (std::vector<float>{0, -0.5f, 0}));
  Tensor h = full({1}, 2.0, DType::bf16).set_requires_grad();
  sum(pow(h, full({1}, 3.0, DType::bf16))).backward();
  EXPECT_EQ(h.grad().dtype(), DType::bf16);
  EXPECT_EQ(h.grad().item<float>(), 12);
}

// At min <= x <= max x has all of the gradient, also where it is a bound (maximum would halve it); at min >= max all
// goes to max, but for what is below both where they are one.
TEST(Gradients, OfClampWithTensorsAtTies) {
  const auto gradients = [](std::vector<float> x, std::vector<float> min, std::vector<float> max) {
    Tensor v = f32(std::move(x)).set_requires_grad(), low, high;
    if (!min.empty()) low = f32(std::move(min)).set_requires_grad();
    if (!max.empty()) high = f32(std::move(max)).set_requires_grad();
    sum(clamp(v, low, high)).backward();
    std::vector<std::vector<float>> all{floats(v.grad())};
    if (low.defined()) all.push_back(floats(low.grad()));
    if (high.defined()) all.push_back(floats(high.grad()));
    return all;
  };
  using All = std::vector<std::vector<float>>;
  EXPECT_EQ(gradients({1, 3, 0, 4}, {1, 1, 1, 1}, {3, 3, 3, 3}), (All{{1, 1, 0, 0}, {0, 0, 1, 0}, {0, 0, 0, 1}}));
  EXPECT_EQ(gradients({1, 0, 2}, {1, 1, 1}, {}), (All{{1, 0, 1}, {0, 1, 0}}));
  EXPECT_EQ(gradients({1, 0, 2}, {}, {1, 1, 1}), (All{{1, 1, 0}, {0, 0, 1}}));
  EXPECT_EQ(gradients({2, 1, 3, 0}, {2, 2, 2, 5}, {2, 2, 2, 3}), (All{{1, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 1, 1}}));
  const Tensor wide = clamp(f32({-1, kNan, 9}), full({2, 1}, 0.0), full({}, 4.0));
  EXPECT_EQ(wide.shape(), Shape({2, 3}));
  EXPECT_EQ(wide.select(0, 1).select(0, 2).item<float>(), 4);
  EXPECT_TRUE(std::isnan(wide.select(0, 0).select(0, 1).item<float>()));
  EXPECT_THROW(clamp(full({2}, true), full({2}, true), Tensor()), DTypeError);
}

TEST(Gradients, OfHardswishAtItsKinks) {
  const std::vector<float> wanted{0, 0, -1 / 6.0f, 0.5f, 7 / 6.0f, 1, 1};
  for (const DType t : {DType::f32, DType::f64, DType::bf16})
    for (const int64_t rows : {1, 5}) {  // past the vectors' ends, and within them
      Tensor x = expand(f32({-4, -3, -2, 0, 2, 3, 4}), {rows, 7}).contiguous().to(t).set_requires_grad();
      sum(hardswish(x)).backward();
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t i = 0; i < 7; ++i)
          EXPECT_NEAR(x.grad().select(0, r).select(0, i).item<double>(), wanted[static_cast<size_t>(i)], 4e-3) << i;
    }
}

// As pow of a tensor that is 0: no slope for x >= 0, an infinite one below.
TEST(Gradients, OfPowersOfZero) {
  Tensor x = f32({2, 1, 0, -1}).set_requires_grad();
  sum(pow(Scalar(0.0), x)).backward();
  EXPECT_EQ(floats(x.grad()), (std::vector<float>{0, 0, 0, -kInf}));
  Tensor e = f32({2, 0, -1}).set_requires_grad();
  sum(pow(zeros({3}), e)).backward();
  EXPECT_EQ(floats(e.grad()), (std::vector<float>{0, 0, -kInf}));
}

// Every level's exponentials over the whole range of results: normal numbers to the last bits, subnormal ones to their
// spacing (or 0, at the very end), 0 and infinity beyond.
TEST(Elementwise, ExponentialsOverTheWholeRangeOnEveryLevel) {
  struct Function {
    Map map;
    double (*exact)(double);
    double low, high, bound;
  };
  const Function functions[] = {{Map::exp, [](double v) { return std::exp(v); }, -104, 89, 3e-7},
                                {Map::exp2, [](double v) { return std::exp2(v); }, -151, 129, 2e-7}};
  for (int level = 0; level <= 3; ++level) {
    set_vec_level(level);
    if (vec_level() != level) continue;  // this processor ends below
    for (const Function& f : functions) {
      std::vector<float> x;
      for (double v = f.low; v < f.high; v += 0.0371) x.push_back(static_cast<float>(v));
      const float edges[] = {-126.f, -125.9999f, -126.0001f, -87.3365f, -87.33f, -87.f,
                             0.f,    88.72283f,  127.9999f,  3e38f,     -3e38f};
      for (float v : edges) x.push_back(v);
      x.push_back(INFINITY);
      x.push_back(-INFINITY);
      x.push_back(NAN);
      std::vector<float> y(x.size());
      const void* in[] = {x.data()};
      simd_map(f.map, DType::f32)(y.data(), in, static_cast<int64_t>(x.size()), {});
      for (size_t i = 0; i < x.size(); ++i) {
        const double want = f.exact(x[i]);
        if (std::isnan(want)) {
          EXPECT_TRUE(std::isnan(y[i])) << "level " << level;
        } else if (want > 3.4028234e38) {
          EXPECT_TRUE(std::isinf(y[i])) << "level " << level << " at " << x[i];
        } else {
          EXPECT_NEAR(y[i], want, std::max(want * f.bound, 1.5e-45)) << "level " << level << " at " << x[i];
        }
      }
    }
  }
  set_vec_level(-1);
}

// Runs too short for a call of the kernel each are computed together: the same bits as from dense operands, where rows
// repeat, elements repeat, either is strided, and blocks and threads cut them.
TEST(ShortRows, GiveWhatDenseOperandsGive) {
  for (const DType t : {DType::f32, DType::bf16, DType::f16, DType::f64, DType::i32, DType::u8}) {
    for (const int64_t n : {1, 2, 3, 7, 31, 63}) {
      SCOPED_TRACE(cat(t, " rows of ", n));
      const int64_t rows = 70000 / n;  // more than one thread takes
      const auto numbers = [&](const Shape& shape, uint64_t seed) {
        Generator g(seed);
        return randint(0, 9, shape, DType::i64, g).to(t);
      };
      const Tensor x = numbers({rows, n}, 1), wide = numbers({rows, n + 2}, 2), turned = numbers({n, rows}, 3).t();
      const TensorList others{numbers({n}, 4), numbers({rows, 1}, 5), wide.narrow(1, 1, n), turned};
      for (const Tensor& other : others) {
        const Tensor dense = other.expand({rows, n}).contiguous();
        EXPECT_TRUE(equal(x + other, x + dense));
        EXPECT_TRUE(equal(other - x, dense - x));
        EXPECT_TRUE(equal(where(other > 4, x, other), where(dense > 4, x, dense)));
        // Over a part of another tensor, whose rest stays.
        Tensor whole = wide.clone();
        Tensor part = whole.narrow(1, 1, n);
        part.mul_(other);
        EXPECT_TRUE(equal(part, wide.narrow(1, 1, n).contiguous() * dense));
        EXPECT_TRUE(equal(whole.narrow(1, 0, 1), wide.narrow(1, 0, 1)));
        EXPECT_TRUE(equal(whole.narrow(1, n + 1, 1), wide.narrow(1, n + 1, 1)));
      }
      EXPECT_TRUE(equal(-wide.narrow(1, 1, n), -wide.narrow(1, 1, n).contiguous()));
    }
  }
}

}  // namespace
}  // namespace strata
