#include <algorithm>
#include <limits>
#include <vector>

#include "strata/core/dispatch.h"
#include "strata/core/parallel.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/loss/multilabel_margin_kernel.h"

#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wpsabi"  // vectors are passed between inlined functions of one level only
#endif
#define STRATA_VEC_FILE "strata/ops/loss/multilabel_margin_inl.h"
#include "strata/ops/vec/levels_inl.h"

namespace strata {
namespace {

float sum_above(const float* e, int64_t n, float bound) {
  return STRATA_VEC_CALL(sum_above_f32)(e, n, bound);
}
double sum_above(const double* e, int64_t n, double bound) {
  return STRATA_VEC_CALL(sum_above_f64)(e, n, bound);
}
int64_t count_above(const float* e, int64_t n, float bound, int32_t* counts) {
  return STRATA_VEC_CALL(count_above_f32)(e, n, bound, counts);
}
int64_t count_above(const double* e, int64_t n, double bound, int64_t* counts) {
  return STRATA_VEC_CALL(count_above_f64)(e, n, bound, counts);
}

// A row's targets, as many as there are before the first negative one, and which classes they name.
struct Named {
  int64_t count = 0;
  std::vector<char> is;
  Named(const int64_t* target, int64_t classes) : is(static_cast<size_t>(classes)) {
    for (; count < classes && target[count] >= 0; ++count) {
      check<IndexError>(target[count] < classes, "multilabel_margin_loss", "target ", target[count],
                        " is out of range for ", classes, " classes");
      is[static_cast<size_t>(target[count])] = 1;
    }
  }
};

// Calls f(T) for rows of x, targets and results, and their numbers.
template <class F>
void each_row(const Tensor& x, F&& f) {
  const int64_t classes = x.size(1);
  parallel_for(0, x.size(0), 1 + 65536 / (classes * classes + 1), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) f(row, classes);
  });
}

}  // namespace

void multilabel_margin_rows_cpu(Tensor& y, const Tensor& x, const Tensor& target) {
  const Tensor scores = contiguous(x), targets = contiguous(target);
  dispatch_wide_floats(x.dtype(), "multilabel_margin_loss", [&]<class T>() {
    each_row(x, [&](int64_t row, int64_t classes) {
      const T* const v = scores.data<T>() + row * classes;
      const int64_t* const t = targets.data<int64_t>() + row * classes;
      const Named named(t, classes);
      // Where a class is named its score is so low that nothing is added.
      std::vector<T> others(static_cast<size_t>(classes));
      T odd = 0;
      for (int64_t c = 0; c < classes; ++c) {
        const bool is_nan = v[c] != v[c];
        if (is_nan) odd = v[c];
        others[static_cast<size_t>(c)] =
            named.is[static_cast<size_t>(c)] || is_nan ? -std::numeric_limits<T>::infinity() : v[c];
      }
      double total = 0;
      for (int64_t k = 0; k < named.count; ++k) {
        const T bound = v[t[k]] - 1;
        total += static_cast<double>(sum_above(others.data(), classes, bound));
      }
      y.data<T>()[row] = static_cast<T>(total) + odd;
    });
  });
}

void multilabel_margin_rows_backward_cpu(Tensor& gx, const Tensor& g, const Tensor& x, const Tensor& target) {
  const Tensor scores = contiguous(x), targets = contiguous(target), weights = contiguous(g);
  dispatch_wide_floats(x.dtype(), "multilabel_margin_loss", [&]<class T>() {
    each_row(x, [&](int64_t row, int64_t classes) {
      const T* const v = scores.data<T>() + row * classes;
      const int64_t* const t = targets.data<int64_t>() + row * classes;
      const Named named(t, classes);
      // No named class is above a bound, nor NaN.
      std::vector<T> others(v, v + classes);
      for (int64_t c = 0; c < classes; ++c)
        if (named.is[static_cast<size_t>(c)]) others[static_cast<size_t>(c)] = -std::numeric_limits<T>::infinity();
      using Count = std::conditional_t<sizeof(T) == 8, int64_t, int32_t>;
      std::vector<Count> slopes(static_cast<size_t>(classes));
      std::vector<int64_t> taken(static_cast<size_t>(classes));  // a class may be named again and again
      for (int64_t k = 0; k < named.count; ++k)
        taken[static_cast<size_t>(t[k])] += count_above(others.data(), classes, v[t[k]] - 1, slopes.data());
      const T by = weights.data<T>()[row];
      for (int64_t c = 0; c < classes; ++c)
        gx.data<T>()[row * classes + c] =
            by * static_cast<T>(slopes[static_cast<size_t>(c)] - taken[static_cast<size_t>(c)]);
    });
  });
}

}  // namespace strata
