// Low-bit matrices: codes against other makers of them, kernels of every level against the reference decode, rounding.
#include "strata/ops/lowbit/lowbit.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/autograd/gradcheck.h"
#include "strata/core/autocast.h"
#include "strata/core/error_test_util.h"
#include "strata/core/parallel.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/factory/ranges.h"
#include "strata/ops/lowbit/codes_inl.h"
#include "strata/ops/lowbit/lowbit_samples_inl.h"
#include "strata/ops/matmul/fp8.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/random/random.h"
#include "strata/ops/vec/level.h"

namespace strata {
namespace {

double largest_difference(const Tensor& a, const Tensor& b) {
  return (a.to(DType::f64) - b.to(DType::f64)).abs().max().item();
}

// What `f` gives at every level that this processor has.
template <class F>
void at_each_level(F&& f) {
  const int most = vec_level();
  for (int level = 0; level <= most; ++level) {
    set_vec_level(level);
    f(level);
  }
  set_vec_level(-1);
}

TEST(LowBit, EveryLevelDecodesToTheSameBitsWithinARoundingOfTheReference) {
  Samples s(DType::f32);
  for (const PackedWeight& w : lowbit::random_formats(s)) {
    const Tensor exact = w.decode();
    set_vec_level(0);
    const std::vector<float> first = dequantize_weight(w).to_vector<float>();
    EXPECT_LE(largest_difference(dequantize_weight(w), exact), 4e-7 * (1 + exact.abs().max().item())) << w.format->name;
    at_each_level([&](int level) {
      EXPECT_EQ(dequantize_weight(w).to_vector<float>(), first) << w.format->name << " at level " << level;
      EXPECT_EQ(dequantize_weight(w, DType::bf16).to_vector<float>(),
                dequantize_weight(w).to(DType::bf16).to_vector<float>());
    });
  }
}

TEST(LowBit, EveryCodeOfE4m3IsWhatItIsAtEveryLevel) {
  PackedWeight w;
  w.format = &weight_format("e4m3");
  w.rows = 1, w.columns = 256;
  w.codes = arange(256, DType::u8).reshape({1, 256});
  w.scales = full({1, 1}, 1.0);
  at_each_level([&](int level) {
    const std::vector<float> y = dequantize_weight(w).to_vector<float>();
    for (int c = 0; c < 256; ++c) {
      const float want = fp8_value(static_cast<uint8_t>(c), kE4m3);
      const float got = y[static_cast<size_t>(c)];
      EXPECT_TRUE(std::isnan(want) ? std::isnan(got) : got == want) << c << " at level " << level << ": " << got;
    }
  });
}

TEST(LowBit, ProductsOfEveryLevelAndNumberOfRowsAgreeWithTheReference) {
  Samples s(DType::f32);
  for (const PackedWeight& w : lowbit::random_formats(s)) {
    const Tensor exact = w.decode();
    for (const int64_t m : {1, 2, 3, 4, 5, 6, 7, 8, 9, 31, 32, 33, 65, 300}) {
      const Tensor x = s.tensor({m, w.columns}), bias = s.tensor({w.rows});
      const Tensor want = linear(x.to(DType::f64), exact, bias.to(DType::f64));
      const double bound = 1e-6 * static_cast<double>(w.columns) * (1 + want.abs().max().item());
      at_each_level([&](int level) {
        EXPECT_LE(largest_difference(packed_linear(x, w, bias), want), bound)
            << w.format->name << ", " << m << " rows, level " << level;
        EXPECT_LE(largest_difference(packed_linear(x.to(DType::f16), w, bias.to(DType::f16)), want),
                  4e-3 * (1 + want.abs().max().item()));
      });
    }
  }
}

TEST(LowBit, ProductsHaveTheSameBitsForAnyNumberOfThreadsAndOtherRows) {
  Samples s(DType::f32);
  const int before = num_threads();
  // Past a span of columns, a block of W's rows and a block of x's.
  for (const PackedWeight& w : {lowbit::random_packed(s, "int4", 203, 1120, {.block_columns = 32, .zeros = true}),
                                lowbit::random_packed(s, "q4_k", 130, 1536), lowbit::random_packed(s, "int8", 67, 531)})
    for (const DType t : {DType::f32, DType::bf16}) {
      const Tensor x = s.tensor({300, w.columns}).to(t), bias = s.tensor({w.rows}).to(t);
      const auto at = [&](int threads, int64_t m) {
        set_num_threads(threads);
        return packed_linear(x.narrow(0, 0, m), w, bias).to_vector<float>();
      };
      for (const int64_t m : {1, 2, 8, 9, 40, 300})
        EXPECT_EQ(at(1, m), at(5, m)) << cat(w.format->name, ", ", m, " rows of ", t);
      // A row's sums do not know how many other rows there are, as long as one kernel computes them.
      if (t == DType::f32) {
        const std::vector<float> all = at(2, 60), some = at(2, 9);
        EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin())) << w.format->name;
      }
      const Tensor exact = linear(x.to(DType::f64), w.decode(), bias.to(DType::f64));
      EXPECT_LE(largest_difference(packed_linear(x, w, bias), exact),
                (t == DType::f32 ? 1e-5 : 1e-2) * exact.abs().max().item());
    }
  set_num_threads(before);
}

