#include "strata/ops/conv/conv.h"

#include <vector>

#include <gtest/gtest.h>

#include "strata/core/error.h"
#include "strata/core/parallel.h"
#include "strata/core/samples.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

Tensor values(std::vector<float> v, const Shape& shape) {
  return from_span(std::span<const float>(v), shape);
}

void expect_near(const Tensor& a, const Tensor& b, double bound) {
  ASSERT_EQ(to_string(a.shape()), to_string(b.shape()));
  const Tensor x = a.to(DType::f64).contiguous(), y = b.to(DType::f64).contiguous();
  for (int64_t i = 0; i < x.numel(); ++i)
    ASSERT_NEAR(x.data<double>()[i], y.data<double>()[i], bound) << "element " << i;
}

TEST(Conv, WorkedByHand) {
  const Tensor x = values({1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 1, 3, 3}), w = values({1, 0, 0, -1}, {1, 1, 2, 2});
  expect_near(conv2d(x, w, values({10}, {1})), values({6, 6, 6, 6}, {1, 1, 2, 2}), 0);
  // A window is not flipped.
  expect_near(conv1d(values({1, 2, 4}, {1, 1, 3}), values({1, 10}, {1, 1, 2})), values({21, 42}, {1, 1, 2}), 0);
  expect_near(conv_transpose1d(values({1, 2}, {1, 1, 2}), values({1, 10, 100}, {1, 1, 3}), {}, {2}),
              values({1, 10, 102, 20, 200}, {1, 1, 5}), 0);
}

TEST(Conv, AOneByOneKernelIsAMatrixProduct) {
  for (DType t : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    const Tensor x = Samples(t, 1).tensor({2, 24, 9, 7}), w = Samples(t, 2).tensor({40, 24, 1, 1});
    const Tensor want = matmul(w.reshape({40, 24}), x.reshape({2, 24, 63})).reshape({2, 40, 9, 7});
    expect_near(conv2d(x, w), want, t == DType::f64 ? 1e-12 : t == DType::f32 ? 1e-4 : 0.25);
  }
}

TEST(Conv, ALargerLayerInEveryDTypeAgreesWithDouble) {
  for (DType t : {DType::f32, DType::bf16, DType::f16}) {
    const Tensor x = Samples(t, 1).tensor({3, 32, 17, 19}), w = Samples(t, 2).tensor({48, 32, 3, 3}),
                 b = Samples(t, 3).tensor({48});
    const Tensor y = conv2d(x, w, b, {2}, {1});
    const double bound = t == DType::f32    ? 1e-3
                         : t == DType::bf16 ? 0.6
                                            : 0.08;  // sums of 288 products, up to about 100
    expect_near(y, conv2d(x.to(DType::f64), w.to(DType::f64), b.to(DType::f64), {2}, {1}), bound);
    const Tensor g = Samples(t, 4).tensor(y.shape()), bias = Samples(t, 5).tensor({32});
    expect_near(convolution_transpose(g, w, bias, {17, 19}, {2, 2}, {1, 1}, {1, 1}, 1),
                convolution_transpose(g.to(DType::f64), w.to(DType::f64), bias.to(DType::f64), {17, 19}, {2, 2}, {1, 1},
                                      {1, 1}, 1),
                bound);
    expect_near(convolution_weight(x, g, {3, 3}, {2, 2}, {1, 1}, {1, 1}, 1),
                convolution_weight(x.to(DType::f64), g.to(DType::f64), {3, 3}, {2, 2}, {1, 1}, {1, 1}, 1), bound);
  }
}

