// What the generated verification does not see of numbers.cpp and rounding.cpp: bits, special values, numbers in place
// of tensors, in-place forms, what gradient rules refuse.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "strata/autograd/autograd.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();

template <class T>
Tensor vec(std::vector<T> v) {
  return from_span<T>(std::span<const T>(v), {static_cast<int64_t>(v.size())});
}
using Doubles = std::vector<double>;

// By vectors of float where numbers are below 2^22, of double below 2^51, one by one beyond: each beside integers.
TEST(Numbers, DivisorsAndQuotientsOfEverySizeAreThoseOfIntegers) {
  std::vector<int64_t> a, b;
  uint64_t state = 88172645463325252;
  const auto draw = [&](int bits) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    const auto size = static_cast<int64_t>(state >> (64 - bits));
    return state & 1 ? size : -size;
  };
  for (const int bits : {4, 8, 21, 22, 23, 32, 50, 51, 52, 53, 54, 62})
    for (int i = 0; i < 300; ++i) {
      const int64_t common = draw(std::max(1, bits / 3)), x = draw(bits), y = draw(1 + i % bits);
      a.push_back(i % 3 == 0 ? x / std::max<int64_t>(1, std::abs(common)) * common : x);
      b.push_back(i % 3 == 0 ? common : y);
    }
  const auto n = static_cast<int64_t>(a.size());
  const Tensor x = from_span<int64_t>(a, {n}), y = from_span<int64_t>(b, {n});
  const std::vector<int64_t> divisors = gcd(x, y).to_vector<int64_t>(), multiples = lcm(x, y).to_vector<int64_t>();
  for (size_t i = 0; i < a.size(); ++i) {
    const int64_t want = std::gcd(a[i], b[i]);
    ASSERT_EQ(divisors[i], want) << a[i] << " " << b[i];
    const uint64_t share = want == 0 ? 0 : static_cast<uint64_t>(std::abs(a[i])) / static_cast<uint64_t>(want);
    ASSERT_EQ(multiples[i], static_cast<int64_t>(share * static_cast<uint64_t>(std::abs(b[i])))) << a[i] << " " << b[i];
  }
  // Numbers of one byte all with all, and some of two: they have a remainder of their own.
  for (const DType type : {DType::u8, DType::i8, DType::i16}) {
    const int64_t least = type == DType::u8   ? 0
                          : type == DType::i8 ? -127
                                              : -32767,
                  step = type == DType::i16 ? 211 : 1;
    const Tensor all = arange(least, least == 0 ? 256 : -least + 1, step, DType::i64);
    const Tensor p = all.unsqueeze(1).expand({all.numel(), all.numel()}), q = all.expand(p.shape());
    const Tensor got = gcd(p.to(type), q.to(type)), want = gcd(p, q);
    EXPECT_EQ(got.to(DType::i64).to_vector<int64_t>(), want.to_vector<int64_t>()) << cat(type);
    EXPECT_EQ(lcm(p.to(type), q.to(type)).to_vector<int64_t>(), lcm(p, q).to(type).to_vector<int64_t>()) << cat(type);
  }
  for (int64_t& v : b) v = v == 0 ? 7 : v;
  const Tensor by = from_span<int64_t>(b, {n});
  for (int64_t begin = 0; begin < n; begin += 300) {  // one size at a time
    const std::vector<int64_t> got =
        floor_divide(slice(x, 0, begin, begin + 300), slice(by, 0, begin, begin + 300)).to_vector<int64_t>();
    const std::vector<int64_t> remainders =
        remainder(slice(x, 0, begin, begin + 300), slice(by, 0, begin, begin + 300)).to_vector<int64_t>();
    for (size_t i = 0; i < got.size(); ++i) {
      const int64_t p = a[static_cast<size_t>(begin) + i], q = b[static_cast<size_t>(begin) + i];
      ASSERT_EQ(got[i], p / q - ((p % q != 0) && ((p < 0) != (q < 0)))) << p << " " << q;
      ASSERT_EQ(remainders[i], q == -1 ? 0 : p % q + ((p % q != 0) && ((p < 0) != (q < 0)) ? q : 0)) << p << " " << q;
    }
  }
  const Tensor bytes = from_span<int64_t>(std::vector<int64_t>{-128, 127, -128, 5}, {4}).to(DType::i8);
  const Tensor ones = from_span<int64_t>(std::vector<int64_t>{-1, -2, 3, -5}, {4}).to(DType::i8);
  EXPECT_EQ(floor_divide(bytes, ones).to_vector<int64_t>(), (std::vector<int64_t>{-128, -64, -43, -1}));
  EXPECT_THROW(floor_divide(bytes, zeros({4}, DType::i8)), ValueError);
  // All numbers of one byte by each other, and some of two and four.
  for (const DType t : {DType::u8, DType::i8, DType::i16, DType::i32}) {
    const int64_t least = t == DType::u8 ? 0 : t == DType::i8 ? -128 : t == DType::i16 ? -32768 : INT32_MIN;
    const int64_t step = t == DType::i16 ? 223 : t == DType::i32 ? 16777337 : 1;
    const Tensor all = arange(least, least == 0 ? 256 : -least, step, DType::i64), none_zero = where(all == 0, 1, all);
    const Tensor p = all.unsqueeze(1).expand({all.numel(), all.numel()}), q = none_zero.expand(p.shape());
    const Tensor tops = p.to(t), bys = q.to(t);
    const std::vector<int64_t> a = p.to_vector<int64_t>(), b = q.to_vector<int64_t>();
    std::vector<int64_t> down, rest, zero_ward, c_rest;
    for (size_t i = 0; i < a.size(); ++i) {
      const bool off = a[i] % b[i] != 0 && (a[i] < 0) != (b[i] < 0);
      down.push_back(a[i] / b[i] - off), rest.push_back(a[i] % b[i] + (off ? b[i] : 0));
      zero_ward.push_back(a[i] / b[i]), c_rest.push_back(a[i] % b[i]);
    }
    const auto wrapped = [&](const std::vector<int64_t>& v) {
      return from_span<int64_t>(v, p.shape()).to(t).to_vector<int64_t>();
    };
    EXPECT_EQ(floor_divide(tops, bys).to_vector<int64_t>(), wrapped(down)) << cat(t);
    EXPECT_EQ(remainder(tops, bys).to_vector<int64_t>(), wrapped(rest)) << cat(t);
    EXPECT_EQ(trunc_divide(tops, bys).to_vector<int64_t>(), wrapped(zero_ward)) << cat(t);
    EXPECT_EQ(fmod(tops, bys).to_vector<int64_t>(), wrapped(c_rest)) << cat(t);
    using Division = Tensor (*)(const Tensor&, const Tensor&);
    for (const Division f : {Division(floor_divide), Division(remainder), Division(trunc_divide), Division(fmod)})
      EXPECT_THROW(f(tops, zeros(tops.shape(), t)), ValueError) << cat(t);
  }
}

