#pragma once
// Sampling at positions on raw memory, and the formulas of one position, which hosts and devices share.

#include <cmath>
#include <cstdint>

#include "strata/core/dtype.h"

#ifdef __CUDACC__
#define STRATA_SAMPLING __host__ __device__ inline
#else
#define STRATA_SAMPLING inline
#endif

namespace strata {
namespace sampling {

enum class Mode : uint8_t { linear, nearest, cubic };
enum class Padding : uint8_t { zeros, border, reflection };

/// Everything about a call but its pointers.
struct Call {
  DType dtype = DType::f32;
  Mode mode = Mode::linear;
  Padding padding = Padding::zeros;
  bool align_corners = false;
  int dims = 2;  ///< 2 or 3
  int64_t batch = 0, channels = 0;
  int64_t points = 0;           ///< positions of each item
  int64_t size[3] = {1, 1, 1};  ///< of the input: depth (1 of 2 dimensions), height, width

  int64_t plane() const { return size[0] * size[1] * size[2]; }
  /// Elements that a position reads.
  int taps() const { return mode == Mode::nearest ? 1 : mode == Mode::cubic ? 16 : dims == 3 ? 8 : 4; }
};

/// A number and what it changes by when the position's coordinate does.
template <class C>
struct Place {
  C at, slope;
};

/// Folded into [low, high], again and again.
template <class C>
STRATA_SAMPLING Place<C> reflected(Place<C> p, C low, C high) {
  const C span = high - low;
  if (span <= 0) return {C(0), C(0)};
  C from = p.at - low, slope = p.slope;
  if (from < 0) from = -from, slope = -slope;
  const C turns = std::floor(from / span), rest = from - turns * span;
  const bool back = turns - 2 * std::floor(turns / 2) != 0;
  return {back ? high - rest : low + rest, back ? -slope : slope};
}

/// The place moved into the input, unless what is outside are zeros.
template <class C>
STRATA_SAMPLING Place<C> moved_inside(Place<C> p, int64_t size, Padding padding, bool align_corners) {
  if (padding == Padding::zeros) return p;
  const C last = static_cast<C>(size - 1);
  if (padding == Padding::reflection)
    p = align_corners ? reflected<C>(p, C(0), last) : reflected<C>(p, C(-0.5), last + C(0.5));
  if (p.at <= 0) return {C(0), C(0)};
  if (p.at >= last) return {last, C(0)};
  return p;
}

/// What one coordinate of a position says: up to four inputs along its dimension (-1 for one that is outside), their
/// weights, and what these change by.
template <class C, int Taps>
struct Line {
  int64_t at[Taps];
  C weight[Taps], slope[Taps];
};

template <class C>
STRATA_SAMPLING int64_t within(C at, int64_t size) {
  return at >= 0 && at <= static_cast<C>(size - 1) ? static_cast<int64_t>(at) : -1;  // NaN is outside
}

/// The line of coordinate g, from -1 to 1.
template <class C, int Taps>
STRATA_SAMPLING Line<C, Taps> line_of(C g, int64_t size, Padding padding, bool align_corners) {
  const C n = static_cast<C>(size);
  Place<C> p = align_corners ? Place<C>{(g + 1) * ((n - 1) / 2), (n - 1) / 2} : Place<C>{((g + 1) * n - 1) / 2, n / 2};
  Line<C, Taps> r;
  if constexpr (Taps == 4) {
    // Keys, 1981, with a = -0.75. The neighbours are moved inside, not the position.
    const C a = C(-0.75), low = std::floor(p.at), t = p.at - low;
    for (int k = 0; k < 4; ++k) {
      const C far = k < 2 ? t + C(1 - k) : C(k - 1) - t, sign = k < 2 ? p.slope : -p.slope;
      const bool near = k == 1 || k == 2;
      r.weight[k] = near ? ((a + 2) * far - (a + 3)) * far * far + 1 : ((a * far - 5 * a) * far + 8 * a) * far - 4 * a;
      r.slope[k] = sign * (near ? (3 * (a + 2) * far - 2 * (a + 3)) * far : (3 * a * far - 10 * a) * far + 8 * a);
      // What is infinitely far has no weights.
      r.at[k] = t == t ? within(moved_inside<C>({low + C(k - 1), C(0)}, size, padding, align_corners).at, size) : -1;
    }
  } else {
    p = moved_inside<C>(p, size, padding, align_corners);
    if constexpr (Taps == 1) {
      r.at[0] = within(std::rint(p.at), size);
      r.weight[0] = C(1);
      r.slope[0] = C(0);
    } else {
      const C low = std::floor(p.at);
      r.at[0] = within(low, size);
      r.at[1] = within(low + 1, size);
      r.weight[1] = p.at - low;
      r.weight[0] = 1 - r.weight[1];
      r.slope[0] = -p.slope;
      r.slope[1] = p.slope;
    }
  }
  return r;
}

/// What a position reads: offsets in the plane (-1: nothing), weights, and what these change by with each coordinate,
/// in the grid's order (column first).
template <class C, int Taps, int Dims>
struct Reads {
  static constexpr int kCount = Dims == 3 ? Taps * Taps * Taps : Taps * Taps;
  int64_t at[kCount];
  C weight[kCount];
};

template <class C, int Taps, int Dims>
struct Lines {
  Line<C, Taps> of[Dims];  ///< rows first, as in shapes
};

template <class C, int Taps, int Dims, class T>
STRATA_SAMPLING Lines<C, Taps, Dims> lines_of(const Call& c, const T* point) {
  Lines<C, Taps, Dims> r;
  for (int d = 0; d < Dims; ++d)
    r.of[d] = line_of<C, Taps>(static_cast<C>(point[Dims - 1 - d]), c.size[3 - Dims + d], c.padding, c.align_corners);
  return r;
}

/// The products of the lines' weights; along dimension `slope_of` (none where it is -1) of the slopes instead.
template <class C, int Taps, int Dims>
STRATA_SAMPLING Reads<C, Taps, Dims> reads_of(const Call& c, const Lines<C, Taps, Dims>& l, int slope_of = -1) {
  Reads<C, Taps, Dims> r;
  for (int k = 0; k < Reads<C, Taps, Dims>::kCount; ++k) {
    int rest = k;
    int64_t at = 0, stride = 1;
    C weight = 1;
    for (int d = Dims - 1; d >= 0; --d) {
      const int tap = rest % Taps;
      rest /= Taps;
      const Line<C, Taps>& line = l.of[d];
      weight *= d == slope_of ? line.slope[tap] : line.weight[tap];
      at = at < 0 || line.at[tap] < 0 ? -1 : at + line.at[tap] * stride;
      stride *= c.size[3 - Dims + d];
    }
    r.at[k] = at;
    r.weight[k] = weight;
  }
  return r;
}

/// Calls f.operator()<Taps, Dims>() for the call's mode and rank.
template <class F>
void dispatch_mode(const Call& c, F&& f) {
  if (c.mode == Mode::cubic) return f.template operator()<4, 2>();
  if (c.dims == 2) return c.mode == Mode::linear ? f.template operator()<2, 2>() : f.template operator()<1, 2>();
  return c.mode == Mode::linear ? f.template operator()<2, 3>() : f.template operator()<1, 3>();
}

}  // namespace sampling

namespace cpu {
/// y [batch, channels, points] from x [batch, channels, plane] at grid [batch, points, dims].
void grid_sample(const sampling::Call& c, const void* x, const void* grid, void* y);
/// gx from g: each element added to those that it read.
void grid_sample_backward_input(const sampling::Call& c, const void* g, const void* grid, void* gx);
/// ggrid from g and x.
void grid_sample_backward_grid(const sampling::Call& c, const void* g, const void* x, const void* grid, void* ggrid);
}  // namespace cpu

// The same on a CUDA device's memory, on its current stream.
void grid_sample_cuda(const sampling::Call& c, const void* x, const void* grid, void* y);
void grid_sample_backward_grid_cuda(const sampling::Call& c, const void* g, const void* x, const void* grid,
                                    void* ggrid);
/// What each position reads: places [batch, points * taps] (plane() for nothing) and their weights, f64 for f64 and f32
/// for the others.
void grid_sample_reads_cuda(const sampling::Call& c, const void* grid, int64_t* places, void* weights);
/// gx from g, in the order of the reads: places in ascending order, and where each was before it was sorted.
void grid_sample_gather_cuda(const sampling::Call& c, const void* g, const int64_t* sorted, const int64_t* from,
                             const void* weights, void* gx);

}  // namespace strata
