#include <algorithm>
#include <limits>
#include <vector>

#include "strata/core/dispatch.h"
#include "strata/core/parallel.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/loss/multilabel_margin_kernel.h"

namespace strata {
namespace {

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
        T sum = 0;
        for (const T e : others) sum += e > bound ? e - bound : T(0);
        total += static_cast<double>(sum);
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
      std::vector<int64_t> slopes(static_cast<size_t>(classes));
      for (int64_t k = 0; k < named.count; ++k) {
        const T bound = v[t[k]] - 1;
        int64_t above = 0;
        for (int64_t c = 0; c < classes; ++c) {
          const int64_t counts = !named.is[static_cast<size_t>(c)] && v[c] > bound;
          slopes[static_cast<size_t>(c)] += counts;
          above += counts;
        }
        slopes[static_cast<size_t>(t[k])] -= above;
      }
      const T by = weights.data<T>()[row];
      for (int64_t c = 0; c < classes; ++c)
        gx.data<T>()[row * classes + c] = by * static_cast<T>(slopes[static_cast<size_t>(c)]);
    });
  });
}

}  // namespace strata
