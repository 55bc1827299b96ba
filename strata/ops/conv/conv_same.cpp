// Convolutions that keep their input's sizes.

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/conv/conv.h"
#include "strata/ops/conv/conv_geometry.h"
#include "strata/ops/conv/conv_reference_inl.h"
#include "strata/ops/shape/shape.h"

namespace strata {
namespace {

constexpr std::string_view kName = "conv_same";

// What is added to each spatial dimension in all.
Dims added(const Tensor& w, const Dims& dilation) {
  Dims total;
  for (int64_t d = 2; d < w.dim(); ++d)
    total.push_back(by_loops::entry(dilation, d - 2) * (w.shape()[static_cast<int>(d)] - 1));
  return total;
}

Tensor reference(const Tensor& input, const Tensor& w, const Tensor& bias, const Dims& dilation, int64_t groups) {
  const int spatial = static_cast<int>(w.dim()) - 2;
  const by_loops::Array x = by_loops::with_batch(input, spatial);
  const Dims total = added(w, dilation);
  Dims before, ones;
  Shape shape = x.shape();
  shape[1] = w.shape()[0];
  for (const int64_t t : total) before.push_back(t / 2), ones.push_back(1);
  by_loops::Array y = by_loops::bias_over(shape, bias);
  const by_loops::Array kernel(w);
  // Places past the end count as nothing there, so the sizes alone say how much is padded behind.
  by_loops::products(x.shape(), w.shape(), shape, ones, before, dilation, groups,
                     [&](const Dims& px, const Dims& pw, const Dims& py) { y[py] += x[px] * kernel[pw]; });
  return by_loops::without_batch_of(y, input, spatial);
}

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&, const Dims&, int64_t)> conv_same_op{{
    .schema = "conv_same(Tensor x, Tensor weight, Tensor? bias=None, int[] dilation=[1], int groups=1) -> Tensor",
    .doc = "conv1d, conv2d or conv3d, by the dimensions of the weight, with a stride of 1 and a result of x's sizes: "
           "zeros are added by dilation (k - 1) in all, as many at both ends, one more behind where that is odd. "
           "ShapeError for sizes that do not fit.",
    .example = "assert(conv_same(ones({1, 1, 5}), ones({2, 1, 4})).shape() == Shape({1, 2, 5}));",
    .composed =
        [](const Tensor& x, const Tensor& w, const Tensor& bias, const Dims& dilation, int64_t groups) {
          const int64_t spatial = w.dim() - 2;
          check<ShapeError>(spatial >= 1 && spatial <= 3, kName, "weight needs 3 to 5 dimensions, is ", w);
          check<ShapeError>(x.dim() == spatial + 2 || x.dim() == spatial + 1, kName, "x needs ", spatial + 2,
                            " dimensions (", spatial + 1, " without a batch), is ", x);
          check(dilation.size() == 1 || dilation.size() == spatial, kName, "dilation ", dilation, " needs ", spatial,
                " entries");
          for (const int64_t v : dilation)
            check(v >= 1 && v <= kMostConv, kName, "dilation must be at least 1 and at most ", kMostConv, ", got ",
                  dilation);
          for (int64_t d = 2; d < w.dim(); ++d)
            check<ShapeError>(w.size(d) <= kMostConv, kName, "spatial sizes may be at most ", kMostConv, ", got ", w);
          const Dims total = added(w, dilation);
          Dims both, behind;
          bool odd = false;
          for (const int64_t t : total) both.push_back(t / 2), odd = odd || t % 2 != 0;
          for (int d = static_cast<int>(spatial) - 1; d >= 0; --d) behind.push_back(0), behind.push_back(total[d] % 2);
          const Tensor padded = odd ? pad(x, behind) : x;
          return spatial == 1   ? conv1d(padded, w, bias, {1}, both, dilation, groups)
                 : spatial == 2 ? conv2d(padded, w, bias, {1}, both, dilation, groups)
                                : conv3d(padded, w, bias, {1}, both, dilation, groups);
        },
    .samples =
        [](Samples& s) {
          s.add(s.tensor({2, 3, 8}), s.tensor({4, 3, 3}), s.tensor({4}));
          s.add(s.tensor({2, 7}), s.tensor({4, 1, 4}), std::nullopt, Dims{3}, 2).named("odd, no batch");
          s.add(s.tensor({2, 3, 5, 6}), s.tensor({4, 3, 2, 3}), s.tensor({4}), Dims{1, 2});
          s.add(s.tensor({1, 2, 3, 4, 3}), s.tensor({2, 2, 2, 1, 3}));
          s.invalid<ShapeError>("3 to 5 dimensions", s.tensor({2, 3}), s.tensor({4, 3}));
          s.invalid<ShapeError>("x needs 3 dimensions", s.tensor({2, 3, 4, 4}), s.tensor({4, 3, 3}));
          s.invalid<ValueError>("entries", s.tensor({2, 3, 4}), s.tensor({4, 3, 3}), std::nullopt, Dims{1, 1});
        },
    .reference = reference,
}};

}  // namespace

Tensor conv_same(const Tensor& x, const Tensor& weight, const Tensor& bias, const Dims& dilation, int64_t groups) {
  return conv_same_op(x, weight, bias, dilation, groups);
}

}  // namespace strata
