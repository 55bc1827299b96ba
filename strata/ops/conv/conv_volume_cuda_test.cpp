// Convolutions of volumes on a CUDA device against the CPU's in double, both directions and the gradients of both, for
// shapes that reach every way of the gathering kernels; transposed images of several phases too.

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/core/compare_test_util.h"
#include "strata/cuda/runtime.h"
#include "strata/ops/conv/conv.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/random/random.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

struct Config {
  Shape x, w;
  Dims stride, padding, output_padding, dilation;
  int64_t groups;
  bool transposed;
};

const Config kConfigs[] = {
    {{2, 32, 8, 17, 14}, {40, 32, 3, 3, 3}, {1}, {1}, {0}, {1}, 1, false},
    {{1, 12, 9, 12, 11}, {136, 6, 2, 3, 3}, {2, 1, 2}, {1, 0, 1}, {0}, {1, 2, 1}, 2, false},
    {{2, 3, 10, 20, 20}, {24, 3, 3, 3, 3}, {1, 2, 2}, {1}, {0}, {1}, 1, false},
    {{1, 1, 10, 20, 20}, {16, 1, 3, 3, 3}, {1}, {1}, {0}, {1}, 1, false},  // windows of few channels are copied
    {{1, 64, 4, 6, 5}, {32, 64, 5, 5, 5}, {1}, {2}, {0}, {1}, 1, false},   // few tiles of a long sum
    {{2, 48, 6, 9, 8}, {48, 40, 4, 4, 4}, {2}, {0}, {0}, {1}, 1, true},
    {{2, 48, 6, 9, 8}, {48, 40, 4, 4, 4}, {2}, {1}, {0}, {1}, 1, true},
    {{4, 64, 8, 8, 8}, {64, 32, 2, 2, 2}, {2}, {0}, {0}, {1}, 1, true},
    {{1, 16, 8, 16, 8}, {16, 8, 8, 8, 8}, {2}, {0}, {0}, {1}, 1, true},
    {{2, 24, 5, 7, 6}, {24, 9, 3, 3, 3}, {2}, {1}, {1, 0, 1}, {1}, 1, true},
    {{2, 24, 5, 7, 6}, {24, 7, 1, 2, 3}, {2, 3, 2}, {0}, {1, 2, 0}, {1, 1, 2}, 3, true},
    {{2, 40, 6, 7, 9}, {40, 36, 3, 3, 3}, {1}, {1}, {0}, {1}, 1, true},
    {{4, 32, 16, 32}, {32, 16, 16, 14}, {2}, {0}, {0}, {1}, 1, true},
    {{3, 64, 15, 17}, {64, 72, 4, 4}, {2}, {1}, {1}, {1}, 1, true},
    {{3, 64, 15, 17}, {64, 24, 2, 4}, {2, 4}, {0}, {0}, {3, 1}, 2, true},
    {{1, 64, 128}, {64, 32, 64}, {2}, {1}, {1}, {2}, 1, true},  // phases without a tap, a sum that is split
};

class CudaVolumes : public ::testing::TestWithParam<size_t> {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  }
  // The result, and the gradients of all operands.
  static TensorList results(DType dtype, const Device& device, bool innermost = false, bool bias = true) {
    const Config& c = kConfigs[GetParam()];
    manual_seed(5);
    const auto drawn = [&](const Shape& shape) { return randn(shape).to(DType::bf16).to(dtype).to(device); };
    Tensor x = drawn(c.x), w = drawn(c.w);
    const Tensor b = drawn({c.transposed ? c.w[1] * c.groups : c.w[0]});
    if (innermost && c.x.size() > 3) {
      Dims in{0}, out{0, c.x.size() - 1};
      for (int64_t d = 2; d < c.x.size(); ++d) in.push_back(d), out.push_back(d - 1);
      in.push_back(1);
      x = x.permute(in).contiguous().permute(out);
    }
    TensorList operands{x, w};
    if (bias) operands.push_back(b);
    for (Tensor& t : operands) t.set_requires_grad();
    const Tensor add = bias ? b : Tensor();
    Tensor y;
    if (!c.transposed) {
      y = conv3d(x, w, add, c.stride, c.padding, c.dilation, c.groups);
    } else if (c.x.size() == 5) {
      y = conv_transpose3d(x, w, add, c.stride, c.padding, c.output_padding, c.groups, c.dilation);
    } else if (c.x.size() == 4) {
      y = conv_transpose2d(x, w, add, c.stride, c.padding, c.output_padding, c.groups, c.dilation);
    } else {
      y = conv_transpose1d(x, w, add, c.stride, c.padding, c.output_padding, c.groups, c.dilation);
    }
    manual_seed(6);
    TensorList all = grad({y}, operands, {drawn(y.shape())}, false);
    all.push_back(y);
    return all;
  }
  static void expect_near(const TensorList& there, const TensorList& here, double tolerance, std::string_view what) {
    ASSERT_EQ(there.size(), here.size());
    for (size_t i = 0; i < here.size(); ++i) {
      double largest = 1;
      for (const double v : here[i].to_vector<double>()) largest = std::max(largest, std::fabs(v));
      EXPECT_LE(difference(there[i], here[i]), tolerance * largest) << what << ", result " << i;
    }
  }
};

TEST_P(CudaVolumes, AgreeWithTheCpuInDouble) {
  ASSERT_TRUE(allow_tf32_convolutions());
  for (const bool bias : {true, false}) {
    const TensorList here = results(DType::f64, Device::cpu(), false, bias);
    for (const bool innermost : {false, true}) {
      expect_near(results(DType::f32, Device::cuda(), innermost, bias), here, 2e-3, "f32");
      expect_near(results(DType::bf16, Device::cuda(), innermost, bias), here, 1e-2, "bf16");
      expect_near(results(DType::f16, Device::cuda(), innermost, bias), here, 2e-3, "f16");
    }
  }
}

TEST_P(CudaVolumes, AgreeInFullPrecision) {
  set_allow_tf32_convolutions(false);
  const TensorList there = results(DType::f32, Device::cuda()), wide = results(DType::f64, Device::cuda());
  set_allow_tf32_convolutions(true);
  const TensorList here = results(DType::f64, Device::cpu());
  expect_near(there, here, 1e-5, "f32");
  expect_near(wide, here, 1e-12, "f64");
}

TEST_P(CudaVolumes, HaveTheSameBitsEveryTime) {
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const TensorList first = results(dtype, Device::cuda()), again = results(dtype, Device::cuda());
    for (size_t i = 0; i < first.size(); ++i)
      EXPECT_EQ(first[i].to_vector<double>(), again[i].to_vector<double>()) << name_of(dtype) << ", result " << i;
  }
}
INSTANTIATE_TEST_SUITE_P(Shapes, CudaVolumes, ::testing::Range(size_t{0}, std::size(kConfigs)));

}  // namespace
}  // namespace strata
