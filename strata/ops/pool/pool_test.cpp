#include "strata/ops/pool/pool.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

#include "strata/core/samples.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

Tensor values(std::vector<float> v, const Shape& shape) {
  return from_span(std::span<const float>(v), shape);
}

void expect_near(const Tensor& a, const Tensor& b, double bound = 1e-6) {
  ASSERT_EQ(to_string(a.shape()), to_string(b.shape()));
  const Tensor x = a.to(DType::f64).contiguous(), y = b.to(DType::f64).contiguous();
  for (int64_t i = 0; i < x.numel(); ++i)
    ASSERT_NEAR(x.data<double>()[i], y.data<double>()[i], bound) << "element " << i;
}

// Results worked out by hand from the formulas of PyTorch's documentation.
TEST(Pool, WorkedByHand) {
  const Tensor x = values({1, 5, 2, 4, 3}, {1, 1, 5});
  expect_near(max_pool1d(x, {2}), values({5, 4}, {1, 1, 2}));
  expect_near(max_pool1d(x, {2}, {}, {0}, {1}, true), values({5, 4, 3}, {1, 1, 3}));
  expect_near(max_pool1d(x, {3}, {2}, {1}), values({5, 5, 4}, {1, 1, 3}));
  expect_near(max_pool1d(x, {2}, {1}, {0}, {2}), values({2, 5, 3}, {1, 1, 3}));
  expect_near(avg_pool1d(x, {2}), values({3, 3}, {1, 1, 2}));
  expect_near(avg_pool1d(x, {3}, {2}, {1}), values({2, 11.0f / 3, 7.0f / 3}, {1, 1, 3}));
  expect_near(avg_pool1d(x, {3}, {2}, {1}, false, false), values({3, 11.0f / 3, 3.5}, {1, 1, 3}));
  expect_near(adaptive_avg_pool1d(x, {2}), values({8.0f / 3, 3}, {1, 1, 2}));
  expect_near(adaptive_max_pool1d(x, {2}), values({5, 4}, {1, 1, 2}));
}

TEST(Pool, InterpolateWorkedByHand) {
  const Tensor x = values({1, 2, 3, 4}, {1, 1, 2, 2});
  expect_near(interpolate(x, std::nullopt, 2.0),
              values({1, 1, 2, 2, 1, 1, 2, 2, 3, 3, 4, 4, 3, 3, 4, 4}, {1, 1, 4, 4}));
  expect_near(interpolate(x, std::nullopt, 2.0, "bilinear"),
              values({1, 1.25, 1.75, 2, 1.5, 1.75, 2.25, 2.5, 2.5, 2.75, 3.25, 3.5, 3, 3.25, 3.75, 4}, {1, 1, 4, 4}));
  expect_near(interpolate(x, Dims{3, 3}, std::nullopt, "bilinear", true),
              values({1, 1.5, 2, 2, 2.5, 3, 3, 3.5, 4}, {1, 1, 3, 3}));
}

// Rows of one line are taken several windows at a time where nobody asks for the places.
TEST(Pool, LargestOfLinesAreThoseWithPlaces) {
  for (const DType t : {DType::f32, DType::f64}) {
    Tensor x = Samples(t).distinct({2, 3, 61});
    x[0][1][7].fill_(NAN);
    x[1][0].fill_(-INFINITY);
    x[1][2][60].fill_(NAN);
    for (const int64_t kernel : {1, 2, 3, 4})
      for (const int64_t stride : {1, 2, 3, 4})
        for (const int64_t padding : {0, 1})
          for (const int64_t dilation : {1, 2, 5})
            for (const bool ceil_mode : {false, true}) {
              if (2 * padding > kernel) continue;
              SCOPED_TRACE(testing::Message()
                           << kernel << " " << stride << " " << padding << " " << dilation << ceil_mode);
              const Tensor got = max_pool1d(x, {kernel}, {stride}, {padding}, {dilation}, ceil_mode);
              const Tensor want = std::get<0>(max_pool(x, {kernel}, {stride}, {padding}, {dilation}, ceil_mode));
              ASSERT_EQ(to_string(got.shape()), to_string(want.shape()));
              const std::vector<double> a = got.to_vector<double>(), b = want.to_vector<double>();
              for (size_t i = 0; i < a.size(); ++i) ASSERT_TRUE(a[i] == b[i] || (a[i] != a[i] && b[i] != b[i])) << i;
            }
  }
}