TEST(LowBit, GradientsReachXAndBiasTwice) {
  Samples s(DType::f64);
  for (const PackedWeight& w : lowbit::random_formats(s)) {
    if (w.columns > 600) continue;  // differences go through every element
    const Tensor x = s.tensor({2, w.columns}).set_requires_grad(), bias = s.tensor({w.rows}).set_requires_grad();
    const auto f = [&](const TensorList& in) { return packed_linear(in[0], w, in[1]); };
    const GradcheckResult r = gradcheck(f, {x, bias});
    EXPECT_TRUE(r.ok) << w.format->name << ": " << r.report;
    const GradcheckResult second =
        gradgradcheck([&](const TensorList& in) { return packed_linear(in[0] * in[0], w); }, {x});
    EXPECT_TRUE(second.ok) << w.format->name << ": " << second.report;
  }
}

TEST(LowBit, OrderIsWhichColumnEachCodeBelongsTo) {
  // Two rows of int8 codes 1, 2, 3; column 2 comes first.
  PackedWeight w;
  w.format = &weight_format("int8");
  w.rows = 2, w.columns = 3;
  w.codes = from_span<int8_t>(std::vector<int8_t>{1, 2, 3, 4, 5, 6}, {2, 3});
  w.scales = full({2, 1}, 1.0);
  w.order = from_span<int32_t>(std::vector<int32_t>{2, 0, 1}, {3});
  EXPECT_EQ(dequantize_weight(w).to_vector<float>(), (std::vector<float>{2, 3, 1, 5, 6, 4}));
  const Tensor x = from_span<float>(std::vector<float>{1, 10, 100}, {1, 3});
  EXPECT_EQ(packed_linear(x, w).to_vector<float>(), (std::vector<float>{132, 465}));
  EXPECT_EQ(packed_matmul(full({1, 2}, 1.0), w).to_vector<float>(), (std::vector<float>{7, 9, 5}));
}

TEST(LowBit, RoundingIsToTheNearestNumber) {
  manual_seed(3);
  const Tensor x = randn({24, 256});
  for (const char* format : {"int8", "int4", "e4m3", "nf4", "q8_0", "q4_0"})
    for (const bool symmetric : {true, false}) {
      QuantizeOptions o;
      if (weight_format(format).scaled) o.block_columns = 64, o.symmetric = symmetric;
      const PackedWeight w = quantize_weight(x, format, o);
      const Tensor y = dequantize_weight(w);
      // No other code is nearer than the one that was taken: one up and one down are tried.
      if (w.format->codes == WeightCodes::int4 || w.format->codes == WeightCodes::nf4) {
        const std::vector<float> from = x.to_vector<float>(), is = y.to_vector<float>();
        PackedWeight other = w;
        for (const int step : {-1, 1}) {
          other.codes = w.codes.clone();
          auto* const codes = other.codes.data<uint8_t>();
          for (int64_t i = 0; i < other.codes.numel(); ++i) {
            const int low = std::clamp((codes[i] & 15) + step, 0, 15), high = std::clamp((codes[i] >> 4) + step, 0, 15);
            codes[i] = static_cast<uint8_t>(low | high << 4);
          }
          const std::vector<float> would = dequantize_weight(other).to_vector<float>();
          for (size_t i = 0; i < from.size(); ++i)
            ASSERT_LE(std::fabs(is[i] - from[i]), std::fabs(would[i] - from[i]) + 1e-6f) << format << " " << i;
        }
      }
      const double error = std::sqrt((x - y).pow(2).sum().item() / x.pow(2).sum().item());
      const double most = w.format->codes == WeightCodes::int8 || w.format->codes == WeightCodes::q8_0 ? 0.01
                          : w.format->codes == WeightCodes::e4m3                                       ? 0.03
                                                                                                       : 0.12;
      EXPECT_LT(error, most) << format;
      EXPECT_GT(error, 1e-4) << format;
    }
}

