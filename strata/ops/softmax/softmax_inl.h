// Softmax over rows and over columns, for one processor level. No include guard: see strata/ops/vec/levels_inl.h.

#include "strata/ops/softmax/row_inl.h"

namespace strata::STRATA_VEC_NS {

// e = exp(x - m); the sum of it. With kQuick, for few digits, x - m is taken in one step with its scaling, rounded by
// the digits of m: a factor to all of e while m is not huge, else anything.
template <class T, bool kQuick>
STRATA_INLINE Real<T> exponentials(const T* x, int64_t n, Real<T> m, Real<T>* e) {
  constexpr int W = kLanes<T>;
  constexpr Real<T> kLog2e = Real<T>(1.44269504088896341);
  const V<T> mv = set1(m), below = set1(-m * kLog2e);
  const auto value = [&](V<T> v) {
    if constexpr (kQuick)
      return exp2 < std::is_same_v<T, BFloat16> ? 3 : 4 > (fma(v, set1(kLog2e), below));
    else
      return exp_below<T>(v, mv);
  };
  V<T> sum[4] = {};
  int64_t i = 0;
  for (; i + 4 * W <= n; i += 4 * W) {
    prefetch2(x + n + i);  // of the next row
    prefetch2(x + n + i + 2 * W);
#pragma GCC unroll 4
    for (int c = 0; c < 4; ++c) {
      const V<T> p = value(load(x + i + c * W));
      sum[c] += p;
      store(e + i + c * W, p);
    }
  }
  for (; i < n; i += W) {
    const int64_t k = std::min<int64_t>(W, n - i);
    const V<T> p = value(load_upto(x + i, k, -std::numeric_limits<Real<T>>::infinity()));
    sum[0] += p;
    if (k == W)
      store(e + i, p);
    else
      store_n(e + i, p, k);
  }
  return reduce_add((sum[0] + sum[1]) + (sum[2] + sum[3]));
}

template <class T>
static void softmax_row(const T* x, T* y, int64_t n, Real<T>* e, bool nt) {
  using R = Real<T>;
  // A shift that is not the maximum costs digits, of which f32 results show the last.
  constexpr bool kGuess = !std::is_same_v<T, R>;
  R sum = 0;
  if constexpr (kGuess) sum = exponentials<T, true>(x, n, likely_max(x, n), e);
  if (!kGuess || !(sum >= R(0.5) && sum < kLargestSum)) sum = exponentials<T, false>(x, n, row_max(x, n), e);
  const V<T> inv = set1(R(1) / sum);
  write_row(
      y, n, nt, [](int64_t) {}, [&](int64_t i, int64_t k) { return load_upto(e + i, k, 0) * inv; });
}

template <class T>
static void log_softmax_row(const T* x, T* y, int64_t n, bool nt) {
  const auto sum = row_log_sum(x, n);
  const V<T> top = set1(sum.top), log = set1(sum.log);
  write_row(
      y, n, nt, [&](int64_t i) { prefetch2(x + n + i); },
      [&](int64_t i, int64_t k) { return load_upto(x + i, k, 0) - top - log; });
}

template <class T>
static void softmax_rows(bool log, const T* x, T* y, int64_t rows, int64_t n) {
  const bool nt = should_stream(y, rows, n);
  parallel_for(0, rows, std::max<int64_t>(1, 16384 / n), [&](int64_t from, int64_t to) {
    ScratchFrame frame;
    // f32 and f64 may hold the exponentials in y itself, unless y bypasses the caches.
    Real<T>* scratch = std::is_same_v<T, Real<T>> && !nt ? nullptr : frame.take<Real<T>>(n);
    for (int64_t r = from; r < to; ++r) {
      if (log) {
        log_softmax_row(x + r * n, y + r * n, n, nt);
      } else if constexpr (std::is_same_v<T, Real<T>>) {
        softmax_row(x + r * n, y + r * n, n, nt ? scratch : y + r * n, nt);
      } else {
        softmax_row(x + r * n, y + r * n, n, scratch, nt);
      }
    }
    if (nt) stream_fence();
  });
}

// Neighbouring columns that are processed together: runs of memory as long as the second-level cache allows.
constexpr int64_t kColumns = 1024;
STRATA_INLINE int64_t columns_at_once(int64_t n) {
  return std::clamp<int64_t>(65536 / n / 64 * 64, 64, kColumns);
}

// k <= kColumns neighbouring columns of n elements each, `stride` apart. They are gathered in e, [n][width]: rows a
// power of two apart would evict each other from the caches between the passes.
template <class T>
static void softmax_columns(bool log, const T* x, T* y, int64_t n, int64_t stride, int64_t k, Real<T>* e,
                            int64_t width) {
  using R = Real<T>;
  alignas(64) R top[kColumns], sum[kColumns];
  std::fill(top, top + kColumns, -std::numeric_limits<R>::infinity());
  std::fill(sum, sum + kColumns, R(0));
  for (int64_t i = 0; i < n; ++i)
    for_vectors<T>(k, [&](int64_t j, int64_t m) {
      const V<T> v = load_upto(x + i * stride + j, m, 0);
      store(e + i * width + j, v);
      store(top + j, max(load(top + j), v));
    });
  for (int64_t i = 0; i < n; ++i)
    for_vectors<T>(k, [&](int64_t j, int64_t) {
      R* at = e + i * width + j;
      const V<T> v = load(at), m = load(top + j), p = exp_below<T>(v, m);
      store(at, log ? v - m : p);
      store(sum + j, load(sum + j) + p);
    });
  for (int64_t j = 0; j < k; ++j) sum[j] = log ? std::log(sum[j]) : R(1) / sum[j];
  for (int64_t i = 0; i < n; ++i)
    for_vectors<T>(k, [&](int64_t j, int64_t m) {
      const V<T> v = load(e + i * width + j), s = load(sum + j);
      store_upto(y + i * stride + j, log ? v - s : v * s, m);
    });
}

template <class T>
static void softmax_backward_row(bool log, const T* gy, const T* y, T* gx, int64_t n, bool nt) {
  V<T> acc[4] = {};
  int64_t i = 0;
  constexpr int W = kLanes<T>;
  for (; i + 4 * W <= n; i += 4 * W)
    for (int c = 0; c < 4; ++c) {
      const V<T> g = load(gy + i + c * W);
      acc[c] = log ? acc[c] + g : fma(g, load(y + i + c * W), acc[c]);
    }
  for (; i < n; i += W) {
    const int64_t k = std::min<int64_t>(W, n - i);
    const V<T> g = load_upto(gy + i, k, 0);
    acc[0] = log ? acc[0] + g : fma(g, load_upto(y + i, k, 0), acc[0]);
  }
  const V<T> sum = set1(reduce_add((acc[0] + acc[1]) + (acc[2] + acc[3])));
  const auto next = [&](int64_t j) {
    prefetch2(gy + n + j);
    if (!log) prefetch2(y + n + j);
  };
  if (log)
    write_row(gx, n, nt, next, [&](int64_t j, int64_t k) {
      return load_upto(gy + j, k, 0) - exp_below<T>(load_upto(y + j, k, 0), V<T>{}) * sum;
    });
  else
    write_row(gx, n, nt, next,
              [&](int64_t j, int64_t k) { return load_upto(y + j, k, 0) * (load_upto(gy + j, k, 0) - sum); });
}

template <class T>
static void softmax_backward_columns(bool log, const T* gy, const T* y, T* gx, int64_t n, int64_t stride, int64_t k) {
  using R = Real<T>;
  alignas(64) R sum[kColumns] = {};
  for (int64_t i = 0; i < n; ++i)
    for_vectors<T>(k, [&](int64_t j, int64_t m) {
      const V<T> g = load_upto(gy + i * stride + j, m, 0), s = load(sum + j);
      store(sum + j, log ? s + g : fma(g, load_upto(y + i * stride + j, m, 0), s));
    });
  for (int64_t i = 0; i < n; ++i)
    for_vectors<T>(k, [&](int64_t j, int64_t m) {
      const V<T> g = load_upto(gy + i * stride + j, m, 0), v = load_upto(y + i * stride + j, m, 0), s = load(sum + j);
      store_upto(gx + i * stride + j, log ? g - exp_below<T>(v, V<T>{}) * s : v * (g - s), m);
    });
}

// Runs body(offset, columns) over the columns of [outer, n, inner].
template <class F>
static void over_columns(int64_t outer, int64_t n, int64_t inner, F&& body) {
  const int64_t width = columns_at_once(n), groups = (inner + width - 1) / width;
  parallel_for(0, outer * groups, std::max<int64_t>(1, 16384 / (n * width)), [&](int64_t from, int64_t to) {
    for (int64_t i = from; i < to; ++i) {
      const int64_t column = i % groups * width;
      body(i / groups * n * inner + column, std::min(width, inner - column));
    }
  });
}

template <class T>
static void softmax_forward_of(bool log, const T* x, T* y, int64_t outer, int64_t n, int64_t inner) {
  if (inner == 1) return softmax_rows(log, x, y, outer, n);
  over_columns(outer, n, inner, [&](int64_t at, int64_t k) {
    ScratchFrame frame;
    const int64_t width = columns_at_once(n);
    softmax_columns(log, x + at, y + at, n, inner, k, frame.take<Real<T>>(n * width), width);
  });
}

template <class T>
static void softmax_backward_of(bool log, const T* gy, const T* y, T* gx, int64_t outer, int64_t n, int64_t inner) {
  if (inner != 1)
    return over_columns(outer, n, inner, [&](int64_t at, int64_t k) {
      softmax_backward_columns(log, gy + at, y + at, gx + at, n, inner, k);
    });
  const bool nt = should_stream(gx, outer, n);
  parallel_for(0, outer, std::max<int64_t>(1, 16384 / n), [&](int64_t from, int64_t to) {
    for (int64_t r = from; r < to; ++r) softmax_backward_row(log, gy + r * n, y + r * n, gx + r * n, n, nt);
    if (nt) stream_fence();
  });
}

static void softmax_forward(DType t, bool log, const void* x, void* y, int64_t outer, int64_t n, int64_t inner) {
  dispatch_floating(t, [&](auto tag) {
    using T = decltype(tag);
    softmax_forward_of(log, static_cast<const T*>(x), static_cast<T*>(y), outer, n, inner);
  });
}

static void softmax_backward(DType t, bool log, const void* gy, const void* y, void* gx, int64_t outer, int64_t n,
                             int64_t inner) {
  dispatch_floating(t, [&](auto tag) {
    using T = decltype(tag);
    softmax_backward_of(log, static_cast<const T*>(gy), static_cast<const T*>(y), static_cast<T*>(gx), outer, n, inner);
  });
}

}  // namespace strata::STRATA_VEC_NS
