#pragma once
// Gradients of attention with heads above 128 columns on Hopper. Sums of 64 keys by 256 columns take a warpgroup's
// registers, so a block has 64 keys and one warpgroup each for the gradients of values and of keys:
//   values: s^T = k q^T, p = exp2(s factor - lse2), grad_v += p^T grad_out
//   keys:   dp^T = v grad_out^T, ds = p (dp - delta), grad_k += ds^T q
// p goes from the one to the other through shared memory, thread by thread, as both hold a tile alike. grad_q has a
// kernel of its own, a warpgroup for 64 queries, which computes s and dp again: seven products for five, but no sum has
// terms of several blocks, so there is no order to wait for, and results are the same every time.

#include "strata/ops/attention/hopper_wide_parts.cuh"

namespace strata::attention_cuda::hopper {

template <class T, class S, bool kSequences, int kSet>
__global__ void __launch_bounds__(S::kThreads, 1)
    wide_keys_kernel(const __grid_constant__ AttentionCall given, const __grid_constant__ WideMaps given_maps,
                     const WideSpace space, const Sequences sequences, const WideMaps* maps_of,
                     const __grid_constant__ Options options) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using In = OptionsIn<kSet>;
  std::conditional_t<kSequences || In::kEvery, AttentionCall, const AttentionCall&> c = given;
  constexpr int D = S::D, N = S::kTile, kTileBytes = S::kTileBytes;
#ifdef STRATA_TILE_EMULATION
  uint8_t* const memory = shared_memory();
#else
  extern __shared__ __align__(1024) uint8_t memory[];
#endif
  uint8_t* const ks = memory;
  uint8_t* const vs = ks + kTileBytes;
  uint8_t* const places = vs + kTileBytes;  // of queries and gradients of results: two each
  uint8_t* const weights = places + 4 * kTileBytes;
  float* const lse2s = reinterpret_cast<float*>(weights + 2 * S::kWeightBytes);
  float* const deltas = lse2s + 2 * N;
  uint64_t* const full_k = reinterpret_cast<uint64_t*>(deltas + 2 * N);
  uint64_t* const full_v = full_k + 1;
  uint64_t* const full_q = full_v + 1;
  uint64_t* const empty_q = full_q + 2;
  uint64_t* const full_g = empty_q + 2;
  uint64_t* const empty_g = full_g + 2;
  uint64_t* const full_p = empty_g + 2;
  const int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
  // The same in all of a warp, and said so: else descriptors take two registers each.
  const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0);

  // Item: 64 keys of a head and the tiles of queries that see them.
  const int all_heads = static_cast<int>(c.kv_heads), head_group = static_cast<int>(c.heads / c.kv_heads);
  int at = static_cast<int>(blockIdx.x), key_tiles = space.key_tiles, row0 = 0;
  const WideMaps* maps = &given_maps;
  if constexpr (kSequences) {
    const int of = sequences.of_k[at / all_heads];
    if (of < 0) return;
    const Sequence s = sequences.all[of];
    c.tq = s.tq, c.tk = s.tk;
    at -= s.k_tile * all_heads;
    key_tiles = (s.tk + N - 1) / N, row0 = s.q_tile * S::kRows;
    maps = maps_of + of;
  }
  // The first keys first, which under a causal mask most queries see.
  int tile = at % key_tiles, head = at / key_tiles;
  if constexpr (!kSequences)
    Sections{key_tiles, static_cast<int>(c.batch) * all_heads, space.key_section}.locate(at, tile, head);
  const int hk = head % all_heads, b = head / all_heads, key0 = tile * N;
  if constexpr (In::kEvery) take_length(c, b);
  int first, n;
  {
    int64_t begin, end;
    visible_queries(c, key0, min(static_cast<int64_t>(key0) + N, c.tk), begin, end);
    if (In::kEvery && key0 >= c.tk) end = begin;  // behind a length
    first = static_cast<int>(begin / N);
    n = end > begin ? static_cast<int>((end + N - 1) / N) - first : 0;
  }
  // Tiles of queries, of one head after another: head h, tile first + i.
  struct Place {
    int h, i;
  };
  const int end_head = (hk + 1) * head_group;
  const auto there = [&](const Place& x) { return x.h < end_head; };
  // The first from x on of which a mask leaves something.
  const auto wanted_from = [&](Place x) {
    if constexpr (In::kMasks)
      while (In::flags(options) && there(x) &&
             (options.tiles_of(b, x.h, first + x.i)[tile / 32] >> (tile % 32) & 1) == 0)
        if (++x.i == n) x.i = 0, ++x.h;
    return x;
  };
  const auto after = [&](Place x) {
    if (++x.i == n) x.i = 0, ++x.h;
    return wanted_from(x);
  };
  const auto start = [&] { return n == 0 ? Place{end_head, 0} : wanted_from({hk * head_group, 0}); };

  if (threadIdx.x == 0) {
    if (shared_address(memory) % 1024 != 0) __trap();
    init_barrier(full_k, 1), init_barrier(full_v, 1);
    for (int i = 0; i < 2; ++i) {  // a warp each
      init_barrier(full_q + i, 1), init_barrier(full_g + i, 1), init_barrier(full_p + i, 4);
      init_barrier(empty_q + i, 8), init_barrier(empty_g + i, 8);
    }
    fence_barriers();
    fence_shared();
  }
  __syncthreads();

  // Queries of a tile have the place that the gradients of the result had two tiles before, and the other way round:
  // who frees the one wants the other next, a whole tile later.
  Ring<2> r;
  const auto queries_at = [&](const Ring<2>& x) {
    return places + (2 * x.stage + static_cast<int>(x.parity)) * kTileBytes;
  };
  const auto gradients_at = [&](const Ring<2>& x) {
    return places + (2 * x.stage + 1 - static_cast<int>(x.parity)) * kTileBytes;
  };

  if (group == 2) {
    give_registers<S::kCopyRegisters>();
    if (warp == 0 && lane == 0) {
      if constexpr (kSequences)
        acquire_map(maps->q), acquire_map(maps->k), acquire_map(maps->v), acquire_map(maps->grad_out);
      const auto copy_tile = [&](uint8_t* to, const CUtensorMap& map, uint64_t* full, int row, int head) {
#pragma unroll
        for (int i = 0; i < kChunks<D>; ++i) copy_in(to + i * N * 128, map, full, 64 * i, row, head, b);
      };
      arrive_expecting(full_k, kTileBytes);
      copy_tile(ks, maps->k, full_k, key0, hk);
      bool with_values = false;
      const auto copy_values = [&] {
        if (with_values) return;
        with_values = true;
        arrive_expecting(full_v, kTileBytes);
        copy_tile(vs, maps->v, full_v, key0, hk);
      };
      for (Place x = start(); there(x); x = after(x)) {
        const int row = (first + x.i) * N;
        const int64_t from = (static_cast<int64_t>(b) * c.heads + x.h) * space.pitch + row0 + row;
        wait(empty_g + r.stage, r.parity ^ 1);
        arrive_expecting(full_q + r.stage, kTileBytes + N * 4);
        copy_tile(queries_at(r), maps->q, full_q + r.stage, row, x.h);
        copy_bytes_in(lse2s + r.stage * N, space.lse2 + from, full_q + r.stage, N * 4);
        copy_values();
        wait(empty_q + r.stage, r.parity ^ 1);
        arrive_expecting(full_g + r.stage, kTileBytes + N * 4);
        copy_tile(gradients_at(r), maps->grad_out, full_g + r.stage, row, x.h);
        copy_bytes_in(deltas + r.stage * N, space.delta + from, full_g + r.stage, N * 4);
        r.next();
      }
      copy_values();
    }
    return;
  }

  take_registers<S::kRegisters>();
  const auto release = [&](uint64_t* empty) {
    if (lane == 0) arrive(empty);
  };
  const int key = key0 + 16 * warp + lane / 4;  // this thread's, and key + 8
  const int mask_row[2] = {min(key, static_cast<int>(given.tk) - 1), min(key + 8, static_cast<int>(given.tk) - 1)};
  const RngKey random_key = In::kEvery ? resolved(c.key) : RngKey{};
  const auto load_kept = [&](KeptBits<N / 8>& kept, int h, int row) {
    if (In::drawn(options)) {
      kept.load(options, static_cast<int64_t>(b) * c.heads + h, mask_row, row);
    } else if (In::drops(options)) {
      kept.draw_transposed(options, random_key, c.numbers.of(b, h, row, key0 + 16 * warp), c.numbers.query,
                           options.fours);
    }
  };
  float sum[D / 2];
