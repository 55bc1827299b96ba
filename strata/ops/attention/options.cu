// Bits of masks, for the tensor-core kernels.

#include "strata/ops/attention/options.cuh"

#include <cmath>

namespace strata::attention_cuda {
namespace {

// Few blocks (four have a mask of 512 x 512), so they are large, and a warp asks for all rows of a piece before it uses
// one.
constexpr int kThreads = 1024, kBlockTiles = 8;  // tiles of keys of a block: a byte of flags

struct Bits {
  uint32_t *words, *tiles;
  int64_t heads;            // of the mask
  int64_t queries, keys;    // of the mask: 1 where it has one for all
  int64_t rows, row_words;  // words of a row: as far as kernels read, or one where there is one column for all
  int64_t q_tiles, tile_words;
  int query_tile, key_tile;
  bool transposed;
};

template <class M>
__device__ __forceinline__ bool lets_see(M v) {
  if constexpr (std::is_same_v<M, bool>) {
    return v;
  } else {
    return !(cuda::widen(v) == -INFINITY);
  }
}

// A block has a tile of queries by 8 tiles of keys. A warp takes 32 queries by 32 keys at a time: a lane has the word
// of its key, by queries; ballots turn them round where words are by keys, lane i keeping that of query i.
template <class M>
__global__ void __launch_bounds__(kThreads) seen_kernel(const __grid_constant__ AttentionCall c, const Bits to) {
  __shared__ uint32_t tiles;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int64_t at = blockIdx.x;
  const int64_t flags = at % (4 * to.tile_words);  // which byte of the row's
  at /= 4 * to.tile_words;
  const int64_t q_tile = at % to.q_tiles, head = at / to.q_tiles;
  if (threadIdx.x == 0) tiles = 0;
  __syncthreads();
  const bool one_key = to.keys == 1, one_column = to.row_words == 1;
  const int64_t q_begin = q_tile * to.query_tile, k_begin = one_key ? 0 : flags * kBlockTiles * to.key_tile;
  // What lies behind the last column is cleared as well, by the block that comes last along the columns.
  const int64_t all_columns = 32 * to.row_words;
  int64_t q_end = min(q_begin + to.query_tile, to.queries);
  int64_t k_end = min(k_begin + kBlockTiles * to.key_tile, to.transposed || one_column ? to.keys : all_columns);
  if (!one_column && to.transposed && q_tile + 1 == to.q_tiles) q_end = all_columns;
  if (!one_column && !to.transposed && flags + 1 == 4 * to.tile_words) k_end = all_columns;
  const M* const from =
      static_cast<const M*>(c.mask) + head / to.heads * c.mask_stride[0] + head % to.heads * c.mask_stride[1];
  const int64_t k_blocks = (k_end - k_begin + 31) / 32, q_blocks = (q_end - q_begin + 31) / 32;
  for (int64_t i = warp; i < q_blocks * k_blocks; i += kThreads / 32) {
    const int64_t q0 = q_begin + i / k_blocks * 32, k0 = k_begin + i % k_blocks * 32, k = k0 + lane;
    uint32_t sees = 0;  // bit j: whether query q0 + j sees this lane's key
    const M* const key = from + q0 * c.mask_stride[2] + k * c.mask_stride[3];
#pragma unroll
    for (int j = 0; j < 32; ++j) {
      const bool there = q0 + j < to.queries && k < to.keys;
      sees |= static_cast<uint32_t>(there && lets_see(key[j * c.mask_stride[2]])) << j;
    }
    // The tile of keys of this lane's key.
    if (sees != 0) atomicOr(&tiles, 1u << (k - k_begin) / to.key_tile);
    uint32_t mine = sees;
    if (!to.transposed) {
#pragma unroll 8
      for (int j = 0; j < 32; ++j) {
        const uint32_t word = __ballot_sync(0xffffffffu, (sees >> j & 1) != 0);
        if (lane == j) mine = word;
      }
    }
    if (one_column) mine = 0u - (mine & 1);
    const int64_t row = (to.transposed ? k0 : q0) + lane, column = (to.transposed ? q0 : k0) / 32;
    if (row < to.rows && column < to.row_words) to.words[(head * to.rows + row) * to.row_words + column] = mine;
  }
  __syncthreads();
  // One key for all: what it shows, it shows in every tile.
  if (threadIdx.x == 0)
    reinterpret_cast<uint8_t*>(to.tiles)[(head * to.q_tiles + q_tile) * 4 * to.tile_words + flags] =
        static_cast<uint8_t>(one_key && tiles != 0 ? 0xff : tiles);
}

template <class F>
void dispatch_mask(DType t, F&& f) {
  switch (t) {
    case DType::boolean:
      return f.template operator()<bool>();
    case DType::f32:
      return f.template operator()<float>();
    case DType::bf16:
      return f.template operator()<BFloat16>();
    default:
      return f.template operator()<Half>();
  }
}

}  // namespace

Options options_of(const AttentionCall& c, int query_tile, int key_tile, bool transposed, const Tensor& like_this,
                   Tensor& space) {
  Options o;
  o.additive = c.mask != nullptr && c.mask_dtype != DType::boolean;
  o.cap_in = static_cast<float>(c.soft_cap > 0 ? c.scale / c.soft_cap : 0);
  o.scale = static_cast<float>(c.soft_cap > 0 ? c.soft_cap : c.scale);
  o.factor = static_cast<float>(score_unit(c) * kLog2e);
  o.lse_factor = static_cast<float>(score_unit(c));
  o.per_lse = static_cast<float>(1 / score_unit(c));
  o.slopes = static_cast<const float*>(c.alibi_slopes);
  o.slopes_batch = static_cast<int>(c.alibi_batch);
  o.sinks = static_cast<const float*>(c.sinks);
  o.kept_scale = static_cast<float>(1 / (1 - c.dropout));
  o.drop_below = drop_below(c.dropout);
  o.fours = c.numbers.fours();
  if (c.mask == nullptr) return o;

  const int64_t batch = c.mask_stride[0] == 0 ? 1 : c.batch, heads = c.mask_stride[1] == 0 ? 1 : c.heads;
  Bits bits{};
  bits.heads = heads;
  bits.queries = c.mask_stride[2] == 0 ? 1 : c.tq;
  bits.keys = c.mask_stride[3] == 0 ? 1 : c.tk;
  bits.rows = transposed ? bits.keys : bits.queries;
  const int64_t columns = transposed ? bits.queries : bits.keys;
  // Tiles may end behind the last column, and a tile's first one need not begin a word.
  bits.row_words = columns == 1 ? 1 : (columns + (transposed ? query_tile : key_tile)) / 32 + 2;
  bits.q_tiles = (bits.queries + query_tile - 1) / query_tile;
  bits.tile_words = ((c.tk + key_tile - 1) / key_tile + 31) / 32;
  bits.query_tile = query_tile;
  bits.key_tile = key_tile;
  bits.transposed = transposed;
  const int64_t head_words = bits.rows * bits.row_words, head_tiles = bits.q_tiles * bits.tile_words;
  space = empty({Shape{batch * heads * (head_words + head_tiles)}, DType::i32, like_this.device(), std::nullopt});
  bits.words = static_cast<uint32_t*>(space.raw_data());
  bits.tiles = bits.words + batch * heads * head_words;
  o.seen = bits.words;
  o.seen_row = bits.rows == 1 ? 0 : bits.row_words;
  o.seen_word = columns == 1 ? 0 : 1;
  o.tiles = bits.tiles;
  o.tiles_row = bits.queries == 1 ? 0 : static_cast<int>(bits.tile_words);
  if (heads > 1) o.seen_head = head_words, o.tiles_head = head_tiles;
  if (batch > 1) o.seen_batch = heads * head_words, o.tiles_batch = heads * head_tiles;
  dispatch_mask(c.mask_dtype, [&]<class M>() {
    seen_kernel<M><<<cuda::blocks_for(4 * batch * heads * head_tiles, 1), kThreads, 0, cuda::stream()>>>(c, bits);
  });
  return o;
}

}  // namespace strata::attention_cuda