TEST(LowBit, RoundingOfZerosAndOfOddSizesDecodes) {
  for (const char* format : {"int8", "int4", "e4m3"})
    for (const bool symmetric : {true, false})
      for (const Shape& shape : {Shape{3, 37}, Shape{0, 5}, Shape{4, 0}, Shape{1, 1}}) {
        const Tensor zero = zeros(shape);
        EXPECT_EQ(dequantize_weight(quantize_weight(zero, format, {.symmetric = symmetric})).to_vector<float>(),
                  zero.to_vector<float>())
            << format;
      }
  EXPECT_EQ(quantize_weight(full({5, 37}, 1.0), "int8", {.block_rows = 0}).scales.shape(), Shape({1, 1}));
  EXPECT_EQ(quantize_weight(full({300, 260}, 1.0), "e4m3", {.block_rows = 128, .block_columns = 128}).scales.shape(),
            Shape({3, 3}));
}

TEST(LowBit, DoubleQuantisedNf4TakesAtMost413HundredthsOfABit) {
  manual_seed(5);
  const Tensor x = randn({2048, 2048});
  const PackedWeight once = quantize_weight(x, "nf4"), twice = quantize_weight(x, "nf4", {.nested = true});
  EXPECT_DOUBLE_EQ(once.bits(), 4.5);
  EXPECT_LE(twice.bits(), 4.13);
  EXPECT_GE(twice.bits(), 4 + 8.0 / 64);
  const auto error = [&](const PackedWeight& w) {
    return std::sqrt((dequantize_weight(w) - x).pow(2).sum().item() / x.pow(2).sum().item());
  };
  EXPECT_LT(error(once), 0.1);
  EXPECT_LT(error(twice), error(once) * 1.02);
}

// Where their scales' own scales can be told apart, rows of a double quantised matrix stay so.
TEST(LowBit, RowsOfADoubleQuantisedMatrix) {
  manual_seed(8);
  const PackedWeight w = quantize_weight(randn({70, 512}), "nf4", {.block_columns = 64, .nested = true});
  const Tensor all = dequantize_weight(w);
  for (const auto& [first, count, stays] :
       {std::tuple(0, 32, true), std::tuple(32, 32, true), std::tuple(64, 6, true), std::tuple(32, 5, true),
        std::tuple(16, 32, false), std::tuple(1, 69, false)}) {
    const PackedWeight part = take_rows(w, arange(first, first + count, 1, DType::i64));
    EXPECT_EQ(part.nested.defined(), stays) << first << ' ' << count;
    EXPECT_EQ(dequantize_weight(part).to_vector<float>(), all.narrow(0, first, count).contiguous().to_vector<float>())
        << first << ' ' << count;
  }
}

