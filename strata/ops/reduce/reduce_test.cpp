// What the generated verification does not see of reductions: accuracy of long sums, special values, thread counts,
// ties.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "strata/autograd/autograd.h"
#include "strata/core/error.h"
#include "strata/core/parallel.h"
#include "strata/cuda/runtime.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/reduce/kernels.h"
#include "strata/ops/reduce/layout.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/reduce/running_inl.h"
#include "strata/ops/vec/level.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
Tensor f32(std::vector<float> v) {
  return from_span<float>(std::span<const float>(v), {static_cast<int64_t>(v.size())});
}

TEST(Sum, LongSumsStayAccurate) {
  const int64_t n = 5000011;
  const Tensor x = full({n}, 0.1);
  const double exact = static_cast<double>(0.1f) * static_cast<double>(n);
  EXPECT_NEAR(sum(x).item<double>(), exact, exact * 4e-7);
  EXPECT_NEAR(mean(x).item<double>(), 0.1f, 4e-8);
  // Columns: 200000 rows.
  for (float v : sum(full({200000, 25}, 0.1), {0}).to_vector<float>()) EXPECT_NEAR(v, 20000.0, 20000 * 5e-7);
  // bf16 accumulates in f32: in bf16 it would stop at 256.
  EXPECT_EQ(sum(full({100000}, 1, DType::bf16)).item<float>(), static_cast<float>(BFloat16(100000.0f)));
}

// Sums along a layout's middle dimension, by its steps; of pieces, one.
std::vector<double> sums_by_steps(const ReduceLayout& l) {
  const double* x = static_cast<const double*>(l.data.raw_data());
  const int64_t a = l.gaps ? l.outer_step : l.n * l.inner, b = l.gaps ? l.n_step : l.inner,
                c = l.gaps ? l.inner_step : 1;
  std::vector<double> r(static_cast<size_t>(l.pieces ? 1 : l.outer * l.inner), 0);
  for (int64_t o = 0; o < l.outer; ++o)
    for (int64_t i = 0; i < l.n; ++i)
      for (int64_t j = 0; j < l.inner; ++j)
        r[l.pieces ? 0 : static_cast<size_t>(o * l.inner + j)] += x[o * a + i * b + j * c];
  return r;
}

// What a card reduces where it lies: every second element, parts of rows, whatever the dimensions.
TEST(Layout, GapsAreSteppedOver) {
  const Tensor wide = arange(0, 6 * 140 * 131, 1, DType::f64).reshape({6, 140, 131});
  const auto second = [&](int64_t d, int64_t step) { return slice(wide, d, 1, wide.size(d), step); };
  struct Case {
    Tensor x;
    uint32_t mask;
    bool copied, pieces;
  };
  const Case cases[] = {
      {second(2, 2), 0b100, false, false},
      {second(2, 2), 0b010, false, false},
      {second(2, 2), 0b001, true, false},  // what is left lies unevenly
      {second(2, 2), 0b111, false, true},
      {second(2, 2), 0b101, true, false},
      {second(2, 3), 0b100, true, false},  // 24 bytes apart
      {slice(wide, 2, 3, 67), 0b100, false, false},
      {slice(wide, 2, 3, 67), 0b111, false, true},
      {slice(wide, 2, 3, 66), 0b111, true, false},  // pieces of 63
      {second(1, 2), 0b111, false, true},
      {second(1, 2), 0b110, true, false},
      {second(0, 2), 0b110, false, false},
      {second(0, 2).select(1, 4), 0b11, false, true},
      {second(2, 2).select(0, 1), 0b01, false, false},
      {wide.permute({2, 1, 0}), 0b001, true, false},
      {wide.select(2, 0).select(0, 0), 0b1, true, false},
      {second(2, 2).select(0, 2).select(0, 7), 0b1, false, false},
      {full({1}, 3.0, DType::f64).expand({70, 5}), 0b01, false, false},
  };
  for (const Case& c : cases)
    for (const bool pieces : {false, true}) {
      SCOPED_TRACE(cat(c.x, " mask ", c.mask, " pieces ", pieces));
      const ReduceLayout l = gapped_layout(c.x, c.mask, pieces);
      EXPECT_EQ(l.pieces, c.pieces && pieces);
      EXPECT_EQ(l.data.raw_data() != c.x.raw_data(), c.copied || (c.pieces && !pieces));
      Dims dims;
      for (int d = 0; d < c.x.dim(); ++d)
        if (c.mask >> d & 1) dims.push_back(d);
      EXPECT_EQ(sums_by_steps(l), sum(c.x.contiguous(), dims).to_vector<double>());
    }
  EXPECT_FALSE(gapped_layout(wide, 0b010, true).gaps);
}

