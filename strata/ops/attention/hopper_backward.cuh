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

#include "strata/ops/attention/hopper_backward_parts.cuh"

namespace strata::attention_cuda::hopper {

template <class T, class S, bool kSequences, int kSet>
__global__ void __launch_bounds__(S::kThreads, 1)
    backward_hopper_kernel(const __grid_constant__ AttentionCall given, const __grid_constant__ BackwardMaps given_maps,
                           const BackwardSpace space, const Sequences sequences, const BackwardMaps* maps_of,
                           const __grid_constant__ Options options, const __grid_constant__ CUtensorMap mask) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  // The call of the sequence or batch that is being worked on, or the whole.
  using In = OptionsIn<kSet>;
  std::conditional_t<kSequences || In::kEvery, AttentionCall, const AttentionCall&> c = given;
  constexpr int D = S::D, M = S::kRows, N = S::kKeys;
#ifdef STRATA_TILE_EMULATION
  uint8_t* const memory = shared_memory();
#else
  extern __shared__ __align__(1024)
      uint8_t memory[];  // by that function, some of these kernels keep registers in memory
#endif
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
  // Tiles of an additive mask come to where the gradients of their scores will lie.
  [[maybe_unused]] uint64_t* const full_m = empty_sum + 1 + S::kKeyBuffers;
  [[maybe_unused]] uint64_t* const empty_m = full_m + 2;
  // Which tiles a mask leaves, the warp that copies them finds out: each stage's head and first query, and of each
  // buffer of keys how many there are.
  [[maybe_unused]] volatile int* const tile_heads = reinterpret_cast<volatile int*>(full_m + S::kMaskBarriers);
  [[maybe_unused]] volatile int* const tile_rows = tile_heads + S::kStages;
  [[maybe_unused]] volatile int* const all_steps = tile_rows + S::kStages;
  [[maybe_unused]] const bool copied_mask = In::copied(options);

  if (threadIdx.x == 0) {
    if (copied_mask)
      for (int i = 0; i < 2; ++i) init_barrier(full_m + i, 1), init_barrier(empty_m + i, 8);
    if (shared_address(memory) % 1024 != 0) __trap();
    init_barrier(full_sum, 8), init_barrier(empty_sum, 1);
    for (int i = 0; i < S::kKeyBuffers; ++i)
      init_barrier(full_k + i, 1), init_barrier(full_v + i, 1), init_barrier(empty_keys + i, 3);
    for (int i = 0; i < S::kStages; ++i) {
      init_barrier(full_q + i, 1), init_barrier(full_g + i, 1);
      init_barrier(empty_q + i, 8), init_barrier(empty_g + i, 8);  // a warp each
    }
    fence_barriers();
    fence_shared();
  }
  __syncthreads();

  const int all_heads = static_cast<int>(c.kv_heads), head_group = static_cast<int>(c.heads / c.kv_heads);
  // Item `at`: 128 keys of a head, the last of a head first (under a causal mask others wait for them), and the tiles
  // of queries that see them.
  struct Item {
    int tile, hk, b, first, n, start;
    int key_tiles, row_tiles, tile0;  // of its sequence, whose first tile of queries is tile0 of all
    bool rotated;
    const BackwardMaps* maps;
  };
  // Of several sequences, whether there is an item of this number.
  const auto exists = [&](int at) {
    const int tile = at / all_heads;
    return tile < space.key_tiles && sequences.of_k[tile] >= 0;
  };
  const auto item_at = [&](int at) {
    Item x;
    x.key_tiles = space.key_tiles, x.row_tiles = space.row_tiles, x.tile0 = 0;
    x.rotated = space.rotated, x.maps = &given_maps;
    if constexpr (kSequences) {
      const int of = sequences.of_k[at / all_heads];
      const Sequence s = sequences.all[of];
      c.tq = s.tq, c.tk = s.tk;
      at -= s.k_tile * all_heads;
      x.key_tiles = (s.tk + N - 1) / N, x.row_tiles = (s.tq + M - 1) / M, x.tile0 = s.q_tile;
      x.rotated = space.rotated && x.key_tiles <= space.together;
      x.maps = maps_of + of;
    }
    x.tile = x.key_tiles - 1 - at % x.key_tiles;
    x.hk = at / x.key_tiles % all_heads, x.b = at / x.key_tiles / all_heads;
    if constexpr (In::kEvery) take_length(c, x.b);
    int64_t begin, end;
    visible_queries(c, x.tile * N, min(static_cast<int64_t>(x.tile) * N + N, c.tk), begin, end);
    if (In::kEvery && static_cast<int64_t>(x.tile) * N >= c.tk) end = begin;  // behind a length
    x.first = static_cast<int>(begin / M);
    x.n = end > begin ? static_cast<int>((end + M - 1) / M) - x.first : 0;
    x.start = x.rotated ? static_cast<int>(static_cast<int64_t>(x.tile) * x.row_tiles / x.key_tiles) : 0;
    return x;
  };
  const auto row_tile = [&](const Item& x, int it) {
    int i = x.first + it;
    if (x.rotated) i = it + x.start, i -= i >= x.n ? x.n : 0;
    return i;
  };

