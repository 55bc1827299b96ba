// Convolutions of volumes, composed of two-dimensional products: a window's slices along the depth are channels. On a
// card's tensor cores they are one product that gathers its windows (conv_volume_cuda.h).

#include "strata/ops/conv/conv_volume_kernel.h"

#include "strata/core/autocast.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/conv/conv.h"
#include "strata/ops/conv/conv_reference_inl.h"
#include "strata/ops/conv/conv_volume_cuda.h"
#include "strata/ops/conv/fold_volume_kernel.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

using conv_cuda::VolumeSizes;

// All but the first entry.
Dims plane(const Dims& d) {
  return {d[1], d[2]};
}
Dims last3(const Tensor& t) {
  return {t.size(-3), t.size(-2), t.size(-1)};
}

// weight [a, b, kd, kh, kw] of products whose channels are (b, kd).
Tensor flat_weight(const Tensor& w) {
  return w.reshape({w.size(0), w.size(1) * w.size(2), w.size(3), w.size(4)});
}

// The sizes of y for those of x; ShapeError where a window does not fit.
Dims result_sizes(std::string_view op, const Dims& size, const Dims& kernel, const Geometry& g) {
  check_spatial(op, size);
  check_spatial(op, kernel);
  Dims r;
  for (int i = 0; i < 3; ++i) {
    check<ShapeError>(kernel[i] >= 1 && size[i] >= 1, op, "sizes must be at least 1, x has ", size, ", the kernel ",
                      kernel);
    const int64_t room = size[i] + 2 * g.padding[i] - extent(kernel[i], g.dilation[i]);
    check<ShapeError>(room >= 0, op, "a kernel of ", kernel, " with dilation ", g.dilation,
                      " does not fit an input of ", size, " with padding ", g.padding);
    r.push_back(room / g.stride[i] + 1);
  }
  return r;
}

void check_tensors(std::string_view op, const Tensor& x, const Tensor& w, const Tensor& bias, const Geometry& g) {
  check<ShapeError>(x.dim() == 5 && w.dim() == 5, op, "x is ", x, " and weight ", w, ", wants 5 dimensions");
  check<DTypeError>(x.dtype() == w.dtype() && is_floating(x.dtype()), op, "x is ", x, " and weight ", w,
                    ", wants one floating dtype");
  check<DTypeError>(!bias.defined() || bias.dtype() == x.dtype(), op, "bias is ", bias, ", x ", x);
  check_geometry(op, g, 3);
  check<ShapeError>(w.size(0) % g.groups == 0, op, "weight is ", w, ", wants a multiple of ", g.groups, " rows");
}
void check_bias(std::string_view op, const Tensor& bias, int64_t channels) {
  check<ShapeError>(!bias.defined() || (bias.dim() == 1 && bias.size(0) == channels), op, "bias is ", bias, ", wants [",
                    channels, "]");
}

TensorMeta forward_meta(const Tensor& x, const Tensor& w, const Tensor& bias, const Geometry& g) {
  constexpr std::string_view op = "volume_convolution";
  check_tensors(op, x, w, bias, g);
  check<ShapeError>(w.size(1) * g.groups == x.size(1), op, "x is ", x, " and weight is ", w, " with ", g.groups,
                    " groups");
  check_bias(op, bias, w.size(0));
  const Dims size = result_sizes(op, last3(x), last3(w), g);
  return like(x).with_shape({x.size(0), w.size(0), size[0], size[1], size[2]});
}
TensorMeta transpose_meta(const Tensor& y, const Tensor& w, const Tensor& bias, const Dims& size, const Geometry& g) {
  constexpr std::string_view op = "volume_transpose";
  check_tensors(op, y, w, bias, g);
  check<ShapeError>(y.size(1) == w.size(0), op, "y is ", y, " and weight is ", w,
                    ", wants as many channels in y as weight has rows");
  check(size.size() == 3, op, "size ", size, " needs 3 entries");
  check<ShapeError>(result_sizes(op, size, last3(w), g) == last3(y), op, "a result of ", size, " does not belong to y ",
                    y, " and a kernel of ", last3(w));
  check_bias(op, bias, w.size(1) * g.groups);
  return like(y).with_shape({y.size(0), w.size(1) * g.groups, size[0], size[1], size[2]});
}

// ---- composed ------------------------------------------------------------------------------------------------------