// What a card combines of the gradient of cummax, in whatever pieces: each run's sum stays its own, infinities too.
TEST(Cummax, SumsOfRunsComeTogetherFromAnyPieces) {
  const std::vector<int> run = {0, 0, 0, 3, 4, 4, 4, 4, 8, 9, 9};
  const std::vector<float> g = {1, 2, kInf, 5, 7, -3, 2, 1, 4, 6, 1};
  const auto step = [&](size_t i) { return RunSum<float>{g[i], i == 0 || run[i] == run[i - 1]}; };
  for (size_t end = 1; end <= g.size(); ++end) {
    float want = 0;
    for (size_t i = 0; i < end; ++i)
      if (run[i] == run[end - 1]) want += g[i];
    for (size_t cut = 0; cut <= end; ++cut) {
      RunSum<float> left, right;
      for (size_t i = 0; i < cut; ++i) left = then(left, step(i));
      for (size_t i = cut; i < end; ++i) right = then(right, step(i));
      EXPECT_EQ(then(left, right).sum, want) << "to " << end << ", cut at " << cut;
    }
  }
}

TEST(Sum, DoesNotDependOnThreads) {
  const Tensor x = sin(cumsum(full({300, 1111}, 0.37), 1));
  const int before = num_threads();
  std::vector<Tensor> results[2];
  for (int i = 0; i < 2; ++i) {
    set_num_threads(i == 0 ? 1 : 5);
    results[i] = {sum(x), sum(x, {0}), sum(x, {1}), norm(x), var(x, {0}), logsumexp(x, {1}), mean(x.t(), {0})};
  }
  set_num_threads(before);
  for (size_t k = 0; k < results[0].size(); ++k) EXPECT_TRUE(equal(results[0][k], results[1][k])) << "result " << k;
}