// A step that leads far outside reads the element at the border, whatever the filter.
TEST(Pool, StepsOutsideReadTheBorder) {
  const Tensor x = values({1, 2, 3, 4}, {1, 4});
  for (const char* mode : {"linear", "cubic"})
    for (const bool antialias : {false, true}) {
      EXPECT_NEAR(resize_axis(x, 1, 3, mode, false, antialias, 1e300)[0][2].item(), 4, 1e-6) << mode << antialias;
      EXPECT_NEAR(resize_axis(x, 1, 3, mode, false, antialias, 7)[0][2].item(), 4, 1e-6) << mode << antialias;
      EXPECT_NEAR(sum(resize_axis_backward(ones({1, 3}), 1, 4, mode, false, antialias, 1e300)).item(), 3, 1e-6);
    }
}

TEST(Pool, FractionalWindowsAreDrawnFromTheDefaultGenerator) {
  const Tensor x = Samples(DType::f32).distinct({2, 3, 9, 8});
  manual_seed(1);
  const auto [y, at] = fractional_max_pool(x, {2, 3}, std::nullopt, 0.5);
  EXPECT_EQ(to_string(y.shape()), "[2, 3, 4, 4]");
  EXPECT_EQ(plane_gather(flatten(x, 2), flatten(at, 2)).to_vector<float>(), y.to_vector<float>());
  manual_seed(1);
  EXPECT_EQ(std::get<1>(fractional_max_pool(x, {2, 3}, std::nullopt, 0.5)).to_vector<int64_t>(),
            at.to_vector<int64_t>());
}

TEST(Pool, NanWinsAndTiesGoToTheFirst) {
  Tensor x = values({1, std::nanf(""), 3, 3, 3, 2}, {1, 1, 6});
  const auto [v, at] = max_pool(x, {3}, {3}, {0}, {1}, false);
  EXPECT_TRUE(std::isnan(v[0][0][0].item()));
  EXPECT_EQ(v[0][0][1].item(), 3);
  EXPECT_EQ(at[0][0][0].item<int64_t>(), 1);
  EXPECT_EQ(at[0][0][1].item<int64_t>(), 3);
}

TEST(Pool, MaxGradientGoesToTheWinner) {
  Tensor x = values({1, 5, 2, 4}, {1, 1, 4});
  x.set_requires_grad();
  max_pool1d(x, {2}).backward(values({10, 20}, {1, 1, 2}));
  expect_near(x.grad(), values({0, 10, 0, 20}, {1, 1, 4}));
}

// Three dimensions against the definition: every window element by element.
TEST(Pool, ThreeDimensionsAreTheDefinition) {
  const int64_t in[3] = {5, 7, 6}, kernel[3] = {3, 2, 4}, stride[3] = {2, 3, 1}, padding[3] = {1, 0, 2},
                dilation[3] = {1, 2, 1};
  Tensor x = Samples(DType::f64).distinct({2, 3, 5, 7, 6});
  const std::vector<double> v = x.to_vector<double>();
  const Tensor largest = max_pool3d(x, {3, 2, 4}, {2, 3, 1}, {1, 0, 2}, {1, 2, 1}),
               mean = avg_pool3d(x, {3, 2, 4}, {2, 3, 1}, {1, 0, 2}, false, false),
               padded = avg_pool3d(x, {3, 2, 4}, {2, 3, 1}, {1, 0, 2});
  EXPECT_EQ(to_string(largest.shape()), "[2, 3, 3, 2, 7]");
  EXPECT_EQ(to_string(mean.shape()), "[2, 3, 3, 2, 7]");
  const auto each = [&](const Tensor& y, bool dilated, auto&& check) {
    const Shape& out = y.shape();
    const std::vector<double> got = y.to_vector<double>();
    for (int64_t e = 0; e < y.numel(); ++e) {
      const int64_t at[3] = {e / (out[3] * out[4]) % out[2], e / out[4] % out[3], e % out[4]},
                    plane = e / (out[2] * out[3] * out[4]);
      double best = -1e30, total = 0;
      int64_t count = 0;
      for (int64_t k = 0; k < kernel[0] * kernel[1] * kernel[2]; ++k) {
        const int64_t tap[3] = {k / (kernel[1] * kernel[2]), k / kernel[2] % kernel[1], k % kernel[2]};
        int64_t from = plane;
        bool inside = true;
        for (int d = 0; d < 3; ++d) {
          const int64_t p = at[d] * stride[d] + tap[d] * (dilated ? dilation[d] : 1) - padding[d];
          inside = inside && p >= 0 && p < in[d];
          from = from * in[d] + p;
        }
        if (!inside) continue;
        best = std::max(best, v[from]);
        total += v[from];
        ++count;
      }
      check(got[e], best, total, count);
    }
  };
  each(largest, true, [](double got, double best, double, int64_t) { ASSERT_EQ(got, best); });
  each(mean, false, [](double got, double, double total, int64_t count) {
    ASSERT_NEAR(got, total / static_cast<double>(count), 1e-12);
  });
  each(padded, false, [](double got, double, double total, int64_t) { ASSERT_NEAR(got, total / 24, 1e-12); });
}