Tensor forward_by_planes(const Tensor& x, const Tensor& w, const Tensor& bias, const Geometry& g) {
  const int64_t n = x.size(0), kd = w.size(2);
  const Tensor planes = depth_windows(x, kd, g.padding[0], g.stride[0], g.dilation[0]);
  const int64_t depth = (x.size(2) + 2 * g.padding[0] - extent(kd, g.dilation[0])) / g.stride[0] + 1;
  const Tensor y =
      convolution(planes, flat_weight(w), bias, plane(g.stride), plane(g.padding), plane(g.dilation), g.groups);
  return transpose(y.reshape({n, depth, y.size(1), y.size(2), y.size(3)}), 1, 2).contiguous();
}

// Whether a transposed convolution is one product with all of a kernel's taps, whose results are then added up: on a
// card two launches rather than a dozen, for which they are written and read. In 16 bits they are rounded on the way,
// so that windows must not overlap.
bool folds(const Tensor& y, const Tensor& w, const Geometry& g) {
  constexpr int64_t kMostProducts = int64_t{1} << 22;
  const int64_t products = y.size(0) * last3(y).product() * w.size(1) * g.groups * last3(w).product();
  if (!y.device().is_cuda() || products > kMostProducts || products == 0) return false;
  bool apart = true;
  for (int i = 0; i < 3; ++i) apart = apart && extent(w.size(2 + i), g.dilation[i]) <= g.stride[i];
  return apart || (size_of(y.dtype()) >= 4 && !autocast_enabled());
}

Tensor transpose_by_planes(const Tensor& y, const Tensor& w, const Tensor& bias, const Dims& size, const Geometry& g) {
  const int64_t n = y.size(0), depth = y.size(2), kd = w.size(2), out = w.size(1) * g.groups;
  if (folds(y, w, g)) {
    const int64_t places = last3(y).product(), taps = last3(w).product();
    const Tensor products =
        convolution_transpose(y.reshape({n, y.size(1), 1, places}), w.reshape({w.size(0), w.size(1) * taps, 1, 1}), {},
                              {1, places}, {1, 1}, {0, 0}, {1, 1}, g.groups);
    return fold_volume(products.reshape({n, out * taps, places}), bias, size, last3(w), g.stride, g.padding,
                       g.dilation);
  }
  const Tensor planes = transpose(y, 1, 2).reshape({n * depth, y.size(1), y.size(3), y.size(4)});
  const Tensor z = convolution_transpose(planes, flat_weight(w), {}, plane(size), plane(g.stride), plane(g.padding),
                                         plane(g.dilation), g.groups);
  const Tensor x = add_depth_windows(z, n, size[0], kd, g.padding[0], g.stride[0], g.dilation[0]);
  return bias.defined() ? x + bias.reshape({out, 1, 1, 1}) : x.contiguous();
}

// The gradient for the weight, from x and the gradient of y.
Tensor weight_of(const Tensor& x, const Tensor& y, const Shape& weight, const Geometry& g) {
  const Tensor windows = depth_windows(x, weight[2], g.padding[0], g.stride[0], g.dilation[0]),
               planes = transpose(y, 1, 2).reshape({y.size(0) * y.size(2), y.size(1), y.size(3), y.size(4)});
  return convolution_weight(windows, planes, {weight[3], weight[4]}, plane(g.stride), plane(g.padding),
                            plane(g.dilation), g.groups)
      .reshape(weight);
}

// ---- a card's kernels ----------------------------------------------------------------------------------------------

VolumeSizes sizes_of(const Dims& x, const Dims& y, const Tensor& w, int64_t n, const Geometry& g) {
  VolumeSizes s{};
  s.n = n, s.ic = w.size(1) * g.groups, s.oc = w.size(0), s.groups = g.groups;
  for (int i = 0; i < 3; ++i) {
    const auto at = static_cast<size_t>(i);
    s.in[at] = x[i], s.out[at] = y[i], s.kernel[at] = w.size(2 + i);
    s.stride[at] = g.stride[i], s.padding[at] = g.padding[i], s.dilation[at] = g.dilation[i];
  }
  return s;
}

#ifdef STRATA_WITH_CUDA
// An operand row-major, or with its channels innermost where it lies so.
struct Operand {
  Tensor kept;
  bool last;

  explicit Operand(const Tensor& t) : kept(t), last(false) {
    if (t.is_contiguous()) return;
    const Tensor innermost = permute(t, {0, 2, 3, 4, 1});
    last = innermost.is_contiguous();
    kept = last ? innermost : t.contiguous();
  }
};

