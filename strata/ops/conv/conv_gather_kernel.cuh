#pragma once
// Convolutions on Hopper's tensor cores without unrolled windows in memory. 16-byte pieces of channels, which lie
// innermost, are gathered straight into shared memory, zeros where a window leaves the input, and multiplied by
// warpgroups. Sums are in f32 and rounded once.

#include "strata/ops/conv/conv_gather_plan.cuh"
#include "strata/ops/conv/conv_stage.cuh"

namespace strata::conv_cuda {

using cuda::load_vec;
using cuda::narrow;
using cuda::store_vec;
using cuda::Vec;
using cuda::widen;

/// What a kernel is for: elements of E; images, or volumes too; results of one phase, or of several.
template <class E, bool Volume, bool Phases>
struct GatherOf {
  using T = E;
  static constexpr bool kVolume = Volume, kPhases = Phases;
};

/// Of tiles of 256 rows; a block has a multiprocessor to itself.
inline constexpr int kTallStages = 4;
/// Elements from one row of a tile that a block leaves through to the next: [m][pixels], and [pixels][m].
inline constexpr int kTilePitch = kBlockN + 8;
template <int Warpgroups>
inline constexpr int kLastPitch = 64 * Warpgroups + 8;

/// Bytes of shared memory, whose first stage begins at a multiple of 1024.
template <class T, int Warpgroups, int Stages>
constexpr int gather_bytes() {
  constexpr int kTile = std::max(64 * Warpgroups * kTilePitch, kBlockN * kLastPitch<Warpgroups>);
  return std::max<int>(Stages * stage_bytes<Warpgroups>(), kTile * static_cast<int>(sizeof(T))) + 1024;
}

/// Place p of all images.
struct GatherPlace {
  int n, d, i, j;
};
template <bool Volume>
__device__ __forceinline__ GatherPlace place_of(const Gather& g, int p) {
  const int plane = g.h.places * g.w.places;
  int n = static_cast<int>(g.by_plane.divide(static_cast<uint32_t>(p))), d = 0;
  const int rest = p - n * plane;
  if constexpr (Volume) {
    const int layer = n;
    n = static_cast<int>(g.by_depth.divide(static_cast<uint32_t>(layer)));
    d = layer - n * g.d.places;
  }
  const int i = static_cast<int>(g.by_col.divide(static_cast<uint32_t>(rest)));
  return {n, d, i, rest - i * g.w.places};
}

/// Row m of the product of a group: its channel, and its phase along each dimension. Phases along the width are
/// innermost, so that neighbours of the result are rows of one tile; where channels lie innermost in the result,
/// channels are.
struct GatherRow {
  int channel, d, h, w;
};
template <bool Phases>
__device__ __forceinline__ GatherRow row_of_product(const Gather& g, int m) {
  if constexpr (!Phases) return {m, 0, 0, 0};
  const auto split = [](const FastDivisor& by, int v, int& rest) {
    const int q = static_cast<int>(by.divide(static_cast<uint32_t>(v)));
    rest = v - q * static_cast<int>(by.d);
    return q;
  };
  GatherRow r;
  if (g.last) {
    const int phase = split(g.by_each, m, r.channel), rest = split(g.by_phase_w, phase, r.w);
    r.d = split(g.by_phase_h, rest, r.h);
  } else {
    const int rest = split(g.by_each, split(g.by_phase_w, m, r.w), r.channel);
    r.d = split(g.by_phase_h, rest, r.h);
  }
  return r;
}

/// Where that row of that place lies in the result, in elements; -1 where it is outside.
__device__ __forceinline__ int64_t destination(const Gather& g, int group, const GatherRow& r, const GatherPlace& at) {
  const int z = at.d * g.d.dst_step + g.d.dst_first + r.d * g.d.phase_step,
            y = at.i * g.h.dst_step + g.h.dst_first + r.h * g.h.phase_step,
            x = at.j * g.w.dst_step + g.w.dst_first + r.w * g.w.phase_step;
  const auto inside = [](int v, int size) { return static_cast<unsigned>(v) < static_cast<unsigned>(size); };
  if (!inside(z, g.d.dst_size) || !inside(y, g.h.dst_size) || !inside(x, g.w.dst_size)) return -1;
  const int channels = g.groups * g.each, channel = group * g.each + r.channel;
  const int64_t line =
      (static_cast<int64_t>(g.last ? at.n : at.n * channels + channel) * g.d.dst_size + z) * g.h.dst_size + y;
  return g.last ? (line * g.w.dst_size + x) * channels + channel : line * g.w.dst_size + x;
}

/// What a block does: a tile of the product of a group, or a part of its sum. Of images, tiles of the same rows are
/// neighbours; of volumes those of the same places, whose sources are larger than filters.
struct GatherTile {
  int column, row, group, split;
};
template <bool RowsFirst>
__device__ __forceinline__ GatherTile gather_tile(const Gather& g) {
  const auto split = [](const FastDivisor& by, int v, int& rest) {
    const int q = static_cast<int>(by.divide(static_cast<uint32_t>(v)));
    rest = v - q * static_cast<int>(by.d);
    return q;
  };
  GatherTile t;
  int rest = static_cast<int>(blockIdx.x);
  if constexpr (RowsFirst) {
    rest = split(g.by_tiles_m, rest, t.row);
    rest = split(g.by_tiles_n, rest, t.column);
  } else {
    rest = split(g.by_tiles_n, rest, t.column);
    rest = split(g.by_tiles_m, rest, t.row);
  }
  t.group = rest / g.splits, t.split = rest - t.group * g.splits;
  return t;
}

/// A tile [m][pixels] into a result of one phase, V pixels at a time.
template <class T, int V, bool Volume>
__device__ __forceinline__ void write_tile(const Gather& g, const T* tile, int height, int m0, int p0, int group) {
  constexpr int kPerRow = kBlockN / V;
  const int column = static_cast<int>(threadIdx.x) % kPerRow * V, p = p0 + column;
  if (p >= g.total) return;
  const int64_t plane = static_cast<int64_t>(g.d.dst_size) * g.h.dst_size * g.w.dst_size,
                first = destination(g, group, {m0, 0, 0, 0}, place_of<Volume>(g, p));
  T* const to = static_cast<T*>(g.dst) + first;
  for (int row = static_cast<int>(threadIdx.x) / kPerRow; row < height && m0 + row < g.m;
       row += static_cast<int>(blockDim.x) / kPerRow)
    store_vec(to + row * plane, load_vec<V>(tile + row * kTilePitch + column));
}

/// A tile [pixels][m], V channels at a time, into a result with its channels innermost.
template <class T, int V, int Warpgroups, bool Volume, bool Phases>
__device__ __forceinline__ void write_last(const Gather& g, const T* tile, int m0, int p0, int group) {
  constexpr int kPerPixel = 64 * Warpgroups / V;
  const int column = static_cast<int>(threadIdx.x) % kPerPixel * V;
  if (m0 + column >= g.m) return;
  const GatherRow row = row_of_product<Phases>(g, m0 + column);
  for (int pixel = static_cast<int>(threadIdx.x) / kPerPixel; pixel < kBlockN && p0 + pixel < g.total;
       pixel += static_cast<int>(blockDim.x) / kPerPixel) {
    const int64_t at = destination(g, group, row, place_of<Volume>(g, p0 + pixel));
    if (at >= 0) store_vec(static_cast<T*>(g.dst) + at, load_vec<V>(tile + pixel * kLastPitch<Warpgroups> + column));
  }
}

/// A tile [m][pixels] into a result of several phases: neighbouring threads have neighbours along its width where a
/// tile has all of them.
template <class T, int Warpgroups>
__device__ __forceinline__ void write_phases(const Gather& g, const T* tile, int m0, int p0, int group) {
  constexpr int kOwn = 128 * Warpgroups;  // threads
  const int tid = static_cast<int>(threadIdx.x), wide = g.w.phases;
  const int shift = wide == 2 ? 1 : wide == 4 ? 2 : wide == 8 ? 3 : 0, columns = kBlockN << shift;
  const int first = tid / columns, every = kOwn > columns ? kOwn / columns : 1;
  for (int x = tid % columns; x < columns; x += kOwn) {
    const int pixel = x >> shift, of_group = x - (pixel << shift);
    if (p0 + pixel >= g.total) return;
    const GatherPlace place = place_of<true>(g, p0 + pixel);
    for (int rows = first; rows << shift < 64 * Warpgroups; rows += every) {
      const int row = (rows << shift) + of_group;
      if (m0 + row >= g.m) break;
      const int64_t at = destination(g, group, row_of_product<true>(g, m0 + row), place);
      if (at >= 0) static_cast<T*>(g.dst)[at] = tile[row * kTilePitch + pixel];
    }
  }
}

/// A tap's three bits, and those of all taps that find the source from a place: the depth's first. kMostTapBits of
/// them.
__device__ __forceinline__ uint32_t tap_bits(const Gather& g, int t, int u, int v) {
  return 1u << t | 1u << (g.d.taps + u) | 1u << (g.d.taps + g.h.taps + v);
}
__device__ __forceinline__ uint32_t taps_inside(const Gather& g, const GatherPlace& place) {
  uint32_t all = 0;
  const auto add = [&](const GatherAxis& a, int at, int bit) {
    int from = at * a.move + a.first;
    for (int tap = 0; tap < a.taps; ++tap, from += a.step)
      if (static_cast<unsigned>(from) < static_cast<unsigned>(a.size)) all |= 1u << (bit + tap);
  };
  add(g.d, place.d, 0);
  add(g.h, place.i, g.d.taps);
  add(g.w, place.j, g.d.taps + g.h.taps);
  return all;
}

template <class Of, int Warpgroups, int Stages>
__global__ void __launch_bounds__(128 * Warpgroups) gather_kernel(const Gather g) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using T = typename Of::T;
  constexpr bool kVolume = Of::kVolume, kPhases = Of::kPhases;
  constexpr int kM = 64 * Warpgroups, kPiece = 16 / sizeof(T), kRowStep = 16 * Warpgroups;
  constexpr int kRowsA = kM / kRowStep, kRowsB = kBlockN / kRowStep;
  uint8_t* const raw = shared_memory();
  uint8_t* const shared = raw + ((1024 - (shared_address(raw) & 1023)) & 1023);
  const uint32_t base = shared_address(shared);
  const int tid = static_cast<int>(threadIdx.x), piece = tid % 8, row0 = tid / 8;
  const GatherTile at_tile = gather_tile<kVolume>(g);
  const int p0 = at_tile.column * kBlockN, m0 = at_tile.row * kM, group = at_tile.group, split = at_tile.split;

