#include "strata/ops/conv/conv.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <tuple>

#include "strata/core/channels_last.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/conv/conv_cuda.h"
#include "strata/ops/conv/conv_geometry.h"
#include "strata/ops/conv/conv_gradients_cuda.h"
#include "strata/ops/conv/conv_kernels.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

std::atomic<bool> g_tf32{true};

// ---- sizes ---------------------------------------------------------------------------------------------------------

void check_operands(std::string_view op, const Tensor& a, std::string_view a_name, const Tensor& b,
                    std::string_view b_name) {
  check<ShapeError>(a.dim() == 3 || a.dim() == 4, op, a_name, " needs 3 or 4 dimensions, is ", a);
  check<ShapeError>(b.dim() == a.dim(), op, a_name, " is ", a, " but ", b_name, " is ", b,
                    ", wants as many dimensions");
  check<DTypeError>(a.dtype() == b.dtype(), op, "operands have different dtypes: ", a, " and ", b);
  check<DTypeError>(is_floating(a.dtype()), op, "needs a floating dtype, got ", a);
}

void check_bias(std::string_view op, const Tensor& bias, const Tensor& like_it, int64_t channels) {
  if (!bias.defined()) return;
  check<ShapeError>(bias.dim() == 1 && bias.shape()[0] == channels, op, "bias is ", bias, ", wants [", channels, "]");
  check<DTypeError>(bias.dtype() == like_it.dtype(), op, "bias is ", bias, ", wants ", like_it.dtype());
}

Dims spatial_of(const Tensor& t) {
  Dims d;
  for (int64_t i = 2; i < t.dim(); ++i) d.push_back(t.shape()[i]);
  return d;
}

// Spatial size of y for x's; ShapeError where the window does not fit.
Dims output_sizes(std::string_view op, const Dims& input, const Dims& kernel, const Geometry& g) {
  check_spatial(op, input);
  check_spatial(op, kernel);
  Dims r;
  for (int i = 0; i < input.size(); ++i) {
    check<ShapeError>(kernel[i] >= 1, op, "kernel sizes must be at least 1, got ", kernel);
    const int64_t room = input[i] + 2 * g.padding[i] - extent(kernel[i], g.dilation[i]);
    check<ShapeError>(room >= 0, op, "a kernel of ", kernel, " with dilation ", g.dilation,
                      " does not fit an input of ", input, " with padding ", g.padding);
    r.push_back(room / g.stride[i] + 1);
  }
  return r;
}

Shape with_channels(int64_t n, int64_t channels, const Dims& spatial) {
  Shape s{n, channels};
  for (int64_t v : spatial) s.push_back(v);
  return s;
}

// Channels stay innermost where an operand's are.
TensorMeta laid_out(const TensorMeta& result, const Tensor& image, const Tensor& filter) {
  return is_channels_last(image) || is_channels_last(filter) ? channels_last(result) : result;
}

TensorMeta forward_infer(const Tensor& x, const Tensor& w, const Tensor& bias, const Dims& stride, const Dims& padding,
                         const Dims& dilation, int64_t groups) {
  constexpr std::string_view op = "convolution";
  check_operands(op, x, "x", w, "weight");
  const Geometry g{stride, padding, dilation, groups};
  check_geometry(op, g, x.dim() - 2);
  const int64_t channels = x.shape()[1];
  check<ShapeError>(w.shape()[0] % groups == 0 && channels % groups == 0 && channels / groups == w.shape()[1], op,
                    "x is ", x, " and weight is ", w, " with ", groups, " groups, wants x [n, ", groups, " times ",
                    w.shape()[1], ", ..] and a multiple of ", groups, " output channels");
  // With padding there would be a result, but no gradient that a transposed convolution could give.
  for (int64_t v : spatial_of(x)) check<ShapeError>(v >= 1, op, "x ", x, " has a spatial size of 0");
  check_bias(op, bias, x, w.shape()[0]);
  return laid_out(
      like(x).with_shape(with_channels(x.shape()[0], w.shape()[0], output_sizes(op, spatial_of(x), spatial_of(w), g))),
      x, w);
}