// Windows of a few channels are better copied: channels are padded to 16 bytes, in the copy those of a whole window.
bool gathers(const VolumeSizes& s, DType t) {
  const auto padded = [&](int64_t channels) {
    const int64_t piece = 16 / size_of(t);
    return (channels + piece - 1) / piece * piece;
  };
  const int64_t channels = s.ic / s.groups, depth = s.kernel[0];
  return 2 * depth * padded(channels) <= 3 * padded(channels * depth);
}

void forward_on_card(Tensor& y, const Tensor& x, const Tensor& w, const Tensor& bias, const Dims& stride,
                     const Dims& padding, const Dims& dilation, int64_t groups) {
  const Geometry g{stride, padding, dilation, groups};
  const VolumeSizes s = sizes_of(last3(x), last3(y), w, x.size(0), g);
  if (y.numel() == 0) return;
  if (!y.is_contiguous() || !gathers(s, x.dtype()) || !fits_volume(s, x.dtype(), x.device()))
    return copy_elements(y, forward_by_planes(x, w, bias, g));
  const Operand from(x);
  const Tensor filter = contiguous(w), add = bias.defined() ? contiguous(bias) : bias;
  volume_forward(s, x.dtype(), x.device(), from.kept.raw_data(), from.last, filter.raw_data(),
                 add.defined() ? add.raw_data() : nullptr, y.raw_data());
}
void transpose_on_card(Tensor& x, const Tensor& y, const Tensor& w, const Tensor& bias, const Dims& size,
                       const Dims& stride, const Dims& padding, const Dims& dilation, int64_t groups) {
  const Geometry g{stride, padding, dilation, groups};
  const VolumeSizes s = sizes_of(size, last3(y), w, y.size(0), g);
  if (x.numel() == 0) return;
  if (!x.is_contiguous() || !fits_volume(s, y.dtype(), y.device()))
    return copy_elements(x, transpose_by_planes(y, w, bias, size, g));
  const Operand from(y);
  const Tensor filter = contiguous(w), add = bias.defined() ? contiguous(bias) : bias;
  volume_transpose(s, y.dtype(), y.device(), from.kept.raw_data(), from.last, filter.raw_data(),
                   add.defined() ? add.raw_data() : nullptr, x.raw_data());
}
#endif

// Whether the records below are the way to go there; elsewhere their composed form is, whose copies gradients keep.
bool on_card(const Tensor& x, const Tensor& w, const VolumeSizes& s, bool transposed) {
#ifdef STRATA_WITH_CUDA
  if (!x.device().is_cuda() || !is_floating(x.dtype())) return false;
  const DType t = autocast_enabled() ? autocast_dtype() : x.dtype();
  return is_floating(w.dtype()) && (transposed || gathers(s, t)) && fits_volume(s, t, x.device());
#else
  return false;
#endif
}

// ---- records -------------------------------------------------------------------------------------------------------