TEST(Pool, AdaptiveInThreeDimensionsGoesDimensionByDimension) {
  const Tensor x = Samples(DType::f64).tensor({2, 3, 5, 7, 6});
  // Means of means of one dimension each.
  Tensor want = adaptive_avg_pool1d(x.reshape({6, 35, 6}), {4}).reshape({6, 5, 7, 4});
  want = adaptive_avg_pool1d(transpose(want, 2, 3).reshape({30, 4, 7}), {3}).reshape({6, 5, 4, 3});
  want = adaptive_avg_pool1d(permute(want, {0, 3, 2, 1}).reshape({6, 12, 5}), {2}).reshape({6, 3, 4, 2});
  expect_near(adaptive_avg_pool3d(x, {2, 3, 4}), permute(want, {0, 3, 1, 2}).reshape({2, 3, 2, 3, 4}), 1e-12);
  expect_near(adaptive_avg_pool3d(x, {1}), mean(x.reshape({2, 3, 210}), {2}).reshape({2, 3, 1, 1, 1}), 1e-12);
  expect_near(adaptive_max_pool3d(x, {1}), amax(x.reshape({2, 3, 210}), {2}).reshape({2, 3, 1, 1, 1}), 0);
}

TEST(Pool, TrilinearInterpolationKeepsALinearFunction) {
  std::vector<float> v;
  for (int k = 0; k < 4; ++k)
    for (int i = 0; i < 3; ++i)
      for (int j = 0; j < 5; ++j) v.push_back(static_cast<float>(k + 10 * i + 100 * j));
  const Tensor y = interpolate(values(v, {1, 1, 4, 3, 5}), Dims{7, 5, 9}, std::nullopt, "trilinear", true);
  for (int k = 0; k < 7; ++k)
    for (int i = 0; i < 5; ++i)
      for (int j = 0; j < 9; ++j) ASSERT_NEAR(y[0][0][k][i][j].item(), 0.5 * k + 5 * i + 50 * j, 1e-4);
}

TEST(Pool, MaxGradientInThreeDimensionsGoesToTheWinner) {
  Tensor x = Samples(DType::f64).distinct({1, 1, 4, 4, 4});
  x.set_requires_grad();
  const Tensor y = max_pool3d(x, {3}, {1});
  y.backward(Samples(DType::f64).tensor(y.shape()));
  const std::vector<double> v = x.detach().to_vector<double>(), g = x.grad().to_vector<double>(),
                            gy = Samples(DType::f64).tensor(y.shape()).to_vector<double>();
  std::vector<double> want(64);
  for (int64_t o = 0; o < 8; ++o) {
    int64_t best = -1;
    for (int64_t k = 0; k < 27; ++k) {
      const int64_t at = ((o / 4 + k / 9) * 4 + o / 2 % 2 + k / 3 % 3) * 4 + o % 2 + k % 3;
      if (best < 0 || v[at] > v[best]) best = at;
    }
    want[best] += gy[o];
  }
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(g[i], want[i], 1e-12);
}

TEST(Pool, NoPlanesOfAnySize) {
  EXPECT_EQ(adaptive_avg_pool2d(zeros({0, 2, 3, 5}), {int64_t{1} << 40, 1}).numel(), 0);
}

