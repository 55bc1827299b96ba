#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "strata/core/dispatch.h"
#include "strata/core/parallel.h"
#include "strata/ops/copy/copy_kernels.h"
#include "strata/ops/elementwise/kernels.h"
#include "strata/ops/sampling/sampling_kernels.h"
#include "strata/ops/vec/scratch.h"

namespace strata {
namespace {
// What positions read, tap by tap: a pixel (of what is outside one past the plane's, with weight 0) and a weight.
struct SampleReads {
  const int32_t* at;
  const void* weight;  // of the arithmetic type
  int taps, lanes;     // planes side by side
  bool in_double;
};
}  // namespace
}  // namespace strata

#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wpsabi"  // vectors are passed between inlined functions of one level only
#endif
#define STRATA_VEC_FILE "strata/ops/sampling/grid_sample_rows_inl.h"
#include "strata/ops/vec/levels_inl.h"

namespace strata::cpu {
namespace {
using sampling::Call;

// Channels whose gradients one task adds up, so that what a position reads is computed once for them.
constexpr int64_t kBlock = 8;

int64_t grain(int64_t work) {
  return std::max<int64_t>(1, 16384 / std::max<int64_t>(work, 1));
}

// Calls f(item, point, lines) for every position.
template <int Taps, int Dims, class T, class F>
void for_points(const Call& c, const T* grid, int64_t work, F&& f) {
  using C = compute_t<T>;
  parallel_for(0, c.batch * c.points, grain(work), [&](int64_t begin, int64_t end) {
    for (int64_t e = begin; e < end; ++e)
      f(e / c.points, e % c.points, sampling::lines_of<C, Taps, Dims>(c, grid + e * Dims));
  });
}

// ---- planes side by side: where there are positions enough, each reads a vector of channels at once ----

template <class T>
int lanes_of(const Call& c) {
  return std::is_same_v<T, double> ? 8 : c.channels > 4 ? 16 : 4;
}

// Whether turning the planes costs less than it saves, and takes no more than this much memory.
template <class T>
bool worth_turning(const Call& c) {
  constexpr int64_t kMost = int64_t{1} << 26;
  const int64_t size = sizeof(compute_t<T>), plane = c.plane();
  return c.channels > 1 && plane < kMost && c.points < kMost && plane * lanes_of<T>(c) * size <= kMost &&
         c.points * c.taps() * (4 + 2 * size) <= kMost && 2 * c.points * c.taps() >= plane;
}

constexpr int64_t kTile = 128;  // positions or pixels that are turned together

// n elements each of `count` rows, `step` apart, as to[element][lane]; lanes past them are not written.
template <class T>
void side_by_side(const T* from, int64_t step, int64_t count, int64_t n, int lanes, compute_t<T>* to) {
  using C = compute_t<T>;
  constexpr int64_t size = sizeof(T);
  const auto turn = [&](int64_t first, int64_t m, T* into) {
    transpose_elements(size, reinterpret_cast<const char*>(from + first), step * size, reinterpret_cast<char*>(into),
                       lanes * size, m, count);
  };
  if constexpr (std::is_same_v<T, C>) {
    turn(0, n, to);
  } else {
    T buffer[kTile * 16] = {};
    for (int64_t i = 0; i < n; i += kTile) {
      const int64_t m = std::min(kTile, n - i);
      turn(i, m, buffer);
      (std::is_same_v<T, Half> ? converters().f16_to_f32 : converters().bf16_to_f32)(to + i * lanes, buffer, m * lanes);
    }
  }
}
// And back.
template <class T>
void one_by_one(const compute_t<T>* from, int lanes, int64_t count, int64_t n, T* to, int64_t step) {
  using C = compute_t<T>;
  constexpr int64_t size = sizeof(T);
  const auto turn = [&](const T* in, int64_t first, int64_t m) {
    transpose_elements(size, reinterpret_cast<const char*>(in), lanes * size, reinterpret_cast<char*>(to + first),
                       step * size, count, m);
  };
  if constexpr (std::is_same_v<T, C>) {
    turn(from, 0, n);
  } else {
    T buffer[kTile * 16];
    for (int64_t i = 0; i < n; i += kTile) {
      const int64_t m = std::min(kTile, n - i);
      (std::is_same_v<T, Half> ? converters().f32_to_f16 : converters().f32_to_bf16)(buffer, from + i * lanes,
                                                                                     m * lanes);
      turn(buffer, i, m);
    }
  }
}

// What the positions of some items read.
template <class T, int Taps, int Dims>
struct ItemReads {
  using C = compute_t<T>;
  static constexpr int kTaps = sampling::Reads<C, Taps, Dims>::kCount;
  const Call& c;
  const int lanes;
  std::vector<int32_t> at;
  std::vector<C> weight;

