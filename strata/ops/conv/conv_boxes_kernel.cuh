#pragma once
// The kernel of forward and transposed convolutions: filters times pixels, both from shared memory, the result's
// channels along the rows of the product and its pixels along the columns. A warpgroup computes 64 channels of N
// pixels; a block has `Tall` of them for further channels of the same pixels, or `Wide` for further pixels. Two warps
// of another warpgroup start the copies, of pixels and of filters, each around its own ring.

#include "strata/ops/conv/conv_boxes.cuh"

namespace strata::conv_cuda {

using namespace cuda::tile;

inline constexpr int kMostPhases = 4;

/// A part of the result with taps of its own: the whole of it, or of a transposed convolution with strides the elements
/// at one place within the strides.
struct Phase {
  int first_y, first_x;  // of the window of its first element, in the source
  int kernel_h, kernel_w;
  int tap, tap_row, tap_column;  // number of its first tap, and what is added for the next row's and the next column's
};

/// What a launch does; the maps are beside it.
struct BoxWork {
  Places places;
  Phase phases[kMostPhases];
  int tiles_m, tiles_of_phase, tiles;
  int m, chunks;  // channels of the result; 64 channels of the source
  int dilation_h, dilation_w;
  int parities;          // boxes of rows that a column of taps reads: the stride of the source's rows, or 1
  int loaded, arriving;  // bytes of a box with its further rows, and how many of them are copied
  int pixel_stages, filter_stages;
};
struct Boxes {
  CUtensorMap sources[4];  // of a stride of 2 the pixels of each parity: rows' parity 2 + columns' parity
  CUtensorMap filters, results[kMostPhases];
  const void* bias;
  BoxWork work;
};

/// How many boxes of pixels a chunk of channels takes, and how many taps box `load` serves.
__device__ __forceinline__ int loads_of(const BoxWork& g, const Phase& p) {
  return g.places.runs ? p.kernel_h * p.kernel_w : p.kernel_w * min(g.parities, p.kernel_h);
}
/// The first row of taps that a load serves, and its column.
struct Load {
  int row, column;
};
__device__ __forceinline__ Load load_at(const BoxWork& g, const Phase& p, int load) {
  const int of_column = g.places.runs ? p.kernel_w : min(g.parities, p.kernel_h);
  const int high = load / of_column, low = load - high * of_column;
  return g.places.runs ? Load{high, low} : Load{low, high};
}
__device__ __forceinline__ int taps_of(const BoxWork& g, const Phase& p, const Load& at) {
  return g.places.runs ? 1 : (p.kernel_h - at.row + g.parities - 1) / g.parities;
}

/// The sums of a warpgroup: N columns in one product, or in two.
template <int N>
struct Columns {
  static constexpr int kFirst = N == 224 ? 128 : N == 192 ? 96 : N;
  static constexpr int kSecond = N - kFirst;
};

/// Bytes of shared memory beside the two rings: results, N pixels of 64 channels a warpgroup, and barriers.
constexpr int kept_bytes(int groups, int columns) {
  return groups * columns * kRowBytes + 4 * kMostStages * 8;
}

template <class Of, int Tall, int Wide, int N, bool Across>
__global__ void __launch_bounds__(128 * (Tall * Wide + 1), 1) boxes_kernel(const __grid_constant__ Boxes all) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using T = typename Of::T;
  constexpr int kGroups = Tall * Wide, kFilters = Tall * 64 * kRowBytes;
  constexpr int kFirst = Columns<N>::kFirst, kSecond = Columns<N>::kSecond;
  const BoxWork& g = all.work;
  uint8_t* const staged = shared_memory();
  uint8_t* const pixels = staged + kGroups * N * kRowBytes;
  uint8_t* const filters = pixels + g.pixel_stages * Wide * g.loaded;
  uint64_t* const pixels_full = reinterpret_cast<uint64_t*>(filters + g.filter_stages * kFilters);
  uint64_t *const pixels_empty = pixels_full + kMostStages, *const filters_full = pixels_empty + kMostStages,
                  *const filters_empty = filters_full + kMostStages;
  const int tid = static_cast<int>(threadIdx.x), group = tid / 128;
  if (tid == 0) {
    for (int i = 0; i < kMostStages; ++i) {
      init_barrier(pixels_full + i, 1);
      init_barrier(filters_full + i, 1);
      init_barrier(pixels_empty + i, 4 * kGroups);
      init_barrier(filters_empty + i, 4 * kGroups);
    }
    fence_barriers();
  }
  // The rows below the last image of a box, which no copy brings: zeros for good.
  for (int box = 0; box < g.pixel_stages * Wide; ++box)
    for (int at = g.arriving + tid * 16; at < g.loaded; at += 128 * (kGroups + 1) * 16)
      store_four(reinterpret_cast<float4*>(pixels + box * g.loaded + at), 0, 0, 0, 0);
  fence_shared();
  __syncthreads();

