#pragma once
// What the backward kernels for heads above 128 columns on Hopper are made of.

#include "strata/ops/attention/hopper_backward_parts.cuh"

namespace strata::attention_cuda::hopper {

struct WideShape {
  static constexpr int D = 256;
  /// Rows of a tile, of queries and of keys; queries of a block of the kernel for them.
  static constexpr int kTile = 64, kRows = 128;
  static constexpr int kThreads = 3 * 128;
  // Between them they have what the block starts with, 168 for each of its threads.
  static constexpr int kCopyRegisters = 24, kRegisters = 240;
  static constexpr int kTileBytes = kTile * 128 * kChunks<D>, kWeightBytes = kTile * kTile * 2;
  /// Keys, values, two tiles of queries and of gradients of the result, of weights and of terms; 12 barriers.
  static constexpr int kKeysSharedBytes = 6 * kTileBytes + 2 * kWeightBytes + 4 * kTile * 4 + 8 * 12;
  /// Two tiles of queries, of gradients of the result and of keys, one of values; 10 barriers.
  static constexpr int kQueriesSharedBytes = 7 * kTileBytes + 8 * 10;
  static_assert(kKeysSharedBytes <= 227 * 1024 && kQueriesSharedBytes <= 227 * 1024);
};

/// The order of items of work, `tiles` of each head. Heads go in sections, the first of which may have fewer, and
/// within one all heads' first tiles come first.
struct Sections {
  int tiles, heads, section;
  __device__ __forceinline__ void locate(int at, int& tile, int& head) const {
    int first = 0, count = heads % section;
    if (at >= count * tiles) {
      at -= count * tiles;
      const int before = at / (section * tiles);
      first = count + before * section, count = section, at -= before * section * tiles;
    }
    tile = at / count, head = first + at % count;
  }
};

/// Boxes of 64 rows of each.
struct WideMaps {
  CUtensorMap q, k, v, grad_out, grad_q, grad_k, grad_v;
};
/// For each head rows of `pitch` queries: lse2 and delta (BackwardSpace). Tiles of 128 queries and 64 keys, of several
/// sequences those of all.
struct WideSpace {
  const float *lse2, *delta;
  int pitch, row_tiles, key_tiles;
  int row_section, key_section;  // heads of a section (Sections), but with several sequences
};

/// The operand `bytes` further, as advanced(): addresses stay below 2^18, so that there is no carry to work out.
__device__ __forceinline__ uint64_t further(uint64_t descriptor, int bytes) {
  return (descriptor & 0xffffffff00000000u) | (static_cast<uint32_t>(descriptor) + static_cast<uint32_t>(bytes >> 4));
}
/// An address that the compiler does not know to be the same in every pass of a loop: else it keeps the descriptors of
/// all 16 products of an operand in registers, which then leave for memory.
__device__ __forceinline__ uint32_t unknown_address(const void* p) {
  uint32_t at[1] = {shared_address(p)};
  pin(at);
  return __shfl_sync(0xffffffffu, at[0], 0);
}
/// s = a b^T, started and committed: 64 rows of 256 columns each, all in shared memory.
template <class T, class S>
__device__ __forceinline__ void multiply_wide_rows(float (&s)[S::kTile / 2], const uint8_t* a, const uint8_t* b) {
  constexpr int kChunk = S::kTile * 128;
  const uint64_t from_a = descriptor_k(unknown_address(a)), from_b = descriptor_k(unknown_address(b));
  pin(s);
  fence_products();
#pragma unroll
  for (int d = 0; d < S::D / 16; ++d)
    multiply<T, false, false>(s, further(from_a, d / 4 * kChunk + d % 4 * 32),
                              further(from_b, d / 4 * kChunk + d % 4 * 32), d > 0);
  commit_products();
}
/// sum += a b, started and committed: a [64][64] in registers, b [64][256] in shared memory.
template <class T, class S>
__device__ __forceinline__ void add_wide_columns(float (&sum)[S::D / 2], uint32_t (&a)[S::kTile / 16][4],
                                                 const uint8_t* b) {
  const uint64_t from_b = descriptor_t(unknown_address(b), S::kTile * 128);
#pragma unroll
  for (int j = 0; j < S::kTile / 16; ++j) pin(a[j]);
  pin(sum);
  fence_products();
#pragma unroll
  for (int j = 0; j < S::kTile / 16; ++j) multiply<T, true>(sum, a[j], further(from_b, j * 2048), true);
  commit_products();
}

/// Hides from a thread's two rows what they do not see of the columns from `column` on.
template <int kCount>
__device__ __forceinline__ void hide_unseen(float (&s)[kCount], const Seen (&seen)[2], int column) {
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    const int from = column + 2 * (static_cast<int>(threadIdx.x) % 4);
    const int lo = seen[e].first - from, hi = seen[e].last - from;
#pragma unroll
    for (int j = 0; j < kCount / 4; ++j)
#pragma unroll
      for (int f = 0; f < 2; ++f)
        if (8 * j + f < lo || 8 * j + f > hi) s[4 * j + 2 * e + f] = -INFINITY;
  }
}
/// Scores with soft cap and mask, and with distances, which under a soft cap wide_weight() takes off.
template <int kBlocks>
__device__ __forceinline__ void wide_options(float (&s)[4 * kBlocks], const AttentionCall& c, const Options& o, int b,
                                             int h, bool transposed, const int (&row)[2], int column,
                                             const Distances& distances) {
  if (o.cap_in != 0) soft_cap(s, o.cap_in);
  if (o.additive) {
    Bias<kBlocks>::add(s, c, o, mask_of(c, b, h), transposed, row, column);
  } else if (o.seen != nullptr) {
    SeenBits<kBlocks> visible;
    visible.load(o, o.seen_of(b, h), row, column);
    visible.hide(s);
  }
  if (o.slopes != nullptr && o.cap_in == 0) distances.take(s);
}
/// The weight of a score of row r at `column` of the tile, and what the gradient of the score takes of the weight's:
/// the same, under a soft cap times its slope.
template <class In>
__device__ __forceinline__ void wide_weight(float s, float lse, float factor, bool capped, const Distances& distances,
                                            int r, int column, float& weight, float& sloped) {
  if constexpr (In::kEvery) {
    if (capped) {
      const float u = fmaxf(s, -1.f);  // hidden ones are -inf
      weight = fast_exp2((s - distances.at(r, column) - lse) * factor);
      sloped = weight * fmaf(u, -u, 1.f);
      return;
    }
  }
  weight = fast_exp2(In::kPlainScores ? fmaf(s, factor, -lse) : (s - lse) * factor);
  sloped = weight;
}
/// The gradient of weight i less delta, as dropout leaves it.
template <class In, class Kept>
__device__ __forceinline__ float wide_less(float dp, float delta, const Options& o, const Kept& kept, int i) {
  if constexpr (In::kDrops) return fmaf(In::drops(o) && !kept[i] ? 0.f : dp, o.kept_scale, -delta);
  return dp - delta;
}

