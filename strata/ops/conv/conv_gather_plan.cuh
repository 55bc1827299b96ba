#pragma once
// What a gathering convolution of images or volumes is told (conv_gather_kernel.cuh), and how one forward or transposed
// becomes such: numbers alone.

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <vector>

#include "strata/ops/conv/conv_divisor.cuh"
#include "strata/ops/conv/conv_volume_cuda.h"

namespace strata::conv_cuda {
using cuda::FastDivisor;

/// One dimension of a gathering. The result has `places`; tap u of the filter finds the source at
/// place move + first + u step, and is the filter's first_tap + u step_tap. The place is dst_first + place dst_step of
/// the result. Of several phases, phase f of it is f phase_step further, and its taps are f further.
struct GatherAxis {
  int size, places, move;
  int taps, first_tap, step_tap, first, step;
  int dst_size, dst_step, dst_first, phases, phase_step;
};

/// dst[n, group, channel, place] = bias + the sum over taps and channels c of
/// filters[group, channel, tap, c] source[n, where the tap finds it, group, c].
struct Gather {
  const void *source, *filters, *bias;
  void* dst;
  float* shares;                 ///< [splits, groups, m, columns] where the sum is split, else nullptr
  GatherAxis d, h, w;            ///< of images h and w alone
  int pixel;                     ///< elements from one of the source's pixels to the next
  int channels;                  ///< of a group, padded
  int total;                     ///< images * places
  int rows;                      ///< of a tile of the product: 64, 128 or 256
  int m, each, groups;           ///< rows of the product: channels of the result (each) of all phases, of a group
  int kernel_h, kernel_w, taps;  ///< of the filter
  int blocks, splits, columns;   ///< of 128 bytes of the sum; parts of it; total, padded to whole tiles
  bool by_taps;                  ///< such a block lies within one tap
  bool last;                     ///< the result's channels lie innermost
  int vector;                    ///< elements of the result written at once
  FastDivisor by_depth, by_plane, by_col, by_tap_plane, by_tap_w;
  FastDivisor by_inner;  ///< taps where by_taps, else pieces of a tap
  FastDivisor by_each, by_phase_h, by_phase_w;
  FastDivisor by_tiles_n, by_tiles_m;  // tiles of 128 columns, and of rows
};

/// Kernels of volumes and of several phases hold which taps find the source in bits of 32, of which one is none's.
inline constexpr int kMostTapBits = 31;
inline bool has_tap_bits(const Gather& g) {
  return g.d.taps + g.h.taps + g.w.taps <= kMostTapBits;
}
/// Tiles of the rows of a product.
inline int tiles_m(const Gather& g) {
  return (g.m + g.rows - 1) / g.rows;
}
/// Into how many parts a sum of so many blocks is split, for tiles that leave most of a card without work. A block of a
/// tile that has a multiprocessor to itself takes some 0.25 us; the parts are added up by another launch, some 4 us.
inline int splits_of(int64_t tiles, int blocks, int multiprocessors) {
  constexpr int kLeast = 4;  // blocks of a part
  const int64_t most = std::min<int64_t>({multiprocessors / std::max<int64_t>(1, tiles), blocks / kLeast, 32});
  if (most < 2 || blocks - blocks / most < 24) return 1;
  return static_cast<int>(most);
}

/// The numbers that follow from the others. `piece`: elements in 16 bytes. `tall`: there is a kernel of tiles of 256
/// rows.
inline void finish(Gather& g, int64_t n, int piece, int multiprocessors, bool tall) {
  const auto divisor = [](int64_t d) { return FastDivisor(static_cast<uint32_t>(std::max<int64_t>(1, d))); };
  const int pieces = g.channels / piece, tap_plane = g.h.taps * g.w.taps, taps = g.d.taps * tap_plane,
            plane = g.h.places * g.w.places;
  g.total = static_cast<int>(n) * g.d.places * plane;
  g.columns = (g.total + 127) / 128 * 128;
  g.m = g.each * g.d.phases * g.h.phases * g.w.phases;
  g.by_taps = pieces % 8 == 0;
  g.blocks = (taps * pieces + 7) / 8;
  // What comes from L2, some 36 bytes a clock, limits a block; of twice the rows come half as many pixels for each.
  const int64_t wide = int64_t{g.columns} / 128 * g.groups;
  const bool tallest =
      tall && g.m > 128 && (g.m + 127) / 128 % 2 == 0 && wide * ((g.m + 255) / 256) >= 2 * multiprocessors;
  g.rows = g.m <= 64 ? 64 : tallest ? 256 : 128;
  // Parts take at most a third of what windows unrolled in memory would: with the turned operands less than those.
  const int64_t windows = int64_t{16 / piece} * g.total * taps * g.channels, part = int64_t{4} * g.m * g.columns;
  g.splits = static_cast<int>(std::min<int64_t>(splits_of(wide * tiles_m(g), g.blocks, multiprocessors),
                                                std::max<int64_t>(1, windows / 3 / part)));
  g.by_depth = divisor(g.d.places), g.by_plane = divisor(plane), g.by_col = divisor(g.w.places);
  g.by_tap_plane = divisor(tap_plane), g.by_tap_w = divisor(g.w.taps);
  g.by_inner = divisor(g.by_taps ? taps : pieces);
  g.by_tiles_n = divisor(g.columns / 128), g.by_tiles_m = divisor(tiles_m(g));
  g.by_each = divisor(g.each), g.by_phase_h = divisor(g.h.phases), g.by_phase_w = divisor(g.w.phases);
  const bool dense = g.d.dst_step == 1 && g.h.dst_step == 1 && g.w.dst_step == 1;
  g.vector = 1;
  for (const int v : {piece, 4}) {
    const bool whole = g.last ? g.each % v == 0 : dense && g.d.places * plane % v == 0;
    if (g.vector == 1 && whole && reinterpret_cast<uintptr_t>(g.dst) % 16 == 0) g.vector = v;
  }
}

/// y of x; pointers are the caller's. `channels`: of a group, padded to pieces of 16 bytes.
inline Gather forward_gather(const VolumeSizes& s, int channels) {
  Gather g{};
  for (int i = 0; i < 3; ++i) {
    GatherAxis& a = i == 0 ? g.d : i == 1 ? g.h : g.w;
    a = {.size = static_cast<int>(s.in[i]),
         .places = static_cast<int>(s.out[i]),
         .move = static_cast<int>(s.stride[i]),
         .taps = static_cast<int>(s.kernel[i]),
         .first_tap = 0,
         .step_tap = 1,
         .first = static_cast<int>(-s.padding[i]),
         .step = static_cast<int>(s.dilation[i]),
         .dst_size = static_cast<int>(s.out[i]),
         .dst_step = 1,
         .dst_first = 0,
         .phases = 1,
         .phase_step = 0};
  }
  g.channels = channels, g.pixel = static_cast<int>(s.groups) * channels;
  g.each = static_cast<int>(s.oc / s.groups), g.groups = static_cast<int>(s.groups);
  g.kernel_h = static_cast<int>(s.kernel[1]), g.kernel_w = static_cast<int>(s.kernel[2]);
  g.taps = static_cast<int>(VolumeSizes::product(s.kernel));
  return g;
}

/// How many steps apart taps of a transposed convolution come back to the same place within a stride.
inline int64_t taps_apart(int64_t stride, int64_t dilation) {
  return stride / std::gcd(stride, dilation);
}
/// Whether there may be results of the transpose that no tap reaches.
inline bool has_bare_places(const VolumeSizes& s) {
  for (size_t i = 0; i < 3; ++i)
    if (std::min(s.kernel[i], taps_apart(s.stride[i], s.dilation[i])) < s.stride[i]) return true;
  return false;
}

/// The axes of x along dimension i of the transpose: tap a reaches the places k stride + a dilation - padding of x from
/// place k of y. Taps taps_apart() from each other reach the same ones; those between are phases, which have their own
/// places. `together`: all phases in one, which each have as many taps.
inline std::vector<GatherAxis> transpose_axes(const VolumeSizes& s, size_t i, bool together) {
  const auto floor_div = [](int64_t a, int64_t b) { return a >= 0 ? a / b : -((b - 1 - a) / b); };
  const int64_t stride = s.stride[i], dilation = s.dilation[i], kernel = s.kernel[i], padding = s.padding[i];
  const int64_t every = taps_apart(stride, dilation);
  std::vector<GatherAxis> all;
  for (int64_t tap = 0; tap < (together ? 1 : std::min(kernel, every)); ++tap) {
    const int64_t last = together ? std::min(kernel, every) - 1 : tap;
    const int64_t begin = -floor_div(last * dilation - padding, stride),
                  end = floor_div(s.in[i] - 1 + padding - tap * dilation, stride) + 1;
    if (end <= begin) continue;
    all.push_back({.size = static_cast<int>(s.out[i]),
                   .places = static_cast<int>(end - begin),
                   .move = 1,
                   .taps = static_cast<int>((kernel - tap - 1) / every + 1),
                   .first_tap = static_cast<int>(tap),
                   .step_tap = static_cast<int>(every),
                   .first = static_cast<int>(begin),
                   .step = static_cast<int>(-every * dilation / stride),
                   .dst_size = static_cast<int>(s.in[i]),
                   .dst_step = static_cast<int>(stride),
                   .dst_first = static_cast<int>(begin * stride + tap * dilation - padding),
                   .phases = static_cast<int>(last - tap + 1),
                   .phase_step = static_cast<int>(dilation)});
  }
  return all;
}

/// The gatherings that x of y is, each a launch. Where phases have as many taps they are rows of one product, unless
/// that multiplies a fifth more of what a card does at a time: one launch, and neighbours along the width are written
/// together. Kernels of volumes and of several phases have places of elements in 32 bits, which must hold source and
/// filters.
inline std::vector<Gather> transpose_gathers(const VolumeSizes& s, int channels) {
  const auto gathers = [&](bool together) {
    std::array<std::vector<GatherAxis>, 3> axes;
    for (size_t i = 0; i < 3; ++i) {
      const int64_t every = taps_apart(s.stride[i], s.dilation[i]);
      axes[i] = transpose_axes(s, i, together && (s.kernel[i] % every == 0 || s.kernel[i] < every));
    }
    std::vector<Gather> all;
    for (const GatherAxis& d : axes[0])
      for (const GatherAxis& h : axes[1])
        for (const GatherAxis& w : axes[2]) {
          Gather g{};
          g.d = d, g.h = h, g.w = w;
          g.channels = channels, g.pixel = static_cast<int>(s.groups) * channels;
          g.each = static_cast<int>(s.ic / s.groups), g.groups = static_cast<int>(s.groups);
          g.kernel_h = static_cast<int>(s.kernel[1]), g.kernel_w = static_cast<int>(s.kernel[2]);
          g.taps = static_cast<int>(VolumeSizes::product(s.kernel));
          all.push_back(g);
        }
    return all;
  };
  // Rows of whole tiles times columns of whole tiles, of which a launch has a card full at least, times the sum.
  const auto cost = [&](const std::vector<Gather>& all) {
    double sum = 0;
    for (const Gather& g : all) {
      const int64_t m = int64_t{g.each} * g.d.phases * g.h.phases * g.w.phases, rows = m <= 64 ? 64 : 128;
      const int64_t places = s.n * g.d.places * g.h.places * g.w.places;
      constexpr int64_t kMultiprocessors = 132;
      const int64_t tiles = (m + rows - 1) / rows * ((places + 127) / 128);
      sum += static_cast<double>(rows) * static_cast<double>(std::max(tiles, kMultiprocessors)) *
             static_cast<double>(g.d.taps * g.h.taps * g.w.taps);
    }
    return sum;
  };
  std::vector<Gather> together = gathers(true), apart = gathers(false);
  const double widest = static_cast<double>(s.groups * channels), most = 1 << 30;
  const bool held = !together.empty() && has_tap_bits(together[0]) &&
                    static_cast<double>(s.n * VolumeSizes::product(s.out)) * widest < most &&
                    static_cast<double>(s.ic * VolumeSizes::product(s.kernel)) * channels < most;
  return held && together.size() < apart.size() && cost(together) <= 1.2 * cost(apart) ? together : apart;
}
/// Whether results of several phases are written by one launch.
inline bool has_phases(const Gather& g) {
  return g.d.phases * g.h.phases * g.w.phases > 1;
}

}  // namespace strata::conv_cuda
