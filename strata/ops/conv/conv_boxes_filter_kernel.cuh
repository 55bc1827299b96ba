#pragma once
// The gradient of filters from channels-last tensors on Hopper's tensor cores: a sum over pixels, 64 of them a step, a
// share of the steps for each block. The columns of a product are three pieces of 64 channels: of boxes three taps
// below one another, which read the same box some rows further; of runs three taps, or pieces, copied each.
//
// Two blocks may be a cluster. They take the same steps, and what both multiply with comes once from L2: of two blocks
// of further rows (output channels) the pixels of x, of two of further columns those of y. They take turns in copying
// it to both.

#include <algorithm>

#include "strata/cuda/tile/cluster.cuh"
#include "strata/ops/conv/conv_boxes.cuh"

namespace strata::conv_cuda {

using namespace cuda::tile;

inline constexpr int kPixels = 64, kPieces = 3, kTile = kPixels * kRowBytes;  // of 64 pixels and channels

/// What the blocks of a cluster share.
enum class Shared { nothing, x, y };

/// What a launch does; the maps are beside it.
struct FilterWork {
  Places places;
  int first_y, first_x;     // of the window of result (0, 0), in x
  int m, channels, chunks;  // chunks of 64 channels
  int kernel_h, kernel_w, dilation_h, dilation_w;
  int loaded, further;  // bytes of x for a step; from a piece to the next
  int boxes, shares, stages;
  int rows, tiles;  // blocks of rows, and of columns
};
struct FilterBoxes {
  CUtensorMap x, y;
  float* sums;
  FilterWork work;
};

/// Tap and first channel of a piece of a block's columns; no tap where there is none.
struct Piece {
  int tap, channel;
};
__device__ __forceinline__ Piece piece_of(const FilterWork& g, int tile, int i) {
  if (g.places.runs) {
    const int at = tile * kPieces + i, taps = g.kernel_h * g.kernel_w, tap = at / g.chunks;
    return {tap < taps ? tap : -1, (at - tap * g.chunks) * 64};
  }
  const int column = tile / g.chunks, of = column / g.kernel_w, a = of * kPieces + i;
  return {a < g.kernel_h ? a * g.kernel_w + column % g.kernel_w : -1, tile % g.chunks * 64};
}

/// Copies of boxes and runs to both blocks of a cluster, or to this one.
template <bool kBoth>
__device__ __forceinline__ void copy_box(void* to, const CUtensorMap& map, uint64_t* barrier, int c, int x, int y,
                                         int n) {
  if constexpr (kBoth) {
#ifdef STRATA_TILE_EMULATION
    for (int rank = 0; rank < 2; ++rank)
      emulation::copy_box_in(emulation::block->peer(rank, "a copy"), to, map, barrier, {c, x, y, n});
#else
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(shared_address(to)),
        "l"(&map), "r"(shared_address(barrier)), "r"(c), "r"(x), "r"(y), "r"(n), "h"(static_cast<uint16_t>(3))
        : "memory");
#endif
  } else {
    copy_in(to, map, barrier, c, x, y, n);
  }
}
template <bool kBoth>
__device__ __forceinline__ void copy_run(void* to, const CUtensorMap& map, uint64_t* barrier, int c, int x, int y,
                                         int n, int right, int down) {
#ifndef STRATA_TILE_EMULATION
  if constexpr (kBoth) {
    asm volatile(
        "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes.multicast::cluster "
        "[%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8}, %9;" ::"r"(shared_address(to)),
        "l"(&map), "r"(shared_address(barrier)), "r"(c), "r"(x), "r"(y), "r"(n), "h"(static_cast<uint16_t>(right)),
        "h"(static_cast<uint16_t>(down)), "h"(static_cast<uint16_t>(3))
        : "memory");
    return;
  }
#endif
  copy_run_in(to, map, barrier, c, x, y, n, right, down);
}