#pragma unroll
  for (int i = 0; i < D / 2; ++i) sum[i] = 0;
  Place x = start();
  // Both warpgroups: a product of the first kind for the next tile is on its way behind that of the second kind, so
  // that this one has work for the tensor cores while the other one computes.
  if (group == 0) {
    const float factor = In::kAny ? options.factor : static_cast<float>(c.scale * kLog2e);
    const auto seen_by = [&](int j) { return j < c.tk ? seen_queries(c, j) : Seen{static_cast<int>(c.tq), -1}; };
    const Seen seen[2] = {seen_by(key), seen_by(key + 8)};
    const int all_first = seen_by(key0 + N - 1).first,
              all_last = seen_by(key0 + N - 1).last < 0 ? -1 : seen_by(key0).last;
    float s[N / 2];
    const auto start_scores = [&](const Ring<2>& of) {
      wait(full_q + of.stage, of.parity);
      multiply_wide_rows<T, S>(s, ks, queries_at(of));
    };
    const auto pass = [&](auto more) {
      const int row = (first + x.i) * N, h = x.h;
      [[maybe_unused]] KeptBits<N / 8> kept;
      if constexpr (In::kDrops) load_kept(kept, h, row);
      const Distances distances(In::kEvery ? options.slope_of(b, h) : 0.f,
                                In::kEvery ? key - static_cast<int>(c.offset) - row - 2 * (lane % 4) : 0);
      if constexpr (In::kEvery) wide_options<N / 8>(s, c, options, b, h, true, mask_row, row, distances);
      if (row < all_first || row + N - 1 > all_last) hide_unseen(s, seen, row);
      const float* const lse2 = lse2s + r.stage * N + 2 * (lane % 4);
      uint32_t p[N / 16][4];  // what the gradient of scores takes of dp
      // What dropout leaves of the weights; those that it drops have a part in the gradient of scores.
      [[maybe_unused]] uint32_t left[In::kDrops ? N / 16 : 1][4];
      const bool capped = In::kEvery && options.cap_in != 0;
#pragma unroll
      for (int j = 0; j < N / 8; ++j) {
        const float2 lse = *reinterpret_cast<const float2*>(lse2 + 8 * j);
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float w[2], sloped[2];
#pragma unroll
          for (int f = 0; f < 2; ++f)
            wide_weight<In>(s[4 * j + 2 * e + f], f ? lse.y : lse.x, factor, capped, distances, e, 8 * j + f, w[f],
                            sloped[f]);
          p[j / 2][2 * (j % 2) + e] = pack2<T>(sloped[0], sloped[1]);
          if constexpr (In::kDrops) left[j / 2][2 * (j % 2) + e] = pack2<T>(w[0], w[1]);
        }
      }
      if constexpr (In::kDrops) {
        if (In::drops(options)) {
          const TileMasks<N / 8> masks(kept);
#pragma unroll
          for (int j = 0; j < N / 8; ++j)
#pragma unroll
            for (int e = 0; e < 2; ++e) left[j / 2][2 * (j % 2) + e] &= masks.pair(j, e);
        }
      }
      // Free: these queries came after the other warpgroup had said that it was done with the gradients, and with the
      // weights, of two tiles before.
      uint4* const to = reinterpret_cast<uint4*>(weights + r.stage * S::kWeightBytes) + threadIdx.x % 128;
#pragma unroll
      for (int j = 0; j < N / 16; ++j) to[128 * j] = uint4{p[j][0], p[j][1], p[j][2], p[j][3]};
      __syncwarp();
      release(full_p + r.stage);
      wait(full_g + r.stage, r.parity);
      add_wide_columns<T, S>(sum, either<In::kDrops>(left, p), gradients_at(r));
      release(empty_q + r.stage);  // where gradients of a result come that this warp must not take for these
      Ring<2> next = r;
      next.next();
      if constexpr (more) start_scores(next);
      wait_products<more ? 1 : 0>();
      pin(sum);
#pragma unroll
      for (int j = 0; j < N / 16; ++j) pin(either<In::kDrops>(left, p)[j]);
      release(empty_g + r.stage);
      if constexpr (more) {
        wait_products<0>();
        pin(s);
      }
      r = next;
    };
    wait(full_k, 0);
    if (there(x)) {
      start_scores(r);
      wait_products<0>();
      pin(s);
      for (Place y = after(x); there(y); y = after(y)) pass(std::true_type{}), x = y;
      pass(std::false_type{});
    }
    // No other warpgroup reads the keys here.
    write_wide_rows<T, S, kSequences>(ks, In::kDrops ? options.kept_scale : 1.f, sum, maps->grad_v,
                                      key0 < (kSequences ? c.tk : given.tk), key0, hk, b);
  } else {
    float dp[N / 2];
    const auto start_gradients = [&](const Ring<2>& of) {
      wait(full_g + of.stage, of.parity);
      wait(full_q + of.stage, of.parity);  // now: later the next queries might have come there
      multiply_wide_rows<T, S>(dp, vs, gradients_at(of));
    };
    const auto pass = [&](auto more) {
      [[maybe_unused]] KeptBits<N / 8> kept;
      if constexpr (In::kDrops) load_kept(kept, x.h, (first + x.i) * N);
      const float* const delta = deltas + r.stage * N + 2 * (lane % 4);
      wait(full_p + r.stage, r.parity);
      const uint4* const from = reinterpret_cast<const uint4*>(weights + r.stage * S::kWeightBytes) + threadIdx.x % 128;
      uint32_t t[N / 16][4];
#pragma unroll
      for (int k = 0; k < N / 16; ++k) {
        const uint4 p = from[128 * k];
        const uint32_t of[4] = {p.x, p.y, p.z, p.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int j = 2 * k + i / 2, e = i % 2, y = 4 * j + 2 * e;
          const float2 w = unpack2<T>(of[i]), less = *reinterpret_cast<const float2*>(delta + 8 * j);
          t[k][i] = pack2<T>(w.x * wide_less<In>(dp[y], less.x, options, kept, y),
                             w.y * wide_less<In>(dp[y + 1], less.y, options, kept, y + 1));
        }
      }
      __syncwarp();
      release(empty_g + r.stage);
      add_wide_columns<T, S>(sum, t, queries_at(r));
      Ring<2> next = r;
      next.next();
      if constexpr (more) start_gradients(next);
      wait_products<more ? 1 : 0>();
      pin(sum);
#pragma unroll
      for (int j = 0; j < N / 16; ++j) pin(t[j]);
      release(empty_q + r.stage);
      if constexpr (more) {
        wait_products<0>();
        pin(dp);
      }
      r = next;
    };
    wait(full_v, 0);
    if (there(x)) {
      start_gradients(r);
      wait_products<0>();
      pin(dp);
      for (Place y = after(x); there(y); y = after(y)) pass(std::true_type{}), x = y;
      pass(std::false_type{});
    }
    write_wide_rows<T, S, kSequences>(vs, static_cast<float>(c.scale), sum, maps->grad_k,
                                      key0 < (kSequences ? c.tk : given.tk), key0, hk, b);
  }
