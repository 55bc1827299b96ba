#pragma once
// The kernel of forward and transposed convolutions: filters times pixels, both from shared memory, the result's
// channels along the rows of the product and its pixels along the columns. A warpgroup computes 64 channels of N
// pixels; a block has `Tall` of them for further channels of the same pixels, or `Wide` for further pixels. Two warps
// of another warpgroup start the copies, of pixels and of filters, each around its own ring.

#include "strata/ops/conv/conv_boxes.cuh"

namespace strata::conv_cuda {

struct Boxes {
  CUtensorMap source, filters, result;
  const void* bias;
  Places places;
  int m, tiles_m, tiles;
  int chunks;              // of 64 channels of the source
  int kernel_h, kernel_w;  // taps
  int dilation_h, dilation_w;
  bool backwards;  // taps from the last to the first
  int loaded;      // bytes of a box with its further rows
  int pixel_stages, filter_stages;
};

/// How many boxes of pixels a chunk of channels takes, and how many taps each serves.
__host__ __device__ inline int loads_of(const Boxes& g) {
  return g.places.runs ? g.kernel_h * g.kernel_w : g.kernel_w;
}
__host__ __device__ inline int taps_of_load(const Boxes& g) {
  return g.places.runs ? 1 : g.kernel_h;
}

/// The sums of a warpgroup: N columns in one product, or in two.
template <int N>
struct Columns {
  static constexpr int kFirst = N == 224 ? 128 : N == 192 ? 96 : N;
  static constexpr int kSecond = N - kFirst;
};

template <class T, int Tall, int Wide, int N, bool Across>
__global__ void __launch_bounds__(128 * (Tall * Wide + 1), 1) boxes_kernel(const __grid_constant__ Boxes g) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr int kGroups = Tall * Wide, kFilters = Tall * 64 * kRowBytes;
  constexpr int kFirst = Columns<N>::kFirst, kSecond = Columns<N>::kSecond;
  extern __shared__ uint8_t raw[];
  __shared__ uint64_t pixels_full[kMostStages], pixels_empty[kMostStages], filters_full[kMostStages],
      filters_empty[kMostStages];
  const uint32_t staged = (shared_address(raw) + 1023) & ~1023u;  // results, N pixels of 64 channels a warpgroup
  const uint32_t pixels = staged + static_cast<uint32_t>(kGroups * N * kRowBytes),
                 filters = pixels + static_cast<uint32_t>(g.pixel_stages * Wide * g.loaded);
  const int tid = static_cast<int>(threadIdx.x), group = tid / 128;
  const int loads = loads_of(g), taps = taps_of_load(g);
  if (tid == 0) {
    for (int i = 0; i < kMostStages; ++i) {
      init_barrier(pixels_full + i, 1);
      init_barrier(filters_full + i, 1);
      init_barrier(pixels_empty + i, 4 * kGroups);
      init_barrier(filters_empty + i, 4 * kGroups);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    fence_shared();
  }
  __syncthreads();

  if (group == kGroups) {
    give_registers<kGroups == 2 ? 40 : 32>();
    if (tid % 128 == 0) {
      Buffers ring(g.pixel_stages);
      for (int tile = static_cast<int>(blockIdx.x); tile < g.tiles; tile += static_cast<int>(gridDim.x)) {
        Place at[Wide];
#pragma unroll
        for (int b = 0; b < Wide; ++b) at[b] = place_of(g.places, tile / g.tiles_m * Wide + b);
        for (int chunk = 0; chunk < g.chunks; ++chunk) {
          for (int load = 0; load < loads; ++load) {
            wait(pixels_empty + ring.stage, ring.parity ^ 1);
            uint64_t* const full = pixels_full + ring.stage;
            arrive_expecting(full, static_cast<uint32_t>(Wide * g.loaded));
            uint32_t to = pixels + static_cast<uint32_t>(ring.stage * Wide * g.loaded);
#pragma unroll
            for (int b = 0; b < Wide; ++b, to += static_cast<uint32_t>(g.loaded)) {
              const int y = at[b].y * g.places.step_y + g.places.first_y,
                        x = at[b].x * g.places.step_x + g.places.first_x;
              if (g.places.runs) {
                const int u = load / g.kernel_w, v = load - u * g.kernel_w;
                copy_run_in(to, g.source, full, chunk * 64, x, y, at[b].n, v * g.dilation_w, u * g.dilation_h);
              } else {
                copy_box_in(to, g.source, full, chunk * 64, x + load * g.dilation_w, y, at[b].n);
              }
            }
            ring.next();
          }
        }
      }
    } else if (tid % 128 == 32) {
      Buffers ring(g.filter_stages);
      const int all = g.kernel_h * g.kernel_w;
      for (int tile = static_cast<int>(blockIdx.x); tile < g.tiles; tile += static_cast<int>(gridDim.x)) {
        const int m0 = tile % g.tiles_m * Tall * 64;
        for (int chunk = 0; chunk < g.chunks; ++chunk) {
          for (int load = 0; load < loads; ++load) {
            for (int u = 0; u < taps; ++u) {
              const int forwards = g.places.runs ? load : u * g.kernel_w + load;
              const int tap = g.backwards ? all - 1 - forwards : forwards;
              wait(filters_empty + ring.stage, ring.parity ^ 1);
              uint64_t* const full = filters_full + ring.stage;
              arrive_expecting(full, kFilters);
              const uint32_t to = filters + static_cast<uint32_t>(ring.stage * kFilters);
              if constexpr (Across) {
#pragma unroll
                for (int i = 0; i < Tall; ++i)
                  copy_box_in(to + i * 64 * kRowBytes, g.filters, full, m0 + i * 64, tap, chunk * 64, 0);
              } else {
                copy_box_in(to, g.filters, full, chunk * 64, tap, m0, 0);
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
    const uint32_t mine = staged + static_cast<uint32_t>(group * N * kRowBytes);
    Buffers pixel_ring(g.pixel_stages), filter_ring(g.filter_stages);
    float first[kFirst / 2], second[kSecond > 0 ? kSecond / 2 : 1];
    for (int tile = static_cast<int>(blockIdx.x); tile < g.tiles; tile += static_cast<int>(gridDim.x)) {
      const int m0 = (tile % g.tiles_m * Tall + high) * 64;
      bool begun = false;
      int held_filters = 0, held_pixels = -1;  // what the products before the last ones queued read
      for (int load = 0; load < g.chunks * loads; ++load) {
        wait(pixels_full + pixel_ring.stage, pixel_ring.parity);
        const uint32_t box = pixels + static_cast<uint32_t>((pixel_ring.stage * Wide + right) * g.loaded);
        for (int u = 0; u < taps; ++u) {
          wait(filters_full + filter_ring.stage, filter_ring.parity);
          const uint32_t a = filters + static_cast<uint32_t>(filter_ring.stage * kFilters + high * 64 * kRowBytes),
                         b = box + static_cast<uint32_t>(u * g.dilation_h * kUnit);
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
        add[h] = g.bias != nullptr && c < g.m ? widen(static_cast<const T*>(g.bias)[c]) : 0.0f;
      }
      const auto stage = [&](const auto& sums, int j, int pixel) {
        const int p = pixel + lane / 16 * 8 + lane % 8, piece = warp * 2 + lane / 8 % 2;
        store_transposed(mine + swizzled(p, piece), pack2<T>(sums[4 * j] + add[0], sums[4 * j + 1] + add[0]),
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
        const int box = tile / g.tiles_m * Wide + right;
        const Place to = place_of(g.places, box);
        const bool runs = g.places.runs;
        asm volatile(
            "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(&g.result),
            "r"(mine), "r"(m0), "r"(runs ? box * N : to.x), "r"(runs ? 0 : to.y), "r"(runs ? 0 : to.n)
            : "memory");
        commit_out();
      }
    }
    if (tid % 128 == 0) wait_out();
  }
#endif
}

/// Launches the kernel of this many warpgroups and pixels.
template <class T, int Tall, int Wide, int N, bool Across>
void launch_boxes(const Boxes& g, int blocks, int bytes) {
  constexpr auto kernel = boxes_kernel<T, Tall, Wide, N, Across>;
  check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostShared), "convolution",
             "cudaFuncSetAttribute");
  kernel<<<static_cast<unsigned>(blocks), 128 * (Tall * Wide + 1), static_cast<size_t>(bytes), stream()>>>(g);
}

/// A way of cutting the work; see boxes_kernel.
struct BoxShape {
  int tall, wide, columns;
};
inline constexpr BoxShape kBoxShapes[] = {{1, 2, 256}, {1, 2, 224}, {1, 2, 128}, {2, 1, 256},
                                          {2, 1, 224}, {2, 1, 192}, {2, 1, 128}, {3, 1, 192}};

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

}  // namespace strata::conv_cuda