TEST(Numbers, SignsOfZerosAndNan) {
  for (const DType t : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    const Tensor x = vec<double>({-0.0, 0.0, -1.5, -kInf, kInf}).to(t);
    EXPECT_EQ(sum(signbit(x)).item<int>(), 3) << name_of(t);
    EXPECT_TRUE(std::signbit(copysign(full({1}, 2.0, t), x.narrow(0, 0, 1)).item())) << name_of(t);
    EXPECT_EQ(sum(isposinf(x)).item<int>(), 1) << name_of(t);
    EXPECT_EQ(sum(isneginf(x)).item<int>(), 1) << name_of(t);
  }
  EXPECT_TRUE(signbit(full({1}, std::copysign(kNan, -1.0), DType::f64)).item<bool>());
  EXPECT_EQ(copysign(full({2}, 3, DType::i32), full({2}, -1, DType::i64)).to_vector<float>(),
            (std::vector<float>{-3, -3}));
  EXPECT_FALSE(isposinf(full({1}, 3)).item<bool>());
  EXPECT_TRUE(isreal(full({1}, 3)).item<bool>());
  EXPECT_FALSE(signbit(full({1}, true)).item<bool>());
  EXPECT_TRUE(std::isnan(angle(full({1}, kNan)).item()));
  EXPECT_NEAR(angle(full({1}, -2)).item(), 3.14159265, 1e-6);
}

TEST(Numbers, NeighboursAreTheNextBits) {
  const Doubles from{0.0, -0.0, -0.0, 1.0, -1.0, 1.0, 1.7976931348623157e308, 5.0},
      to{1.0, 1.0, -1.0, 2.0, -2.0, 0.0, kInf, 5.0};
  const Doubles got = nextafter(vec(from), vec(to)).to_vector<double>();
  const std::vector<float> from_f(from.begin(), from.end()), to_f(to.begin(), to.end());
  const std::vector<float> got_f = nextafter(vec(from_f), vec(to_f)).to_vector<float>();
  for (size_t i = 0; i < from.size(); ++i) {
    EXPECT_EQ(got[i], std::nextafter(from[i], to[i]));
    EXPECT_EQ(got_f[i], std::nextafterf(from_f[i], to_f[i]));
  }
  EXPECT_THROW(nextafter(full({1}, 1, DType::bf16), full({1}, 1, DType::bf16)), DTypeError);
  Tensor x = full({1}, 1.0);
  x.set_requires_grad();
  EXPECT_THROW(nextafter(x, full({1}, 2.0)).sum().backward(), AutogradError);
}

TEST(Numbers, MantissaAndExponent) {
  const auto [m, e] = frexp(vec<double>({6.0, -0.1, 0.0, -kInf, 5e-324}));
  EXPECT_EQ(m.to_vector<double>(), (Doubles{0.75, -0.8, 0.0, -kInf, 0.5}));
  EXPECT_EQ(e.to_vector<int32_t>(), (std::vector<int32_t>{3, -3, 0, 0, -1073}));
  const auto [hm, he] = frexp(full({1}, 6e-8, DType::f16));  // a subnormal of f16
  EXPECT_EQ(hm.item() * std::exp2(he.item<int>()), full({1}, 6e-8, DType::f16).item());
  EXPECT_EQ(ldexp(vec<double>({1e-300, 3.0}), vec<double>({1030.0, 0.5})).to_vector<double>(),
            (Doubles{std::ldexp(1e-300, 1030), 3 * std::exp2(0.5)}));
}

