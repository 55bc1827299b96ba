#include <algorithm>
#include <vector>

#include "strata/core/parallel.h"
#include "strata/ops/columns/columns_kernels.h"

namespace strata::cpu {
namespace {
using columns::Geometry;
using columns::Side;

int64_t grain(int64_t work) {
  return std::max<int64_t>(1, 16384 / std::max<int64_t>(work, 1));
}

// Windows [first, last) of a side whose element k of the kernel lies inside.
struct Range {
  int64_t first, last;
};
Range inside(const Side& s, int64_t k) {
  const int64_t from = s.padding - k * s.dilation;  // window i is at i * stride - from
  const int64_t first = from <= 0 ? 0 : (from + s.stride - 1) / s.stride;
  const int64_t end = s.size + from;
  const int64_t last = end <= 0 ? 0 : std::min(s.windows, (end + s.stride - 1) / s.stride);
  return {std::min(first, last), last};
}
int64_t place(const Side& s, int64_t k, int64_t window) {
  return window * s.stride - s.padding + k * s.dilation;
}

}  // namespace

void im2col(const Geometry& g, DType t, const void* x, void* y) {
  dispatch_bytes(t, [&]<class T>() {
    const int64_t windows = g.h.windows * g.w.windows;
    parallel_for(0, g.planes * g.h.kernel * g.w.kernel, grain(windows), [&](int64_t begin, int64_t end) {
      for (int64_t e = begin; e < end; ++e) {
        const int64_t kw = e % g.w.kernel, kh = e / g.w.kernel % g.h.kernel, plane = e / (g.w.kernel * g.h.kernel);
        const T* from = static_cast<const T*>(x) + plane * g.h.size * g.w.size;
        T* to = static_cast<T*>(y) + e * windows;
        const Range rows = inside(g.h, kh), cols = inside(g.w, kw);
        std::fill_n(to, rows.first * g.w.windows, T(0));
        for (int64_t i = rows.first; i < rows.last; ++i) {
          const T* row = from + place(g.h, kh, i) * g.w.size;
          T* line = to + i * g.w.windows;
          std::fill(line, line + cols.first, T(0));
          if (g.w.stride == 1) {
            if (cols.first < cols.last)
              std::copy_n(row + place(g.w, kw, cols.first), cols.last - cols.first, line + cols.first);
          } else {
            for (int64_t j = cols.first; j < cols.last; ++j) line[j] = row[place(g.w, kw, j)];
          }
          std::fill(line + cols.last, line + g.w.windows, T(0));
        }
        std::fill(to + rows.last * g.w.windows, to + windows, T(0));
      }
    });
  });
}

void col2im(const Geometry& g, DType t, const void* y, void* x) {
  columns::dispatch_numbers(t, [&]<class T>() {
    using C = compute_t<T>;
    const int64_t windows = g.h.windows * g.w.windows, plane = g.h.size * g.w.size;
    parallel_for(0, g.planes, grain(g.h.kernel * g.w.kernel * windows + plane), [&](int64_t begin, int64_t end) {
      std::vector<C> sums;
      for (int64_t p = begin; p < end; ++p) {
        sums.assign(static_cast<size_t>(plane), C(0));
        const T* from = static_cast<const T*>(y) + p * g.h.kernel * g.w.kernel * windows;
        for (int64_t kh = 0; kh < g.h.kernel; ++kh) {
          for (int64_t kw = 0; kw < g.w.kernel; ++kw, from += windows) {
            const Range rows = inside(g.h, kh), cols = inside(g.w, kw);
            for (int64_t i = rows.first; i < rows.last; ++i) {
              const int64_t row = place(g.h, kh, i) * g.w.size;
              const T* line = from + i * g.w.windows;
              for (int64_t j = cols.first; j < cols.last; ++j)
                sums[static_cast<size_t>(row + place(g.w, kw, j))] += static_cast<C>(line[j]);
            }
          }
        }
        T* to = static_cast<T*>(x) + p * plane;
        for (size_t i = 0; i < sums.size(); ++i) to[i] = static_cast<T>(sums[i]);
      }
    });
  });
}

}  // namespace strata::cpu
