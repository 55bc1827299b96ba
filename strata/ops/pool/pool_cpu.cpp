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
    const ScratchFrame outer;  // frames within an open one cost no exchange with those who give memory back
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

// One dimension after the other. Where they shrink, whole rows are added up first, so that few short sums are left;
// where they grow, the short sums come first.

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

// Whether each output is its input.
bool is_copy(const Taps& t) {
  if (t.inputs != t.outputs()) return false;
  for (int64_t i = 0; i < t.inputs; ++i)
    if (t.count[i] != 1 || t.start[i] != i || t.weight[static_cast<size_t>(i)] != 1) return false;
  return true;
}

// The sums of windows along rows, `rows` of them; a window's elements lie t.step apart. Windows that lie at equal
// distances go side by side, of long ones each by itself.
template <class C>
struct RowSums {
  const Taps& t;
  const Even even;
  const std::vector<C> weight;
  const std::vector<int64_t> offset;
  bool many, uniform = true;  // every window has one weight for all of its elements
  // Windows of one or two elements, as resizing has them: both, or the one twice, whose sums are then written again.
  struct Pair {
    int64_t first, second;
    C w, v;
  };
  std::vector<Pair> pairs;
  std::vector<int64_t> singles;

  explicit RowSums(const Taps& taps)
      : t(taps), even(taps), weight(taps.weight.begin(), taps.weight.end()), offset(offsets(taps)) {
    many = even.end - even.begin >= 8 && t.count[even.begin] <= 16;
    for (int64_t i = even.begin; many && i < even.end; ++i)
      for (int64_t a = 0; a < t.count[i]; ++a) many = many && weight[offset[i] + a] == weight[offset[even.begin] + a];
    for (int64_t i = 0; i < t.outputs(); ++i)
      for (int64_t a = 1; a < t.count[i]; ++a) uniform = uniform && weight[offset[i] + a] == weight[offset[i]];
    const auto [least, most] = std::minmax_element(t.count.begin(), t.count.end());
    if (many || t.count.empty() || *least < 1 || *most != 2) return;
    for (int64_t j = 0; j < t.outputs(); ++j) {
      const int64_t next = t.count[j] - 1;
      pairs.push_back({t.start[j], t.start[j] + next * t.step, weight[offset[j]], weight[offset[j] + next]});
      if (next == 0) singles.push_back(j);
    }
  }
  C one(const C* row, int64_t j) const {
    const C* at = row + t.start[j];
    const C* w = weight.data() + offset[j];
    const int64_t n = t.count[j];
    if (t.step == 1 && uniform && n >= 4) return STRATA_VEC_CALL(sum_of_run<C>)(at, n) * w[0];
    C sum = 0;
    for (int64_t b = 0; b < n; ++b) sum += w[b] * at[b * t.step];
    return sum;
  }
  void operator()(const C* row, C* to) const {
    if (!pairs.empty()) {
      const Pair* const pair = pairs.data();
      for (int64_t j = 0, n = t.outputs(); j < n; ++j)
        to[j] = pair[j].w * row[pair[j].first] + pair[j].v * row[pair[j].second];
      for (const int64_t j : singles) to[j] = pair[j].w * row[pair[j].first];
      return;
    }
    const int64_t begin = many ? even.begin : t.outputs(), end = many ? even.end : t.outputs();
    for (int64_t j = 0; j < begin; ++j) to[j] = one(row, j);
    if (begin < end) STRATA_VEC_CALL(sum_taps<C>)
    (row + t.start[begin], even.stride, t.step, t.count[begin], weight.data() + offset[begin], uniform, to + begin,
     end - begin);
    for (int64_t j = end; j < t.outputs(); ++j) to[j] = one(row, j);
  }
};

