#pragma once
// The windows of pooling and resizing as lists, for this folder's kernels on the processor.

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "strata/core/dispatch.h"
#include "strata/ops/elementwise/kernels.h"
#include "strata/ops/pool/pool_kernels.h"

namespace strata::cpu {
namespace {

// The windows of a dimension: inputs start, start + step, .. for each output, their weights one output after the other.
struct Taps {
  int64_t inputs, step;
  std::vector<int64_t> start, count;
  std::vector<double> weight;

  explicit Taps(const Axis& a) : inputs(a.in), step(a.kind == pool::AxisKind::pool ? a.dilation : 1) {
    for (int64_t i = 0; i < a.out; ++i) {
      const pool::Window<int64_t, double> w = a.kind == pool::AxisKind::pool       ? pool::pool_window<double>(a, i)
                                              : a.kind == pool::AxisKind::adaptive ? pool::adaptive_window<double>(a, i)
                                                                                   : pool::resize_window<double>(a, i);
      start.push_back(w.start);
      count.push_back(w.count);
      weight.insert(weight.end(), static_cast<size_t>(w.count), w.rest);
      if (w.count > 0) weight[weight.size() - static_cast<size_t>(w.count)] = w.first;
    }
  }
  int64_t outputs() const { return static_cast<int64_t>(start.size()); }
};

// Where each output's weights begin.
std::vector<int64_t> offsets(const Taps& t) {
  std::vector<int64_t> r(t.start.size());
  for (size_t i = 1; i < r.size(); ++i) r[i] = r[i - 1] + t.count[i - 1];
  return r;
}

template <class T>
std::vector<compute_t<T>> weights(const Taps& t) {
  return {t.weight.begin(), t.weight.end()};
}

// n elements in the type that they are computed in: where they are, or in `room`; and back.
template <class T>
const compute_t<T>* widened(const T* from, int64_t n, compute_t<T>* room) {
  if constexpr (std::is_same_v<T, compute_t<T>>) {
    return from;
  } else {
    (std::is_same_v<T, Half> ? converters().f16_to_f32 : converters().bf16_to_f32)(room, from, n);
    return room;
  }
}
template <class T>
void narrowed(const compute_t<T>* from, int64_t n, T* to) {
  if constexpr (std::is_same_v<T, compute_t<T>>)
    std::copy_n(from, n, to);
  else
    (std::is_same_v<T, Half> ? converters().f32_to_f16 : converters().f32_to_bf16)(to, from, n);
}

}  // namespace
}  // namespace strata::cpu