TensorMeta transpose_infer(const Tensor& y, const Tensor& w, const Tensor& bias, const Dims& size, const Dims& stride,
                           const Dims& padding, const Dims& dilation, int64_t groups) {
  constexpr std::string_view op = "convolution_transpose";
  check_operands(op, y, "y", w, "weight");
  const Geometry g{stride, padding, dilation, groups};
  check_geometry(op, g, y.dim() - 2);
  check<ShapeError>(y.shape()[1] == w.shape()[0] && w.shape()[0] % groups == 0, op, "y is ", y, " and weight is ", w,
                    " with ", groups,
                    " groups, wants as many channels in y as weight has rows, a multiple of the groups");
  check(size.size() == y.dim() - 2, op, "size ", size, " needs ", y.dim() - 2, " entries");
  for (int64_t v : size) check<ShapeError>(v >= 1, op, "the result's spatial size would be ", size);
  check<ShapeError>(output_sizes(op, size, spatial_of(w), g) == spatial_of(y), op, "a result of ", size,
                    " does not belong to y ", y, " and a kernel of ", spatial_of(w));
  check_bias(op, bias, y, w.shape()[1] * groups);
  return laid_out(like(y).with_shape(with_channels(y.shape()[0], w.shape()[1] * groups, size)), y, w);
}

TensorMeta weight_infer(const Tensor& x, const Tensor& y, const Dims& kernel, const Dims& stride, const Dims& padding,
                        const Dims& dilation, int64_t groups) {
  constexpr std::string_view op = "convolution_weight";
  check_operands(op, x, "x", y, "y");
  const Geometry g{stride, padding, dilation, groups};
  check_geometry(op, g, x.dim() - 2);
  check(kernel.size() == x.dim() - 2, op, "kernel ", kernel, " needs ", x.dim() - 2, " entries");
  check<ShapeError>(x.shape()[0] == y.shape()[0] && x.shape()[1] % groups == 0 && y.shape()[1] % groups == 0, op,
                    "x is ", x, " and y is ", y, " with ", groups,
                    " groups, wants one batch size and channels that are multiples of the groups");
  check<ShapeError>(output_sizes(op, spatial_of(x), kernel, g) == spatial_of(y), op, "a kernel of ", kernel,
                    " does not lead from x ", x, " to y ", y);
  return like(x).with_shape(with_channels(y.shape()[1], x.shape()[1] / groups, kernel));
}

// ---- kernels -------------------------------------------------------------------------------------------------------

cpu::ConvSizes sizes_of(const Shape& x, const Shape& w, const Shape& y, const Dims& stride, const Dims& padding,
                        const Dims& dilation, int64_t groups) {
  const bool flat = x.size() == 3;
  const int last = x.size() - 1;
  const auto height = [&](const Shape& s) { return flat ? 1 : s[2]; };
  const auto first = [&](const Dims& d, int64_t flat_value) { return flat ? flat_value : d[0]; };
  return {x[0],
          x[1],
          y[1],
          groups,
          height(x),
          x[last],
          height(y),
          y[last],
          height(w),
          w[last],
          first(stride, 1),
          stride.back(),
          first(padding, 0),
          padding.back(),
          first(dilation, 1),
          dilation.back()};
}

// A row-major copy where needed, so that the raw kernels see dense memory.
const void* dense(const Tensor& t, Tensor& keep) {
  if (!t.defined()) return nullptr;
  keep = t.contiguous();
  return keep.raw_data();
}

// Runs f into y, or into a dense copy of a strided y.
template <class F>
void into(Tensor& y, F&& f) {
  if (y.is_contiguous()) return f(y.raw_data());
  Tensor copy = empty(y.meta());
  f(copy.raw_data());
  y.copy_(copy);
}

// Each element of the result takes one for each element of a filter.
double multiply_adds(int64_t results, const Shape& weight) {
  const int64_t filter = weight.product() / std::max<int64_t>(1, weight[0]);
  return static_cast<double>(results) * static_cast<double>(filter);
}

Cost product_cost(double macs, const Tensor& a, const Tensor& b, const TensorMeta& y) {
  return {2 * macs, static_cast<double>(a.nbytes() + b.nbytes() + y.shape.product() * size_of(y.dtype))};
}

// ---- reference: seven loops ----------------------------------------------------------------------------------------

// Calls f(index into x, index into w, index into y) for every product.
template <class F>
void for_products(const cpu::ConvSizes& s, F&& f) {
  const int64_t icg = s.ic / s.groups, ocg = s.oc / s.groups;
  for (int64_t n = 0; n < s.n; ++n)
    for (int64_t o = 0; o < s.oc; ++o)
      for (int64_t c = 0; c < icg; ++c)
        for (int64_t a = 0; a < s.kh; ++a)
          for (int64_t b = 0; b < s.kw; ++b)
            for (int64_t i = 0; i < s.oh; ++i)
              for (int64_t j = 0; j < s.ow; ++j) {
                const int64_t y = i * s.sh + a * s.dh - s.ph, x = j * s.sw + b * s.dw - s.pw;
                if (y < 0 || y >= s.ih || x < 0 || x >= s.iw) continue;
                f(((n * s.ic + o / ocg * icg + c) * s.ih + y) * s.iw + x, ((o * icg + c) * s.kh + a) * s.kw + b,
                  ((n * s.oc + o) * s.oh + i) * s.ow + j);
              }
}

