// Products with low-bit matrices on a CUDA device against the CPU's, at sizes that samples do not reach: those that its
// tensor cores take.

#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "strata/core/compare_test_util.h"
#include "strata/core/rng.h"
#include "strata/cuda/graph.h"
#include "strata/cuda/runtime.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/lowbit/lowbit.h"
#include "strata/ops/lowbit/lowbit_samples_inl.h"
#include "strata/ops/random/random.h"

namespace strata {
namespace {

// The largest difference of a product on the card from the one in double precision, relative to the largest number.
double error(const PackedWeight& w, const Tensor& x, const Tensor& bias) {
  const Device card = Device::cuda();
  const Tensor there = packed_linear(x.to(card), moved(w, card), bias.defined() ? bias.to(card) : bias);
  const Tensor want = packed_linear(x.to(DType::f64), w, bias.defined() ? bias.to(DType::f64) : bias);
  double most = 0;
  for (const double v : want.to_vector<double>()) most = std::max(most, std::fabs(v));
  return difference(there.to(Device::cpu()).to(DType::f64), want) / std::max(most, 1e-30);
}

TEST(CudaLowbit, ProductsOfFewRowsAreTheReferences) {
  if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  manual_seed(4);
  Samples s(DType::f32);
  struct Case {
    const char* format;
    int64_t rows, columns;
    lowbit::RandomParts parts;
  };
  const Case cases[] = {
      {"int4", 64, 128, {.block_columns = 128, .scale_dtype = DType::f16}},
      {"int4", 200, 1152, {.block_columns = 128, .zeros = true, .scale_dtype = DType::f16}},
      {"int4", 1000, 4096, {.block_columns = 256, .zeros = true, .order = true, .scale_dtype = DType::bf16}},
      {"int4", 4096, 2048, {.block_columns = 128}},
      {"int4", 96, 640, {.block_rows = 0}},
      {"int8", 70, 64, {}},
      {"int8", 333, 1344, {.block_columns = 64, .zeros = true, .scale_dtype = DType::f16}},
      {"int8", 2050, 4096, {.order = true}},
      {"e4m3", 300, 1024, {.block_rows = 128, .block_columns = 128}},
      {"e4m3", 129, 192, {.block_rows = 0}},
      {"int4", 130, 96, {.block_columns = 32}},  // and one that they do not take
  };
  for (const Case& c : cases) {
    const PackedWeight w = lowbit::random_packed(s, c.format, c.rows, c.columns, c.parts);
    for (const DType t : {DType::bf16, DType::f16})
      for (const int64_t m : {1, 3, 8, 9, 16, 17, 32, 33}) {
        const Tensor x = randn({m, c.columns}).to(t), bias = m % 2 == 1 ? randn({c.rows}).to(t) : Tensor();
        EXPECT_LE(error(w, x, bias), t == DType::bf16 ? 5e-3 : 1e-3)
            << c.format << " " << c.rows << " x " << c.columns << ", " << m << cat(" rows of ", t);
      }
  }
}

TEST(CudaLowbit, DecodedNumbersAreTheCpus) {
  if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  manual_seed(6);
  Samples s(DType::f32);
  struct Case {
    const char* format;
    int64_t rows, columns;
    lowbit::RandomParts parts;
  };
  const Case cases[] = {
      {"nf4", 70, 4096 + 64, {.block_columns = 64, .nested = true}},
      {"nf4", 3, 64, {.block_columns = 64}},
      {"int4", 33, 8192, {.block_columns = 128, .zeros = true, .scale_dtype = DType::f16}},
      {"int4", 5, 1056, {.block_columns = 96, .order = true}},
      {"int8", 40, 1000, {.block_rows = 0, .scale_dtype = DType::bf16}},
      {"int8", 7, 999, {.zeros = true}},
      {"e4m3", 130, 640, {.block_rows = 128, .block_columns = 128}},
      {"q4_0", 9, 1024, {}},
      {"q6_k", 6, 2560, {}},
  };
  for (const Case& c : cases) {
    const PackedWeight w = lowbit::random_packed(s, c.format, c.rows, c.columns, c.parts);
    for (const DType t : {DType::bf16, DType::f16, DType::f32, DType::f64}) {
      const Tensor there = dequantize_weight(moved(w, Device::cuda()), t).to(Device::cpu());
      EXPECT_EQ(difference(there.to(DType::f64), dequantize_weight(w, t).to(DType::f64)), 0)
          << c.format << " " << c.rows << " x " << c.columns << cat(" as ", t);
    }
  }
}

TEST(CudaLowbit, TheSameBitsEveryTimeAndInAGraph) {
  if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  manual_seed(5);
  Samples s(DType::f32);
  const PackedWeight w = moved(
      lowbit::random_packed(s, "int4", 4096, 4096, {.block_columns = 128, .scale_dtype = DType::f16}), Device::cuda());
  const Tensor x = randn({5, 4096}).to(DType::bf16).to(Device::cuda());
  const auto bits = [](const Tensor& t) { return t.to(Device::cpu()).to(DType::f32).to_vector<float>(); };
  const std::vector<float> want = bits(packed_linear(x, w));
  Tensor y;
  cuda::Graph graph;
  graph.capture([&] {
    Tensor z = x;
    for (int i = 0; i < 4; ++i) z = packed_linear(x, w);  // each may begin while the one before it ends
    y = z;
  });
  for (int i = 0; i < 20; ++i) {
    graph.replay();
    ASSERT_EQ(bits(y), want);
    ASSERT_EQ(bits(packed_linear(x, w)), want);
  }
}

}  // namespace
}  // namespace strata
