#pragma once
// Gradients of layer norm and RMS norm where rows lie aligned: persistent blocks whose rows come through a ring in
// shared memory.

#include "strata/cuda/row_loops.cuh"
#include "strata/cuda/tile/copy.cuh"
#include "strata/ops/norm/norm_cuda.cuh"
#include "strata/ops/norm/norm_kernel.h"

namespace strata::cuda {

/// Threads of a block, kRow of them for a row, each with kHeld vectors of it; the block has the multiprocessor's
/// registers to itself.
template <int kHeld>
inline constexpr int kRingThreads = kHeld == 3 ? 384 : 512;

/// Rows on their way to each thread, at most. The longest rows leave the L1 cache room for their weights.
template <int kHeld>
inline constexpr int kMostStages = kHeld == 4 ? 2 : 4;

/// All but `pending` groups of copies have arrived, for the thread itself.
__device__ __forceinline__ void wait_for_copies_but(int pending) {
  if (pending >= 3)
    tile::wait_copies<3>();
  else if (pending == 2)
    tile::wait_copies<2>();
  else
    tile::wait_copies<1>();
}

/// Waits for the kThreads threads of one row.
template <int kThreads>
__device__ __forceinline__ void row_barrier(int row) {
  asm volatile("bar.sync %0, %1;" ::"r"(row + 1), "n"(kThreads) : "memory");
}

/// The gradient of x as in RowNormBackward: rstd (g w - m1 - xhat m2), m1 and m2 the means of g w and of g w xhat over
/// the row. Each group of kRow threads takes every so many rows; rows of x, grad_y and grad_sum are copied to shared
/// memory `stages` rows ahead, and each thread reads only what it asked for itself. On the way the threads add up their
/// columns' part of the gradients of weight and (not for RMS norm) bias; partial[block][1 or 2][n] takes their sums
/// over the block's rows, unless it is null.
template <class T, class A, int kRow, int kHeld, bool kRms>
__global__ void __launch_bounds__(kRingThreads<kHeld>, 1)
    ring_backward_kernel(const RowNormBackward c, compute_t<T>* partial, int stages) {
  using C = compute_t<T>;
  constexpr int V = kVec<T>, kThreads = kRingThreads<kHeld>, kRows = kThreads / kRow, kWarps = kRow / kWarp;
  // Widened values and weights stay in registers where these suffice.
  constexpr bool kWide = kHeld * V <= 24;
  // The next row is asked for as soon as this one's place is free; where registers lack, that is after its second pass.
  constexpr bool kEarly = kWide && kRms;
  extern __shared__ uint4 ring[];
  __shared__ alignas(16) C sums[2][kRows][kWarps][2];
  const int thread = static_cast<int>(threadIdx.x), row = thread / kRow, x0 = thread % kRow, lane = thread % kWarp;
  const int n = static_cast<int>(c.n), streams = c.grad_sum != nullptr ? 3 : 2;
  const int column = x0 * V;
  bool in[kHeld];
#pragma unroll
  for (int k = 0; k < kHeld; ++k) in[k] = column + k * kRow * V < n;

  const int64_t unit = blockIdx.x, units = gridDim.x, step = units * kRows;
  int64_t r = row * units + unit, asked = r;
  const int64_t begin = r * n + column, apart = step * n;
  const T *px = static_cast<const T*>(c.x) + begin, *pg = static_cast<const T*>(c.grad_y) + begin;
  const T* ps = static_cast<const T*>(streams == 3 ? c.grad_sum : c.x) + begin;
  T* to = static_cast<T*>(c.grad_x) + begin;
  const int stage_size = streams * kHeld * kThreads;
  uint4 *const first = ring + thread, *const end = first + stages * stage_size;
  const auto ask = [&](uint4* at) {
    if (asked < c.rows) {
#pragma unroll
      for (int k = 0; k < kHeld; ++k)
        if (in[k]) {
          tile::copy_async(at + k * kThreads, px + k * kRow * V);
          tile::copy_async(at + (kHeld + k) * kThreads, pg + k * kRow * V);
          if (streams == 3) tile::copy_async(at + (2 * kHeld + k) * kThreads, ps + k * kRow * V);
        }
      px += apart, pg += apart, ps += apart;
    }
    asked += step;
    tile::commit_copies();
  };
  // Into the place of a row that is done with; the place of the next one.
  const auto ask_again = [&](uint4* at) {
    ask(at);
    return at + stage_size == end ? first : at + stage_size;
  };
  for (int s = 0; s < stages; ++s) ask(first + s * stage_size);

  const A* w = static_cast<const A*>(c.weight);
  const auto weight = [&](int k) {
    Vec<C, V> one;
#pragma unroll
    for (int j = 0; j < V; ++j) one.v[j] = 1;
    return w != nullptr && in[k] ? load_wide<C, V>(w + column + k * kRow * V) : one;
  };
  Vec<C, V> dw[kHeld], db[kRms ? 1 : kHeld], wide_w[kWide ? kHeld : 1];
#pragma unroll
  for (int k = 0; k < kHeld; ++k)
#pragma unroll
    for (int j = 0; j < V; ++j) {
      dw[k].v[j] = 0;
      if constexpr (!kRms) db[k].v[j] = 0;
    }
  if constexpr (kWide)
#pragma unroll
    for (int k = 0; k < kHeld; ++k) wide_w[k] = weight(k);
  const C share = C(1) / static_cast<C>(n);
  const auto mean_of = [&](int64_t i) { return kRms || i >= c.rows ? C(0) : static_cast<const C*>(c.mean)[i]; };
  const auto rstd_of = [&](int64_t i) { return i >= c.rows ? C(0) : static_cast<const C*>(c.rstd)[i]; };
  C next_mean = mean_of(r), next_rstd = rstd_of(r);
  uint4* at = first;
  int parity = 0;
  Most<T> most(c.most);
  for (; r < c.rows; r += step) {
    const C rstd = next_rstd, shift = -next_mean * rstd;
    wait_for_copies_but(stages - 1);
    Vec<C, V> xh[kWide ? kHeld : 1], gw[kWide ? kHeld : 1];
    uint4 more[kEarly ? kHeld : 1];
    C a = 0, b = 0;
    const auto hats = [&](int k, Vec<C, V>& h) {
      h = widen_words<T>(load_words(&at[k * kThreads]));
#pragma unroll
      for (int j = 0; j < V; ++j) h.v[j] = kRms ? h.v[j] * rstd : h.v[j] * rstd + shift;
    };
#pragma unroll
    for (int k = 0; k < kHeld; ++k)
      if (in[k]) {
        Vec<C, V> h, gwk;
        hats(k, h);
        const Vec<C, V> g = widen_words<T>(load_words(&at[(kHeld + k) * kThreads])),
                        wv = kWide ? wide_w[kWide ? k : 0] : weight(k);
#pragma unroll
        for (int j = 0; j < V; ++j) {
          gwk.v[j] = g.v[j] * wv.v[j];
          if constexpr (!kRms) a += gwk.v[j], db[k].v[j] += g.v[j];
          b += gwk.v[j] * h.v[j];
          dw[k].v[j] += g.v[j] * h.v[j];
        }
        if constexpr (kWide) xh[k] = h, gw[k] = gwk;
        if constexpr (kEarly)
          if (streams == 3) more[k] = load_words(&at[(2 * kHeld + k) * kThreads]);
      }
    if constexpr (kEarly) at = ask_again(at);
    next_mean = mean_of(r + step), next_rstd = rstd_of(r + step);

    // Lanes 0 to 15 add up a, the others b.
    if constexpr (kRms) {
      b = warp_reduce(b, Sum());
    } else {
      const bool low = lane < kWarp / 2;
      C mine = low ? a : b;
      mine += __shfl_xor_sync(0xffffffffu, low ? b : a, kWarp / 2);
      mine = warp_reduce<kWarp / 2>(mine, Sum());
      const C other = __shfl_xor_sync(0xffffffffu, mine, kWarp / 2);
      a = low ? mine : other, b = low ? other : mine;
    }
    if constexpr (kWarps > 1) {
      // The other half of `sums` is written next time round: one barrier is enough.
      if (lane == 0) sums[parity][row][x0 / kWarp][0] = a, sums[parity][row][x0 / kWarp][1] = b;
      row_barrier<kRow>(row);
      a = b = 0;
#pragma unroll
      for (int q = 0; q < kWarps; ++q) {
        if constexpr (!kRms) a += sums[parity][row][q][0];
        b += sums[parity][row][q][1];
      }
      parity ^= 1;
    }
    const C m1 = -a * share * rstd, m2 = -b * share * rstd;
#pragma unroll
    for (int k = 0; k < kHeld; ++k)
      if (in[k]) {
        Vec<C, V> h, gwk, y;
        if constexpr (kWide) {
          h = xh[k], gwk = gw[k];
        } else {
          hats(k, h);
          gwk = widen_words<T>(load_words(&at[(kHeld + k) * kThreads]));
          const Vec<C, V> wv = weight(k);
#pragma unroll
          for (int j = 0; j < V; ++j) gwk.v[j] *= wv.v[j];
        }
        if (streams == 3) {
          const Vec<C, V> added =
              widen_words<T>(kEarly ? more[kEarly ? k : 0] : load_words(&at[(2 * kHeld + k) * kThreads]));
#pragma unroll
          for (int j = 0; j < V; ++j) y.v[j] = gwk.v[j] * rstd + (added.v[j] + (kRms ? C(0) : m1));
        } else {
#pragma unroll
          for (int j = 0; j < V; ++j) y.v[j] = kRms ? gwk.v[j] * rstd : gwk.v[j] * rstd + m1;
        }
#pragma unroll
        for (int j = 0; j < V; ++j) y.v[j] += m2 * h.v[j];
        store_narrow(to + k * kRow * V, y, most);
      }
    to += apart;
    if constexpr (!kEarly) at = ask_again(at);
  }
  most.leave();
  if (partial == nullptr) return;
  constexpr int kSums = kRms ? 1 : 2;
  C* out = partial + unit * kSums * n;
  C* columns = kRows == 1 ? out : reinterpret_cast<C*>(ring) + static_cast<int64_t>(row) * kSums * n;
  tile::wait_copies<0>();
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kHeld; ++k)
    if (in[k])
#pragma unroll
      for (int j = 0; j < V; ++j) {
        columns[column + k * kRow * V + j] = dw[k].v[j];
        if constexpr (!kRms) columns[n + column + k * kRow * V + j] = db[k].v[j];
      }
  if constexpr (kRows > 1) {
    __syncthreads();
    columns = reinterpret_cast<C*>(ring);
    for (int i = thread; i < kSums * n; i += kThreads) {
      C s = columns[i];
#pragma unroll
      for (int q = 1; q < kRows; ++q) s += columns[q * kSums * n + i];
      out[i] = s;
    }
  }
}

}  // namespace strata::cuda
