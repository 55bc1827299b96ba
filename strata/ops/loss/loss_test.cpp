// What the generated tests of the losses do not cover: every instruction-set level, further dimensions, what is kept
// for the gradient, and divisors.

#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/core/node.h"
#include "strata/core/recording.h"
#include "strata/memory/allocator.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/loss/loss.h"
#include "strata/ops/loss/loss_kernel.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/softmax/softmax.h"
#include "strata/ops/vec/level.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

Tensor numbers(const Shape& shape) {
  std::mt19937 rng(2);
  std::normal_distribution<float> normal;
  Tensor t = empty(shape);
  for (int64_t i = 0; i < t.numel(); ++i) t.data<float>()[i] = 3 * normal(rng);
  return t;
}
Tensor classes(const Shape& shape, int64_t n) {
  Tensor t = empty(shape, DType::i64);
  for (int64_t i = 0; i < t.numel(); ++i) t.data<int64_t>()[i] = i * 7919 % n;
  return t;
}

struct Level {
  explicit Level(int level) { set_vec_level(level); }
  ~Level() { set_vec_level(-1); }
};

TEST(CrossEntropy, EveryLevelMatchesTheDefinition) {
  for (int level = 0; level <= 3; ++level) {
    Level at(level);
    if (vec_level() != level) continue;  // this processor ends below
    for (int64_t n : {1, 3, 16, 100, 1000})
      for (double smoothing : {0.0, 0.2}) {
        const int64_t rows = 9;
        Tensor x = numbers({rows, n});
        const Tensor target = classes({rows}, n);
        target.data<int64_t>()[4] = -100;
        x.set_requires_grad();
        const Tensor loss = cross_entropy(x, target, {.label_smoothing = smoothing});
        loss.backward();
        double want = 0;
        for (int64_t r = 0; r < rows; ++r) {
          const int64_t t = target.data<int64_t>()[r];
          double sum = 0, even = 0;
          for (int64_t c = 0; c < n; ++c) sum += std::exp(static_cast<double>(x.data<float>()[r * n + c]));
          for (int64_t c = 0; c < n; ++c) even += (std::log(sum) - x.data<float>()[r * n + c]) / static_cast<double>(n);
          if (t >= 0) want += ((1 - smoothing) * (std::log(sum) - x.data<float>()[r * n + t]) + smoothing * even) / 8;
          for (int64_t c = 0; c < n; ++c) {
            const double p = std::exp(static_cast<double>(x.data<float>()[r * n + c])) / sum;
            const double q = (c == t ? 1 - smoothing : 0) + smoothing / static_cast<double>(n);
            EXPECT_NEAR(x.grad().data<float>()[r * n + c], t < 0 ? 0 : (p - q) / 8, 1e-6)
                << "level " << level << ", n " << n;
          }
        }
        EXPECT_NEAR(loss.item(), want, 1e-5) << "level " << level << ", n " << n;
      }
  }
}

TEST(CrossEntropy, FurtherDimensionsAreRows) {
  const Tensor x = numbers({2, 5, 3, 4}), target = classes({2, 3, 4}, 5);
  const Tensor each = cross_entropy(x, target, {.reduction = "none"});
  ASSERT_EQ(each.shape(), target.shape());
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t i = 0; i < 12; ++i) {
      double sum = 0;
      const auto at = [&](int64_t c) { return static_cast<double>(x.data<float>()[(b * 5 + c) * 12 + i]); };
      for (int64_t c = 0; c < 5; ++c) sum += std::exp(at(c));
      EXPECT_NEAR(each.data<float>()[b * 12 + i], std::log(sum) - at(target.data<int64_t>()[b * 12 + i]), 1e-5);
    }
  EXPECT_NEAR(cross_entropy(numbers({7}), full({}, 3, DType::i64)).item(),
              cross_entropy(numbers({7}).unsqueeze(0), full({1}, 3, DType::i64)).item(), 1e-7);
  EXPECT_NEAR(
      nll_loss(numbers({2, 5, 3}), classes({2, 3}, 5), {}, -100, "sum").item(),
      -[&] {
        double s = 0;
        for (int64_t b = 0; b < 2; ++b)
          for (int64_t i = 0; i < 3; ++i)
            s += numbers({2, 5, 3}).data<float>()[(b * 5 + classes({2, 3}, 5).data<int64_t>()[b * 3 + i]) * 3 + i];
        return s;
      }(),
      1e-5);
}

