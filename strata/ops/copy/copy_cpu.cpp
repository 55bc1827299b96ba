#include <algorithm>
#include <cstring>
#include <utility>

#include "strata/core/dispatch.h"
#include "strata/core/layout.h"
#include "strata/core/loops.h"
#include "strata/core/parallel.h"
#include "strata/ops/copy/copy_kernels.h"

#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wpsabi"  // vectors are passed between inlined functions of one level only
#endif
#define STRATA_VEC_FILE "strata/ops/copy/copy_rows_inl.h"
#include "strata/ops/vec/levels_inl.h"

namespace strata {
namespace {

template <class D, class S>
D convert(S v) {
  if constexpr (std::is_same_v<D, bool>) {
    return static_cast<compute_t<S>>(v) != 0;
  } else if constexpr (std::is_same_v<D, Half> || std::is_same_v<D, BFloat16>) {
    return D(static_cast<float>(v));
  } else if constexpr (std::is_integral_v<D> && !std::is_integral_v<S>) {
    // Out-of-range conversions are undefined in C++; through int64 with saturation they are merely surprising.
    const double d = static_cast<double>(static_cast<compute_t<S>>(v));
    if (!(d == d)) return 0;
    if (d >= 9.2233720368547758e18) return static_cast<D>(INT64_MAX);
    if (d <= -9.2233720368547758e18) return static_cast<D>(INT64_MIN);
    return static_cast<D>(static_cast<int64_t>(d));
  } else {
    return static_cast<D>(static_cast<compute_t<S>>(v));
  }
}

template <class D, class S>
void convert_run(char** p, const int64_t* st, int64_t n) {
  if (st[0] == sizeof(D) && st[1] == sizeof(S)) {
    D* d = reinterpret_cast<D*>(p[0]);
    const S* s = reinterpret_cast<const S*>(p[1]);
    for (int64_t i = 0; i < n; ++i) d[i] = convert<D>(s[i]);
    return;
  }
  for (int64_t i = 0; i < n; ++i)
    *reinterpret_cast<D*>(p[0] + i * st[0]) = convert<D>(*reinterpret_cast<const S*>(p[1] + i * st[1]));
}

// Dense runs to bits, and those of which one type is f32 or a float of 16 bits: these go through f32, which is exact.
void convert_dense(DType to, char* y, DType from, const char* x, int64_t n) {
  const auto runs = STRATA_VEC_CALL(convert_run_of);
  if (const auto run = runs(to, from)) return run(y, x, n);
  constexpr int64_t kBlock = 512;
  alignas(64) float buffer[kBlock];
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t m = std::min(kBlock, n - i);
    runs(DType::f32, from)(buffer, x + i * size_of(from), m);
    runs(to, DType::f32)(y + i * size_of(to), buffer, m);
  }
}
// The same of elements `step` bytes apart, gathered first.
void convert_apart(DType to, char* y, DType from, const char* x, int64_t step, int64_t n) {
  constexpr int64_t kBlock = 512;
  alignas(64) char buffer[kBlock * 8];
  const int64_t size = size_of(from);
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t m = std::min(kBlock, n - i);
    const char* const at = x + i * step;
    if (step == 2 * size)
      STRATA_VEC_CALL(second_sized)(size, buffer, at, m);
    else
      dispatch_bytes(from, [&]<class T>() {
        for (int64_t j = 0; j < m; ++j) std::memcpy(buffer + j * sizeof(T), at + j * step, sizeof(T));
      });
    convert_dense(to, y + i * size_of(to), from, buffer, m);
  }
}
// To 16 bits f64 goes through f32 in convert() too.
bool has_dense_conversion(DType to, DType from) {
  return to == DType::boolean || from == DType::f32 || to == DType::f32 || is_reduced_floating(from) ||
         is_reduced_floating(to);
}

// Every second element, from behind.
void reversed_seconds(int64_t size, char* to, const char* from, int64_t n) {
  constexpr int64_t kBlock = 512;
  alignas(64) char buffer[kBlock * 8];
  for (int64_t i = 0; i < n; i += kBlock) {
    const int64_t m = std::min(kBlock, n - i);
    STRATA_VEC_CALL(second_sized)(size, buffer, from - 2 * (i + m - 1) * size, m);
    STRATA_VEC_CALL(reversed_sized)(size, to + i * size, buffer + (m - 1) * size, m);
  }
}