// A result with the bias of each channel, or zeros.
Tensor start(const TensorMeta& meta, const Tensor& bias) {
  const Tensor r = empty(meta);
  const Tensor dense_bias = bias.defined() ? bias.contiguous() : bias;
  const int64_t channels = meta.shape[1], plane = meta.shape.product() / std::max<int64_t>(1, meta.shape[0] * channels);
  for (int64_t i = 0; i < r.numel(); ++i)
    r.data<double>()[i] = bias.defined() ? dense_bias.data<double>()[i / plane % channels] : 0;
  return r;
}

Tensor weight_reference(const TensorMeta& meta, const Tensor& x, const Tensor& y, const Dims& stride,
                        const Dims& padding, const Dims& dilation, int64_t groups) {
  const Tensor w = start(meta, {}), dx = x.contiguous(), dy = y.contiguous();
  for_products(sizes_of(x.shape(), meta.shape, y.shape(), stride, padding, dilation, groups),
               [&](int64_t ix, int64_t iw, int64_t iy) {
                 w.data<double>()[iw] += dx.data<double>()[ix] * dy.data<double>()[iy];
               });
  return w;
}

// ---- records of the three products ---------------------------------------------------------------------------------

// The gradient of a bias: everything but the channels summed up.
Tensor bias_gradient(const Tensor& g) {
  Dims dims{0};
  for (int64_t d = 2; d < g.dim(); ++d) dims.push_back(d);
  return g.sum(dims);
}

// A gradient in the layout of the operand beside it, so that what is made of both is too; dense, as all that is made of
// it would copy it otherwise.
Tensor laid_out_like(const Tensor& image, const Tensor& g) {
  if (lies_channels_last(g)) return g;
  return is_channels_last(image) ? g.permute({0, 2, 3, 1}).contiguous().permute({0, 3, 1, 2}) : g.contiguous();
}

using Pair = std::tuple<Tensor, Tensor>;
Pair convolution_gradients(const Tensor& x, const Tensor& y, const Dims& kernel, const Dims& stride,
                           const Dims& padding, const Dims& dilation, int64_t groups);

// Whether a card's kernel of the weight's gradient may add up the rows of g as it reads them, for the bias's.
bool adds_rows(const Tensor& x, const Tensor& w, const Tensor& g, int64_t groups) {
  if (!x.device().is_cuda() || is_channels_last(x) || is_channels_last(g) || groups == x.shape()[1]) return false;
  return x.dtype() == DType::f32 ? allow_tf32_convolutions() : size_of(x.dtype()) == 2 && spatial_of(w).product() == 1;
}

