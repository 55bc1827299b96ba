#pragma once
// References of the convolutions of one to three dimensions: every product of an element with one of the kernel, added
// where it belongs.

#include "strata/ops/naive_inl.h"

namespace strata::by_loops {

using naive::Array;

/// The entry for dimension d of a list in which one entry serves all.
inline int64_t entry(const Dims& list, int64_t d) {
  return list[list.size() == 1 ? 0 : d];
}
/// An array without a batch as one with a batch of 1.
inline Array with_batch(const Tensor& x, int spatial) {
  Shape shape = x.shape();
  if (shape.size() == spatial + 1) shape.insert(0, 1);
  return {shape, x.to_vector<double>()};
}

/// Calls f(place in x, place in w, place in y) for all the products of y = conv(x, w): x [n, in, ..], w [out, in /
/// groups, ..], y [n, out, ..].
template <class F>
void products(const Shape& x, const Shape& w, const Shape& y, const Dims& stride, const Dims& padding,
              const Dims& dilation, int64_t groups, F f) {
  const Shape row = naive::moved(w, 0, 1);  // each channel of y has one of w's
  naive::each(y, [&](const Dims& py) {
    const int64_t group = py[1] / (y[1] / groups);
    naive::each(row, [&](const Dims& place) {
      const Dims pw = naive::moved(place, 0, py[1]);
      Dims px{py[0], group * w[1] + pw[1]};
      for (int64_t d = 0; d < x.size() - 2; ++d) {
        px.push_back(py[d + 2] * entry(stride, d) + pw[d + 2] * entry(dilation, d) - entry(padding, d));
        if (px.back() < 0 || px.back() >= x[d + 2]) return;
      }
      f(px, pw, py);
    });
  });
}

/// `channels` numbers, each in all of its channel.
inline Array bias_over(const Shape& shape, const Tensor& bias) {
  if (!bias.defined()) return Array(shape);
  const Array b(bias);
  return naive::made(shape, [&](const Dims& p) { return b.flat(p[1]); });
}
inline Tensor without_batch_of(const Array& y, const Tensor& x, int spatial) {
  Shape shape = y.shape();
  if (x.dim() == spatial + 1) shape.erase(0);
  return from_span<double>(Tensor(y).to_vector<double>(), shape);
}

template <int Spatial>
Tensor convolved(const Tensor& input, const Tensor& weight, const Tensor& bias, const Dims& stride, const Dims& padding,
                 const Dims& dilation, int64_t groups) {
  const Array x = with_batch(input, Spatial), w(weight);
  Shape shape{x.shape()[0], w.shape()[0]};
  for (int64_t d = 0; d < Spatial; ++d) {
    const int64_t reach = (w.shape()[d + 2] - 1) * entry(dilation, d) + 1;
    shape.push_back((x.shape()[d + 2] + 2 * entry(padding, d) - reach) / entry(stride, d) + 1);
  }
  Array y = bias_over(shape, bias);
  products(x.shape(), w.shape(), shape, stride, padding, dilation, groups,
           [&](const Dims& px, const Dims& pw, const Dims& py) { y[py] += x[px] * w[pw]; });
  return without_batch_of(y, input, Spatial);
}

/// The same products the other way round: `input` is what a convolution gives.
template <int Spatial>
Tensor convolved_transposed(const Tensor& input, const Tensor& weight, const Tensor& bias, const Dims& stride,
                            const Dims& padding, const Dims& output_padding, int64_t groups, const Dims& dilation) {
  const Array y = with_batch(input, Spatial), w(weight);
  Shape shape{y.shape()[0], w.shape()[1] * groups};
  for (int64_t d = 0; d < Spatial; ++d)
    shape.push_back((y.shape()[d + 2] - 1) * entry(stride, d) - 2 * entry(padding, d) +
                    (w.shape()[d + 2] - 1) * entry(dilation, d) + 1 + entry(output_padding, d));
  Array x = bias_over(shape, bias);
  products(shape, w.shape(), y.shape(), stride, padding, dilation, groups,
           [&](const Dims& px, const Dims& pw, const Dims& py) { x[px] += y[py] * w[pw]; });
  return without_batch_of(x, input, Spatial);
}

}  // namespace strata::by_loops