// A few columns, which are turned into lines or stay in registers, few rows, and runs apart: each has loops of its own.
TEST(Layout, ColumnsAndRunsOfAnyWidth) {
  struct Case {
    Shape shape;
    Dims dims;
  };
  const Case cases[] = {{{3, 40, 2}, {1}},
                        {{3, 40, 3}, {1}},
                        {{2, 17, 4}, {1}},
                        {{3, 70, 7}, {1}},
                        {{2, 70, 16}, {1}},
                        {{2, 70, 20}, {1}},
                        {{2, 75, 50}, {1}},
                        {{2, 37, 64}, {1}},
                        {{2, 1030, 33}, {1}},
                        {{3, 1, 100}, {1}},
                        {{2, 3, 200}, {1}},
                        {{2, 6, 1500}, {1}},
                        {{2, 7, 130}, {1}},
                        {{5, 3, 40}, {0, 2}},
                        {{5, 3, 1, 9}, {0, 3}},
                        {{2, 5, 3, 70}, {1, 3}},
                        {{2, 1, 3, 6, 9}, {0, 3, 4}},
                        {{3, 2, 3, 2}, {0, 2}}};
  const int threads = num_threads();
  for (int level = 0; level <= 3; ++level) {
    set_vec_level(level);
    for (const DType t : {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i32}) {
      for (const auto& [shape, dims] : cases) {
        // Whole numbers, whose sums are exact in any order.
        const Tensor x = (remainder(arange(shape.product()) * 37, 11) - 5).reshape(shape).to(t);
        Dims order;
        for (int64_t d = 0; d < shape.size(); ++d)
          if (std::find(dims.begin(), dims.end(), d) == dims.end()) order.push_back(d);
        for (const int64_t d : dims) order.push_back(d);
        const int64_t n = reduced_count(shape, dim_mask(dims, shape.size(), "sum"));
        const std::vector<double> all = permute(x, order).to_vector<double>();
        std::vector<double> sums, most, squares;
        for (size_t i = 0; i < all.size(); ++i) {
          if (i % static_cast<size_t>(n) == 0) sums.push_back(0), squares.push_back(0), most.push_back(-9);
          sums.back() += all[i], squares.back() += all[i] * all[i], most.back() = std::max(most.back(), all[i]);
        }
        const std::string told = cat("level ", level, ", ", t, " ", shape, " over ", dims);
        EXPECT_EQ(sum(x.to(t == DType::i32 ? t : DType::f32), dims).to_vector<double>(), sums) << told;
        EXPECT_EQ(amax(x, dims).to_vector<double>(), most) << told;
        if (!is_floating(t)) continue;
        const std::vector<double> means = mean(x, dims).to_vector<double>(), vars = var(x, dims, 0).to_vector<double>();
        for (size_t i = 0; i < sums.size(); ++i) {
          const double by = static_cast<double>(n), m = sums[i] / by, bound = is_reduced_floating(t) ? 1e-2 : 1e-5;
          EXPECT_NEAR(means[i], m, bound * (1 + std::abs(m))) << told;
          EXPECT_NEAR(vars[i], squares[i] / by - m * m, bound * 12) << told;
        }
        const std::vector<double> logs = logsumexp(x, dims).to_vector<double>();
        for (size_t i = 0; i < logs.size(); ++i) {
          double total = 0;
          for (size_t k = 0; k < static_cast<size_t>(n); ++k) total += std::exp(all[i * static_cast<size_t>(n) + k]);
          EXPECT_NEAR(logs[i], std::log(total),
                      (is_reduced_floating(t) ? 4e-2 : 1e-5) * (1 + std::abs(std::log(total))))
              << told;
        }
        set_num_threads(1);
        const Tensor one = mean(x, dims), deviation = var(x, dims, 0), log_one = logsumexp(x, dims);
        set_num_threads(3);
        EXPECT_TRUE(equal(mean(x, dims), one) && equal(var(x, dims, 0), deviation)) << told;
        EXPECT_TRUE(equal(logsumexp(x, dims), log_one)) << told;
        set_num_threads(threads);
      }
    }
  }
  set_vec_level(-1);
}

TEST(Extremes, NanWinsAndTheFirstOfEqualsIsMeant) {
  const Tensor x = f32({1, kNan, 3, kNan});
  EXPECT_TRUE(std::isnan(max(x).item<float>()));
  EXPECT_TRUE(std::isnan(min(x).item<float>()));
  EXPECT_EQ(argmax(x).item<int>(), 1);
  EXPECT_EQ(argmin(x).item<int>(), 1);
  std::vector<float> many(1000, 2.0f);
  many[70] = many[900] = 5;
  EXPECT_EQ(argmax(f32(many)).item<int>(), 70);
  EXPECT_EQ(max(f32(many).reshape({1000, 1}).expand({1000, 3}), 0).second.to_vector<int>(),
            (std::vector<int>{70, 70, 70}));
  EXPECT_EQ(max(f32({-kInf, -kInf})).item<float>(), -kInf);
  const auto [values, indices] = max(full({2, 3}, 7), 1);
  EXPECT_EQ(values.to_vector<int>(), (std::vector<int>{7, 7}));
  EXPECT_EQ(indices.to_vector<int>(), (std::vector<int>{0, 0}));
  EXPECT_TRUE(max(full({3}, true)).item<bool>());
}

TEST(Extremes, TiesShareTheGradientOfAll) {
  Tensor x = f32({3, 1, 3}).set_requires_grad();
  max(x).backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{0.5f, 0, 0.5f}));
  Tensor z = f32({3, 1, 3}).set_requires_grad();
  max(z, 0).first.backward();
  EXPECT_EQ(z.grad().to_vector<float>(), (std::vector<float>{1, 0, 0}));
}