constexpr DTypeSet kTypes = kFloats;

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&, const Dims&, const Dims&, const Dims&, int64_t)>
    convolution_op{{
        .schema = "convolution(Tensor x, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] dilation, int "
                  "groups) -> Tensor",
        .shard = "n ...!, _, _ -> n ...!",
        .doc = "Cross-correlation of x [n, in, ..] with weight [out, in / groups, ..], plus bias [out], in one or two "
               "spatial "
               "dimensions; the lists have one entry for each. Zeros stand around x. conv1d and conv2d are the "
               "friendlier forms.",
        .infer = forward_infer,
        .kernels = on_each_device([](auto on, Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias,
                                     const Dims& stride, const Dims& padding, const Dims& dilation, int64_t groups) {
          Tensor kx, kw, kb;
          const void* pb = dense(bias, kb);
          const cpu::ConvSizes s = sizes_of(x.shape(), w.shape(), y.shape(), stride, padding, dilation, groups);
          if constexpr (on.cuda) {
            if (is_channels_last(y)) {
              kx = channels_innermost(x);
              if (conv_forward_last_cuda(s, x.dtype(), x.device(), kx.raw_data(), w, pb, y.raw_data())) return;
            }
          }
          const void *px = dense(x, kx), *pw = dense(w, kw);
          into(y, [&](void* to) {
            if constexpr (on.cuda) return conv_forward_cuda(s, x.dtype(), x.device(), px, pw, pb, to);
            cpu::conv_forward(s, x.dtype(), px, pw, pb, to);
          });
        }),
        .saves = "x:weight weight:x",
        .backward =
            [](Backward& b, const Tensor& x, const Tensor& w, const Tensor&, const Dims& stride, const Dims& padding,
               const Dims& dilation, int64_t groups) {
              const Tensor g = laid_out_like(x, b.gy());
              if (b.needs(0))
                b.set(0, convolution_transpose(g, w, {}, spatial_of(x), stride, padding, dilation, groups));
              if (b.needs(1) && b.needs(2) && adds_rows(x, w, g, groups)) {
                auto [weight, bias] = convolution_gradients(x, g, spatial_of(w), stride, padding, dilation, groups);
                b.set(1, std::move(weight));
                b.set(2, std::move(bias));
                return;
              }
              if (b.needs(1)) b.set(1, convolution_weight(x, g, spatial_of(w), stride, padding, dilation, groups));
              if (b.needs(2)) b.set(2, bias_gradient(g));
            },
        .autocast = Autocast::low,
        .dtypes = kTypes,
        .cost =
            [](const Tensor& x, const Tensor& w, const Tensor& bias, const Dims& stride, const Dims& padding,
               const Dims& dilation, int64_t groups) {
              const TensorMeta y = forward_infer(x, w, bias, stride, padding, dilation, groups);
              return product_cost(multiply_adds(y.shape.product(), w.shape()), x, w, y);
            },
        .samples =
            [](Samples& s) {
              s.add(s.tensor({2, 3, 5, 6}), s.tensor({4, 3, 3, 2}), s.tensor({4}), Dims{1, 1}, Dims{0, 0}, Dims{1, 1},
                    1);
              s.add(s.tensor({2, 4, 7, 6}), s.tensor({6, 2, 3, 3}), std::nullopt, Dims{2, 1}, Dims{1, 2}, Dims{1, 2}, 2)
                  .named("groups, no bias");
              s.add(s.tensor({1, 4, 5, 5}), s.tensor({4, 1, 3, 3}), s.tensor({4}), Dims{2, 2}, Dims{1, 1}, Dims{1, 1},
                    4)
                  .named("depthwise");
              s.add(s.tensor({2, 3, 8}), s.tensor({4, 3, 3}), s.tensor({4}), Dims{2}, Dims{1}, Dims{2}, 1)
                  .named("one dimension");
              s.add(transpose(s.tensor({3, 2, 5, 6}), 0, 1), transpose(s.tensor({3, 4, 2, 2}), 0, 1), s.tensor({4}),
                    Dims{1, 1}, Dims{1, 0}, Dims{1, 1}, 1)
                  .named("strided");
              s.add(s.tensor({0, 3, 5, 6}), s.tensor({4, 3, 3, 2}), s.tensor({4}), Dims{1, 1}, Dims{0, 0}, Dims{1, 1},
                    1)
                  .named("empty batch");
              s.add(s.tensor({4, 32, 12, 12}), s.tensor({48, 32, 3, 3}), s.tensor({48}), Dims{1, 1}, Dims{1, 1},
                    Dims{1, 1}, 1)
                  .named("medium");
              s.add(s.tensor({2, 12, 12, 32}).permute({0, 3, 1, 2}), s.tensor({48, 3, 3, 32}).permute({0, 3, 1, 2}),
                    s.tensor({48}), Dims{1, 1}, Dims{1, 1}, Dims{1, 1}, 1)
                  .named("channels innermost");
              s.add(s.tensor({2, 9, 12, 5}).permute({0, 3, 1, 2}), s.tensor({6, 5, 3, 2}), std::nullopt, Dims{2, 1},
                    Dims{1, 1}, Dims{1, 2}, 1)
                  .named("channels innermost, a stride");
              s.invalid<ShapeError>("does not fit", s.tensor({1, 1, 2, 2}), s.tensor({1, 1, 3, 3}), std::nullopt,
                                    Dims{1, 1}, Dims{0, 0}, Dims{1, 1}, 1);
              s.invalid<ShapeError>("spatial size of 0", s.tensor({1, 1, 0, 4}), s.tensor({1, 1, 2, 2}), std::nullopt,
                                    Dims{1, 1}, Dims{1, 1}, Dims{1, 1}, 1);
              s.invalid<ShapeError>("wants x", s.tensor({1, 2, 5, 5}), s.tensor({1, 3, 3, 3}), std::nullopt, Dims{1, 1},
                                    Dims{0, 0}, Dims{1, 1}, 1);
              s.invalid<ValueError>("stride", s.tensor({1, 1, 5, 5}), s.tensor({1, 1, 3, 3}), std::nullopt, Dims{0, 1},
                                    Dims{0, 0}, Dims{1, 1}, 1);
              s.invalid<ValueError>("groups", s.tensor({1, 1, 5, 5}), s.tensor({1, 1, 3, 3}), std::nullopt, Dims{1, 1},
                                    Dims{0, 0}, Dims{1, 1}, 0);
              s.invalid<ShapeError>("bias", s.tensor({1, 1, 5, 5}), s.tensor({2, 1, 3, 3}), s.tensor({3}), Dims{1, 1},
                                    Dims{0, 0}, Dims{1, 1}, 1);
              s.invalid<ShapeError>("3 or 4 dimensions", s.tensor({5, 5}), s.tensor({3, 3}), std::nullopt, Dims{1},
                                    Dims{0}, Dims{1}, 1);
              if (s.benchmarking())
                s.bench(s.tensor({16, 64, 56, 56}), s.tensor({64, 64, 3, 3}), s.tensor({64}), Dims{1, 1}, Dims{1, 1},
                        Dims{1, 1}, 1);
            },
        .reference =
            [](const Tensor& x, const Tensor& w, const Tensor& bias, const Dims& stride, const Dims& padding,
               const Dims& dilation, int64_t groups) {
              const TensorMeta meta = forward_infer(x, w, bias, stride, padding, dilation, groups);
              const Tensor y = start(meta, bias), dx = x.contiguous(), dw = w.contiguous();
              for_products(sizes_of(x.shape(), w.shape(), meta.shape, stride, padding, dilation, groups),
                           [&](int64_t ix, int64_t iw, int64_t iy) {
                             y.data<double>()[iy] += dx.data<double>()[ix] * dw.data<double>()[iw];
                           });
              return y;
            },
    }};

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&, const Dims&, const Dims&, const Dims&, const Dims&,
                int64_t)>
    convolution_transpose_op{{
        .schema = "convolution_transpose(Tensor y, Tensor weight, Tensor? bias, int[] size, int[] stride, int[] "
                  "padding, int[] dilation, int groups) "
                  "-> Tensor",
        .shard = "n ...!, _, _ -> n ...!",
        .doc = "The gradient of convolution with respect to its input, as an op: y [n, out, ..] and weight [out, in / "
               "groups, ..] give "
               "[n, in, size..], plus bias [in]. `size` must be one from which convolution leads to y's size.",
        .infer = transpose_infer,
        .kernels =
            on_each_device([](auto on, Tensor& x, const Tensor& y, const Tensor& w, const Tensor& bias, const Dims&,
                              const Dims& stride, const Dims& padding, const Dims& dilation, int64_t groups) {
              Tensor ky, kw, kb;
              const void* pb = dense(bias, kb);
              const cpu::ConvSizes s = sizes_of(x.shape(), w.shape(), y.shape(), stride, padding, dilation, groups);
              if constexpr (on.cuda) {
                if (is_channels_last(x)) {
                  ky = channels_innermost(y);
                  if (conv_transpose_last_cuda(s, y.dtype(), y.device(), ky.raw_data(), w, pb, x.raw_data())) return;
                }
              }
              const void *py = dense(y, ky), *pw = dense(w, kw);
              into(x, [&](void* to) {
                if constexpr (on.cuda) return conv_transpose_cuda(s, y.dtype(), y.device(), py, pw, pb, to);
                cpu::conv_transpose(s, y.dtype(), py, pw, pb, to);
              });
            }),
        .saves = "y:weight weight:y",
        .backward =
            [](Backward& b, const Tensor& y, const Tensor& w, const Tensor&, const Dims&, const Dims& stride,
               const Dims& padding, const Dims& dilation, int64_t groups) {
              const Tensor g = laid_out_like(y, b.gy());
              if (b.needs(0)) b.set(0, convolution(g, w, {}, stride, padding, dilation, groups));
              if (b.needs(1)) b.set(1, convolution_weight(g, y, spatial_of(w), stride, padding, dilation, groups));
              if (b.needs(2)) b.set(2, bias_gradient(g));
            },
        .autocast = Autocast::low,
        .dtypes = kTypes,
        .cost =
            [](const Tensor& y, const Tensor& w, const Tensor& bias, const Dims& size, const Dims& stride,
               const Dims& padding, const Dims& dilation, int64_t groups) {
              const TensorMeta x = transpose_infer(y, w, bias, size, stride, padding, dilation, groups);
              return product_cost(multiply_adds(y.numel(), w.shape()), y, w, x);
            },
        .samples =
            [](Samples& s) {
              s.add(s.tensor({2, 4, 3, 5}), s.tensor({4, 3, 3, 2}), s.tensor({3}), Dims{5, 6}, Dims{1, 1}, Dims{0, 0},
                    Dims{1, 1}, 1);
              s.add(s.tensor({2, 6, 3, 4}), s.tensor({6, 2, 3, 3}), std::nullopt, Dims{6, 8}, Dims{2, 2}, Dims{1, 1},
                    Dims{1, 1}, 2)
                  .named("groups");
              s.add(s.tensor({2, 4, 3}), s.tensor({4, 3, 3}), s.tensor({3}), Dims{8}, Dims{2}, Dims{1}, Dims{2}, 1)
                  .named("one dimension");
              s.add(transpose(s.tensor({4, 2, 3, 5}), 0, 1), s.tensor({4, 3, 3, 2}), std::nullopt, Dims{5, 6},
                    Dims{1, 1}, Dims{0, 0}, Dims{1, 1}, 1)
                  .named("strided");
              s.add(s.tensor({2, 48, 12, 12}), s.tensor({48, 32, 3, 3}), s.tensor({32}), Dims{12, 12}, Dims{1, 1},
                    Dims{1, 1}, Dims{1, 1}, 1)
                  .named("medium");
              s.add(s.tensor({2, 12, 12, 48}).permute({0, 3, 1, 2}), s.tensor({48, 3, 3, 32}).permute({0, 3, 1, 2}),
                    s.tensor({32}), Dims{12, 12}, Dims{1, 1}, Dims{1, 1}, Dims{1, 1}, 1)
                  .named("channels innermost");
              s.invalid<ShapeError>("does not belong", s.tensor({2, 4, 3, 5}), s.tensor({4, 3, 3, 2}), std::nullopt,
                                    Dims{9, 6}, Dims{1, 1}, Dims{0, 0}, Dims{1, 1}, 1);
              s.invalid<ShapeError>("channels", s.tensor({2, 4, 3, 5}), s.tensor({5, 3, 3, 2}), std::nullopt,
                                    Dims{5, 6}, Dims{1, 1}, Dims{0, 0}, Dims{1, 1}, 1);
            },
        .reference =
            [](const Tensor& y, const Tensor& w, const Tensor& bias, const Dims& size, const Dims& stride,
               const Dims& padding, const Dims& dilation, int64_t groups) {
              const TensorMeta meta = transpose_infer(y, w, bias, size, stride, padding, dilation, groups);
              const Tensor x = start(meta, bias), dy = y.contiguous(), dw = w.contiguous();
              for_products(sizes_of(meta.shape, w.shape(), y.shape(), stride, padding, dilation, groups),
                           [&](int64_t ix, int64_t iw, int64_t iy) {
                             x.data<double>()[ix] += dy.data<double>()[iy] * dw.data<double>()[iw];
                           });
              return x;
            },
    }};

