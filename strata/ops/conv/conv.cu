// Convolutions on a CUDA device as matrix products over unrolled windows, a bounded number of them at a time: images
// side by side, or where one image is too much, rows of its result.

#include "strata/ops/matmul/gemm_cuda.h"
#include "strata/ops/conv/conv.h"
#include "strata/ops/conv/conv_cuda.cuh"

namespace strata {
namespace conv_cuda {
namespace {

constexpr int64_t kMostWorkspace = int64_t{256} << 20;  // bytes of unrolled windows

int64_t taps(const ConvSizes& s) {
  return s.kh * s.kw;
}
int64_t padded(int64_t n) {
  return (n + 7) / 8 * 8;  // rows of matrices start at multiples of 16 bytes
}

// to[(c kh + a) kw + b, image, (i - first_row, j)] = x[image, c, i sh + a dh - ph, j sw + b dw - pw], zeros outside x,
// for output rows i from first_row on.
struct Unroll {
  ConvSizes s;
  int64_t images, first_row, rows;
  int64_t row_stride, image_stride;
  Divisor by_image, by_row;
  Unroll(const ConvSizes& sizes, int64_t n, int64_t first, int64_t count, int64_t row, int64_t image)
      : s(sizes),
        images(n),
        first_row(first),
        rows(count),
        row_stride(row),
        image_stride(image),
        by_image(count * sizes.ow),
        by_row(sizes.ow) {}
};

template <class B>
__global__ void __launch_bounds__(kThreads) unroll_kernel(Unroll u, const B* x, B* to) {
  const ConvSizes& s = u.s;
  const int64_t total = u.images * u.rows * s.ow, step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t row = blockIdx.y; row < s.ic * s.kh * s.kw; row += gridDim.y) {
    const int64_t c = row / (s.kh * s.kw), tap = row - c * s.kh * s.kw, a = tap / s.kw, b = tap - a * s.kw;
    for (int64_t e = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; e < total; e += step) {
      int64_t p, j;
      const int64_t n = u.by_image.split(e, p), i = u.by_row.split(p, j) + u.first_row;
      const int64_t iy = i * s.sh + a * s.dh - s.ph, ix = j * s.sw + b * s.dw - s.pw;
      const bool inside = iy >= 0 && iy < s.ih && ix >= 0 && ix < s.iw;
      to[row * u.row_stride + n * u.image_stride + p] = inside ? x[((n * s.ic + c) * s.ih + iy) * s.iw + ix] : B(0);
    }
  }
}

// The same in 32-bit numbers, V columns of a row at once.
template <class B, int V>
__global__ void __launch_bounds__(kThreads)
    unroll_narrow_kernel(Unroll u, FastDivisor by_image, FastDivisor by_row, int total, const B* x, B* to) {
  const ConvSizes& s = u.s;
  const int height = static_cast<int>(s.ih), width = static_cast<int>(s.iw), kw = static_cast<int>(s.kw);
  const int taps = static_cast<int>(s.kh) * kw, step = static_cast<int>(s.sw);
  for (int row = static_cast<int>(blockIdx.y); row < static_cast<int>(s.ic) * taps;
       row += static_cast<int>(gridDim.y)) {
    const int c = row / taps, tap = row - c * taps, a = tap / kw, b = tap - a * kw;
    const int down = a * static_cast<int>(s.dh) - static_cast<int>(s.ph) +
                     static_cast<int>(u.first_row) * static_cast<int>(s.sh),
              right = b * static_cast<int>(s.dw) - static_cast<int>(s.pw);
    const B* const from = x + static_cast<int64_t>(c) * height * width;
    B* const row_to = to + row * u.row_stride;
    for (int e = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x); e < total;
         e += static_cast<int>(gridDim.x) * kThreads) {
      const auto n = by_image.divide(static_cast<uint32_t>(e)), p = static_cast<uint32_t>(e) - n * by_image.d;
      const auto i = by_row.divide(p), j = (p - i * by_row.d) * V;
      const int iy = static_cast<int>(i) * static_cast<int>(s.sh) + down, ix = static_cast<int>(j) * step + right;
      const B* const line = from + (static_cast<int64_t>(n) * s.ic * height + iy) * width;
      const bool inside = static_cast<unsigned>(iy) < static_cast<unsigned>(height);
      Vec<B, V> v;
#pragma unroll
      for (int k = 0; k < V; ++k) {
        const int at = ix + k * step;
        v.v[k] = inside && static_cast<unsigned>(at) < static_cast<unsigned>(width) ? line[at] : B(0);
      }
      store_vec(row_to + n * u.image_stride + p * V, v);
    }
  }
}

constexpr int64_t kMost = int64_t{1} << 30;
// Whether 32 bits hold every coordinate.
bool is_narrow(const ConvSizes& s) {
  return s.ih + 2 * s.ph < kMost && s.iw + 2 * s.pw < kMost && s.oh * s.sh < kMost && s.ow * s.sw < kMost &&
         s.kh * s.dh < kMost && s.kw * s.dw < kMost;
}

void unroll(const Unroll& u, DType t, const void* x, void* to) {
  const ConvSizes& s = u.s;
  const int64_t rows = s.ic * taps(s), total = u.images * u.rows * s.ow;
  if (rows * total == 0) return;
  const auto grid = [&](int64_t threads) {
    return dim3(static_cast<unsigned>(std::min<int64_t>((threads + kThreads - 1) / kThreads, 1 << 16)),
                static_cast<unsigned>(std::min<int64_t>(rows, 65535)));
  };
  const bool narrow = total < kMost && rows < kMost && is_narrow(s);
  dispatch_bytes(t, [&]<class B>() {
    const auto* from = static_cast<const B*>(x);
    auto* at = static_cast<B*>(to);
    const auto run = [&](auto columns) {
      constexpr int V = decltype(columns)::value;
      unroll_narrow_kernel<B, V><<<grid(total / V), kThreads, 0, stream()>>>(
          u, FastDivisor(static_cast<uint32_t>(u.rows * s.ow / V)), FastDivisor(static_cast<uint32_t>(s.ow / V)),
          static_cast<int>(total / V), from, at);
    };
    if (!narrow) {
      unroll_kernel<B><<<grid(total), kThreads, 0, stream()>>>(u, from, at);
    } else if (s.ow % 4 == 0 && u.image_stride % 4 == 0 && u.row_stride % 4 == 0) {
      run(std::integral_constant<int, 4>());
    } else if (s.ow % 2 == 0 && u.image_stride % 2 == 0 && u.row_stride % 2 == 0) {
      run(std::integral_constant<int, 2>());
    } else {
      run(std::integral_constant<int, 1>());
    }
  });
}

// x[n, c, h, w] = bias[c] + the sum of its places in windows [image, (c kh + a) kw + b, (i - first_row, j)], for rows h
// from x_row on.
struct Fold {
  ConvSizes s;
  int64_t images, x_row, x_rows, first_row, row_stride, image_stride;
  Divisor by_row, by_column, by_channel, stride_h, stride_w;
};

template <class T>
__global__ void __launch_bounds__(kThreads) fold_kernel(Fold f, const compute_t<T>* windows, const T* bias, T* x) {
  using C = compute_t<T>;
  const ConvSizes& s = f.s;
  const int64_t total = f.images * s.ic * f.x_rows * s.iw, step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t e = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; e < total; e += step) {
    int64_t w, h, c;
    const int64_t plane = f.by_row.split(f.by_column.split(e, w), h), n = f.by_channel.split(plane, c);
    h += f.x_row;
    C sum = bias != nullptr ? widen(bias[c]) : C(0);
    const C* from = windows + n * f.image_stride + c * s.kh * s.kw * f.row_stride;
    for (int64_t a = 0; a < s.kh; ++a) {
      const int64_t y = h + s.ph - a * s.dh;
      if (y < 0) break;
      int64_t rest;
      const int64_t i = f.stride_h.split(y, rest);
      if (rest != 0 || i >= s.oh) continue;
      for (int64_t b = 0; b < s.kw; ++b) {
        const int64_t z = w + s.pw - b * s.dw;
        if (z < 0) break;
        const int64_t j = f.stride_w.split(z, rest);
        if (rest == 0 && j < s.ow) sum += from[(a * s.kw + b) * f.row_stride + (i - f.first_row) * s.ow + j];
      }
    }
    x[((n * s.ic + c) * s.ih + h) * s.iw + w] = narrow<T>(sum);
  }
}

