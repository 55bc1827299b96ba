#pragma once
// Attention forward on Hopper (after Shah et al., FlashAttention-3, arXiv:2407.08608): one warpgroup, or warp, starts
// the copies; each of the others owns 64 queries and passes over tiles of keys from the last to the first. The product
// of the next scores runs while the weights of the current tile are computed and multiplied with the values.

#include <algorithm>
#include <cfloat>

#include "strata/ops/attention/hopper_forward_tiles.cuh"

namespace strata::attention_cuda::hopper {

template <class T, class S, bool kSequences, int kSet>
__global__ void __launch_bounds__(S::kThreads, S::kBlocks)
    forward_hopper_kernel(const __grid_constant__ AttentionCall given, const __grid_constant__ ForwardMaps given_maps,
                          const Schedule schedule, const Sequences sequences, const ForwardMaps* maps_of,
                          const __grid_constant__ Options options, const __grid_constant__ CUtensorMap mask) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  // The call of the sequence or batch that is being worked on, or the whole.
  using In = OptionsIn<kSet>;
  std::conditional_t<kSequences || In::kEvery, AttentionCall, const AttentionCall&> c = given;
  constexpr int D = S::D, BK = S::kKeys;
#ifdef STRATA_TILE_EMULATION
  uint8_t* const memory = shared_memory();
#else
  extern __shared__ __align__(1024) uint8_t memory[];
#endif
  uint8_t* const qs = memory;
  uint8_t* const ks = qs + S::kQueryBuffers * S::kQueryBytes;
  uint8_t* const vs = ks + S::kStages * S::kTileBytes;
  uint64_t* const full_q = reinterpret_cast<uint64_t*>(vs + S::kStages * S::kTileBytes);
  uint64_t* const empty_q = full_q + S::kQueryBuffers;
  uint64_t* const full_k = empty_q + S::kQueryBuffers;
  uint64_t* const empty_k = full_k + S::kStages;
  uint64_t* const full_v = empty_k + S::kStages;
  uint64_t* const empty_v = full_v + S::kStages;
  volatile int* const items = reinterpret_cast<volatile int*>(empty_v + S::kStages);  // of each buffer of queries
  const int group = threadIdx.x / 128, lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
  [[maybe_unused]] uint64_t* const full_m = reinterpret_cast<uint64_t*>(memory + S::kMaskBarriersAt);
  [[maybe_unused]] uint64_t* const empty_m = full_m + S::kStages;
  [[maybe_unused]] const bool copied_mask = S::kMasks && In::copied(options);

  if (threadIdx.x == 0) {
    if (copied_mask)
      for (int i = 0; i < S::kStages; ++i) init_barrier(full_m + i, 1), init_barrier(empty_m + i, 4 * S::kGroups);
    if (shared_address(memory) % 1024 != 0) __trap();
    for (int i = 0; i < S::kQueryBuffers; ++i) init_barrier(full_q + i, 1), init_barrier(empty_q + i, S::kGroups);
    for (int i = 0; i < S::kStages; ++i) {
      init_barrier(full_k + i, 1), init_barrier(full_v + i, 1);
      init_barrier(empty_k + i, 4 * S::kGroups), init_barrier(empty_v + i, 4 * S::kGroups);  // a warp each
    }
    fence_barriers();
    fence_shared();
  }
  __syncthreads();

