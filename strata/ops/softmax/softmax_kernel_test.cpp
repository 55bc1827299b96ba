// The softmax kernels on every instruction-set level against sums in double, on rows and columns of awkward lengths.

#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "strata/ops/softmax/softmax_kernel.h"
#include "strata/ops/vec/level.h"

namespace strata {
namespace {

struct Level {
  explicit Level(int level) { set_vec_level(level); }
  ~Level() { set_vec_level(-1); }
};

template <class T>
std::vector<T> numbers(int64_t n, double low, double high) {
  std::mt19937 rng(1);
  std::uniform_real_distribution<double> u(low, high);
  std::vector<T> r(static_cast<size_t>(n));
  for (T& v : r) v = T(static_cast<std::conditional_t<std::is_same_v<T, double>, double, float>>(u(rng)));
  return r;
}
double value_of(double v) {
  return v;
}
template <class T>
double value_of(T v) {
  return static_cast<float>(v);
}

template <class T>
void check_forward(double bound) {
  const int64_t shapes[][3] = {{3, 1, 1},    {5, 7, 1}, {2, 16, 1},  {3, 65, 1},
                               {1, 1000, 1}, {2, 3, 5}, {2, 40, 17}, {1, 130, 1500}};
  for (int level = 0; level <= 3; ++level) {
    Level at(level);
    if (vec_level() != level) continue;  // this processor ends below
    for (const auto& [outer, n, inner] : shapes)
      for (bool log : {false, true}) {
        const std::vector<T> x = numbers<T>(outer * n * inner, -30, 30);
        std::vector<T> y(x.size()), g = numbers<T>(outer * n * inner, -1, 1), gx(x.size());
        softmax_forward_cpu(dtype_of<T>, log, x.data(), y.data(), outer, n, inner);
        softmax_backward_cpu(dtype_of<T>, log, g.data(), y.data(), gx.data(), outer, n, inner);
        double worst = 0;
        for (int64_t o = 0; o < outer; ++o)
          for (int64_t i = 0; i < inner; ++i) {
            const auto index = [&, n = n, inner = inner](int64_t k) {
              return static_cast<size_t>((o * n + k) * inner + i);
            };
            double top = -INFINITY, sum = 0, dot = 0;
            for (int64_t k = 0; k < n; ++k) top = std::max(top, value_of(x[index(k)]));
            for (int64_t k = 0; k < n; ++k) sum += std::exp(value_of(x[index(k)]) - top);
            for (int64_t k = 0; k < n; ++k) dot += value_of(g[index(k)]) * (log ? 1 : value_of(y[index(k)]));
            for (int64_t k = 0; k < n; ++k) {
              const double d = value_of(x[index(k)]) - top, want = log ? d - std::log(sum) : std::exp(d) / sum;
              const double v = value_of(y[index(k)]), gv = value_of(g[index(k)]);
              const double gradient = log ? gv - std::exp(v) * dot : v * (gv - dot);
              for (double e : {std::abs(v - want) / (1 + std::abs(want)),
                               std::abs(value_of(gx[index(k)]) - gradient) / (1 + std::abs(gradient))})
                if (!(e <= worst)) worst = e;
            }
          }
        EXPECT_LT(worst, bound) << "level " << level << " [" << outer << ", " << n << ", " << inner << "] log " << log;
      }
  }
}

TEST(SoftmaxKernel, F64) {
  check_forward<double>(1e-13);
}
TEST(SoftmaxKernel, F32) {
  check_forward<float>(5e-6);
}  // sums of up to 1000 terms
TEST(SoftmaxKernel, Bf16) {
  check_forward<BFloat16>(4e-3);
}
TEST(SoftmaxKernel, F16) {
  check_forward<Half>(6e-4);
}

TEST(SoftmaxKernel, ExponentialIsExactToTheLastBits) {
  // Two elements: softmax([d, 0]) = e^d / (e^d + 1).
  for (int level = 0; level <= 3; ++level) {
    Level at(level);
    if (vec_level() != level) continue;
    for (float d = -60; d <= 0; d += 0.37f) {
      const float x[2] = {d, 0};
      float y[2];
      softmax_forward_cpu(DType::f32, false, x, y, 1, 2, 1);
      const double want = std::exp(static_cast<double>(d)) / (std::exp(static_cast<double>(d)) + 1);
      EXPECT_NEAR(y[0] / want, 1, 4e-7) << "level " << level << " at " << d;
    }
  }
}

TEST(SoftmaxKernel, InfinityAndNan) {
  const float inf = std::numeric_limits<float>::infinity();
  for (int level = 0; level <= 3; ++level) {
    Level at(level);
    if (vec_level() != level) continue;
    std::vector<float> x(40, 1.f), y(40);
    x[3] = -inf;
    softmax_forward_cpu(DType::f32, false, x.data(), y.data(), 1, 40, 1);
    EXPECT_EQ(y[3], 0);
    EXPECT_NEAR(y[0], 1.0 / 39, 1e-7);
    x[20] = std::nanf("");
    softmax_forward_cpu(DType::f32, false, x.data(), y.data(), 1, 40, 1);
    EXPECT_TRUE(std::isnan(y[0]));
  }
}

// Rows whose first elements say nothing about their maximum, which the kernels guess from these.
template <class T>
void check_late_maximum(double bound) {
  const float inf = std::numeric_limits<float>::infinity();
  constexpr int64_t n = 700;
  for (int level = 0; level <= 3; ++level) {
    Level at(level);
    if (vec_level() != level) continue;
    for (float start : {-inf, -3e38f, -200.f, -40.f, -20.f, 0.f}) {
      std::vector<T> x(n, T(start)), y(n), log_y(n);
      for (int64_t i = 600; i < n; ++i) x[static_cast<size_t>(i)] = T(static_cast<float>(i % 7));
      softmax_forward_cpu(dtype_of<T>, false, x.data(), y.data(), 1, n, 1);
      softmax_forward_cpu(dtype_of<T>, true, x.data(), log_y.data(), 1, n, 1);
      double sum = 0;
      for (const T& v : x) sum += std::exp(value_of(v));
      for (size_t i = 0; i < n; ++i) {
        const double want = std::exp(value_of(x[i])) / sum, want_log = value_of(x[i]) - std::log(sum);
        EXPECT_NEAR(value_of(y[i]), want, bound * want + 1e-9) << "level " << level << ", first " << start << ", " << i;
        if (std::isinf(want_log))
          EXPECT_EQ(value_of(log_y[i]), want_log);
        else
          EXPECT_NEAR(value_of(log_y[i]), want_log, bound * std::abs(want_log)) << "level " << level << " " << start;
      }
    }
  }
}
TEST(SoftmaxKernel, TheMaximumMayComeLate) {
  check_late_maximum<float>(2e-6);
  check_late_maximum<BFloat16>(4.1e-3);
}

TEST(SoftmaxKernel, RowsOfMaskedElementsAreUniform) {
  for (int level = 0; level <= 3; ++level) {
    Level at(level);
    if (vec_level() != level) continue;
    for (float masked : {-3.4028235e38f, -1e30f}) {
      std::vector<float> x(200, masked), y(200);
      softmax_forward_cpu(DType::f32, false, x.data(), y.data(), 1, 200, 1);
      for (float v : y) EXPECT_NEAR(v, 1.0 / 200, 1e-8);
      std::vector<BFloat16> xb(200, BFloat16(-1e30f)), yb(200);
      softmax_forward_cpu(DType::bf16, false, xb.data(), yb.data(), 1, 200, 1);
      for (BFloat16 v : yb) EXPECT_NEAR(static_cast<float>(v), 1.0 / 200, 2e-5);
    }
  }
}

}  // namespace
}  // namespace strata