// The same in 32-bit numbers.
template <class T>
__global__ void __launch_bounds__(kThreads)
    fold_narrow_kernel(Fold f, int planes, int plane, const compute_t<T>* windows, const T* bias, T* x) {
  using C = compute_t<T>;
  const ConvSizes& s = f.s;
  const int width = static_cast<int>(s.iw), kh = static_cast<int>(s.kh), kw = static_cast<int>(s.kw);
  const int oh = static_cast<int>(s.oh), ow = static_cast<int>(s.ow), sh = static_cast<int>(s.sh),
            sw = static_cast<int>(s.sw), dh = static_cast<int>(s.dh), dw = static_cast<int>(s.dw);
  for (int q = static_cast<int>(blockIdx.y); q < planes; q += static_cast<int>(gridDim.y)) {
    const int n = static_cast<int>(f.by_channel.fast.divide(static_cast<uint32_t>(q))),
              c = q - n * static_cast<int>(s.ic);
    const C* const from = windows + n * f.image_stride + static_cast<int64_t>(c) * kh * kw * f.row_stride;
    const C start = bias != nullptr ? widen(bias[c]) : C(0);
    for (int e = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x); e < plane;
         e += static_cast<int>(gridDim.x) * kThreads) {
      const int row = static_cast<int>(f.by_column.fast.divide(static_cast<uint32_t>(e))), w = e - row * width;
      const int h = row + static_cast<int>(f.x_row);
      C sum = start;
      for (int a = 0; a < kh; ++a) {
        const int y = h + static_cast<int>(s.ph) - a * dh;
        if (y < 0) break;
        const int i = sh == 1 ? y : static_cast<int>(f.stride_h.fast.divide(static_cast<uint32_t>(y)));
        if (i * sh != y || i >= oh) continue;
        const C* line = from + a * kw * f.row_stride + (i - static_cast<int>(f.first_row)) * ow;
        for (int b = 0; b < kw; ++b, line += f.row_stride) {
          const int z = w + static_cast<int>(s.pw) - b * dw;
          if (z < 0) break;
          const int j = sw == 1 ? z : static_cast<int>(f.stride_w.fast.divide(static_cast<uint32_t>(z)));
          if (j * sw == z && j < ow) sum += line[j];
        }
      }
      x[(static_cast<int64_t>(q) * s.ih + h) * width + w] = narrow<T>(sum);
    }
  }
}