// Lines of a few elements at any distances, for which a loop for each would take longer than its copies.
constexpr int64_t kShort = 8;
template <int64_t size, int64_t... I>
void short_lines(char* to, int64_t to_step, int64_t to_line, const char* from, int64_t from_step, int64_t from_line,
                 int64_t lines, std::integer_sequence<int64_t, I...>) {
  for (; lines > 0; --lines, to += to_line, from += from_line)
    (std::memcpy(to + I * to_step, from + I * from_step, size), ...);
}
template <int64_t size, int64_t N = 1>
void short_rows(char** p, const int64_t* st, const int64_t* row_st, int64_t n, int64_t rows) {
  if constexpr (N < kShort)
    if (n > N) return short_rows<size, N + 1>(p, st, row_st, n, rows);
  short_lines<size>(p[0], st[0], row_st[0], p[1], st[1], row_st[1], rows, std::make_integer_sequence<int64_t, N>{});
}
// Of elements that lie side by side in both, by units as long as their lines.
template <int64_t size>
void short_dense_rows(char** p, const int64_t* row_st, int64_t n, int64_t rows) {
  if constexpr (size < 8)
    if (n % 2 == 0) return short_dense_rows<2 * size>(p, row_st, n / 2, rows);
  const int64_t st[2] = {size, size};
  short_rows<size>(p, st, row_st, n, rows);
}

template <int64_t size>
void move_rows(char** p, const int64_t* st, const int64_t* row_st, int64_t n, int64_t rows) {
  if (st[0] == size && st[1] == 0 && n > kShort) {
    STRATA_VEC_CALL(repeated_lines)(size, p[0], row_st[0], p[1], row_st[1], n, rows);
    return;
  }
  // Lines that lie across, from either end.
  if (st[0] == size && rows > 1 && n > 1 && std::abs(row_st[1]) == size && std::abs(st[1]) != size) {
    const int64_t last = row_st[1] < 0 ? rows - 1 : 0;
    STRATA_VEC_CALL(transpose_sized)
    (size, p[1] + last * row_st[1], st[1], p[0] + last * row_st[0], last > 0 ? -row_st[0] : row_st[0], rows, n);
    return;
  }
  const bool dense = st[0] == size && st[1] == size;
  if (rows > 4 && n <= kShort) {
    if (!dense) return short_rows<size>(p, st, row_st, n, rows);
    if (n * size < 16) return short_dense_rows<size>(p, row_st, n, rows);
  }
  if (dense) {
    STRATA_VEC_CALL(copy_lines)(p[0], row_st[0], p[1], row_st[1], n * size, rows);
    return;
  }
  if (st[0] == size && st[1] == 2 * size) {
    STRATA_VEC_CALL(second_lines)(size, p[0], row_st[0], p[1], row_st[1], n, rows);
    return;
  }
  if (st[0] == 2 * size && st[1] == size) {
    STRATA_VEC_CALL(spread_lines)(size, p[0], row_st[0], p[1], row_st[1], n, rows);
    return;
  }
  for (int64_t r = 0; r < rows; ++r) {
    char* to = p[0] + r * row_st[0];
    const char* from = p[1] + r * row_st[1];
    if (st[0] == size && st[1] == -size)
      STRATA_VEC_CALL(reversed_sized)(size, to, from, n);
    else if (st[0] == size && st[1] == -2 * size)
      reversed_seconds(size, to, from, n);
    else
      for (int64_t i = 0; i < n; ++i) std::memcpy(to + i * st[0], from + i * st[1], size);
  }
}

