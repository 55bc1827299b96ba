#pragma once
// Gradients of attention on tensor cores. A block has 128 or 64 rows, queries or keys, a warp 16 of them, and passes
// over tiles of the other side, keys or queries; it computes the weights of its rows by those columns again and adds up
// the gradients of its rows alone, so that sums always have one order.

#include "strata/ops/attention/attention.cuh"
#include "strata/ops/attention/mma.cuh"
#include "strata/ops/attention/options.cuh"

namespace strata::attention_cuda {
namespace mma_backward {

// What a kernel computes: the gradient of queries, of keys, of values, or of the last two together.
enum class Of { query, key, value, key_and_value };

// What a kernel for heads of D is made of, with operands of M.
template <class M, int D, Of kOf>
struct BackwardShape {
  static constexpr bool kSingles = M::kPiece == 4;
  static constexpr int kPitch = M::template Shape<D>::kPitch;
  // Of f32 two blocks share a multiprocessor where they fit; rows of 256 columns leave room for half as many.
  static constexpr int kBlocks = kSingles && D < 128 ? 2 : 1;
  static constexpr int kWarps = kSingles && D != 128 ? 4 : 8, kThreads = 32 * kWarps, kRows = 16 * kWarps;
  static constexpr int kColumns = D <= 64 || (!kSingles && kOf == Of::query && D <= 128) ? 64
                                  : kSingles && D > 128                                  ? 16
                                                                                         : 32;
  static constexpr int kSharedBytes =
      (2 * kRows + 4 * kColumns) * kPitch * static_cast<int>(sizeof(typename M::Stored)) + 4 * kColumns * 4;
};

// Writes a warp's 16 rows; this thread has `row` and row + 8.
template <class M, int D>
__device__ __forceinline__ void write(const AttentionView& view, int64_t b, int64_t head, int64_t row, int64_t time,
                                      int size, float scale, const float (&sum)[D / 8][4]) {
  typename M::T* const out = head_of<typename M::T>(view, b, head);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int64_t i = row + 8 * r;
    if (i >= time) continue;
#pragma unroll
    for (int d = 0; d < D / 8; ++d)
      if (8 * d < size)
        M::put(out + i * view.time + 8 * d + 2 * (threadIdx.x % 4), sum[d][2 * r] * scale, sum[d][2 * r + 1] * scale);
  }
}

// With rows of queries: s = q k^T, dp = grad_out v^T, grad_q = ds k. With rows of keys, all transposed: s = k q^T,
// dp = v grad_out^T, grad_k = ds q, grad_v = p grad_out. p = exp2(s factor - lse2), ds = p (dp - delta).
template <class M, int D, Of kOf, bool kOptions>
__global__ void __launch_bounds__(BackwardShape<M, D, kOf>::kThreads, BackwardShape<M, D, kOf>::kBlocks)
    backward_mma_kernel(const __grid_constant__ AttentionCall given, const RowTerms<float> given_terms,
                        const Sequences sequences, const __grid_constant__ Options options) {
  constexpr bool kOfQuery = kOf == Of::query, kScores = kOf != Of::value,
                 kValues = kOf == Of::value || kOf == Of::key_and_value;
  using T = typename M::T;
  using Stored = typename M::Stored;
  using Shape = BackwardShape<M, D, kOf>;
  constexpr int BC = Shape::kColumns, kTile = BC * Shape::kPitch, kSteps = D / M::kDepth;
  constexpr int kRows = Shape::kRows, kThreads = Shape::kThreads;
#ifdef STRATA_TILE_EMULATION
  uint8_t* const memory = shared_memory();
#else
  extern __shared__ __align__(128) uint8_t memory[];
#endif
  Stored* const r1 = reinterpret_cast<Stored*>(memory);                      // rows of q or k
  Stored* const r2 = r1 + kRows * Shape::kPitch;                             // rows of grad_out or v
  Stored* const c1 = r2 + kRows * Shape::kPitch;                             // two tiles of k or q
  Stored* const c2 = c1 + 2 * kTile;                                         // two tiles of v or grad_out
  float* const terms_of_columns = reinterpret_cast<float*>(c2 + 2 * kTile);  // twice BC lse2, BC delta
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

  AttentionCall c = given;
  RowTerms<float> terms = given_terms;
  const int64_t heads = kOfQuery ? c.heads : c.kv_heads, all = c.batch * heads, group = c.heads / c.kv_heads;
  int64_t at_tile = blockIdx.x / all;
  if (sequences.all != nullptr && !take_sequence<T, kOfQuery>(c, sequences, at_tile, &terms)) return;
  const int64_t time = kOfQuery ? c.tq : c.tk;
  const int64_t tiles = (time + kRows - 1) / kRows;
  // Under a causal mask the last queries see the most keys, and the first keys are seen by the most queries.
  const int64_t tile = kOfQuery ? tiles - 1 - at_tile : at_tile;
  const int64_t b = blockIdx.x % all / heads, head = blockIdx.x % all % heads, hk = kOfQuery ? head / group : head;
  if constexpr (kOptions) take_length(c, b);
  const int64_t other = kOfQuery ? c.tk : c.tq, row0 = tile * kRows;
  const int size = static_cast<int>(c.d);

  int64_t begin, end;
  if constexpr (kOfQuery) {
    visible_keys(c, row0, min(row0 + kRows, time), begin, end);
  } else {
    visible_queries(c, row0, min(row0 + kRows, time), begin, end);
    if (kOptions && row0 >= c.tk) end = begin;
  }
  const int64_t per_head = end > begin ? (end - begin + BC - 1) / BC : 0, n = (kOfQuery ? 1 : group) * per_head;

  const auto copy_columns = [&](int64_t it) {
    const int64_t h = kOfQuery ? hk : hk * group + it / per_head, first = begin + it % per_head * BC;
    const AttentionView &x = kOfQuery ? c.k : c.q, &y = kOfQuery ? c.v : c.grad_out;
    const int64_t buffer = it & 1;
    copy_tile<M, BC, D, kThreads>(c1 + buffer * kTile, head_of<const T>(x, b, h), x.time, first, other, size);
    if constexpr (kScores || kValues)
      copy_tile<M, BC, D, kThreads>(c2 + buffer * kTile, head_of<const T>(y, b, h), y.time, first, other, size);
    if constexpr (!kOfQuery) {
      // Terms of queries past the last are those of the last: they are masked.
      if (threadIdx.x < BC) {
        const int64_t at = (b * c.heads + h) * c.lse_head + min(first + threadIdx.x, c.tq - 1);
        float* const to = terms_of_columns + buffer * 2 * BC + threadIdx.x;
        copy_four_async(to, terms.lse2 + at);
        copy_four_async(to + BC, terms.delta + at);
      }
    }
    commit_copies();
  };
  {
    const AttentionView &x = kOfQuery ? c.q : c.k, &y = kOfQuery ? c.grad_out : c.v;
    copy_tile<M, kRows, D, kThreads>(r1, head_of<const T>(x, b, head), x.time, row0, time, size);
    if constexpr (kScores) copy_tile<M, kRows, D, kThreads>(r2, head_of<const T>(y, b, head), y.time, row0, time, size);
  }
  n > 0 ? copy_columns(0) : commit_copies();

  const int64_t row = row0 + 16 * warp + lane / 4;  // and row + 8
  const int64_t warp_first = row0 + 16 * warp, warp_last = warp_first + 15;
  const auto seen_by = [&](int64_t i) {
    if (kOptions && !kOfQuery && i >= c.tk) return Seen{static_cast<int>(c.tq), -1};  // behind a length
    return kOfQuery ? seen_keys(c, i) : seen_queries(c, i);
  };
  const Seen seen[2] = {seen_by(row), seen_by(row + 8)};
  const int all_first = seen_by(warp_last).first, all_last = seen_by(warp_first).last;
  const float factor = kOptions ? options.factor : static_cast<float>(c.scale * kLog2e);
  float row_lse2[2] = {}, row_delta[2] = {};
  if constexpr (kOfQuery) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int64_t at = (b * c.heads + head) * c.lse_head + min(row + 8 * r, c.tq - 1);
      row_lse2[r] = terms.lse2[at];
      row_delta[r] = terms.delta[at];
    }
  }
  const RngKey key = kOptions ? resolved(c.key) : RngKey{};
  const int mask_row[2] = {static_cast<int>(min(row, time - 1)), static_cast<int>(min(row + 8, time - 1))};
  float score_sum[kScores ? D / 8 : 1][4] = {}, value_sum[kValues ? D / 8 : 1][4] = {};

  for (int64_t it = 0; it < n; ++it) {
    wait_copies<0>();
    __syncthreads();
    if (it + 1 < n) copy_columns(it + 1);
    if (warp_first >= time) continue;  // a warp without rows
    const int first = static_cast<int>(begin + it % per_head * BC);
    const Stored* const x = c1 + (it & 1) * kTile;
    const Stored* const y = c2 + (it & 1) * kTile;
    const float* const lse2 = terms_of_columns + (it & 1) * 2 * BC;
    const float* const delta = lse2 + BC;

    float s[BC / 8][4] = {}, dp[BC / 8][4] = {};
    if constexpr (M::kExact) {
      add_exact_scores<M, D, BC>(s, r1, 16 * warp, x);
      if constexpr (kScores) add_exact_scores<M, D, BC>(dp, r2, 16 * warp, y);
    } else {
#pragma unroll
      for (int d = 0; d < kSteps; ++d) {
        typename M::A a, a2;
        M::template load_a<D>(a, r1, 16 * warp, d);
        if constexpr (kScores) M::template load_a<D>(a2, r2, 16 * warp, d);
#pragma unroll
        for (int j = 0; j < BC; j += 16) {
          typename M::B bx;
          M::template load_b_rows<D>(bx, x, j, d);
          M::multiply(s[j / 8], s[j / 8 + 1], a, bx);
          if constexpr (kScores) {
            M::template load_b_rows<D>(bx, y, j, d);
            M::multiply(dp[j / 8], dp[j / 8 + 1], a2, bx);
          }
        }
      }
    }

    float(&flat)[BC / 2] = reinterpret_cast<float(&)[BC / 2]>(s);
    KeptBits<BC / 8> kept;
    [[maybe_unused]] typename M::template Slopes<kOptions && kScores ? BC / 8 : 1> slopes;
    if constexpr (kOptions) {
      const int64_t h = kOfQuery ? head : hk * group + it / per_head;
      if (options.cap_in != 0) {
        soft_cap<M::kExact>(flat, options.cap_in);
        if constexpr (kScores) slopes.keep(s);
      }
      mask_scores<BC / 8>(flat, c, options, b, h, !kOfQuery, mask_row, first,
                          row + (kOfQuery ? c.offset : -c.offset) - first - 2 * (lane % 4));
      if (options.drop_below != 0) {
        if (options.kept != nullptr) {
          kept.load(options, b * c.heads + h, mask_row, first);
        } else if constexpr (kOfQuery) {
          const uint64_t number[2] = {c.numbers.of(b, h, mask_row[0], first), c.numbers.of(b, h, mask_row[1], first)};
          kept.draw(options, key, number, options.fours && first % 4 == 0);
        } else {
          kept.draw_transposed(options, key, c.numbers.of(b, h, first, warp_first), c.numbers.query, options.fours);
        }
      }
    }
    const bool edge = first < all_first || first + BC - 1 > all_last;
#pragma unroll
    for (int j = 0; j < BC / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int at = 8 * j + 2 * (lane % 4) + e % 2;
        const float lse = kOfQuery ? row_lse2[e / 2] : lse2[at];  // in the scores' unit where there are options
        float p = fast_exp2(kOptions ? (s[j][e] - lse) * factor : fmaf(s[j][e], factor, -lse));
        if (edge && (first + at < seen[e / 2].first || first + at > seen[e / 2].last)) p = 0;
        s[j][e] = p;
        if constexpr (kOptions) {
          if (options.drop_below != 0) {
            if constexpr (kScores) dp[j][e] = kept[4 * j + e] ? dp[j][e] * options.kept_scale : 0.f;
            if (!kept[4 * j + e]) s[j][e] = 0;
          }
        }
        if constexpr (kScores) {
          dp[j][e] = p * (dp[j][e] - (kOfQuery ? row_delta[e / 2] : delta[at]));
          if constexpr (kOptions) {
            if (options.cap_in != 0) dp[j][e] *= slopes.at(j, e);
          }
        }
      }

    if constexpr (kValues) add_products<M, D, BC, 4>(value_sum, s, y);
    if constexpr (kScores) add_products<M, D, BC, 4>(score_sum, dp, x);
  }
  wait_copies<0>();

  if constexpr (kScores)
    write<M, D>(kOfQuery ? c.grad_q : c.grad_k, b, head, row, time, size, static_cast<float>(c.scale), score_sum);
  if constexpr (kValues)
    write<M, D>(c.grad_v, b, head, row, time, size, kOptions ? options.kept_scale : 1.f, value_sum);
}