const Op<Tensor(const Tensor&, const Tensor&, const Dims&, const Dims&, const Dims&, const Dims&, int64_t)>
    convolution_weight_op{{
        .schema = "convolution_weight(Tensor x, Tensor y, int[] kernel, int[] stride, int[] padding, int[] dilation, "
                  "int groups) -> Tensor",
        .shard = "n ...!, n ...! -> ...!",
        .doc =
            "The gradient of convolution with respect to its weight, as an op: x [n, in, ..] and y [n, out, ..] give "
            "[out, in / groups, kernel..].",
        .infer = weight_infer,
        .kernels = on_each_device([](auto on, Tensor& w, const Tensor& x, const Tensor& y, const Dims&,
                                     const Dims& stride, const Dims& padding, const Dims& dilation, int64_t groups) {
          Tensor kx, ky;
          const cpu::ConvSizes s = sizes_of(x.shape(), w.shape(), y.shape(), stride, padding, dilation, groups);
          if constexpr (on.cuda) {
            if (w.is_contiguous() && (is_channels_last(x) || is_channels_last(y))) {
              kx = channels_innermost(x), ky = channels_innermost(y);
              if (conv_weight_last_cuda(s, x.dtype(), x.device(), kx.raw_data(), ky.raw_data(), w.raw_data())) return;
            }
          }
          const void *px = dense(x, kx), *py = dense(y, ky);
          into(w, [&](void* to) {
            if constexpr (on.cuda) return conv_weight_cuda(s, x.dtype(), x.device(), px, py, to);
            cpu::conv_weight(s, x.dtype(), px, py, to);
          });
        }),
        .saves = "x:y y:x",
        .backward =
            [](Backward& b, const Tensor& x, const Tensor& y, const Dims&, const Dims& stride, const Dims& padding,
               const Dims& dilation, int64_t groups) {
              if (b.needs(0))
                b.set(0, convolution_transpose(y, b.gy(), {}, spatial_of(x), stride, padding, dilation, groups));
              if (b.needs(1)) b.set(1, convolution(x, b.gy(), {}, stride, padding, dilation, groups));
            },
        .autocast = Autocast::low,
        .dtypes = kTypes,
        .cost =
            [](const Tensor& x, const Tensor& y, const Dims& kernel, const Dims& stride, const Dims& padding,
               const Dims& dilation, int64_t groups) {
              const TensorMeta w = weight_infer(x, y, kernel, stride, padding, dilation, groups);
              return product_cost(multiply_adds(y.numel(), w.shape), x, y, w);
            },
        .samples =
            [](Samples& s) {
              s.add(s.tensor({2, 3, 5, 6}), s.tensor({2, 4, 3, 5}), Dims{3, 2}, Dims{1, 1}, Dims{0, 0}, Dims{1, 1}, 1);
              s.add(s.tensor({2, 2, 6, 8}), s.tensor({2, 4, 3, 4}), Dims{3, 3}, Dims{2, 2}, Dims{1, 1}, Dims{1, 1}, 2)
                  .named("groups");
              s.add(s.tensor({2, 3, 8}), s.tensor({2, 4, 3}), Dims{3}, Dims{2}, Dims{1}, Dims{2}, 1)
                  .named("one dimension");
              s.add(s.tensor({0, 3, 8}), s.tensor({0, 4, 3}), Dims{3}, Dims{2}, Dims{1}, Dims{2}, 1)
                  .named("empty batch");
              s.add(s.tensor({2, 32, 12, 12}), s.tensor({2, 48, 12, 12}), Dims{3, 3}, Dims{1, 1}, Dims{1, 1},
                    Dims{1, 1}, 1)
                  .named("medium");
              s.add(s.tensor({2, 12, 12, 32}).permute({0, 3, 1, 2}), s.tensor({2, 12, 12, 48}).permute({0, 3, 1, 2}),
                    Dims{3, 3}, Dims{1, 1}, Dims{1, 1}, Dims{1, 1}, 1)
                  .named("channels innermost");
              s.invalid<ShapeError>("does not lead", s.tensor({2, 3, 5, 6}), s.tensor({2, 4, 4, 5}), Dims{3, 2},
                                    Dims{1, 1}, Dims{0, 0}, Dims{1, 1}, 1);
              s.invalid<ShapeError>("batch size", s.tensor({2, 3, 5, 6}), s.tensor({3, 4, 3, 5}), Dims{3, 2},
                                    Dims{1, 1}, Dims{0, 0}, Dims{1, 1}, 1);
            },
        .reference =
            [](const Tensor& x, const Tensor& y, const Dims& kernel, const Dims& stride, const Dims& padding,
               const Dims& dilation, int64_t groups) {
              return weight_reference(weight_infer(x, y, kernel, stride, padding, dilation, groups), x, y, stride,
                                      padding, dilation, groups);
            },
    }};