  // The pixels that this thread copies: where they are, and which taps find the source there. Of volumes registers are
  // short, so that taps are bits.
  const T* const source = static_cast<const T*>(g.source) + static_cast<int64_t>(group) * g.channels;
  std::conditional_t<kVolume, int, const T*> from[kRowsB];
  int top[kVolume ? 1 : kRowsB], left[kVolume ? 1 : kRowsB];
  uint32_t finds[kVolume ? kRowsB : 1];
#pragma unroll
  for (int r = 0; r < kRowsB; ++r) {
    const int p = p0 + row0 + r * kRowStep;
    const GatherPlace at = place_of<kVolume>(g, p);
    if constexpr (kVolume) {
      finds[r] = p < g.total ? taps_inside(g, at) : 0;
      from[r] =
          (((at.n * g.d.size + at.d * g.d.move) * g.h.size + at.i * g.h.move) * g.w.size + at.j * g.w.move) * g.pixel;
    } else {
      top[r] = p < g.total ? at.i * g.h.move : -(1 << 30);  // outside whatever the tap
      left[r] = at.j * g.w.move;
      from[r] = source + (static_cast<int64_t>(at.n) * g.h.size * g.w.size +
                          static_cast<int64_t>(at.i * g.h.move) * g.w.size + left[r]) *
                             g.pixel;
    }
  }
  const int filter = g.taps * g.channels;
  const T* const filters =
      static_cast<const T*>(g.filters) + (static_cast<int64_t>(group) * g.each + (kPhases ? 0 : m0 + row0)) * filter;
  int of_row[kPhases ? kRowsA : 1];
  if constexpr (kPhases) {
#pragma unroll
    for (int r = 0; r < kRowsA; ++r) {
      const GatherRow row = row_of_product<true>(g, min(m0 + row0 + r * kRowStep, g.m - 1));
      of_row[r] = row.channel * filter + ((row.d * g.kernel_h + row.h) * g.kernel_w + row.w) * g.channels;
    }
  }
  const int pieces = g.channels / kPiece, tap_plane = g.h.taps * g.w.taps,
            taps = kVolume ? g.d.taps * tap_plane : tap_plane;

