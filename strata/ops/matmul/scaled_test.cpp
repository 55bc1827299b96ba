#include "strata/ops/matmul/scaled.h"

#include <cmath>

#include <gtest/gtest.h>

#include "strata/ops/factory/factory.h"
#include "strata/ops/matmul/fp8.h"
#include "strata/ops/random/random.h"

namespace strata {
namespace {

using Floats = std::vector<float>;
using Codes = std::vector<uint8_t>;

TEST(Fp8, ValuesOfBothFormats) {
  // From the tables of the formats' paper: largest, smallest normal and smallest numbers.
  EXPECT_EQ(fp8_value(0x7e, kE4m3), 448);
  EXPECT_EQ(fp8_value(0x08, kE4m3), std::ldexp(1.0F, -6));
  EXPECT_EQ(fp8_value(0x01, kE4m3), std::ldexp(1.0F, -9));
  EXPECT_TRUE(std::isnan(fp8_value(0x7f, kE4m3)) && std::isnan(fp8_value(0xff, kE4m3)));
  EXPECT_EQ(fp8_value(0x7b, kE5m2), 57344);
  EXPECT_EQ(fp8_value(0x04, kE5m2), std::ldexp(1.0F, -14));
  EXPECT_EQ(fp8_value(0x81, kE5m2), -std::ldexp(1.0F, -16));
  EXPECT_EQ(fp8_value(0x7c, kE5m2), INFINITY);
  EXPECT_TRUE(std::isnan(fp8_value(0x7d, kE5m2)));
}

TEST(Fp8, EveryNumberIsItsOwnCodeAndTheMiddleGoesToTheEvenOne) {
  for (const Fp8 f : {kE4m3, kE5m2}) {
    for (int c = 0; c <= f.largest; ++c) {
      const auto code = static_cast<uint8_t>(c);
      const float v = fp8_value(code, f);
      EXPECT_EQ(fp8_code(v, f), code);
      EXPECT_EQ(fp8_code(-v, f), code | 0x80);
      if (c == f.largest) break;
      const float next = fp8_value(static_cast<uint8_t>(c + 1), f), middle = (v + next) / 2;
      EXPECT_EQ(fp8_code(middle, f), c % 2 == 0 ? c : c + 1);
      EXPECT_EQ(fp8_code(std::nextafter(middle, 0.0F), f), c);
      EXPECT_EQ(fp8_code(std::nextafter(middle, INFINITY), f), c + 1);
    }
    EXPECT_EQ(fp8_code(INFINITY, f), f.largest);
    EXPECT_EQ(fp8_code(-3e38F, f), f.largest | 0x80);
    EXPECT_EQ(fp8_code(1e-40F, f), 0);
    EXPECT_TRUE(std::isnan(fp8_value(fp8_code(NAN, f), f)));
  }
}

TEST(Scaled, QuantizeAndBackIsWithinHalfAStep) {
  const Tensor x = uniform({64, 32}, -3, 3), scale = full({}, 3.0 / 448);
  const Tensor back = fp8_dequantize(fp8_quantize(x, scale), scale);
  const Floats a = x.to_vector<float>(), b = back.to_vector<float>();
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_LE(std::fabs(a[i] - b[i]), std::max(std::fabs(a[i]) / 16, 3.0F / 448 / 512 / 2) * 1.001F);
}

TEST(Scaled, ProductsHaveScalesAndBias) {
  const Tensor a = from_span<uint8_t>(Codes{0x38, 0x40}, {1, 2});  // 1, 2
  const Tensor b = from_span<uint8_t>(Codes{0x40, 0xc0}, {2, 1});  // 2, -2
  const ScaledMatmulOptions f32{.dtype = DType::f32};
  EXPECT_EQ(scaled_matmul(a, b, full({}, 3.0), full({}, 0.5), full({1}, 10.0), f32).to_vector<float>(), Floats({7}));
  const Tensor i = from_span<int8_t>(std::vector<int8_t>{-128, 127}, {1, 2});
  EXPECT_EQ(int8_matmul(i, i.t()).to_vector<int32_t>(), std::vector<int32_t>({128 * 128 + 127 * 127}));
  EXPECT_EQ(scaled_matmul(i, i.t(), full({}, 0.5), full({}, 1.0), {}, f32).to_vector<float>(),
            Floats({(128 * 128 + 127 * 127) / 2.0F}));
}

}  // namespace
}  // namespace strata