  // Whether a mask leaves something of tile `i` of queries to the item's keys.
  const auto wanted = [&](const Item& x, int h, int i) {
    return !In::flags(options) || (options.tiles_of(x.b, h, i)[x.tile / 32] >> (x.tile % 32) & 1) != 0;
  };
  // Goes to the next head and tile from (h, it) on that is wanted, if there is one.
  const auto skip_hidden = [&](const Item& x, int& h, int& it) {
    if constexpr (In::kMasks) {
      const int end = (x.hk + 1) * head_group;
      while (h < end && !wanted(x, h, row_tile(x, it)))
        if (++it == x.n) it = 0, ++h;
    }
  };
  const auto count_wanted = [&](const Item& x) {
    if (!In::flags(options)) return head_group * x.n;
    int sum = 0;
    for (int h = x.hk * head_group; h < (x.hk + 1) * head_group; ++h)
      for (int it = 0; it < x.n; ++it) sum += wanted(x, h, x.first + it);
    return sum;
  };

  // Worked out while every warp still has registers for it.
  Item mine{};
  if constexpr (!S::kStays) {
    if (kSequences && !exists(static_cast<int>(blockIdx.x))) return;
    mine = item_at(static_cast<int>(blockIdx.x));
  }

  if (group == 2) {
    give_registers<S::kCopyRegisters>();
    if (warp == 0 && lane == 0) {  // copies in
      const int total = static_cast<int>(c.batch) * all_heads * space.key_tiles;
      Ring<S::kStages> r;
      Ring<S::kKeyBuffers> rk, last;
      [[maybe_unused]] Ring<2> rm;
      for (bool any = false;; any = true) {
        int at = 0;
        if constexpr (S::kStays) {
          wait(empty_keys + rk.stage, rk.parity ^ 1);
          // Blocks that run at the same time wait for each other: none may keep the keys of another.
          if (space.rotated && any) wait(empty_keys + last.stage, last.parity);
          at = atomicAdd(space.ticket, 1);
          const bool there = kSequences ? exists(at) : at < total;
          items[rk.stage] = there ? at : -1;
          if (!there) {
            arrive(full_k + rk.stage);
            break;
          }
        }
        const Item x = S::kStays ? item_at(at) : mine;
        if constexpr (kSequences)
          acquire_map(x.maps->q), acquire_map(x.maps->k), acquire_map(x.maps->v), acquire_map(x.maps->grad_out);
        const auto copy_keys = [&](uint8_t* to, const CUtensorMap& map, uint64_t* full) {
          arrive_expecting(full + rk.stage, S::kKeyBytes);
#pragma unroll
          for (int i = 0; i < kChunks<D>; ++i)
            copy_in(to + rk.stage * S::kKeyBytes + i * N * 128, map, full + rk.stage, 64 * i, x.tile * N, x.hk, x.b);
        };
        copy_keys(all_ks, x.maps->k, full_k);
        const int steps = count_wanted(x);
        if constexpr (In::kMasks) all_steps[rk.stage] = steps;
        if (steps == 0) copy_keys(all_vs, x.maps->v, full_v);
        int h = x.hk * head_group, it = 0;
        for (int step = 0; step < steps; ++step) {
          skip_hidden(x, h, it);
          const int row = row_tile(x, it) * M;
          const int64_t from = (static_cast<int64_t>(x.b) * c.heads + h) * space.pitch + x.tile0 * M + row;
          wait(empty_q + r.stage, r.parity ^ 1);
          if constexpr (In::kMasks) {
            tile_heads[r.stage] = h;
            tile_rows[r.stage] = row;
          }
          arrive_expecting(full_q + r.stage, S::kRowBytes + M * 4);
#pragma unroll
          for (int i = 0; i < kChunks<D>; ++i)
            copy_in(qs + r.stage * S::kRowBytes + i * M * 128, x.maps->q, full_q + r.stage, 64 * i, row, h, x.b);
          copy_bytes_in(lse2s + r.stage * M, space.lse2 + from, full_q + r.stage, M * 4);
          if (copied_mask) {
            wait(empty_m + rm.stage, rm.parity ^ 1);
            arrive_expecting(full_m + rm.stage, 2 * mask_bytes(options, M));
            for (int i = 0; i < 2; ++i)
              copy_mask(ds + rm.stage * S::kScoreBytes + i * M * 128, mask, full_m + rm.stage, c, options, x.b, h, row,
                        x.tile * N + 64 * i);
            rm.next();
          }
          if (step == 0) copy_keys(all_vs, x.maps->v, full_v);
          wait(empty_g + r.stage, r.parity ^ 1);
          arrive_expecting(full_g + r.stage, S::kRowBytes + M * 4);
#pragma unroll
          for (int i = 0; i < kChunks<D>; ++i)
            copy_in(gs + r.stage * S::kRowBytes + i * M * 128, x.maps->grad_out, full_g + r.stage, 64 * i, row, h, x.b);
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
        const int steps = count_wanted(x);
        for (int step = 0; step < steps; ++step) {
          skip_hidden(x, h, it);
          const int i = row_tile(x, it);
          // Terms of the keys from tile `from` up to tile `to`.
          const auto terms = [&](int from, int to) {
            if constexpr (In::kEvery) {  // none behind a length
              to = min(to, static_cast<int>((c.tk + N - 1) / N));
              from = min(from, to);
            }
            if (!In::flags(options)) return to - from;
            return count_bits(options.tiles_of(x.b, h, i), from, to);
          };
          int place;  // terms before this one
          if (x.rotated) {
            const int64_t begun = (static_cast<int64_t>(i + 1) * x.key_tiles - 1) / x.row_tiles + 1;
            const int upper = static_cast<int>(min(begun, static_cast<int64_t>(x.key_tiles)));
            place = x.start <= i ? terms(x.tile + 1, upper) : terms(0, upper) + terms(x.tile + 1, x.key_tiles);
          } else {
            int64_t begin, end;
            visible_keys(c, static_cast<int64_t>(i) * M, min(static_cast<int64_t>(i + 1) * M, c.tq), begin, end);
            place = terms(x.tile + 1, static_cast<int>((end - 1) / N) + 1);
          }
          const int64_t at = (static_cast<int64_t>(x.b) * c.heads + h) * space.row_tiles + x.tile0 + i;
          float* const to = space.sums + at * (M * D);
          wait(full_sum, r.parity);
          if (place == 0) {
            copy_bytes_out(to, sums, S::kSumBytes);
          } else {
            wait_count(space.counts + at, place);
            fence_proxies();
            add_bytes_out(to, sums, S::kSumBytes);
          }
          commit_out();
          wait_out_read();
          arrive(empty_sum);
          r.next();
          wait_out();
          fence_proxies();
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
  const float factor = In::kAny ? options.factor : static_cast<float>(c.scale * kLog2e);
  const RngKey random_key = In::kEvery ? resolved(c.key) : RngKey{};
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
  [[maybe_unused]] Ring<2> rm;
  int scores_at = 0;  // and rm.stage
  for (Ring<S::kKeyBuffers> rk;; rk.next()) {
    wait(full_k + rk.stage, rk.parity);
    const int taken = S::kStays ? items[rk.stage] : 0;
    if (taken < 0) break;
    const Item item = S::kStays ? item_at(taken) : mine;
    const uint8_t* const ks = all_ks + rk.stage * S::kKeyBytes;
    const uint8_t* const vs = all_vs + rk.stage * S::kKeyBytes;
    const int n = item.n;
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
    [[maybe_unused]] int it = 0, h = item.hk * head_group;
    SeenBits<M / 8> visible;
    KeptBits<M / 8> kept;
    const int mask_row[2] = {min(key, static_cast<int>(given.tk) - 1), min(key + 8, static_cast<int>(given.tk) - 1)};
    const auto pass = [&](auto more) {
      int row;
      [[maybe_unused]] int head;
      if constexpr (In::kMasks) {
        row = tile_rows[r.stage], head = tile_heads[r.stage];
      } else {
        row = row_tile(item, it) * M, head = h;
        if (++it == n) it = 0, ++h;
      }
      const uint8_t* const q = qs + r.stage * S::kRowBytes;
      const uint8_t* const g = gs + r.stage * S::kRowBytes;
      // Bits are on their way while the gradients of the result come and their product runs.
      if (In::seen(options)) visible.load(options, options.seen_of(item.b, head), mask_row, row);
      if (In::drawn(options)) {
        kept.load(options, static_cast<int64_t>(item.b) * c.heads + head, mask_row, row);
      } else if (In::drops(options)) {
        kept.draw_transposed(options, random_key, c.numbers.of(item.b, head, row, key0 + 16 * warp), c.numbers.query,
                             options.fours);
      }
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
      // Under a soft cap distances are taken off where the weights are computed.
      [[maybe_unused]] const bool capped = In::kEvery && options.cap_in != 0;
      [[maybe_unused]] const Distances distances(
          In::kEvery ? options.slope_of(item.b, head) : 0.f,
          In::kEvery ? key - static_cast<int>(c.offset) - row - 2 * (lane % 4) : 0);
      if (capped) soft_cap(s, options.cap_in);
      if (copied_mask) {
        wait(full_m + rm.stage, rm.parity);
        const uint8_t* const tile = ds + rm.stage * S::kScoreBytes + group * M * 128;
        if (c.mask_dtype == DType::bf16) {
          add_mask_transposed<BFloat16, M / 8>(s, options, tile);
        } else {
          add_mask_transposed<Half, M / 8>(s, options, tile);
        }
      } else if (In::kEvery && options.additive) {
        Bias<M / 8>::add(s, c, options, mask_of(c, item.b, head), true, mask_row, row);
      } else if (In::seen(options)) {
        visible.hide(s);
      }
      if (In::kEvery && options.slopes != nullptr && !capped) distances.take(s);
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
      // What dropout leaves of the weights; those that it drops have a part in the gradient of scores.
      [[maybe_unused]] uint32_t left[In::kDrops ? M / 16 : 1][4];
#pragma unroll
      for (int j = 0; j < M / 8; ++j) {
        const float2 x = *reinterpret_cast<const float2*>(lse2 + 8 * j);
        if constexpr (In::kEvery) {
          if (capped) {  // p: what the gradient of scores takes of dp, the weights times the cap's slope
#pragma unroll
            for (int r = 0; r < 2; ++r) {
              float w[2], sloped[2];
#pragma unroll
              for (int f = 0; f < 2; ++f) {
                const float u = s[4 * j + 2 * r + f], in = fmaxf(u, -1.f);  // hidden ones are -inf
                w[f] = fast_exp2((u - distances.at(r, 8 * j + f) - (f ? x.y : x.x)) * factor);
                sloped[f] = w[f] * fmaf(in, -in, 1.f);
              }
              left[j / 2][2 * (j % 2) + r] = pack2<T>(w[0], w[1]);
              p[j / 2][2 * (j % 2) + r] = pack2<T>(sloped[0], sloped[1]);
            }
            continue;
          }
        }
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const float lse = e % 2 ? x.y : x.x;
          // With an additive mask, lse has the scores' unit (see backward_rows_kernel).
          s[4 * j + e] = fast_exp2(In::kPlainScores ? fmaf(s[4 * j + e], factor, -lse) : (s[4 * j + e] - lse) * factor);
        }
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const uint32_t v = pack2<T>(s[4 * j + 2 * e], s[4 * j + 2 * e + 1]);
          p[j / 2][2 * (j % 2) + e] = v;
          if constexpr (In::kDrops) left[j / 2][2 * (j % 2) + e] = v;
        }
      }
      if constexpr (In::kDrops) {
        if (In::drops(options)) {
          const TileMasks<M / 8> masks(kept);
#pragma unroll
          for (int j = 0; j < M / 8; ++j)
#pragma unroll
            for (int e = 0; e < 2; ++e) left[j / 2][2 * (j % 2) + e] &= masks.pair(j, e);
        }
      }
      auto& weights = either<In::kDrops>(left, p);
      {
        const uint64_t bg = descriptor_t(g, M * 128);
#pragma unroll
        for (int j = 0; j < M / 16; ++j) pin(weights[j]);
        pin(grad_v);
        fence_products();
#pragma unroll
        for (int j = 0; j < M / 16; ++j) multiply<T, true>(grad_v, weights[j], advanced(bg, j * 2048), true);
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
          float y[2] = {dp[4 * j + 2 * e], dp[4 * j + 2 * e + 1]};
          if constexpr (In::kDrops) {
            if (In::drops(options)) {
              const TileMasks<M / 8> masks(kept);
#pragma unroll
              for (int f = 0; f < 2; ++f) y[f] = __uint_as_float(__float_as_uint(y[f]) & masks.one(4 * j + 2 * e + f));
            }
          }
          const auto less = [&](float v, float delta) {
            return In::kDrops ? fmaf(v, options.kept_scale, -delta) : v - delta;
          };
          t[j / 2][2 * (j % 2) + e] = pack2<T>(w.x * less(y[0], x.x), w.y * less(y[1], x.y));
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
      for (int j = 0; j < M / 16; ++j) pin(weights[j]);
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
      if (copied_mask) release(empty_m + rm.stage), rm.next();
      wait(empty_sum, sum_ring.parity ^ 1);
      {
        float4* const to = reinterpret_cast<float4*>(sums) + group * 1024 + threadIdx.x % 128;
#pragma unroll
        for (int j = 0; j < 8; ++j)
          store_four(to + j * 128, sum[4 * j], sum[4 * j + 1], sum[4 * j + 2], sum[4 * j + 3]);
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
    int steps;
    if constexpr (In::kMasks) {
      steps = all_steps[rk.stage];
    } else {
      steps = head_group * n;
    }
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
        if constexpr (kSequences) acquire_map(map);
        if (key0 < (kSequences ? c.tk : given.tk))
#pragma unroll
          for (int i = 0; i < kChunks<D>; ++i)
            copy_out(map, place + i * N * 128 + group * 64 * 128, 64 * i, key0, item.hk, item.b);
        commit_out();
      }
    };
    write(all_vs + rk.stage * S::kKeyBytes, In::kDrops ? options.kept_scale : 1.f, grad_v, item.maps->grad_v);
    write(all_ks + rk.stage * S::kKeyBytes, static_cast<float>(c.scale), grad_k, item.maps->grad_k);
    if constexpr (!S::kStays) break;
    leaving = empty_keys + rk.stage;
    if (space.rotated) release_keys();
  }
  if (leader) wait_out();
#endif
}

}  // namespace strata::attention_cuda::hopper
