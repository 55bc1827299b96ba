// Scans and variances on a CUDA device against the CPU's: short and long rows, few and many, in parts, along other
// dimensions, backwards.

#include <array>
#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include "strata/cuda/runtime.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/strata.h"

namespace strata {
namespace {

class ReduceCuda : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  }
  static Tensor on(const Tensor& t) { return t.to(Device::cuda()); }
  static void expect_same(const Tensor& got, const Tensor& want) {
    ASSERT_EQ(got.shape(), want.shape());
    ASSERT_EQ(got.dtype(), want.dtype());
    const Tensor a = got.to(Device::cpu()).contiguous(), b = want.contiguous();
    EXPECT_EQ(std::memcmp(a.raw_data(), b.raw_data(), static_cast<size_t>(a.nbytes())), 0);
  }
};

const Shape kShapes[] = {{3, 33},     {5, 100},      {200, 4096},     {2, 4097},
                         {1, 100000}, {3, 70002, 2}, {130, 16400, 1}, {1, 1000001}};

TEST_F(ReduceCuda, ScansOfWholeNumbers) {
  manual_seed(31);
  for (const Shape& shape : kShapes)
    for (const DType t : {DType::u8, DType::i32, DType::i64, DType::f64}) {
      // Whole numbers, whose sums are exact in any order.
      const Tensor x = randint(0, 50, shape).to(t), dx = on(x);
      SCOPED_TRACE(cat(x));
      expect_same(cumsum(dx, 1), cumsum(x, 1));
      expect_same(flip(cumsum(flip(dx, {1}), 1), {1}), flip(cumsum(flip(x, {1}), 1), {1}));
      const auto [v, at] = cummax(x, 1);
      const auto [dv, dat] = cummax(dx, 1);
      expect_same(dv, v);
      expect_same(dat, at);
      const auto [low, low_at] = cummin(x, 1);
      const auto [dlow, dlow_at] = cummin(dx, 1);
      expect_same(dlow, low);
      expect_same(dlow_at, low_at);
    }
}

TEST_F(ReduceCuda, ScansOfFractionsRepeatTheirBits) {
  manual_seed(32);
  for (const Shape& shape : kShapes)
    for (const DType t : {DType::f32, DType::bf16}) {
      const Tensor x = rand(shape).to(t), dx = on(x);
      SCOPED_TRACE(cat(x));
      const Tensor got = cumsum(dx, 1).to(Device::cpu());
      expect_same(cumsum(dx, 1), got);
      const Tensor want = cumsum(x.to(DType::f64), 1);
      const Tensor off = abs(got.to(DType::f64) - want) / want;
      EXPECT_LT(max(off).item(), t == DType::f32 ? 1e-4 : 1e-2);
      expect_same(cumprod(dx, 1), cumprod(dx, 1).to(Device::cpu()));
    }
}

// The gradient scans from the end.
TEST_F(ReduceCuda, GradientOfScan) {
  manual_seed(33);
  for (const Shape& shape : {Shape{3, 4100}, Shape{2, 100000}, Shape{2, 100001}}) {
    const Tensor g = randint(-9, 9, shape).to(DType::f64);
    const auto gradient = [&](Tensor x) {
      x.set_requires_grad();
      sum(cumsum(x, 1) * g.to(x.device())).backward();
      return x.grad();
    };
    expect_same(gradient(on(zeros(shape, DType::f64))), gradient(zeros(shape, DType::f64)));
  }
}

TEST_F(ReduceCuda, VarianceFarFromZero) {
  manual_seed(34);
  for (const Shape& shape : {Shape{4, 37}, Shape{300, 4096}, Shape{2, 1000000}, Shape{5000, 3000}, Shape{6, 1}})
    for (const DType t : {DType::f32, DType::bf16, DType::f64}) {
      const Tensor x = (randn(shape) + (t == DType::bf16 ? 4.0 : 1000.0)).to(t), dx = on(x);
      SCOPED_TRACE(cat(x));
      const Tensor want = var(x.to(DType::f64), {1}, 0), got = var(dx, {1}, 0).to(Device::cpu()).to(DType::f64);
      EXPECT_LT(max(abs(got - want)).item(), t == DType::bf16 ? 1e-2 : 2e-3);
      expect_same(var(dx, {0, 1}), var(dx, {0, 1}).to(Device::cpu()));
      const Tensor down = strata::std(dx, {0}, 0).to(Device::cpu()).to(DType::f64);
      const Tensor off = abs(down - strata::std(x.to(DType::f64), {0}, 0));
      EXPECT_LT(max(off).item(), t == DType::bf16 ? 1e-2 : 2e-3);
    }
  EXPECT_TRUE(std::isnan(var(on(ones({1})), {0}).item()));
}

