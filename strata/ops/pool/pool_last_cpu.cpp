// Windows of images whose channels lie innermost: sums and largest elements of whole rows of channels.

#include <algorithm>
#include <limits>
#include <type_traits>
#include <vector>

#include "strata/core/dispatch.h"
#include "strata/core/parallel.h"
#include "strata/ops/elementwise/kernels.h"
#include "strata/ops/pool/pool_taps_inl.h"
#include "strata/ops/vec/scratch.h"

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
template <class C>
auto row_chooser() {
  if constexpr (std::is_same_v<C, double>)
    return STRATA_VEC_CALL(max_row_f64)();
  else
    return STRATA_VEC_CALL(max_row_f32)();
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

// A row of outputs: first the input rows of its windows are added, then columns.
template <class T>
void resample_typed(const Taps& h, const Taps& w, int64_t images, int64_t channels, const T* x, T* y) {
  using C = compute_t<T>;
  const auto hw = weights<T>(h), ww = weights<T>(w);
  const auto ho = offsets(h), wo = offsets(w);
  const auto add = row_adder<C>();
  const int64_t in = w.inputs * channels, out = w.outputs() * channels;
  for_rows(images, h.outputs(), in + out, [&](int64_t image, int64_t i) {
    ScratchFrame frame;
    C *const sums = frame.take<C>(in), *const wide = frame.take<C>(kNarrow<T> ? std::max(in, out) : 1);
    T* const result = y + (image * h.outputs() + i) * out;
    if (h.count[i] == 0) std::fill_n(sums, in, C(0));
    for (int64_t a = 0; a < h.count[i]; ++a) {
      const T* const row = x + (image * h.inputs + h.start[i] + a * h.step) * in;
      add(sums, widened(row, in, wide), hw[ho[i] + a], in, a == 0);
    }
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
void transposed_typed(const Taps& h, const Taps& w, int64_t images, int64_t channels, const T* y, T* x) {
  using C = compute_t<T>;
  const auto hw = weights<T>(h), ww = weights<T>(w);
  const auto ho = offsets(h), wo = offsets(w);
  const auto add = row_adder<C>();
  const int64_t in = w.inputs * channels, out = w.outputs() * channels;
  // Outputs by the input rows that they have.
  struct Part {
    int64_t output;
    C weight;
  };
  std::vector<std::vector<Part>> parts(static_cast<size_t>(h.inputs));
  for (int64_t i = 0; i < h.outputs(); ++i)
    for (int64_t a = 0; a < h.count[i]; ++a)
      parts[static_cast<size_t>(h.start[i] + a * h.step)].push_back({i, hw[ho[i] + a]});
  for_rows(images, h.inputs, in + out, [&](int64_t image, int64_t i) {
    ScratchFrame frame;
    C *const sums = frame.take<C>(out), *const wide = frame.take<C>(kNarrow<T> ? std::max(in, out) : 1);
    T* const result = x + (image * h.inputs + i) * in;
    bool first = true;
    for (const Part& p : parts[static_cast<size_t>(i)]) {
      add(sums, widened(y + (image * h.outputs() + p.output) * out, out, wide), p.weight, out, first);
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

template <class T>
void max_typed(const Taps& h, const Taps& w, int64_t images, int64_t channels, const T* x, T* y, int64_t* positions) {
  using C = compute_t<T>;
  const auto choose = row_chooser<C>();
  const int64_t in = w.inputs * channels, out = w.outputs() * channels;
  int64_t most = 1;
  for (const int64_t n : h.count) most = std::max(most, n);
  for_rows(images, h.outputs(), most * in, [&](int64_t image, int64_t i) {
    ScratchFrame frame;
    C* const room = frame.take<C>(kNarrow<T> ? most * in : 1);
    C* const best = frame.take<C>(kNarrow<T> ? out : 1);
    int32_t* const place = frame.take<int32_t>(channels);
    const int64_t first = (image * h.outputs() + i) * out;
    C* to = best;
    if constexpr (!kNarrow<T>) to = y + first;
    if constexpr (kNarrow<T>)
      for (int64_t a = 0; a < h.count[i]; ++a)
        widened(x + (image * h.inputs + h.start[i] + a * h.step) * in, in, room + a * in);
    for (int64_t j = 0; j < w.outputs(); ++j) {
      C* const largest = to + j * channels;
      if (h.count[i] == 0 || w.count[j] == 0) {
        std::fill_n(largest, channels, -std::numeric_limits<C>::infinity());
        std::fill_n(place, channels, -1);
      }
      for (int64_t a = 0; a < h.count[i]; ++a) {
        const int64_t row = h.start[i] + a * h.step;
        const C* from = room + a * in;
        if constexpr (!kNarrow<T>) from = x + (image * h.inputs + row) * in;
        for (int64_t b = 0; b < w.count[j]; ++b) {
          const int64_t column = w.start[j] + b * w.step;
          choose(largest, place, from + column * channels, static_cast<int32_t>(row * w.inputs + column), channels,
                 a + b == 0);
        }
      }
      std::copy_n(place, channels, positions + first + j * channels);
    }
    if constexpr (kNarrow<T>) narrowed<T>(to, out, y + first);
  });
}

bool fits(const Axes& axes, int64_t channels) {
  return channels >= kLeastChannels && axes[1].in * axes[2].in < (int64_t{1} << 30);
}

}  // namespace

bool resample_last(const Axes& axes, int64_t images, int64_t channels, DType t, const void* x, void* y) {
  if (!fits(axes, channels)) return false;
  dispatch_floats(t, "resample", [&]<class T>() {
    resample_typed<T>(Taps(axes[1]), Taps(axes[2]), images, channels, static_cast<const T*>(x), static_cast<T*>(y));
  });
  return true;
}
bool resample_transposed_last(const Axes& axes, int64_t images, int64_t channels, DType t, const void* y, void* x) {
  if (!fits(axes, channels)) return false;
  dispatch_floats(t, "resample", [&]<class T>() {
    transposed_typed<T>(Taps(axes[1]), Taps(axes[2]), images, channels, static_cast<const T*>(y), static_cast<T*>(x));
  });
  return true;
}
bool window_max_last(const Axes& axes, int64_t images, int64_t channels, DType t, const void* x, void* y,
                     int64_t* positions) {
  if (!fits(axes, channels)) return false;
  dispatch_floats(t, "max_pool", [&]<class T>() {
    max_typed<T>(Taps(axes[1]), Taps(axes[2]), images, channels, static_cast<const T*>(x), static_cast<T*>(y),
                 positions);
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
