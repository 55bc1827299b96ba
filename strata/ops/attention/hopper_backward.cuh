#pragma once
// Gradients of attention on Hopper. A block has 128 keys and passes over the tiles of queries that see them; two
// warpgroups own 64 keys each, a third starts the copies and sends the gradients of queries away. Scores are computed
// transposed, keys by queries, so that weights and gradients of scores stay in registers as operands of the products
// for values and keys:
//   s^T = k q^T, dp^T = v grad_out^T, p = exp2(s factor - lse2), ds = p (dp - delta),
//   grad_v += p^T grad_out, grad_k += ds^T q, and grad_q += ds k, for which ds passes through shared memory.
// grad_q of a tile of queries has a term from every block whose keys it sees. Blocks add them to an f32 sum in one
// order, which makes results the same every time: each tile has a count of the terms in it, and a block waits for its
// place. A block only waits for blocks of its head that started before it, or (where blocks start at different queries,
// so that they need not queue up) that run at the same time.

#include "strata/ops/attention/hopper.cuh"

namespace strata::attention_cuda::hopper {

/// Queries of a tile, tiles in flight, buffers of keys and values: with two a block stays and takes one item of work
/// after another, with one it has the item of its number.
template <int kD, int kRowsN, int kStagesN, int kKeyBuffersN>
struct BackwardShape {
  static constexpr int D = kD, kRows = kRowsN, kKeys = 128, kStages = kStagesN, kKeyBuffers = kKeyBuffersN;
  static constexpr bool kStays = kKeyBuffers > 1;
  static constexpr int kThreads = 3 * 128;
  static constexpr int kKeyBytes = kKeys * 128 * kChunks<D>, kRowBytes = kRows * 128 * kChunks<D>,
                       kScoreBytes = kRows * kKeys * 2, kSumBytes = kRows * D * 4;
  static constexpr int kBarriers = 3 * kKeyBuffers + 4 * kStages + 2;
  static constexpr int kSharedBytes = 8 * kKeyBuffers + 2 * kKeyBuffers * kKeyBytes + 2 * kStages * kRowBytes +
                                      2 * kScoreBytes + kSumBytes + 2 * kStages * kRows * 4 + 8 * kBarriers;
  // A warpgroup's part of the gradient of a tile of queries is 64 x 64: rows, or columns, 64 group on.
  static constexpr bool kSplitRows = kRows == 128;
  // Between them they have what the block starts with, 168 for each of its threads.
  static constexpr int kCopyRegisters = D == 64 ? 40 : 24, kRegisters = D == 64 ? 232 : 240;
  static_assert(kSplitRows ? D == 64 : kRows == 64 && D == 128);
};

struct BackwardMaps {
  CUtensorMap q, k, v, grad_out, grad_k, grad_v;
};
/// f32 workspace: for each head (rows of `pitch` queries) lse2 and delta; for each tile of queries the sum of grad_q,
/// in the order of registers, and the count of its terms.
struct BackwardSpace {
  float *lse2, *delta, *sums;
  int *counts, *ticket;  // the next block's worth of keys
  int pitch, row_tiles, key_tiles;
  bool rotated;  // blocks of a head start at different queries
};

__device__ __forceinline__ void copy_bytes_in(void* to, const void* from, uint64_t* barrier, int bytes) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}
__device__ __forceinline__ void copy_bytes_out(float* to, const void* from, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(shared_address(from)),
               "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void add_bytes_out(float* to, const void* from, int bytes) {
  asm volatile("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
               "r"(shared_address(from)), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void wait_count(const int* p, int wanted) {
#ifdef STRATA_HOPPER_DEBUG
  const long long start = clock64();
#endif
  for (int have = -1; have < wanted;) {
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(have) : "l"(p) : "memory");
#ifdef STRATA_HOPPER_DEBUG
    if (clock64() - start > 200000000LL) __trap();
#endif
  }
}
__device__ __forceinline__ void post_count(int* p, int value) {
  asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(p), "r"(value) : "memory");
}