template <bool kBoth>
__device__ __forceinline__ void copy_x(const FilterBoxes& all, uint8_t* to, uint64_t* ready, const Place& at,
                                       int tile) {
  const FilterWork& g = all.work;
  const int top = at.y * g.places.step_y + g.first_y, left = at.x * g.places.step_x + g.first_x;
  if (g.places.runs) {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const Piece piece = piece_of(g, tile, i);  // where there is none, any
      const int tap = max(piece.tap, 0), a = tap / g.kernel_w, b = tap - a * g.kernel_w;
      copy_run<kBoth>(to + i * kTile, all.x, ready, piece.channel, left, top, at.n, b * g.dilation_w, a * g.dilation_h);
    }
  } else {
    const int column = tile / g.chunks, a = column / g.kernel_w * kPieces, b = column % g.kernel_w;
    copy_box<kBoth>(to, all.x, ready, tile % g.chunks * 64, left + b * g.dilation_w, top + a * g.dilation_h, at.n);
  }
}
template <bool kBoth, int Tall>
__device__ __forceinline__ void copy_y(const FilterBoxes& all, uint8_t* to, uint64_t* ready, const Place& at, int box,
                                       int m0) {
  const bool runs = all.work.places.runs;
#pragma unroll
  for (int i = 0; i < Tall; ++i)
    copy_box<kBoth>(to + i * kTile, all.y, ready, m0 + i * 64, runs ? box * kPixels : at.x, runs ? 0 : at.y,
                    runs ? 0 : at.n);
}

template <int Tall>
constexpr int filter_blocks_at_once() {
  return Tall == 1 ? 2 : 1;
}
/// Bytes of shared memory: so many stages, and the barriers.
constexpr int filter_bytes(int tall, int loaded, int stages) {
  return stages * (tall * kTile + loaded) + 2 * kMostStages * 8;
}

/// Block: share, column, row from the highest to the lowest. kShared is not nothing: in clusters of two.
template <class Of, int Tall, Shared kShared>
__global__ void __launch_bounds__(128 * (Tall + 1), filter_blocks_at_once<Tall>())
    filter_boxes_kernel(const __grid_constant__ FilterBoxes all) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using T = typename Of::T;
  constexpr bool kPair = kShared != Shared::nothing;
  const FilterWork& g = all.work;
  const int bytes = Tall * kTile + g.loaded;
  uint8_t* const memory = shared_memory();
  uint64_t* const full = reinterpret_cast<uint64_t*>(memory + g.stages * bytes);
  uint64_t* const empty = full + kMostStages;
  const int tid = static_cast<int>(threadIdx.x), group = tid / 128;
  const int number = static_cast<int>(blockIdx.x), of_share = number / g.rows, share = of_share / g.tiles;
  const int tile = of_share - share * g.tiles, m0 = (number - of_share * g.rows) * Tall * 64;
  const int begin = static_cast<int>(static_cast<int64_t>(g.boxes) * share / g.shares),
            end = static_cast<int>(static_cast<int64_t>(g.boxes) * (share + 1) / g.shares);
  if (tid == 0) {
    for (int i = 0; i < kMostStages; ++i) {
      init_barrier(full + i, 1);
      init_barrier(empty + i, 4 * Tall * (kPair ? 2 : 1));
    }
    fence_barriers();
    fence_shared();
  }
  __syncthreads();
  if constexpr (kPair) cluster_sync();

  if (group == Tall) {
    give_registers<Tall == 3 ? 32 : 40>();
    if (tid % 128 == 0) {
      Buffers ring(g.stages);
      const int rank = number % 2;
      for (int box = begin; box < end; ++box) {
        kPair ? wait_for_blocks(empty + ring.stage, ring.parity ^ 1) : wait(empty + ring.stage, ring.parity ^ 1);
        uint64_t* const ready = full + ring.stage;
        arrive_expecting(ready, static_cast<uint32_t>(bytes));
        uint8_t *const y_at = memory + ring.stage * bytes, *const x_at = y_at + Tall * kTile;
        const Place at = place_of(g.places, box);
        const bool turn = (box - begin) % 2 == rank;
        if constexpr (kShared != Shared::y) copy_y<false, Tall>(all, y_at, ready, at, box, m0);
        if constexpr (kShared == Shared::y) {
          if (turn) copy_y<true, Tall>(all, y_at, ready, at, box, m0);
        }
        if constexpr (kShared != Shared::x) copy_x<false>(all, x_at, ready, at, tile);
        if constexpr (kShared == Shared::x) {
          if (turn) copy_x<true>(all, x_at, ready, at, tile);
        }
        ring.next();
      }
    }
  } else {
    take_registers<Tall == 3 ? 160 : Tall == 2 ? 232 : 208>();
    const int lane = tid % 32;
    const uint32_t base = shared_address(memory);
    float first[64], second[32];
#pragma unroll
    for (int i = 0; i < 64; ++i) first[i] = 0;
#pragma unroll
    for (int i = 0; i < 32; ++i) second[i] = 0;
    Buffers ring(g.stages);
    int held = -1;
    for (int box = begin; box < end; ++box) {
      wait(full + ring.stage, ring.parity);
      const uint32_t y_at = base + static_cast<uint32_t>(ring.stage * bytes),
                     a = y_at + static_cast<uint32_t>(group * kTile), b = y_at + Tall * kTile;
      fence_products();
#pragma unroll
      for (int k = 0; k < 4; ++k) {  // 16 pixels each
        const auto at = static_cast<uint32_t>(k * 16 * kRowBytes);
        const uint64_t left = descriptor_t(a + at, kTile);
        multiply<T, true, true>(first, left, descriptor_t(b + at, static_cast<uint32_t>(g.further)), true);
        multiply<T, true, true>(
            second, left, descriptor_t(b + static_cast<uint32_t>(2 * g.further) + at, static_cast<uint32_t>(g.further)),
            true);
      }
      commit_products();
      wait_products<1>();
      if (held >= 0) {
        if constexpr (kPair) {
          if (lane < 2) arrive_in(empty + held, lane);
        } else {
          if (lane == 0) arrive(empty + held);
        }
      }
      held = ring.stage;
      ring.next();
    }
    wait_products<0>();
    pin(first);
    pin(second);

    const int columns = g.kernel_h * g.kernel_w * g.channels, row = m0 + group * 64 + tid % 128 / 32 * 16 + lane / 4;
    float* const sums = all.sums + static_cast<int64_t>(share) * g.m * columns;
    const auto write = [&](const auto& values, int from, int i) {
      const Piece piece = piece_of(g, tile, i);
      if (piece.tap < 0) return;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if (row + h * 8 >= g.m) continue;
        float* const line = sums + static_cast<int64_t>(row + h * 8) * columns + piece.tap * g.channels;
#pragma unroll
        for (int j = 0; j < 8; ++j) {
          const int c = piece.channel + j * 8 + lane % 4 * 2;
          if (c < g.channels)
            *reinterpret_cast<float2*>(line + c) = {values[from + j * 4 + h * 2], values[from + j * 4 + h * 2 + 1]};
        }
      }
    };
    write(first, 0, 0);
    write(first, 32, 1);
    write(second, 0, 2);
  }
  // The other block's copies land here, and its threads arrive on barriers of this one.
  if constexpr (kPair) cluster_sync();