  // Of several sequences, whether there is an item of this number.
  const auto exists = [&](int at) {
    return at < schedule.total() && sequences.of_q[at / static_cast<int>(given.heads)] >= 0;
  };
  const auto locate = [&](int at, int& q0, int& h, int& b, const ForwardMaps*& maps) {
    int tile, tiles = schedule.tiles;
    if constexpr (kSequences) {
      const int heads = static_cast<int>(given.heads), of = sequences.of_q[at / heads];
      const Sequence s = sequences.all[of];
      c.tq = s.tq, c.tk = s.tk;
      c.lse = static_cast<float*>(given.lse) + s.q0;
      tiles = (s.tq + S::kQueries - 1) / S::kQueries;
      tile = (at - s.q_tile * heads) / heads, h = at % heads, b = 0;
      maps = maps_of + of;
    } else {
      int head;
      schedule.locate(at, tile, head);
      h = head % static_cast<int>(c.heads), b = head / static_cast<int>(c.heads);
      maps = &given_maps;
    }
    if constexpr (In::kEvery) take_length(c, b);
    // Under a causal mask the last tile is a whole one, and what is missing lacks in the first, which sees least. A
    // warpgroup's rows all come before the first or none does: copies out stop at a negative row (illegal instruction).
    q0 = (tiles - 1 - tile) * S::kQueries;
    if (c.causal) q0 = static_cast<int>((c.tq + 63) / 64 * 64) - (tile + 1) * S::kQueries;
  };
  const int kv_group = static_cast<int>(c.heads / c.kv_heads);

  if (group == S::kGroups) {  // copies
    if constexpr (S::kMoveRegisters) give_registers<S::kGroups == 3 ? 32 : 24>();
    if (warp != 0 || lane != 0) return;
    Ring<S::kQueryBuffers> rq;
    Ring<S::kStages> rk, rv, rm;
    const auto copy_tile = [&](uint8_t* to, const CUtensorMap& map, uint64_t* full, uint64_t* empty,
                               Ring<S::kStages>& r, int row, int head, int b) {
      wait(empty + r.stage, r.parity ^ 1);
      arrive_expecting(full + r.stage, S::kTileBytes);
#pragma unroll
      for (int i = 0; i < kChunks<D>; ++i)
        copy_in(to + r.stage * S::kTileBytes + i * BK * 128, map, full + r.stage, 64 * i, row, head, b);
      r.next();
    };
    for (int round = 0; kSequences || round < schedule.rounds(); ++round) {
      // Lengths differ: blocks take the next item when they are done with one.
      const int item = kSequences ? atomicAdd(sequences.ticket, 1) : schedule.item(round);
      const bool there = kSequences ? exists(item) : item >= 0;
      if (!kSequences && !there) break;
      int q0, h, b;
      const ForwardMaps* maps;
      if (there) {
        locate(item, q0, h, b, maps);
        if constexpr (kSequences) acquire_map(maps->q), acquire_map(maps->k), acquire_map(maps->v);
      }
      const int hk = h / kv_group;
      wait(empty_q + rq.stage, rq.parity ^ 1);
      if constexpr (kSequences) {
        items[rq.stage] = there ? item : -1;
        if (!there) {
          arrive(full_q + rq.stage);
          break;
        }
      }
      arrive_expecting(full_q + rq.stage, S::kQueryBytes);
#pragma unroll
      for (int g = 0; g < S::kGroups; ++g)
#pragma unroll
        for (int i = 0; i < kChunks<D>; ++i)
          copy_in(qs + rq.stage * S::kQueryBytes + (g * kChunks<D> + i) * S::kChunk, maps->q, full_q + rq.stage, 64 * i,
                  q0 + 64 * g, h, b);
      rq.next();
      KeyTiles<S, In::kMasks> tiles(c, options, b, h, q0);
      for (int i = 0, key = 0; i <= tiles.n; ++i) {
        const int last = key;
        if (i < tiles.n) copy_tile(ks, maps->k, full_k, empty_k, rk, key = tiles.next(), hk, b);
        if (copied_mask && i < tiles.n) {
          wait(empty_m + rm.stage, rm.parity ^ 1);
          arrive_expecting(full_m + rm.stage,
                           mask_bytes(options, 64) * (options.one_query ? 1 : S::kGroups) * (BK / 64));
          for (int part = 0; part < (options.one_query ? 1 : S::kGroups) * (BK / 64); ++part) {
            const int g = part / (BK / 64), chunk = part % (BK / 64);
            copy_mask(memory + S::kMasksAt + rm.stage * S::kMaskBytes + part * S::kChunk, mask, full_m + rm.stage, c,
                      options, b, h, q0 + 64 * g, key + 64 * chunk);
          }
          rm.next();
        }
        if (i > 0) copy_tile(vs, maps->v, full_v, empty_v, rv, last, hk, b);
      }
    }
    return;
  }

