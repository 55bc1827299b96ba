#pragma once
// The windows of one dimension in pooling and resizing, as formulas that hosts and devices share.

#include <cstdint>

#ifdef __CUDACC__
#define STRATA_EVERYWHERE __host__ __device__
#else
#define STRATA_EVERYWHERE
#endif

namespace strata::pool {

enum class AxisKind : uint8_t { pool, adaptive, resize };

/// The inputs behind one output: start, start + dilation, .. (count of them, all inside); `first` is the weight of the
/// first one, `rest` that of each other.
struct Window {
  int64_t start, count;
  double first, rest;
};

/// One dimension: `in` inputs, `out` outputs, and what the kind needs.
struct Axis {
  AxisKind kind = AxisKind::pool;
  bool mean = false;                            ///< pool: weights are 1 / (inputs of the window), else 1
  bool count_padding = false;                   ///< pool: padding counts as inputs of the mean
  bool nearest = false, align_corners = false;  ///< resize
  int64_t in = 1, out = 1;
  int64_t kernel = 1, stride = 1, padding = 0, dilation = 1;  ///< pool
  double scale = 1;  ///< resize: the step in the input for one in the output; not used with align_corners

  /// What stands for a missing dimension.
  static Axis unit(AxisKind kind) {
    Axis a;
    a.kind = kind, a.nearest = true;
    return a;
  }
};

STRATA_EVERYWHERE inline int64_t least(int64_t a, int64_t b) {
  return a < b ? a : b;
}
STRATA_EVERYWHERE inline int64_t most(int64_t a, int64_t b) {
  return a > b ? a : b;
}
/// a / b rounded up, for b > 0 and any a.
STRATA_EVERYWHERE inline int64_t ceil_div(int64_t a, int64_t b) {
  return a <= 0 ? -(-a / b) : (a - 1) / b + 1;
}

// Windows clipped to the input.
STRATA_EVERYWHERE inline Window pool_window(const Axis& a, int64_t i) {
  int64_t first = i * a.stride - a.padding, n = a.kernel;
  const int64_t full = least(first + a.kernel, a.in + a.padding) - first;  // of a mean, whose dilation is 1
  if (first < 0) {
    const int64_t before = least(n, (-first - 1) / a.dilation + 1);
    first += before * a.dilation;
    n -= before;
  }
  n = first >= a.in ? 0 : least(n, (a.in - 1 - first) / a.dilation + 1);
  const double weight = a.mean ? 1.0 / static_cast<double>(a.count_padding ? full : most(n, 1)) : 1.0;
  return {first, n, weight, weight};
}

STRATA_EVERYWHERE inline Window adaptive_window(const Axis& a, int64_t i) {
  const int64_t first = i * a.in / a.out, last = ((i + 1) * a.in + a.out - 1) / a.out;
  const double weight = 1.0 / static_cast<double>(last - first);
  return {first, last - first, weight, weight};
}

// https://pytorch.org/docs/stable/generated/torch.nn.functional.interpolate.html
STRATA_EVERYWHERE inline Window resize_window(const Axis& a, int64_t i) {
  double at = 0;
  if (a.align_corners && !a.nearest) {
    at = a.out > 1 ? static_cast<double>(i) * static_cast<double>(a.in - 1) / static_cast<double>(a.out - 1) : 0.0;
  } else if (a.nearest) {
    at = static_cast<double>(i) * a.scale;
  } else {
    at = (static_cast<double>(i) + 0.5) * a.scale - 0.5;
    at = at < 0 ? 0 : at;
  }
  // A step may be any number, so that the position must not be converted before it is bounded.
  const int64_t low = at >= static_cast<double>(a.in) ? a.in - 1 : least(static_cast<int64_t>(at), a.in - 1);
  if (a.nearest || low + 1 >= a.in) return {low, 1, 1.0, 1.0};
  const double part = at - static_cast<double>(low);
  return {low, 2, 1 - part, part};
}

template <AxisKind Kind>
STRATA_EVERYWHERE inline Window window(const Axis& a, int64_t i) {
  if constexpr (Kind == AxisKind::pool) return pool_window(a, i);
  if constexpr (Kind == AxisKind::adaptive) return adaptive_window(a, i);
  return resize_window(a, i);
}

/// Outputs from `low` to `high` hold all whose window has input j, and perhaps others.
struct Outputs {
  int64_t low, high;
};
template <AxisKind Kind>
STRATA_EVERYWHERE inline Outputs outputs_of(const Axis& a, int64_t j) {
  if constexpr (Kind == AxisKind::pool) {
    const int64_t at = j + a.padding;
    return {most(0, ceil_div(at - (a.kernel - 1) * a.dilation, a.stride)), least(a.out - 1, at / a.stride)};
  } else if constexpr (Kind == AxisKind::adaptive) {
    return {j * a.out / a.in, least(a.out - 1, ((j + 1) * a.out - 1) / a.in)};
  } else {
    const double step = a.align_corners && !a.nearest
                            ? (a.out > 1 ? static_cast<double>(a.in - 1) / static_cast<double>(a.out - 1) : 0.0)
                            : a.scale;
    const double end = static_cast<double>(a.out - 1);
    // The input is within 1 of the position, which lies between i * step - 0.5 and i * step + step / 2.
    const double low = (static_cast<double>(j) - 1) / step - 1, high = (static_cast<double>(j) + 1.5) / step + 0.5;
    return {j == 0 || !(low > 0) ? 0 : static_cast<int64_t>(low < end ? low : end),
            j == a.in - 1 || !(high < end) ? a.out - 1 : static_cast<int64_t>(high)};
  }
}

/// Whether the window of output i has input j; its weight in `weight`.
template <AxisKind Kind>
STRATA_EVERYWHERE inline bool covers(const Axis& a, int64_t i, int64_t j, double& weight) {
  const Window w = window<Kind>(a, i);
  const int64_t from = j - w.start;
  const int64_t place = Kind == AxisKind::pool && a.dilation != 1 ? from / a.dilation : from;
  if (from < 0 || place >= w.count || (Kind == AxisKind::pool && place * a.dilation != from)) return false;
  weight = place == 0 ? w.first : w.rest;
  return true;
}

}  // namespace strata::pool