#endif
}

// ---- on the host ----

/// How the gradient of filters is computed; `work` lacks nothing but what maps and sums are of.
struct FilterPlan {
  int tall = 0;  // 64 rows each; none fits
  Shared shared = Shared::nothing;
  FilterWork work{};
  BoxMap x{}, y{};  // x of boxes only
  int bytes = 0;
  int64_t results = 0;
};

/// Over how many blocks a sum is shared: rounds of them on a full card against the shares' sums in memory.
inline int choose_shares(int64_t tiles, int64_t slots, int64_t steps, int64_t results, double step) {
  constexpr double kBlock = 3e-6, kSum = 8 / 3e12;  // seconds, about: of a block beside its steps, of a sum
  const int64_t most = std::clamp<int64_t>(std::min(steps / 2, (int64_t{64} << 20) / results), 1, 1024);
  int64_t best = 1;
  double least = 0;
  for (int64_t n = 1; n <= most; ++n) {
    const auto rounds = static_cast<double>((tiles * n + slots - 1) / slots);
    const double cost =
        rounds * (static_cast<double>((steps + n - 1) / n) * step + kBlock) + static_cast<double>(n * results) * kSum;
    if (n > 1 && cost >= least) continue;
    best = n, least = cost;
  }
  return static_cast<int>(best);
}