  if constexpr (S::kMoveRegisters) take_registers<S::kGroups == 3 ? 160 : 240>();
  const float factor = In::kAny ? options.factor : static_cast<float>(c.scale * kLog2e);
  const RngKey key = In::kEvery ? resolved(c.key) : RngKey{};
  const bool leader = threadIdx.x % 128 == 0;
  Ring<S::kQueryBuffers> rq;
  Ring<S::kStages> rk, rv;
  [[maybe_unused]] Ring<S::kStages> rm;
  uint64_t* stored = nullptr;  // the buffer of queries that this warpgroup's result leaves from
  const auto release = [&](uint64_t* empty) {
    if (lane == 0) arrive(empty);
  };
  const auto release_queries = [&] {
    if (leader && stored != nullptr) wait_out_read(), arrive(stored);
    stored = nullptr;
  };
  // Warpgroups take turns at starting products: barrier 1 + group.
  const auto my_turn = [&] {
    if constexpr (S::kTurns) named_sync(1 + group, 256);
  };
  const auto next_turn = [&] {
    if constexpr (S::kTurns) named_arrive(1 + (group + 1) % S::kGroups, 256);
  };
  if constexpr (S::kTurns) {
    if (group == S::kGroups - 1) named_arrive(1, 256);
  }

  for (int round = 0; kSequences || round < schedule.rounds(); ++round) {
    if constexpr (kSequences) wait(full_q + rq.stage, rq.parity);
    const int item = kSequences ? items[rq.stage] : schedule.item(round);
    if (item < 0) break;
    int q0, h, b;
    const ForwardMaps* maps;
    locate(item, q0, h, b, maps);
    KeyTiles<S, In::kMasks> tiles(c, options, b, h, q0);
    const int row0 = q0 + 64 * group, row = row0 + 16 * warp + lane / 4;  // this thread's, and row + 8
    const Seen seen[2] = {seen_keys(c, row), seen_keys(c, row + 8)};
    // What every row of the warpgroup sees, and what some row does.
    const int all_first = seen_keys(c, row0 + 63).first, all_last = seen_keys(c, row0).last;
    const bool any = row0 < c.tq && row0 + 63 >= 0;
    const int any_first = seen_keys(c, max(row0, 0)).first,
              any_last = any ? seen_keys(c, min(row0 + 63, static_cast<int>(c.tq) - 1)).last : -1;
    // Tiles in the order of work, of which this warpgroup needs those of [from, to).
    int from, to;
    tiles.needed(any_first, any_last, from, to);

    constexpr float kLowest = In::kPlainScores ? -1e30f : -FLT_MAX;  // a mask may add the lowest number
    float m[2] = {kLowest, kLowest}, l[2] = {0, 0}, alpha[2] = {0, 0};
    if constexpr (In::kEvery) options.begin_with_sink(h, m, l);
    [[maybe_unused]] const float slope = In::kEvery ? options.slope_of(b, h) : 0.f;
    bool shrinks = false;
    float s[BK / 2], o[D / 2];
    uint32_t p[BK / 16][4];
#pragma unroll
    for (int i = 0; i < D / 2; ++i) o[i] = 0;

    const uint8_t* const q = qs + rq.stage * S::kQueryBytes + group * kChunks<D> * S::kChunk;
    const auto start_scores = [&] {
      const uint64_t a = descriptor_k(q), bk = descriptor_k(ks + rk.stage * S::kTileBytes);
      pin(s);
      fence_products();
#pragma unroll
      for (int d = 0; d < D / 16; ++d)
        multiply<T, false, false>(s, advanced(a, d / 4 * S::kChunk + d % 4 * 32),
                                  advanced(bk, d / 4 * BK * 128 + d % 4 * 32), d > 0);
      commit_products();
    };
    const auto start_values = [&] {
      const uint64_t bv = descriptor_t(vs + rv.stage * S::kTileBytes, BK * 128);
      pin(o);
#pragma unroll
      for (int j = 0; j < BK / 16; ++j) pin(p[j]);
      fence_products();
#pragma unroll
      for (int j = 0; j < BK / 16; ++j) multiply<T, true>(o, p[j], advanced(bv, j * 2048), true);
      commit_products();
    };
    // What masks and dropout are for a tile, which is got ready while its scores are computed.
    SeenBits<BK / 8> visible;
    KeptBits<BK / 8> kept;
    const int mask_row[2] = {static_cast<int>(min(max(static_cast<int64_t>(row), int64_t{0}), c.tq - 1)),
                             static_cast<int>(min(max(static_cast<int64_t>(row) + 8, int64_t{0}), c.tq - 1))};
    const auto prepare = [&](int k0) {
      if (In::seen(options)) visible.load(options, options.seen_of(b, h), mask_row, k0);
      if (In::drawn(options)) {
        kept.load(options, static_cast<int64_t>(b) * c.heads + h, mask_row, k0);
      } else if (In::drops(options)) {
        const uint64_t number[2] = {c.numbers.of(b, h, mask_row[0], k0), c.numbers.of(b, h, mask_row[1], k0)};
        kept.draw(options, key, number, options.fours);
      }
    };
    // Scores to weights, in place; alpha is what older sums shrink by.
    const auto weights = [&](int k0) {
      if (In::kEvery && options.cap_in != 0) soft_cap(s, options.cap_in);
      if (copied_mask) {
        wait(full_m + rm.stage, rm.parity);
        const uint8_t* const tile =
            memory + S::kMasksAt + rm.stage * S::kMaskBytes + (options.one_query ? 0 : group * (BK / 64) * S::kChunk);
        if (c.mask_dtype == DType::bf16) {
          add_mask<BFloat16, BK / 8>(s, options, tile, S::kChunk);
        } else {
          add_mask<Half, BK / 8>(s, options, tile, S::kChunk);
        }
        release(empty_m + rm.stage), rm.next();
      } else if (In::kEvery && options.additive) {
        Bias<BK / 8>::add(s, c, options, mask_of(c, b, h), false, mask_row, k0);
      } else if (In::seen(options)) {
        visible.hide(s);
      }
      if (In::kEvery && options.slopes != nullptr)
        Distances(slope, row + static_cast<int>(c.offset) - k0 - 2 * (lane % 4)).take(s);
      if (k0 + BK - 1 > all_last) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int last = seen[r].last - k0 - 2 * (lane % 4);
#pragma unroll
          for (int j = 0; j < BK / 8; ++j)
#pragma unroll
            for (int e = 0; e < 2; ++e)
              if (8 * j + e > last) s[4 * j + 2 * r + e] = -INFINITY;
        }
      }
      if (k0 < all_first) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int begin = seen[r].first - k0 - 2 * (lane % 4);
#pragma unroll
          for (int j = 0; j < BK / 8; ++j)
#pragma unroll
            for (int e = 0; e < 2; ++e)
              if (8 * j + e < begin) s[4 * j + 2 * r + e] = -INFINITY;
        }
      }
      float top[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float x[2] = {m[r], s[2 * r]};  // two chains
#pragma unroll
        for (int j = 0; j < BK / 8; ++j) x[0] = fmaxf(x[0], s[4 * j + 2 * r]), x[1] = fmaxf(x[1], s[4 * j + 2 * r + 1]);
        top[r] = fmaxf(x[0], x[1]);
        top[r] = fmaxf(top[r], __shfl_xor_sync(0xffffffffu, top[r], 1));
        top[r] = fmaxf(top[r], __shfl_xor_sync(0xffffffffu, top[r], 2));
      }
      // Sums shrink only where a weight would pass 2^8: an older maximum serves as well.
      shrinks = __any_sync(0xffffffffu, fmaxf(top[0] - m[0], top[1] - m[1]) * factor > 8.f);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        top[r] = shrinks ? top[r] : m[r];
        alpha[r] = fast_exp2((m[r] - top[r]) * factor), m[r] = top[r], l[r] *= alpha[r];
      }
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        [[maybe_unused]] const float shift = m[r] * factor;
        float sum[2] = {0, 0};