// to[n, channel, pixel] = bias[channel], V pixels of a plane at once; `by_plane` counts such pieces.
template <class T, int V>
__global__ void __launch_bounds__(kThreads)
    bias_kernel(int64_t pieces, Divisor by_plane, Divisor by_channel, const T* bias, T* to) {
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t e = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; e < pieces; e += step) {
    int64_t p, c;
    by_channel.split(by_plane.split(e, p), c);
    Vec<T, V> v;
#pragma unroll
    for (int i = 0; i < V; ++i) v.v[i] = bias[c];
    store_vec(to + e * V, v);
  }
}
template <class T>
__global__ void __launch_bounds__(kThreads) narrow_kernel(int64_t n, const float* from, T* to) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < n) to[i] = narrow<T>(from[i]);
}

const void* at(const void* p, int64_t elements, DType t) {
  return static_cast<const char*>(p) + elements * size_of(t);
}
void* at(void* p, int64_t elements, DType t) {
  return static_cast<char*>(p) + elements * size_of(t);
}

// How the work is cut: some images, or some rows of one.
struct Cut {
  int64_t images, rows;
};
// For windows of `row_elements` for each row of the result, `rows` of them in an image.
Cut cut_for(int64_t images, int64_t rows, int64_t row_elements, int64_t element_bytes) {
  const int64_t most = std::max<int64_t>(1, kMostWorkspace / std::max<int64_t>(1, row_elements * element_bytes));
  if (most < rows) return {1, most};
  return {std::min(images, most / std::max<int64_t>(1, rows)), rows};
}