template <class T>
void resample_typed(const Windows& t, int64_t planes, const T* x, T* y) {
  using C = compute_t<T>;
  const Taps &d = t.d, &h = t.h, &w = t.w;
  const auto dw = weights<T>(d), hw = weights<T>(h);
  const auto d0 = offsets(d), ho = offsets(h);
  const RowSums<C> row_sums(w);
  const int64_t cols = w.outputs();
  const bool no_d = is_copy(d), no_h = is_copy(h), no_w = is_copy(w);
  const bool shrinks = d.outputs() <= d.inputs && h.outputs() <= h.inputs;
  const int64_t work = shrinks ? t.in + t.out : taps_of(w) * d.inputs * h.inputs + taps_of(h) * d.inputs * cols;
  for_planes(planes, work, [&](int64_t p) {
    ScratchFrame frame;
    const C* from = widened(x + p * t.in, t.in, std::is_same_v<T, C> ? nullptr : frame.take<C>(t.in));
    C* const last = [&] {
      if constexpr (std::is_same_v<T, C>)
        return y + p * t.out;
      else
        return frame.take<C>(t.out);
    }();
    const auto along_d = [&](int64_t width, C* to) {
      add_windows(d, dw, d0, from, to, width);
      from = to;
    };
    const auto along_h = [&](int64_t count, int64_t width, C* to) {
      for (int64_t k = 0; k < count; ++k)
        add_windows(h, hw, ho, from + k * h.inputs * width, to + k * h.outputs() * width, width);
      from = to;
    };
    const auto along_w = [&](int64_t rows, C* to) {
      for (int64_t r = 0; r < rows; ++r) row_sums(from + r * w.inputs, to + r * cols);
      from = to;
    };
    if (shrinks) {
      const int64_t deep = d.outputs(), rows = deep * h.outputs();
      if (!no_d) along_d(h.inputs * w.inputs, no_h && no_w ? last : frame.take<C>(deep * h.inputs * w.inputs));
      if (!no_h) along_h(deep, w.inputs, no_w ? last : frame.take<C>(rows * w.inputs));
      if (!no_w) along_w(rows, last);
    } else {
      const int64_t rows = d.inputs * h.inputs;
      if (!no_w) along_w(rows, no_h && no_d ? last : frame.take<C>(rows * cols));
      if (!no_h) along_h(d.inputs, cols, no_d ? last : frame.take<C>(d.inputs * h.outputs() * cols));
      if (!no_d) along_d(h.outputs() * cols, last);
    }
    if (!std::is_same_v<T, C> || from != last) narrowed<T>(from, t.out, y + p * t.out);
  });
}

template <class T>
void transposed_typed(const Windows& t, int64_t planes, const T* y, T* x) {
  using C = compute_t<T>;
  const Taps &d = t.d, &h = t.h, &w = t.w;
  const auto dw = weights<T>(d), hw = weights<T>(h), ww = weights<T>(w);
  const auto d0 = offsets(d), ho = offsets(h), wo = offsets(w);
  const int64_t cols = w.outputs();
  const bool no_d = is_copy(d), no_h = is_copy(h), no_w = is_copy(w);
  const bool shrinks = d.outputs() <= d.inputs && h.outputs() <= h.inputs;
  const int64_t work = shrinks ? t.in + t.out : taps_of(w) * d.inputs * h.inputs + taps_of(h) * d.inputs * cols;
  for_planes(planes, work, [&](int64_t p) {
    ScratchFrame frame;
    const C* from = widened(y + p * t.out, t.out, std::is_same_v<T, C> ? nullptr : frame.take<C>(t.out));
    C* const last = [&] {
      if constexpr (std::is_same_v<T, C>)
        return x + p * t.in;
      else
        return frame.take<C>(t.in);
    }();
    const auto along_d = [&](int64_t width, C* to) {
      spread_windows(d, dw, d0, from, to, width);
      from = to;
    };
    const auto along_h = [&](int64_t count, int64_t width, C* to) {
      for (int64_t k = 0; k < count; ++k)
        spread_windows(h, hw, ho, from + k * h.outputs() * width, to + k * h.inputs * width, width);
      from = to;
    };
    const auto along_w = [&](int64_t rows, C* into) {
      std::fill_n(into, rows * w.inputs, C(0));
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t j = 0; j < cols; ++j) {
          C* to = into + r * w.inputs + w.start[j];
          const C g = from[r * cols + j];
          const C* const weight = ww.data() + wo[j];
          if (w.step == 1) {
            for (int64_t b = 0; b < w.count[j]; ++b) to[b] += g * weight[b];
          } else {
            for (int64_t b = 0; b < w.count[j]; ++b) to[b * w.step] += g * weight[b];
          }
        }
      }
      from = into;
    };
    if (shrinks) {
      const int64_t deep = d.outputs(), rows = deep * h.outputs();
      if (!no_w) along_w(rows, no_h && no_d ? last : frame.take<C>(rows * w.inputs));
      if (!no_h) along_h(deep, w.inputs, no_d ? last : frame.take<C>(deep * h.inputs * w.inputs));
      if (!no_d) along_d(h.inputs * w.inputs, last);
    } else {
      const int64_t rows = d.inputs * h.inputs;
      if (!no_d) along_d(h.outputs() * cols, no_h && no_w ? last : frame.take<C>(d.inputs * h.outputs() * cols));
      if (!no_h) along_h(d.inputs, cols, no_w ? last : frame.take<C>(rows * cols));
      if (!no_w) along_w(rows, last);
    }
    if (!std::is_same_v<T, C> || from != last) narrowed<T>(from, t.in, x + p * t.in);
  });
}

