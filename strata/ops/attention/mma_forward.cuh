#pragma once
// Attention on tensor cores (Dao, FlashAttention-2, arXiv:2307.08691): a block has 128 or 64 queries, a warp 16 of
// them, and passes over tiles of keys, the next of which is copied while one is worked on.

#include <cfloat>

#include "strata/ops/attention/attention.cuh"
#include "strata/ops/attention/mma.cuh"
#include "strata/ops/attention/options.cuh"

namespace strata::attention_cuda {
namespace mma_forward {

// What a kernel for heads of D is made of, with operands of M.
template <class M, int D>
struct ForwardShape {
  static constexpr bool kSingles = M::kPiece == 4;
  static constexpr int kPitch = M::template Shape<D>::kPitch;
  // Of f32 two blocks share a multiprocessor where they fit: one's softmax runs under the other's products.
  static constexpr int kBlocks = kSingles && D <= 128 ? 2 : 1;
  static constexpr int kWarps = 8 / kBlocks, kThreads = 32 * kWarps, kQueries = 16 * kWarps;
  static constexpr int kKeys = D <= (kSingles ? 64 : 128) ? 64 : kSingles && D > 128 ? 16 : 32;
  static constexpr bool kKeepQ = !kSingles && D <= 128;  // queries in registers
  static constexpr int kSharedBytes = (kQueries + 4 * kKeys) * kPitch * static_cast<int>(sizeof(typename M::Stored));
};

template <class M, int D, bool kOptions>
__global__ void __launch_bounds__(ForwardShape<M, D>::kThreads, ForwardShape<M, D>::kBlocks)
    forward_mma_kernel(const __grid_constant__ AttentionCall given, const Sequences sequences,
                       const __grid_constant__ Options options) {
  using T = typename M::T;
  using Stored = typename M::Stored;
  using Shape = ForwardShape<M, D>;
  constexpr int BK = Shape::kKeys, kTile = BK * Shape::kPitch, kSteps = D / M::kDepth;
  constexpr int kQueries = Shape::kQueries, kThreads = Shape::kThreads;
  constexpr bool kKeepQ = Shape::kKeepQ;
#ifdef STRATA_TILE_EMULATION
  uint8_t* const memory = shared_memory();
#else
  extern __shared__ __align__(128) uint8_t memory[];
#endif
  Stored* const qs = reinterpret_cast<Stored*>(memory);
  Stored* const ks = qs + kQueries * Shape::kPitch;  // two tiles
  Stored* const vs = ks + 2 * kTile;                 // two tiles
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

  AttentionCall c = given;
  const int64_t all = c.batch * c.heads, b = blockIdx.x % all / c.heads, h = blockIdx.x % all % c.heads;
  int64_t at = blockIdx.x / all;
  if (sequences.all != nullptr && !take_sequence<T, true>(c, sequences, at)) return;
  if constexpr (kOptions) take_length(c, b);
  // The last queries see the most keys: first.
  const int64_t tile = (c.tq + kQueries - 1) / kQueries - 1 - at;
  const int64_t hk = h / (c.heads / c.kv_heads), q0 = tile * kQueries;
  const T* const q = head_of<const T>(c.q, b, h);
  const T* const k = head_of<const T>(c.k, b, hk);
  const T* const v = head_of<const T>(c.v, b, hk);

  const int size = static_cast<int>(c.d);
  int64_t begin, end;
  visible_keys(c, q0, min(q0 + kQueries, c.tq), begin, end);
  const int64_t n = end > begin ? (end - begin + BK - 1) / BK : 0;
  copy_tile<M, kQueries, D, kThreads>(qs, q, c.q.time, q0, c.tq, size);
  if (n > 0) {
    copy_tile<M, BK, D, kThreads>(ks, k, c.k.time, begin, c.tk, size);
    copy_tile<M, BK, D, kThreads>(vs, v, c.v.time, begin, c.tk, size);
  }
  commit_copies();

  const int64_t row = q0 + 16 * warp + lane / 4;  // and row + 8
  const Seen seen[2] = {seen_keys(c, row), seen_keys(c, row + 8)};
  // What every row of the warp sees: tiles within need no masking.
  const int all_first = seen_keys(c, q0 + 16 * warp + 15).first, all_last = seen_keys(c, q0 + 16 * warp).last;
  const float factor = kOptions ? options.factor : static_cast<float>(c.scale * kLog2e);
  constexpr float kLowest = kOptions ? -FLT_MAX : -1e30f;  // a mask may add the lowest number
  float m[2] = {kLowest, kLowest}, l[2] = {0, 0}, o[D / 8][4] = {};
  if constexpr (kOptions) options.begin_with_sink(h, m, l);
  typename M::A qa[kKeepQ ? kSteps : 1];
  const RngKey key = kOptions ? resolved(c.key) : RngKey{};
  const int mask_row[2] = {static_cast<int>(min(row, c.tq - 1)), static_cast<int>(min(row + 8, c.tq - 1))};

  for (int64_t it = 0; it < n; ++it) {
    wait_copies<0>();
    __syncthreads();
    const int64_t k0 = begin + it * BK;
    const Stored* const kt = ks + (it & 1) * kTile;
    const Stored* const vt = vs + (it & 1) * kTile;
    if (it + 1 < n) {
      copy_tile<M, BK, D, kThreads>(ks + (~it & 1) * kTile, k, c.k.time, k0 + BK, c.tk, size);
      copy_tile<M, BK, D, kThreads>(vs + (~it & 1) * kTile, v, c.v.time, k0 + BK, c.tk, size);
      commit_copies();
    }
    if (q0 + 16 * warp >= c.tq) continue;  // a warp without queries
    if constexpr (kKeepQ) {
      if (it == 0)
#pragma unroll
        for (int d = 0; d < kSteps; ++d) M::template load_a<D>(qa[d], qs, 16 * warp, d);
    }

    float s[BK / 8][4] = {};
    if constexpr (M::kExact) {
      add_exact_scores<M, D, BK>(s, qs, 16 * warp, kt);
    } else {
#pragma unroll
      for (int d = 0; d < kSteps; ++d) {
        if constexpr (!kKeepQ) M::template load_a<D>(qa[0], qs, 16 * warp, d);
#pragma unroll
        for (int j = 0; j < BK; j += 16) {
          typename M::B bk;
          M::template load_b_rows<D>(bk, kt, j, d);
          M::multiply(s[j / 8], s[j / 8 + 1], qa[kKeepQ ? d : 0], bk);
        }
      }
    }

    float(&flat)[BK / 2] = reinterpret_cast<float(&)[BK / 2]>(s);
    KeptBits<BK / 8> kept;
    if constexpr (kOptions) {
      if (options.cap_in != 0) soft_cap<M::kExact>(flat, options.cap_in);
      mask_scores<BK / 8>(flat, c, options, b, h, false, mask_row, static_cast<int>(k0),
                          row + c.offset - k0 - 2 * (lane % 4));
      if (options.drop_below != 0) {
        if (options.kept != nullptr) {
          kept.load(options, static_cast<int64_t>(b) * c.heads + h, mask_row, static_cast<int>(k0));
        } else {
          const uint64_t number[2] = {c.numbers.of(b, h, mask_row[0], k0), c.numbers.of(b, h, mask_row[1], k0)};
          kept.draw(options, key, number, options.fours && k0 % 4 == 0);
        }
      }
    }
    if (k0 < all_first || k0 + BK - 1 > all_last) {
#pragma unroll
      for (int j = 0; j < BK / 8; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int key = static_cast<int>(k0) + 8 * j + 2 * (lane % 4) + e % 2;
          if (key < seen[e / 2].first || key > seen[e / 2].last) s[j][e] = -INFINITY;
        }
    }
    float shift[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float top = m[r];
#pragma unroll
      for (int j = 0; j < BK / 8; ++j) top = fmaxf(top, fmaxf(s[j][2 * r], s[j][2 * r + 1]));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
      top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
      const float alpha = fast_exp2((m[r] - top) * factor);
      m[r] = top;
      shift[r] = top * factor;
      l[r] *= alpha;
#pragma unroll
      for (int d = 0; d < D / 8; ++d) o[d][2 * r] *= alpha, o[d][2 * r + 1] *= alpha;
    }
#pragma unroll
    for (int j = 0; j < BK / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        s[j][e] = fast_exp2(kOptions ? (s[j][e] - m[e / 2]) * factor : fmaf(s[j][e], factor, -shift[e / 2]));
        l[e / 2] += s[j][e];
        if constexpr (kOptions) {
          if (options.drop_below != 0 && !kept[4 * j + e]) s[j][e] = 0;
        }
      }

    add_products<M, D, BK, D / 8 % 8 == 0 ? 8 : 4>(o, s, vt);
  }
  wait_copies<0>();

  T* const out = head_of<T>(c.out, b, h);
  float* const lse = static_cast<float*>(c.lse) + (b * c.heads + h) * c.lse_head;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    l[r] += __shfl_xor_sync(0xffffffffu, l[r], 1);
    l[r] += __shfl_xor_sync(0xffffffffu, l[r], 2);
    const int64_t i = row + 8 * r;
    if (i >= c.tq) continue;
    const float inverse = l[r] == 0 ? 0.f : (kOptions ? options.kept_scale : 1.f) / l[r];
#pragma unroll
    for (int d = 0; d < D / 8; ++d)
      if (8 * d < size)
        M::put(out + i * c.out.time + 8 * d + 2 * (lane % 4), o[d][2 * r] * inverse, o[d][2 * r + 1] * inverse);
    if (lane % 4 == 0)
      lse[i] = l[r] == 0  ? -INFINITY
               : kOptions ? fmaf(m[r], options.lse_factor, log2f(l[r]) * static_cast<float>(kLn2))
                          : (m[r] * factor + log2f(l[r])) * static_cast<float>(kLn2);
  }
}

#ifndef STRATA_TILE_EMULATION
template <class M, int D>
void queue(const AttentionCall& c, const Tensor& like_this) {
  using Shape = ForwardShape<M, D>;
  Tensor space, bits;
  const Sequences sequences = sequences_of(c, Shape::kQueries, Shape::kQueries, like_this, space);
  const int64_t tiles = c.sequences > 0 ? sequences.q_tiles : (c.tq + Shape::kQueries - 1) / Shape::kQueries;
  Options options = has_options(c) ? options_of(c, Shape::kQueries, 64, false, like_this, bits) : Options{};
  // These kernels draw on their own where the call has no bits.
  if (c.kept != nullptr) draw_kept(options, c, Shape::kQueries, 64, false, like_this, bits);
  const auto with = [&](auto kernel) {
    cuda::check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, Shape::kSharedBytes),
                     "scaled_dot_product_attention", "cudaFuncSetAttribute");
    const int64_t blocks = c.batch * c.heads * tiles;
    kernel<<<cuda::blocks_for(blocks, 1), Shape::kThreads, Shape::kSharedBytes, cuda::stream()>>>(c, sequences,
                                                                                                  options);
  };
  has_options(c) ? with(forward_mma_kernel<M, D, true>) : with(forward_mma_kernel<M, D, false>);
}

/// For calls that fit, with the kernel of the next head size.
template <class M>
void forward_of(const AttentionCall& c, const Tensor& like_this) {
  with_mma_size<M>(c, [&]<int D>() { queue<M, D>(c, like_this); });
}
#endif

}  // namespace mma_forward
}  // namespace strata::attention_cuda
