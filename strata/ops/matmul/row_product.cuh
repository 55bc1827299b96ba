#pragma once
// One row times a matrix whose rows lie along the sum: y = x W^T, what a step of generation is made of. All of its time
// is that of reading W. Each warp has rows of W of its own, which the copy engine brings through a ring of the warp's
// own: a place of the ring is asked for again as soon as it was read. What fits into the rings is asked for before the
// kernels before this one have ended, since they do not write weights.

#include "strata/cuda/tile/copy.cuh"
#ifndef STRATA_TILE_EMULATION
#include "strata/cuda/kernel.cuh"
#include "strata/cuda/overlap.cuh"
#include "strata/cuda/tile/single.cuh"
#endif

namespace strata::cuda {

/// [1, k] times [n, k]: W's rows `row` elements apart, x and W aligned to 16 bytes, k and `row` multiples of 8.
struct RowProduct {
  const void *x, *w, *bias;  // bias of n numbers, or null
  void* y;
  int64_t row;
  int n, k;
  float alpha, beta;  // y = alpha * sum + beta * y + bias
  bool bias_is_out;   // bias has y's dtype, else x's
};

/// Bytes of a place, and places of a warp's ring. With x beside them half of a multiprocessor's shared memory must do,
/// so that the blocks of two products may be there at the same time.
template <int kPlaceBytes_, int kPlaces_>
struct RowShape {
  static constexpr int kWarps = 8, kThreads = 32 * kWarps, kPlaceBytes = kPlaceBytes_, kPlaces = kPlaces_;
  static constexpr int kRingBytes = kWarps * kPlaces * kPlaceBytes, kBarrierBytes = kWarps * kPlaces * 8;
  static constexpr int shared_bytes(int k) { return kRingBytes + kBarrierBytes + 2 * k; }
};

/// T is x's and W's dtype, of 16 bits; O is y's. A lane adds by four sums, so that the order depends on k alone.
template <class T, class O, class S>
__global__ void __launch_bounds__(S::kThreads) row_product_kernel(const RowProduct g) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using namespace tile;
  constexpr int kPiece = 8, kLanes = 32, kPlace = S::kPlaceBytes / 2;  // elements
  let_next_begin();
  const int warp = static_cast<int>(threadIdx.x) / kLanes, lane = static_cast<int>(threadIdx.x) % kLanes;
  uint8_t* const memory = shared_memory();
  uint8_t* const ring = memory + warp * S::kPlaces * S::kPlaceBytes;
  uint64_t* const full = reinterpret_cast<uint64_t*>(memory + S::kRingBytes) + warp * S::kPlaces;
  T* const x = reinterpret_cast<T*>(memory + S::kRingBytes + S::kBarrierBytes);

  // Neighbouring rows go to different multiprocessors, so that each has as many as the others, give or take one.
  const int warps = static_cast<int>(gridDim.x) * S::kWarps;
  const int first = warp * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x);
  const int parts = (g.k + kPlace - 1) / kPlace;  // of a row
  const int total = first < g.n ? (g.n - first + warps - 1) / warps * parts : 0;

  int asked_row = first, asked_part = 0;
  const auto ask = [&](int place) {
    const int from = asked_part * kPlace, bytes = 2 * min(kPlace, g.k - from);
    arrive_expecting(full + place, static_cast<uint32_t>(bytes));
    copy_bytes_in(ring + place * S::kPlaceBytes, static_cast<const T*>(g.w) + asked_row * g.row + from, full + place,
                  bytes);
    if (++asked_part == parts) asked_part = 0, asked_row += warps;
  };
  if (lane == 0) {
    for (int i = 0; i < S::kPlaces; ++i) init_barrier(full + i, 1);
    fence_barriers();
    for (int i = 0; i < min(S::kPlaces, total); ++i) ask(i);
  }
  wait_for_previous();
  for (int i = static_cast<int>(threadIdx.x); i < g.k / kPiece; i += S::kThreads)
    reinterpret_cast<uint4*>(x)[i] = load_written(static_cast<const T*>(g.x) + i * kPiece);
  __syncthreads();

  Ring<S::kPlaces> at;
  int left = total - S::kPlaces;  // parts that are not asked for yet
  for (int row = first; row < g.n; row += warps) {
    float sums[4] = {};
    for (int from = 0; from < g.k; from += kPlace) {
      wait(full + at.stage, at.parity);
      const T* const w = reinterpret_cast<const T*>(ring + at.stage * S::kPlaceBytes);
#pragma unroll
      for (int i = 0; i < kPlace; i += kLanes * kPiece) {
        const int e = i + lane * kPiece;
        if (from + e >= g.k) break;
        const auto a = load_vec<kPiece>(x + from + e), b = load_vec<kPiece>(w + e);
#pragma unroll
        for (int j = 0; j < kPiece; ++j) sums[j % 4] += widen(a.v[j]) * widen(b.v[j]);
      }
      __syncwarp();
      if (lane == 0 && left > 0) ask(at.stage);
      --left;
      at.next();
    }
    float v = warp_reduce<kLanes>((sums[0] + sums[1]) + (sums[2] + sums[3]), Sum()) * g.alpha;
    if (lane != 0) continue;
    O* const to = static_cast<O*>(g.y) + row;
    if (g.beta != 0) v += g.beta * widen(*to);
    if (g.bias != nullptr)
      v += g.bias_is_out ? widen(static_cast<const O*>(g.bias)[row]) : widen(static_cast<const T*>(g.bias)[row]);
    *to = narrow<O>(v);
  }
#endif
}

}  // namespace strata::cuda
