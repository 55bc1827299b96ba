#include "strata/ops/sampling/sampling.h"

#include <cmath>
#include <limits>
#include <string_view>
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

// Many channels and positions go side by side, one channel by itself: the same numbers, of planes that are no number
// too where nothing reads them.
TEST(GridSample, ChannelsTogetherAreChannelsAlone) {
  manual_seed(4);
  for (const DType t : {DType::f32, DType::f64, DType::bf16, DType::f16})
    for (const int64_t channels : {2, 4, 5, 16, 21})
      for (const char* mode : kModes)
        for (const int dims : {2, 3}) {
          if (dims == 3 && std::string_view(mode) == "bicubic") continue;
          const double near = t == DType::f64 ? 1e-12 : t == DType::f32 ? 1e-5 : 0.05;
          const Shape image = dims == 2 ? Shape{2, channels, 9, 7} : Shape{2, channels, 3, 5, 4};
          const Shape places = dims == 2 ? Shape{2, 13, 11, 2} : Shape{2, 3, 7, 9, 3};
          const Tensor x = rand(image).to(t), grid = uniform(places, -1.2, 1.2).to(t);
          Dims size;
          for (int d = 2; d < image.size(); ++d) size.push_back(image[d]);
          const Tensor y = grid_sample(x, grid, mode), g = rand(y.shape()).to(t);
          const Tensor gx = grid_sample_backward_input(g, grid, size, mode, "zeros", false);
          const Tensor ggrid = grid_sample_backward_grid(g, x, grid, mode, "zeros", false).to(DType::f64);
          Tensor sum = zeros(grid.shape(), DType::f64);
          const auto far = [](const Tensor& a, const Tensor& b) {
            return max(abs(a.to(DType::f64) - b.to(DType::f64))).item();
          };
          for (int64_t k = 0; k < channels; ++k) {
            const Tensor xk = x.narrow(1, k, 1), gk = g.narrow(1, k, 1);
            EXPECT_LE(far(y.narrow(1, k, 1), grid_sample(xk, grid, mode)), near)
                << static_cast<int>(t) << ' ' << channels << mode << dims;
            EXPECT_LE(far(gx.narrow(1, k, 1), grid_sample_backward_input(gk, grid, size, mode, "zeros", false)),
                      20 * near)
                << static_cast<int>(t) << ' ' << channels << mode << dims;
            sum = sum + grid_sample_backward_grid(gk.to(DType::f64), xk.to(DType::f64), grid.to(DType::f64), mode,
                                                  "zeros", false);
          }
          EXPECT_LE(far(ggrid, sum), 1e3 * near) << static_cast<int>(t) << ' ' << channels << mode << dims;
        }
}

TEST(GridSample, WhatIsNotReadDoesNotCount) {
  Tensor x = ones({1, 3, 4, 4}), grid = full({1, 5, 5, 2}, -3.0);
  x.select(1, 1).fill_(std::nan(""));
  const Tensor y = grid_sample(x, grid), g = full(y.shape(), std::numeric_limits<double>::infinity());
  EXPECT_EQ(y.to_vector<float>(), std::vector<float>(75, 0.0f));
  EXPECT_EQ(grid_sample_backward_input(g, grid, {4, 4}, "bilinear", "zeros", false).to_vector<float>(),
            std::vector<float>(48, 0.0f));
  EXPECT_EQ(grid_sample_backward_grid(g, x, grid, "bilinear", "zeros", false).to_vector<float>(),
            std::vector<float>(50, 0.0f));
}

}  // namespace
}  // namespace strata
