// Windows as columns on a CUDA device. Every element of a result gathers what belongs to it, in a fixed order.

#include "strata/cuda/divisor.cuh"
#include "strata/cuda/each.cuh"
#include "strata/ops/columns/columns_kernels.h"

namespace strata {
namespace {
using namespace cuda;
using columns::Geometry;

struct Split {
  Divisor cols, rows, kw, kh;  // of the elements that a thread has, last dimension first
};

template <class T>
__global__ void __launch_bounds__(kEachThreads) im2col_kernel(Geometry g, Split s, int64_t total, const T* x, T* y) {
  for_each(total, [&](int64_t e) {
    int64_t j, i, kw, kh;
    const int64_t plane = s.kh.split(s.kw.split(s.rows.split(s.cols.split(e, j), i), kw), kh);
    const int64_t row = i * g.h.stride - g.h.padding + kh * g.h.dilation,
                  col = j * g.w.stride - g.w.padding + kw * g.w.dilation;
    const bool inside = row >= 0 && row < g.h.size && col >= 0 && col < g.w.size;
    y[e] = inside ? x[(plane * g.h.size + row) * g.w.size + col] : T(0);
  });
}

template <class T>
__global__ void __launch_bounds__(kEachThreads) col2im_kernel(Geometry g, Divisor w, Divisor h, Divisor stride_h,
                                                              Divisor stride_w, int64_t total, const T* y, T* x) {
  using C = compute_t<T>;
  for_each(total, [&](int64_t e) {
    int64_t col, row;
    const int64_t plane = h.split(w.split(e, col), row);
    C sum = 0;
    for (int64_t kh = 0; kh < g.h.kernel; ++kh) {
      const int64_t above = row + g.h.padding - kh * g.h.dilation;
      if (above < 0) break;
      int64_t rest;
      const int64_t i = stride_h.split(above, rest);
      if (rest != 0 || i >= g.h.windows) continue;
      for (int64_t kw = 0; kw < g.w.kernel; ++kw) {
        const int64_t before = col + g.w.padding - kw * g.w.dilation;
        if (before < 0) break;
        const int64_t j = stride_w.split(before, rest);
        if (rest != 0 || j >= g.w.windows) continue;
        sum += widen(y[(((plane * g.h.kernel + kh) * g.w.kernel + kw) * g.h.windows + i) * g.w.windows + j]);
      }
    }
    x[e] = narrow<T>(sum);
  });
}

}  // namespace

void im2col_cuda(const Geometry& g, DType t, const void* x, void* y) {
  const int64_t total = g.planes * g.h.kernel * g.w.kernel * g.h.windows * g.w.windows;
  if (total == 0) return;
  const Split s{Divisor(g.w.windows), Divisor(g.h.windows), Divisor(g.w.kernel), Divisor(g.h.kernel)};
  dispatch_bytes(t, [&]<class T>() {
    im2col_kernel<T>
        <<<each_blocks(total), kEachThreads, 0, stream()>>>(g, s, total, static_cast<const T*>(x), static_cast<T*>(y));
  });
}

void col2im_cuda(const Geometry& g, DType t, const void* y, void* x) {
  const int64_t total = g.planes * g.h.size * g.w.size;
  if (total == 0) return;
  columns::dispatch_numbers(t, [&]<class T>() {
    col2im_kernel<T><<<each_blocks(total), kEachThreads, 0, stream()>>>(g, Divisor(g.w.size), Divisor(g.h.size),
                                                                        Divisor(g.h.stride), Divisor(g.w.stride), total,
                                                                        static_cast<const T*>(y), static_cast<T*>(x));
  });
}

}  // namespace strata
