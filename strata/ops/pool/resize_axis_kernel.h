#pragma once
// The filter of resize_axis, as formulas that hosts and devices share.

#include <cstdint>

#include "strata/core/dtype.h"
#include "strata/ops/pool/pool_axis.h"

namespace strata::pool {

/// One dimension resized by a filter: a hat (linear), or a cubic spline (Keys, 1981).
struct Filter {
  int64_t in = 1, out = 1;
  bool cubic = false, align_corners = false;
  bool antialias = false;  ///< the filter is as wide as the step, cut at the border, its weights add up to 1
  double step = 1;         ///< in the input, for one in the result
  double narrow = 1;       ///< 1 / step where that is above 1: a division for each weight is much of a card's work

  /// Half of the filter's width, in inputs.
  STRATA_EVERYWHERE double reach() const {
    const double half = cubic ? 2 : 1;
    return antialias && step > 1 ? half * step : half;
  }
  /// Place of output i among the inputs; with antialias that of its middle, input j reaching from j to j + 1.
  STRATA_EVERYWHERE double place(int64_t i) const {
    if (antialias) return (static_cast<double>(i) + 0.5) * step;
    return align_corners ? static_cast<double>(i) * step : (static_cast<double>(i) + 0.5) * step - 0.5;
  }
  /// The filter at a distance.
  STRATA_EVERYWHERE double value(double at) const {
    at = at < 0 ? -at : at;
    if (!cubic) return at < 1 ? 1 - at : 0.0;
    const double a = antialias ? -0.5 : -0.75;
    if (at <= 1) return ((a + 2) * at - (a + 3)) * at * at + 1;
    return at < 2 ? (((at - 5) * at + 8) * at - 4) * a : 0.0;
  }
};

/// The inputs behind output i: `count` from `start`, and what all their weights are multiplied with. Without antialias
/// `start` may lie outside: what is outside stands for the element at the border.
struct FilterWindow {
  int64_t start, count;
  double place, factor;
};
STRATA_EVERYWHERE inline double filter_weight(const Filter& f, const FilterWindow& w, int64_t j) {
  if (!f.antialias) return f.value(w.place - static_cast<double>(j));
  return f.value((static_cast<double>(j) - w.place + 0.5) * f.narrow) * w.factor;
}
STRATA_EVERYWHERE inline FilterWindow filter_window(const Filter& f, int64_t i) {
  const double at = f.place(i), in = static_cast<double>(f.in), reach = f.reach();
  if (!f.antialias) {
    // A step may be any number: what is far outside is as if it were just outside.
    const double near = at < in + 4 ? at : in + 4;
    int64_t low = static_cast<int64_t>(near);
    if (static_cast<double>(low) > near) --low;
    return {f.cubic ? low - 1 : low, f.cubic ? 4 : 2, near, 1.0};
  }
  const double from = at - reach + 0.5, to = at + reach + 0.5;
  const int64_t start = from >= in - 1 ? f.in - 1 : from > 0 ? static_cast<int64_t>(from) : 0;
  const int64_t end = to < in ? static_cast<int64_t>(to) : f.in;
  FilterWindow w{start, end > start ? end - start : 1, at, 1.0};
  double total = 0;
  for (int64_t j = 0; j < w.count; ++j) total += filter_weight(f, w, w.start + j);
  if (total == 0) {  // wholly outside: the element at the border
    w.count = 1;
    w.place = static_cast<double>(w.start) + 0.5;
    total = 1;
  }
  w.factor = 1 / total;
  return w;
}
/// The input that position j of a window stands for.
STRATA_EVERYWHERE inline int64_t inside(const Filter& f, int64_t j) {
  return j < 0 ? 0 : j >= f.in ? f.in - 1 : j;
}
/// The weight of input j in window w.
STRATA_EVERYWHERE inline double weight_of_input(const Filter& f, const FilterWindow& w, int64_t j) {
  if (f.antialias) return j >= w.start && j < w.start + w.count ? filter_weight(f, w, j) : 0.0;
  double sum = 0;
  for (int64_t k = w.start; k < w.start + w.count; ++k) sum += inside(f, k) == j ? filter_weight(f, w, k) : 0.0;
  return sum;
}
/// Outputs from `low` to `high` hold all in whose window input j is.
STRATA_EVERYWHERE inline Outputs<int64_t> filter_outputs(const Filter& f, int64_t j) {
  if (f.step == 0) return {0, f.out - 1};
  const double end = static_cast<double>(f.out - 1), reach = f.reach() + 1;
  // Where place(i) is within reach of j: place() is a step for each i, and begins within 1 + step / 2 of 0.
  const double low = (static_cast<double>(j) - reach - 0.5) / f.step - 1,
               high = (static_cast<double>(j) + reach + 0.5) / f.step + 1;
  return {j == 0 || !(low > 0) ? 0 : static_cast<int64_t>(low < end ? low : end),
          j == f.in - 1 || !(high < end) ? f.out - 1 : static_cast<int64_t>(high)};
}

}  // namespace strata::pool

namespace strata {
namespace cpu {
/// y[o, i, k] = sum of the filter's weights times x[o, j, k]: x is [outer, in, inner]. Floating dtypes.
void filter_axis(const pool::Filter& f, int64_t outer, int64_t inner, DType t, const void* x, void* y);
/// The transpose: x[o, j, k] is the sum over y's in whose windows it is.
void filter_axis_transposed(const pool::Filter& f, int64_t outer, int64_t inner, DType t, const void* y, void* x);
}  // namespace cpu
// The same on a CUDA device's memory, on its current stream.
void filter_axis_cuda(const pool::Filter& f, int64_t outer, int64_t inner, DType t, const void* x, void* y);
void filter_axis_transposed_cuda(const pool::Filter& f, int64_t outer, int64_t inner, DType t, const void* y, void* x);

}  // namespace strata
