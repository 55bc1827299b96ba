// Sampling on a CUDA device against the CPU's, with gradients.

#include <string_view>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/core/compare_test_util.h"
#include "strata/cuda/runtime.h"
#include "strata/ops/random/random.h"
#include "strata/ops/sampling/sampling.h"

namespace strata {
namespace {

struct Result {
  Tensor y, gx, ggrid;
};

// In the device's dtype from numbers that the narrower one has.
Result run(const Shape& shape, const Shape& positions, const char* mode, const char* padding, bool align, DType given,
           DType dtype, Device device) {
  manual_seed(3);
  Tensor x = randn(shape).to(given).to(dtype).to(device),
         grid = uniform(positions, -1.2, 1.2).to(given).to(dtype).to(device);
  x.set_requires_grad();
  grid.set_requires_grad();
  Result r;
  r.y = grid_sample(x, grid, mode, padding, align);
  r.y.backward(randn(r.y.shape()).to(given).to(dtype).to(device));
  r.gx = x.grad();
  r.ggrid = grid.grad();
  return r;
}

TEST(CudaGridSample, AgreesWithTheCpu) {
  if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  for (const char* mode : {"bilinear", "nearest", "bicubic"})
    for (const char* padding : {"zeros", "border", "reflection"})
      for (const bool align : {false, true})
        for (const bool volume : {false, true}) {
          if (volume && std::string_view(mode) == "bicubic") continue;
          const Shape x = volume ? Shape{2, 11, 5, 9, 7} : Shape{3, 11, 33, 29},
                      grid = volume ? Shape{2, 4, 6, 10, 3} : Shape{3, 40, 35, 2};
          const auto on = [&](DType dtype, Device device) {
            return run(x, grid, mode, padding, align, DType::f32, dtype, device);
          };
          // In f32 a position may be on the other side of a kink than in f64: both sides compute in the same dtype.
          for (const auto& [dtype, tolerance] : {std::pair(DType::f64, 1e-11), {DType::f32, 1e-4}}) {
            const Result here = on(dtype, Device::cpu()), there = on(dtype, Device::cuda()),
                         again = on(dtype, Device::cuda());
            EXPECT_LE(difference(there.y, here.y), tolerance) << mode << padding << align << volume;
            EXPECT_LE(difference(there.gx, here.gx), tolerance) << mode << padding << align << volume;
            const bool flat = std::string_view(mode) == "nearest";  // what reaches the positions is 0
            EXPECT_LE(flat ? 0 : difference(there.ggrid, here.ggrid), tolerance) << mode << padding << align << volume;
            EXPECT_EQ(again.gx.to_vector<double>(), there.gx.to_vector<double>()) << mode << padding << align;
          }
        }
}

}  // namespace
}  // namespace strata