  explicit ItemReads(const Call& call) : c(call), lanes(lanes_of<T>(call)) {}
  // So many items that their reads stay near.
  int64_t items() const {
    constexpr int64_t kNear = 1 << 20;
    return std::clamp<int64_t>(kNear / std::max<int64_t>(1, c.points * kTaps), 1, std::max<int64_t>(c.batch, 1));
  }
  void read(const T* grid, int64_t first, int64_t items) {
    const int64_t n = items * c.points;
    at.resize(static_cast<size_t>(n * kTaps)), weight.resize(static_cast<size_t>(n * kTaps));
    parallel_for(0, n, grain(16), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const auto reads =
            sampling::reads_of(c, sampling::lines_of<C, Taps, Dims>(c, grid + (first * c.points + i) * Dims));
        for (int t = 0; t < kTaps; ++t) {
          const bool inside = reads.at[t] >= 0;
          at[static_cast<size_t>(i * kTaps + t)] = static_cast<int32_t>(inside ? reads.at[t] : c.plane());
          weight[static_cast<size_t>(i * kTaps + t)] = inside ? reads.weight[t] : C(0);
        }
      }
    });
  }
  SampleReads of(int64_t item, int64_t point) const {
    const int64_t i = (item * c.points + point) * kTaps;
    return {at.data() + i, weight.data() + i, kTaps, lanes, std::is_same_v<C, double>};
  }
};

// Calls before(first item, items) for one group of items after the other, then in parallel f(reads, item of the group,
// block, first channel of all, channels) for the blocks of its channels, then after(first item, items).
template <class T, int Taps, int Dims, class Before, class F, class After>
void for_blocks(const Call& c, const T* grid, Before&& before, F&& f, After&& after) {
  ItemReads<T, Taps, Dims> reads(c);
  const int64_t lanes = reads.lanes, blocks = (c.channels + lanes - 1) / lanes;
  for (int64_t first = 0; first < c.batch; first += reads.items()) {
    const int64_t items = std::min(reads.items(), c.batch - first);
    reads.read(grid, first, items);
    before(items, blocks);
    parallel_for(0, items * blocks, grain((c.plane() + c.points) * lanes), [&](int64_t begin, int64_t end) {
      for (int64_t task = begin; task < end; ++task) {
        const int64_t item = task / blocks, block = task % blocks;
        f(reads, item, block, (first + item) * c.channels + block * lanes,
          std::min<int64_t>(lanes, c.channels - block * lanes));
      }
    });
    after(first, items, blocks);
  }
}
constexpr auto kNothing = [](auto...) {};

// The pixels of a block of channels, and one more of zeros.
template <class T>
compute_t<T>* turned_pixels(ScratchFrame& frame, const Call& c, int lanes, const T* x, int64_t count) {
  using C = compute_t<T>;
  const int64_t plane = c.plane();
  C* const pixels = frame.take<C>((plane + 1) * lanes);
  if (count < lanes) std::fill_n(pixels, plane * lanes, C(0));
  side_by_side(x, plane, count, plane, lanes, pixels);
  std::fill_n(pixels + plane * lanes, lanes, C(0));
  return pixels;
}

template <class T, int Taps, int Dims>
void forward_turned(const Call& c, const T* x, const T* grid, T* y) {
  using C = compute_t<T>;
  for_blocks<T, Taps, Dims>(
      c, grid, kNothing,
      [&](const auto& reads, int64_t item, int64_t, int64_t channel, int64_t count) {
        ScratchFrame frame;
        const C* const pixels = turned_pixels(frame, c, reads.lanes, x + channel * c.plane(), count);
        C values[kTile * 16];
        for (int64_t i = 0; i < c.points; i += kTile) {
          const int64_t n = std::min(kTile, c.points - i);
          STRATA_VEC_CALL(sample_read)(reads.of(item, i), pixels, values, n);
          one_by_one(values, reads.lanes, count, n, y + channel * c.points + i, c.points);
        }
      },
      kNothing);
}