#pragma unroll
        for (int j = 0; j < BK / 8; ++j)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            float& x = s[4 * j + 2 * r + e];
            // With an additive mask, what is taken off may be so low that a multiple of it is no number.
            x = fast_exp2(In::kPlainScores ? fmaf(x, factor, -shift) : (x - m[r]) * factor);
            sum[e] += x;
          }
        l[r] += sum[0] + sum[1];
      }
      pin(s);  // before what follows
    };
    const auto pack_weights = [&] {
#pragma unroll
      for (int j = 0; j < BK / 16; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) p[j][e] = pack2<T>(s[8 * j + 2 * e], s[8 * j + 2 * e + 1]);
      if (In::drops(options)) {
        const TileMasks<BK / 8> masks(kept);
#pragma unroll
        for (int j = 0; j < BK / 16; ++j)
#pragma unroll
          for (int e = 0; e < 4; ++e) p[j][e] &= masks.pair(2 * j + e / 2, e % 2);
      }
    };
    const auto shrink = [&] {
#pragma unroll
      for (int j = 0; j < D / 8; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) o[4 * j + e] *= alpha[e / 2];
    };
    const auto skip = [&] {  // a tile that only other warpgroups need
      my_turn(), next_turn();
      if constexpr (In::kMasks) tiles.next();
      // A lane that has not seen the end of a phase when another releases the stage may miss it: nothing else here
      // keeps a warp's lanes together.
      const auto pass_over = [&](uint64_t* full, uint64_t* empty, Ring<S::kStages>& r) {
        wait(full + r.stage, r.parity);
        __syncwarp();
        release(empty + r.stage), r.next();
      };
      if (copied_mask) pass_over(full_m, empty_m, rm);
      pass_over(full_k, empty_k, rk);
      pass_over(full_v, empty_v, rv);
    };

    wait(full_q + rq.stage, rq.parity);
    for (int i = 0; i < from; ++i) skip();
    // Tile i's first key.
    const auto key_of = [&](int i) {
      if constexpr (!In::kMasks) tiles.at = i;
      return tiles.next();
    };
    if (from < to) {
      wait(full_k + rk.stage, rk.parity);
      my_turn();
      start_scores();
      next_turn();
      const int k0 = key_of(from);
      prepare(k0);
      release_queries();
      wait_products<0>();
      pin(s);
      release(empty_k + rk.stage), rk.next();
      weights(k0);
      pack_weights();
      if constexpr (S::kAhead) {
        for (int i = from + 1; i < to; ++i) {
          wait(full_k + rk.stage, rk.parity);
          my_turn();
          start_scores();
          wait(full_v + rv.stage, rv.parity);
          start_values();
          next_turn();
          const int k0 = key_of(i);
          prepare(k0);
          wait_products<1>();
          pin(s);
          release(empty_k + rk.stage), rk.next();
          weights(k0);
          wait_products<0>();
          pin(o);
          release(empty_v + rv.stage), rv.next();
          if (shrinks) shrink();
          pack_weights();
        }
      } else {
        for (int i = from + 1; i < to; ++i) {
          wait(full_v + rv.stage, rv.parity);
          my_turn();
          start_values();
          wait(full_k + rk.stage, rk.parity);
          start_scores();
          next_turn();
          const int k0 = key_of(i);
          prepare(k0);
          wait_products<0>();
          pin(s), pin(o);
          release(empty_v + rv.stage), rv.next();
          release(empty_k + rk.stage), rk.next();
          weights(k0);
          if (shrinks) shrink();
          pack_weights();
        }
      }
      wait(full_v + rv.stage, rv.parity);
      my_turn();
      start_values();
      next_turn();
      wait_products<0>();
      pin(o);
      release(empty_v + rv.stage), rv.next();
    } else {
      my_turn(), next_turn();
    }
    for (int i = to; i < tiles.n; ++i) skip();
    release_queries();

    // The result leaves through the queries' place.
    float* const lse = static_cast<float*>(c.lse) + (static_cast<int64_t>(b) * c.heads + h) * c.lse_head;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      l[r] += __shfl_xor_sync(0xffffffffu, l[r], 1);
      l[r] += __shfl_xor_sync(0xffffffffu, l[r], 2);
      alpha[r] = l[r] == 0 ? 0.f : (In::kDrops ? options.kept_scale : 1.f) / l[r];
      if (lane % 4 == 0 && row + 8 * r >= 0 && row + 8 * r < c.tq)
        lse[row + 8 * r] = l[r] == 0          ? -INFINITY
                           : In::kPlainScores ? (m[r] * factor + log2f(l[r])) * static_cast<float>(kLn2)
                                              : fmaf(m[r], options.lse_factor, log2f(l[r]) * static_cast<float>(kLn2));
    }
    shrink();
    named_sync(8 + group, 128);
    {
      const int at = 16 * warp + lane % 16;  // the row whose address this lane gives
      const uint32_t base = shared_address(q) + at * 128;
#pragma unroll
      for (int j = 0; j < D / 8; j += 2) {
        const int piece = j + lane / 16;
        store_matrices(base + piece / 8 * S::kChunk + ((piece % 8) ^ (at % 8)) * 16, pack2<T>(o[4 * j], o[4 * j + 1]),
                       pack2<T>(o[4 * j + 2], o[4 * j + 3]), pack2<T>(o[4 * j + 4], o[4 * j + 5]),
                       pack2<T>(o[4 * j + 6], o[4 * j + 7]));
      }
    }
    fence_shared();
    named_sync(8 + group, 128);
    if (leader) {
      if constexpr (kSequences) acquire_map(maps->out);
      if (any)
#pragma unroll
        for (int i = 0; i < kChunks<D>; ++i) copy_out(maps->out, q + i * S::kChunk, 64 * i, row0, h, b);
      commit_out();
    }
    stored = empty_q + rq.stage;
    if constexpr (S::kQueryBuffers == 1) release_queries();
    rq.next();
  }
  if (leader) wait_out();
  if constexpr (S::kTurns) {
    if (group == 0) named_sync(1, 256);
  }
