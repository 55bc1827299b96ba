// Windows of images whose channels lie innermost: sums and largest elements of whole rows of channels.

#include <algorithm>
#include <type_traits>
#include <vector>

#include "strata/core/dispatch.h"
#include "strata/core/parallel.h"
#include "strata/ops/elementwise/kernels.h"
#include "strata/ops/pool/pool_taps_inl.h"
#include "strata/ops/vec/scratch.h"

#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wpsabi"  // vectors are passed between inlined functions of one level only
#endif
#define STRATA_VEC_FILE "strata/ops/pool/pool_last_inl.h"
#include "strata/ops/vec/levels_inl.h"

namespace strata::cpu {
namespace {

constexpr int64_t kLeastChannels = 8, kWork = 16384;  // elements that are worth a thread

template <class C>
auto row_adder() {
  if constexpr (std::is_same_v<C, double>)
    return STRATA_VEC_CALL(add_row_f64)();
  else
    return STRATA_VEC_CALL(add_row_f32)();
}
// Calls f(image, row) for all rows of all images, side by side.
template <class F>
void for_rows(int64_t images, int64_t rows, int64_t work, F&& f) {
  parallel_for(0, images * rows, std::max<int64_t>(1, kWork / std::max<int64_t>(work, 1)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) f(i / rows, i % rows);
               });
}

template <class T>
constexpr bool kNarrow = !std::is_same_v<T, compute_t<T>>;

// What output o has of the input rows (planes of depth and their rows are one list), in order: f(row, weight), where
// row 0 is the image's first.
template <class C>
struct Rows {
  const Taps &d, &h;
  std::vector<C> dw, hw;
  std::vector<int64_t> d0, h0;

  Rows(const Taps& depth, const Taps& height)
      : d(depth),
        h(height),
        dw(depth.weight.begin(), depth.weight.end()),
        hw(height.weight.begin(), height.weight.end()),
        d0(offsets(depth)),
        h0(offsets(height)) {}
  int64_t inputs() const { return d.inputs * h.inputs; }
  int64_t outputs() const { return d.outputs() * h.outputs(); }
  int64_t count(int64_t o) const { return d.count[o / h.outputs()] * h.count[o % h.outputs()]; }
  template <class F>
  void operator()(int64_t o, F&& f) const {
    const int64_t k = o / h.outputs(), i = o % h.outputs();
    for (int64_t c = 0; c < d.count[k]; ++c)
      for (int64_t a = 0; a < h.count[i]; ++a)
        f((d.start[k] + c * d.step) * h.inputs + h.start[i] + a * h.step, dw[d0[k] + c] * hw[h0[i] + a]);
  }
};

// A row of outputs: first the input rows of its windows are added, then columns.
template <class T>
void resample_typed(const Taps& d, const Taps& h, const Taps& w, int64_t images, int64_t channels, const T* x, T* y) {
  using C = compute_t<T>;
  const Rows<C> rows(d, h);
  const auto ww = weights<T>(w);
  const auto wo = offsets(w);
  const auto add = row_adder<C>();
  const int64_t in = w.inputs * channels, out = w.outputs() * channels;
  for_rows(images, rows.outputs(), in + out, [&](int64_t image, int64_t i) {
    ScratchFrame frame;
    C *const sums = frame.take<C>(in), *const wide = frame.take<C>(kNarrow<T> ? std::max(in, out) : 1);
    T* const result = y + (image * rows.outputs() + i) * out;
    bool first = true;
    rows(i, [&](int64_t row, C weight) {
      add(sums, widened(x + (image * rows.inputs() + row) * in, in, wide), weight, in, first);
      first = false;
    });
    if (first) std::fill_n(sums, in, C(0));
    C* to = wide;
    if constexpr (!kNarrow<T>) to = result;
    for (int64_t j = 0; j < w.outputs(); ++j) {
      if (w.count[j] == 0) std::fill_n(to + j * channels, channels, C(0));
      for (int64_t b = 0; b < w.count[j]; ++b)
        add(to + j * channels, sums + (w.start[j] + b * w.step) * channels, ww[wo[j] + b], channels, b == 0);
    }
    if constexpr (kNarrow<T>) narrowed<T>(to, out, result);
  });
}

// What windows of the rows of outputs that have input row i give to it: their columns first.
template <class T>
void transposed_typed(const Taps& d, const Taps& h, const Taps& w, int64_t images, int64_t channels, const T* y, T* x) {
  using C = compute_t<T>;
  const Rows<C> rows(d, h);
  const auto ww = weights<T>(w);
  const auto wo = offsets(w);
  const auto add = row_adder<C>();
  const int64_t in = w.inputs * channels, out = w.outputs() * channels;
  // Outputs by the input rows that they have.
  struct Part {
    int64_t output;
    C weight;
  };
  std::vector<std::vector<Part>> parts(static_cast<size_t>(rows.inputs()));
  for (int64_t i = 0; i < rows.outputs(); ++i)
    rows(i, [&](int64_t row, C weight) { parts[static_cast<size_t>(row)].push_back({i, weight}); });
  for_rows(images, rows.inputs(), in + out, [&](int64_t image, int64_t i) {
    ScratchFrame frame;
    C *const sums = frame.take<C>(out), *const wide = frame.take<C>(kNarrow<T> ? std::max(in, out) : 1);
    T* const result = x + (image * rows.inputs() + i) * in;
    bool first = true;
    for (const Part& p : parts[static_cast<size_t>(i)]) {
      add(sums, widened(y + (image * rows.outputs() + p.output) * out, out, wide), p.weight, out, first);
      first = false;
    }
    if (first) std::fill_n(sums, out, C(0));
    C* to = wide;
    if constexpr (!kNarrow<T>) to = result;
    std::fill_n(to, in, C(0));
    for (int64_t j = 0; j < w.outputs(); ++j)
      for (int64_t b = 0; b < w.count[j]; ++b)
        add(to + (w.start[j] + b * w.step) * channels, sums + j * channels, ww[wo[j] + b], channels, false);
    if constexpr (kNarrow<T>) narrowed<T>(to, in, result);
  });
}

// A pixel of outputs: the largest of its window's pixels, channel by channel.
template <class T>
void max_typed(const Taps& d, const Taps& h, const Taps& w, int64_t images, int64_t channels, const T* x, T* y,
               int64_t* positions) {
  const Rows<compute_t<T>> rows(d, h);
  const DType t = dtype_of<T>;
  const auto largest = STRATA_VEC_CALL(max_pixel);
  const int64_t in = w.inputs * channels, out = w.outputs() * channels;
  int64_t most = 0, columns = 0;
  for (int64_t i = 0; i < rows.outputs(); ++i) most = std::max(most, rows.count(i));
  for (const int64_t n : w.count) columns = std::max(columns, n);
  for_rows(images, rows.outputs(), most * in, [&](int64_t image, int64_t i) {
    ScratchFrame frame;
    int32_t* const place = frame.take<int32_t>(most * columns);
    const T* const from = x + image * rows.inputs() * in;
    const int64_t first = (image * rows.outputs() + i) * out;
    for (int64_t j = 0; j < w.outputs(); ++j) {
      int64_t n = 0;
      rows(i, [&](int64_t row, compute_t<T>) {
        for (int64_t b = 0; b < w.count[j]; ++b)
          place[n++] = static_cast<int32_t>(row * w.inputs + w.start[j] + b * w.step);
      });
      const int64_t to = first + j * channels;
      largest(t, from, place, n, channels, y + to, positions ? positions + to : nullptr);
    }
  });
}

bool fits(const Axes& axes, int64_t channels) {
  return channels >= kLeastChannels && axes[0].in * axes[1].in * axes[2].in < (int64_t{1} << 30);
}

}  // namespace