template <class T, int Taps, int Dims>
void backward_input_turned(const Call& c, const T* g, const T* grid, T* gx) {
  using C = compute_t<T>;
  const int64_t plane = c.plane();
  for_blocks<T, Taps, Dims>(
      c, grid, kNothing,
      [&](const auto& reads, int64_t item, int64_t, int64_t channel, int64_t count) {
        ScratchFrame frame;
        C* const pixels = frame.take<C>((plane + 1) * reads.lanes);
        std::fill_n(pixels, (plane + 1) * reads.lanes, C(0));
        C values[kTile * 16] = {};
        for (int64_t i = 0; i < c.points; i += kTile) {
          const int64_t n = std::min(kTile, c.points - i);
          side_by_side(g + channel * c.points + i, c.points, count, n, reads.lanes, values);
          STRATA_VEC_CALL(sample_spread)(reads.of(item, i), values, pixels, n);
        }
        one_by_one(pixels, reads.lanes, count, plane, gx + channel * plane, plane);
      },
      kNothing);
}

// For each position and tap the sum over channels of gradient times pixel; these times the slopes of the weights.
template <class T, int Taps, int Dims>
void backward_grid_turned(const Call& c, const T* g, const T* x, const T* grid, T* ggrid) {
  using C = compute_t<T>;
  constexpr int kTaps = sampling::Reads<C, Taps, Dims>::kCount;
  std::vector<C> products;  // of each item, block of channels, position and tap
  const int64_t one = c.points * kTaps;
  for_blocks<T, Taps, Dims>(
      c, grid, [&](int64_t items, int64_t blocks) { products.resize(static_cast<size_t>(items * blocks * one)); },
      [&](const auto& reads, int64_t item, int64_t block, int64_t channel, int64_t count) {
        ScratchFrame frame;
        const C* const pixels = turned_pixels(frame, c, reads.lanes, x + channel * c.plane(), count);
        const int64_t blocks = (c.channels + reads.lanes - 1) / reads.lanes;
        C values[kTile * 16] = {};
        C* const to = products.data() + (item * blocks + block) * one;
        for (int64_t i = 0; i < c.points; i += kTile) {
          const int64_t n = std::min(kTile, c.points - i);
          side_by_side(g + channel * c.points + i, c.points, count, n, reads.lanes, values);
          STRATA_VEC_CALL(sample_multiply)(reads.of(item, i), values, pixels, to + i * kTaps, n);
        }
      },
      [&](int64_t first, int64_t items, int64_t blocks) {
        parallel_for(0, items * c.points, grain(16), [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            const int64_t at = first * c.points + i;
            const auto lines = sampling::lines_of<C, Taps, Dims>(c, grid + at * Dims);
            const C* from = products.data() + i / c.points * blocks * one + i % c.points * kTaps;
            C sums[kTaps] = {};
            for (int64_t b = 0; b < blocks; ++b)
              for (int t = 0; t < kTaps; ++t) sums[t] += from[b * one + t];
            for (int d = 0; d < Dims; ++d) {
              const auto reads = sampling::reads_of(c, lines, d);
              C sum = 0;
              for (int t = 0; t < kTaps; ++t)
                if (reads.at[t] >= 0) sum += reads.weight[t] * sums[t];
              ggrid[at * Dims + Dims - 1 - d] = static_cast<T>(sum);
            }
          }
        });
      });
}

// ---- planes as they lie: few positions, or very large planes ----

template <class T, int Taps, int Dims>
void forward(const Call& c, const T* x, const T* grid, T* y) {
  using C = compute_t<T>;
  if (worth_turning<T>(c)) return forward_turned<T, Taps, Dims>(c, x, grid, y);
  // What a block of positions reads is worked out once; then each channel is a row of reads in a plane.
  using Reads = sampling::Reads<C, Taps, Dims>;
  constexpr int64_t kPoints = 64;
  const int64_t plane = c.plane(), blocks = (c.points + kPoints - 1) / kPoints;
  parallel_for(0, c.batch * blocks, grain(kPoints * c.channels * Reads::kCount), [&](int64_t begin, int64_t end) {
    Reads reads[kPoints];
    for (int64_t task = begin; task < end; ++task) {
      const int64_t item = task / blocks, first = task % blocks * kPoints, n = std::min(kPoints, c.points - first);
      for (int64_t i = 0; i < n; ++i)
        reads[i] =
            sampling::reads_of(c, sampling::lines_of<C, Taps, Dims>(c, grid + (item * c.points + first + i) * Dims));
      for (int64_t k = item * c.channels; k < (item + 1) * c.channels; ++k) {
        const T* const from = x + k * plane;
        T* const to = y + k * c.points + first;
        for (int64_t i = 0; i < n; ++i) {
          C sum = 0;
          for (int t = 0; t < Reads::kCount; ++t)
            if (reads[i].at[t] >= 0) sum += reads[i].weight[t] * static_cast<C>(from[reads[i].at[t]]);
          to[i] = static_cast<T>(sum);
        }
      }
    }
  });
}