  if (group == kGroups) {
    give_registers<kGroups == 2 ? 40 : 32>();
    if (tid % 128 == 0) {
      Buffers ring(g.pixel_stages);
      const int twice_y = g.places.step_y == 2, twice_x = g.places.step_x == 2;
      for (int tile = static_cast<int>(blockIdx.x); tile < g.tiles; tile += static_cast<int>(gridDim.x)) {
        const int phase = tile / g.tiles_of_phase, place = (tile - phase * g.tiles_of_phase) / g.tiles_m;
        const Phase& p = g.phases[phase];
        const int loads = loads_of(g, p);
        Place at[Wide];
#pragma unroll
        for (int b = 0; b < Wide; ++b) at[b] = place_of(g.places, place * Wide + b);
        for (int chunk = 0; chunk < g.chunks; ++chunk) {
          for (int load = 0; load < loads; ++load) {
            wait(pixels_empty + ring.stage, ring.parity ^ 1);
            uint64_t* const full = pixels_full + ring.stage;
            arrive_expecting(full, static_cast<uint32_t>(Wide * g.arriving));
            uint8_t* to = pixels + ring.stage * Wide * g.loaded;
            const Load of = load_at(g, p, load);
#pragma unroll
            for (int b = 0; b < Wide; ++b, to += g.loaded) {
              if (g.places.runs) {
                copy_run_in(to, all.sources[0], full, chunk * 64, at[b].x * g.places.step_x + p.first_x,
                            at[b].y * g.places.step_y + p.first_y, at[b].n, of.column * g.dilation_w,
                            of.row * g.dilation_h);
              } else {
                // Of strides of 2: a place in the image of its parity.
                const int y = p.first_y + (g.parities > 1 ? of.row : 0), x = p.first_x + of.column * g.dilation_w;
                copy_in(to, all.sources[(y & twice_y) * 2 + (x & twice_x)], full, chunk * 64, at[b].x + (x >> twice_x),
                        at[b].y + (y >> twice_y), at[b].n);
              }
            }
            ring.next();
          }
        }
      }
    } else if (tid % 128 == 32) {
      Buffers ring(g.filter_stages);
      for (int tile = static_cast<int>(blockIdx.x); tile < g.tiles; tile += static_cast<int>(gridDim.x)) {
        const Phase& p = g.phases[tile / g.tiles_of_phase];
        const int loads = loads_of(g, p), m0 = tile % g.tiles_of_phase % g.tiles_m * Tall * 64;
        for (int chunk = 0; chunk < g.chunks; ++chunk) {
          for (int load = 0; load < loads; ++load) {
            const Load of = load_at(g, p, load);
            const int taps = taps_of(g, p, of);
            for (int u = 0; u < taps; ++u) {
              const int tap = p.tap + (of.row + u * g.parities) * p.tap_row + of.column * p.tap_column;
              wait(filters_empty + ring.stage, ring.parity ^ 1);
              uint64_t* const full = filters_full + ring.stage;
              arrive_expecting(full, kFilters);
              uint8_t* const to = filters + ring.stage * kFilters;
              if constexpr (Across) {
#pragma unroll
                for (int i = 0; i < Tall; ++i)
                  copy_in(to + i * 64 * kRowBytes, all.filters, full, m0 + i * 64, tap, chunk * 64, 0);
              } else {
                copy_in(to, all.filters, full, chunk * 64, tap, m0, 0);
              }
              ring.next();
            }
          }
        }
      }
    }
  } else {
    take_registers<kGroups == 2 ? 232 : 160>();
    const int high = group % Tall, right = group / Tall, warp = tid % 128 / 32, lane = tid % 32;
    uint8_t* const mine = staged + group * N * kRowBytes;
    const uint32_t mine_at = shared_address(mine), pixels_at = shared_address(pixels),
                   filters_at = shared_address(filters);
    const int further = g.places.runs || g.parities > 1 ? kUnit : g.dilation_h * kUnit;  // from a tap to the next
    Buffers pixel_ring(g.pixel_stages), filter_ring(g.filter_stages);
    float first[kFirst / 2], second[kSecond > 0 ? kSecond / 2 : 1];
    for (int tile = static_cast<int>(blockIdx.x); tile < g.tiles; tile += static_cast<int>(gridDim.x)) {
      const int phase = tile / g.tiles_of_phase, in_phase = tile - phase * g.tiles_of_phase;
      const Phase& p = g.phases[phase];
      const int m0 = (in_phase % g.tiles_m * Tall + high) * 64, loads = loads_of(g, p);
      bool begun = false;
      int held_filters = 0, held_pixels = -1;  // what the products before the last ones queued read
      for (int chunk = 0; chunk < g.chunks; ++chunk) {
        for (int load = 0; load < loads; ++load) {
          const int taps = taps_of(g, p, load_at(g, p, load));
          wait(pixels_full + pixel_ring.stage, pixel_ring.parity);
          const uint32_t box = pixels_at + static_cast<uint32_t>((pixel_ring.stage * Wide + right) * g.loaded);
          for (int u = 0; u < taps; ++u) {
            wait(filters_full + filter_ring.stage, filter_ring.parity);
            const uint32_t a = filters_at + static_cast<uint32_t>(filter_ring.stage * kFilters + high * 64 * kRowBytes),
                           b = box + static_cast<uint32_t>(u * further);
            fence_products();
#pragma unroll
            for (int k = 0; k < 4; ++k) {
              const uint64_t left = Across ? descriptor_t(a + static_cast<uint32_t>(k * 16 * kRowBytes), 64 * kRowBytes)
                                           : descriptor_k(a + static_cast<uint32_t>(k * 32));
              multiply<T, Across, false>(first, left, descriptor_k(b + static_cast<uint32_t>(k * 32)), begun || k > 0);
              if constexpr (kSecond > 0)
                multiply<T, Across, false>(
                    second, left, descriptor_k(b + static_cast<uint32_t>(kFirst * kRowBytes + k * 32)), begun || k > 0);
            }
            commit_products();
            if (begun) {
              wait_products<1>();
              if (lane == 0) {
                arrive(filters_empty + held_filters);
                if (held_pixels >= 0) arrive(pixels_empty + held_pixels);
              }
            }
            begun = true;
            held_filters = filter_ring.stage, held_pixels = u + 1 == taps ? pixel_ring.stage : -1;
            filter_ring.next();
          }
          pixel_ring.next();
        }
      }
      wait_products<0>();
      pin(first);
      pin(second);
      if (lane == 0) {
        arrive(filters_empty + held_filters);
        arrive(pixels_empty + held_pixels);
      }

      // Rounded and turned around: [pixels][64 channels], which the copy engine takes away.
      if (tid % 128 == 0) wait_out_read();
      named_sync(1 + group, 128);
      float add[2];
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int c = m0 + warp * 16 + lane / 4 + h * 8;
        add[h] = all.bias != nullptr && c < g.m ? cuda::widen(static_cast<const T*>(all.bias)[c]) : 0.0f;
      }
      const auto stage = [&](const auto& sums, int j, int pixel) {
        const int at = pixel + lane / 16 * 8 + lane % 8, piece = warp * 2 + lane / 8 % 2;
        store_transposed(mine_at + swizzled(at, piece), pack2<T>(sums[4 * j] + add[0], sums[4 * j + 1] + add[0]),
                         pack2<T>(sums[4 * j + 2] + add[1], sums[4 * j + 3] + add[1]),
                         pack2<T>(sums[4 * j + 4] + add[0], sums[4 * j + 5] + add[0]),
                         pack2<T>(sums[4 * j + 6] + add[1], sums[4 * j + 7] + add[1]));
      };
#pragma unroll
      for (int j = 0; j < kFirst / 8; j += 2) stage(first, j, j * 8);
      if constexpr (kSecond > 0) {
#pragma unroll
        for (int j = 0; j < kSecond / 8; j += 2) stage(second, j, kFirst + j * 8);
      }
      fence_shared();
      named_sync(1 + group, 128);
      if (tid % 128 == 0) {
        const int box = in_phase / g.tiles_m * Wide + right;
        const Place to = place_of(g.places, box);
        g.places.runs ? copy_out(all.results[0], mine, m0, box * N, 0, 0)
                      : copy_out(all.results[phase], mine, m0, to.x, to.y, to.n);
        commit_out();
      }
    }
    if (tid % 128 == 0) wait_out();
  }
