// conv3d and its transpose against the definition and PyTorch's values.

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/core/samples.h"
#include "strata/ops/conv/conv.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

struct Case {
  Shape x, w;
  std::vector<int64_t> stride, padding, dilation;
  int64_t groups;
};
const Case kCases[] = {
    {{2, 3, 5, 6, 4}, {4, 3, 3, 3, 2}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}, 1},
    {{2, 4, 6, 5, 7}, {6, 2, 3, 2, 1}, {2, 1, 3}, {1, 1, 0}, {1, 2, 1}, 2},
    {{1, 4, 5, 4, 4}, {4, 1, 2, 3, 3}, {1, 2, 1}, {2, 1, 1}, {3, 1, 1}, 4},
    {{1, 2, 4, 3, 3}, {3, 2, 1, 1, 1}, {2, 1, 2}, {0, 0, 0}, {1, 1, 1}, 1},
};

Dims dims(const std::vector<int64_t>& v) {
  return {v[0], v[1], v[2]};
}

// Calls f(index into x, into w, into y) for every product of a convolution.
template <class F>
void for_products(const Case& c, const Shape& y, F&& f) {
  const int64_t inner = c.w[1], outer = c.w[0] / c.groups;
  for (int64_t n = 0; n < c.x[0]; ++n)
    for (int64_t o = 0; o < c.w[0]; ++o)
      for (int64_t i = 0; i < inner; ++i)
        for (int64_t k = 0; k < c.w[2] * c.w[3] * c.w[4]; ++k)
          for (int64_t e = 0; e < y[2] * y[3] * y[4]; ++e) {
            const int64_t at[3] = {e / (y[3] * y[4]), e / y[4] % y[3], e % y[4]},
                          tap[3] = {k / (c.w[3] * c.w[4]), k / c.w[4] % c.w[3], k % c.w[4]};
            int64_t from = n * c.x[1] + o / outer * inner + i;
            bool inside = true;
            for (int d = 0; d < 3; ++d) {
              const int64_t p = at[d] * c.stride[d] + tap[d] * c.dilation[d] - c.padding[d];
              inside = inside && p >= 0 && p < c.x[2 + d];
              from = from * c.x[2 + d] + p;
            }
            if (inside)
              f(from, (o * inner + i) * (c.w[2] * c.w[3] * c.w[4]) + k, ((n * y[1] + o) * y[2] * y[3] * y[4]) + e);
          }
}

void expect_near(const Tensor& a, const std::vector<double>& b, double bound) {
  const std::vector<double> v = a.to_vector<double>();
  ASSERT_EQ(v.size(), b.size());
  for (size_t i = 0; i < v.size(); ++i) ASSERT_NEAR(v[i], b[i], bound) << "element " << i;
}

TEST(Conv3d, IsTheDefinition) {
  for (const Case& c : kCases) {
    Tensor x = Samples(DType::f64, 1).tensor(c.x), w = Samples(DType::f64, 2).tensor(c.w),
           b = Samples(DType::f64, 3).tensor({c.w[0]});
    for (Tensor* t : {&x, &w, &b}) t->set_requires_grad();
    const Tensor y = conv3d(x, w, b, dims(c.stride), dims(c.padding), dims(c.dilation), c.groups);
    EXPECT_TRUE(y.is_contiguous());
    const Tensor g = Samples(DType::f64, 4).tensor(y.shape());
    const std::vector<double> vx = x.to_vector<double>(), vw = w.to_vector<double>(), vb = b.to_vector<double>(),
                              vg = g.to_vector<double>();
    std::vector<double> vy(vg.size()), gx(vx.size()), gw(vw.size()), gb(vb.size());
    const size_t plane = vy.size() / static_cast<size_t>(y.size(0) * y.size(1));
    for (size_t i = 0; i < vy.size(); ++i) {
      vy[i] = vb[i / plane % vb.size()];
      gb[i / plane % vb.size()] += vg[i];
    }
    for_products(c, y.shape(), [&](int64_t ix, int64_t iw, int64_t iy) {
      vy[iy] += vx[ix] * vw[iw];
      gx[ix] += vg[iy] * vw[iw];
      gw[iw] += vg[iy] * vx[ix];
    });
    expect_near(y, vy, 1e-11);
    const TensorList grads = grad({y}, {x, w, b}, {g});
    expect_near(grads[0], gx, 1e-11);
    expect_near(grads[1], gw, 1e-11);
    expect_near(grads[2], gb, 1e-11);
  }
}

// x = conv_transpose3d(y, w) is the gradient of y = conv3d(x, w) for x, where the sizes say so.
TEST(ConvTranspose3d, IsTheDefinition) {
  for (const Case& c : kCases) {
    const Tensor w = Samples(DType::f64, 2).tensor(c.w), bias = Samples(DType::f64, 3).tensor({c.x[1]});
    const Tensor y = Samples(DType::f64, 4)
                         .tensor(conv3d(Samples(DType::f64, 1).tensor(c.x), w, {}, dims(c.stride), dims(c.padding),
                                        dims(c.dilation), c.groups)
                                     .shape());
    Dims extra;
    for (int d = 0; d < 3; ++d)
      extra.push_back(c.x[2 + d] -
                      ((y.size(2 + d) - 1) * c.stride[d] - 2 * c.padding[d] + c.dilation[d] * (c.w[2 + d] - 1) + 1));
    const Tensor x = conv_transpose3d(y, w, bias, dims(c.stride), dims(c.padding), extra, c.groups, dims(c.dilation));
    ASSERT_EQ(x.shape(), c.x);
    const std::vector<double> vw = w.to_vector<double>(), vy = y.to_vector<double>(), vb = bias.to_vector<double>();
    std::vector<double> vx(static_cast<size_t>(x.numel()));
    const size_t plane = vx.size() / static_cast<size_t>(c.x[0] * c.x[1]);
    for (size_t i = 0; i < vx.size(); ++i) vx[i] = vb[i / plane % vb.size()];
    for_products(c, y.shape(), [&](int64_t ix, int64_t iw, int64_t iy) { vx[ix] += vy[iy] * vw[iw]; });
    expect_near(x, vx, 1e-11);
  }
}

// torch 2.15, of sin(arange) and cos(arange), summed over batch, channels and width.
TEST(Conv3d, GivesPyTorchsValues) {
  std::vector<double> a, b;
  for (int i = 0; i < 72; ++i) a.push_back(std::sin(i));
  for (int i = 0; i < 32; ++i) b.push_back(std::cos(i));
  const Tensor x = from_span<double>(a, {1, 2, 3, 4, 3}), w = from_span<double>(b, {2, 2, 2, 2, 2});
  expect_near(sum(conv3d(x, w, {}, {1, 2, 1}, {1, 0, 1}), {0, 1, 4}),
              {-0.5406013397124383, -0.13524607000734434, -0.7875136372765379, -0.7011847613699629, -0.5589999093623923,
               -0.37228544505007144, -1.5874641159469896, -1.4023504452175244},
              1e-11);
  expect_near(sum(conv_transpose3d(x, w, {}, {1, 2, 1}, {1, 0, 1}, {0, 1, 0}), {0, 1, 4}),
              {4.311262109556171, -2.860737001594028, -4.352397812147165, 2.4506398800669658, 4.306420242935607,
               -1.991493184678194, -4.174249643281871, 1.4924867396577102, 0.0, 3.9585314086366705, -0.9636081623953971,
               -3.66358314093312, 0.4154429612110633, 3.295308231754691, 0.14103733366655202, -2.861077705912532,
               -0.6946947653519031, 0.0},
              1e-11);
}

}  // namespace
}  // namespace strata
