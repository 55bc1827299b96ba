// Pooling and resizing on a CUDA device against the CPU's, with gradients.

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/core/channels_last.h"
#include "strata/core/compare_test_util.h"
#include "strata/cuda/runtime.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/pool/pool.h"
#include "strata/ops/random/random.h"

namespace strata {
namespace {

struct Case {
  const char* name;
  Shape x;
  std::function<Tensor(const Tensor&)> f;
};

const Case kCases[] = {
    {"max 2x2", {5, 7, 56, 50}, [](const Tensor& x) { return max_pool2d(x, {2}); }},
    {"max 2x2, pairs of windows", {5, 7, 56, 52}, [](const Tensor& x) { return max_pool2d(x, {2}); }},
    {"max 3x3, overlapping", {3, 9, 113, 111}, [](const Tensor& x) { return max_pool2d(x, {3}, {2}, {1}); }},
    {"max 13x9, dilated",
     {2, 3, 61, 67},
     [](const Tensor& x) {
       return max_pool2d(x, {13, 9}, {1, 2}, {3, 4}, {2, 3}, true);
     }},
    {"max, a long row", {2, 3, 20001}, [](const Tensor& x) { return max_pool1d(x, {5}, {3}, {2}); }},
    {"average 3x3", {3, 5, 57, 61}, [](const Tensor& x) { return avg_pool2d(x, {3}, {2}, {1}, true, false); }},
    {"average 3x3, padding counts", {3, 5, 57, 61}, [](const Tensor& x) { return avg_pool2d(x, {3}, {2}, {1}, true); }},
    {"average 31", {3, 5, 1001}, [](const Tensor& x) { return avg_pool1d(x, {31}, {7}, {15}, true); }},
    {"adaptive average",
     {3, 5, 57, 61},
     [](const Tensor& x) {
       return adaptive_avg_pool2d(x, {6, 9});
     }},
    {"adaptive average, larger",
     {3, 5, 7, 6},
     [](const Tensor& x) {
       return adaptive_avg_pool2d(x, {16, 9});
     }},
    {"global average", {3, 64, 27, 31}, [](const Tensor& x) { return adaptive_avg_pool2d(x, {1}); }},
    {"adaptive max",
     {3, 5, 57, 61},
     [](const Tensor& x) {
       return adaptive_max_pool2d(x, {6, 9});
     }},
    {"adaptive max, larger", {3, 5, 33}, [](const Tensor& x) { return adaptive_max_pool1d(x, {50}); }},
    {"nearest, larger",
     {2, 5, 17, 13},
     [](const Tensor& x) {
       return interpolate(x, Dims{50, 39});
     }},
    {"nearest, smaller",
     {2, 5, 57, 43},
     [](const Tensor& x) {
       return interpolate(x, Dims{20, 9});
     }},
    {"nearest by a factor", {2, 5, 57}, [](const Tensor& x) { return interpolate(x, std::nullopt, 0.37); }},
    {"bilinear, larger",
     {2, 5, 17, 13},
     [](const Tensor& x) {
       return interpolate(x, Dims{50, 39}, {}, "bilinear");
     }},
    {"bilinear, doubled", {2, 5, 17, 13}, [](const Tensor& x) { return interpolate(x, {}, 2.0, "bilinear"); }},
    {"bilinear, smaller",
     {2, 5, 57, 43},
     [](const Tensor& x) {
       return interpolate(x, Dims{20, 9}, {}, "bilinear");
     }},
    {"bilinear, corners",
     {2, 5, 17, 13},
     [](const Tensor& x) {
       return interpolate(x, Dims{40, 7}, {}, "bilinear", true);
     }},
    {"nearest, exact, a factor for each",
     {2, 5, 17, 13},
     [](const Tensor& x) { return interpolate(x, {}, 1.7, "nearest-exact", false, false, false, 0.6); }},
    {"cubic along the last", {2, 5, 17, 13}, [](const Tensor& x) { return resize_axis(x, -1, 40, "cubic"); }},
    {"cubic along rows, corners", {2, 5, 17, 13}, [](const Tensor& x) { return resize_axis(x, 2, 5, "cubic", true); }},
    {"antialias", {2, 5, 170, 13}, [](const Tensor& x) { return resize_axis(x, 2, 23, "linear", false, true); }},
    {"antialias, larger", {2, 5, 17}, [](const Tensor& x) { return resize_axis(x, 2, 41, "cubic", false, true); }},
    {"antialias, cubic, by a factor",
     {2, 5, 170},
     [](const Tensor& x) { return resize_axis(x, 2, 41, "cubic", false, true, 4.1); }},
    {"linear to one", {2, 5, 17}, [](const Tensor& x) { return interpolate(x, Dims{1}, {}, "linear", true); }},
    {"linear by a factor", {2, 5, 170}, [](const Tensor& x) { return interpolate(x, {}, 3.3, "linear"); }},
    {"max 3x3x3, overlapping", {2, 3, 17, 31, 29}, [](const Tensor& x) { return max_pool3d(x, {3}, {2}, {1}); }},
    {"max in three dimensions, dilated",
     {2, 3, 19, 22, 37},
     [](const Tensor& x) {
       return max_pool3d(x, {3, 5, 2}, {1, 2, 3}, {1, 2, 0}, {2, 1, 3}, true);
     }},
    {"max 5x9x7, for a warp",
     {2, 3, 19, 22, 37},
     [](const Tensor& x) {
       return max_pool3d(x, {5, 9, 7}, {2}, {1});
     }},
    {"average 3x3x3", {2, 3, 17, 31, 29}, [](const Tensor& x) { return avg_pool3d(x, {3}, {2}, {1}, true, false); }},
    {"average 2x2x2", {2, 3, 16, 30, 28}, [](const Tensor& x) { return avg_pool3d(x, {2}); }},
    {"average 9x7x8, for a warp",
     {2, 3, 19, 22, 37},
     [](const Tensor& x) {
       return avg_pool3d(x, {9, 7, 8}, {1, 2, 1}, {4, 3, 4}, true);
     }},
    {"adaptive average in three dimensions",
     {2, 3, 17, 31, 29},
     [](const Tensor& x) {
       return adaptive_avg_pool3d(x, {3, 7, 11});
     }},
    {"adaptive average in three dimensions, larger",
     {2, 3, 5, 6, 4},
     [](const Tensor& x) {
       return adaptive_avg_pool3d(x, {11, 7, 9});
     }},
    {"whole volumes", {2, 3, 17, 31, 29}, [](const Tensor& x) { return adaptive_avg_pool3d(x, {1}); }},
    {"whole planes",
     {2, 3, 17, 31, 29},
     [](const Tensor& x) {
       return adaptive_max_pool3d(x, {1, 1, 6});
     }},
    {"adaptive max in three dimensions",
     {2, 3, 17, 31, 29},
     [](const Tensor& x) {
       return adaptive_max_pool3d(x, {5, 3, 8});
     }},
    {"adaptive max of few large windows",
     {2, 3, 18, 16, 17},
     [](const Tensor& x) {
       return adaptive_max_pool3d(x, {3, 4, 3});
     }},
    {"adaptive mean of few large windows",
     {2, 3, 18, 16, 17},
     [](const Tensor& x) {
       return adaptive_avg_pool3d(x, {3, 4, 3});
     }},
    {"trilinear, larger",
     {2, 3, 7, 9, 8},
     [](const Tensor& x) {
       return interpolate(x, Dims{16, 15, 30}, {}, "trilinear");
     }},
    {"trilinear, smaller",
     {2, 3, 17, 19, 28},
     [](const Tensor& x) {
       return interpolate(x, Dims{6, 5, 9}, {}, "trilinear", true);
     }},
    {"nearest in three dimensions", {2, 3, 7, 9, 8}, [](const Tensor& x) { return interpolate(x, {}, 1.7); }},
};

struct Result {
  Tensor y, gx;
};
Result run(const Case& c, DType given, DType dtype, Device device) {
  manual_seed(3);
  Tensor x = randn(c.x).to(given).to(dtype).to(device);
  x.set_requires_grad();
  Result r;
  r.y = c.f(x);
  manual_seed(4);
  r.y.backward(randn(r.y.shape()).to(given).to(dtype).to(device));
  r.gx = x.grad();
  return r;
}

class CudaPool : public ::testing::TestWithParam<size_t> {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  }
};

TEST_P(CudaPool, AgreesWithTheCpuInDouble) {
  const Case& c = kCases[GetParam()];
  for (const auto& [dtype, tolerance] :
       {std::pair(DType::f64, 1e-12), {DType::f32, 1e-6}, {DType::bf16, 4e-3}, {DType::f16, 5e-4}}) {
    // Rounded numbers are equal often, and of equals the first wins: both sides see the same ones.
    const Result here = run(c, dtype, DType::f64, Device::cpu()), there = run(c, dtype, dtype, Device::cuda()),
                 again = run(c, dtype, dtype, Device::cuda());
    EXPECT_LE(difference(there.y, here.y), tolerance) << c.name << ' ' << name_of(dtype);
    EXPECT_LE(difference(there.gx, here.gx), tolerance) << c.name << ' ' << name_of(dtype);
    EXPECT_EQ(again.gx.to_vector<double>(), there.gx.to_vector<double>()) << c.name << ' ' << name_of(dtype);
  }
}
// Images of the case's channels, a thread each, and of eight times as many, eight a thread.
TEST_P(CudaPool, AgreesWithChannelsInnermost) {
  const Case& c = kCases[GetParam()];
  if (c.x.size() != 4) return;
  for (const int64_t times : {1, 8}) {
    for (const auto& [dtype, tolerance] : {std::pair(DType::f32, 1e-6), {DType::bf16, 4e-3}}) {
      Case wide = c;
      wide.x[1] *= times;
      const Result here = run(wide, dtype, DType::f64, Device::cpu());
      manual_seed(3);
      Tensor x = channels_innermost(randn(wide.x).to(dtype).to(Device::cuda())).permute({0, 3, 1, 2});
      x.set_requires_grad();
      const Tensor y = c.f(x);
      manual_seed(4);
      Tensor gy = randn(y.shape()).to(dtype).to(Device::cuda());
      if (is_channels_last(y)) gy = channels_innermost(gy).permute({0, 3, 1, 2});
      y.backward(gy);
      EXPECT_LE(difference(y, here.y), tolerance) << c.name << ' ' << name_of(dtype) << ' ' << times;
      EXPECT_LE(difference(x.grad(), here.gx), tolerance) << c.name << ' ' << name_of(dtype) << ' ' << times;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Cases, CudaPool, ::testing::Range(size_t{0}, std::size(kCases)));

TEST(CudaMaxPool, NanWinsAndTiesGoToTheFirst) {
  if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  // Windows of 6 for a thread, of 36 for a warp.
  for (const int64_t k : {6, 36}) {
    std::vector<float> v(static_cast<size_t>(2 * k), 1.0f);
    v[static_cast<size_t>(k + 3)] = v[static_cast<size_t>(k + 4)] = std::nanf("");
    const Tensor x = from_span(std::span<const float>(v), {1, 2 * k}).to(Device::cuda());
    const auto [y, at] = max_pool(x, {k}, {k}, {0}, {1}, false);
    EXPECT_EQ(at.to_vector<int64_t>(), (std::vector<int64_t>{0, k + 3}));
    EXPECT_EQ(y.to_vector<float>()[0], 1.0f);
    EXPECT_TRUE(std::isnan(y.to_vector<float>()[1]));
  }
}

TEST(CudaPlaneScatter, AddsInTheOrderOfTheCpu) {
  if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  manual_seed(1);
  const Tensor y = randn({3, 5000}), at = randint(-3, 40, {3, 5000});
  const Tensor here = plane_scatter(y, at, {37}),
               there = plane_scatter(y.to(Device::cuda()), at.to(Device::cuda()), {37});
  EXPECT_EQ(there.to_vector<float>(), here.to_vector<float>());
  for (const int64_t few : {1, 4, 16, 17}) {  // values a plane
    const Tensor some = randn({700, few}), places = randint(-2, 11, {700, few});
    EXPECT_EQ(plane_scatter(some.to(Device::cuda()), places.to(Device::cuda()), {9}).to_vector<float>(),
              plane_scatter(some, places, {9}).to_vector<float>())
        << few;
  }
}

}  // namespace
}  // namespace strata
