#include "strata/ops/pool/pool.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "strata/core/op.h"
#include "strata/core/samples.h"
#include "strata/ops/pool/pool_kernels.h"
#include "strata/ops/view/view.h"

namespace strata {
namespace {
using cpu::Taps;

// ---- windows of one dimension --------------------------------------------------------------------------------------

// The size formula of pooling; a window must start inside the input or its left padding.
int64_t pooled_size(int64_t in, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation, bool ceil_mode) {
  const int64_t room = in + 2 * padding - dilation * (kernel - 1) - 1;
  if (room < 0) return 0;
  int64_t out = (room + (ceil_mode ? stride - 1 : 0)) / stride + 1;
  if (ceil_mode && (out - 1) * stride >= in + padding) --out;
  return out;
}

// Windows clipped to the input. With `mean` they have weights whose sum is 1, or less where padding counts.
Taps pool_taps(int64_t in, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation, bool ceil_mode, bool mean, bool count_padding) {
  Taps t;
  t.inputs = in, t.step = dilation;
  const int64_t out = pooled_size(in, kernel, stride, padding, dilation, ceil_mode);
  for (int64_t i = 0; i < out; ++i) {
    int64_t first = i * stride - padding;
    const int64_t full = std::min(first + kernel, in + padding) - first;  // of a mean, whose dilation is 1
    int64_t n = kernel;
    while (n > 0 && first < 0) first += dilation, --n;
    while (n > 0 && first + (n - 1) * dilation >= in) --n;
    t.add(first, n, mean ? 1.0 / static_cast<double>(count_padding ? full : std::max<int64_t>(n, 1)) : 1.0);
  }
  return t;
}

Taps adaptive_taps(int64_t in, int64_t out) {
  Taps t;
  t.inputs = in;
  for (int64_t i = 0; i < out; ++i) {
    const int64_t first = i * in / out, last = ((i + 1) * in + out - 1) / out;
    t.add(first, last - first, 1.0 / static_cast<double>(last - first));
  }
  return t;
}

// Input position of output i (https://pytorch.org/docs/stable/generated/torch.nn.functional.interpolate.html).
double source(int64_t i, int64_t in, int64_t out, bool nearest, bool align_corners, double scale) {
  if (align_corners && !nearest) return out > 1 ? static_cast<double>(i) * static_cast<double>(in - 1) / static_cast<double>(out - 1) : 0;
  if (scale == 0) scale = static_cast<double>(in) / static_cast<double>(out);
  if (nearest) return std::floor(static_cast<double>(i) * scale);
  return std::max(0.0, (static_cast<double>(i) + 0.5) * scale - 0.5);
}

Taps resize_taps(int64_t in, int64_t out, bool nearest, bool align_corners, double scale) {
  Taps t;
  t.inputs = in;
  for (int64_t i = 0; i < out; ++i) {
    const double at = source(i, in, out, nearest, align_corners, scale);
    const int64_t low = std::min(static_cast<int64_t>(at), in - 1);
    if (nearest || low + 1 >= in) {
      t.add(low, {1.0});
    } else {
      t.add(low, {1 - (at - static_cast<double>(low)), at - static_cast<double>(low)});
    }
  }
  return t;
}

// ---- shapes --------------------------------------------------------------------------------------------------------

// The last `spatial` sizes; `spatial` is 1 or 2 and x has at least one dimension before them.
Dims spatial_of(std::string_view op, const Tensor& x, int64_t spatial) {
  check(spatial == 1 || spatial == 2, op, "works on one or two spatial dimensions, got ", spatial);
  check<ShapeError>(x.dim() > spatial, op, "x needs at least ", spatial + 1, " dimensions, is ", x);
  Dims d;
  for (int64_t i = x.dim() - spatial; i < x.dim(); ++i) d.push_back(x.shape()[i]);
  return d;
}

Shape with_spatial(const Shape& s, const Dims& spatial) {
  Shape r = s;
  for (int i = 0; i < spatial.size(); ++i) r[s.size() - spatial.size() + i] = spatial[i];
  return r;
}

int64_t planes_of(const Tensor& x, int64_t spatial) {
  int64_t n = 1;
  for (int64_t i = 0; i < x.dim() - spatial; ++i) n *= x.shape()[i];
  return n;
}

void check_list(std::string_view op, const Dims& d, int64_t spatial, int64_t least, std::string_view name) {
  check(d.size() == spatial, op, name, " ", d, " needs ", spatial, " entries");
  for (int64_t v : d) check(v >= least, op, name, " must be at least ", least, ", got ", d);
}

void check_window(std::string_view op, const Dims& kernel, const Dims& stride, const Dims& padding, const Dims& dilation) {
  check_list(op, kernel, kernel.size(), 1, "kernel");
  check_list(op, stride, kernel.size(), 1, "stride");
  check_list(op, padding, kernel.size(), 0, "padding");
  check_list(op, dilation, kernel.size(), 1, "dilation");
  for (int i = 0; i < kernel.size(); ++i)
    check(padding[i] <= kernel[i] / 2, op, "padding ", padding, " is more than half the kernel ", kernel);
}

Dims pooled_sizes(std::string_view op, const Dims& in, const Dims& kernel, const Dims& stride, const Dims& padding, const Dims& dilation,
                  bool ceil_mode) {
  Dims out;
  for (int i = 0; i < in.size(); ++i) {
    check<ShapeError>(in[i] > 0, op, "the spatial size ", in, " is empty");
    out.push_back(pooled_size(in[i], kernel[i], stride[i], padding[i], dilation[i], ceil_mode));
    check<ShapeError>(out[i] > 0, op, "a window of ", kernel, " with dilation ", dilation, " does not fit ", in, " with padding ", padding);
  }
  return out;
}

void check_floating(std::string_view op, const Tensor& x) {
  check<DTypeError>(is_floating(x.dtype()), op, "needs a floating dtype, got ", x);
}

// Taps of both dimensions from those of one; a single spatial dimension is the second.
template <class F>
std::array<Taps, 2> both(int64_t spatial, F&& f) {
  std::array<Taps, 2> r;
  r[1] = f(spatial - 1);
  if (spatial == 2) {
    r[0] = f(0);
  } else {
    r[0].add(0, {1.0});
  }
  return r;
}

// Runs f(dense input, dense result) and copies into a strided result where needed.
template <class F>
void dense(Tensor& y, const Tensor& x, F&& f) {
  const Tensor from = x.contiguous();
  if (y.is_contiguous()) return f(from, y);
  Tensor copy = empty(y.meta());
  f(from, copy);
  y.copy_(copy);
}

void resample(Tensor& y, const Tensor& x, int64_t spatial, const std::array<Taps, 2>& t) {
  dense(y, x, [&](const Tensor& from, Tensor& to) {
    cpu::resample(t[0], t[1], planes_of(from, spatial), from.dtype(), from.raw_data(), to.raw_data());
  });
}
void resample_transposed(Tensor& x, const Tensor& y, int64_t spatial, const std::array<Taps, 2>& t) {
  dense(x, y, [&](const Tensor& from, Tensor& to) {
    cpu::resample_transposed(t[0], t[1], planes_of(from, spatial), from.dtype(), from.raw_data(), to.raw_data());
  });
}

Cost move_cost(const Tensor& x, const Shape& y, double flops_per_output) {
  const auto out = static_cast<double>(y.product());
  return {out * flops_per_output, static_cast<double>(x.nbytes()) + out * static_cast<double>(size_of(x.dtype()))};
}

double window_size(const Dims& kernel) { return static_cast<double>(kernel.product()); }

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

double mean_weight(int64_t i, int64_t j, int64_t in, int64_t kernel, int64_t stride, int64_t padding, bool count_padding) {
  const int64_t low = i * stride - padding, high = std::min(low + kernel, in + padding);
  if (j < low || j >= high) return 0;
  return 1.0 / static_cast<double>(count_padding ? high - low : std::min(high, in) - std::max<int64_t>(low, 0));
}
double adaptive_weight(int64_t i, int64_t j, int64_t in, int64_t out) {
  const auto low = static_cast<int64_t>(std::floor(static_cast<double>(i * in) / static_cast<double>(out)));
  const auto high = static_cast<int64_t>(std::ceil(static_cast<double>((i + 1) * in) / static_cast<double>(out)));
  return j >= low && j < high ? 1.0 / static_cast<double>(high - low) : 0;
}
double resize_weight(int64_t i, int64_t j, int64_t in, int64_t out, bool nearest, bool align_corners, double scale) {
  const double at = std::min(source(i, in, out, nearest, align_corners, scale), static_cast<double>(in - 1));
  return std::max(0.0, 1 - std::abs(at - static_cast<double>(j)));  // a hat; at is whole where nearest
}

// y = M0 x M1^T in every plane, or x = M0^T y M1.
Tensor apply_dense(const Tensor& given, const Shape& result, const std::array<std::vector<double>, 2>& m, const std::array<int64_t, 2>& in,
                   const std::array<int64_t, 2>& out, bool transposed) {
  const Tensor from = given.contiguous(), to = empty(like(given).with_shape(result));
  const int64_t in_plane = in[0] * in[1], out_plane = out[0] * out[1];
  const int64_t planes = result.product() / std::max<int64_t>(1, transposed ? in_plane : out_plane);
  std::fill_n(to.data<double>(), to.numel(), 0.0);
  for (int64_t p = 0; p < planes; ++p) {
    for (int64_t o = 0; o < out_plane; ++o) {
      for (int64_t i = 0; i < in_plane; ++i) {
        const double weight = m[0][o / out[1] * in[0] + i / in[1]] * m[1][o % out[1] * in[1] + i % in[1]];
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
Tensor reference(const Tensor& given, const Shape& result, const Dims& in, const Dims& out, bool transposed, F&& weight) {
  const int last = in.size() - 1;
  std::array<int64_t, 2> i2{1, in[last]}, o2{1, out[last]};
  std::array<std::vector<double>, 2> m{std::vector<double>{1.0}, matrix(out[last], in[last], [&](int64_t i, int64_t j) { return weight(last, i, j); })};
  if (last == 1) {
    i2[0] = in[0], o2[0] = out[0];
    m[0] = matrix(out[0], in[0], [&](int64_t i, int64_t j) { return weight(0, i, j); });
  }
  return apply_dense(given, result, m, i2, o2, transposed);
}

// ---- max pooling ---------------------------------------------------------------------------------------------------

using Pair = std::tuple<Tensor, Tensor>;

std::array<TensorMeta, 2> max_pool_infer(const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding, const Dims& dilation,
                                         bool ceil_mode) {
  check_floating("max_pool", x);
  const Dims in = spatial_of("max_pool", x, kernel.size());
  check_window("max_pool", kernel, stride, padding, dilation);
  const TensorMeta y = like(x).with_shape(with_spatial(x.shape(), pooled_sizes("max_pool", in, kernel, stride, padding, dilation, ceil_mode)));
  return {y, y.with_dtype(DType::i64)};
}

std::array<TensorMeta, 2> adaptive_max_infer(const Tensor& x, const Dims& output_size) {
  check_floating("adaptive_max_pool", x);
  for (int64_t v : spatial_of("adaptive_max_pool", x, output_size.size()))
    check<ShapeError>(v > 0, "adaptive_max_pool", "the spatial size of ", x, " is empty");
  check_list("adaptive_max_pool", output_size, output_size.size(), 1, "output_size");
  const TensorMeta y = like(x).with_shape(with_spatial(x.shape(), output_size));
  return {y, y.with_dtype(DType::i64)};
}

void max_into(Tensor& values, Tensor& positions, const Tensor& x, int64_t spatial, const std::array<Taps, 2>& t) {
  const Tensor from = x.contiguous();
  Tensor v = values.is_contiguous() ? values : empty(values.meta()), p = positions.is_contiguous() ? positions : empty(positions.meta());
  cpu::window_max(t[0], t[1], planes_of(x, spatial), x.dtype(), from.raw_data(), v.raw_data(), p.data<int64_t>());
  if (!v.same_as(values)) values.copy_(v);
  if (!p.same_as(positions)) positions.copy_(p);
}

// The largest of the inputs that inside(dimension, output, input) accepts.
template <class F>
Pair max_reference(const Tensor& x, const std::array<TensorMeta, 2>& metas, int64_t spatial, F&& inside) {
  const Tensor from = x.contiguous(), values = empty(metas[0]), positions = empty(metas[1]);
  const Shape& in = x.shape();
  const Shape& out = metas[0].shape;
  const int64_t iw = in.back(), ow = out.back(), ih = spatial == 2 ? in[in.size() - 2] : 1, oh = spatial == 2 ? out[out.size() - 2] : 1;
  for (int64_t i = 0; i < values.numel(); ++i) {
    double best = -std::numeric_limits<double>::infinity();
    int64_t at = -1;
    for (int64_t j = 0; j < ih * iw; ++j) {
      if (!inside(spatial - 1, i % ow, j % iw) || (spatial == 2 && !inside(0, i / ow % oh, j / iw))) continue;
      const double v = from.data<double>()[i / (oh * ow) * ih * iw + j];
      if (at < 0 || v > best) best = v, at = j;
    }
    values.data<double>()[i] = best;
    positions.data<int64_t>()[i] = at;
  }
  return {values, positions};
}

const Op<Pair(const Tensor&, const Dims&, const Dims&, const Dims&, const Dims&, bool)> max_pool_op{{
    .schema = "max_pool(Tensor x, int[] kernel, int[] stride, int[] padding, int[] dilation, bool ceil_mode=false) -> (Tensor values, Tensor indices)",
    .doc = "The largest element of each window over the last one or two dimensions (as many as kernel has entries), and its "
           "position in the plane, row-major. Padding never wins; NaN wins; of equal elements the first. max_pool1d and "
           "max_pool2d are the friendlier forms.",
    .infer = max_pool_infer,
    .kernels = {.cpu = [](Tensor& values, Tensor& positions, const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding,
                          const Dims& dilation, bool ceil_mode) {
      const Dims in = spatial_of("max_pool", x, kernel.size());
      max_into(values, positions, x, kernel.size(), both(kernel.size(), [&](int64_t d) {
        return pool_taps(in[d], kernel[d], stride[d], padding[d], dilation[d], ceil_mode, false, false);
      }));
    }},
    .saves = "indices",
    .backward = [](Backward& b, const Tensor& x, const Dims& kernel, const Dims&, const Dims&, const Dims&, bool) {
      b.set(0, plane_scatter(b.gy(0), b.y(1), spatial_of("max_pool", x, kernel.size())));
    },
    .cost = [](const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding, const Dims& dilation, bool ceil_mode) {
      Cost c = move_cost(x, max_pool_infer(x, kernel, stride, padding, dilation, ceil_mode)[0].shape, window_size(kernel));
      return c;
    },
    .samples = [](Samples& s) {
      s.add(s.distinct({2, 3, 6, 7}), Dims{2, 3}, Dims{2, 2}, Dims{0, 1}, Dims{1, 1});
      s.add(s.distinct({2, 3, 7}), Dims{3}, Dims{2}, Dims{1}, Dims{2}, true).named("one dimension, dilated, ceil");
      s.add(transpose(s.distinct({1, 5, 2, 5}), 1, 2), Dims{3, 3}, Dims{1, 1}, Dims{1, 1}, Dims{1, 1}).named("overlapping, strided");
      s.add(s.tensor({0, 3, 4, 4}), Dims{2, 2}, Dims{2, 2}, Dims{0, 0}, Dims{1, 1}).named("empty batch");
      s.invalid<ShapeError>("does not fit", s.tensor({1, 2, 2}), Dims{3}, Dims{1}, Dims{0}, Dims{1});
      s.invalid<ValueError>("half the kernel", s.tensor({1, 2, 4}), Dims{2}, Dims{1}, Dims{2}, Dims{1});
      s.invalid<ValueError>("stride", s.tensor({1, 2, 4}), Dims{2}, Dims{0}, Dims{0}, Dims{1});
      s.invalid<ShapeError>("dimensions", s.tensor({4}), Dims{2}, Dims{1}, Dims{0}, Dims{1});
    },
    .reference = [](const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding, const Dims& dilation, bool ceil_mode) {
      return max_reference(x, max_pool_infer(x, kernel, stride, padding, dilation, ceil_mode), kernel.size(), [&](int64_t d, int64_t o, int64_t i) {
        const int64_t from_start = i - (o * stride[d] - padding[d]);
        return from_start >= 0 && from_start % dilation[d] == 0 && from_start / dilation[d] < kernel[d];
      });
    },
}};

const Op<Pair(const Tensor&, const Dims&)> adaptive_max_pool_op{{
    .schema = "adaptive_max_pool(Tensor x, int[] output_size) -> (Tensor values, Tensor indices)",
    .doc = "The largest elements of windows that cover the last one or two dimensions so that the result has output_size, and "
           "their positions in the plane. Output i covers inputs floor(i in / out) to ceil((i + 1) in / out) - 1.",
    .infer = adaptive_max_infer,
    .kernels = {.cpu = [](Tensor& values, Tensor& positions, const Tensor& x, const Dims& output_size) {
      const Dims in = spatial_of("adaptive_max_pool", x, output_size.size());
      max_into(values, positions, x, output_size.size(), both(output_size.size(), [&](int64_t d) { return adaptive_taps(in[d], output_size[d]); }));
    }},
    .saves = "indices",
    .backward = [](Backward& b, const Tensor& x, const Dims& output_size) {
      b.set(0, plane_scatter(b.gy(0), b.y(1), spatial_of("adaptive_max_pool", x, output_size.size())));
    },
    .cost = [](const Tensor& x, const Dims& output_size) { return move_cost(x, with_spatial(x.shape(), output_size), 1); },
    .samples = [](Samples& s) {
      s.add(s.distinct({2, 3, 5, 7}), Dims{2, 3});
      s.add(s.distinct({2, 3, 5}), Dims{8}).named("larger");
      s.invalid<ValueError>("output_size", s.tensor({2, 3, 5}), Dims{0});
    },
    .reference = [](const Tensor& x, const Dims& output_size) {
      const Dims in = spatial_of("adaptive_max_pool", x, output_size.size());
      return max_reference(x, adaptive_max_infer(x, output_size), output_size.size(), [&](int64_t d, int64_t o, int64_t i) {
        return adaptive_weight(o, i, in[d], output_size[d]) > 0;
      });
    },
}};

TensorMeta scatter_infer(const Tensor& y, const Tensor& positions, const Dims& size) {
  check_floating("plane_scatter", y);
  spatial_of("plane_scatter", y, size.size());
  check_list("plane_scatter", size, size.size(), 0, "size");
  check<ShapeError>(y.shape() == positions.shape(), "plane_scatter", "y is ", y, " but positions are ", positions);
  check<DTypeError>(positions.dtype() == DType::i64, "plane_scatter", "positions must be i64, are ", positions);
  return like(y).with_shape(with_spatial(y.shape(), size));
}

const Op<Tensor(const Tensor&, const Tensor&, const Dims&)> plane_scatter_op{{
    .schema = "plane_scatter(Tensor y, Tensor positions, int[] size) -> Tensor",
    .doc = "Adds each element of y into zeros whose last dimensions are `size`, at its row-major position in the plane; positions "
           "outside the plane are skipped. The gradient of max_pool.",
    .infer = scatter_infer,
    .kernels = {.cpu = [](Tensor& x, const Tensor& y, const Tensor& positions, const Dims& size) {
      const Tensor at = positions.contiguous();
      dense(x, y, [&](const Tensor& from, Tensor& to) {
        const int64_t planes = planes_of(y, size.size()), in = size.product(), out = planes > 0 ? y.numel() / planes : 0;
        cpu::plane_scatter(planes, in, out, y.dtype(), from.raw_data(), at.data<int64_t>(), to.raw_data());
      });
    }},
    .saves = "positions",
    .backward = [](Backward& b, const Tensor&, const Tensor& positions, const Dims& size) {
      // A plane's positions count over `size`, and plane_gather takes planes from the rank of positions.
      if (b.needs(0)) b.set(0, plane_gather(flatten(b.gy(), -size.size(), -1), flatten(positions, -size.size(), -1)).reshape(positions.shape()));
    },
    .cost = [](const Tensor& y, const Tensor& positions, const Dims& size) {
      Cost c = move_cost(y, with_spatial(y.shape(), size), 1);
      c.bytes += static_cast<double>(positions.nbytes());
      return c;
    },
    .samples = [](Samples& s) {
      s.add(s.tensor({2, 3, 2, 2}), s.integers({2, 3, 2, 2}, 0, 12), Dims{3, 4});
      s.add(s.tensor({2, 3, 4}), s.integers({2, 3, 4}, 0, 3), Dims{3}).named("repeated positions");
      s.add(s.tensor({2, 4}), s.integers({2, 4}, -1, 9), Dims{6}).named("positions outside");
      s.invalid<ShapeError>("positions", s.tensor({2, 3, 4}), s.integers({2, 3, 3}, 0, 3), Dims{3});
    },
    .reference = [](const Tensor& y, const Tensor& positions, const Dims& size) {
      const Tensor x = empty(scatter_infer(y, positions, size)), from = y.contiguous(), at = positions.contiguous();
      std::fill_n(x.data<double>(), x.numel(), 0.0);
      const int64_t planes = planes_of(y, size.size()), out = y.numel() / std::max<int64_t>(1, planes), in = size.product();
      for (int64_t i = 0; i < y.numel(); ++i) {
        const int64_t p = at.data<int64_t>()[i];
        if (p >= 0 && p < in) x.data<double>()[i / out * in + p] += from.data<double>()[i];
      }
      return x;
    },
}};

TensorMeta gather_infer(const Tensor& x, const Tensor& positions) {
  check_floating("plane_gather", x);
  check<ShapeError>(x.dim() == positions.dim() && x.dim() >= 2, "plane_gather", "x is ", x, " but positions are ", positions);
  for (int64_t d = 0; d + 1 < x.dim(); ++d)
    check<ShapeError>(x.shape()[d] == positions.shape()[d], "plane_gather", "x is ", x, " but positions are ", positions);
  check<DTypeError>(positions.dtype() == DType::i64, "plane_gather", "positions must be i64, are ", positions);
  return like(x).with_shape(positions.shape());
}

const Op<Tensor(const Tensor&, const Tensor&)> plane_gather_op{{
    .schema = "plane_gather(Tensor x, Tensor positions) -> Tensor",
    .doc = "y[.., i] = x[.., positions[.., i]], and 0 for positions outside x's last dimension. The gradient of plane_scatter.",
    .infer = gather_infer,
    .kernels = {.cpu = [](Tensor& y, const Tensor& x, const Tensor& positions) {
      const Tensor at = positions.contiguous();
      dense(y, x, [&](const Tensor& from, Tensor& to) {
        cpu::plane_gather(planes_of(x, 1), x.shape().back(), positions.shape().back(), x.dtype(), from.raw_data(), at.data<int64_t>(), to.raw_data());
      });
    }},
    .saves = "positions",
    .backward = [](Backward& b, const Tensor& x, const Tensor& positions) {
      if (b.needs(0)) b.set(0, plane_scatter(b.gy(), positions, {x.shape().back()}));
    },
    .cost = [](const Tensor& x, const Tensor& positions) {
      return Cost{0, static_cast<double>(positions.numel() * (8 + 2 * size_of(x.dtype())))};
    },
    .samples = [](Samples& s) {
      s.add(s.tensor({2, 3, 5}), s.integers({2, 3, 4}, 0, 5));
      s.add(s.tensor({2, 5}), s.integers({2, 4}, -2, 8)).named("positions outside");
      s.invalid<ShapeError>("positions", s.tensor({2, 3, 5}), s.integers({2, 2, 4}, 0, 5));
    },
    .reference = [](const Tensor& x, const Tensor& positions) {
      const Tensor y = empty(gather_infer(x, positions)), from = x.contiguous(), at = positions.contiguous();
      const int64_t in = x.shape().back(), out = positions.shape().back();
      for (int64_t i = 0; i < y.numel(); ++i) {
        const int64_t p = at.data<int64_t>()[i];
        y.data<double>()[i] = p >= 0 && p < in ? from.data<double>()[i / out * in + p] : 0;
      }
      return y;
    },
}};

// ---- average pooling -----------------------------------------------------------------------------------------------

std::array<Taps, 2> mean_taps(const Dims& in, const Dims& kernel, const Dims& stride, const Dims& padding, bool ceil_mode, bool count_padding) {
  return both(kernel.size(), [&](int64_t d) { return pool_taps(in[d], kernel[d], stride[d], padding[d], 1, ceil_mode, true, count_padding); });
}

TensorMeta avg_pool_infer(const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding, bool ceil_mode, bool) {
  check_floating("avg_pool", x);
  const Dims in = spatial_of("avg_pool", x, kernel.size()), ones = Dims::filled(kernel.size(), 1);
  check_window("avg_pool", kernel, stride, padding, ones);
  return like(x).with_shape(with_spatial(x.shape(), pooled_sizes("avg_pool", in, kernel, stride, padding, ones, ceil_mode)));
}

TensorMeta avg_pool_backward_infer(const Tensor& g, const Dims& size, const Dims& kernel, const Dims& stride, const Dims& padding, bool ceil_mode,
                                   bool) {
  constexpr std::string_view op = "avg_pool_backward";
  check_floating(op, g);
  const Dims out = spatial_of(op, g, kernel.size()), ones = Dims::filled(kernel.size(), 1);
  check_window(op, kernel, stride, padding, ones);
  check_list(op, size, kernel.size(), 1, "size");
  check<ShapeError>(pooled_sizes(op, size, kernel, stride, padding, ones, ceil_mode) == out, op, "an input of ", size,
                    " does not give a result of ", out);
  return like(g).with_shape(with_spatial(g.shape(), size));
}

const Op<Tensor(const Tensor&, const Dims&, const Dims&, const Dims&, bool, bool)> avg_pool_op{{
    .schema = "avg_pool(Tensor x, int[] kernel, int[] stride, int[] padding, bool ceil_mode=false, bool count_include_pad=true) -> Tensor",
    .doc = "The mean of each window over the last one or two dimensions (as many as kernel has entries). Padding counts as zeros "
           "unless count_include_pad is false. avg_pool1d and avg_pool2d are the friendlier forms.",
    .infer = avg_pool_infer,
    .kernels = {.cpu = [](Tensor& y, const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding, bool ceil_mode, bool count) {
      resample(y, x, kernel.size(), mean_taps(spatial_of("avg_pool", x, kernel.size()), kernel, stride, padding, ceil_mode, count));
    }},
    .backward = [](Backward& b, const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding, bool ceil_mode, bool count) {
      b.set(0, avg_pool_backward(b.gy(), spatial_of("avg_pool", x, kernel.size()), kernel, stride, padding, ceil_mode, count));
    },
    .cost = [](const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding, bool ceil_mode, bool count) {
      return move_cost(x, avg_pool_infer(x, kernel, stride, padding, ceil_mode, count).shape, window_size(kernel));
    },
    .samples = [](Samples& s) {
      s.add(s.tensor({2, 3, 6, 7}), Dims{2, 3}, Dims{2, 2}, Dims{1, 0});
      s.add(s.tensor({2, 3, 8}), Dims{3}, Dims{2}, Dims{1}, true, false).named("one dimension, ceil, padding not counted");
      s.add(s.tensor({2, 3, 8}), Dims{3}, Dims{3}, Dims{1}, true, true).named("ceil, padding counted");
      s.add(transpose(s.tensor({2, 6, 3, 7}), 1, 2), Dims{3, 3}, Dims{1, 2}, Dims{1, 1}).named("strided");
      s.invalid<ShapeError>("does not fit", s.tensor({1, 2, 2}), Dims{3}, Dims{1}, Dims{0});
      s.invalid<ValueError>("half the kernel", s.tensor({1, 2, 4}), Dims{2}, Dims{1}, Dims{2});
    },
    .reference = [](const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding, bool ceil_mode, bool count) {
      const Shape result = avg_pool_infer(x, kernel, stride, padding, ceil_mode, count).shape;
      const Dims in = spatial_of("avg_pool", x, kernel.size());
      Dims out;
      for (int i = 0; i < kernel.size(); ++i) out.push_back(result[result.size() - kernel.size() + i]);
      return reference(x, result, in, out, false, [&](int64_t d, int64_t i, int64_t j) { return mean_weight(i, j, in[d], kernel[d], stride[d], padding[d], count); });
    },
}};

const Op<Tensor(const Tensor&, const Dims&, const Dims&, const Dims&, const Dims&, bool, bool)> avg_pool_backward_op{{
    .schema = "avg_pool_backward(Tensor g, int[] size, int[] kernel, int[] stride, int[] padding, bool ceil_mode=false, "
              "bool count_include_pad=true) -> Tensor",
    .doc = "Spreads each element of g evenly over its window of an input of spatial size `size`: the gradient of avg_pool.",
    .infer = avg_pool_backward_infer,
    .kernels = {.cpu = [](Tensor& x, const Tensor& g, const Dims& size, const Dims& kernel, const Dims& stride, const Dims& padding, bool ceil_mode,
                          bool count) { resample_transposed(x, g, kernel.size(), mean_taps(size, kernel, stride, padding, ceil_mode, count)); }},
    .backward = [](Backward& b, const Tensor&, const Dims&, const Dims& kernel, const Dims& stride, const Dims& padding, bool ceil_mode, bool count) {
      b.set(0, avg_pool(b.gy(), kernel, stride, padding, ceil_mode, count));
    },
    .cost = [](const Tensor& g, const Dims& size, const Dims& kernel, const Dims&, const Dims&, bool, bool) {
      return Cost{static_cast<double>(g.numel()) * window_size(kernel),
                  static_cast<double>(g.nbytes() + with_spatial(g.shape(), size).product() * size_of(g.dtype()))};
    },
    .samples = [](Samples& s) {
      s.add(s.tensor({2, 3, 4, 3}), Dims{6, 7}, Dims{2, 3}, Dims{2, 2}, Dims{1, 0});
      s.add(s.tensor({2, 3, 5}), Dims{8}, Dims{3}, Dims{2}, Dims{1}, true, false);
      s.invalid<ShapeError>("does not give", s.tensor({2, 3, 5}), Dims{20}, Dims{3}, Dims{2}, Dims{1});
    },
    .reference = [](const Tensor& g, const Dims& size, const Dims& kernel, const Dims& stride, const Dims& padding, bool ceil_mode, bool count) {
      const Shape result = avg_pool_backward_infer(g, size, kernel, stride, padding, ceil_mode, count).shape;
      return reference(g, result, size, spatial_of("avg_pool_backward", g, kernel.size()), true,
                       [&](int64_t d, int64_t i, int64_t j) { return mean_weight(i, j, size[d], kernel[d], stride[d], padding[d], count); });
    },
}};

// Checks of a linear map to or from a spatial size.
TensorMeta to_size(std::string_view op, const Tensor& x, const Dims& size) {
  check_floating(op, x);
  for (int64_t v : spatial_of(op, x, size.size())) check<ShapeError>(v > 0, op, "the spatial size of ", x, " is empty");
  check_list(op, size, size.size(), 1, "size");
  return like(x).with_shape(with_spatial(x.shape(), size));
}

std::array<Taps, 2> adaptive_both(const Dims& in, const Dims& out) {
  return both(in.size(), [&](int64_t d) { return adaptive_taps(in[d], out[d]); });
}

const Op<Tensor(const Tensor&, const Dims&)> adaptive_avg_pool_op{{
    .schema = "adaptive_avg_pool(Tensor x, int[] output_size) -> Tensor",
    .doc = "Means of windows that cover the last one or two dimensions so that the result has output_size; output i covers inputs "
           "floor(i in / out) to ceil((i + 1) in / out) - 1.",
    .infer = [](const Tensor& x, const Dims& output_size) { return to_size("adaptive_avg_pool", x, output_size); },
    .kernels = {.cpu = [](Tensor& y, const Tensor& x, const Dims& out) {
      resample(y, x, out.size(), adaptive_both(spatial_of("adaptive_avg_pool", x, out.size()), out));
    }},
    .backward = [](Backward& b, const Tensor& x, const Dims& out) {
      b.set(0, adaptive_avg_pool_backward(b.gy(), spatial_of("adaptive_avg_pool", x, out.size())));
    },
    .cost = [](const Tensor& x, const Dims& out) { return move_cost(x, with_spatial(x.shape(), out), 1); },
    .samples = [](Samples& s) {
      s.add(s.tensor({2, 3, 5, 7}), Dims{2, 3});
      s.add(s.tensor({2, 3, 5}), Dims{8}).named("larger");
      s.add(s.tensor({3, 4, 6}), Dims{1, 1}).named("global");
      s.invalid<ValueError>("size", s.tensor({2, 3, 5}), Dims{0});
      s.invalid<ShapeError>("dimensions", s.tensor({5}), Dims{2});
    },
    .reference = [](const Tensor& x, const Dims& out) {
      const Dims in = spatial_of("adaptive_avg_pool", x, out.size());
      return reference(x, with_spatial(x.shape(), out), in, out, false, [&](int64_t d, int64_t i, int64_t j) { return adaptive_weight(i, j, in[d], out[d]); });
    },
}};

const Op<Tensor(const Tensor&, const Dims&)> adaptive_avg_pool_backward_op{{
    .schema = "adaptive_avg_pool_backward(Tensor g, int[] size) -> Tensor",
    .doc = "Spreads each element of g evenly over its window of an input of spatial size `size`: the gradient of adaptive_avg_pool.",
    .infer = [](const Tensor& g, const Dims& size) { return to_size("adaptive_avg_pool_backward", g, size); },
    .kernels = {.cpu = [](Tensor& x, const Tensor& g, const Dims& size) {
      resample_transposed(x, g, size.size(), adaptive_both(size, spatial_of("adaptive_avg_pool_backward", g, size.size())));
    }},
    .backward = [](Backward& b, const Tensor& g, const Dims& size) {
      b.set(0, adaptive_avg_pool(b.gy(), spatial_of("adaptive_avg_pool_backward", g, size.size())));
    },
    .cost = [](const Tensor& g, const Dims& size) { return move_cost(g, with_spatial(g.shape(), size), 1); },
    .samples = [](Samples& s) {
      s.add(s.tensor({2, 3, 2, 3}), Dims{5, 7});
      s.add(s.tensor({2, 3, 8}), Dims{5});
    },
    .reference = [](const Tensor& g, const Dims& size) {
      const Dims out = spatial_of("adaptive_avg_pool_backward", g, size.size());
      return reference(g, with_spatial(g.shape(), size), size, out, true, [&](int64_t d, int64_t i, int64_t j) { return adaptive_weight(i, j, size[d], out[d]); });
    },
}};

// ---- resizing ------------------------------------------------------------------------------------------------------

bool is_nearest(std::string_view op, const std::string& mode) {
  check(mode == "nearest" || mode == "linear", op, "mode must be nearest or linear, got \"", mode, "\"");
  return mode == "nearest";
}

std::array<Taps, 2> resize_both(const Dims& in, const Dims& out, bool nearest, bool align_corners, double scale) {
  return both(in.size(), [&](int64_t d) { return resize_taps(in[d], out[d], nearest, align_corners, scale); });
}

const Op<Tensor(const Tensor&, const Dims&, const std::string&, bool, double)> resize_op{{
    .schema = "resize(Tensor x, int[] size, str mode=\"nearest\", bool align_corners=false, float scale=0.0) -> Tensor",
    .doc = "The last one or two dimensions resized to `size`: nearest, or linear in each of them. scale is the step in the input for "
           "one in the result; 0 takes it from the sizes. interpolate is the friendlier form.",
    .infer = [](const Tensor& x, const Dims& size, const std::string& mode, bool, double scale) {
      is_nearest("resize", mode);
      check(scale >= 0, "resize", "scale must not be negative, got ", scale);
      return to_size("resize", x, size);
    },
    .kernels = {.cpu = [](Tensor& y, const Tensor& x, const Dims& size, const std::string& mode, bool align, double scale) {
      resample(y, x, size.size(), resize_both(spatial_of("resize", x, size.size()), size, mode == "nearest", align, scale));
    }},
    .backward = [](Backward& b, const Tensor& x, const Dims& size, const std::string& mode, bool align, double scale) {
      b.set(0, resize_backward(b.gy(), spatial_of("resize", x, size.size()), mode, align, scale));
    },
    .cost = [](const Tensor& x, const Dims& size, const std::string& mode, bool, double) {
      return move_cost(x, with_spatial(x.shape(), size), mode == "nearest" ? 0 : 3.0 * size.size());
    },
    .samples = [](Samples& s) {
      s.add(s.tensor({2, 3, 4, 5}), Dims{7, 3});
      s.add(s.tensor({2, 3, 4, 5}), Dims{7, 3}, "linear").named("linear");
      s.add(s.tensor({2, 3, 4, 5}), Dims{7, 3}, "linear", true).named("align corners");
      s.add(s.tensor({2, 3, 4}), Dims{9}, "linear", false, 0.45).named("given scale");
      s.add(transpose(s.tensor({2, 4, 3, 5}), 1, 2), Dims{1, 1}, "linear", true).named("to one, strided");
      s.invalid<ValueError>("mode", s.tensor({2, 3, 4}), Dims{9}, "cubic");
      s.invalid<ValueError>("size", s.tensor({2, 3, 4}), Dims{0});
      s.invalid<ShapeError>("dimensions", s.tensor({4}), Dims{2});
    },
    .reference = [](const Tensor& x, const Dims& size, const std::string& mode, bool align, double scale) {
      const Dims in = spatial_of("resize", x, size.size());
      return reference(x, with_spatial(x.shape(), size), in, size, false, [&](int64_t d, int64_t i, int64_t j) {
        return resize_weight(i, j, in[d], size[d], mode == "nearest", align, scale);
      });
    },
}};

const Op<Tensor(const Tensor&, const Dims&, const std::string&, bool, double)> resize_backward_op{{
    .schema = "resize_backward(Tensor g, int[] size, str mode=\"nearest\", bool align_corners=false, float scale=0.0) -> Tensor",
    .doc = "The gradient of resize: each element of g added to the inputs it came from, by their weights. `size` is the input's.",
    .infer = [](const Tensor& g, const Dims& size, const std::string& mode, bool, double scale) {
      is_nearest("resize_backward", mode);
      check(scale >= 0, "resize_backward", "scale must not be negative, got ", scale);
      return to_size("resize_backward", g, size);
    },
    .kernels = {.cpu = [](Tensor& x, const Tensor& g, const Dims& size, const std::string& mode, bool align, double scale) {
      resample_transposed(x, g, size.size(), resize_both(size, spatial_of("resize_backward", g, size.size()), mode == "nearest", align, scale));
    }},
    .backward = [](Backward& b, const Tensor& g, const Dims& size, const std::string& mode, bool align, double scale) {
      b.set(0, resize(b.gy(), spatial_of("resize_backward", g, size.size()), mode, align, scale));
    },
    .cost = [](const Tensor& g, const Dims& size, const std::string&, bool, double) { return move_cost(g, with_spatial(g.shape(), size), 3.0); },
    .samples = [](Samples& s) {
      s.add(s.tensor({2, 3, 7, 3}), Dims{4, 5});
      s.add(s.tensor({2, 3, 7, 3}), Dims{4, 5}, "linear");
      s.add(s.tensor({2, 3, 9}), Dims{4}, "linear", true);
      s.invalid<ValueError>("mode", s.tensor({2, 3, 4}), Dims{9}, "cubic");
    },
    .reference = [](const Tensor& g, const Dims& size, const std::string& mode, bool align, double scale) {
      const Dims out = spatial_of("resize_backward", g, size.size());
      return reference(g, with_spatial(g.shape(), size), size, out, true, [&](int64_t d, int64_t i, int64_t j) {
        return resize_weight(i, j, size[d], out[d], mode == "nearest", align, scale);
      });
    },
}};

// ---- the friendlier forms ------------------------------------------------------------------------------------------

Dims spread(const Dims& d, int spatial) { return d.size() == 1 ? Dims::filled(spatial, d[0]) : d; }

void check_rank(std::string_view op, const Tensor& x, int spatial) {
  check<ShapeError>(x.dim() == spatial + 2 || x.dim() == spatial + 1, op, "x needs ", spatial + 2, " dimensions (", spatial + 1,
                    " without a batch), is ", x);
}

Tensor max_pool_nd(std::string_view op, int spatial, const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding,
                   const Dims& dilation, bool ceil_mode) {
  check_rank(op, x, spatial);
  const Dims k = spread(kernel, spatial);
  check(k.size() == spatial, op, "kernel ", kernel, " needs ", spatial, " entries");
  return std::get<0>(max_pool(x, k, stride.empty() ? k : spread(stride, spatial), spread(padding, spatial), spread(dilation, spatial), ceil_mode));
}
Tensor avg_pool_nd(std::string_view op, int spatial, const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding,
                   bool ceil_mode, bool count_include_pad) {
  check_rank(op, x, spatial);
  const Dims k = spread(kernel, spatial);
  check(k.size() == spatial, op, "kernel ", kernel, " needs ", spatial, " entries");
  return avg_pool(x, k, stride.empty() ? k : spread(stride, spatial), spread(padding, spatial), ceil_mode, count_include_pad);
}
Dims adaptive_size(std::string_view op, int spatial, const Tensor& x, const Dims& output_size) {
  check_rank(op, x, spatial);
  const Dims out = spread(output_size, spatial);
  check(out.size() == spatial, op, "output_size ", output_size, " needs ", spatial, " entries");
  return out;
}

using MaxSignature = Tensor(const Tensor&, const Dims&, const Dims&, const Dims&, const Dims&, bool);
using AvgSignature = Tensor(const Tensor&, const Dims&, const Dims&, const Dims&, bool, bool);
using SizeSignature = Tensor(const Tensor&, const Dims&);

const Op<MaxSignature> max_pool1d_op{{
    .schema = "max_pool1d(Tensor x, int[] kernel, int[] stride=[], int[] padding=[0], int[] dilation=[1], bool ceil_mode=false) -> Tensor",
    .doc = "The largest element of each window along the last dimension of [n, c, length] or [c, length]. The stride is the kernel's "
           "size unless given; padding, at most half the kernel, never wins.",
    .composed = [](const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding, const Dims& dilation, bool ceil_mode) {
      return max_pool_nd("max_pool1d", 1, x, kernel, stride, padding, dilation, ceil_mode);
    },
    .samples = [](Samples& s) {
      s.add(s.distinct({2, 3, 7}), Dims{2});
      s.add(s.distinct({3, 7}), Dims{3}, Dims{1}, Dims{1}, Dims{2}, true);
      s.invalid<ShapeError>("dimensions", s.tensor({7}), Dims{2});
    },
}};

const Op<MaxSignature> max_pool2d_op{{
    .schema = "max_pool2d(Tensor x, int[] kernel, int[] stride=[], int[] padding=[0], int[] dilation=[1], bool ceil_mode=false) -> Tensor",
    .doc = "The largest element of each window over the last two dimensions of [n, c, h, w] or [c, h, w]. The stride is the kernel's "
           "size unless given; padding, at most half the kernel, never wins. A list with one entry serves both dimensions.",
    .example = "assert(max_pool2d(ones({2, 3, 8, 6}), {2}).shape() == Shape({2, 3, 4, 3}));",
    .composed = [](const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding, const Dims& dilation, bool ceil_mode) {
      return max_pool_nd("max_pool2d", 2, x, kernel, stride, padding, dilation, ceil_mode);
    },
    .samples = [](Samples& s) {
      s.add(s.distinct({2, 3, 6, 6}), Dims{2});
      s.add(s.distinct({3, 7, 6}), Dims{3, 2}, Dims{2}, Dims{1}, Dims{1}, true);
      s.invalid<ShapeError>("dimensions", s.tensor({7, 7}), Dims{2});
      s.invalid<ValueError>("entries", s.tensor({1, 1, 7, 7}), Dims{2, 2, 2});
    },
}};

const Op<AvgSignature> avg_pool1d_op{{
    .schema = "avg_pool1d(Tensor x, int[] kernel, int[] stride=[], int[] padding=[0], bool ceil_mode=false, bool count_include_pad=true) -> Tensor",
    .doc = "The mean of each window along the last dimension of [n, c, length] or [c, length]. The stride is the kernel's size unless given.",
    .composed = [](const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding, bool ceil_mode, bool count_include_pad) {
      return avg_pool_nd("avg_pool1d", 1, x, kernel, stride, padding, ceil_mode, count_include_pad);
    },
    .samples = [](Samples& s) {
      s.add(s.tensor({2, 3, 7}), Dims{2});
      s.add(s.tensor({3, 7}), Dims{3}, Dims{2}, Dims{1}, true, false);
      s.invalid<ShapeError>("dimensions", s.tensor({7}), Dims{2});
    },
}};

const Op<AvgSignature> avg_pool2d_op{{
    .schema = "avg_pool2d(Tensor x, int[] kernel, int[] stride=[], int[] padding=[0], bool ceil_mode=false, bool count_include_pad=true) -> Tensor",
    .doc = "The mean of each window over the last two dimensions of [n, c, h, w] or [c, h, w]. The stride is the kernel's size unless "
           "given. A list with one entry serves both dimensions.",
    .example = "assert(avg_pool2d(ones({2, 3, 8, 6}), {2}).shape() == Shape({2, 3, 4, 3}));",
    .composed = [](const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding, bool ceil_mode, bool count_include_pad) {
      return avg_pool_nd("avg_pool2d", 2, x, kernel, stride, padding, ceil_mode, count_include_pad);
    },
    .samples = [](Samples& s) {
      s.add(s.tensor({2, 3, 6, 6}), Dims{2});
      s.add(s.tensor({3, 7, 6}), Dims{3, 2}, Dims{2}, Dims{1}, true, false);
      s.invalid<ShapeError>("dimensions", s.tensor({7, 7}), Dims{2});
    },
}};

const Op<SizeSignature> adaptive_avg_pool1d_op{{
    .schema = "adaptive_avg_pool1d(Tensor x, int[] output_size) -> Tensor",
    .doc = "Means along the last dimension of [n, c, length] or [c, length], of windows such that the result has output_size.",
    .composed = [](const Tensor& x, const Dims& out) { return adaptive_avg_pool(x, adaptive_size("adaptive_avg_pool1d", 1, x, out)); },
    .samples = [](Samples& s) {
      s.add(s.tensor({2, 3, 7}), Dims{3});
      s.invalid<ShapeError>("dimensions", s.tensor({7}), Dims{3});
    },
}};

const Op<SizeSignature> adaptive_avg_pool2d_op{{
    .schema = "adaptive_avg_pool2d(Tensor x, int[] output_size) -> Tensor",
    .doc = "Means over the last two dimensions of [n, c, h, w] or [c, h, w], of windows such that the result has output_size.",
    .example = "assert(adaptive_avg_pool2d(ones({2, 3, 9, 7}), {1}).shape() == Shape({2, 3, 1, 1}));",
    .composed = [](const Tensor& x, const Dims& out) { return adaptive_avg_pool(x, adaptive_size("adaptive_avg_pool2d", 2, x, out)); },
    .samples = [](Samples& s) {
      s.add(s.tensor({2, 3, 7, 5}), Dims{3, 2});
      s.invalid<ValueError>("entries", s.tensor({2, 3, 7, 5}), Dims{3, 2, 1});
    },
}};

const Op<SizeSignature> adaptive_max_pool1d_op{{
    .schema = "adaptive_max_pool1d(Tensor x, int[] output_size) -> Tensor",
    .doc = "Largest elements along the last dimension of [n, c, length] or [c, length], of windows such that the result has output_size.",
    .composed = [](const Tensor& x, const Dims& out) { return std::get<0>(adaptive_max_pool(x, adaptive_size("adaptive_max_pool1d", 1, x, out))); },
    .samples = [](Samples& s) {
      s.add(s.distinct({2, 3, 7}), Dims{3});
      s.invalid<ShapeError>("dimensions", s.tensor({7}), Dims{3});
    },
}};

const Op<SizeSignature> adaptive_max_pool2d_op{{
    .schema = "adaptive_max_pool2d(Tensor x, int[] output_size) -> Tensor",
    .doc = "Largest elements over the last two dimensions of [n, c, h, w] or [c, h, w], of windows such that the result has output_size.",
    .composed = [](const Tensor& x, const Dims& out) { return std::get<0>(adaptive_max_pool(x, adaptive_size("adaptive_max_pool2d", 2, x, out))); },
    .samples = [](Samples& s) {
      s.add(s.distinct({2, 3, 7, 5}), Dims{3, 2});
      s.invalid<ShapeError>("dimensions", s.tensor({7, 5}), Dims{3});
    },
}};

const Op<Tensor(const Tensor&, const std::optional<Dims>&, std::optional<double>, const std::string&, bool)> interpolate_op{{
    .schema = "interpolate(Tensor x, int[]? size=None, float? scale_factor=None, str mode=\"nearest\", bool align_corners=false) -> Tensor",
    .doc = "Resizes [n, c, length] or [n, c, h, w] to `size`, or to floor(scale_factor * size of x); exactly one of them. Modes: "
           "nearest; linear for one spatial dimension, bilinear for two. With align_corners the corner elements map to each other, "
           "else the outer corners of the image do.",
    .example = "assert(interpolate(ones({1, 3, 4, 5}), std::nullopt, 2.0, \"bilinear\").shape() == Shape({1, 3, 8, 10}));",
    .composed = [](const Tensor& x, const std::optional<Dims>& size, std::optional<double> scale_factor, const std::string& mode, bool align_corners) {
      constexpr std::string_view op = "interpolate";
      check<ShapeError>(x.dim() == 3 || x.dim() == 4, op, "x needs 3 or 4 dimensions, is ", x);
      const int spatial = static_cast<int>(x.dim()) - 2;
      const bool linear = mode == (spatial == 1 ? "linear" : "bilinear");
      check(linear || mode == "nearest", op, "mode must be nearest or ", spatial == 1 ? "linear" : "bilinear", " for ", x, ", got \"", mode, "\"");
      check(linear || !align_corners, op, "align_corners needs a linear mode");
      check(size.has_value() != scale_factor.has_value(), op, "needs either size or scale_factor");
      if (size) return resize(x, spread(*size, spatial), linear ? "linear" : "nearest", align_corners, 0);
      check(*scale_factor > 0 && *scale_factor < 1e6, op, "scale_factor must be positive, got ", *scale_factor);
      Dims out;
      for (int i = 0; i < spatial; ++i)
        out.push_back(static_cast<int64_t>(std::floor(static_cast<double>(x.shape()[2 + i]) * *scale_factor)));
      return resize(x, out, linear ? "linear" : "nearest", align_corners, 1 / *scale_factor);
    },
    .samples = [](Samples& s) {
      s.add(s.tensor({2, 3, 4, 5}), Dims{8, 3});
      s.add(s.tensor({2, 3, 4, 5}), std::nullopt, 2.0, "bilinear").named("bilinear");
      s.add(s.tensor({2, 3, 5}), std::nullopt, 1.7, "linear", true).named("linear, align corners");
      s.invalid<ValueError>("either size", s.tensor({2, 3, 4, 5}));
      s.invalid<ValueError>("mode", s.tensor({2, 3, 4, 5}), Dims{8}, std::nullopt, "linear");
      s.invalid<ShapeError>("dimensions", s.tensor({4, 5}), Dims{8});
      s.invalid<ValueError>("scale_factor", s.tensor({2, 3, 4, 5}), std::nullopt, -1.0);
    },
}};

}  // namespace

std::tuple<Tensor, Tensor> max_pool(const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding, const Dims& dilation,
                                    bool ceil_mode) {
  return max_pool_op(x, kernel, stride, padding, dilation, ceil_mode);
}
std::tuple<Tensor, Tensor> adaptive_max_pool(const Tensor& x, const Dims& output_size) { return adaptive_max_pool_op(x, output_size); }
Tensor plane_scatter(const Tensor& y, const Tensor& positions, const Dims& size) { return plane_scatter_op(y, positions, size); }
Tensor plane_gather(const Tensor& x, const Tensor& positions) { return plane_gather_op(x, positions); }
Tensor avg_pool(const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding, bool ceil_mode, bool count_include_pad) {
  return avg_pool_op(x, kernel, stride, padding, ceil_mode, count_include_pad);
}
Tensor avg_pool_backward(const Tensor& g, const Dims& size, const Dims& kernel, const Dims& stride, const Dims& padding, bool ceil_mode,
                         bool count_include_pad) {
  return avg_pool_backward_op(g, size, kernel, stride, padding, ceil_mode, count_include_pad);
}
Tensor adaptive_avg_pool(const Tensor& x, const Dims& output_size) { return adaptive_avg_pool_op(x, output_size); }
Tensor adaptive_avg_pool_backward(const Tensor& g, const Dims& size) { return adaptive_avg_pool_backward_op(g, size); }
Tensor resize(const Tensor& x, const Dims& size, const std::string& mode, bool align_corners, double scale) {
  return resize_op(x, size, mode, align_corners, scale);
}
Tensor resize_backward(const Tensor& g, const Dims& size, const std::string& mode, bool align_corners, double scale) {
  return resize_backward_op(g, size, mode, align_corners, scale);
}

Tensor max_pool1d(const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding, const Dims& dilation, bool ceil_mode) {
  return max_pool1d_op(x, kernel, stride, padding, dilation, ceil_mode);
}
Tensor max_pool2d(const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding, const Dims& dilation, bool ceil_mode) {
  return max_pool2d_op(x, kernel, stride, padding, dilation, ceil_mode);
}
Tensor avg_pool1d(const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding, bool ceil_mode, bool count_include_pad) {
  return avg_pool1d_op(x, kernel, stride, padding, ceil_mode, count_include_pad);
}
Tensor avg_pool2d(const Tensor& x, const Dims& kernel, const Dims& stride, const Dims& padding, bool ceil_mode, bool count_include_pad) {
  return avg_pool2d_op(x, kernel, stride, padding, ceil_mode, count_include_pad);
}
Tensor adaptive_avg_pool1d(const Tensor& x, const Dims& output_size) { return adaptive_avg_pool1d_op(x, output_size); }
Tensor adaptive_avg_pool2d(const Tensor& x, const Dims& output_size) { return adaptive_avg_pool2d_op(x, output_size); }
Tensor adaptive_max_pool1d(const Tensor& x, const Dims& output_size) { return adaptive_max_pool1d_op(x, output_size); }
Tensor adaptive_max_pool2d(const Tensor& x, const Dims& output_size) { return adaptive_max_pool2d_op(x, output_size); }
Tensor interpolate(const Tensor& x, const std::optional<Dims>& size, std::optional<double> scale_factor, const std::string& mode,
                   bool align_corners) {
  return interpolate_op(x, size, scale_factor, mode, align_corners);
}

}  // namespace strata