template <class T, class S>
__global__ void __launch_bounds__(S::kThreads, 1)
    backward_hopper_kernel(const __grid_constant__ AttentionCall c, const __grid_constant__ BackwardMaps maps,
                           const BackwardSpace space) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr int D = S::D, M = S::kRows, N = S::kKeys;
  extern __shared__ __align__(1024) uint8_t memory[];
  uint8_t* const all_ks = memory;
  uint8_t* const all_vs = all_ks + S::kKeyBuffers * S::kKeyBytes;
  uint8_t* const qs = all_vs + S::kKeyBuffers * S::kKeyBytes;
  uint8_t* const gs = qs + S::kStages * S::kRowBytes;
  uint8_t* const ds = gs + S::kStages * S::kRowBytes;  // two
  uint8_t* const sums = ds + 2 * S::kScoreBytes;
  float* const lse2s = reinterpret_cast<float*>(sums + S::kSumBytes);
  float* const deltas = lse2s + S::kStages * M;
  uint64_t* const full_k = reinterpret_cast<uint64_t*>(deltas + S::kStages * M);
  uint64_t* const full_v = full_k + S::kKeyBuffers;
  uint64_t* const empty_keys = full_v + S::kKeyBuffers;
  uint64_t* const full_q = empty_keys + S::kKeyBuffers;
  uint64_t* const empty_q = full_q + S::kStages;
  uint64_t* const full_g = empty_q + S::kStages;
  uint64_t* const empty_g = full_g + S::kStages;
  uint64_t* const full_sum = empty_g + S::kStages;
  uint64_t* const empty_sum = full_sum + 1;
  volatile int* const items = reinterpret_cast<volatile int*>(empty_sum + 1);  // of each buffer of keys
  const int group = threadIdx.x / 128, lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;

  if (threadIdx.x == 0) {
    if (shared_address(memory) % 1024 != 0) __trap();
    init_barrier(full_sum, 8), init_barrier(empty_sum, 1);
    for (int i = 0; i < S::kKeyBuffers; ++i)
      init_barrier(full_k + i, 1), init_barrier(full_v + i, 1), init_barrier(empty_keys + i, 3);
    for (int i = 0; i < S::kStages; ++i) {
      init_barrier(full_q + i, 1), init_barrier(full_g + i, 1);
      init_barrier(empty_q + i, 8), init_barrier(empty_g + i, 8);  // a warp each
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    fence_shared();
  }
  __syncthreads();

  const int all_heads = static_cast<int>(c.kv_heads), head_group = static_cast<int>(c.heads / c.kv_heads);
  // Item `at`: 128 keys of a head, the last of a head first (under a causal mask others wait for them), and the tiles
  // of queries that see them.
  struct Item {
    int tile, hk, b, first, n, start;
  };
  const auto item_at = [&](int at) {
    Item x;
    x.tile = space.key_tiles - 1 - at % space.key_tiles;
    x.hk = at / space.key_tiles % all_heads, x.b = at / space.key_tiles / all_heads;
    int64_t begin, end;
    visible_queries(c, x.tile * N, min(static_cast<int64_t>(x.tile) * N + N, c.tk), begin, end);
    x.first = static_cast<int>(begin / M);
    x.n = end > begin ? static_cast<int>((end + M - 1) / M) - x.first : 0;
    x.start = space.rotated ? static_cast<int>(static_cast<int64_t>(x.tile) * space.row_tiles / space.key_tiles) : 0;
    return x;
  };
  const auto row_tile = [&](const Item& x, int it) {
    int i = x.first + it;
    if (space.rotated) i = it + x.start, i -= i >= x.n ? x.n : 0;
    return i;
  };

  // Worked out while every warp still has registers for it.
  Item mine{};
  if constexpr (!S::kStays) mine = item_at(static_cast<int>(blockIdx.x));

  if (group == 2) {
    give_registers<S::kCopyRegisters>();
    if (warp == 0 && lane == 0) {  // copies in
      const int total = static_cast<int>(c.batch) * all_heads * space.key_tiles;
      Ring<S::kStages> r;
      Ring<S::kKeyBuffers> rk, last;
      for (bool any = false;; any = true) {
        int at = 0;
        if constexpr (S::kStays) {
          wait(empty_keys + rk.stage, rk.parity ^ 1);
          // Blocks that run at the same time wait for each other: none may keep the keys of another.
          if (space.rotated && any) wait(empty_keys + last.stage, last.parity);
          at = atomicAdd(space.ticket, 1);
          items[rk.stage] = at < total ? at : -1;
          if (at >= total) {
            arrive(full_k + rk.stage);
            break;
          }
        }
        const Item x = S::kStays ? item_at(at) : mine;
        const auto copy_keys = [&](uint8_t* to, const CUtensorMap& map, uint64_t* full) {
          arrive_expecting(full + rk.stage, S::kKeyBytes);
#pragma unroll
          for (int i = 0; i < kChunks<D>; ++i)
            copy_in(to + rk.stage * S::kKeyBytes + i * N * 128, map, full + rk.stage, 64 * i, x.tile * N, x.hk, x.b);
        };
        copy_keys(all_ks, maps.k, full_k);
        if (x.n == 0) copy_keys(all_vs, maps.v, full_v);
        int h = x.hk * head_group, it = 0;
        for (int step = 0; step < head_group * x.n; ++step) {
          const int row = row_tile(x, it) * M;
          const int64_t from = (static_cast<int64_t>(x.b) * c.heads + h) * space.pitch + row;
          wait(empty_q + r.stage, r.parity ^ 1);
          arrive_expecting(full_q + r.stage, S::kRowBytes + M * 4);
#pragma unroll
          for (int i = 0; i < kChunks<D>; ++i)
            copy_in(qs + r.stage * S::kRowBytes + i * M * 128, maps.q, full_q + r.stage, 64 * i, row, h, x.b);
          copy_bytes_in(lse2s + r.stage * M, space.lse2 + from, full_q + r.stage, M * 4);
          if (step == 0) copy_keys(all_vs, maps.v, full_v);
          wait(empty_g + r.stage, r.parity ^ 1);
          arrive_expecting(full_g + r.stage, S::kRowBytes + M * 4);
#pragma unroll
          for (int i = 0; i < kChunks<D>; ++i)
            copy_in(gs + r.stage * S::kRowBytes + i * M * 128, maps.grad_out, full_g + r.stage, 64 * i, row, h, x.b);
          copy_bytes_in(deltas + r.stage * M, space.delta + from, full_g + r.stage, M * 4);
          r.next();
          if (++it == x.n) it = 0, ++h;
        }
        if constexpr (!S::kStays) break;
        last = rk;
        rk.next();
      }
    } else if (warp == 1 && lane == 0) {  // sums out
      Ring<1> r;
      for (Ring<S::kKeyBuffers> rk;; rk.next()) {
        wait(full_k + rk.stage, rk.parity);
        const int taken = S::kStays ? items[rk.stage] : 0;
        if (taken < 0) break;
        const Item x = S::kStays ? item_at(taken) : mine;
        int h = x.hk * head_group, it = 0;
        for (int step = 0; step < head_group * x.n; ++step) {
          const int i = row_tile(x, it);
          int place;  // terms before this one
          if (space.rotated) {
            const int64_t begun = (static_cast<int64_t>(i + 1) * space.key_tiles - 1) / space.row_tiles + 1;
            const int upper = static_cast<int>(min(begun, static_cast<int64_t>(space.key_tiles)));
            place = x.start <= i ? upper - 1 - x.tile : upper + space.key_tiles - 1 - x.tile;
          } else {
            int64_t begin, end;
            visible_keys(c, static_cast<int64_t>(i) * M, min(static_cast<int64_t>(i + 1) * M, c.tq), begin, end);
            place = static_cast<int>((end - 1) / N) - x.tile;
          }
          const int64_t at = (static_cast<int64_t>(x.b) * c.heads + h) * space.row_tiles + i;
          float* const to = space.sums + at * (M * D);
          wait(full_sum, r.parity);
          if (place == 0) {
            copy_bytes_out(to, sums, S::kSumBytes);
          } else {
            wait_count(space.counts + at, place);
            asm volatile("fence.proxy.async;" ::: "memory");
            add_bytes_out(to, sums, S::kSumBytes);
          }
          commit_out();
          wait_out_read();
          arrive(empty_sum);
          r.next();
          wait_out();
          asm volatile("fence.proxy.async;" ::: "memory");
          post_count(space.counts + at, place + 1);
          if (++it == x.n) it = 0, ++h;
        }
        if constexpr (!S::kStays) break;
        arrive(empty_keys + rk.stage);
      }
    }
    return;
  }

  take_registers<S::kRegisters>();
  const float factor = static_cast<float>(c.scale * kLog2e);
  const auto release = [&](uint64_t* empty) {
    if (lane == 0) arrive(empty);
  };
  const bool leader = threadIdx.x % 128 == 0;
  uint64_t* leaving = nullptr;  // the buffer of keys that results leave from
  const auto release_keys = [&] {
    if (leader && leaving != nullptr) wait_out_read(), arrive(leaving);
    leaving = nullptr;
  };
  Ring<S::kStages> r;
  Ring<1> sum_ring;
  int scores_at = 0;
  for (Ring<S::kKeyBuffers> rk;; rk.next()) {
    wait(full_k + rk.stage, rk.parity);
    const int taken = S::kStays ? items[rk.stage] : 0;
    if (taken < 0) break;
    const Item item = S::kStays ? item_at(taken) : mine;
    const uint8_t* const ks = all_ks + rk.stage * S::kKeyBytes;
    const uint8_t* const vs = all_vs + rk.stage * S::kKeyBytes;
    const int n = item.n, steps = head_group * n;
    const int key0 = item.tile * N + 64 * group, key = key0 + 16 * warp + lane / 4;  // this thread's, and key + 8
    const auto seen_by = [&](int j) { return j < c.tk ? seen_queries(c, j) : Seen{static_cast<int>(c.tq), -1}; };
    const Seen seen[2] = {seen_by(key), seen_by(key + 8)};
    const int all_first = seen_by(key0 + 63).first, all_last = seen_by(key0 + 63).last < 0 ? -1 : seen_by(key0).last;
    float grad_k[D / 2], grad_v[D / 2];
#pragma unroll
    for (int i = 0; i < D / 2; ++i) grad_k[i] = grad_v[i] = 0;

    // The scores of the next tile of queries run while the gradients of this one are added up.
    float s[M / 2], dp[M / 2];
    const auto start_scores = [&](int stage) {
      const uint64_t a = descriptor_k(ks + group * 64 * 128), bq = descriptor_k(qs + stage * S::kRowBytes);
      pin(s);
      fence_products();
#pragma unroll
      for (int d = 0; d < D / 16; ++d)
        multiply<T, false, false>(s, advanced(a, d / 4 * N * 128 + d % 4 * 32),
                                  advanced(bq, d / 4 * M * 128 + d % 4 * 32), d > 0);
    };
    int it = 0;
    const auto pass = [&](auto more) {
      const int row = row_tile(item, it) * M;
      if (++it == n) it = 0;
      const uint8_t* const q = qs + r.stage * S::kRowBytes;
      const uint8_t* const g = gs + r.stage * S::kRowBytes;
      wait(full_g + r.stage, r.parity);
      {
        const uint64_t a = descriptor_k(vs + group * 64 * 128), bg = descriptor_k(g);
        pin(dp);
        fence_products();
#pragma unroll
        for (int d = 0; d < D / 16; ++d)
          multiply<T, false, false>(dp, advanced(a, d / 4 * N * 128 + d % 4 * 32),
                                    advanced(bg, d / 4 * M * 128 + d % 4 * 32), d > 0);
        commit_products();
      }
      if (row < all_first || row + M - 1 > all_last) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int lo = seen[e].first - row - 2 * (lane % 4), hi = seen[e].last - row - 2 * (lane % 4);
#pragma unroll
          for (int j = 0; j < M / 8; ++j)
#pragma unroll
            for (int f = 0; f < 2; ++f)
              if (8 * j + f < lo || 8 * j + f > hi) s[4 * j + 2 * e + f] = -INFINITY;
        }
      }
      const float* const lse2 = lse2s + r.stage * M + 2 * (lane % 4);
      const float* const delta = deltas + r.stage * M + 2 * (lane % 4);
      uint32_t p[M / 16][4];
#pragma unroll
      for (int j = 0; j < M / 8; ++j) {
        const float2 x = *reinterpret_cast<const float2*>(lse2 + 8 * j);
#pragma unroll
        for (int e = 0; e < 4; ++e) s[4 * j + e] = fast_exp2(fmaf(s[4 * j + e], factor, -(e % 2 ? x.y : x.x)));
#pragma unroll
        for (int e = 0; e < 2; ++e) p[j / 2][2 * (j % 2) + e] = pack2<T>(s[4 * j + 2 * e], s[4 * j + 2 * e + 1]);
      }
      {
        const uint64_t bg = descriptor_t(g, M * 128);
#pragma unroll
        for (int j = 0; j < M / 16; ++j) pin(p[j]);
        pin(grad_v);
        fence_products();
#pragma unroll
        for (int j = 0; j < M / 16; ++j) multiply<T, true>(grad_v, p[j], advanced(bg, j * 2048), true);
        commit_products();
      }
      wait_products<1>();
      pin(dp);
      uint32_t t[M / 16][4];
#pragma unroll
      for (int j = 0; j < M / 8; ++j) {
        const float2 x = *reinterpret_cast<const float2*>(delta + 8 * j);
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          // Registers do not hold all weights a second time in f32.
          const float2 w = unpack2<T>(p[j / 2][2 * (j % 2) + e]);
          t[j / 2][2 * (j % 2) + e] = pack2<T>(w.x * (dp[4 * j + 2 * e] - x.x), w.y * (dp[4 * j + 2 * e + 1] - x.y));
        }
      }
      // To shared memory as [queries][keys], this warpgroup's keys being chunk `group`.
      uint8_t* const scores = ds + scores_at * S::kScoreBytes;
      scores_at ^= 1;
      {
        const int at = lane % 8 + lane / 16 * 8, piece = 2 * warp + lane / 8 % 2;
        const uint32_t to = shared_address(scores) + group * M * 128 + at * 128 + ((piece ^ (at % 8)) * 16);
#pragma unroll
        for (int j = 0; j < M / 16; ++j) store_transposed(to + j * 2048, t[j][0], t[j][1], t[j][2], t[j][3]);
      }
      fence_shared();
      named_sync(1, 256);
      wait_products<0>();
      pin(grad_v);