#endif
}

/// Heads of a section: as many as fit the L2 (40 MB of keys and values), if not all then a multiple or a fraction of
/// the number of blocks, so that each block gets as many heavy tiles as any other.
inline int section_of(const AttentionCall& c, int blocks) {
  const int64_t heads = c.batch * c.heads, group = c.heads / c.kv_heads;
  const int64_t fit = std::max<int64_t>(1, (int64_t{40} << 20) / (4 * c.tk * c.d)) * group;
  int64_t n = fit - fit % blocks;
  for (int64_t k = 1; n == 0; ++k) n = blocks / k <= fit ? blocks / k : 0;
  n = std::max(group, n - n % group);
  return static_cast<int>(std::min(heads, fit >= heads ? heads : n));
}

// Shapes for a set of options. Dropout takes registers: two warpgroups of queries, not three.
template <int kSet>
using ShapeOf64 = ForwardShape<64, (kSet & kDropped) != 0 ? 2 : 3, 128, 2, 2, 1, true, true>;
template <int>
using ShapeOf96 = ForwardShape<96, 2, 128, 2, 1, 1, true, true>;
template <int>
using ShapeOf128 = ForwardShape<128, 2, 128, 2, 1, 1, true, true>;
template <int>
using ShapeOf256 = ForwardShape<256, 2, 80, 2, 1, 1, true, true>;

