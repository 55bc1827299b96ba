#pragma once
// What the pooling and resizing records share: windows, checks, and dense references. Included by this folder's .cpp
// files.

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>
#include <vector>

#include "strata/core/channels_last.h"
#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/pool/pool.h"
#include "strata/ops/pool/pool_kernels.h"
#include "strata/ops/view/view.h"

namespace strata::pool {

// ---- windows of one dimension --------------------------------------------------------------------------------------

// The size formula of pooling; a window must start inside the input or its left padding.
inline int64_t pooled_size(int64_t in, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation,
                           bool ceil_mode) {
  // Any numbers come here, also those whose sums and products do not fit.
  const __int128 wide = __int128{in} + __int128{2} * padding - __int128{dilation} * (kernel - 1) - 1;
  if (wide < 0) return 0;
  const int64_t room = static_cast<int64_t>(std::min<__int128>(wide, std::numeric_limits<int64_t>::max() - 1));
  int64_t out = room / stride + 1;
  if (ceil_mode && room % stride != 0 && __int128{out} * stride < __int128{in} + padding) ++out;
  return out;
}

inline Axis pool_axis(int64_t in, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation, bool ceil_mode,
                      bool mean, bool count_padding) {
  Axis a;
  a.mean = mean, a.count_padding = count_padding;
  a.in = in, a.out = pooled_size(in, kernel, stride, padding, dilation, ceil_mode);
  a.kernel = kernel, a.stride = stride, a.padding = padding, a.dilation = dilation;
  return a;
}

inline Axis adaptive_axis(int64_t in, int64_t out) {
  Axis a;
  a.kind = AxisKind::adaptive;
  a.in = in, a.out = out;
  return a;
}

// ---- shapes --------------------------------------------------------------------------------------------------------

// The last `spatial` sizes; `spatial` is 1 to 3 and x has at least one dimension before them.
inline Dims spatial_of(std::string_view op, const Tensor& x, int64_t spatial) {
  check(spatial >= 1 && spatial <= 3, op, "works on one to three spatial dimensions, got ", spatial);
  check<ShapeError>(x.dim() > spatial, op, "x needs at least ", spatial + 1, " dimensions, is ", x);
  Dims d;
  for (int64_t i = x.dim() - spatial; i < x.dim(); ++i) d.push_back(x.shape()[i]);
  return d;
}

inline Shape with_spatial(const Shape& s, const Dims& spatial) {
  Shape r = s;
  for (int i = 0; i < spatial.size(); ++i) r[s.size() - spatial.size() + i] = spatial[i];
  return r;
}

inline int64_t planes_of(const Tensor& x, int64_t spatial) {
  int64_t n = 1;
  for (int64_t i = 0; i < x.dim() - spatial; ++i) n *= x.shape()[i];
  return n;
}

inline void check_list(std::string_view op, const Dims& d, int64_t spatial, int64_t least, std::string_view name) {
  check(d.size() == spatial, op, name, " ", d, " needs ", spatial, " entries");
  for (int64_t v : d) check(v >= least, op, name, " must be at least ", least, ", got ", d);
}

inline void check_floating(std::string_view op, const Tensor& x) {
  check<DTypeError>(is_floating(x.dtype()), op, "needs a floating dtype, got ", x);
}

// All dimensions from a function for one; those that are missing come first.
template <class F>
Axes axes_of(int64_t spatial, F&& f) {
  Axes axes;
  axes[2] = f(spatial - 1);
  axes[0] = axes[1] = Axis::unit(axes[2].kind);
  for (int64_t d = 0; d + 1 < spatial; ++d) axes[3 - spatial + d] = f(d);
  return axes;
}

// Runs f(dense input, dense result) and copies into a strided result where needed.
template <class F>
void dense(Tensor& y, const Tensor& x, F&& f) {
  if (y.numel() == 0) return;  // its planes may still be too large to describe
  const Tensor from = x.contiguous();
  if (y.is_contiguous()) return f(from, y);
  Tensor copy = empty(y.meta());
  f(from, copy);
  y.copy_(copy);
}

// The strides of images [n, c, h, w] or volumes [n, c, d, h, w] of this shape with their channels innermost.
inline Strides last_strides(const Shape& s) {
  Strides r = Strides::filled(s.size(), 1);
  int64_t step = s[1];
  for (int d = s.size() - 1; d >= 2; --d) {
    r[d] = step;
    step *= s[d];
  }
  r[0] = step;
  return r;
}
// Whether they lie so, without gaps.
inline bool lies_last(const Tensor& t, int64_t spatial) {
  if (spatial < 2 || t.dim() != spatial + 2 || t.numel() == 0) return false;
  const Strides wanted = last_strides(t.shape());
  for (int d = 0; d < t.dim(); ++d)
    if (t.shape()[d] != 1 && t.strides()[d] != wanted[d]) return false;
  return true;
}
// Whether kernels of channels-last images run from `from` to `to`; those of volumes are the processor's alone.
inline bool both_last(const Tensor& from, const Tensor& to, int64_t spatial) {
  return (spatial == 2 || (spatial == 3 && from.device().is_cpu())) && (!from.is_contiguous() || !to.is_contiguous()) &&
         lies_last(from, spatial) && lies_last(to, spatial);
}
// A result of the spatial sizes, in x's layout.
inline TensorMeta pooled_meta(const Tensor& x, const Dims& spatial) {
  TensorMeta y = like(x).with_shape(with_spatial(x.shape(), spatial));
  if (spatial.size() == 2) return laid_out_as(x, y);
  const bool last = !x.device().is_cuda() && !x.is_contiguous() && lies_last(x, spatial.size());
  if (last && y.shape.product() > 0) y.strides = last_strides(y.shape);
  return y;
}

template <class On>
void resample(On, Tensor& y, const Tensor& x, int64_t spatial, const Axes& t) {
  if constexpr (On::cuda) {
    if (both_last(x, y, spatial) &&
        resample_last_cuda(t, x.shape()[0], x.shape()[1], x.dtype(), x.raw_data(), y.raw_data()))
      return;
  } else {
    if (both_last(x, y, spatial) &&
        cpu::resample_last(t, x.shape()[0], x.shape()[1], x.dtype(), x.raw_data(), y.raw_data()))
      return;
  }
  dense(y, x, [&](const Tensor& from, Tensor& to) {
    if constexpr (On::cuda)
      resample_cuda(t, planes_of(from, spatial), from.dtype(), from.raw_data(), to.raw_data());
    else
      cpu::resample(t, planes_of(from, spatial), from.dtype(), from.raw_data(), to.raw_data());
  });
}
template <class On>
void resample_transposed(On, Tensor& x, const Tensor& y, int64_t spatial, const Axes& t) {
  if constexpr (On::cuda) {
    if (both_last(y, x, spatial) &&
        resample_transposed_last_cuda(t, x.shape()[0], x.shape()[1], x.dtype(), y.raw_data(), x.raw_data()))
      return;
  } else {
    if (both_last(y, x, spatial) &&
        cpu::resample_transposed_last(t, x.shape()[0], x.shape()[1], x.dtype(), y.raw_data(), x.raw_data()))
      return;
  }
  dense(x, y, [&](const Tensor& from, Tensor& to) {
    if constexpr (On::cuda)
      resample_transposed_cuda(t, planes_of(from, spatial), from.dtype(), from.raw_data(), to.raw_data());
    else
      cpu::resample_transposed(t, planes_of(from, spatial), from.dtype(), from.raw_data(), to.raw_data());
  });
}

inline Cost move_cost(const Tensor& x, const Shape& y, double flops_per_output) {
  const auto out = static_cast<double>(y.product());
  return {out * flops_per_output, static_cast<double>(x.nbytes()) + out * static_cast<double>(size_of(x.dtype()))};
}

inline double window_size(const Dims& kernel) {
  return static_cast<double>(kernel.product());
}

inline void check_window(std::string_view op, const Dims& kernel, const Dims& stride, const Dims& padding,
                         const Dims& dilation) {
  check_list(op, kernel, kernel.size(), 1, "kernel");
  check_list(op, stride, kernel.size(), 1, "stride");
  check_list(op, padding, kernel.size(), 0, "padding");
  check_list(op, dilation, kernel.size(), 1, "dilation");
  for (int i = 0; i < kernel.size(); ++i)
    check(padding[i] <= kernel[i] / 2, op, "padding ", padding, " is more than half the kernel ", kernel);
}

inline Dims pooled_sizes(std::string_view op, const Dims& in, const Dims& kernel, const Dims& stride,
                         const Dims& padding, const Dims& dilation, bool ceil_mode) {
  Dims out;
  for (int i = 0; i < in.size(); ++i) {
    check<ShapeError>(in[i] > 0, op, "the spatial size ", in, " is empty");
    out.push_back(pooled_size(in[i], kernel[i], stride[i], padding[i], dilation[i], ceil_mode));
    check<ShapeError>(out[i] > 0, op, "a window of ", kernel, " with dilation ", dilation, " does not fit ", in,
                      " with padding ", padding);
  }
  return out;
}

// The windows that max_pool looks at, and its values alone.
inline Axes max_axes(const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding, const Dims& dilation,
                     bool ceil_mode) {
  const Dims in = spatial_of("max_pool", x, kernel.size());
  return axes_of(kernel.size(), [&](int64_t d) {
    return pool_axis(in[d], kernel[d], stride[d], padding[d], dilation[d], ceil_mode, false, false);
  });
}
Tensor max_pool_values(const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding,
                       const Dims& dilation, bool ceil_mode);

// ---- reference: the linear maps as dense matrices ------------------------------------------------------------------

// M[out, in] of one dimension from a function weight(output, input).
template <class F>
std::vector<double> matrix(int64_t out, int64_t in, F&& weight) {
  std::vector<double> m;
  for (int64_t i = 0; i < out; ++i) {
    for (int64_t j = 0; j < in; ++j) m.push_back(weight(i, j));
  }
  return m;
}

// y = M x in every plane, M being the product of a matrix for each dimension; or x = M^T y.
inline Tensor apply_dense(const Tensor& given, const Shape& result, const std::array<std::vector<double>, 3>& m,
                          const std::array<int64_t, 3>& in, const std::array<int64_t, 3>& out, bool transposed) {
  const Tensor from = given.contiguous(), to = empty(like(given).with_shape(result));
  const int64_t in_plane = in[0] * in[1] * in[2], out_plane = out[0] * out[1] * out[2];
  const int64_t planes = result.product() / std::max<int64_t>(1, transposed ? in_plane : out_plane);
  std::fill_n(to.data<double>(), to.numel(), 0.0);
  for (int64_t p = 0; p < planes; ++p) {
    for (int64_t o = 0; o < out_plane; ++o) {
      for (int64_t i = 0; i < in_plane; ++i) {
        const double weight = m[0][o / (out[1] * out[2]) * in[0] + i / (in[1] * in[2])] *
                              m[1][o / out[2] % out[1] * in[1] + i / in[2] % in[1]] *
                              m[2][o % out[2] * in[2] + i % in[2]];
        if (transposed) {
          to.data<double>()[p * in_plane + i] += weight * from.data<double>()[p * out_plane + o];
        } else {
          to.data<double>()[p * out_plane + o] += weight * from.data<double>()[p * in_plane + i];
        }
      }
    }
  }
  return to;
}

// weight(dimension, output, input) for the last dimensions of sizes `in` and `out`.
template <class F>
Tensor reference(const Tensor& given, const Shape& result, const Dims& in, const Dims& out, bool transposed,
                 F&& weight) {
  std::array<int64_t, 3> i3{1, 1, 1}, o3{1, 1, 1};
  std::array<std::vector<double>, 3> m{{{1.0}, {1.0}, {1.0}}};
  const int missing = 3 - in.size();
  for (int d = 0; d < in.size(); ++d) {
    i3[missing + d] = in[d], o3[missing + d] = out[d];
    m[missing + d] = matrix(out[d], in[d], [&](int64_t i, int64_t j) { return weight(d, i, j); });
  }
  return apply_dense(given, result, m, i3, o3, transposed);
}

inline double adaptive_weight(int64_t i, int64_t j, int64_t in, int64_t out) {
  const auto low = static_cast<int64_t>(std::floor(static_cast<double>(i * in) / static_cast<double>(out)));
  const auto high = static_cast<int64_t>(std::ceil(static_cast<double>((i + 1) * in) / static_cast<double>(out)));
  return j >= low && j < high ? 1.0 / static_cast<double>(high - low) : 0;
}

// Checks of a linear map to or from a spatial size.
inline TensorMeta to_size(std::string_view op, const Tensor& x, const Dims& size) {
  check_floating(op, x);
  for (int64_t v : spatial_of(op, x, size.size())) check<ShapeError>(v > 0, op, "the spatial size of ", x, " is empty");
  check_list(op, size, size.size(), 1, "size");
  return pooled_meta(x, size);
}

// ---- the friendlier forms -------------------------------------------------------------------------------------------

// One entry serves all dimensions.
inline Dims spread(const Dims& d, int spatial) {
  return d.size() == 1 ? Dims::filled(spatial, d[0]) : d;
}

// n-dimensional input with channels and perhaps a batch before.
inline void check_rank(std::string_view op, const Tensor& x, int spatial) {
  check<ShapeError>(x.dim() == spatial + 2 || x.dim() == spatial + 1, op, "x needs ", spatial + 2, " dimensions (",
                    spatial + 1, " without a batch), is ", x);
}

inline Dims adaptive_size(std::string_view op, int spatial, const Tensor& x, const Dims& output_size) {
  check_rank(op, x, spatial);
  const Dims out = spread(output_size, spatial);
  check(out.size() == spatial, op, "output_size ", output_size, " needs ", spatial, " entries");
  return out;
}

}  // namespace strata::pool