#pragma unroll
      for (int j = 0; j < M / 16; ++j) pin(p[j]);
      release(empty_g + r.stage);
      float sum[32];
      {
        const uint64_t a = descriptor_k(scores + (S::kSplitRows ? group * 64 * 128 : 0)),
                       bk = descriptor_t(ks + (S::kSplitRows ? 0 : group * N * 128), N * 128);
        pin(sum);
        fence_products();
#pragma unroll
        for (int j = 0; j < N / 16; ++j)
          multiply<T, false, true>(sum, advanced(a, j / 4 * M * 128 + j % 4 * 32), advanced(bk, j * 2048), j > 0);
        commit_products();
        const uint64_t bq = descriptor_t(q, M * 128);
#pragma unroll
        for (int j = 0; j < M / 16; ++j) pin(t[j]);
        pin(grad_k);
        fence_products();
#pragma unroll
        for (int j = 0; j < M / 16; ++j) multiply<T, true>(grad_k, t[j], advanced(bq, j * 2048), true);
        commit_products();
      }
      Ring<S::kStages> next = r;
      next.next();
      if constexpr (more) {
        wait(full_q + next.stage, next.parity);
        start_scores(next.stage);
        commit_products();
      }
      wait_products<more ? 2 : 1>();
      pin(sum);
      wait(empty_sum, sum_ring.parity ^ 1);
      {
        float4* const to = reinterpret_cast<float4*>(sums) + group * 1024 + threadIdx.x % 128;
#pragma unroll
        for (int j = 0; j < 8; ++j) to[j * 128] = float4{sum[4 * j], sum[4 * j + 1], sum[4 * j + 2], sum[4 * j + 3]};
      }
      fence_shared();
      __syncwarp();
      release(full_sum);
      sum_ring.next();
      wait_products<0>();
      pin(grad_k);
      if constexpr (more) pin(s);