// y: the smaller end, each of whose elements takes one for each element of a filter.
Cost cost_of(const TensorMeta& x, const Tensor& w, const TensorMeta& y) {
  const auto results = static_cast<double>(y.shape.product()), filters = static_cast<double>(w.numel());
  return {2 * results * filters / static_cast<double>(std::max<int64_t>(1, w.size(0))),
          (static_cast<double>(x.shape.product()) + filters + results) * static_cast<double>(size_of(w.dtype()))};
}

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&, const Dims&, const Dims&, const Dims&, int64_t)>
    forward_op{{
        .schema = "volume_convolution(Tensor x, Tensor weight, Tensor? bias, int[] stride, int[] padding, int[] "
                  "dilation, int groups) -> Tensor",
        .shard = "n ...!, _, _ -> n ...!",
        .internal = true,
        .doc = "convolution of volumes x [n, in, d, h, w], weight [out, in / groups, kd, kh, kw]; lists have three "
               "entries. On Hopper's tensor cores one product that gathers its windows; what conv3d calls on a card.",
        .infer =
            [](const Tensor& x, const Tensor& w, const Tensor& bias, const Dims& stride, const Dims& padding,
               const Dims& dilation, int64_t groups) {
              return forward_meta(x, w, bias, {stride, padding, dilation, groups});
            },
        .kernels = {.cuda = STRATA_CUDA_KERNEL(forward_on_card)},
        .composed =
            [](const Tensor& x, const Tensor& w, const Tensor& bias, const Dims& stride, const Dims& padding,
               const Dims& dilation, int64_t groups) {
              return forward_by_planes(x, w, bias, {stride, padding, dilation, groups});
            },
        .saves = "x:weight weight:x",
        .backward =
            [](Backward& b, const Tensor& x, const Tensor& w, const Tensor&, const Dims& stride, const Dims& padding,
               const Dims& dilation, int64_t groups) {
              const Geometry g{stride, padding, dilation, groups};
              if (b.needs(0)) b.set(0, volume_transpose(b.gy(), w, {}, last3(x), g));
              if (b.needs(1)) b.set(1, weight_of(x, b.gy(), w.shape(), g));
              if (b.needs(2)) b.set(2, sum(b.gy(), {0, 2, 3, 4}));
            },
        .autocast = Autocast::low,
        .dtypes = kFloats,
        .cost =
            [](const Tensor& x, const Tensor& w, const Tensor& bias, const Dims& stride, const Dims& padding,
               const Dims& dilation, int64_t groups) {
              return cost_of(x.meta(), w, forward_meta(x, w, bias, {stride, padding, dilation, groups}));
            },
        .samples =
            [](Samples& s) {
              const auto add = [&](const Tensor& x, const Tensor& w, bool bias, const Dims& stride, const Dims& padding,
                                   const Dims& dilation, int64_t groups, const char* what) {
                s.add(x, w, bias ? s.tensor({w.size(0)}) : Tensor(), stride, padding, dilation, groups).named(what);
              };
              add(s.tensor({2, 3, 4, 5, 3}), s.tensor({4, 3, 3, 3, 2}), true, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}, 1, "");
              add(s.tensor({2, 10, 5, 4, 3}), s.tensor({6, 5, 2, 3, 2}), false, {2, 1, 2}, {1, 1, 0}, {2, 1, 1}, 2,
                  "all options");
              add(s.tensor({2, 4, 5, 3, 8}).permute({0, 4, 1, 2, 3}), s.tensor({9, 8, 3, 1, 3}), true, {1, 1, 1},
                  {1, 0, 1}, {1, 1, 1}, 1, "channels innermost");
              add(s.tensor({0, 2, 3, 4, 4}), s.tensor({3, 2, 2, 2, 2}), true, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}, 1,
                  "empty batch");
              const Tensor x = s.tensor({2, 3, 4, 4, 4}), w = s.tensor({4, 3, 3, 3, 3});
              const auto none = std::nullopt;
              const Dims one{1, 1, 1}, zero{0, 0, 0};
              s.invalid<ShapeError>("5 dimensions", s.tensor({3, 4, 4, 4}), w, none, one, zero, one, 1);
              s.invalid<ShapeError>("does not fit", s.tensor({2, 3, 2, 4, 4}), w, none, one, zero, one, 1);
              s.invalid<ShapeError>("groups", x, s.tensor({4, 2, 3, 3, 3}), none, one, zero, one, 1);
              s.invalid<ShapeError>("bias is", x, w, s.tensor({3}), one, zero, one, 1);
              s.invalid<ValueError>("entries", x, w, none, Dims{1, 1}, zero, one, 1);
            },
        .reference = by_loops::convolved<3>,
    }};