void product(Gemm g, Device device) {
  g.tf32 = allow_tf32_convolutions();
  cuda::gemm(g, device);
}

// y [n, groups, ocg, P] = w [groups, ocg, depth] times windows [n, groups, depth, P].
void forward(const ConvSizes& s, DType t, Device device, const void* x, const void* w, const void* bias, void* y) {
  const int64_t icg = s.ic / s.groups, ocg = s.oc / s.groups, depth = icg * taps(s), plane = s.oh * s.ow;
  if (bias != nullptr) fill(t, bias, s.n, s.oc, plane, y);
  const bool direct = is_pointwise(s);
  const Cut cut = direct ? Cut{s.n, s.oh} : cut_for(s.n, s.oh, s.ic * taps(s) * s.ow, size_of(t));
  Tensor windows;
  if (!direct) windows = workspace(t, device, cut.images * s.ic * taps(s) * padded(cut.rows * s.ow));
  for (int64_t n = 0; n < s.n; n += cut.images) {
    for (int64_t row = 0; row < s.oh; row += cut.rows) {
      const int64_t images = std::min(cut.images, s.n - n), rows = std::min(cut.rows, s.oh - row);
      const int64_t ld = direct ? plane : padded(rows * s.ow);
      const void* from = at(x, n * s.ic * s.ih * s.iw, t);
      if (!direct) {
        unroll(Unroll(s, images, row, rows, ld, s.ic * taps(s) * ld), t, from, windows.raw_data());
        from = windows.raw_data();
      }
      Gemm g;
      g.in = g.out = t;
      g.m = ocg, g.n = rows * s.ow, g.k = depth;
      g.a = w, g.a_row = depth, g.a_col = 1;
      g.b = from, g.b_row = ld, g.b_col = 1;
      g.c = at(y, n * s.oc * plane + row * s.ow, t), g.c_row = plane;
      g.batch = {images, s.groups};
      g.a_batch = {0, ocg * depth};
      g.b_batch = {s.ic * taps(s) * ld, depth * ld};
      g.c_batch = {s.oc * plane, ocg * plane};
      g.beta = bias != nullptr ? 1 : 0;
      product(g, device);
    }
  }
}