  const auto load = [&](int block, int stage) {
    int tap, c;
    if (g.by_taps) {
      const int of = static_cast<int>(g.by_inner.divide(static_cast<uint32_t>(block)));
      tap = block - of * taps;
      c = (of * 8 + piece) * kPiece;
    } else {
      const int q = block * 8 + piece;
      tap = static_cast<int>(g.by_inner.divide(static_cast<uint32_t>(q)));
      c = (q - tap * pieces) * kPiece;
    }
    const bool valid = tap < taps;
    int t = 0;
    if constexpr (kVolume) {
      t = static_cast<int>(g.by_tap_plane.divide(static_cast<uint32_t>(tap)));
      tap -= t * tap_plane;
    }
    const int u = static_cast<int>(g.by_tap_w.divide(static_cast<uint32_t>(tap))), v = tap - u * g.w.taps;
    int tap_row = g.h.first_tap + u * g.h.step_tap;
    if constexpr (kVolume) tap_row += (g.d.first_tap + t * g.d.step_tap) * g.kernel_h;
    const int a_shift = (tap_row * g.kernel_w + g.w.first_tap + v * g.w.step_tap) * g.channels + c;
    const uint32_t a_at = base + static_cast<uint32_t>(stage * stage_bytes<Warpgroups>()), b_at = a_at + kM * kRowBytes;
#pragma unroll
    for (int r = 0; r < kRowsA; ++r) {
      const T* a;
      if constexpr (kPhases)
        a = filters + (of_row[r] + a_shift);
      else
        a = filters + a_shift + static_cast<int64_t>(r * kRowStep) * filter;
      copy_async(a_at + swizzled(row0 + r * kRowStep, piece), a, valid && m0 + row0 + r * kRowStep < g.m);
    }
    const int down = g.h.first + u * g.h.step, right = g.w.first + v * g.w.step;
    if constexpr (kVolume) {
      const int shift = (((g.d.first + t * g.d.step) * g.h.size + down) * g.w.size + right) * g.pixel + c;
      const uint32_t bits = valid ? tap_bits(g, t, u, v) : 1u << 31;
#pragma unroll
      for (int r = 0; r < kRowsB; ++r)
        copy_async(b_at + swizzled(row0 + r * kRowStep, piece), source + (from[r] + shift), (finds[r] & bits) == bits);
    } else {
      const int64_t shift = (static_cast<int64_t>(down) * g.w.size + right) * g.pixel + c;
#pragma unroll
      for (int r = 0; r < kRowsB; ++r) {
        const bool inside = static_cast<unsigned>(top[r] + down) < static_cast<unsigned>(g.h.size) &&
                            static_cast<unsigned>(left[r] + right) < static_cast<unsigned>(g.w.size);
        copy_async(b_at + swizzled(row0 + r * kRowStep, piece), from[r] + shift, valid && inside);
      }
    }
  };