#ifndef STRATA_TILE_EMULATION
// The bits of a mask and of dropout, in rows of queries and in rows of keys.
struct BothOptions {
  Tensor space[2], kept;
  Options of_queries, of_keys;
};

template <class M, int D, Of kOf>
void queue(const AttentionCall& c, RowTerms<float> terms, const Sequences& sequences, const BothOptions& options) {
  using Shape = BackwardShape<M, D, kOf>;
  const auto with = [&](auto kernel) {
    cuda::check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Shape::kSharedBytes),
                     "scaled_dot_product_attention_backward", "cudaFuncSetAttribute");
    const int64_t time = kOf == Of::query ? c.tq : c.tk, heads = kOf == Of::query ? c.heads : c.kv_heads;
    int64_t tiles = (time + Shape::kRows - 1) / Shape::kRows;
    if (c.sequences > 0) tiles = kOf == Of::query ? sequences.q_tiles : sequences.k_tiles;
    kernel<<<cuda::blocks_for(c.batch * heads * tiles, 1), Shape::kThreads, Shape::kSharedBytes, cuda::stream()>>>(
        c, terms, sequences, kOf == Of::query ? options.of_queries : options.of_keys);
  };
  has_options(c) ? with(backward_mma_kernel<M, D, kOf, true>) : with(backward_mma_kernel<M, D, kOf, false>);
}