const Op<Pair(const Tensor&, const Tensor&, const Dims&, const Dims&, const Dims&, const Dims&, int64_t)>
    convolution_gradients_op{{
        .schema = "convolution_gradients(Tensor x, Tensor y, int[] kernel, int[] stride, int[] padding, int[] "
                  "dilation, int groups) -> (Tensor gweight, Tensor gbias)",
        .shard = "n ...!, n ...! -> ...!, ...!",
        .internal = true,
        .doc =
            "The gradients of a convolution's weight [out, in / groups, kernel..] and bias [out] from its input x [n, "
            "in, ..] and the gradient y [n, out, ..] of its result: convolution_weight, and the sum of y over all but "
            "its channels, which a card adds up while it reads y for the first.",
        .infer =
            [](const Tensor& x, const Tensor& y, const Dims& kernel, const Dims& stride, const Dims& padding,
               const Dims& dilation, int64_t groups) {
              return std::array<TensorMeta, 2>{weight_infer(x, y, kernel, stride, padding, dilation, groups),
                                               like(y).with_shape({y.shape()[1]})};
            },
        .kernels = on_each_device([](auto on, Tensor& gw, Tensor& gb, const Tensor& x, const Tensor& y,
                                     const Dims& kernel, const Dims& stride, const Dims& padding, const Dims& dilation,
                                     int64_t groups) {
          if constexpr (on.cuda) {
            if (gw.is_contiguous() && gb.is_contiguous() && !is_channels_last(x) && !is_channels_last(y)) {
              Tensor kx, ky;
              const void *px = dense(x, kx), *py = dense(y, ky);
              const cpu::ConvSizes s = sizes_of(x.shape(), gw.shape(), y.shape(), stride, padding, dilation, groups);
              if (conv_gradients_cuda(s, x.dtype(), x.device(), px, py, gw.raw_data(), gb.raw_data())) return;
            }
          }
          gw.copy_(convolution_weight(x, y, kernel, stride, padding, dilation, groups));
          gb.copy_(bias_gradient(y));
        }),
        .composed =
            [](const Tensor& x, const Tensor& y, const Dims& kernel, const Dims& stride, const Dims& padding,
               const Dims& dilation, int64_t groups) {
              return Pair(convolution_weight(x, y, kernel, stride, padding, dilation, groups), bias_gradient(y));
            },
        .dtypes = kTypes,
        .cost =
            [](const Tensor& x, const Tensor& y, const Dims& kernel, const Dims& stride, const Dims& padding,
               const Dims& dilation, int64_t groups) {
              const TensorMeta w = weight_infer(x, y, kernel, stride, padding, dilation, groups);
              return product_cost(multiply_adds(y.numel(), w.shape), x, y, w);
            },
        .samples =
            [](Samples& s) {
              s.add(s.tensor({2, 3, 5, 6}), s.tensor({2, 4, 3, 5}), Dims{3, 2}, Dims{1, 1}, Dims{0, 0}, Dims{1, 1}, 1);
              s.add(s.tensor({2, 6, 6, 8}), s.tensor({2, 10, 6, 8}), Dims{1, 1}, Dims{1, 1}, Dims{0, 0}, Dims{1, 1}, 2)
                  .named("one by one, groups");
              s.add(s.tensor({2, 70, 40}), s.tensor({2, 72, 40}), Dims{3}, Dims{1}, Dims{8}, Dims{8}, 1)
                  .named("one dimension, dilated");
              s.add(s.tensor({0, 3, 8}), s.tensor({0, 4, 3}), Dims{3}, Dims{2}, Dims{1}, Dims{2}, 1)
                  .named("empty batch");
              s.add(s.tensor({2, 12, 12, 32}).permute({0, 3, 1, 2}), s.tensor({2, 12, 12, 48}).permute({0, 3, 1, 2}),
                    Dims{3, 3}, Dims{1, 1}, Dims{1, 1}, Dims{1, 1}, 1)
                  .named("channels innermost");
              s.invalid<ShapeError>("batch size", s.tensor({2, 3, 5, 6}), s.tensor({3, 4, 3, 5}), Dims{3, 2},
                                    Dims{1, 1}, Dims{0, 0}, Dims{1, 1}, 1);
              if (s.benchmarking())
                s.bench(s.tensor({8, 64, 16000}), s.tensor({8, 256, 16000}), Dims{1}, Dims{1}, Dims{0}, Dims{1}, 1);
            },
        .reference =
            [](const Tensor& x, const Tensor& y, const Dims& kernel, const Dims& stride, const Dims& padding,
               const Dims& dilation, int64_t groups) {
              const TensorMeta meta = weight_infer(x, y, kernel, stride, padding, dilation, groups);
              const Tensor dy = y.contiguous(), gb = empty(like(y).with_shape({y.shape()[1]}));
              std::fill_n(gb.data<double>(), gb.numel(), 0.0);
              const int64_t plane = spatial_of(y).product();
              for (int64_t i = 0; i < y.numel(); ++i) gb.data<double>()[i / plane % gb.numel()] += dy.data<double>()[i];
              return Pair(weight_reference(meta, x, y, stride, padding, dilation, groups), gb);
            },
    }};