TEST(LowBit, RowsTakenAndMatricesJoinedAreTheSameNumbers) {
  Samples s(DType::f32);
  for (const PackedWeight& w : lowbit::random_formats(s)) {
    const std::vector<float> all = dequantize_weight(w).to_vector<float>();
    const auto rows_of = [&](const std::vector<int64_t>& rows) {
      std::vector<float> y;
      for (const int64_t r : rows)
        for (int64_t k = 0; k < w.columns; ++k) y.push_back(all[static_cast<size_t>(r * w.columns + k)]);
      return y;
    };
    const std::vector<int64_t> some{w.rows - 1, 0, 1, 1};
    const Tensor index = from_span<int64_t>(some, {4});
    if (w.format->scaled && w.block_rows > 1) {
      EXPECT_NE(message([&] { take_rows(w, index); }).find("a scale is for 16 rows"), std::string::npos);
    } else {
      const PackedWeight taken = take_rows(w, index);
      EXPECT_EQ(dequantize_weight(taken).to_vector<float>(), rows_of(some)) << w.format->name;
      EXPECT_NE(message([&] { take_rows(w, full({1}, w.rows, DType::i64)); }).find("there is no row"),
                std::string::npos);
      const PackedWeight joined = concat_rows({taken, w, taken});
      std::vector<float> want = rows_of(some);
      want.insert(want.end(), all.begin(), all.end());
      const std::vector<float> end = rows_of(some);
      want.insert(want.end(), end.begin(), end.end());
      EXPECT_EQ(dequantize_weight(joined).to_vector<float>(), want) << w.format->name;
    }
    std::vector<float> twice = all;
    twice.insert(twice.end(), all.begin(), all.end());
    EXPECT_EQ(dequantize_weight(concat_rows({w, w})).to_vector<float>(), twice) << w.format->name;
  }
  // One with zeros and one without; scales of two dtypes; blocks that end with the matrix, which stay.
  const PackedWeight a = quantize_weight(randn({4, 64}), "int4", {.block_columns = 32, .symmetric = false}),
                     b = quantize_weight(randn({2, 64}), "int4", {.block_columns = 32, .scale_dtype = DType::f16});
  std::vector<float> want = dequantize_weight(a).to_vector<float>();
  const std::vector<float> rest = dequantize_weight(b).to_vector<float>();
  want.insert(want.end(), rest.begin(), rest.end());
  EXPECT_EQ(dequantize_weight(concat_rows({a, b})).to_vector<float>(), want);
  const PackedWeight blocks = quantize_weight(randn({64, 64}), "e4m3", {.block_rows = 32, .block_columns = 32});
  EXPECT_EQ(concat_rows({blocks, blocks}).block_rows, 32);
  EXPECT_NE(message([&] { concat_rows({a, blocks}); }).find("matrices of one format"), std::string::npos);
  EXPECT_NE(message([&] { concat_rows({}); }).find("one matrix at least"), std::string::npos);
}

TEST(LowBit, AutocastRoundsXNotScales) {
  Samples s(DType::f32);
  const PackedWeight w = lowbit::random_packed(s, "int8", 8, 64);
  const Tensor x = s.tensor({3, 64});
  const Tensor want = packed_linear(x.to(DType::bf16), w);
  const AutocastScope scope;
  const Tensor y = packed_linear(x, w, zeros({8}));
  EXPECT_EQ(y.dtype(), DType::bf16);
  EXPECT_EQ(y.to_vector<float>(), want.to_vector<float>());
}

TEST(LowBit, WhatCannotBeIsRefused) {
  const auto refused = [](std::string_view text, auto&& f) {
    EXPECT_NE(message(f).find(text), std::string::npos) << message(f);
  };
  refused("there is no \"q3_k\"; there are int8, e4m3, int4", [] { quantize_weight(zeros({2, 32}), "q3_k"); });
  refused("q4_k is read, not made", [] { quantize_weight(zeros({2, 256}), "q4_k"); });
  refused("multiples of 32", [] { quantize_weight(zeros({2, 48}), "q8_0"); });
  refused("divide its columns", [] { quantize_weight(zeros({2, 96}), "nf4"); });
  refused("only finite numbers", [] { quantize_weight(full({2, 32}, INFINITY), "int8"); });
  refused("too large for f16", [] { quantize_weight(full({2, 32}, 1e9), "int8", {.scale_dtype = DType::f16}); });
  refused("has no nested scales", [] { quantize_weight(zeros({2, 32}), "int8", {.nested = true}); });
  refused("multiples of 32 or all", [] { quantize_weight(zeros({2, 64}), "int4", {.block_columns = 48}); });
  refused("is empty", [] { packed_linear(zeros({2, 64}), PackedWeight()); });
  Samples s(DType::f32);
  PackedWeight w = lowbit::random_packed(s, "int8", 4, 32, {.order = true});
  w.order = full({32}, -1, DType::i32);
  refused("order names column -1 at 0", [&] { packed_linear(zeros({2, 32}), w); });
}

}  // namespace
}  // namespace strata
