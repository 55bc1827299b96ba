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
template <class I, class W>
struct Window {
  I start, count;
  W first, rest;
};

/// One dimension: `in` inputs, `out` outputs, and what the kind needs. I is the type of indices.
template <class I>
struct BasicAxis {
  AxisKind kind = AxisKind::pool;
  bool mean = false;                            ///< pool: weights are 1 / (inputs of the window), else 1 / scale
  bool count_padding = false;                   ///< pool: padding counts as inputs of the mean
  bool nearest = false, align_corners = false;  ///< resize
  bool centred = false;                         ///< resize, nearest: by the middle of the output, not its start
  I in = 1, out = 1;
  I kernel = 1, stride = 1, padding = 0, dilation = 1;  ///< pool
  double scale = 1;  ///< resize: the step in the input for one in the output; not used with align_corners

  /// What stands for a missing dimension.
  static BasicAxis unit(AxisKind kind) {
    BasicAxis a;
    a.kind = kind, a.nearest = true;
    return a;
  }
};
using Axis = BasicAxis<int64_t>;

template <class I>
STRATA_EVERYWHERE inline I least(I a, I b) {
  return a < b ? a : b;
}
template <class I>
STRATA_EVERYWHERE inline I most(I a, I b) {
  return a > b ? a : b;
}
/// a / b rounded up, for b > 0 and any a.
template <class I>
STRATA_EVERYWHERE inline I ceil_div(I a, I b) {
  return a <= 0 ? -(-a / b) : (a - 1) / b + 1;
}

// Windows clipped to the input.
template <class W, class I>
STRATA_EVERYWHERE inline Window<I, W> pool_window(const BasicAxis<I>& a, I i) {
  I first = i * a.stride - a.padding, n = a.kernel;
  const I full = least<I>(first + a.kernel, a.in + a.padding) - first;  // of a mean, whose dilation is 1
  if (first < 0) {
    const I before = least<I>(n, a.dilation == 1 ? -first : (-first - 1) / a.dilation + 1);
    first += before * a.dilation;
    n -= before;
  }
  n = first >= a.in ? 0 : least<I>(n, a.dilation == 1 ? a.in - first : (a.in - 1 - first) / a.dilation + 1);
  const W share = a.mean ? static_cast<W>(a.count_padding ? full : most<I>(n, 1)) : static_cast<W>(a.scale);
  const W weight = W(1) / share;
  return {first, n, weight, weight};
}

template <class W, class I>
STRATA_EVERYWHERE inline Window<I, W> adaptive_window(const BasicAxis<I>& a, I i) {
  const I first = i * a.in / a.out, last = ((i + 1) * a.in + a.out - 1) / a.out;
  const W weight = W(1) / static_cast<W>(last - first);
  return {first, last - first, weight, weight};
}

// https://pytorch.org/docs/stable/generated/torch.nn.functional.interpolate.html
template <class W, class I>
STRATA_EVERYWHERE inline Window<I, W> resize_window(const BasicAxis<I>& a, I i) {
  double at = 0;
  if (a.align_corners && !a.nearest) {
    at = a.out > 1 ? static_cast<double>(i) * static_cast<double>(a.in - 1) / static_cast<double>(a.out - 1) : 0.0;
  } else if (a.nearest) {
    at = (static_cast<double>(i) + (a.centred ? 0.5 : 0.0)) * a.scale;
  } else {
    at = (static_cast<double>(i) + 0.5) * a.scale - 0.5;
    at = at < 0 ? 0 : at;
  }
  // A step may be any number, so that the position must not be converted before it is bounded.
  const I low = at >= static_cast<double>(a.in) ? a.in - 1 : least<I>(static_cast<I>(at), a.in - 1);
  if (a.nearest || low + 1 >= a.in) return {low, 1, W(1), W(1)};
  const double part = at - static_cast<double>(low);
  return {low, 2, static_cast<W>(1 - part), static_cast<W>(part)};
}

/// The window of output i, its weights as W.
template <AxisKind Kind, class W, class I>
STRATA_EVERYWHERE inline Window<I, W> window(const BasicAxis<I>& a, I i) {
  if constexpr (Kind == AxisKind::pool) {
    return pool_window<W>(a, i);
  } else if constexpr (Kind == AxisKind::adaptive) {
    return adaptive_window<W>(a, i);
  } else {
    return resize_window<W>(a, i);
  }
}

/// Outputs from `low` to `high` hold all whose window has input j, and perhaps others.
template <class I>
struct Outputs {
  I low, high;
};
/// For resize; each: outputs for one input.
template <class I>
STRATA_EVERYWHERE inline Outputs<I> resize_outputs(const BasicAxis<I>& a, I j, double each) {
  const double end = static_cast<double>(a.out - 1);
  // The input is within 1 of the position, which lies between i * step - 0.5 and i * step + step / 2.
  const double low = (static_cast<double>(j) - 1) * each - 1, high = (static_cast<double>(j) + 1.5) * each + 0.5;
  return {j == 0 || !(low > 0) ? 0 : static_cast<I>(low < end ? low : end),
          j == a.in - 1 || !(high < end) ? a.out - 1 : static_cast<I>(high)};
}
template <AxisKind Kind, class I>
STRATA_EVERYWHERE inline Outputs<I> outputs_of(const BasicAxis<I>& a, I j) {
  if constexpr (Kind == AxisKind::pool) {
    const I at = j + a.padding;
    return {most<I>(0, ceil_div<I>(at - (a.kernel - 1) * a.dilation, a.stride)), least<I>(a.out - 1, at / a.stride)};
  } else if constexpr (Kind == AxisKind::adaptive) {
    return {j * a.out / a.in, least<I>(a.out - 1, ((j + 1) * a.out - 1) / a.in)};
  } else {
    const double step = a.align_corners && !a.nearest
                            ? (a.out > 1 ? static_cast<double>(a.in - 1) / static_cast<double>(a.out - 1) : 0.0)
                            : a.scale;
    return resize_outputs<I>(a, j, 1 / step);
  }
}

/// Whether the window of output i has input j; its weight in `weight`.
template <AxisKind Kind, class W, class I>
STRATA_EVERYWHERE inline bool covers(const BasicAxis<I>& a, I i, I j, W& weight) {
  const Window<I, W> w = window<Kind, W>(a, i);
  const I from = j - w.start;
  const I place = Kind == AxisKind::pool && a.dilation != 1 ? from / a.dilation : from;
  if (from < 0 || place >= w.count || (Kind == AxisKind::pool && place * a.dilation != from)) return false;
  weight = place == 0 ? w.first : w.rest;
  return true;
}

}  // namespace strata::pool