bool resample_last(const Axes& axes, int64_t images, int64_t channels, DType t, const void* x, void* y) {
  if (!fits(axes, channels)) return false;
  dispatch_floats(t, "resample", [&]<class T>() {
    resample_typed<T>(Taps(axes[0]), Taps(axes[1]), Taps(axes[2]), images, channels, static_cast<const T*>(x),
                      static_cast<T*>(y));
  });
  return true;
}
bool resample_transposed_last(const Axes& axes, int64_t images, int64_t channels, DType t, const void* y, void* x) {
  if (!fits(axes, channels)) return false;
  dispatch_floats(t, "resample", [&]<class T>() {
    transposed_typed<T>(Taps(axes[0]), Taps(axes[1]), Taps(axes[2]), images, channels, static_cast<const T*>(y),
                        static_cast<T*>(x));
  });
  return true;
}
bool window_max_last(const Axes& axes, int64_t images, int64_t channels, DType t, const void* x, void* y,
                     int64_t* positions) {
  if (!fits(axes, channels)) return false;
  dispatch_floats(t, "max_pool", [&]<class T>() {
    max_typed<T>(Taps(axes[0]), Taps(axes[1]), Taps(axes[2]), images, channels, static_cast<const T*>(x),
                 static_cast<T*>(y), positions);
  });
  return true;
}

bool plane_scatter_last(int64_t images, int64_t channels, int64_t in, int64_t out, DType t, const void* y,
                        const int64_t* positions, void* x) {
  if (channels < kLeastChannels) return false;
  constexpr int64_t kTogether = 64;
  const int64_t blocks = (channels + kTogether - 1) / kTogether;
  dispatch_floats(t, "plane_scatter", [&]<class T>() {
    using C = compute_t<T>;
    for_rows(images, blocks, (in + out) * std::min(channels, kTogether), [&](int64_t image, int64_t block) {
      const int64_t begin = block * kTogether, n = std::min(kTogether, channels - begin);
      ScratchFrame frame;
      C* const sums = frame.take<C>(in * n);
      std::fill_n(sums, in * n, C(0));
      for (int64_t i = 0; i < out; ++i) {
        const int64_t from = (image * out + i) * channels + begin;
        for (int64_t c = 0; c < n; ++c) {
          const int64_t at = positions[from + c];
          if (at >= 0 && at < in) sums[at * n + c] += static_cast<C>(static_cast<const T*>(y)[from + c]);
        }
      }
      for (int64_t i = 0; i < in; ++i)
        narrowed<T>(sums + i * n, n, static_cast<T*>(x) + (image * in + i) * channels + begin);
    });
  });
  return true;
}

}  // namespace strata::cpu