const Op<Tensor(const Tensor&, const Tensor&, const Tensor&, const Dims&, const Dims&, const Dims&, const Dims&,
                int64_t)>
    transpose_op{{
        .schema = "volume_transpose(Tensor y, Tensor weight, Tensor? bias, int[] size, int[] stride, int[] padding, "
                  "int[] dilation, int groups) -> Tensor",
        .shard = "n ...!, _, _ -> n ...!",
        .internal = true,
        .doc = "The gradient of volume_convolution for its input: y [n, out, d, h, w] and weight [out, in / groups, "
               "kd, kh, kw] give [n, in, size], plus bias [in]. What conv_transpose3d calls on a card.",
        .infer =
            [](const Tensor& y, const Tensor& w, const Tensor& bias, const Dims& size, const Dims& stride,
               const Dims& padding, const Dims& dilation, int64_t groups) {
              return transpose_meta(y, w, bias, size, {stride, padding, dilation, groups});
            },
        .kernels = {.cuda = STRATA_CUDA_KERNEL(transpose_on_card)},
        .composed =
            [](const Tensor& y, const Tensor& w, const Tensor& bias, const Dims& size, const Dims& stride,
               const Dims& padding, const Dims& dilation, int64_t groups) {
              return transpose_by_planes(y, w, bias, size, {stride, padding, dilation, groups});
            },
        .saves = "y:weight weight:y",
        .backward =
            [](Backward& b, const Tensor& y, const Tensor& w, const Tensor&, const Dims&, const Dims& stride,
               const Dims& padding, const Dims& dilation, int64_t groups) {
              const Geometry g{stride, padding, dilation, groups};
              if (b.needs(0)) b.set(0, volume_convolution(b.gy(), w, {}, g));
              if (b.needs(1)) b.set(1, weight_of(b.gy(), y, w.shape(), g));
              if (b.needs(2)) b.set(2, sum(b.gy(), {0, 2, 3, 4}));
            },
        .autocast = Autocast::low,
        .dtypes = kFloats,
        .cost =
            [](const Tensor& y, const Tensor& w, const Tensor& bias, const Dims& size, const Dims& stride,
               const Dims& padding, const Dims& dilation, int64_t groups) {
              return cost_of(transpose_meta(y, w, bias, size, {stride, padding, dilation, groups}), w, y.meta());
            },
        .samples =
            [](Samples& s) {
              const auto add = [&](const Tensor& y, const Tensor& w, bool bias, const Dims& size, const Dims& stride,
                                   const Dims& padding, const Dims& dilation, int64_t groups, const char* what) {
                s.add(y, w, bias ? s.tensor({w.size(1) * groups}) : Tensor(), size, stride, padding, dilation, groups)
                    .named(what);
              };
              add(s.tensor({2, 4, 2, 3, 2}), s.tensor({4, 3, 2, 2, 2}), true, {4, 6, 5}, {2, 2, 2}, {0, 0, 0},
                  {1, 1, 1}, 1, "");
              add(s.tensor({2, 4, 2, 3, 2}), s.tensor({4, 2, 2, 3, 2}), false, {6, 3, 5}, {3, 1, 2}, {1, 1, 0},
                  {2, 1, 1}, 2, "all options");
              add(s.tensor({1, 2, 3, 2, 8}).permute({0, 4, 1, 2, 3}), s.tensor({8, 5, 4, 3, 4}), true, {4, 5, 4},
                  {2, 2, 2}, {1, 1, 1}, {1, 1, 1}, 1, "channels innermost, overlapping");
              add(s.tensor({1, 5, 3, 4, 4}), s.tensor({5, 6, 3, 3, 3}), true, {3, 4, 4}, {1, 1, 1}, {1, 1, 1},
                  {1, 1, 1}, 1, "a stride of one");
              const Tensor y = s.tensor({1, 4, 2, 2, 2}), w = s.tensor({4, 2, 2, 2, 2});
              const auto none = std::nullopt;
              const Dims one{1, 1, 1}, zero{0, 0, 0}, size{3, 3, 3};
              s.invalid<ShapeError>("does not belong", y, w, none, Dims{4, 3, 3}, one, zero, one, 1);
              s.invalid<ShapeError>("as many channels", s.tensor({1, 3, 2, 2, 2}), w, none, size, one, zero, one, 1);
              s.invalid<ValueError>("3 entries", y, w, none, Dims{3, 3}, one, zero, one, 1);
            },
        .reference =
            [](const Tensor& y, const Tensor& w, const Tensor& bias, const Dims& size, const Dims& stride,
               const Dims& padding, const Dims& dilation, int64_t groups) {
              const TensorMeta meta = transpose_meta(y, w, bias, size, {stride, padding, dilation, groups});
              by_loops::Array x = by_loops::bias_over(meta.shape, bias);
              const by_loops::Array of_y(y), of_w(w);
              by_loops::products(meta.shape, w.shape(), y.shape(), stride, padding, dilation, groups,
                                 [&](const Dims& px, const Dims& pw, const Dims& py) { x[px] += of_y[py] * of_w[pw]; });
              return Tensor(x);
            },
        .tolerance = 8,
        .tolerance_reason = "composed, slices that overlap are added up one by one, each sum rounded",
    }};

}  // namespace

Tensor volume_convolution(const Tensor& x, const Tensor& w, const Tensor& bias, const Geometry& g) {
  Dims y;
  for (int i = 0; i < 3; ++i)
    y.push_back((x.size(2 + i) + 2 * g.padding[i] - extent(w.size(2 + i), g.dilation[i])) / g.stride[i] + 1);
  return on_card(x, w, sizes_of(last3(x), y, w, x.size(0), g), false)
             ? forward_op(x, w, bias, g.stride, g.padding, g.dilation, g.groups)
             : forward_by_planes(x, w, bias, g);
}

Tensor volume_transpose(const Tensor& y, const Tensor& w, const Tensor& bias, const Dims& size, const Geometry& g) {
  return on_card(y, w, sizes_of(size, last3(y), w, y.size(0), g), true)
             ? transpose_op(y, w, bias, size, g.stride, g.padding, g.dilation, g.groups)
             : transpose_by_planes(y, w, bias, size, g);
}

}  // namespace strata