#endif
}

/// A way of cutting the work; see boxes_kernel.
struct BoxShape {
  int tall, wide, columns;
};
inline constexpr BoxShape kBoxShapes[] = {{1, 2, 256}, {1, 2, 224}, {1, 2, 128}, {2, 1, 256},
                                          {2, 1, 224}, {2, 1, 192}, {2, 1, 128}, {3, 1, 192}};

#ifndef STRATA_TILE_EMULATION
/// A type of elements, as kernels are told it.
template <class Element>
struct Elements {
  using T = Element;
};

/// Launches the kernel of this many warpgroups and pixels.
template <class T, int Tall, int Wide, int N, bool Across>
void launch_boxes(const Boxes& g, int blocks, int bytes) {
  constexpr auto kernel = boxes_kernel<Elements<T>, Tall, Wide, N, Across>;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostShared), "convolution",
             "cudaFuncSetAttribute");
  kernel<<<static_cast<unsigned>(blocks), 128 * (Tall * Wide + 1), static_cast<size_t>(bytes), stream()>>>(g);
}

template <class T, bool Across, size_t... I>
void launch_shape(int shape, const Boxes& g, int blocks, int bytes, std::index_sequence<I...>) {
  ((shape == static_cast<int>(I)
        ? launch_boxes<T, kBoxShapes[I].tall, kBoxShapes[I].wide, kBoxShapes[I].columns, Across>(g, blocks, bytes)
        : void()),
   ...);
}
/// Launches shape number `shape`.
template <class T>
void run_boxes(int shape, bool across, const Boxes& g, int blocks, int bytes) {
  constexpr auto kAll = std::make_index_sequence<std::size(kBoxShapes)>();
  across ? launch_shape<T, true>(shape, g, blocks, bytes, kAll) : launch_shape<T, false>(shape, g, blocks, bytes, kAll);
}
#endif

}  // namespace strata::conv_cuda
