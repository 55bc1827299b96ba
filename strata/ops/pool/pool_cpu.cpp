#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include "strata/core/dispatch.h"
#include "strata/core/parallel.h"
#include "strata/ops/pool/pool_kernels.h"
#include "strata/ops/vec/scratch.h"

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

// Calls f(plane) for every plane, on several threads where there is enough work.
template <class F>
void for_planes(int64_t planes, int64_t work, F&& f) {
  parallel_for(0, planes, std::max<int64_t>(1, 16384 / std::max<int64_t>(work, 1)), [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) f(p);
  });
}

int64_t taps_of(const Taps& t) {
  return std::accumulate(t.count.begin(), t.count.end(), int64_t{0});
}

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

// The taps of all three dimensions and the sizes of planes.
struct Windows {
  Taps d, h, w;
  int64_t in, out;

  explicit Windows(const Axes& a)
      : d(a[0]), h(a[1]), w(a[2]), in(d.inputs * h.inputs * w.inputs), out(d.outputs() * h.outputs() * w.outputs()) {}
  int64_t work() const { return taps_of(d) * taps_of(h) * taps_of(w); }
  int64_t row_at(int64_t plane, int64_t row) const { return (plane * h.inputs + row) * w.inputs; }
};

// One dimension after the other: rows are short sums, then whole rows are added up.

// to[i] = the sum of the rows that window i has, times their weights; rows are `width` numbers.
template <class C>
void add_windows(const Taps& t, const std::vector<C>& weight, const std::vector<int64_t>& offset, const C* from, C* to,
                 int64_t width) {
  for (int64_t i = 0; i < t.outputs(); ++i, to += width) {
    if (t.count[i] == 0) std::fill_n(to, width, C(0));
    for (int64_t a = 0; a < t.count[i]; ++a) {
      const C* row = from + (t.start[i] + a * t.step) * width;
      const C w = weight[offset[i] + a];
      if (a == 0) {
        for (int64_t j = 0; j < width; ++j) to[j] = w * row[j];
      } else {
        for (int64_t j = 0; j < width; ++j) to[j] += w * row[j];
      }
    }
  }
}
// The transpose, into zeros.
template <class C>
void spread_windows(const Taps& t, const std::vector<C>& weight, const std::vector<int64_t>& offset, const C* from,
                    C* to, int64_t width) {
  std::fill_n(to, t.inputs * width, C(0));
  for (int64_t i = 0; i < t.outputs(); ++i, from += width) {
    for (int64_t a = 0; a < t.count[i]; ++a) {
      C* row = to + (t.start[i] + a * t.step) * width;
      const C w = weight[offset[i] + a];
      for (int64_t j = 0; j < width; ++j) row[j] += w * from[j];
    }
  }
}

template <class T>
void resample_typed(const Windows& t, int64_t planes, const T* x, T* y) {
  using C = compute_t<T>;
  const Taps &d = t.d, &h = t.h, &w = t.w;
  const auto dw = weights<T>(d), hw = weights<T>(h), ww = weights<T>(w);
  const auto d0 = offsets(d), ho = offsets(h), wo = offsets(w);
  const int64_t rows = d.inputs * h.inputs, cols = w.outputs();
  for_planes(planes, taps_of(w) * rows + taps_of(h) * d.inputs * cols, [&](int64_t p) {
    ScratchFrame frame;
    C *first = frame.take<C>(rows * cols), *second = frame.take<C>(d.inputs * h.outputs() * cols),
      *third = frame.take<C>(t.out);
    for (int64_t r = 0; r < rows; ++r) {
      const T* row = x + p * t.in + r * w.inputs;
      for (int64_t j = 0; j < cols; ++j) {
        const T* at = row + w.start[j];
        C sum = 0;
        for (int64_t b = 0; b < w.count[j]; ++b) sum += ww[wo[j] + b] * static_cast<C>(at[b * w.step]);
        first[r * cols + j] = sum;
      }
    }
    for (int64_t k = 0; k < d.inputs; ++k)
      add_windows(h, hw, ho, first + k * h.inputs * cols, second + k * h.outputs() * cols, cols);
    add_windows(d, dw, d0, second, third, h.outputs() * cols);
    for (int64_t i = 0; i < t.out; ++i) y[p * t.out + i] = static_cast<T>(third[i]);
  });
}