TEST(Numbers, DivisorsOfExtremes) {
  const int64_t least = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(gcd(full({1}, least), full({1}, 6)).item<int64_t>(), 2);
  EXPECT_EQ(gcd(full({1}, 0), full({1}, 0)).item<int64_t>(), 0);
  EXPECT_EQ(gcd(full({1}, -128, DType::i8), full({1}, 0, DType::i8)).item<int64_t>(), -128);  // 128 wraps around
  EXPECT_EQ(lcm(full({1}, 0), full({1}, 5)).item<int64_t>(), 0);
  EXPECT_EQ(lcm(full({1}, -4), full({1}, 6)).item<int64_t>(), 12);
  EXPECT_THROW(gcd(full({1}, 1.0), full({1}, 1.0)), DTypeError);
}

TEST(Numbers, Heaviside) {
  EXPECT_EQ(heaviside(vec<double>({-1, 0, 2, kNan}), full({4}, 0.5, DType::f64)).to_vector<double>(),
            (Doubles{0, 0.5, 1, 0}));
  EXPECT_THROW(heaviside(full({1}, true), full({1}, true)), DTypeError);
}

TEST(Numbers, LogarithmsOfSumsOfPowers) {
  EXPECT_EQ(logaddexp2(full({1}, kInf), full({1}, kInf)).item(), kInf);
  EXPECT_EQ(logaddexp2(full({1}, -kInf), full({1}, -kInf)).item(), -kInf);
  EXPECT_EQ(logaddexp2(full({1}, 1000.0, DType::f64), full({1}, 1000.0, DType::f64)).item(), 1001);
  EXPECT_EQ(float_power(full({1}, 3), full({1}, 2)).dtype(), DType::f64);
  Tensor a = full({1}, 0.0);
  a.set_requires_grad();
  xlogy(a, full({1}, 0.0)).sum().backward();
  EXPECT_EQ(a.grad().item(), 0);  // as the function is 0 there
}

TEST(Rounding, ToDecimals) {
  EXPECT_EQ(round(vec<double>({0.125, -0.375, 12.5}), 2).to_vector<double>(), (Doubles{0.12, -0.38, 12.5}));
  EXPECT_EQ(round(vec<double>({1250, -1350, 49}), -2).to_vector<double>(), (Doubles{1200, -1400, 0}));
  // Powers of ten beyond the range leave a number as it is, or nothing of it.
  EXPECT_EQ(round(vec<double>({1.5, 1e300, 0.0}), 400).to_vector<double>(), (Doubles{1.5, 1e300, 0.0}));
  EXPECT_EQ(round(vec<double>({1.5, 1e300}), -400).to_vector<double>(), (Doubles{0, 0}));
  EXPECT_EQ(round(full({1}, 7), -1).item<int>(), 7);  // integers stay
  Tensor x = vec<double>({1.26});
  EXPECT_EQ(round_(x, 1).item(), 1.3);
  Tensor y = vec<double>({-7.5});
  EXPECT_EQ(trunc_(y).item(), -7);
  Tensor z = vec<double>({-7.5});
  EXPECT_EQ(ceil_(z).item(), -7);
}

TEST(Rounding, DivisionInPlace) {
  Tensor x = full({1}, -7);
  EXPECT_EQ(div_(x, full({1}, 2), "floor").item<int>(), -4);
  Tensor y = full({1}, -7);
  EXPECT_EQ(div_(y, full({1}, 2), "trunc").item<int>(), -3);
  Tensor z = full({1}, -7.0);
  EXPECT_EQ(div_(z, full({1}, 2.0), "").item(), -3.5);
  EXPECT_THROW(div_(z, full({1}, 2.0), "up"), ValueError);
}

TEST(Rounding, IntegersStayIntegers) {
  const Tensor x = vec<int64_t>({-8, 3, 8});
  EXPECT_EQ(relu6(x).to_vector<int64_t>(), (std::vector<int64_t>{0, 3, 6}));
  EXPECT_EQ(hardtanh(x, -2.5, 4.5).to_vector<int64_t>(), (std::vector<int64_t>{-2, 3, 4}));
  EXPECT_EQ(hardtanh(x, -1e300, 1e300).to_vector<int64_t>(), x.to_vector<int64_t>());
  EXPECT_EQ(hardtanh(vec<uint8_t>({0, 200}), -1, 1).to_vector<uint8_t>(), (std::vector<uint8_t>{0, 1}));
  EXPECT_THROW(hardtanh(full({1}, true)), DTypeError);
  EXPECT_EQ(nan_to_num(x).dtype(), DType::i64);
  EXPECT_EQ(nan_to_num(full({1}, true)).dtype(), DType::boolean);
}

}  // namespace
}  // namespace strata
