// Windows of volumes added up: the products of a transposed convolution where they are few.

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/columns/columns.h"
#include "strata/ops/conv/conv_geometry.h"
#include "strata/ops/conv/fold_volume_kernel.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/naive_inl.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/shape/shape.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {

constexpr std::string_view kName = "fold_volume";

Dims plane(const Dims& d) {
  return {d[1], d[2]};
}
// How many windows there are along each dimension.
Dims places_of(const Dims& size, const Dims& kernel, const Dims& stride, const Dims& padding, const Dims& dilation) {
  Dims places;
  for (int i = 0; i < 3; ++i) {
    const int64_t room = size[i] + 2 * padding[i] - extent(kernel[i], dilation[i]);
    check<ShapeError>(room >= 0, kName, "a kernel of ", kernel, " does not fit a volume of ", size);
    places.push_back(room / stride[i] + 1);
  }
  return places;
}

TensorMeta fold_meta(const Tensor& windows, const Tensor& bias, const Dims& size, const Dims& kernel,
                     const Dims& stride, const Dims& padding, const Dims& dilation) {
  for (const Dims* list : {&size, &kernel, &stride, &padding, &dilation})
    check(list->size() == 3, kName, "wants three entries for each dimension, got ", *list);
  for (int i = 0; i < 3; ++i)
    check(kernel[i] >= 1 && stride[i] >= 1 && dilation[i] >= 1 && padding[i] >= 0, kName,
          "kernel, stride and dilation must be at least 1, padding 0");
  constexpr int64_t kMost = int64_t{1} << 20;  // so that products of three of them are numbers
  for (const Dims* list : {&size, &kernel, &stride, &padding, &dilation})
    for (int i = 0; i < 3; ++i)
      check((*list)[i] <= kMost && (*list)[i] >= 0, kName, "entries lie in [0, ", kMost, "], got ", *list);
  const int64_t taps = kernel.product(), places = places_of(size, kernel, stride, padding, dilation).product();
  check<ShapeError>(windows.dim() == 3 && windows.size(1) % taps == 0 && windows.size(2) == places, kName,
                    "windows are ", windows, ", wanted [n, channels times ", taps, ", ", places, "]");
  const int64_t channels = windows.size(1) / taps;
  check<ShapeError>(!bias.defined() || (bias.dim() == 1 && bias.size(0) == channels), kName, "bias is ", bias,
                    ", wanted [", channels, "]");
  return like(windows).with_shape({windows.size(0), channels, size[0], size[1], size[2]});
}

Tensor fold_composed(const Tensor& windows, const Tensor& bias, const Dims& size, const Dims& kernel,
                     const Dims& stride, const Dims& padding, const Dims& dilation) {
  const Shape shape = fold_meta(windows, bias, size, kernel, stride, padding, dilation).shape;
  const Dims places = places_of(size, kernel, stride, padding, dilation);
  const int64_t n = shape[0], channels = shape[1] * kernel[0], of_plane = kernel[1] * kernel[2];
  const int64_t across = places[1] * places[2];
  const DType wide = is_reduced_floating(windows.dtype()) ? DType::f32 : windows.dtype();  // rounded once
  const Tensor slices = permute(windows.to(wide).reshape({n, channels * of_plane, places[0], across}), {0, 2, 1, 3});
  const Tensor planes = col2im(slices.reshape({n * places[0], channels * of_plane, across}), plane(size), plane(kernel),
                               plane(dilation), plane(padding), plane(stride));
  const Tensor y = add_depth_windows(planes, n, size[0], kernel[0], padding[0], stride[0], dilation[0]);
  return (bias.defined() ? y + bias.to(wide).reshape({shape[1], 1, 1, 1}) : y.contiguous()).to(windows.dtype());
}

#ifdef STRATA_WITH_CUDA
void fold_on_card(Tensor& y, const Tensor& windows, const Tensor& bias, const Dims& size, const Dims& kernel,
                  const Dims& stride, const Dims& padding, const Dims& dilation) {
  if (y.numel() == 0) return;
  if (y.numel() >= int64_t{1} << 31 || !y.is_contiguous())
    return copy_elements(y, fold_composed(windows, bias, size, kernel, stride, padding, dilation));
  fold_volume_cuda(y, contiguous(windows), bias, size, kernel, stride, padding, dilation);
}
#endif