template <class T>
void max_typed(const Windows& t, int64_t planes, const T* x, T* y, int64_t* positions) {
  using C = compute_t<T>;
  const Taps &d = t.d, &h = t.h, &w = t.w;
  const Even even(w);
  const auto taps = STRATA_VEC_CALL(max_taps_of)(std::is_same_v<C, double>);
  const auto values = STRATA_VEC_CALL(max_values_of)(std::is_same_v<C, double>);
  [[maybe_unused]] const auto windows = STRATA_VEC_CALL(max_windows<C>);
  const bool many = even.end - even.begin >= 8 && t.in < (int64_t{1} << 30);
  if constexpr (std::is_same_v<T, C>) {
    // Where the windows of one row go on in those of the next, all rows are one.
    if (!positions && many && t.in == w.inputs && t.out == w.outputs() && even.begin == 0 && even.end == t.out &&
        t.in == t.out * even.stride && w.start[0] == 0) {
      parallel_for(0, planes * t.out, 16384, [&](int64_t begin, int64_t end) {
        constexpr int64_t kBlock = 2048;
        for (int64_t j = begin; j < end; j += kBlock)
          windows(x + j * even.stride, static_cast<int32_t>(even.stride), static_cast<int32_t>(w.step),
                  static_cast<int32_t>(w.count[0]), y + j, static_cast<int32_t>(std::min(kBlock, end - j)));
      });
      return;
    }
  }
  if constexpr (std::is_same_v<T, C>) {
    // Planes of one row, which are too short for what a plane costs below.
    if (!positions && many && t.in == w.inputs && t.out == w.outputs() && d.count[0] == 1 && h.count[0] == 1) {
      const int64_t first = even.begin, last = even.end;
      for_planes(planes, taps_of(w), [&](int64_t p) {
        const C* const from = x + p * t.in;
        C* const to = y + p * t.out;
        const auto one = [&](int64_t j) {
          C best = -std::numeric_limits<C>::infinity();
          for (int64_t b = 0; b < w.count[j]; ++b) {
            const C v = from[w.start[j] + b * w.step];
            best = v > best || v != v ? v : best;
          }
          to[j] = best;
        };
        for (int64_t j = 0; j < first; ++j) one(j);
        windows(from + w.start[first], static_cast<int32_t>(even.stride), static_cast<int32_t>(w.step),
                static_cast<int32_t>(w.count[first]), to + first, static_cast<int32_t>(last - first));
        for (int64_t j = last; j < w.outputs(); ++j) one(j);
      });
      return;
    }
  }
  // Else, of windows that hardly overlap: the largest of each column, and of these the largest of each window.
  const bool columns = !many && t.in < (int64_t{1} << 30) && taps_of(w) <= 2 * w.inputs && w.step == 1;
  const auto best_of = STRATA_VEC_CALL(best_of_run<C>);
  for_planes(planes, t.work(), [&](int64_t p) {
    ScratchFrame frame;
    const C* from = widened(x + p * t.in, t.in, std::is_same_v<T, C> ? nullptr : frame.take<C>(t.in));
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
      if (positions) positions[to + j] = at;
    };
    for (int64_t k = 0; k < d.outputs(); ++k) {
      for (int64_t i = 0; i < h.outputs(); ++i, to += w.outputs()) {
        if (columns && d.count[k] > 0 && h.count[i] > 0) {
          const C* row_values = nullptr;
          int32_t* places = nullptr;
          ScratchFrame inner;
          if (d.count[k] * h.count[i] == 1) {
            rows(k, i, [&](int64_t row, int64_t) { row_values = from + row; });
          } else {
            C* const best = inner.take<C>(w.inputs);
            places = inner.take<int32_t>(w.inputs);
            rows(k, i, [&](int64_t row, int64_t number) {
              taps(from, 1, static_cast<int32_t>(row), best, places, static_cast<int32_t>(w.inputs), number == 0);
            });
            row_values = best;
          }
          for (int64_t j = 0; j < w.outputs(); ++j) {
            C best = -std::numeric_limits<C>::infinity();
            int64_t at = -1;
            if (w.count[j] > 0) {
              at = best_of(row_values + w.start[j], places ? places + w.start[j] : nullptr, w.count[j], &best);
              if (!places) at += row_values - from + w.start[j];
            }
            y[to + j] = static_cast<T>(best);
            if (positions) positions[to + j] = at;
          }
          continue;
        }
        const bool side_by_side = many && d.count[k] > 0 && h.count[i] > 0;
        const int64_t begin = side_by_side ? even.begin : w.outputs(), end = side_by_side ? even.end : w.outputs();
        for (int64_t j = 0; j < begin; ++j) one(k, i, j);
        constexpr int64_t kBlock = 256;
        for (int64_t j = begin; j < end; j += kBlock) {
          const int64_t n = std::min(kBlock, end - j);
          C buffer[std::is_same_v<T, C> ? 1 : kBlock];
          C* best = buffer;
          if constexpr (std::is_same_v<T, C>) best = y + to + j;
          int32_t place[kBlock];
          rows(k, i, [&](int64_t row, int64_t number) {
            for (int64_t b = 0; b < w.count[j]; ++b)
              (positions ? taps : values)(from, static_cast<int32_t>(even.stride),
                                          static_cast<int32_t>(row + w.start[j] + b * w.step), best, place,
                                          static_cast<int32_t>(n), number + b == 0);
          });
          if constexpr (!std::is_same_v<T, C>) narrowed<T>(best, n, y + to + j);
          if (positions) std::copy(place, place + n, positions + to + j);
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
    const int64_t grain = std::max<int64_t>(1, 16384 / std::max<int64_t>(in + out, 1));
    const auto add = [in, out, positions](const C* from, int64_t p, C* sums) {
      for (int64_t i = 0; i < out; ++i) {
        const int64_t at = positions[p * out + i];
        if (at >= 0 && at < in) sums[at] += from[i];
      }
    };
    parallel_for(0, planes, grain, [&](int64_t begin, int64_t end) {
      if constexpr (std::is_same_v<T, C>) {  // planes may be as small as a few elements
        C* const sums = static_cast<C*>(x);
        std::fill_n(sums + begin * in, (end - begin) * in, C(0));
        for (int64_t p = begin; p < end; ++p) add(static_cast<const C*>(y) + p * out, p, sums + p * in);
      } else {
        ScratchFrame frame;
        C *const from = frame.take<C>(out), *const sums = frame.take<C>(in);
        for (int64_t p = begin; p < end; ++p) {
          std::fill_n(sums, in, C(0));
          add(widened(static_cast<const T*>(y) + p * out, out, from), p, sums);
          narrowed<T>(sums, in, static_cast<T*>(x) + p * in);
        }
      }
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
