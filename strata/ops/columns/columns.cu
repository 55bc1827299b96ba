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

// A thread has V windows that follow each other in a row, for which it divides once; `total` and s.cols count such.
template <class T, int V>
__global__ void __launch_bounds__(kEachThreads) im2col_kernel(Geometry g, Split s, int64_t total, const T* x, T* y) {
  for_each(total, [&](int64_t e) {
    int64_t j, i, kw, kh;
    const int64_t plane = s.kh.split(s.kw.split(s.rows.split(s.cols.split(e, j), i), kw), kh);
    const int64_t row = i * g.h.stride - g.h.padding + kh * g.h.dilation;
    int64_t col = j * V * g.w.stride - g.w.padding + kw * g.w.dilation;
    const T* const from = x + (plane * g.h.size + row) * g.w.size;
    const bool has_row = row >= 0 && row < g.h.size;
    Vec<T, V> v;
#pragma unroll
    for (int k = 0; k < V; ++k, col += g.w.stride) v.v[k] = has_row && col >= 0 && col < g.w.size ? from[col] : T(0);
    store_vec(y + e * V, v);
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
  dispatch_bytes(t, [&]<class T>() {
    const auto run = [&]<int V>(std::integral_constant<int, V>) {
      const Split s{Divisor(g.w.windows / V), Divisor(g.h.windows), Divisor(g.w.kernel), Divisor(g.h.kernel)};
      im2col_kernel<T, V><<<each_blocks(total / V), kEachThreads, 0, stream()>>>(
          g, s, total / V, static_cast<const T*>(x), static_cast<T*>(y));
    };
    constexpr int kMany = 4;
    if (g.w.windows % kMany == 0 && aligned16(y))
      run(std::integral_constant<int, kMany>());
    else
      run(std::integral_constant<int, 1>());
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