template <class T, int Taps, int Dims>
void backward_input(const Call& c, const T* g, const T* grid, T* gx) {
  using C = compute_t<T>;
  if (worth_turning<T>(c)) return backward_input_turned<T, Taps, Dims>(c, g, grid, gx);
  const int64_t plane = c.plane(), blocks = (c.channels + kBlock - 1) / kBlock;
  parallel_for(0, c.batch * blocks, 1, [&](int64_t begin, int64_t end) {
    std::vector<C> sums;
    for (int64_t task = begin; task < end; ++task) {
      const int64_t item = task / blocks, first = task % blocks * kBlock, count = std::min(kBlock, c.channels - first);
      const T* from = g + (item * c.channels + first) * c.points;
      sums.assign(static_cast<size_t>(count * plane), C(0));
      for (int64_t point = 0; point < c.points; ++point) {
        const auto reads =
            sampling::reads_of(c, sampling::lines_of<C, Taps, Dims>(c, grid + (item * c.points + point) * Dims));
        for (int64_t k = 0; k < count; ++k) {
          const C value = static_cast<C>(from[k * c.points + point]);
          for (int t = 0; t < reads.kCount; ++t)
            if (reads.at[t] >= 0) sums[static_cast<size_t>(k * plane + reads.at[t])] += reads.weight[t] * value;
        }
      }
      T* to = gx + (item * c.channels + first) * plane;
      for (size_t i = 0; i < sums.size(); ++i) to[i] = static_cast<T>(sums[i]);
    }
  });
}

template <class T, int Taps, int Dims>
void backward_grid(const Call& c, const T* g, const T* x, const T* grid, T* ggrid) {
  using C = compute_t<T>;
  if (c.mode == sampling::Mode::nearest) {
    std::fill_n(ggrid, c.batch * c.points * Dims, T(0.0f));
    return;
  }
  if (worth_turning<T>(c)) return backward_grid_turned<T, Taps, Dims>(c, g, x, grid, ggrid);
  const int64_t plane = c.plane();
  for_points<Taps, Dims>(c, grid, Dims * c.channels * c.taps(), [&](int64_t item, int64_t point, const auto& lines) {
    for (int d = 0; d < Dims; ++d) {
      const auto reads = sampling::reads_of(c, lines, d);
      C sum = 0;
      for (int64_t k = 0; k < c.channels; ++k) {
        const T* from = x + (item * c.channels + k) * plane;
        C change = 0;
        for (int t = 0; t < reads.kCount; ++t)
          if (reads.at[t] >= 0) change += reads.weight[t] * static_cast<C>(from[reads.at[t]]);
        sum += change * static_cast<C>(g[(item * c.channels + k) * c.points + point]);
      }
      ggrid[(item * c.points + point) * Dims + Dims - 1 - d] = static_cast<T>(sum);
    }
  });
}

}  // namespace

void grid_sample(const Call& c, const void* x, const void* grid, void* y) {
  dispatch_floats(c.dtype, "grid_sample", [&]<class T>() {
    sampling::dispatch_mode(c, [&]<int Taps, int Dims>() {
      forward<T, Taps, Dims>(c, static_cast<const T*>(x), static_cast<const T*>(grid), static_cast<T*>(y));
    });
  });
}
void grid_sample_backward_input(const Call& c, const void* g, const void* grid, void* gx) {
  dispatch_floats(c.dtype, "grid_sample", [&]<class T>() {
    sampling::dispatch_mode(c, [&]<int Taps, int Dims>() {
      backward_input<T, Taps, Dims>(c, static_cast<const T*>(g), static_cast<const T*>(grid), static_cast<T*>(gx));
    });
  });
}
void grid_sample_backward_grid(const Call& c, const void* g, const void* x, const void* grid, void* ggrid) {
  dispatch_floats(c.dtype, "grid_sample", [&]<class T>() {
    sampling::dispatch_mode(c, [&]<int Taps, int Dims>() {
      backward_grid<T, Taps, Dims>(c, static_cast<const T*>(g), static_cast<const T*>(x), static_cast<const T*>(grid),
                                   static_cast<T*>(ggrid));
    });
  });
}

}  // namespace strata::cpu