TEST(Pool, ManyPlanesOnManyThreads) {
  const Tensor x = Samples(DType::f32).tensor({16, 32, 20, 20});
  const Tensor y = avg_pool2d(x, {4});
  EXPECT_EQ(to_string(y.shape()), "[16, 32, 5, 5]");
  const Tensor part = avg_pool2d(x[7], {4});
  expect_near(y[7], part, 0);
}

// Volumes whose channels lie innermost are pooled where they lie: the numbers of the others, places and NaN included.
TEST(Pool, ChannelsInnermostAreTheSame) {
  manual_seed(5);
  for (const DType t : {DType::f32, DType::f64, DType::bf16, DType::f16})
    for (const int64_t channels : {8, 19, 33}) {
      Tensor x = randn({2, channels, 5, 6, 4}).to(t);
      x.select(1, 3).select(1, 2).fill_(NAN);
      x.select(1, 5).fill_(-INFINITY);
      x.select(1, 6).fill_(1e-40);  // no number of 16 bits is lost
      const Tensor last = permute(permute(x, {0, 2, 3, 4, 1}).contiguous(), {0, 4, 1, 2, 3});
      const auto same = [&](const Tensor& got, const Tensor& want) {
        EXPECT_EQ(got.strides()[1], 1) << static_cast<int>(t) << ' ' << channels;
        ASSERT_EQ(to_string(got.shape()), to_string(want.shape()));
        const std::vector<double> a = got.to_vector<double>(), b = want.to_vector<double>();
        for (size_t i = 0; i < a.size(); ++i)
          ASSERT_TRUE(a[i] == b[i] || (a[i] != a[i] && b[i] != b[i]))
              << static_cast<int>(t) << ' ' << channels << " element " << i;
      };
      const Dims kernel{2, 3, 2}, stride{1, 2, 2}, padding{1, 1, 0}, dilation{1, 1, 2};
      const auto [values, places] = max_pool(last, kernel, stride, padding, dilation, true);
      const auto [wanted, wanted_places] = max_pool(x, kernel, stride, padding, dilation, true);
      same(values, wanted);
      same(places, wanted_places);
      same(max_pool3d(last, kernel, stride, padding, dilation, true), wanted);
      const auto [most, most_places] = adaptive_max_pool(last, {2, 3, 3});
      const auto [wanted_most, wanted_most_places] = adaptive_max_pool(x, {2, 3, 3});
      same(most, wanted_most);
      same(most_places, wanted_most_places);
      const Tensor image = permute(permute(select(x, 2, 1), {0, 2, 3, 1}).contiguous(), {0, 3, 1, 2});
      same(max_pool2d(image, {3}, {2}, {1}), max_pool2d(image.contiguous(), {3}, {2}, {1}));
      const Tensor g = randint(-4, 4, values.shape()).to(t);
      const Tensor g_last = permute(permute(g, {0, 2, 3, 4, 1}).contiguous(), {0, 4, 1, 2, 3});
      same(max_pool_backward(g_last, places, {5, 6, 4}, kernel, stride, padding, dilation),
           max_pool_backward(g, wanted_places, {5, 6, 4}, kernel, stride, padding, dilation));

      const Tensor whole = randn({2, channels, 5, 6, 4}).to(t);
      const Tensor whole_last = permute(permute(whole, {0, 2, 3, 4, 1}).contiguous(), {0, 4, 1, 2, 3});
      const double near = t == DType::f64 ? 1e-12 : t == DType::f32 ? 1e-5 : 0.02;
      expect_near(avg_pool3d(whole_last, {2, 3, 2}, {1, 2, 1}, {1, 1, 0}),
                  avg_pool3d(whole, {2, 3, 2}, {1, 2, 1}, {1, 1, 0}), near);
      expect_near(adaptive_avg_pool_backward(whole_last, {7, 8, 9}), adaptive_avg_pool_backward(whole, {7, 8, 9}),
                  near);
      expect_near(resize(whole_last, {9, 4, 7}, "linear", false, 0), resize(whole, {9, 4, 7}, "linear", false, 0),
                  near);
    }
}

}  // namespace
}  // namespace strata