/// A warpgroup's 64 rows of sums, times a scale, to `place`, a tile that it alone still uses, and from there by the
/// copy engine to rows from `row` on, if they are there.
template <class T, class S, bool kSequences>
__device__ __forceinline__ void write_wide_rows(uint8_t* place, float scale, const float (&x)[S::D / 2],
                                                const CUtensorMap& map, bool there, int row, int head, int b) {
  const int lane = threadIdx.x % 32, at = threadIdx.x % 128 / 32 * 16 + lane % 16;
  const uint32_t base = shared_address(place) + at * 128;
#pragma unroll
  for (int j = 0; j < S::D / 8; j += 2) {
    const int piece = j + lane / 16;
    store_matrices(
        base + piece / 8 * S::kTile * 128 + ((piece % 8) ^ (at % 8)) * 16,
        pack2<T>(x[4 * j] * scale, x[4 * j + 1] * scale), pack2<T>(x[4 * j + 2] * scale, x[4 * j + 3] * scale),
        pack2<T>(x[4 * j + 4] * scale, x[4 * j + 5] * scale), pack2<T>(x[4 * j + 6] * scale, x[4 * j + 7] * scale));
  }
  fence_shared();
  named_sync(1 + static_cast<int>(threadIdx.x) / 128, 128);
  if (threadIdx.x % 128 != 0) return;
  if constexpr (kSequences) acquire_map(map);
  if (there)
#pragma unroll
    for (int i = 0; i < kChunks<S::D>; ++i) copy_out(map, place + i * S::kTile * 128, 64 * i, row, head, b);
  commit_out();
  wait_out();
}

}  // namespace strata::attention_cuda::hopper