template <class T>
void transposed_typed(const Windows& t, int64_t planes, const T* y, T* x) {
  using C = compute_t<T>;
  const Taps &d = t.d, &h = t.h, &w = t.w;
  const auto dw = weights<T>(d), hw = weights<T>(h), ww = weights<T>(w);
  const auto d0 = offsets(d), ho = offsets(h), wo = offsets(w);
  const int64_t rows = d.inputs * h.inputs, cols = w.outputs();
  for_planes(planes, taps_of(w) * rows + taps_of(h) * d.inputs * cols, [&](int64_t p) {
    ScratchFrame frame;
    C *third = frame.take<C>(t.out), *second = frame.take<C>(d.inputs * h.outputs() * cols),
      *first = frame.take<C>(rows * cols), *sums = frame.take<C>(w.inputs);
    for (int64_t i = 0; i < t.out; ++i) third[i] = static_cast<C>(y[p * t.out + i]);
    spread_windows(d, dw, d0, third, second, h.outputs() * cols);
    for (int64_t k = 0; k < d.inputs; ++k)
      spread_windows(h, hw, ho, second + k * h.outputs() * cols, first + k * h.inputs * cols, cols);
    for (int64_t r = 0; r < rows; ++r) {
      std::fill_n(sums, w.inputs, C(0));
      for (int64_t j = 0; j < cols; ++j) {
        C* to = sums + w.start[j];
        const C g = first[r * cols + j];
        for (int64_t b = 0; b < w.count[j]; ++b) to[b * w.step] += g * ww[wo[j] + b];
      }
      for (int64_t j = 0; j < w.inputs; ++j) x[p * t.in + r * w.inputs + j] = static_cast<T>(sums[j]);
    }
  });
}

template <class T>
void max_typed(const Windows& t, int64_t planes, const T* x, T* y, int64_t* positions) {
  using C = compute_t<T>;
  const Taps &d = t.d, &h = t.h, &w = t.w;
  for_planes(planes, t.work(), [&](int64_t p) {
    const T* from = x + p * t.in;
    int64_t to = p * t.out;
    for (int64_t k = 0; k < d.outputs(); ++k) {
      for (int64_t i = 0; i < h.outputs(); ++i) {
        for (int64_t j = 0; j < w.outputs(); ++j, ++to) {
          C best = -std::numeric_limits<C>::infinity();
          int64_t at = -1;
          for (int64_t c = 0; c < d.count[k]; ++c) {
            for (int64_t a = 0; a < h.count[i]; ++a) {
              const int64_t row = t.row_at(d.start[k] + c * d.step, h.start[i] + a * h.step) + w.start[j];
              for (int64_t b = 0; b < w.count[j]; ++b) {
                const int64_t here = row + b * w.step;
                const C v = static_cast<C>(from[here]);
                if (at < 0 || v > best || (v != v && best == best)) best = v, at = here;
              }
            }
          }
          y[to] = static_cast<T>(best);
          positions[to] = at;
        }
      }
    }
  });
}
}  // namespace

void resample(const Axes& axes, int64_t planes, DType t, const void* x, void* y) {
  dispatch_floats(t, "resample", [&]<class T>() {
    resample_typed<T>(Windows(axes), planes, static_cast<const T*>(x), static_cast<T*>(y));
  });
}
void resample_transposed(const Axes& axes, int64_t planes, DType t, const void* y, void* x) {
  dispatch_floats(t, "resample", [&]<class T>() {
    transposed_typed<T>(Windows(axes), planes, static_cast<const T*>(y), static_cast<T*>(x));
  });
}
void window_max(const Axes& axes, int64_t planes, DType t, const void* x, void* y, int64_t* positions) {
  dispatch_floats(t, "max_pool", [&]<class T>() {
    max_typed<T>(Windows(axes), planes, static_cast<const T*>(x), static_cast<T*>(y), positions);
  });
}

void plane_scatter(int64_t planes, int64_t in, int64_t out, DType t, const void* y, const int64_t* positions, void* x) {
  dispatch_floats(t, "plane_scatter", [&]<class T>() {
    using C = compute_t<T>;
    for_planes(planes, in + out, [&](int64_t p) {
      std::vector<C> sums(static_cast<size_t>(in));
      for (int64_t i = 0; i < out; ++i) {
        const int64_t at = positions[p * out + i];
        if (at >= 0 && at < in) sums[at] += static_cast<C>(static_cast<const T*>(y)[p * out + i]);
      }
      for (int64_t i = 0; i < in; ++i) static_cast<T*>(x)[p * in + i] = static_cast<T>(sums[i]);
    });
  });
}

void plane_gather(int64_t planes, int64_t in, int64_t out, DType t, const void* x, const int64_t* positions, void* y) {
  dispatch_floats(t, "plane_gather", [&]<class T>() {
    for_planes(planes, out, [&](int64_t p) {
      for (int64_t i = 0; i < out; ++i) {
        const int64_t at = positions[p * out + i];
        static_cast<T*>(y)[p * out + i] = at >= 0 && at < in ? static_cast<const T*>(x)[p * in + at] : T(0.0f);
      }
    });
  });
}

}  // namespace strata::cpu
