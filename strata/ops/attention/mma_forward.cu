// Attention on tensor cores (Dao, FlashAttention-2, arXiv:2307.08691): a block has 128 queries, a warp 16 of them, and
// passes over tiles of keys, the next of which is copied while one is worked on.

#include <cfloat>

#include "strata/ops/attention/attention.cuh"
#include "strata/ops/attention/mma.cuh"
#include "strata/ops/attention/options.cuh"

namespace strata::attention_cuda {
namespace {

constexpr int kWarps = 8, kThreads = 32 * kWarps, kQueries = 16 * kWarps;

template <int D>
inline constexpr int kKeys = D <= 128 ? 64 : 32;

template <int D>
inline constexpr int kSharedBytes = (kQueries + 4 * kKeys<D>)*TileShape<D>::kPitch * 2;

template <class T, int D, bool kOptions>
__global__ void __launch_bounds__(kThreads, 1)
    forward_mma_kernel(const __grid_constant__ AttentionCall given, const Sequences sequences,
                       const __grid_constant__ Options options) {
  constexpr int BK = kKeys<D>, kTile = BK * TileShape<D>::kPitch, kSteps = D / 16;
  constexpr bool kKeepQ = D <= 128;  // in registers
  extern __shared__ __align__(128) uint16_t shared[];
  uint16_t* const qs = shared;
  uint16_t* const ks = qs + kQueries * TileShape<D>::kPitch;  // two tiles
  uint16_t* const vs = ks + 2 * kTile;                        // two tiles
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
  copy_tile<kQueries, D, kThreads>(qs, q, c.q.time, q0, c.tq, size);
  if (n > 0) {
    copy_tile<BK, D, kThreads>(ks, k, c.k.time, begin, c.tk, size);
    copy_tile<BK, D, kThreads>(vs, v, c.v.time, begin, c.tk, size);
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
  uint32_t qa[kKeepQ ? kSteps : 1][4];
  const RngKey key = kOptions ? resolved(c.key) : RngKey{};
  const int mask_row[2] = {static_cast<int>(min(row, c.tq - 1)), static_cast<int>(min(row + 8, c.tq - 1))};

  for (int64_t it = 0; it < n; ++it) {
    wait_copies<0>();
    __syncthreads();
    const int64_t k0 = begin + it * BK;
    const uint16_t* const kt = ks + (it & 1) * kTile;
    const uint16_t* const vt = vs + (it & 1) * kTile;
    if (it + 1 < n) {
      copy_tile<BK, D, kThreads>(ks + (~it & 1) * kTile, k, c.k.time, k0 + BK, c.tk, size);
      copy_tile<BK, D, kThreads>(vs + (~it & 1) * kTile, v, c.v.time, k0 + BK, c.tk, size);
      commit_copies();
    }
    if constexpr (kKeepQ) {
      if (it == 0)
#pragma unroll
        for (int d = 0; d < kSteps; ++d) load_a<D>(qa[d], qs, 16 * warp, d);
    }

    float s[BK / 8][4] = {};
#pragma unroll
    for (int d = 0; d < kSteps; ++d) {
      if constexpr (!kKeepQ) load_a<D>(qa[0], qs, 16 * warp, d);
#pragma unroll
      for (int j = 0; j < BK; j += 16) {
        uint32_t bk[4];
        load_b_rows<D>(bk, kt, j, d);
        mma<T>(s[j / 8], qa[kKeepQ ? d : 0], bk[0], bk[1]);
        mma<T>(s[j / 8 + 1], qa[kKeepQ ? d : 0], bk[2], bk[3]);
      }
    }

    float(&flat)[BK / 2] = reinterpret_cast<float(&)[BK / 2]>(s);
    KeptBits<BK / 8> kept;
    if constexpr (kOptions) {
      if (options.cap_in != 0) soft_cap(flat, options.cap_in);
      mask_scores<BK / 8>(flat, c, options, b, h, false, mask_row, static_cast<int>(k0),
                          row + c.offset - k0 - 2 * (lane % 4));
      if (options.drop_below != 0) {
        const uint64_t rows = (static_cast<uint64_t>(b) * c.heads + h) * c.tq;
        const uint64_t number[2] = {(rows + mask_row[0]) * given.tk + k0, (rows + mask_row[1]) * given.tk + k0};
        kept.draw(options, key, number, options.fours && k0 % 4 == 0);
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

#pragma unroll
    for (int j = 0; j < BK; j += 16) {
      const float(&lo)[4] = s[j / 8], (&hi)[4] = s[j / 8 + 1];
      const uint32_t pa[4] = {pack2<T>(lo[0], lo[1]), pack2<T>(lo[2], lo[3]), pack2<T>(hi[0], hi[1]),
                              pack2<T>(hi[2], hi[3])};
#pragma unroll
      for (int d = 0; d < D / 8; d += 2) {
        uint32_t bv[4];
        load_b_columns<D>(bv, vt, j, d);
        mma<T>(o[d], pa, bv[0], bv[1]);
        mma<T>(o[d + 1], pa, bv[2], bv[3]);
      }
    }
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
        *reinterpret_cast<uint32_t*>(out + i * c.out.time + 8 * d + 2 * (lane % 4)) =
            pack2<T>(o[d][2 * r] * inverse, o[d][2 * r + 1] * inverse);
    if (lane % 4 == 0)
      lse[i] = l[r] == 0  ? -INFINITY
               : kOptions ? fmaf(m[r], options.lse_factor, log2f(l[r]) * static_cast<float>(kLn2))
                          : (m[r] * factor + log2f(l[r])) * static_cast<float>(kLn2);
  }
}

}  // namespace

void forward_mma(const AttentionCall& c, const Tensor& like_this) {
  Tensor space;
  const Sequences sequences = sequences_of(c, kQueries, kQueries, like_this, space);
  const int64_t tiles = c.sequences > 0 ? sequences.q_tiles : (c.tq + kQueries - 1) / kQueries;
  Tensor bits;
  const Options options = has_options(c) ? options_of(c, kQueries, 64, false, like_this, bits) : Options{};
  dispatch_mma(c, [&]<class T, int D>() {
    const auto queue = [&](auto kernel) {
      cuda::check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes<D>),
                       "scaled_dot_product_attention", "cudaFuncSetAttribute");
      const int64_t blocks = c.batch * c.heads * tiles;
      kernel<<<cuda::blocks_for(blocks, 1), kThreads, kSharedBytes<D>, cuda::stream()>>>(c, sequences, options);
    };
    has_options(c) ? queue(forward_mma_kernel<T, D, true>) : queue(forward_mma_kernel<T, D, false>);
  });
}

}  // namespace strata::attention_cuda
