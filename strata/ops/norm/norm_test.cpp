// What the generated tests of the norms do not cover: every instruction-set level, f32 weights with bf16 data, running
// statistics, and bits that do not depend on the number of threads.

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/core/parallel.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/norm/norm.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/vec/level.h"

namespace strata {
namespace {

Tensor numbers(const Shape& shape, DType dtype = DType::f32, double mean = 0) {
  std::mt19937 rng(static_cast<unsigned>(shape.product()));
  std::normal_distribution<double> normal(mean);
  Tensor t = empty(shape, DType::f64);
  for (int64_t i = 0; i < t.numel(); ++i) t.data<double>()[i] = normal(rng);
  return t.to(dtype);
}

double largest_difference(const Tensor& a, const Tensor& b) {
  const Tensor x = a.to(DType::f64).contiguous(), y = b.to(DType::f64).contiguous();
  double worst = 0;
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double e = std::abs(x.data<double>()[i] - y.data<double>()[i]);
    if (!(e <= worst)) worst = e;
  }
  return worst;
}

struct Level {
  explicit Level(int level) { set_vec_level(level); }
  ~Level() { set_vec_level(-1); }
};

// Result and gradients of one norm, the sum of the result times fixed numbers being differentiated.
template <class F>
TensorList run(F&& f, TensorList inputs) {
  for (Tensor& t : inputs) {
    t = t.clone();
    t.set_requires_grad();
  }
  const Tensor y = f(inputs);
  TensorList all = grad({y}, inputs, {numbers(y.shape(), y.dtype())});
  all.insert(all.begin(), y.detach());
  return all;
}

template <class F>
void compare_levels(F&& f, const TensorList& inputs, double bound) {
  TensorList wide;
  for (const Tensor& t : inputs) wide.push_back(t.to(DType::f64));
  const TensorList want = run(f, wide);
  for (int level = 0; level <= 3; ++level) {
    Level at(level);
    if (vec_level() != level) continue;  // this processor ends below
    const TensorList got = run(f, inputs);
    for (size_t i = 0; i < got.size(); ++i)
      EXPECT_LT(largest_difference(got[i], want[i]), bound) << "level " << level << ", tensor " << i;
  }
}

TEST(Norm, EveryLevelMatchesF64) {
  for (int64_t n : {5, 16, 40, 300}) {
    const auto layer = [n](const TensorList& t) { return layer_norm(t[0], {n}, t[1], t[2]); };
    const auto rms = [n](const TensorList& t) { return rms_norm(t[0], {n}, t[1]); };
    compare_levels(layer, {numbers({70, n}), numbers({n}), numbers({n})}, 2e-4);
    compare_levels(rms, {numbers({70, n}), numbers({n})}, 2e-4);
  }
  const auto group = [](const TensorList& t) { return group_norm(t[0], 3, t[1], t[2]); };
  const auto batch = [](const TensorList& t) { return batch_norm(t[0], {}, {}, t[1], t[2], true); };
  compare_levels(group, {numbers({4, 6, 37}), numbers({6}), numbers({6})}, 2e-4);
  compare_levels(batch, {numbers({4, 6, 37}), numbers({6}), numbers({6})}, 2e-4);
  compare_levels(batch, {numbers({50, 6}), numbers({6}), numbers({6})}, 2e-4);
}

TEST(Norm, MasterWeightsStayF32) {
  const Tensor x = numbers({8, 64}, DType::bf16);
  Tensor w = numbers({64}), b = numbers({64});
  w.set_requires_grad();
  b.set_requires_grad();
  const Tensor y = layer_norm(x, {64}, w, b);
  EXPECT_EQ(y.dtype(), DType::bf16);
  y.backward(numbers({8, 64}, DType::bf16));
  EXPECT_EQ(w.grad().dtype(), DType::f32);
  const Tensor want = layer_norm(x.to(DType::f64), {64}, w.detach().to(DType::f64), b.detach().to(DType::f64));
  EXPECT_LT(largest_difference(y, want), 0.05);
}

TEST(Norm, LargeMeanLosesNoDigits) {
  const Tensor x = numbers({16, 512}, DType::f32, 1000);
  EXPECT_LT(largest_difference(layer_norm(x, {512}), layer_norm(x.to(DType::f64), {512})), 1e-5);
}

TEST(Norm, TheFirstValueMayBeFarFromTheOthers) {
  for (float first : {1e4f, -300.f, 1000.f}) {
    Tensor x = numbers({16, 512}, DType::f32, 1000);
    for (int64_t r = 0; r < 16; ++r) x.data<float>()[r * 512] = first;
    const Tensor want = layer_norm(x.to(DType::f64), {512});
    for (int level = 0; level <= 3; ++level) {
      Level at(level);
      if (vec_level() != level) continue;
      EXPECT_LT(largest_difference(layer_norm(x, {512}), want), 1e-5) << "level " << level << ", first " << first;
    }
  }
}

TEST(Norm, BitsDoNotDependOnTheNumberOfThreads) {
  const int before = num_threads();
  const auto layer = [](const TensorList& t) { return layer_norm(t[0], {48}, t[1], t[2]); };
  const TensorList inputs{numbers({3000, 48}), numbers({48}), numbers({48})};
  set_num_threads(1);
  const TensorList one = run(layer, inputs);
  for (int threads : {2, 3, 8}) {
    set_num_threads(threads);
    const TensorList many = run(layer, inputs);
    for (size_t i = 0; i < one.size(); ++i) EXPECT_EQ(largest_difference(one[i], many[i]), 0) << threads << " threads";
  }
  set_num_threads(before);
}

// Rows of channels, as vectors and as images whose channels lie innermost, beside the same numbers a channel a row.
TEST(Norm, BatchesOfRowsEqualThoseOfChannels) {
  const auto rows = [](const TensorList& t) { return batch_norm(t[0], {}, {}, t[1], t[2], true); };
  const auto turned = [](const TensorList& t) {
    const Tensor x = t[0].t().unsqueeze(0).contiguous();
    return batch_norm(x, {}, {}, t[1], t[2], true).squeeze(0).t();
  };
  const auto last = [](const TensorList& t) {
    const Tensor x = t[0].reshape({3, 10, 10, t[0].size(1)}).permute({0, 3, 1, 2});
    return batch_norm(x, {}, {}, t[1], t[2], true).permute({0, 2, 3, 1}).reshape(t[0].shape());
  };
  const int before = num_threads();
  for (int64_t n : {1, 7, 64, 150}) {
    const TensorList inputs{numbers({300, n}, DType::f32, 100), numbers({n}), numbers({n})};
    compare_levels(rows, inputs, 2e-3);
    const TensorList want = run(turned, inputs);
    for (const TensorList& got : {run(rows, inputs), run(last, inputs)})
      for (size_t i = 0; i < want.size(); ++i)
        EXPECT_LT(largest_difference(got[i], want[i]), 1e-3) << n << " channels, tensor " << i;
    set_num_threads(1);
    const TensorList one = run(rows, inputs);
    for (int threads : {2, 8}) {
      set_num_threads(threads);
      const TensorList many = run(rows, inputs);
      for (size_t i = 0; i < one.size(); ++i) EXPECT_EQ(largest_difference(one[i], many[i]), 0) << threads;
    }
    set_num_threads(before);
  }
}

TEST(Norm, AddAndNormEqualsTheTwo) {
  const auto fused = [](const TensorList& t) {
    auto [y, s] = add_layer_norm(t[0], t[1], t[2], t[3]);
    return y + s * s;
  };
  const auto separate = [](const TensorList& t) {
    const Tensor s = t[0] + t[1];
    return layer_norm(s, {40}, t[2], t[3]) + s * s;
  };
  const TensorList inputs{numbers({9, 40}, DType::f64), numbers({9, 40}, DType::f64, 1), numbers({40}, DType::f64),
                          numbers({40}, DType::f64)};
  const TensorList a = run(fused, inputs), b = run(separate, inputs);
  for (size_t i = 0; i < a.size(); ++i) EXPECT_LT(largest_difference(a[i], b[i]), 1e-12) << "tensor " << i;
}

TEST(Norm, RunningStatisticsFollowTheBatches) {
  Tensor mean = zeros({3}), var = ones({3});
  const Tensor x = numbers({20, 3, 4}, DType::f32, 2);
  batch_norm(x, mean, var, {}, {}, true, 0.25);
  const Tensor xd = x.to(DType::f64).contiguous();
  for (int64_t c = 0; c < 3; ++c) {
    double m = 0, v = 0;
    for (int64_t i = 0; i < 80; ++i) m += xd.data<double>()[(i / 4 * 3 + c) * 4 + i % 4] / 80;
    for (int64_t i = 0; i < 80; ++i) v += std::pow(xd.data<double>()[(i / 4 * 3 + c) * 4 + i % 4] - m, 2) / 79;
    EXPECT_NEAR(mean.data<float>()[c], 0.25 * m, 1e-5);
    EXPECT_NEAR(var.data<float>()[c], 0.75 + 0.25 * v, 1e-5);
  }
  // Evaluation uses them.
  const Tensor y = batch_norm(x, mean, var, {}, {}, false, 0.25, 1e-12);
  const float want = (x.data<float>()[0] - mean.data<float>()[0]) / std::sqrt(var.data<float>()[0]);
  EXPECT_NEAR(y.contiguous().data<float>()[0], want, 1e-5);
}

TEST(Norm, BatchesOfNothingGiveNothingAndLeaveTheStatistics) {
  for (const bool training : {false, true}) {
    Tensor mean = full({3}, 2.0), var = full({3}, 4.0);
    Tensor x = zeros({0, 3}).set_requires_grad(), weight = ones({3}).set_requires_grad();
    const Tensor y = batch_norm(x, mean, var, weight, {}, training);
    EXPECT_EQ(y.shape(), Shape({0, 3}));
    EXPECT_EQ(mean.to_vector<float>(), std::vector<float>(3, 2)) << training;
    EXPECT_EQ(var.to_vector<float>(), std::vector<float>(3, 4)) << training;
    sum(y).backward();
    EXPECT_EQ(x.grad().shape(), Shape({0, 3}));
    EXPECT_EQ(weight.grad().to_vector<float>(), std::vector<float>(3, 0)) << training;
  }
}

TEST(Norm, RunningStatisticsFollowTheItems) {
  Tensor mean = zeros({3}), var = ones({3});
  const Tensor x = numbers({5, 3, 4, 2}, DType::f32, 2);
  instance_norm(x, mean, var, {}, {}, true, 0.25);
  const std::vector<double> v = x.to_vector<double>();
  for (int64_t c = 0; c < 3; ++c) {
    double m = 0, squares = 0;
    for (int64_t n = 0; n < 5; ++n) {
      const double* item = v.data() + (n * 3 + c) * 8;
      double own = 0;
      for (int64_t i = 0; i < 8; ++i) own += item[i] / 8;
      for (int64_t i = 0; i < 8; ++i) squares += std::pow(item[i] - own, 2) / 7 / 5;
      m += own / 5;
    }
    EXPECT_NEAR(mean.data<float>()[c], 0.25 * m, 1e-5);
    EXPECT_NEAR(var.data<float>()[c], 0.75 + 0.25 * squares, 1e-5);
  }
}

}  // namespace
}  // namespace strata
