#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include "strata/core/dispatch.h"
#include "strata/core/parallel.h"
#include "strata/ops/elementwise/kernels.h"
#include "strata/ops/pool/pool_kernels.h"
#include "strata/ops/pool/pool_taps_inl.h"
#include "strata/ops/vec/scratch.h"

#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wpsabi"  // vectors are passed between inlined functions of one level only
#endif
#define STRATA_VEC_FILE "strata/ops/pool/max_rows_inl.h"
#include "strata/ops/vec/levels_inl.h"

namespace strata::cpu {
namespace {

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

// Sums of a window's elements, which lie side by side: of a long one eight at a time.
template <class C, class T>
C window_sum(const T* at, const C* weight, int64_t count) {
  constexpr int64_t kLanes = 8;
  C sum = 0;
  int64_t b = 0;
  if (count >= 2 * kLanes) {
    C lanes[kLanes] = {};
    for (; b + kLanes <= count; b += kLanes)
      for (int64_t l = 0; l < kLanes; ++l) lanes[l] += weight[b + l] * static_cast<C>(at[b + l]);
    for (const C v : lanes) sum += v;
  }
  for (; b < count; ++b) sum += weight[b] * static_cast<C>(at[b]);
  return sum;
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
        if (w.step == 1) {
          first[r * cols + j] = window_sum<C>(at, ww.data() + wo[j], w.count[j]);
          continue;
        }
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
        const C* const weight = ww.data() + wo[j];
        if (w.step == 1) {
          for (int64_t b = 0; b < w.count[j]; ++b) to[b] += g * weight[b];
        } else {
          for (int64_t b = 0; b < w.count[j]; ++b) to[b * w.step] += g * weight[b];
        }
      }
      for (int64_t j = 0; j < w.inputs; ++j) x[p * t.in + r * w.inputs + j] = static_cast<T>(sums[j]);
    }
  });
}

// Outputs begin .. end of a row whose windows have equally many elements and lie at equal distances.
struct Even {
  int64_t begin = 0, end = 0, stride = 1;
  explicit Even(const Taps& w) {
    for (int64_t i = 0; i < w.outputs();) {
      const int64_t step = i + 1 < w.outputs() ? w.start[i + 1] - w.start[i] : 1;
      int64_t j = i + 1;
      while (j < w.outputs() && w.count[j] == w.count[i] && w.start[j] - w.start[j - 1] == step) ++j;
      if (w.count[i] > 0 && step > 0 && j - i > end - begin) begin = i, end = j, stride = step;
      i = j;
    }
  }
};

// A plane in the type that it is compared in.
template <class T>
const compute_t<T>* widened(const T* plane, int64_t n, std::vector<compute_t<T>>& buffer) {
  if constexpr (std::is_same_v<T, compute_t<T>>) {
    return plane;
  } else {
    buffer.resize(static_cast<size_t>(n));
    (std::is_same_v<T, Half> ? converters().f16_to_f32 : converters().bf16_to_f32)(buffer.data(), plane, n);
    return buffer.data();
  }
}

template <class T>
void max_typed(const Windows& t, int64_t planes, const T* x, T* y, int64_t* positions) {
  using C = compute_t<T>;
  const Taps &d = t.d, &h = t.h, &w = t.w;
  const Even even(w);
  const auto taps = STRATA_VEC_CALL(max_taps_of)(std::is_same_v<C, double>);
  const bool many = even.end - even.begin >= 8 && t.in < (int64_t{1} << 30);
  for_planes(planes, t.work(), [&](int64_t p) {
    std::vector<C> buffer;
    const C* from = widened(x + p * t.in, t.in, buffer);
    int64_t to = p * t.out;
    // Calls f(place of the row, number of the row) for the input rows of output row (k, i).
    const auto rows = [&](int64_t k, int64_t i, auto&& f) {
      for (int64_t c = 0; c < d.count[k]; ++c)
        for (int64_t a = 0; a < h.count[i]; ++a) f(t.row_at(d.start[k] + c * d.step, h.start[i] + a * h.step), c + a);
    };
    const auto one = [&](int64_t k, int64_t i, int64_t j) {
      C best = -std::numeric_limits<C>::infinity();
      int64_t at = -1;
      for (int64_t c = 0; c < d.count[k]; ++c) {
        for (int64_t a = 0; a < h.count[i]; ++a) {
          const int64_t row = t.row_at(d.start[k] + c * d.step, h.start[i] + a * h.step) + w.start[j];
          for (int64_t b = 0; b < w.count[j]; ++b) {
            const int64_t here = row + b * w.step;
            const C v = from[here];
            if (at < 0 || v > best || (v != v && best == best)) best = v, at = here;
          }
        }
      }
      y[to + j] = static_cast<T>(best);
      positions[to + j] = at;
    };
    for (int64_t k = 0; k < d.outputs(); ++k) {
      for (int64_t i = 0; i < h.outputs(); ++i, to += w.outputs()) {
        const bool side_by_side = many && d.count[k] > 0 && h.count[i] > 0;
        const int64_t begin = side_by_side ? even.begin : w.outputs(), end = side_by_side ? even.end : w.outputs();
        for (int64_t j = 0; j < begin; ++j) one(k, i, j);
        constexpr int64_t kBlock = 256;
        for (int64_t j = begin; j < end; j += kBlock) {
          const int64_t n = std::min(kBlock, end - j);
          C best[kBlock];
          int32_t place[kBlock];
          rows(k, i, [&](int64_t row, int64_t number) {
            for (int64_t b = 0; b < w.count[j]; ++b)
              taps(from, static_cast<int32_t>(even.stride), static_cast<int32_t>(row + w.start[j] + b * w.step), best,
                   place, static_cast<int32_t>(n), number + b == 0);
          });
          for (int64_t m = 0; m < n; ++m) y[to + j + m] = static_cast<T>(best[m]), positions[to + j + m] = place[m];
        }
        for (int64_t j = end; j < w.outputs(); ++j) one(k, i, j);
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