#pragma unroll
      for (int j = 0; j < M / 16; ++j) pin(t[j]);
      release(empty_q + r.stage);
      r = next;
    };
    wait(full_v + rk.stage, rk.parity);
    if (steps > 0) {
      wait(full_q + r.stage, r.parity);
      start_scores(r.stage);
      commit_products();
      release_keys();
      wait_products<0>();
      pin(s);
      for (int step = 0; step + 1 < steps; ++step) pass(std::true_type{});
      pass(std::false_type{});
    }
    release_keys();

    // Results leave through the keys' and values' place, which both warpgroups have read.
    named_sync(1, 256);
    const auto write = [&](uint8_t* place, float scale, const float(&x)[D / 2], const CUtensorMap& map) {
      const int at = 16 * warp + lane % 16;
      const uint32_t base = shared_address(place) + (64 * group + at) * 128;
#pragma unroll
      for (int j = 0; j < D / 8; j += 2) {
        const int piece = j + lane / 16;
        store_matrices(
            base + piece / 8 * N * 128 + ((piece % 8) ^ (at % 8)) * 16,
            pack2<T>(x[4 * j] * scale, x[4 * j + 1] * scale), pack2<T>(x[4 * j + 2] * scale, x[4 * j + 3] * scale),
            pack2<T>(x[4 * j + 4] * scale, x[4 * j + 5] * scale), pack2<T>(x[4 * j + 6] * scale, x[4 * j + 7] * scale));
      }
      fence_shared();
      named_sync(2 + group, 128);
      if (threadIdx.x % 128 == 0) {
        if (key0 < c.tk)
#pragma unroll
          for (int i = 0; i < kChunks<D>; ++i)
            copy_out(map, place + i * N * 128 + group * 64 * 128, 64 * i, key0, item.hk, item.b);
        commit_out();
      }
    };
    write(all_vs + rk.stage * S::kKeyBytes, 1.f, grad_v, maps.grad_v);
    write(all_ks + rk.stage * S::kKeyBytes, static_cast<float>(c.scale), grad_k, maps.grad_k);
    if constexpr (!S::kStays) break;
    leaving = empty_keys + rk.stage;
    if (space.rotated) release_keys();
  }
  if (leader) wait_out();
