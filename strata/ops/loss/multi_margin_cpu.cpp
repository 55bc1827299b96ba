#include <algorithm>
#include <type_traits>

#include "strata/core/dispatch.h"
#include "strata/core/parallel.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/loss/multi_margin_kernel.h"

namespace strata {
namespace {

// Calls f(row, target, rest), where rest(g) calls g(begin, end) for the classes before the target and for those after it.
template <class F>
void each_row(const Tensor& x, const Tensor& target, F&& f) {
  const int64_t rows = x.size(0), classes = x.size(1);
  const int64_t* const t = rows > 0 ? target.data<int64_t>() : nullptr;
  parallel_for(0, rows, std::max<int64_t>(1, 16384 / classes), [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
      check<IndexError>(t[row] >= 0 && t[row] < classes, "multi_margin_loss", "target ", t[row],
                        " is out of range for ", classes, " classes");
      f(row, t[row], [&](auto&& g) {
        g(int64_t{0}, t[row]);
        g(t[row] + 1, classes);
      });
    }
  });
}

// Sums side by side, in an order that the row alone decides.
template <class T>
struct Lanes {
  static constexpr int64_t kCount = 64 / sizeof(T);
  T sum[kCount] = {};

  /// part(i) is added for every i of [begin, end).
  template <class F>
  void add(int64_t begin, int64_t end, F&& part) {
    for (; begin + kCount <= end; begin += kCount)
      for (int64_t l = 0; l < kCount; ++l) sum[l] += part(begin + l);
    for (int64_t l = 0; begin + l < end; ++l) sum[l] += part(begin + l);
  }
  T total() const {
    T lanes[kCount];
    std::copy_n(sum, kCount, lanes);
    for (int64_t n = kCount / 2; n > 0; n /= 2)
      for (int64_t l = 0; l < n; ++l) lanes[l] += lanes[l + n];
    return lanes[0];
  }
};

// f(T, whether p is 2).
template <class F>
void dispatch(const Tensor& x, int64_t p, F&& f) {
  dispatch_wide_floats(x.dtype(), "multi_margin_loss", [&]<class T>() {
    if (p == 2)
      f(T{}, std::true_type{});
    else
      f(T{}, std::false_type{});
  });
}

}  // namespace

void multi_margin_rows_cpu(Tensor& y, const Tensor& x, const Tensor& target, int64_t p, double margin) {
  const Tensor scores = contiguous(x), targets = contiguous(target);
  const int64_t classes = x.size(1);
  dispatch(x, p, [&]<class T, class Squared>(T, Squared) {
    each_row(x, targets, [&](int64_t row, int64_t t, auto&& rest) {
      const T* const v = scores.data<T>() + row * classes;
      const T bound = static_cast<T>(margin) - v[t];
      Lanes<T> lanes;
      rest([&](int64_t begin, int64_t end) {
        lanes.add(begin, end, [&](int64_t c) {
          const T above = bound + v[c], part = above <= 0 ? T(0) : above;  // NaN stays
          return Squared::value ? part * part : part;
        });
      });
      y.data<T>()[row] = lanes.total() / static_cast<T>(classes);
    });
  });
}

void multi_margin_rows_backward_cpu(Tensor& gx, const Tensor& g, const Tensor& x, const Tensor& target, int64_t p,
                                    double margin) {
  const Tensor scores = contiguous(x), targets = contiguous(target), weights = contiguous(g);
  const int64_t classes = x.size(1);
  dispatch(x, p, [&]<class T, class Squared>(T, Squared) {
    each_row(x, targets, [&](int64_t row, int64_t t, auto&& rest) {
      const T* const v = scores.data<T>() + row * classes;
      T* const to = gx.data<T>() + row * classes;
      const T bound = static_cast<T>(margin) - v[t], by = weights.data<T>()[row] / static_cast<T>(classes);
      Lanes<T> lanes;
      rest([&](int64_t begin, int64_t end) {
        lanes.add(begin, end, [&](int64_t c) {
          const T above = bound + v[c], slope = above > 0 ? (Squared::value ? 2 * above : T(1)) : T(0);
          to[c] = by * slope;
          return slope;
        });
      });
      to[t] = -by * lanes.total();
    });
  });
}

}  // namespace strata