// What threads compute side by side: blocks of images, blocks of channels, both, with a rest of either; arguments that
// several of them share.
TEST(Conv, PartsOfEveryKindAgreeWithDoubleOnAnyNumberOfThreads) {
  struct Layer {
    int64_t n, in, out, size, kernel, stride, groups;
  };
  constexpr Layer layers[] = {{3, 240, 532, 5, 3, 1, 1},   // many weights: blocks of channels
                              {17, 520, 232, 4, 3, 2, 1},  // the same for the transposed one, and blocks of images
                              {1, 40, 100, 9, 3, 1, 1},    // one image
                              {19, 24, 40, 17, 3, 1, 1},   // few weights: blocks of images, the last one smaller
                              {21, 3, 70, 23, 7, 2, 1},    // a first layer
                              {5, 48, 96, 11, 3, 1, 4},    // groups
                              {18, 32, 32, 12, 3, 1, 32},  // a window for each channel
                              {9, 72, 200, 6, 1, 1, 1},    // a window of one element
                              {18, 9, 10, 20, 17, 1, 1}};  // long windows
  const int before = num_threads();
  for (DType t : {DType::f32, DType::bf16}) {
    for (const Layer& l : layers) {
      SCOPED_TRACE(cat(t, " images ", l.n, " channels ", l.in, " to ", l.out, " kernel ", l.kernel));
      const Tensor x = Samples(t, 1).tensor({l.n, l.in, l.size, l.size}),
                   w = Samples(t, 2).tensor({l.out, l.in / l.groups, l.kernel, l.kernel}),
                   b = Samples(t, 3).tensor({l.out});
      const Dims stride{l.stride, l.stride}, padding{l.kernel / 2, l.kernel / 2}, dilation{1, 1}, size{l.size, l.size},
          kernel{l.kernel, l.kernel};
      const auto all = [&](DType as, const Tensor& g) {
        const Tensor gy = g.defined() ? g.to(as) : Tensor();
        const Tensor y = conv2d(x.to(as), w.to(as), b.to(as), stride, padding, dilation, l.groups);
        if (!g.defined()) return TensorList{y};
        return TensorList{y, convolution_transpose(gy, w.to(as), {}, size, stride, padding, dilation, l.groups),
                          convolution_weight(x.to(as), gy, kernel, stride, padding, dilation, l.groups)};
      };
      const Tensor g = Samples(t, 4).tensor(all(t, {})[0].shape());
      set_num_threads(1);
      const TensorList one = all(t, g), wanted = all(DType::f64, g);
      for (size_t i = 0; i < one.size(); ++i) {
        // Each sum is rounded once in bf16; in f32 as many times as it has terms, which come to the largest result.
        const double largest = max(abs(wanted[i])).item<double>();
        expect_near(one[i], wanted[i], largest * (t == DType::f32 ? 1e-5 : 0.004));
      }
      for (const int threads : {2, 3}) {
        set_num_threads(threads);
        const TensorList some = all(t, g);
        for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(equal(one[i], some[i])) << threads << " threads: " << i;
      }
    }
  }
  set_num_threads(before);
}

TEST(Conv, WithoutImagesPaddingCostsNothing) {
  for (DType t : {DType::f32, DType::f64, DType::bf16}) {
    const Tensor x = empty({0, 2, 4, 4}, t), y = empty({0, 3, (1 << 27) + 3, (1 << 27) + 3}, t);
    const Tensor w = convolution_weight(x, y, {2, 2}, {1, 1}, {1 << 26, 1 << 26}, {1, 1}, 1);
    EXPECT_EQ(w.shape(), (Shape{3, 2, 2, 2}));
    EXPECT_EQ(sum(abs(w)).item(), 0);
  }
}

TEST(Conv, TransposeUndoesTheSize) {
  const Tensor x = Samples(DType::f32).tensor({1, 2, 11, 8}), w = Samples(DType::f32).tensor({3, 2, 3, 4});
  const Tensor y = conv2d(x, w, {}, {3, 2}, {1, 1}, {2, 1});
  const Tensor back = conv_transpose2d(y, w, {}, {3, 2}, {1, 1}, {2, 0}, 1, {2, 1});
  EXPECT_EQ(to_string(back.shape()), to_string(x.shape()));
}

}  // namespace
}  // namespace strata
