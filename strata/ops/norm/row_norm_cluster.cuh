#pragma once
// Gradients of layer norm and RMS norm of aligned rows that are too long for one block's registers.

#include "strata/ops/norm/row_norm_ring.cuh"

namespace strata::cuda {

inline constexpr int kClusterThreads = 512, kClusterHeld = 2;  // vectors of a row, of each thread

/// Stores into the shared memory of block `rank` of the cluster, where this block's own variable `at` would be.
__device__ __forceinline__ void store_in_cluster(float* at, unsigned rank, float v) {
#if __CUDA_ARCH__ >= 900
  uint32_t to;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(to)
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(at))), "r"(rank));
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(to), "f"(v) : "memory");
#else
  __trap();
#endif
}
/// The halves of a barrier of all threads of the cluster's blocks: what they stored before they arrived is there for
/// who has waited. Each thread waits before it arrives again.
__device__ __forceinline__ void cluster_arrive() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
#endif
}
__device__ __forceinline__ void cluster_wait() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
#endif
}

/// What ring_backward_kernel() computes, of rows that the kCluster blocks of a cluster share, each with its part of the
/// columns: their warps' sums go to all of them. While blocks wait for each other nothing would run, so a row's first
/// pass comes before the second one of the row before: at a barrier a block always has a pass to do. Each row is read
/// from shared memory twice, for which registers need not hold two of them.
/// partial is [cluster][1 or 2][n]; three stages at least.
template <class T, class A, bool kRms, int kCluster>
__global__ void __launch_bounds__(kClusterThreads, 1)
    cluster_backward_kernel(const RowNormBackward c, compute_t<T>* partial, int stages) {
  using C = compute_t<T>;
  constexpr int V = kVec<T>, kThreads = kClusterThreads, kHeld = kClusterHeld, kWarps = kThreads / kWarp;
  extern __shared__ uint4 ring[];
  // Of the row in its second pass, of the next one, and of the one after, which a quicker block may be sending.
  __shared__ alignas(16) C sums[3][kCluster * kWarps][2];
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kWarp;
  const int n = static_cast<int>(c.n), streams = c.grad_sum != nullptr ? 3 : 2;
  const int rank = static_cast<int>(blockIdx.x) % kCluster, column = (rank * kHeld * kThreads + thread) * V;
  bool in[kHeld];
#pragma unroll
  for (int k = 0; k < kHeld; ++k) in[k] = column + k * kThreads * V < n;

  const int64_t unit = blockIdx.x / kCluster, units = gridDim.x / kCluster;
  int64_t asked = unit;
  const int64_t begin = unit * n + column, apart = units * n;
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
          tile::copy_async(at + k * kThreads, px + k * kThreads * V);
          tile::copy_async(at + (kHeld + k) * kThreads, pg + k * kThreads * V);
          if (streams == 3) tile::copy_async(at + (2 * kHeld + k) * kThreads, ps + k * kThreads * V);
        }
      px += apart, pg += apart, ps += apart;
    }
    asked += units;
    tile::commit_copies();
  };
  const auto after = [&](uint4* at) { return at + stage_size == end ? first : at + stage_size; };
  for (int s = 0; s < stages; ++s) ask(first + s * stage_size);

  const A* w = static_cast<const A*>(c.weight);
  Vec<C, V> dw[kHeld], db[kRms ? 1 : kHeld], weight[kHeld];