const Op<Tensor(const Tensor&, const Tensor&, const Dims&, const Dims&, const Dims&, const Dims&, const Dims&)>
    fold_volume_op{{
        .schema = "fold_volume(Tensor windows, Tensor? bias, int[] size, int[] kernel, int[] stride, int[] padding, "
                  "int[] dilation) -> Tensor",
        .shard = "n ...!, _ -> n ...!",
        .internal = true,
        .doc = "windows [n, c kd kh kw, D H W] added up where a convolution of a volume of `size` takes them from, and "
               "the bias [c]: [n, c, size]. What conv_transpose3d does where its products are few.",
        .infer = fold_meta,
        .kernels = {.cuda = STRATA_CUDA_KERNEL(fold_on_card)},
        .composed = fold_composed,
        .backward =
            [](Backward& b, const Tensor& windows, const Tensor&, const Dims& size, const Dims& kernel,
               const Dims& stride, const Dims& padding, const Dims& dilation) {
              if (b.needs(0)) {
                const Dims places = places_of(size, kernel, stride, padding, dilation);
                const int64_t n = windows.size(0), rows = windows.size(1), across = places[1] * places[2];
                const Tensor slices = depth_windows(b.gy(), kernel[0], padding[0], stride[0], dilation[0]);
                const Tensor columns = im2col(slices, plane(kernel), plane(dilation), plane(padding), plane(stride));
                b.set(0, permute(columns.reshape({n, places[0], rows, across}), {0, 2, 1, 3}).reshape(windows.shape()));
              }
              if (b.needs(1)) b.set(1, sum(b.gy(), {0, 2, 3, 4}));
            },
        .cost =
            [](const Tensor& windows, const Tensor&, const Dims& size, const Dims& kernel, const Dims&, const Dims&,
               const Dims&) {
              const int64_t results = windows.size(0) * (windows.size(1) / kernel.product()) * size.product();
              return Cost{static_cast<double>(windows.numel()),
                          static_cast<double>(windows.nbytes() + results * size_of(windows.dtype()))};
            },
        .samples =
            [](Samples& s) {
              s.add(s.tensor({2, 24, 12}), s.tensor({3}), Dims{4, 6, 4}, Dims{2, 2, 2}, Dims{2, 2, 2}, Dims{0, 0, 0},
                    Dims{1, 1, 1});
              s.add(s.tensor({1, 24, 12}), std::nullopt, Dims{3, 4, 5}, Dims{2, 3, 2}, Dims{1, 2, 1}, Dims{1, 1, 0},
                    Dims{2, 1, 3})
                  .named("overlapping, every option");
              s.add(s.tensor({2, 2, 8}), s.tensor({2}), Dims{5, 4, 6}, Dims{1, 1, 1}, Dims{3, 2, 3}, Dims{0, 0, 0},
                    Dims{1, 1, 1})
                  .named("places that no window has");
              s.add(s.tensor({0, 8, 1}), s.tensor({1}), Dims{2, 2, 2}, Dims{2, 2, 2}, Dims{1, 1, 1}, Dims{0, 0, 0},
                    Dims{1, 1, 1});
              s.invalid<ShapeError>("channels times 8", s.tensor({1, 9, 1}), std::nullopt, Dims{2, 2, 2}, Dims{2, 2, 2},
                                    Dims{1, 1, 1}, Dims{0, 0, 0}, Dims{1, 1, 1});
              s.invalid<ShapeError>("does not fit", s.tensor({1, 8, 1}), std::nullopt, Dims{1, 2, 2}, Dims{2, 2, 2},
                                    Dims{1, 1, 1}, Dims{0, 0, 0}, Dims{1, 1, 1});
              s.invalid<ValueError>("three entries", s.tensor({1, 8, 1}), std::nullopt, Dims{2, 2}, Dims{2, 2, 2},
                                    Dims{1, 1, 1}, Dims{0, 0, 0}, Dims{1, 1, 1});
            },
        .reference =
            [](const Tensor& windows, const Tensor& bias, const Dims& size, const Dims& kernel, const Dims& stride,
               const Dims& padding, const Dims& dilation) {
              naive::Array y(fold_meta(windows, bias, size, kernel, stride, padding, dilation).shape);
              const Dims places = places_of(size, kernel, stride, padding, dilation);
              const naive::Array v(Shape{windows.size(0), y.shape()[1], kernel[0], kernel[1], kernel[2], places[0],
                                         places[1], places[2]},
                                   windows.to_vector<double>());
              naive::each(v.shape(), [&](const Dims& p) {
                Dims to{p[0], p[1]};
                for (int i = 0; i < 3; ++i) {
                  to.push_back(p[5 + i] * stride[i] + p[2 + i] * dilation[i] - padding[i]);
                  if (to.back() < 0 || to.back() >= size[i]) return;
                }
                y[to] += v[p];
              });
              if (bias.defined()) {
                const naive::Array add(bias);
                naive::each(y.shape(), [&](const Dims& p) { y[p] += add.flat(p[1]); });
              }
              return Tensor(y);
            },
    }};

}  // namespace

Tensor depth_windows(const Tensor& x, int64_t kd, int64_t padding, int64_t stride, int64_t dilation) {
  const int64_t reach = extent(kd, dilation);
  const Tensor padded = padding > 0 ? pad(x, {0, 0, 0, 0, padding, padding}) : x;
  Tensor windows = unfold(padded, 2, reach, stride);  // [n, c, D, h, w, reach]
  if (dilation > 1) windows = slice(windows, -1, 0, reach, dilation);
  return permute(windows, {0, 2, 1, 5, 3, 4})
      .reshape({x.size(0) * windows.size(2), x.size(1) * kd, x.size(3), x.size(4)});
}

Tensor add_depth_windows(const Tensor& slices, int64_t n, int64_t depth, int64_t kd, int64_t padding, int64_t stride,
                         int64_t dilation) {
  const int64_t reach = extent(kd, dilation), channels = slices.size(1) / kd, h = slices.size(2), w = slices.size(3);
  const int64_t places = (depth + 2 * padding - reach) / stride + 1;
  // Each place has kd slices of the result, which overlap where the kernel is deeper than the stride.
  Tensor windows = permute(slices.reshape({n, places, channels, kd, h, w}), {0, 2, 1, 4, 5, 3});
  Shape wide = windows.shape();
  wide[5] = reach;
  if (dilation > 1) windows = slice_backward(windows, wide, -1, 0, reach, dilation);
  const Tensor y = unfold_backward(windows, {n, channels, depth + 2 * padding, h, w}, 2, reach, stride);
  return padding > 0 ? slice(y, 2, padding, padding + depth, 1) : y;
}

Tensor fold_volume(const Tensor& windows, const Tensor& bias, const Dims& size, const Dims& kernel, const Dims& stride,
                   const Dims& padding, const Dims& dilation) {
  return fold_volume_op(windows, bias, size, kernel, stride, padding, dilation);
}

}  // namespace strata