#endif
}

// s = q k^T, dp = grad_out v^T, grad_q += ds k. A block has 128 queries, a warpgroup 64 of them; a third one starts the
// copies: two tiles of keys, one of values, which are done with first.
template <class T, class S, bool kSequences, int kSet>
__global__ void __launch_bounds__(S::kThreads, 1)
    wide_queries_kernel(const __grid_constant__ AttentionCall given, const __grid_constant__ WideMaps given_maps,
                        const WideSpace space, const Sequences sequences, const WideMaps* maps_of,
                        const __grid_constant__ Options options) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using In = OptionsIn<kSet>;
  std::conditional_t<kSequences || In::kEvery, AttentionCall, const AttentionCall&> c = given;
  constexpr int D = S::D, N = S::kTile, kTileBytes = S::kTileBytes;
#ifdef STRATA_TILE_EMULATION
  uint8_t* const memory = shared_memory();
#else
  extern __shared__ __align__(1024) uint8_t memory[];
#endif
  uint8_t* const qs = memory;
  uint8_t* const gs = qs + 2 * kTileBytes;
  uint8_t* const ks = gs + 2 * kTileBytes;
  uint8_t* const vs = ks + 2 * kTileBytes;
  uint64_t* const full_q = reinterpret_cast<uint64_t*>(vs + kTileBytes);
  uint64_t* const full_g = full_q + 2;
  uint64_t* const full_k = full_g + 2;
  uint64_t* const empty_k = full_k + 2;
  uint64_t* const full_v = empty_k + 2;
  uint64_t* const empty_v = full_v + 1;
  const int lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
  // The same in all of a warp, and said so: else descriptors take two registers each.
  const int group = __shfl_sync(0xffffffffu, static_cast<int>(threadIdx.x) / 128, 0);

  const int heads = static_cast<int>(c.heads);
  int at = static_cast<int>(blockIdx.x), row_tiles = space.row_tiles, terms0 = 0;
  const WideMaps* maps = &given_maps;
  if constexpr (kSequences) {
    const int of = sequences.of_q[at / heads];
    if (of < 0) return;
    const Sequence s = sequences.all[of];
    c.tq = s.tq, c.tk = s.tk;
    at -= s.q_tile * heads;
    row_tiles = (s.tq + S::kRows - 1) / S::kRows, terms0 = s.q_tile * S::kRows;
    maps = maps_of + of;
  }
  // The last queries first, which under a causal mask see most keys.
  int before = at % row_tiles, head = at / row_tiles;
  if constexpr (!kSequences)
    Sections{row_tiles, static_cast<int>(c.batch) * heads, space.row_section}.locate(at, before, head);
  const int row0 = (row_tiles - 1 - before) * S::kRows;
  const int h = head % heads, b = head / heads, hk = h / static_cast<int>(c.heads / c.kv_heads);
  if constexpr (In::kEvery) take_length(c, b);
  // Tiles of keys that queries [q0, q1) see some of: [first, end).
  const auto tiles_of = [&](int q0, int64_t q1, int& first, int& end) {
    int64_t from = 0, to = 0;
    if (q0 < c.tq) visible_keys(c, q0, min(q1, c.tq), from, to);
    const bool any = to > from;
    first = any ? static_cast<int>(from / N) : 0, end = any ? static_cast<int>((to + N - 1) / N) : 0;
  };
  int first, end;
  tiles_of(row0, row0 + S::kRows, first, end);
  // Whether a mask leaves something of tile j of keys to the 64 queries `of`.
  const auto left_to = [&](int of, int j) {
    return row0 + N * of < c.tq &&
           (!In::flags(options) || (options.tiles_of(b, h, row0 / N + of)[j / 32] >> (j % 32) & 1) != 0);
  };
  // The first tile from j on of which the block wants something.
  const auto wanted_from = [&](int j) {
    if constexpr (In::kMasks)
      while (j < end && !left_to(0, j) && !left_to(1, j)) ++j;
    return j;
  };

  if (threadIdx.x == 0) {
    if (shared_address(memory) % 1024 != 0) __trap();
    for (int i = 0; i < 2; ++i) {
      init_barrier(full_q + i, 1), init_barrier(full_g + i, 1), init_barrier(full_k + i, 1);
      init_barrier(empty_k + i, 8);  // a warp each
    }
    init_barrier(full_v, 1), init_barrier(empty_v, 8);
    fence_barriers();
    fence_shared();
  }
  __syncthreads();

  Ring<2> rk;
  Ring<1> rv;
  if (group == 2) {
    give_registers<S::kCopyRegisters>();
    if (warp == 0 && lane == 0) {
      if constexpr (kSequences)
        acquire_map(maps->q), acquire_map(maps->k), acquire_map(maps->v), acquire_map(maps->grad_out);
      const auto copy_tile = [&](uint8_t* to, const CUtensorMap& map, uint64_t* full, int row, int head) {
        arrive_expecting(full, kTileBytes);
#pragma unroll
        for (int i = 0; i < kChunks<D>; ++i) copy_in(to + i * N * 128, map, full, 64 * i, row, head, b);
      };
      const auto copy_both = [&](uint8_t* to, const CUtensorMap& map, uint64_t* full) {
        for (int i = 0; i < 2; ++i) copy_tile(to + i * kTileBytes, map, full + i, row0 + N * i, h);
      };
      copy_both(qs, maps->q, full_q);
      bool with_gradients = false;
      const auto copy_gradients = [&] {
        if (!with_gradients) copy_both(gs, maps->grad_out, full_g);
        with_gradients = true;
      };
      for (int j = wanted_from(first); j < end; j = wanted_from(j + 1)) {
        wait(empty_k + rk.stage, rk.parity ^ 1);
        copy_tile(ks + rk.stage * kTileBytes, maps->k, full_k + rk.stage, j * N, hk);
        copy_gradients();
        wait(empty_v, rv.parity ^ 1);
        copy_tile(vs, maps->v, full_v, j * N, hk);
        rk.next(), rv.next();
      }
      copy_gradients();
    }
    return;
  }

  take_registers<S::kRegisters>();
  const auto release = [&](uint64_t* empty) {
    if (lane == 0) arrive(empty);
  };
  const float factor = In::kAny ? options.factor : static_cast<float>(c.scale * kLog2e);
  const RngKey random_key = In::kEvery ? resolved(c.key) : RngKey{};
  const int my_row0 = row0 + N * group, row = my_row0 + 16 * warp + lane / 4;  // this thread's, and row + 8
  const uint8_t* const q = qs + group * kTileBytes;
  const uint8_t* const g = gs + group * kTileBytes;
  const int last_row = max(static_cast<int>(c.tq) - 1, 0), mask_row[2] = {min(row, last_row), min(row + 8, last_row)};
  const int all_first = seen_keys(c, my_row0 + N - 1).first, all_last = seen_keys(c, my_row0).last;
  int my_first, my_end;
  tiles_of(my_row0, static_cast<int64_t>(my_row0) + N, my_first, my_end);
  const auto mine = [&](int j) { return j >= my_first && j < my_end && (!In::kMasks || left_to(group, j)); };
  float lse2[2], delta[2];
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    const int64_t from = (static_cast<int64_t>(b) * c.heads + h) * space.pitch + terms0 + row + 8 * e;
    lse2[e] = space.lse2[from], delta[e] = space.delta[from];
  }

  float sum[D / 2], s[N / 2], dp[N / 2];