#endif
}

/// lse2 (+inf where a query sees nothing or does not exist), delta, and counts of 0. D / 8 lanes a query.
template <class T, int D>
__global__ void __launch_bounds__(256)
    backward_rows_kernel(const __grid_constant__ AttentionCall c, const BackwardSpace space) {
  constexpr int kLanes = D / 8;
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x) / kLanes;
  const int64_t heads = c.batch * c.heads;
  if (at >= heads * space.pitch) return;
  const int64_t head = at / space.pitch, i = at % space.pitch, b = head / c.heads, h = head % c.heads;
  float sum = 0;
  if (i < c.tq) {
    const int lane = threadIdx.x % kLanes;
    const auto x = cuda::load_vec<8>(head_of<const T>(c.out, b, h) + i * c.out.time + 8 * lane);
    const auto y = cuda::load_vec<8>(head_of<const T>(c.grad_out, b, h) + i * c.grad_out.time + 8 * lane);
#pragma unroll
    for (int k = 0; k < 8; ++k) sum += cuda::widen(x.v[k]) * cuda::widen(y.v[k]);
  }
  sum = cuda::warp_reduce<kLanes>(sum, cuda::Sum{});
  if (threadIdx.x % kLanes != 0) return;
  const float lse = i < c.tq ? static_cast<const float*>(c.lse)[head * c.tq + i] : -INFINITY;
  space.lse2[at] = lse == -INFINITY ? INFINITY : lse * static_cast<float>(kLog2e);
  space.delta[at] = i < c.tq && c.grad_lse ? sum - static_cast<const float*>(c.grad_lse)[head * c.tq + i] : sum;
  if (at < heads * space.row_tiles) space.counts[at] = 0;
  if (at == 0) *space.ticket = 0;
}