#pragma unroll
  for (int k = 0; k < kHeld; ++k) {
#pragma unroll
    for (int j = 0; j < V; ++j) {
      dw[k].v[j] = 0, weight[k].v[j] = 1;
      if constexpr (!kRms) db[k].v[j] = 0;
    }
    if (w != nullptr && in[k]) weight[k] = load_wide<C, V>(w + column + k * kThreads * V);
  }

  struct Moments {
    C rstd, shift;  // xhat = x rstd + shift
  };
  const auto moments_of = [&](int64_t i) {
    Moments m{0, 0};
    if (i < c.rows) {
      m.rstd = static_cast<const C*>(c.rstd)[i];
      if constexpr (!kRms) m.shift = -static_cast<const C*>(c.mean)[i] * m.rstd;
    }
    return m;
  };
  const auto hats = [&](const uint4* at, int k, const Moments& m) {
    Vec<C, V> h = widen_words<T>(load_words(&at[k * kThreads]));
#pragma unroll
    for (int j = 0; j < V; ++j) h.v[j] = kRms ? h.v[j] * m.rstd : h.v[j] * m.rstd + m.shift;
    return h;
  };
  // The warp's sums of g w and of g w xhat, in every lane; the columns' sums go on.
  const auto first_pass = [&](const uint4* at, const Moments& m, C& a, C& b) {
    a = b = 0;
#pragma unroll
    for (int k = 0; k < kHeld; ++k)
      if (in[k]) {
        const Vec<C, V> h = hats(at, k, m), g = widen_words<T>(load_words(&at[(kHeld + k) * kThreads]));
#pragma unroll
        for (int j = 0; j < V; ++j) {
          const C gw = g.v[j] * weight[k].v[j];
          if constexpr (!kRms) a += gw, db[k].v[j] += g.v[j];
          b += gw * h.v[j];
          dw[k].v[j] += g.v[j] * h.v[j];
        }
      }
    if constexpr (kRms) {
      b = warp_reduce(b, Sum());
    } else {
      // Lanes 0 to 15 add up a, the others b.
      const bool low = lane < kWarp / 2;
      C mine = low ? a : b;
      mine += __shfl_xor_sync(0xffffffffu, low ? b : a, kWarp / 2);
      mine = warp_reduce<kWarp / 2>(mine, Sum());
      const C other = __shfl_xor_sync(0xffffffffu, mine, kWarp / 2);
      a = low ? mine : other, b = low ? other : mine;
    }
  };
  const auto send = [&](int row, C a, C b) {
    if (lane < kCluster) {
      C* const mine = sums[row][rank * kWarps + thread / kWarp];
      if constexpr (!kRms) store_in_cluster(mine, lane, a);
      store_in_cluster(mine + 1, lane, b);
    }
    cluster_arrive();
  };

  const C share = C(1) / static_cast<C>(n);
  Most<T> most(c.most);
  uint4* at = first;
  Moments now = moments_of(unit), next = moments_of(unit + units);
  C a, b;
  wait_for_copies_but(stages - 1);
  first_pass(at, now, a, b);
  cluster_arrive(), cluster_wait();  // all blocks are there
  int row = 0;                       // of `sums`
  send(row, a, b);
  for (int64_t r = unit; r < c.rows; r += units) {
    const bool more = r + units < c.rows;
    uint4* const next_at = after(at);
    const Moments third = moments_of(r + 2 * units);
    if (more) {
      wait_for_copies_but(stages - 2);
      first_pass(next_at, next, a, b);
    }
    cluster_wait();
    const int next_row = row == 2 ? 0 : row + 1;
    if (more) send(next_row, a, b);

    // Every block adds the same numbers up in the same order.
    C all_a = 0, all_b = 0;
#pragma unroll
    for (int q = 0; q < kCluster * kWarps; q += kWarp) {
      if constexpr (!kRms) all_a += sums[row][q + lane][0];
      all_b += sums[row][q + lane][1];
    }
    if constexpr (!kRms) all_a = warp_reduce(all_a, Sum());
    all_b = warp_reduce(all_b, Sum());
    const C m1 = -all_a * share * now.rstd, m2 = -all_b * share * now.rstd;
#pragma unroll
    for (int k = 0; k < kHeld; ++k)
      if (in[k]) {
        const Vec<C, V> h = hats(at, k, now), g = widen_words<T>(load_words(&at[(kHeld + k) * kThreads]));
        Vec<C, V> y;
#pragma unroll
        for (int j = 0; j < V; ++j) {
          const C gw = g.v[j] * weight[k].v[j];
          y.v[j] = kRms ? gw * now.rstd : gw * now.rstd + m1;
        }
        if (streams == 3) {
          const Vec<C, V> added = widen_words<T>(load_words(&at[(2 * kHeld + k) * kThreads]));
#pragma unroll
          for (int j = 0; j < V; ++j) y.v[j] += added.v[j];
        }
#pragma unroll
        for (int j = 0; j < V; ++j) y.v[j] += m2 * h.v[j];
        store_narrow(to + k * kThreads * V, y, most);
      }
    to += apart;
    ask(at);
    at = next_at, row = next_row, now = next, next = third;
  }
  tile::wait_copies<0>();
  most.leave();
  if (partial == nullptr) return;
  C* const out = partial + unit * (kRms ? 1 : 2) * n;
#pragma unroll
  for (int k = 0; k < kHeld; ++k)
    if (in[k])
#pragma unroll
      for (int j = 0; j < V; ++j) {
        out[column + k * kThreads * V + j] = dw[k].v[j];
        if constexpr (!kRms) out[n + column + k * kThreads * V + j] = db[k].v[j];
      }
}

}  // namespace strata::cuda