  float sums[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) sums[i] = 0;
  const int warpgroup = tid / 128;
  const int begin = static_cast<int>(static_cast<int64_t>(g.blocks) * split / g.splits),
            end = static_cast<int>(static_cast<int64_t>(g.blocks) * (split + 1) / g.splits);
  for (int b = 0; b < Stages - 1; ++b) {
    if (begin + b < end) load(begin + b, b);
    commit_copies();
  }
  for (int b = begin, stage = 0; b < end; ++b) {
    copy_wait<Stages - 2>();
    __syncthreads();  // this stage is there, and everyone is done with the one before
    const uint32_t a_at = base + static_cast<uint32_t>(stage * stage_bytes<Warpgroups>()), b_at = a_at + kM * kRowBytes;
    multiply_stage<T>(sums, a_at + static_cast<uint32_t>(warpgroup * 64 * kRowBytes), b_at);
    const int next = b + Stages - 1;
    if (next < end) load(next, stage == 0 ? Stages - 1 : stage - 1);
    commit_copies();
    wait_products<0>();
    pin(sums);
    stage = stage + 1 == Stages ? 0 : stage + 1;
  }
  if (g.splits > 1) {
    write_sums(sums, g.shares + (static_cast<int64_t>(split) * g.groups + group) * g.m * g.columns, g.m, g.columns,
               m0 + warpgroup * 64, p0);
    return;
  }
  __syncthreads();