// windows [n, groups, depth, P] = w^T times y [n, groups, ocg, P], then folded.
void transpose(const ConvSizes& s, DType t, Device device, const void* y, const void* w, const void* bias, void* x) {
  const int64_t icg = s.ic / s.groups, ocg = s.oc / s.groups, depth = icg * taps(s), plane = s.oh * s.ow;
  const bool direct = is_pointwise(s);
  if (direct && bias != nullptr) fill(t, bias, s.n, s.ic, plane, x);
  const DType wide = sum_dtype(t);
  Cut cut = direct ? Cut{s.n, s.oh} : cut_for(s.n, s.oh, s.ic * taps(s) * s.ow, size_of(wide));
  // Cut through an image: rows of x, whose windows reach over `reach` rows of y.
  const int64_t reach = ((s.kh - 1) * s.dh) / s.sh + 1;
  const bool pieces = cut.rows < s.oh;
  const int64_t x_rows = pieces ? std::max<int64_t>(1, (cut.rows - reach) * s.sh) : s.ih;
  Tensor windows;
  for (int64_t n = 0; n < s.n; n += cut.images) {
    for (int64_t h = 0; h < s.ih; h += x_rows) {
      const int64_t images = std::min(cut.images, s.n - n), h_end = std::min(h + x_rows, s.ih);
      int64_t first = 0, last = s.oh;  // rows of y that reach these rows of x
      if (pieces) {
        const int64_t low = h + s.ph - (s.kh - 1) * s.dh;
        first = low <= 0 ? 0 : std::min(s.oh, (low + s.sh - 1) / s.sh);
        last = std::max(first, std::min(s.oh, (h_end - 1 + s.ph) / s.sh + 1));
      }
      const int64_t rows = last - first, ld = direct ? plane : padded(rows * s.ow);
      if (!direct) windows = workspace(wide, device, images * s.ic * taps(s) * ld);
      Gemm g;
      g.in = t, g.out = direct ? t : wide;
      g.m = depth, g.n = rows * s.ow, g.k = ocg;
      g.a = w, g.a_row = 1, g.a_col = depth;
      g.b = at(y, n * s.oc * plane + first * s.ow, t), g.b_row = plane, g.b_col = 1;
      g.c = direct ? at(x, n * s.ic * plane, t) : windows.raw_data(), g.c_row = ld;
      g.batch = {images, s.groups};
      g.a_batch = {0, ocg * depth};
      g.b_batch = {s.oc * plane, ocg * plane};
      g.c_batch = {s.ic * taps(s) * ld, depth * ld};
      g.beta = direct && bias != nullptr ? 1 : 0;
      product(g, device);
      if (direct) continue;
      Fold f;
      f.s = s, f.images = images, f.x_row = h, f.x_rows = h_end - h, f.first_row = first;
      f.row_stride = ld, f.image_stride = s.ic * taps(s) * ld;
      f.by_row = Divisor(h_end - h), f.by_column = Divisor(s.iw), f.by_channel = Divisor(s.ic);
      f.stride_h = Divisor(s.sh), f.stride_w = Divisor(s.sw);
      const int64_t total = images * s.ic * (h_end - h) * s.iw;
      const bool narrow = total < kMost && is_narrow(s);
      dispatch_floats(t, "convolution_transpose", [&]<class T>() {
        const auto* from = static_cast<const compute_t<T>*>(windows.raw_data());
        const T* add = static_cast<const T*>(bias);
        T* to = static_cast<T*>(x) + n * s.ic * s.ih * s.iw;
        const int64_t plane = (h_end - h) * s.iw, planes = images * s.ic;
        if (!narrow) {
          fold_kernel<T><<<blocks_of(total), kThreads, 0, stream()>>>(f, from, add, to);
          return;
        }
        const dim3 grid(blocks_of(plane), static_cast<unsigned>(std::min<int64_t>(planes, 65535)));
        fold_narrow_kernel<T>
            <<<grid, kThreads, 0, stream()>>>(f, static_cast<int>(planes), static_cast<int>(plane), from, add, to);
      });
    }
    if (direct) break;
  }
}

// w [groups, ocg, depth] = y [groups, ocg, n P] times windows [groups, depth, n P] transposed: the batch is a part of
// the sum, in which cut after cut is added up in order.
void weight(const ConvSizes& s, DType t, Device device, const void* x, const void* y, void* w) {
  const int64_t icg = s.ic / s.groups, ocg = s.oc / s.groups, depth = icg * taps(s), plane = s.oh * s.ow;
  const Cut cut = cut_for(s.n, s.oh, (s.ic * taps(s) + s.oc) * s.ow, size_of(t));
  const bool once = cut.images == s.n && cut.rows == s.oh;
  const DType wide = sum_dtype(t);
  const int64_t most = padded(cut.images * cut.rows * s.ow);
  const Tensor windows = workspace(t, device, s.ic * taps(s) * most);
  const Tensor turned = cut.images > 1 ? workspace(t, device, s.oc * most) : Tensor();
  const Tensor sums = once || wide == t ? Tensor() : workspace(wide, device, s.oc * depth);
  void* const result = sums.defined() ? sums.raw_data() : w;
  ConvSizes same = s;  // a convolution whose windows are y itself
  same.ic = s.oc, same.ih = same.oh = 1, same.iw = same.ow = plane;
  same.kh = same.kw = same.sh = same.sw = same.dh = same.dw = 1;
  same.ph = same.pw = 0;
  for (int64_t n = 0; n < s.n; n += cut.images) {
    for (int64_t row = 0; row < s.oh; row += cut.rows) {
      const int64_t images = std::min(cut.images, s.n - n), rows = std::min(cut.rows, s.oh - row);
      const int64_t length = images * rows * s.ow, ld = padded(length);
      unroll(Unroll(s, images, row, rows, ld, rows * s.ow), t, at(x, n * s.ic * s.ih * s.iw, t), windows.raw_data());
      Gemm g;
      g.in = t, g.out = sums.defined() ? wide : t;
      g.m = ocg, g.n = depth, g.k = length;
      g.a = at(y, n * s.oc * plane + row * s.ow, t), g.a_row = plane, g.a_col = 1;
      if (cut.images > 1) {
        unroll(Unroll(same, images, 0, 1, ld, plane), t, at(y, n * s.oc * plane, t), turned.raw_data());
        g.a = turned.raw_data(), g.a_row = ld;
      }
      g.b = windows.raw_data(), g.b_row = 1, g.b_col = ld;
      g.c = result, g.c_row = depth;
      g.batch = {s.groups};
      g.a_batch = {ocg * g.a_row}, g.b_batch = {depth * ld}, g.c_batch = {ocg * depth};
      g.beta = n > 0 || row > 0 ? 1 : 0;
      product(g, device);
    }
  }
  if (!sums.defined()) return;
  dispatch_floats(t, "convolution_weight", [&]<class T>() {
    if constexpr (sizeof(T) == 2)
      narrow_kernel<T><<<blocks_for(s.oc * depth, kThreads), kThreads, 0, stream()>>>(
          s.oc * depth, static_cast<const float*>(result), static_cast<T*>(w));
  });
}