// Classes as planes of an image: the numbers of rows, without rows.
TEST(CrossEntropy, PlanesAreReadAsTheyLie) {
  const Tensor x = numbers({2, 5, 64, 70}).set_requires_grad(), target = classes({2, 64, 70}, 5);
  for (const char* reduction : {"mean", "sum", "none"}) {
    const CrossEntropyOptions options{.ignore_index = 3, .reduction = reduction, .label_smoothing = 0.1};
    const Recording r = record([&] { sum(cross_entropy(x, target, options)).backward(); });
    for (const RecordedCall& c : r.calls) {
      EXPECT_NE(c.op->name(), "clone");
      EXPECT_NE(c.op->name(), "cross_entropy_rows");
    }
    const Tensor got = x.grad();
    Tensor(x).set_grad({});
    const Tensor rows = x.detach().permute({0, 2, 3, 1}).reshape({-1, 5}).set_requires_grad();
    const Tensor loss = cross_entropy(rows, target.reshape({-1}), options);
    EXPECT_EQ(cross_entropy(x.detach(), target, options).to_vector<float>(), loss.detach().to_vector<float>());
    sum(loss).backward();
    EXPECT_EQ(got.to_vector<float>(), rows.grad().view({2, 64, 70, 5}).permute({0, 3, 1, 2}).to_vector<float>());
  }
}

TEST(CrossEntropy, KeepsOneNumberARow) {
  Tensor x = numbers({512, 4096});
  x.set_requires_grad();
  const int64_t before = memory::stats(DeviceType::cpu).live[static_cast<int>(memory::Tag::activation)];
  const Tensor loss = cross_entropy(x, classes({512}, 4096));
  const int64_t kept = memory::stats(DeviceType::cpu).live[static_cast<int>(memory::Tag::activation)] - before;
  EXPECT_LT(kept, x.nbytes() / 100);
  EXPECT_TRUE(loss.requires_grad());
}

TEST(CrossEntropy, LossOfBf16LogitsIsF32) {
  const Tensor x = numbers({64, 100}).to(DType::bf16), target = classes({64}, 100);
  const Tensor loss = cross_entropy(x, target);
  EXPECT_EQ(loss.dtype(), DType::f32);
  EXPECT_NEAR(loss.item(), cross_entropy(x.to(DType::f32), target).item(), 1e-4);
}

// The loss is the difference of numbers that may be large and nearly equal.
TEST(CrossEntropy, KeepsItsDigitsFarFromZero) {
  for (int level = 0; level <= 3; ++level) {
    const Level at(level);
    for (const double far : {0.7, 100.25, -3000.5}) {
      const Tensor one = full({2, 1}, far), three = full({2, 3}, far);
      EXPECT_EQ(cross_entropy(one, full({2}, 0, DType::i64)).item(), 0) << far << " " << level;
      EXPECT_NEAR(cross_entropy(three, full({2}, 1, DType::i64)).item(), std::log(3.0), 2e-7) << far << " " << level;
      EXPECT_EQ(log_softmax(one, 1).to_vector<double>(), std::vector<double>(2, 0)) << far << " " << level;
      for (const double x : log_softmax(three, 1).to_vector<double>()) EXPECT_NEAR(x, -std::log(3.0), 2e-7) << far;
    }
  }
}

TEST(CrossEntropy, AllIgnoredIsNan) {
  const Tensor target = full({3}, -100, DType::i64);
  EXPECT_TRUE(std::isnan(cross_entropy(numbers({3, 4}), target).item()));
  EXPECT_EQ(cross_entropy(numbers({3, 4}), target, {.reduction = "sum"}).item(), 0);
}

TEST(KlDiv, BatchMeanDividesByTheBatch) {
  const Tensor x = numbers({4, 6}), t = full({4, 6}, 0.25);
  EXPECT_NEAR(kl_div(x, t, "batchmean").item(), kl_div(x, t, "sum").item() / 4, 1e-5);
}

TEST(PairLoss, SumsOfManyElementsLoseNothing) {
  // 2^22 equal terms: an f32 running sum would stop growing at 2^24.
  const int64_t n = int64_t{1} << 22;
  EXPECT_EQ(mse_loss(full({n}, 3.0), full({n}, 0.0), "sum").item(), 9.0 * static_cast<double>(n));
}