#ifndef STRATA_TILE_EMULATION
/// What of a forward call does not depend on options.
template <class S>
struct ForwardCall {
  ForwardMaps maps;  // of as many columns as there are: copies fill up with zeros
  Schedule schedule;

  explicit ForwardCall(const AttentionCall& c) {
    maps.q = tensor_map(c.dtype, c.q, c.batch, c.heads, c.tq, c.d, 64);
    maps.k = tensor_map(c.dtype, c.k, c.batch, c.kv_heads, c.tk, c.d, S::kKeys);
    maps.v = tensor_map(c.dtype, c.v, c.batch, c.kv_heads, c.tk, c.d, S::kKeys);
    maps.out = tensor_map(c.dtype, c.out, c.batch, c.heads, c.tq, c.d, 64);
    schedule.tiles = static_cast<int>((c.tq + S::kQueries - 1) / S::kQueries);
    schedule.heads = static_cast<int>(c.batch * c.heads);
  }
  template <class Kernel>
  void queue(Kernel kernel, const AttentionCall& c, const Sequences& sequences, const ForwardMaps* maps_of,
             const Options& options, const CUtensorMap& mask) {
    const int bytes = options.copied ? S::kSharedBytesWithMasks : S::kSharedBytes;
    cuda::check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
                     "scaled_dot_product_attention", "cudaFuncSetAttribute");
    const int blocks = std::min(schedule.total(), multiprocessors() * S::kBlocks);
    schedule.section = section_of(c, blocks);
    kernel<<<blocks, S::kThreads, bytes, cuda::stream()>>>(c, maps, schedule, sequences, maps_of, options, mask);
  }
};