// Whether one product of the operands as they lie is best: rows of planes start at multiples of 16 bytes.
bool plain_product(const ConvSizes& s, DType t) {
  return is_pointwise(s) && s.ih * s.iw * size_of(t) % 16 == 0;
}

}  // namespace

void fill(DType t, const void* bias, int64_t n, int64_t channels, int64_t plane, void* to) {
  const int64_t total = n * channels * plane;
  if (total == 0) return;
  if (bias == nullptr) {
    check_cuda(cudaMemsetAsync(to, 0, static_cast<size_t>(total * size_of(t)), stream()), "convolution",
               "cudaMemsetAsync");
    return;
  }
  dispatch_bytes(t, [&]<class B>() {
    const auto run = [&](auto pixels) {
      constexpr int V = decltype(pixels)::value;
      bias_kernel<B, V>
          <<<blocks_of(total / V), kThreads, 0, stream()>>>(total / V, Divisor(plane / V), Divisor(channels),
                                                            static_cast<const B*>(bias), static_cast<B*>(to));
    };
    if (plane % kVec<B> == 0 && aligned16(to)) return run(std::integral_constant<int, kVec<B>>());
    run(std::integral_constant<int, 1>());
  });
}

}  // namespace conv_cuda

using namespace conv_cuda;

void conv_forward_cuda(const ConvSizes& s, DType t, Device device, const void* x, const void* w, const void* bias,
                       void* y) {
  if (s.n * s.oc * s.oh * s.ow == 0) return;
  if (is_depthwise(s)) return depthwise_forward(s, t, x, w, bias, y);
  if (plain_product(s, t)) return forward(s, t, device, x, w, bias, y);
  if (!hopper_forward(s, t, device, x, w, bias, y)) forward(s, t, device, x, w, bias, y);
}

void conv_transpose_cuda(const ConvSizes& s, DType t, Device device, const void* y, const void* w, const void* bias,
                         void* x) {
  if (s.n * s.ic * s.ih * s.iw == 0) return;
  if (is_depthwise(s)) return depthwise_transpose(s, t, y, w, bias, x);
  if (plain_product(s, t)) return transpose(s, t, device, y, w, bias, x);
  if (!hopper_transpose(s, t, device, y, w, bias, x)) transpose(s, t, device, y, w, bias, x);
}

void conv_weight_cuda(const ConvSizes& s, DType t, Device device, const void* x, const void* y, void* w) {
  const int64_t size = s.oc * (s.ic / s.groups) * s.kh * s.kw;
  if (size == 0) return;
  if (s.n * s.oh * s.ow == 0) return fill(t, nullptr, 1, 1, size, w);
  if (is_depthwise(s)) return depthwise_weight(s, t, device, x, y, w);
  if (!hopper_weight(s, t, device, x, y, w)) weight(s, t, device, x, y, w);
}

}  // namespace strata
