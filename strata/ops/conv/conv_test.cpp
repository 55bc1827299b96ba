#include "strata/ops/conv/conv.h"

#include <vector>

#include <gtest/gtest.h>

#include "strata/core/error.h"
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