inline FilterPlan plan_filter(const ConvSizes& s, bool may_run, int multiprocessors, const ConvChoice& choice) {
  const auto up = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  const auto i = [](int64_t v) { return static_cast<int>(v); };
  const int64_t chunks = up(s.ic, 64), taps = s.kh * s.kw, total = s.n * s.oh * s.ow;
  FilterPlan p;
  int tall = 1;
  for (const int more : {2, 3})
    if (s.oc > 64 && up(s.oc, 64 * more) * more <= up(s.oc, 64 * std::max(2, tall)) * std::max(2, tall)) tall = more;

  // Clocks of all steps, of boxes and of runs: products, or bytes.
  const int box_rows = i(8 + (kPieces - 1) * s.dh);
  const int64_t box_steps = s.n * up(s.oh, 8) * up(s.ow, 8), run_steps = up(total, kPixels);
  const int64_t box_tiles = up(s.kh, kPieces) * s.kw * chunks, run_tiles = up(taps * chunks, kPieces);
  const int64_t rows = up(s.oc, 64 * tall);
  // Of two blocks one copies what they share.
  const auto shared_by = [&](int64_t tiles) {
    if (choice.clusters == 0 || tall == 1) return Shared::nothing;
    return rows % 2 == 0 ? Shared::x : tiles % 2 == 0 ? Shared::y : Shared::nothing;
  };
  const auto step_clocks = [&](int64_t tiles, int64_t loaded) {
    const Shared shared = shared_by(tiles);
    const double bytes = tall * kTile / (shared == Shared::y ? 2.0 : 1.0) +
                         static_cast<double>(loaded) / (shared == Shared::x ? 2.0 : 1.0);
    return std::max(tall * 384 / 0.8, bytes / 36);
  };
  const auto clocks = [&](int64_t tiles, int64_t steps, int64_t loaded) {
    return static_cast<double>(tiles * steps) * step_clocks(tiles, loaded);
  };
  const bool may_box = s.sh == 1 && s.sw == 1 && box_rows <= 64;
  if (!may_box && !may_run) return p;
  const bool runs = !may_box || (may_run && clocks(run_tiles, run_steps, kPieces * kTile) <
                                                clocks(box_tiles, box_steps, int64_t{box_rows} * kUnit));
  const int64_t tiles = runs ? run_tiles : box_tiles, steps = runs ? run_steps : box_steps;
  p.results = s.oc * s.ic * taps;
  if (tiles * rows > (1 << 20) || p.results > (1 << 30)) return p;

  FilterWork& g = p.work;
  g.loaded = runs ? kPieces * kTile : box_rows * kUnit;
  g.further = runs ? kTile : i(s.dh) * kUnit;
  const int room = tall == 1 ? kMostShared / 2 - kUnit : kMostShared;
  g.stages = std::min(kMostStages, (room - filter_bytes(tall, g.loaded, 0)) / (tall * kTile + g.loaded));
  if (g.stages < 2) return p;
  p.bytes = filter_bytes(tall, g.loaded, g.stages);
  p.x = {s.ic, s.iw, s.ih, s.n, s.ic, s.ic * s.iw, s.ic * s.iw * s.ih, 8, box_rows};
  p.y = runs ? BoxMap{s.oc, total, 1, 1, s.oc, 1, 1, kPixels, 1}
             : BoxMap{s.oc, s.ow, s.oh, s.n, s.oc, s.oc * s.ow, s.oc * s.ow * s.oh, 8, 8};
  Places& at = g.places;
  at.runs = runs, at.box_rows = 8, at.images = 1;
  at.across = i(runs ? s.ow : up(s.ow, 8)), at.down = i(runs ? s.oh : up(s.oh, 8));
  at.by_image = FastDivisor(static_cast<uint32_t>(at.across * at.down));
  at.by_row = FastDivisor(static_cast<uint32_t>(at.across));
  at.step_y = i(s.sh), at.step_x = i(s.sw);
  g.first_y = i(-s.ph), g.first_x = i(-s.pw);
  g.m = i(s.oc), g.channels = i(s.ic), g.chunks = i(chunks);
  g.kernel_h = i(s.kh), g.kernel_w = i(s.kw), g.dilation_h = i(s.dh), g.dilation_w = i(s.dw);
  g.boxes = i(steps), g.rows = i(rows), g.tiles = i(tiles);
  const int at_once = tall == 1 ? 2 : 1;
  g.shares = choose_shares(tiles * rows, int64_t{multiprocessors} * at_once, steps, p.results,
                           step_clocks(tiles, g.loaded) / 1.7e9 * at_once);
  p.shared = shared_by(tiles), p.tall = tall;
  return p;
}

}  // namespace strata::conv_cuda