// Tensors whose dimensions lie in another order are reduced as they lie.
TEST_F(ReduceCuda, TurnedTensors) {
  manual_seed(35);
  const Tensor x = randint(-3, 4, {5, 6, 700}).to(DType::f64), dx = on(x);
  for (const Dims& order : {Dims{2, 1, 0}, Dims{2, 0, 1}, Dims{1, 0, 2}})
    for (const Dims& over : {Dims{}, Dims{0}, Dims{1}, Dims{0, 2}, Dims{1, 2}}) {
      const Tensor turned = permute(x, order), there = permute(dx, order);
      SCOPED_TRACE(cat(order, " ", over));
      // Whole numbers, whose sums are exact in any order.
      expect_same(sum(there, over), sum(turned, over));
      expect_same(norm(there, 1, over), norm(turned, 1, over));
      expect_same(any(there > 2, over), any(turned > 2, over));
      expect_same(all(there, over), all(turned, over));
      expect_same(count_nonzero(there, over), count_nonzero(turned, over));
      EXPECT_LT(max(abs(var(there, over).to(Device::cpu()) - var(turned, over))).item(), 1e-12);
      EXPECT_LT(max(abs(norm(there, 2, over).to(Device::cpu()) - norm(turned, 2, over))).item(), 1e-10);
      const auto [v, m] = std_mean(there, over);
      EXPECT_LT(max(abs(v.to(Device::cpu()) - strata::std(turned, over))).item(), 1e-12);
      EXPECT_LT(max(abs(m.to(Device::cpu()) - mean(turned, over))).item(), 1e-12);
    }
}

// Tensors with gaps are reduced as they lie where neighbours are near: every second element, parts of rows.
TEST_F(ReduceCuda, TensorsWithGaps) {
  manual_seed(36);
  for (const DType t : {DType::f64, DType::f32, DType::bf16, DType::i8})
    for (const Shape& shape : {Shape{512, 515}, Shape{5, 9000}, Shape{3, 70, 140}, Shape{1, 40, 33}}) {
      const Tensor x = randint(-1, 2, shape).to(t), dx = on(x);
      for (const int64_t step : {1, 2})
        for (int64_t d = 0; d < x.dim(); ++d) {
          const Tensor part = slice(x, d, 3, x.size(d) - 1, step), there = slice(dx, d, 3, x.size(d) - 1, step);
          Dims every;
          for (int64_t e = 0; e < x.dim(); ++e) {
            every.push_back(e);
            for (const Dims& over : {Dims{e}, every}) {
              SCOPED_TRACE(cat(part, " part of dimension ", d, " over ", over));
              // Whole numbers, whose sums are exact in any order.
              expect_same(sum(there, over), sum(part, over));
              expect_same(any(there > 0, over), any(part > 0, over));
              expect_same(all(there, over), all(part, over));
              if (part.numel() != 0) expect_same(amax(there, over), amax(part, over));
              if (part.numel() == 0 || !is_floating(t)) continue;
              EXPECT_LT(max(abs(mean(there, over).to(Device::cpu()) - mean(part, over))).item(), 1e-2);
              if (t != DType::f64) continue;
              EXPECT_LT(max(abs(var(there, over, 0).to(Device::cpu()) - var(part, over, 0))).item(), 1e-12);
            }
            if (part.numel() == 0) continue;
            const auto [v, at] = max(part, e);
            const auto [dv, dat] = max(there, e);
            expect_same(dv, v);
            expect_same(dat, at);
            expect_same(argmin(there), argmin(part));
          }
        }
      const auto [v, at] = min(transpose(x, 0, 1), 0);
      const auto [dv, dat] = min(transpose(dx, 0, 1), 0);
      expect_same(dv, v);
      expect_same(dat, at);
    }
}

TEST_F(ReduceCuda, TruthOfEveryDtype) {
  for (const DType t : {DType::boolean, DType::u8, DType::i16, DType::i32, DType::i64, DType::bf16, DType::f16,
                        DType::f32, DType::f64}) {
    const Tensor x = on(zeros({3, 5000}).to(t));
    x.select(0, 1).slice(0, 4321, 4322).fill_(1);
    SCOPED_TRACE(cat(t));
    EXPECT_EQ(count_nonzero(x).item(), 1);
    expect_same(any(x, {1}), from_span<bool>(std::array<bool, 3>{false, true, false}, {3}));
    EXPECT_FALSE(all(x).item<bool>());
    EXPECT_TRUE(all(x + 1).item<bool>() || t == DType::boolean);
    if (is_floating(t)) {
      EXPECT_EQ(count_nonzero(on(full({100}, -0.0).to(t))).item(), 0);
      EXPECT_EQ(count_nonzero(on(full({100}, NAN).to(t))).item(), 100);
    }
  }
}

}  // namespace
}  // namespace strata
