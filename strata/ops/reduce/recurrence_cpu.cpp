#include <vector>

#include "strata/core/dispatch.h"
#include "strata/core/parallel.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/reduce/lines.cuh"
#include "strata/ops/reduce/recurrence_kernels.h"
#include "strata/ops/reduce/running_inl.h"

namespace strata {
namespace {

// Calls f(first element, how far the next is, how many) for each line of a row-major tensor.
template <class F>
void each_line(const Lines& l, F&& f) {
  parallel_for(0, l.count, 1 + 16384 / (l.n + 1), [&](int64_t begin, int64_t end) {
    for (int64_t line = begin; line < end; ++line) f(line / l.inner * l.n * l.inner + line % l.inner, l.inner, l.n);
  });
}

// Runs `body` on y, or on a row-major stand-in that is then copied to y.
template <class Body>
void into_dense(Tensor& y, Body&& body) {
  if (y.is_contiguous()) return body(y);
  Tensor dense = empty({y.shape(), y.dtype(), y.device(), std::nullopt});
  body(dense);
  copy_elements(y, dense);
}

}  // namespace

void linear_recurrence_cpu(Tensor& y, const Tensor& a, const Tensor& b, int64_t dim, bool reverse) {
  const Tensor factors = contiguous(a), terms = contiguous(b);
  into_dense(y, [&](Tensor& to) {
    dispatch_floats(b.dtype(), "linear_recurrence", [&]<class T>() {
      using C = compute_t<T>;
      const T *const p = factors.data<T>(), *const q = terms.data<T>();
      T* const out = to.data<T>();
      each_line(lines_of(b, dim, reverse), [&](int64_t first, int64_t step, int64_t n) {
        double last = 0;
        for (int64_t i = 0; i < n; ++i) {
          const int64_t at = first + (reverse ? n - 1 - i : i) * step, link = reverse ? at + step : at;
          const double term = static_cast<double>(static_cast<C>(q[at]));
          last = i == 0 || last == 0 ? term : static_cast<double>(static_cast<C>(p[link])) * last + term;
          out[at] = static_cast<T>(static_cast<C>(last));
        }
      });
    });
  });
}

void logcumsumexp_cpu(Tensor& y, const Tensor& x, int64_t dim) {
  const Tensor from = contiguous(x);
  into_dense(y, [&](Tensor& to) {
    dispatch_floats(x.dtype(), "logcumsumexp", [&]<class T>() {
      using C = compute_t<T>;
      const T* const p = from.data<T>();
      T* const out = to.data<T>();
      each_line(lines_of(x, dim, false), [&](int64_t first, int64_t step, int64_t n) {
        ExpSum<C> sum;
        for (int64_t i = 0, at = first; i < n; ++i, at += step) {
          sum = then(sum, exp_of(static_cast<C>(p[at])));
          out[at] = static_cast<T>(log_of(sum));
        }
      });
    });
  });
}

}  // namespace strata