// More rows than are in memory at once, with ignored ones; gradients of a sum and of a mean, and with f32 weights.
TEST(LinearCrossEntropy, ChunksGiveWhatWholeLogitsGive) {
  constexpr int64_t kRows = 5000, kWidth = 6, kClasses = 1001;
  const Tensor target = classes({kRows}, kClasses);
  for (int64_t r = 0; r < kRows; r += 7) target.data<int64_t>()[r] = -100;
  for (const DType type : {DType::f32, DType::bf16})
    for (const char* reduction : {"mean", "sum", "none"})
      for (const double smoothing : {0.0, 0.1}) {
        SCOPED_TRACE(cat(type, " ", reduction, " ", smoothing));
        const CrossEntropyOptions o{.reduction = reduction, .label_smoothing = smoothing};
        Tensor x[2], w[2], loss[2];
        for (int i = 0; i < 2; ++i) {
          x[i] = numbers({kRows, kWidth}).to(type).set_requires_grad();
          w[i] = numbers({kClasses, kWidth}).set_requires_grad();
        }
        loss[0] = linear_cross_entropy(x[0], w[0], target, o);
        loss[1] = cross_entropy(linear(x[1], w[1].to(type)), target, o);
        const double eps = type == DType::f32 ? 1e-5 : 2e-2;
        const auto expect_alike = [&](const Tensor& a, const Tensor& b) {
          ASSERT_EQ(a.shape(), b.shape());
          const std::vector<double> u = a.to_vector<double>(), v = b.to_vector<double>();
          double scale = 0;
          for (const double e : v) scale = std::max(scale, std::abs(e));
          for (size_t i = 0; i < u.size(); ++i) ASSERT_NEAR(u[i], v[i], eps * scale) << i;
        };
        expect_alike(loss[0], loss[1]);
        for (int i = 0; i < 2; ++i) (loss[i] * 3).sum().backward();
        EXPECT_EQ(w[0].grad().dtype(), DType::f32);
        expect_alike(x[0].grad(), x[1].grad());
        expect_alike(w[0].grad(), w[1].grad());
        NoGrad guard;
        expect_alike(linear_cross_entropy(x[0], w[0], target, o), loss[1]);
      }
}

// The last backward may write over what the earlier ones still needed; scaled, and not.
TEST(LinearCrossEntropy, GradientsCanBeAskedForAgain) {
  const Tensor target = classes({6}, 5);
  for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
    const Tensor x = numbers({6, 3}).to(type).set_requires_grad(), w = numbers({5, 3}).set_requires_grad();
    const Tensor loss = linear_cross_entropy(x, w, target), twice = loss * 2;
    TensorList all[4];
    for (int i = 0; i < 3; ++i) all[i] = grad({i == 1 ? twice : loss}, {x, w}, {}, false, true);
    all[3] = grad({twice}, {x, w});
    for (size_t j = 0; j < 2; ++j) {
      const std::vector<double> once = all[0][j].to_vector<double>(), both = all[1][j].to_vector<double>();
      EXPECT_EQ(all[2][j].to_vector<double>(), once);
      EXPECT_EQ(all[3][j].to_vector<double>(), both);
      for (size_t k = 0; k < once.size(); ++k) EXPECT_NEAR(both[k], 2 * once[k], 1e-2 * std::abs(once[k]) + 1e-6);
    }
  }
}

TEST(LinearCrossEntropy, GradientsHaveGradients) {
  const Tensor target = classes({6}, 5);
  Tensor x[2], w[2], second[2];
  for (int i = 0; i < 2; ++i) {
    x[i] = numbers({6, 3}).set_requires_grad();
    w[i] = numbers({5, 3}).set_requires_grad();
    const Tensor loss = i == 0 ? linear_cross_entropy(x[i], w[i], target) : cross_entropy(linear(x[i], w[i]), target);
    const TensorList g = grad({loss}, {x[i], w[i]}, {}, true);
    second[i] = grad({(g[0] * g[0]).sum() + (g[1] * g[1]).sum()}, {w[i]})[0];
  }
  for (int64_t i = 0; i < 15; ++i) EXPECT_NEAR(second[0].data<float>()[i], second[1].data<float>()[i], 1e-5);
}

}  // namespace
}  // namespace strata
