#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "strata/core/dispatch.h"
#include "strata/core/parallel.h"
#include "strata/ops/sampling/sampling_kernels.h"

namespace strata {
namespace {
// What the positions of a block read, tap by tap: an offset in the plane (-1: nothing) and a weight for each.
struct SampleReads {
  const int32_t* at;
  const void* weight;  // of the arithmetic type
  int64_t step, points;
  int taps;
};
}  // namespace
}  // namespace strata

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

// What a block of positions reads is worked out once; then each channel is a row of reads in a plane.
template <class T, int Taps, int Dims>
void forward_by_blocks(const Call& c, const T* x, const T* grid, T* y) {
  using C = compute_t<T>;
  constexpr int kTaps = sampling::Reads<C, Taps, Dims>::kCount;
  constexpr int64_t kPoints = 128;
  const int64_t plane = c.plane(), blocks = (c.points + kPoints - 1) / kPoints;
  parallel_for(0, c.batch * blocks, grain(kPoints * c.channels * kTaps), [&](int64_t begin, int64_t end) {
    int32_t at[kTaps * kPoints];
    C weight[kTaps * kPoints];
    for (int64_t task = begin; task < end; ++task) {
      const int64_t item = task / blocks, first = task % blocks * kPoints, n = std::min(kPoints, c.points - first);
      for (int64_t i = 0; i < n; ++i) {
        const auto reads =
            sampling::reads_of(c, sampling::lines_of<C, Taps, Dims>(c, grid + (item * c.points + first + i) * Dims));
        for (int t = 0; t < kTaps; ++t) {
          at[t * kPoints + i] = static_cast<int32_t>(reads.at[t]);
          weight[t * kPoints + i] = reads.weight[t];
        }
      }
      const SampleReads reads{at, weight, kPoints, n, kTaps};
      for (int64_t k = item * c.channels; k < (item + 1) * c.channels; ++k)
        STRATA_VEC_CALL(sample_rows)(c.dtype, reads, x + k * plane, y + k * c.points + first);
    }
  });
}

template <class T, int Taps, int Dims>
void forward(const Call& c, const T* x, const T* grid, T* y) {
  using C = compute_t<T>;
  const int64_t plane = c.plane();
  if (plane <= std::numeric_limits<int32_t>::max()) return forward_by_blocks<T, Taps, Dims>(c, x, grid, y);
  for_points<Taps, Dims>(c, grid, c.channels * c.taps(), [&](int64_t item, int64_t point, const auto& lines) {
    const auto reads = sampling::reads_of(c, lines);
    for (int64_t k = 0; k < c.channels; ++k) {
      const T* from = x + (item * c.channels + k) * plane;
      C sum = 0;
      for (int t = 0; t < reads.kCount; ++t)
        if (reads.at[t] >= 0) sum += reads.weight[t] * static_cast<C>(from[reads.at[t]]);
      y[(item * c.channels + k) * c.points + point] = static_cast<T>(sum);
    }
  });
}

template <class T, int Taps, int Dims>
void backward_input(const Call& c, const T* g, const T* grid, T* gx) {
  using C = compute_t<T>;
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