  // Rounded into shared memory, from there to the result in runs of pixels, or of channels.
  T* const tile = reinterpret_cast<T*>(shared);
  const int lane = tid % 32, row = warpgroup * 64 + tid % 128 / 32 * 16 + lane / 4;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int m = m0 + row + h * 8;
    float add = 0;
    if (g.bias != nullptr && m < g.m)
      add = widen(static_cast<const T*>(g.bias)[group * g.each + row_of_product<kPhases>(g, m).channel]);
#pragma unroll
    for (int j = 0; j < 16; ++j) {
      Vec<T, 2> v;
      v.v[0] = narrow<T>(sums[j * 4 + h * 2] + add);
      v.v[1] = narrow<T>(sums[j * 4 + h * 2 + 1] + add);
      const int pixel = j * 8 + lane % 4 * 2;
      if (g.last) {
        tile[pixel * kLastPitch<Warpgroups> + row + h * 8] = v.v[0];
        tile[(pixel + 1) * kLastPitch<Warpgroups> + row + h * 8] = v.v[1];
      } else {
        store_vec(tile + (row + h * 8) * kTilePitch + pixel, v);
      }
    }
  }
  __syncthreads();
  if (g.last) {
    g.vector == kPiece ? write_last<T, kPiece, Warpgroups, kVolume, kPhases>(g, tile, m0, p0, group)
                       : write_last<T, 1, Warpgroups, kVolume, kPhases>(g, tile, m0, p0, group);
    return;
  }
  if constexpr (kPhases) {
    write_phases<T, Warpgroups>(g, tile, m0, p0, group);
  } else if (g.vector == kPiece) {
    write_tile<T, kPiece, kVolume>(g, tile, kM, m0, p0, group);
  } else if (g.vector == 4) {
    write_tile<T, 4, kVolume>(g, tile, kM, m0, p0, group);
  } else {
    write_tile<T, 1, kVolume>(g, tile, kM, m0, p0, group);
  }
#endif
}

inline constexpr int kShareThreads = 256;

/// The shares of sums that were split, added up in their order, into the result. A thread has a place of a row.
template <class Of>
__global__ void __launch_bounds__(kShareThreads) gather_shares_kernel(const Gather g) {
  using T = typename Of::T;
  const int64_t rows = static_cast<int64_t>(g.groups) * g.m, step = static_cast<int64_t>(gridDim.x) * kShareThreads;
  for (int64_t e = static_cast<int64_t>(blockIdx.x) * kShareThreads + threadIdx.x; e < rows * g.total; e += step) {
    const int64_t row = e / g.total;
    const int p = static_cast<int>(e - row * g.total);
    const GatherPlace place = place_of<true>(g, p);
    const int group = static_cast<int>(row / g.m);
    const GatherRow of = row_of_product<true>(g, static_cast<int>(row - static_cast<int64_t>(group) * g.m));
    const int64_t at = destination(g, group, of, place);
    if (at < 0) continue;
    const float* const from = g.shares + row * g.columns + p;
    float sum = 0;
#pragma unroll 8
    for (int share = 0; share < g.splits; ++share) sum += from[share * rows * g.columns];
    if (g.bias != nullptr) sum += widen(static_cast<const T*>(g.bias)[group * g.each + of.channel]);
    static_cast<T*>(g.dst)[at] = narrow<T>(sum);
  }
}

}  // namespace strata::conv_cuda
