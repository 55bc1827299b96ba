// Convolution, pooling and batch norm of images whose channels lie innermost: the numbers of row-major ones, and
// results and gradients that lie as the image does. On the CPU; conv_cuda_test.cpp and pool_cuda_test.cpp have more.

#include "strata/core/channels_last.h"

#include <functional>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/core/compare_test_util.h"
#include "strata/cuda/runtime.h"
#include "strata/ops/conv/conv.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/norm/norm.h"
#include "strata/ops/pool/pool.h"
#include "strata/ops/random/random.h"

namespace strata {
namespace {

Tensor turned(const Tensor& t) {
  return channels_innermost(t).permute({0, 3, 1, 2});
}

TEST(ChannelsLast, IsToldByTheStrides) {
  const Tensor x = randn({2, 6, 7, 5});
  EXPECT_FALSE(is_channels_last(x));
  EXPECT_TRUE(is_channels_last(turned(x)));
  EXPECT_EQ(turned(x).to_vector<float>(), x.to_vector<float>());
  // Of one channel or of one pixel it is both.
  for (const Shape& s : {Shape{2, 1, 7, 5}, Shape{2, 6, 1, 1}}) {
    EXPECT_FALSE(is_channels_last(turned(randn(s))));
    EXPECT_TRUE(lies_channels_last(turned(randn(s))));
  }
  EXPECT_FALSE(is_channels_last(turned(x).slice(2, 0, 4)));
  EXPECT_FALSE(is_channels_last(x.transpose(2, 3)));
}

struct Case {
  const char* name;
  Shape x;
  std::function<Tensor(const Tensor&)> f;
};

const Case kCases[] = {
    {"3 x 3",
     {2, 6, 9, 11},
     [](const Tensor& x) {
       return conv2d(x, randn({4, 6, 3, 3}).to(x.device()), {}, {1}, {1});
     }},
    {"strided",
     {2, 6, 9, 11},
     [](const Tensor& x) {
       return conv2d(x, randn({4, 6, 3, 2}).to(x.device()), {}, {2, 3});
     }},
    {"dilated, groups",
     {2, 6, 9, 11},
     [](const Tensor& x) {
       return conv2d(x, randn({9, 2, 3, 2}).to(x.device()), randn({9}).to(x.device()), {1}, {2, 1}, {2, 3}, 3);
     }},
    {"depthwise",
     {2, 6, 9, 11},
     [](const Tensor& x) {
       return conv2d(x, randn({6, 1, 3, 3}).to(x.device()), {}, {1}, {1}, {1}, 6);
     }},
    {"1 x 1",
     {2, 6, 9, 11},
     [](const Tensor& x) {
       return conv2d(x, randn({5, 6, 1, 1}).to(x.device()), randn({5}).to(x.device()));
     }},
    {"same",
     {2, 6, 9, 11},
     [](const Tensor& x) {
       return conv_same(x, randn({5, 6, 3, 5}).to(x.device()));
     }},
    {"transposed",
     {2, 6, 9, 11},
     [](const Tensor& x) {
       return conv_transpose2d(x, randn({6, 4, 3, 3}).to(x.device()), {}, {2}, {1}, {1});
     }},
    {"max pool", {2, 6, 9, 11}, [](const Tensor& x) { return max_pool2d(x, {3}, {2}, {1}); }},
    {"average pool", {2, 6, 9, 11}, [](const Tensor& x) { return avg_pool2d(x, {3}, {2}, {1}); }},
    {"adaptive pool",
     {2, 6, 9, 11},
     [](const Tensor& x) {
       return adaptive_avg_pool2d(x, {4, 3});
     }},
    {"resize",
     {2, 6, 9, 11},
     [](const Tensor& x) {
       return interpolate(x, Dims{13, 7}, {}, "bilinear");
     }},
    {"batch norm",
     {4, 6, 9, 11},
     [](const Tensor& x) { return batch_norm(x, {}, {}, randn({6}).to(x.device()), randn({6}).to(x.device()), true); }},
    {"batch norm of many",
     {5, 72, 31, 30},
     [](const Tensor& x) { return batch_norm(x, {}, {}, randn({72}).to(x.device()), {}, true); }},
};

void compare(Device device) {
  for (const Case& c : kCases) {
    manual_seed(1);
    Tensor x = randn(c.x).to(device), last = turned(x).detach();
    x.set_requires_grad();
    last.set_requires_grad();
    manual_seed(2);
    const Tensor y = c.f(x);
    manual_seed(2);
    const Tensor y_last = c.f(last);
    EXPECT_TRUE(is_channels_last(y_last)) << c.name;
    EXPECT_TRUE(y.is_contiguous()) << c.name;
    EXPECT_LE(difference(y_last, y), 1e-5) << c.name;
    manual_seed(3);
    const Tensor g = randn(y.shape()).to(device);
    const Tensor gx = grad({y}, {x}, {g})[0], gx_last = grad({y_last}, {last}, {turned(g)})[0];
    EXPECT_TRUE(is_channels_last(gx_last)) << c.name;
    EXPECT_LE(difference(gx_last, gx), 1e-5) << c.name;
  }
}

TEST(ChannelsLast, StaysOnTheCpu) {
  compare(Device::cpu());
}
TEST(ChannelsLast, StaysOnACard) {
  if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  set_allow_tf32_convolutions(false);
  compare(Device::cuda());
  set_allow_tf32_convolutions(true);
}

// Of half-precision images with weights in f32, as under autocast, and of vectors, whose columns have the same kernels.
TEST(ChannelsLast, BatchNormOnACardAgreesWithTheCpuInDouble) {
  if (cuda::device_count() == 0) GTEST_SKIP() << cuda::unavailable_reason();
  for (const Shape& s :
       {Shape{3, 64, 13, 11}, Shape{3, 20, 13, 11}, Shape{2, 3, 40, 41}, Shape{300, 72}, Shape{7, 5}}) {
    for (const auto& [dtype, tolerance] : {std::pair(DType::f64, 1e-12), {DType::f32, 1e-5}, {DType::bf16, 6e-3}}) {
      manual_seed(1);
      const Tensor given = (randn(s) + 3.0).to(dtype), weight = randn({s[1]}), g = randn(s).to(dtype);
      const auto run = [&](DType t, Device device) {
        const bool turn = device.is_cuda() && s.size() == 4;
        Tensor x = given.clone().to(t).to(device), w = weight.clone().to(t == DType::f64 ? t : DType::f32).to(device);
        if (turn) x = turned(x).detach();
        x.set_requires_grad();
        w.set_requires_grad();
        const Tensor y = batch_norm(x, {}, {}, w, {}, true);
        Tensor gy = g.to(t).to(device);
        if (turn) gy = turned(gy);
        y.backward(gy);
        return TensorList{y, x.grad(), w.grad()};
      };
      const TensorList here = run(DType::f64, Device::cpu()), there = run(dtype, Device::cuda());
      for (size_t i = 0; i < here.size(); ++i) EXPECT_LE(difference(there[i], here[i]), tolerance) << i;
    }
  }
}

}  // namespace
}  // namespace strata