// Copies planes of the dimension that lies side by side in dst and of the one that does in src: turned tile by tile
// where they are two, and long enough. Where they are one, planes of it and of the nearest long one, if a walk along
// dst would take few lines at a time. False, and nothing done, else.
bool copy_planes(const Tensor& dst, const Tensor& src) {
  struct Dim {
    int64_t n, to, from;
  };
  const int64_t size = size_of(dst.dtype());
  Dim dims[kMaxDims];
  int count = 0, inner = -1, across = -1;
  for (int d = 0; d < dst.dim(); ++d) {
    if (dst.shape()[d] == 1) continue;
    const Dim one{dst.shape()[d], dst.strides()[d] * size, src.strides()[d] * size};
    // Of neighbours that lie alike in both, one longer dimension.
    if (count > 0 && dims[count - 1].to == one.to * one.n && dims[count - 1].from == one.from * one.n)
      dims[count - 1] = {dims[count - 1].n * one.n, one.to, one.from};
    else
      dims[count++] = one;
  }
  for (int i = 0; i < count; ++i) {
    if (dims[i].to == size) inner = i;
    if (dims[i].from == size) across = i;
  }
  if (count < 3 || inner < 0 || across < 0) return false;
  const bool lines = inner == across;
  if (lines) {
    // Lines side by side in both: those of the nearest dimension that has some go together.
    int next = -1;
    for (int i = 0; i < count; ++i) {
      if (i == inner) continue;
      const auto nearer = [&](int than) { return std::abs(dims[i].to) < std::abs(dims[than].to); };
      if (dims[i].n >= 8 && (across == inner || nearer(across))) across = i;
      if (next < 0 || nearer(next)) next = i;
    }
    // Long lines are walked as well in any order, best along dst: what src repeats is then in the cache.
    if (across == inner || across == next || dims[inner].n * size >= 1024) return false;
  }
  if (dims[inner].n < 4 || dims[across].n < 4) return false;
  const Dim columns = dims[inner], rows = dims[across];
  int rest = 0;
  int64_t planes = 1;
  for (int i = 0; i < count; ++i) {
    if (i == inner || i == across) continue;
    planes *= dims[i].n;
    dims[rest++] = dims[i];
  }
  // The planes in the order in which they lie in src, of which lines are read that several of them share.
  std::sort(dims, dims + rest, [](const Dim& a, const Dim& b) { return std::abs(a.from) > std::abs(b.from); });
  char* const to = static_cast<char*>(dst.raw_data());
  const char* const from = static_cast<const char*>(src.raw_data());
  parallel_for(0, planes, std::max<int64_t>(1, kGrain / (rows.n * columns.n)), [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane) {
      int64_t left = plane, to_at = 0, from_at = 0;
      for (int i = rest - 1; i >= 0; --i) {
        const int64_t k = left % dims[i].n;
        left /= dims[i].n;
        to_at += k * dims[i].to;
        from_at += k * dims[i].from;
      }
      if (lines)
        STRATA_VEC_CALL(copy_lines)(to + to_at, rows.to, from + from_at, rows.from, columns.n * size, rows.n);
      else
        STRATA_VEC_CALL(transpose_sized)
      (size, from + from_at, columns.from, to + to_at, rows.to, rows.n, columns.n);
    }
  });
  return true;
}

}  // namespace

void transpose_elements(int64_t size, const char* from, int64_t from_step, char* to, int64_t to_step, int64_t rows,
                        int64_t cols) {
  STRATA_VEC_CALL(transpose_sized)(size, from, from_step, to, to_step, rows, cols);
}

void gather_second(int64_t size, void* to, const char* from, int64_t n) {
  STRATA_VEC_CALL(second_sized)(size, to, from, n);
}

void copy_elements_cpu(const Tensor& dst, const Tensor& src) {
  const std::array<const Tensor*, 2> ts{&dst, &src};
  if (dst.dtype() == src.dtype()) {
    if (dst.numel() > 0 && copy_planes(dst, src)) return;
    dispatch_bytes(dst.dtype(),
                   [&]<class T>() { for_each_strided_rows(dst.shape(), ts, kGrain, move_rows<sizeof(T)>); });
    return;
  }
  if (has_dense_conversion(dst.dtype(), src.dtype())) {
    const DType to = dst.dtype(), from = src.dtype();
    const auto each = [&](auto run) { for_each_strided(dst.shape(), ts, kGrain, run); };
    if (lie_alike(dst, src))
      return each([=](char** p, const int64_t*, int64_t n) { convert_dense(to, p[0], from, p[1], n); });
    // Rows that are worth a buffer.
    if (dst.is_contiguous() && dst.dim() > 0 && dst.shape().back() >= 16)
      return each([=](char** p, const int64_t* st, int64_t n) {
        if (st[1] == size_of(from))
          convert_dense(to, p[0], from, p[1], n);
        else
          convert_apart(to, p[0], from, p[1], st[1], n);
      });
  }
  dispatch_all(dst.dtype(), "copy", [&]<class D>() {
    dispatch_all(src.dtype(), "copy", [&]<class S>() { for_each_strided(dst.shape(), ts, kGrain, convert_run<D, S>); });
  });
}

void fill_elements_cpu(const Tensor& dst, Scalar value) {
  uint64_t bits = 0;
  dispatch_all(dst.dtype(), "fill", [&]<class T>() {
    const T v = static_cast<T>(value.to<T>());
    std::memcpy(&bits, &v, sizeof v);
  });
  dispatch_bytes(dst.dtype(), [&]<class T>() {
    for_each_strided(dst.shape(), std::array<const Tensor*, 1>{&dst}, kGrain,
                     [bits](char** p, const int64_t* s, int64_t n) {
                       if (s[0] == sizeof(T)) return STRATA_VEC_CALL(fill_sized)(sizeof(T), p[0], bits, n);
                       const T v = static_cast<T>(bits);
                       for (int64_t i = 0; i < n; ++i) *reinterpret_cast<T*>(p[0] + i * s[0]) = v;
                     });
  });
}

}  // namespace strata
