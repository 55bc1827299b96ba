// Cross entropy, for one processor level. No include guard: see strata/ops/vec/levels_inl.h.

#include "strata/ops/softmax/row_inl.h"

namespace strata::STRATA_VEC_NS {

template <class T>
STRATA_INLINE Real<T> row_sum(const T* x, int64_t n) {
  V<T> s[4] = {};
  scan4(x, n, Real<T>(0), [&](int c, V<T> v) { s[c] += v; });
  return reduce_add((s[0] + s[1]) + (s[2] + s[3]));
}

STRATA_INLINE double loss_divisor(const CrossEntropyCall& c) {
  if (c.reduction != Reduction::mean) return 1;
  int64_t count = 0;
  for (int64_t r = 0; r < c.rows; ++r) count += c.target[r] != c.ignore_index;
  return static_cast<double>(count);
}

STRATA_INLINE void check_target(const CrossEntropyCall& c, int64_t row) {
  const int64_t t = c.target[row];
  check<IndexError>(t >= 0 && t < c.classes, "cross_entropy", "target ", t, " in row ", row, " is not one of the ",
                    c.classes, " classes (allowed: 0 to ", c.classes - 1, ", or ignore_index ", c.ignore_index, ")");
}

template <class T>
static void cross_entropy_of(const CrossEntropyCall& c) {
  using R = Real<T>;
  const int64_t n = c.classes;
  const T* x0 = static_cast<const T*>(c.x);
  R* lse = static_cast<R*>(c.lse);
  R* loss = static_cast<R*>(c.loss);
  ScratchFrame frame;
  R* each = frame.take<R>(c.rows);
  parallel_for(0, c.rows, std::max<int64_t>(1, 16384 / n), [&](int64_t from, int64_t to) {
    for (int64_t r = from; r < to; ++r) {
      const T* x = x0 + r * n;
      const LogSum<R> sum = row_log_sum(x, n);
      lse[r] = sum.top + sum.log;
      const int64_t t = c.target[r];
      if (t == c.ignore_index) {
        each[r] = 0;
        continue;
      }
      check_target(c, r);
      R v = sum.top - get(x[t]) + sum.log;
      if (c.smoothing > 0) {
        const R s = static_cast<R>(c.smoothing);
        v = v * (1 - s) + s * (lse[r] - row_sum(x, n) / static_cast<R>(n));
      }
      each[r] = v;
    }
  });
  if (c.reduction == Reduction::none) {
    for (int64_t r = 0; r < c.rows; ++r) loss[r] = each[r];
  } else {
    double sum = 0;
    for (int64_t r = 0; r < c.rows; ++r) sum += each[r];
    *loss = static_cast<R>(sum / loss_divisor(c));
  }
}

template <class T>
static void cross_entropy_backward_of(const CrossEntropyCall& c) {
  using R = Real<T>;
  const int64_t n = c.classes;
  const T* x0 = static_cast<const T*>(c.x);
  const R *lse = static_cast<const R*>(c.lse), *gy = static_cast<const R*>(c.grad_loss);
  T* gx0 = static_cast<T*>(c.grad_x);
  const double divisor = loss_divisor(c);
  const R smoothing = static_cast<R>(c.smoothing), each = smoothing / static_cast<R>(n);
  const bool nt = should_stream(gx0, c.rows, n);
  parallel_for(0, c.rows, std::max<int64_t>(1, 16384 / n), [&](int64_t from, int64_t to) {
    for (int64_t r = from; r < to; ++r) {
      const T* x = x0 + r * n;
      T* gx = gx0 + r * n;
      const int64_t t = c.target[r];
      if (t == c.ignore_index) {
        std::memset(static_cast<void*>(gx), 0, static_cast<size_t>(n) * sizeof(T));
        continue;
      }
      check_target(c, r);
      const R g = gy[c.reduction == Reduction::none ? r : 0] / static_cast<R>(divisor);
      const V<T> gv = set1(g), l = set1(lse[r]), even = set1(each);
      const V<T> shift = even * -gv;
      write_row(
          gx, n, nt, [](int64_t) {},
          [&](int64_t i, int64_t k) { return fma(exp_below<T>(load_upto(x + i, k, 0), l), gv, shift); });
      if (nt) stream_fence();
      put(gx[t], (exp_scalar(get(x[t]) - lse[r]) - each - (1 - smoothing)) * g);
    }
  });
}

static void cross_entropy(const CrossEntropyCall& c) {
  dispatch_floating(c.dtype, [&](auto tag) { cross_entropy_of<decltype(tag)>(c); });
}
static void cross_entropy_backward(const CrossEntropyCall& c) {
  dispatch_floating(c.dtype, [&](auto tag) { cross_entropy_backward_of<decltype(tag)>(c); });
}

}  // namespace strata::STRATA_VEC_NS