/// Sums in the order of registers to grad_q. A thread has 8 neighbours of a row and of the row 8 on.
template <class T, class S>
__global__ void __launch_bounds__(256)
    backward_queries_kernel(const __grid_constant__ AttentionCall c, const BackwardSpace space) {
  constexpr int kItems = S::kRows * S::D / 16;  // of a tile
  const int64_t item = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x, tile = item / kItems;
  if (tile >= c.batch * c.heads * space.row_tiles) return;
  const int in = static_cast<int>(item % kItems), j = in % 8, row8 = in / 8 % 32, part = in / 256;
  const int64_t head = tile / space.row_tiles, b = head / c.heads, h = head % c.heads,
                row0 = tile % space.row_tiles * S::kRows;
  const int64_t row = row0 + (S::kSplitRows ? 64 * part : 0) + row8 / 8 * 16 + row8 % 8;
  const int column = (S::kSplitRows ? 0 : 64 * part) + 8 * j;
  int64_t begin, end;
  visible_keys(c, row0, min(row0 + S::kRows, c.tq), begin, end);
  const bool any = begin < end;  // else nothing was added up
  const float4* const from =
      reinterpret_cast<const float4*>(space.sums + tile * (S::kRows * S::D)) + part * 1024 + j * 128 + row8 * 4;
  float4 x[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) x[k] = any ? from[k] : float4{0, 0, 0, 0};
  const float scale = static_cast<float>(c.scale);
  T* const to = head_of<T>(c.grad_q, b, h) + row * c.grad_q.time + column;
  const auto store = [&](T* p, bool second) {
    uint4 v;
    uint32_t* const w = reinterpret_cast<uint32_t*>(&v);
#pragma unroll
    for (int k = 0; k < 4; ++k)
      w[k] = second ? pack2<T>(x[k].z * scale, x[k].w * scale) : pack2<T>(x[k].x * scale, x[k].y * scale);
    *reinterpret_cast<uint4*>(p) = v;
  };
  if (row < c.tq) store(to, false);
  if (row + 8 < c.tq) store(to + 8 * c.grad_q.time, true);
}

