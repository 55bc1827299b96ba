#include "strata/ops/sampling/sampling.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "strata/autograd/gradcheck.h"
#include "strata/core/parallel.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/join/join.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"

namespace strata {
namespace {

const char* const kModes[] = {"bilinear", "nearest", "bicubic"};
const char* const kPaddings[] = {"zeros", "border", "reflection"};

TEST(GridSample, TheIdentityIsTheImage) {
  manual_seed(1);
  const Tensor x = rand({2, 3, 5, 4}, DType::f64);
  const Tensor same = stack({eye(2, 3, DType::f64), eye(2, 3, DType::f64)});
  for (const char* mode : kModes)
    for (const bool align : {false, true}) {
      const Tensor y = grid_sample(x, affine_grid(same, x.shape(), align), mode, "zeros", align);
      EXPECT_LT(max(abs(y - x)).item(), 1e-12) << mode << align;
    }
}

TEST(GridSample, WhatIsNoNumberIsOutside) {
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  const std::vector<double> places = {nan, 0, 0, nan, inf, 0, 0, -inf, 1e300, 1e300};
  const Tensor grid = from_span<double>(places, {1, 1, 5, 2}), x = ones({1, 2, 3, 3}, DType::f64);
  for (const char* mode : kModes) {
    EXPECT_EQ(grid_sample(x, grid, mode).to_vector<double>(), std::vector<double>(10, 0.0)) << mode;
    for (const char* padding : kPaddings) {
      const Tensor g = ones({1, 2, 1, 5}, DType::f64);
      for (const double v : grid_sample_backward_grid(g, x, grid, mode, padding, false).to_vector<double>())
        EXPECT_TRUE(std::isfinite(v)) << mode << padding;
      for (const double v : grid_sample_backward_input(g, grid, {3, 3}, mode, padding, false).to_vector<double>())
        EXPECT_TRUE(std::isfinite(v)) << mode << padding;
    }
  }
}

TEST(GridSample, GradientsOfGradients) {
  manual_seed(2);
  const Tensor x = rand({1, 2, 3, 4}, DType::f64), grid = uniform({1, 2, 2, 2}, -0.9, 0.9, DType::f64);
  for (const char* mode : kModes)
    for (const char* padding : kPaddings) {
      const auto f = [&](const TensorList& in) { return grid_sample(in[0], in[1], mode, padding).tanh(); };
      const auto result = gradgradcheck(f, {x.clone().set_requires_grad(), grid.clone().set_requires_grad()});
      EXPECT_TRUE(result.ok) << mode << ' ' << padding << ": " << result.report;
    }
}

TEST(GridSample, GradientsDoNotDependOnThreads) {
  manual_seed(3);
  const Tensor g = rand({2, 19, 40, 30}), grid = uniform({2, 40, 30, 2}, -1.1, 1.1);
  const int threads = num_threads();
  set_num_threads(1);
  const Tensor alone = grid_sample_backward_input(g, grid, {17, 23}, "bilinear", "border", false);
  set_num_threads(3);
  const Tensor shared = grid_sample_backward_input(g, grid, {17, 23}, "bilinear", "border", false);
  set_num_threads(threads);
  EXPECT_EQ(alone.to_vector<float>(), shared.to_vector<float>());
}

}  // namespace
}  // namespace strata