#pragma unroll
  for (int i = 0; i < D / 2; ++i) sum[i] = 0;
  [[maybe_unused]] KeptBits<N / 8> kept;
  const auto start_scores = [&] {
    wait(full_k + rk.stage, rk.parity);
    multiply_wide_rows<T, S>(s, q, ks + rk.stage * kTileBytes);
  };
  // s: what the gradient of scores takes of dp.
  const auto weigh = [&](int j) {
    const int key = j * N;
    if (In::drawn(options)) {
      kept.load(options, static_cast<int64_t>(b) * c.heads + h, mask_row, key);
    } else if (In::drops(options)) {
      const uint64_t number[2] = {c.numbers.of(b, h, mask_row[0], key), c.numbers.of(b, h, mask_row[1], key)};
      kept.draw(options, random_key, number, options.fours);
    }
    const Distances distances(In::kEvery ? options.slope_of(b, h) : 0.f,
                              In::kEvery ? row + static_cast<int>(c.offset) - key - 2 * (lane % 4) : 0);
    if constexpr (In::kEvery) wide_options<N / 8>(s, c, options, b, h, false, mask_row, key, distances);
    if (key < all_first || key + N - 1 > all_last) {  // what each row sees, no register remembers
      const Seen seen[2] = {seen_keys(c, row), seen_keys(c, row + 8)};
      hide_unseen(s, seen, key);
    }
    const bool capped = In::kEvery && options.cap_in != 0;
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      float w, sloped;
      wide_weight<In>(s[i], lse2[i / 2 % 2], factor, capped, distances, i / 2 % 2, i / 4 * 8 + i % 2, w, sloped);
      s[i] = sloped;
    }
  };
  // The scores of tile j are on their way: its weights while the product for their gradients runs.
  const auto take_products = [&](int j) {
    wait(full_v, rv.parity);
    multiply_wide_rows<T, S>(dp, g, vs);
    wait_products<1>();
    pin(s);
    weigh(j);
    wait_products<0>();
    pin(dp);
    release(empty_v);
  };
  const auto pass = [&](auto more, int next) {
    uint32_t t[N / 16][4];
#pragma unroll
    for (int k = 0; k < N / 16; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int y = 8 * k + 2 * i;
        t[k][i] = pack2<T>(s[y] * wide_less<In>(dp[y], delta[i % 2], options, kept, y),
                           s[y + 1] * wide_less<In>(dp[y + 1], delta[i % 2], options, kept, y + 1));
      }
    const int stage = rk.stage;
    add_wide_columns<T, S>(sum, t, ks + stage * kTileBytes);
    rk.next(), rv.next();
    if constexpr (more) start_scores();
    // The next product writes registers that only fit once these are free.
    wait_products<more ? 1 : 0>();
    pin(sum);
#pragma unroll
    for (int j = 0; j < N / 16; ++j) pin(t[j]);
    release(empty_k + stage);
    if constexpr (more) take_products(next);
  };
  wait(full_q + group, 0);
  wait(full_g + group, 0);
  for (int j = wanted_from(first); j < end;) {
    if (!mine(j)) {  // of the other 64 queries alone
      wait(full_k + rk.stage, rk.parity);
      wait(full_v, rv.parity);
      __syncwarp();
      release(empty_k + rk.stage), release(empty_v);
      rk.next(), rv.next();
      j = wanted_from(j + 1);
      continue;
    }
    start_scores();
    take_products(j);
    for (j = wanted_from(j + 1); j < end && mine(j); j = wanted_from(j + 1)) pass(std::true_type{}, j);
    pass(std::false_type{}, 0);
  }
  write_wide_rows<T, S, kSequences>(qs + group * kTileBytes, static_cast<float>(c.scale), sum, maps->grad_q,
                                    my_row0 < c.tq, my_row0, h, b);
#endif
}

}  // namespace strata::attention_cuda::hopper