template <class T, class S>
void queue_backward(const AttentionCall& c, const BackwardSpace& given) {
  const auto kernel = backward_hopper_kernel<T, S>;
  cuda::check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::kSharedBytes),
                   "scaled_dot_product_attention_backward", "cudaFuncSetAttribute");
  BackwardSpace space = given;
  const int64_t heads = c.batch * c.heads;
  space.row_tiles = static_cast<int>((c.tq + S::kRows - 1) / S::kRows);
  space.key_tiles = static_cast<int>((c.tk + S::kKeys - 1) / S::kKeys);
  space.rotated = !c.causal && c.window == 0 && space.key_tiles <= multiprocessors();
  BackwardMaps maps;
  maps.q = tensor_map(c.dtype, c.q, c.batch, c.heads, c.tq, S::D, S::kRows);
  maps.grad_out = tensor_map(c.dtype, c.grad_out, c.batch, c.heads, c.tq, S::D, S::kRows);
  maps.k = tensor_map(c.dtype, c.k, c.batch, c.kv_heads, c.tk, S::D, S::kKeys);
  maps.v = tensor_map(c.dtype, c.v, c.batch, c.kv_heads, c.tk, S::D, S::kKeys);
  maps.grad_k = tensor_map(c.dtype, c.grad_k, c.batch, c.kv_heads, c.tk, S::D, 64);
  maps.grad_v = tensor_map(c.dtype, c.grad_v, c.batch, c.kv_heads, c.tk, S::D, 64);
  const cudaStream_t stream = cuda::stream();
  backward_rows_kernel<T, S::D><<<cuda::blocks_for(heads * space.pitch * (S::D / 8), 256), 256, 0, stream>>>(c, space);
  const int64_t items = c.batch * c.kv_heads * space.key_tiles;
  const int64_t blocks = S::kStays ? std::min<int64_t>(items, multiprocessors()) : items;
  kernel<<<cuda::blocks_for(blocks, 1), S::kThreads, S::kSharedBytes, stream>>>(c, maps, space);
  backward_queries_kernel<T, S>
      <<<cuda::blocks_for(heads * space.row_tiles * (S::kRows * S::D / 16), 256), 256, 0, stream>>>(c, space);
}

/// Rows of the workspace for each head: whole tiles.
inline int64_t backward_pitch(const AttentionCall& c) {
  return (c.tq + 127) / 128 * 128;
}
/// Floats of workspace, counts included, and where its parts are.
inline int64_t backward_floats(const AttentionCall& c) {
  const int64_t rows = c.batch * c.heads * backward_pitch(c);
  return rows * (c.d + 2) + rows / 64 + 1;
}
inline BackwardSpace backward_space(const AttentionCall& c, float* p) {
  const int64_t pitch = backward_pitch(c), rows = c.batch * c.heads * pitch;
  BackwardSpace s{};
  s.pitch = static_cast<int>(pitch);
  s.sums = p;
  s.lse2 = p + rows * c.d;
  s.delta = s.lse2 + rows;
  s.counts = reinterpret_cast<int*>(s.delta + rows);
  s.ticket = s.counts + rows / 64;
  return s;
}

}  // namespace strata::attention_cuda::hopper