/// For calls that fit, with the kernels of the next head size.
template <class M>
void backward_of(const AttentionCall& c, RowTerms<float> terms, const Tensor& like_this) {
  with_mma_size<M>(c, [&]<int D>() {
    constexpr int kRows = BackwardShape<M, D, Of::query>::kRows;
    Tensor space;
    const Sequences sequences = sequences_of(c, kRows, kRows, like_this, space);
    BothOptions options;
    if (has_options(c)) {
      options.of_queries = options_of(c, kRows, 64, false, like_this, options.space[0]);
      options.of_keys = options_of(c, 64, kRows, true, like_this, options.space[1]);
      if (c.kept != nullptr) {
        draw_kept(options.of_queries, c, kRows, 64, false, like_this, options.kept);
        draw_kept(options.of_keys, c, 64, kRows, true, like_this, options.kept);
      }
    }
    if constexpr (D <= 128) {
      queue<M, D, Of::key_and_value>(c, terms, sequences, options);
    } else {  // two sums of 256 columns do not fit a warp's registers
      queue<M, D, Of::key>(c, terms, sequences, options);
      queue<M, D, Of::value>(c, terms, sequences, options);
    }
    queue<M, D, Of::query>(c, terms, sequences, options);
  });
}
#endif

}  // namespace mma_backward
}  // namespace strata::attention_cuda