template <class T, class S>
void queue_forward(const AttentionCall& c, const Tensor& like_this) {
  ForwardCall<S> call(c);
  if (c.sequences == 0) return call.queue(forward_hopper_kernel<T, S, false, kNoOptions>, c, {}, nullptr, {}, {});
  Tensor lists, space;
  const Sequences sequences = sequences_of(c, S::kQueries, S::kKeys, like_this, lists);
  MapSet set{};
  set.add(call.maps.q, c.q, false), set.add(call.maps.k, c.k, true), set.add(call.maps.v, c.v, true);
  set.add(call.maps.out, c.out, false);
  call.schedule.tiles = static_cast<int>(sequences.q_tiles);
  call.queue(forward_hopper_kernel<T, S, true, kNoOptions>, c, sequences,
             reinterpret_cast<const ForwardMaps*>(maps_of_sequences(set, sequences, c.sequences + 2, like_this, space)),
             {}, {});
}

/// With kSets, calls that ask for one or two of the usual options have kernels of their own.
template <class T, template <int> class Shape, bool kSets>
void queue_forward_options(const AttentionCall& c, const Tensor& like_this) {
  using S = Shape<kEveryOption>;
  Tensor space, bits;
  Options options = options_of(c, 64, S::kKeys, false, like_this, space);
  draw_kept(options, c, 64, S::kKeys, false, like_this, bits);
  CUtensorMap mask{};
  if constexpr (S::kMasks) mask = mask_map(c, 64, options);
  with_set<kSets>(c, options, [&]<int kSet>() {
    using Of = Shape<kSet>;
    static_assert(Of::kKeys == S::kKeys && Of::kMasks == S::kMasks);
    ForwardCall<Of>(c).queue(forward_hopper_kernel<T, Of, false, kSet>, c, {}, nullptr, options, mask);
  });
}

/// Head sizes between fill up with zeros in the copies.
template <class T>
void forward_options(const AttentionCall& c, const Tensor& like_this) {
  if (c.d <= 64) return queue_forward_options<T, ShapeOf64, true>(c, like_this);
  if (c.d <= 96) return queue_forward_options<T, ShapeOf96, false>(c, like_this);
  if (c.d <= 128) return queue_forward_options<T, ShapeOf128, true>(c, like_this);
  queue_forward_options<T, ShapeOf256, false>(c, like_this);
}
void forward_options_bf16(const AttentionCall& c, const Tensor& like_this);
void forward_options_f16(const AttentionCall& c, const Tensor& like_this);
#endif

}  // namespace strata::attention_cuda::hopper