TEST(Empty, AsPyTorch) {
  const Tensor none = zeros({0, 3});
  EXPECT_EQ(sum(none).item<float>(), 0);
  EXPECT_EQ(prod(none).item<float>(), 1);
  EXPECT_TRUE(std::isnan(mean(none).item<float>()));
  EXPECT_EQ(sum(none, {0}).to_vector<float>(), (std::vector<float>{0, 0, 0}));
  EXPECT_EQ(sum(none, {1}).numel(), 0);
  EXPECT_TRUE(all(none).item<bool>());
  EXPECT_FALSE(any(none).item<bool>());
  EXPECT_EQ(logsumexp(none, {0}).to_vector<float>(), (std::vector<float>{-kInf, -kInf, -kInf}));
  EXPECT_THROW(max(none), ShapeError);
  EXPECT_THROW(argmin(none, 0), ShapeError);
  EXPECT_TRUE(std::isnan(var(ones({1})).item<float>()));
}

TEST(LogSumExp, NeitherOverflowsNorLosesInfinities) {
  EXPECT_FLOAT_EQ(logsumexp(f32({1000, 1000}), {0}).item<float>(), 1000 + std::log(2.0f));
  EXPECT_EQ(logsumexp(f32({-kInf, -kInf}), {0}).item<float>(), -kInf);
  EXPECT_EQ(logsumexp(f32({kInf, 1}), {0}).item<float>(), kInf);
  EXPECT_TRUE(std::isnan(logsumexp(f32({kNan, 1}), {0}).item<float>()));
}

TEST(Products, GradientsAtZero) {
  Tensor x = f32({2, 0, 5}).set_requires_grad();
  prod(x).backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{0, 10, 0}));
  Tensor z = f32({2, 0, 5}).set_requires_grad();
  sum(cumprod(z, 0)).backward();
  EXPECT_EQ(z.grad().to_vector<float>(), (std::vector<float>{1, 12, 0}));
}

TEST(Scans, IntegersAndPositions) {
  EXPECT_EQ(cumsum(full({3}, 200, DType::u8), 0).to_vector<int>(), (std::vector<int>{200, 400, 600}));
  const auto [values, indices] = cummax(f32({1, 3, 2, 3, kNan, 9}), 0);
  EXPECT_EQ(values.to_vector<float>()[3], 3);
  EXPECT_EQ(indices.to_vector<int>(), (std::vector<int>{0, 1, 1, 3, 4, 4}));
  EXPECT_TRUE(std::isnan(values.to_vector<float>()[5]));
}

TEST(Norms, ZeroVectorsHaveZeroGradients) {
  Tensor x = zeros({3}).set_requires_grad();
  norm(x).backward();
  EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{0, 0, 0}));
  Tensor s = ones({3}).set_requires_grad();
  std(s).backward();
  EXPECT_EQ(s.grad().to_vector<float>(), (std::vector<float>{0, 0, 0}));
}

TEST(Norms, ZerosHaveZeroGradientsOfAnyPower) {
  for (const double p : {-2.0, 0.5, 1.5, 2.0, 3.0})
    for (const DType type : {DType::f32, DType::bf16}) {
      SCOPED_TRACE(cat(p, " ", type));
      Tensor x = from_span<float>(std::vector<float>{0, 0, 0, -2}, {2, 2}).to(type).set_requires_grad();
      norm(x, p, {1}).backward(ones({2}, type));
      // A norm of a negative power is 0 where an element is.
      EXPECT_EQ(x.grad().to_vector<float>(), (std::vector<float>{0, 0, 0, p < 0 ? 0.0F : -1.0F}));
    }
}

TEST(Scan, OfNoElementsTakesNoTime) {
  const Tensor none = zeros({2, int64_t{1} << 40, 0, 2});
  for (const Device device : {Device::cpu(), Device::cuda()}) {
    if (device.is_cuda() && cuda::device_count() == 0) continue;
    const Tensor x = none.to(device);
    EXPECT_EQ(std::get<0>(cummin(x, -2)).numel() + cumsum(x, 2).numel() + cumprod(x, 2).numel(), 0);
  }
}

}  // namespace
}  // namespace strata