Pair convolution_gradients(const Tensor& x, const Tensor& y, const Dims& kernel, const Dims& stride,
                           const Dims& padding, const Dims& dilation, int64_t groups) {
  return convolution_gradients_op(x, y, kernel, stride, padding, dilation, groups);
}

}  // namespace

void set_allow_tf32_convolutions(bool on) {
  g_tf32.store(on);
}
bool allow_tf32_convolutions() {
  return g_tf32.load(std::memory_order_relaxed);
}

Tensor convolution(const Tensor& x, const Tensor& weight, const Tensor& bias, const Dims& stride, const Dims& padding,
                   const Dims& dilation, int64_t groups) {
  return convolution_op(x, weight, bias, stride, padding, dilation, groups);
}
Tensor convolution_transpose(const Tensor& y, const Tensor& weight, const Tensor& bias, const Dims& size,
                             const Dims& stride, const Dims& padding, const Dims& dilation, int64_t groups) {
  return convolution_transpose_op(y, weight, bias, size, stride, padding, dilation, groups);
}
Tensor convolution_weight(const Tensor& x, const Tensor& y, const Dims& kernel, const Dims& stride, const Dims& padding,
                          const Dims& dilation, int64_t groups) {
  return convolution_weight_op(x, y, kernel, stride, padding, dilation, groups);
}

}  // namespace strata
