// Convolutions on a CUDA device against the CPU's in double, all three directions, for shapes that reach every kernel.

#include <algorithm>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/core/channels_last.h"
#include "strata/core/compare_test_util.h"
#include "strata/cuda/runtime.h"
#include "strata/memory/allocator.h"
#include "strata/ops/conv/conv.h"
#include "strata/ops/conv/conv_choice_cuda.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/random/random.h"

namespace strata {
namespace {

struct Config {
  Shape x, w;
  Dims stride, padding, dilation;
  int64_t groups;
  bool bias;
};

// Whole images, odd sizes, groups, strides and dilations; then pointwise and depthwise ones.
const Config kConfigs[] = {
    {{2, 64, 28, 28}, {96, 64, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 1, true},
    {{3, 37, 19, 23}, {29, 37, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 1, false},
    {{2, 128, 15, 15}, {136, 128, 3, 3}, {2, 2}, {1, 1}, {1, 1}, 1, true},
    {{2, 3, 67, 61}, {64, 3, 7, 7}, {2, 2}, {3, 3}, {1, 1}, 1, true},
    {{2, 48, 17, 14}, {64, 24, 3, 3}, {1, 1}, {2, 2}, {2, 2}, 2, true},
    {{2, 40, 13, 17}, {25, 8, 5, 3}, {3, 2}, {2, 1}, {1, 2}, 5, false},
    {{2, 64, 32, 32}, {128, 64, 1, 1}, {1, 1}, {0, 0}, {1, 1}, 1, true},
    {{5, 64, 7, 7}, {200, 64, 1, 1}, {1, 1}, {0, 0}, {1, 1}, 1, true},
    {{3, 64, 15, 14}, {32, 64, 1, 1}, {2, 2}, {0, 0}, {1, 1}, 1, false},
    {{9, 256, 7, 7}, {256, 256, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 1, false},
    {{2, 32, 21, 18}, {32, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 32, true},
    {{2, 12, 21, 18}, {24, 1, 5, 4}, {2, 1}, {2, 1}, {1, 2}, 12, true},
    {{4, 1, 28, 28}, {16, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 1, true},
    {{3, 20, 56, 56}, {20, 1, 7, 7}, {1, 1}, {3, 3}, {1, 1}, 20, true},
    {{37, 6, 7, 7}, {6, 1, 7, 7}, {1, 1}, {3, 3}, {1, 1}, 6, false},
    {{2, 5, 131, 67}, {5, 1, 5, 5}, {1, 1}, {0, 2}, {1, 1}, 5, true},
    {{3, 9, 10, 13}, {9, 1, 7, 7}, {1, 1}, {6, 0}, {1, 1}, 9, true},
    {{2, 7, 5, 200}, {7, 1, 3, 3}, {1, 1}, {1, 2}, {1, 1}, 7, false},
    {{3, 80, 301}, {96, 80, 3}, {1}, {1}, {1}, 1, true},
    {{3, 96, 300}, {80, 96, 5}, {2}, {2}, {3}, 1, false},
    {{3, 64, 200}, {64, 64, 7}, {1}, {24}, {4}, 1, true},
    {{3, 72, 204}, {136, 72, 2}, {1}, {0}, {8}, 1, true},
    {{2, 48, 24, 28}, {80, 24, 3, 1}, {2, 1}, {1, 0}, {1, 1}, 2, true},
    {{1, 16, 40, 100}, {8, 16, 9, 9}, {1, 1}, {4, 4}, {1, 1}, 1, false},
    {{2, 64, 56, 56}, {64, 64, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 1, true},
    {{5, 72, 30, 37}, {64, 72, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 1, true},
    {{37, 136, 7, 7}, {200, 136, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 1, true},
    {{16, 192, 14, 14}, {192, 192, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 1, false},
    {{4, 64, 40, 33}, {128, 64, 5, 3}, {1, 1}, {2, 0}, {1, 1}, 1, true},
    {{4, 64, 40, 33}, {128, 64, 3, 3}, {1, 1}, {3, 3}, {3, 3}, 1, false},
    {{3, 64, 33, 41}, {72, 64, 1, 5}, {1, 1}, {0, 2}, {1, 1}, 1, true},
    {{3, 128, 41, 39}, {72, 128, 3, 3}, {2, 2}, {1, 1}, {1, 1}, 1, true},
    {{3, 24, 64, 64}, {40, 24, 2, 4}, {1, 1}, {5, 3}, {1, 1}, 1, true},
    {{33, 32, 9, 9}, {64, 32, 3, 3}, {1, 1}, {0, 0}, {1, 1}, 1, true},
};

struct Tensors {
  Tensor x, w, bias, gy, y, gx, gw, gb;

  explicit Tensors(const Config& c) {
    manual_seed(5);
    x = randn(c.x);
    w = randn(c.w);
    if (c.bias) bias = randn({c.w[0]});
  }
  void convert(DType dtype, Device device) {
    for (Tensor* t : {&x, &w, &bias})
      if (t->defined()) *t = t->to(dtype).to(device);
  }
  /// Channels innermost; of the filter only where it has channels.
  void turn(bool filter) {
    for (Tensor* t : {&x, &w})
      if (t->dim() == 4 && (filter || t == &x)) *t = channels_innermost(*t).permute({0, 3, 1, 2});
  }
  void run(const Config& c) {
    for (Tensor* t : {&x, &w, &bias})
      if (t->defined()) t->set_requires_grad();
    y = convolution(x, w, bias, c.stride, c.padding, c.dilation, c.groups);
    manual_seed(7);
    // The same numbers, whatever y's dtype.
    gy = randn(y.shape()).to(DType::bf16).to(y.dtype()).to(y.device());
    if (is_channels_last(y)) gy = channels_innermost(gy).permute({0, 3, 1, 2});
    y.backward(gy);
    gx = x.grad(), gw = w.grad();
    if (bias.defined()) gb = bias.grad();
  }
};

class CudaConvolution : public ::testing::TestWithParam<size_t> {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  }
  enum class Layout { row_major, last, last_filter_too };
  static void compare(const Config& c, DType dtype, double tolerance, Layout layout = Layout::row_major) {
    Tensors here(c), there(c);
    here.convert(dtype, Device::cpu());
    here.convert(DType::f64, Device::cpu());
    there.convert(dtype, Device::cuda());
    if (layout != Layout::row_major) there.turn(layout == Layout::last_filter_too);
    here.run(c);
    there.run(c);
    if (is_channels_last(there.x)) {
      EXPECT_FALSE(there.y.is_contiguous() && there.y.size(1) > 1 && there.y.size(2) * there.y.size(3) > 1);
    }
    EXPECT_LE(difference(there.y, here.y), tolerance) << name_of(dtype);
    EXPECT_LE(difference(there.gx, here.gx), tolerance) << name_of(dtype);
    EXPECT_LE(difference(there.gw, here.gw), tolerance) << name_of(dtype);
    if (c.bias) {
      EXPECT_LE(difference(there.gb, here.gb), tolerance) << name_of(dtype);
    }
  }
};

struct Tf32 {
  explicit Tf32(bool on) { set_allow_tf32_convolutions(on); }
  ~Tf32() { set_allow_tf32_convolutions(true); }
};

TEST_P(CudaConvolution, AgreesWithTheCpuInDouble) {
  const Tf32 off(false);
  const Config& c = kConfigs[GetParam()];
  for (const auto& [dtype, tolerance] :
       {std::pair(DType::f64, 1e-12), {DType::f32, 1e-5}, {DType::bf16, 4e-3}, {DType::f16, 1e-3}})
    compare(c, dtype, tolerance);
}

TEST_P(CudaConvolution, AgreesWithChannelsInnermost) {
  const Tf32 off(false);
  const Config& c = kConfigs[GetParam()];
  if (c.x.size() != 4) return;
  for (const Layout layout : {Layout::last, Layout::last_filter_too})
    for (const auto& [dtype, tolerance] : {std::pair(DType::f32, 1e-5), {DType::bf16, 4e-3}, {DType::f16, 1e-3}})
      compare(c, dtype, tolerance, layout);
}

TEST_P(CudaConvolution, AgreesInTf32) {
  ASSERT_TRUE(allow_tf32_convolutions() && !cuda::allow_tf32());  // as it comes, and apart from other products
  compare(kConfigs[GetParam()], DType::f32, 2e-3);
  compare(kConfigs[GetParam()], DType::f32, 3e-3, Layout::last);
}

TEST_P(CudaConvolution, HasTheSameBitsEveryTime) {
  const Config& c = kConfigs[GetParam()];
  Tensors a(c), b(c);
  for (Tensors* t : {&a, &b}) {
    t->convert(DType::bf16, Device::cuda());
    t->turn(true);
    t->run(c);
  }
  EXPECT_EQ(a.y.to_vector<float>(), b.y.to_vector<float>());
  EXPECT_EQ(a.gx.to_vector<float>(), b.gx.to_vector<float>());
  EXPECT_EQ(a.gw.to_vector<float>(), b.gw.to_vector<float>());
  if (c.bias) {
    EXPECT_EQ(a.gb.to_vector<float>(), b.gb.to_vector<float>());
  }
}
INSTANTIATE_TEST_SUITE_P(Shapes, CudaConvolution, ::testing::Range(size_t{0}, std::size(kConfigs)));

// What a card's own plan leaves out: every shape and way of the kernels of channels-last tensors, and both of depthwise
// filters.
TEST(CudaConvolutionChoices, AllAgreeWithTheCpu) {
  if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  struct Forget {
    ~Forget() { conv_cuda::conv_choice() = {}; }
  } forget;
  const Config configs[] = {
      {{37, 136, 7, 7}, {200, 136, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 1, true},
      {{5, 128, 41, 39}, {256, 128, 3, 3}, {2, 2}, {1, 1}, {1, 1}, 1, true},
      {{16, 192, 14, 14}, {192, 192, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 1, false},
      {{6, 24, 30, 32}, {40, 24, 4, 4}, {2, 2}, {1, 1}, {1, 1}, 1, true},
      {{11, 64, 13, 12}, {128, 64, 5, 3}, {2, 1}, {2, 2}, {1, 2}, 1, false},
  };
  for (const Config& c : configs) {
    Tensors here(c);
    here.convert(DType::bf16, Device::cpu());
    here.convert(DType::f64, Device::cpu());
    here.run(c);
    for (int i = 0; i < 24; ++i) {
      conv_cuda::conv_choice() = {.shape = i % 8, .way = i / 8};
      Tensors there(c);
      there.convert(DType::bf16, Device::cuda());
      there.turn(i % 3 == 0);
      there.run(c);
      EXPECT_LE(difference(there.y, here.y), 4e-3) << i;
      EXPECT_LE(difference(there.gx, here.gx), 4e-3) << i;
      EXPECT_LE(difference(there.gw, here.gw), 4e-3) << i;
    }
  }
  const Config depthwise[] = {
      {{9, 24, 56, 56}, {24, 1, 7, 7}, {1, 1}, {3, 3}, {1, 1}, 24, true},
      {{5, 20, 28, 28}, {20, 1, 7, 7}, {1, 1}, {3, 3}, {1, 1}, 20, true},
      {{19, 32, 7, 7}, {32, 1, 7, 7}, {1, 1}, {3, 3}, {1, 1}, 32, false},
      {{2, 40, 20, 131}, {40, 1, 5, 5}, {1, 1}, {0, 2}, {1, 1}, 40, true},
      {{37, 6, 7, 7}, {6, 1, 7, 7}, {1, 1}, {3, 3}, {1, 1}, 6, false},
      {{2, 5, 131, 67}, {5, 1, 5, 5}, {1, 1}, {0, 2}, {1, 1}, 5, true},
      {{70, 3, 14, 14}, {3, 1, 3, 3}, {1, 1}, {1, 1}, {1, 1}, 3, true},
  };
  for (const Config& c : depthwise) {
    for (const auto& [dtype, tolerance] : {std::pair(DType::bf16, 4e-3), {DType::f16, 1e-3}}) {
      Tensors here(c);
      here.convert(dtype, Device::cpu());
      here.convert(DType::f64, Device::cpu());
      here.run(c);
      for (int i = 0; i < 4; ++i) {
        conv_cuda::conv_choice() = {.depthwise = i % 2};
        Tensors there(c);
        there.convert(dtype, Device::cuda());
        if (i / 2 == 1) there.turn(false);
        there.run(c);
        EXPECT_LE(difference(there.y, here.y), tolerance) << i;
        EXPECT_LE(difference(there.gx, here.gx), tolerance) << i;
        EXPECT_LE(difference(there.gw, here.gw), tolerance) << i;
      }
    }
  }
}

// Windows of one image that are larger than the workspace: rows of the result are unrolled in pieces.
TEST(CudaConvolutionPieces, AgreeWithTheCpu) {
  if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  const Tf32 off(false);
  const Config c{{2, 16, 1100, 500}, {4, 16, 5, 5}, {2, 1}, {2, 1}, {2, 1}, 1, true};
  Tensors here(c), there(c);
  here.convert(DType::f32, Device::cpu());
  there.convert(DType::f32, Device::cuda());
  here.run(c);
  there.run(c);
  EXPECT_LE(difference(there.y, here.y), 1e-5);
  EXPECT_LE(difference(there.gx, here.gx), 1e-5);
  EXPECT_LE(difference(there.gw, here.gw), 1e-4);
}

// The twelve layers by which methods without unrolled windows are compared (Cho and Brand, arXiv:1706.06873): what a
// convolution takes beside operands and result, by the allocator's count, is less than the windows of im2col.
TEST(CudaConvolutionWorkspace, IsLessThanUnrolledWindows) {
  if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  struct Layer {
    int64_t in, size, out, kernel, stride;
  };
  constexpr Layer kLayers[] = {{3, 227, 96, 11, 4}, {3, 231, 96, 11, 4},  {3, 227, 64, 7, 2},   {64, 224, 64, 7, 2},
                               {96, 24, 256, 5, 1}, {256, 12, 512, 3, 1}, {3, 224, 64, 3, 1},   {64, 112, 128, 3, 1},
                               {64, 56, 64, 3, 1},  {128, 28, 128, 3, 1}, {256, 14, 256, 3, 1}, {512, 7, 512, 3, 1}};
  constexpr int64_t kImages = 64;
  for (const Layer& l : kLayers) {
    const int64_t side = (l.size - l.kernel) / l.stride + 1;
    const int64_t windows = 2 * kImages * side * side * l.in * l.kernel * l.kernel;
    for (const bool last : {false, true}) {
      Tensor x = randn({kImages, l.in, l.size, l.size}).to(DType::bf16).to(Device::cuda());
      const Tensor w = randn({l.out, l.in, l.kernel, l.kernel}).to(DType::bf16).to(Device::cuda());
      if (last) x = channels_innermost(x).permute({0, 3, 1, 2});
      memory::reset_peak(DeviceType::cuda);
      const int64_t before = memory::stats(DeviceType::cuda).live_total;
      const Tensor y = convolution(x, w, {}, {l.stride, l.stride}, {0, 0}, {1, 1}, 1);
      const int64_t workspace = memory::stats(DeviceType::cuda).peak_total - before - y.nbytes();
      EXPECT_LT(workspace, windows) << l.in << " channels of " << l.size << ", kernel " << l.kernel;
      EXPECT_GE(workspace, 0);
    }
  }
}

}  // namespace
}  // namespace strata
