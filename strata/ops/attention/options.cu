// Bits of masks, for the tensor-core kernels.

#include "strata/ops/attention/options.cuh"

#include <cmath>

namespace strata::attention_cuda {
namespace {

constexpr int kThreads = 256;

struct Bits {
  uint32_t* words;
  int64_t heads;  // of the mask
  int64_t rows, row_words;
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

// A warp has 32 queries by 32 keys: a ballot a query makes a word, lane i keeping that of query i; ballots over the
// lanes' bits turn them round.
template <class M>
__global__ void __launch_bounds__(kThreads) seen_kernel(const __grid_constant__ AttentionCall c, const Bits to,
                                                        int64_t q_blocks, int64_t k_blocks, int64_t total) {
  const int lane = threadIdx.x % 32;
  int64_t at = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) / 32;
  if (at >= total) return;
  const int64_t k0 = at % k_blocks * 32;
  at /= k_blocks;
  const int64_t q0 = at % q_blocks * 32, head = at / q_blocks;
  const M* const from = static_cast<const M*>(c.mask) + head / to.heads * c.mask_stride[0] +
                        head % to.heads * c.mask_stride[1] + (k0 + lane) * c.mask_stride[3];
  uint32_t mine = 0;
#pragma unroll 8
  for (int i = 0; i < 32; ++i) {
    const bool there = q0 + i < c.tq && k0 + lane < c.tk;
    const uint32_t word = __ballot_sync(0xffffffffu, there && lets_see(from[(q0 + i) * c.mask_stride[2]]));
    if (lane == i) mine = word;
  }
  if (to.transposed) {
    uint32_t turned = 0;
#pragma unroll 8
    for (int i = 0; i < 32; ++i) {
      const uint32_t word = __ballot_sync(0xffffffffu, (mine >> i & 1) != 0);
      if (lane == i) turned = word;
    }
    mine = turned;
  }
  const int64_t row = (to.transposed ? k0 : q0) + lane, column = (to.transposed ? q0 : k0) / 32;
  if (row < to.rows && column < to.row_words) to.words[(head * to.rows + row) * to.row_words + column] = mine;
}

// A warp has 32 tiles of keys of a tile of queries, a lane one of them.
__global__ void __launch_bounds__(kThreads) tiles_kernel(const Bits bits, uint32_t* to, int64_t columns, int query_tile,
                                                         int key_tile, int64_t q_tiles, int64_t words, int64_t total) {
  int64_t at = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) / 32;
  if (at >= total) return;
  const int64_t result = at, word = at % words;
  at /= words;
  const int64_t q = at % q_tiles, head = at / q_tiles, k = 32 * word + threadIdx.x % 32;
  const int row_tile = bits.transposed ? key_tile : query_tile, column_tile = bits.transposed ? query_tile : key_tile;
  const int64_t row0 = (bits.transposed ? k : q) * row_tile, column0 = (bits.transposed ? q : k) * column_tile;
  const int64_t row_end = min(row0 + row_tile, bits.rows), column_end = min(column0 + column_tile, columns);
  bool any = false;
  for (int64_t row = row0; row < row_end && column0 < column_end && !any; ++row)
    any = count_bits(bits.words + (head * bits.rows + row) * bits.row_words, static_cast<int>(column0),
                     static_cast<int>(column_end)) > 0;
  const uint32_t all = __ballot_sync(0xffffffffu, any);
  if (threadIdx.x % 32 == 0) to[result] = all;
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
  o.per_scale = static_cast<float>(1 / c.scale);
  o.kept_scale = static_cast<float>(1 / (1 - c.dropout));
  // uniform_f32(bits) < p, without the conversion.
  o.drop_below = static_cast<uint32_t>(std::ceil(static_cast<double>(static_cast<float>(c.dropout)) * 0x1p24)) << 8;
  o.fours = c.tk % 4 == 0;
  if (c.mask == nullptr) return o;
  o.additive = c.mask_dtype != DType::boolean;
  const size_t pair = 2 * size_of(c.mask_dtype);
  o.pairs = c.mask_stride[3] == 1 && c.mask_stride[0] % 2 == 0 && c.mask_stride[1] % 2 == 0 &&
            c.mask_stride[2] % 2 == 0 && c.tk % 2 == 0 && reinterpret_cast<uintptr_t>(c.mask) % pair == 0;

  const int64_t batch = c.mask_stride[0] == 0 ? 1 : c.batch, heads = c.mask_stride[1] == 0 ? 1 : c.heads;
  const int64_t rows = transposed ? c.tk : c.tq, columns = transposed ? c.tq : c.tk;
  // Tiles may end behind the last column, and a tile's first one need not begin a word.
  const int64_t row_words = (columns + (transposed ? query_tile : key_tile)) / 32 + 2;
  const int64_t q_tiles = (c.tq + query_tile - 1) / query_tile, k_tiles = (c.tk + key_tile - 1) / key_tile;
  const int64_t words = batch * heads * rows * row_words, tile_words = (k_tiles + 31) / 32;
  space = empty({Shape{words + batch * heads * q_tiles * tile_words}, DType::i32, like_this.device(), std::nullopt});
  const Bits bits{static_cast<uint32_t*>(space.raw_data()), heads, rows, row_words, transposed};
  o.seen = bits.words;
  o.seen_row = row_words;
  o.seen_head = heads == 1 ? 0 : rows * row_words;
  o.seen_batch = batch == 1 ? 0 : heads * rows * row_words;
  o.tiles = bits.words + words;
  o.tiles_row = static_cast<int>(tile_words);
  o.tiles_head = heads == 1 ? 0 : q_tiles * tile_words;
  o.tiles_batch = batch == 1 ? 0 : heads * q_tiles * tile_words;

  const int64_t q_blocks = transposed ? row_words : (c.tq + 31) / 32,
                k_blocks = transposed ? (c.tk + 31) / 32 : row_words;
  const int64_t total = batch * heads * q_blocks * k_blocks;
  dispatch_mask(c.mask_dtype, [&]<class M>() {
    seen_kernel<M>
        <<<cuda::blocks_for(total, kThreads / 32), kThreads, 0, cuda::stream()>>>(c, bits, q_blocks, k_blocks, total);
  });
  const int64_t all_tiles = batch * heads * q_tiles * tile_words;
  tiles_kernel<<<cuda::blocks_for(all_tiles, kThreads / 32), kThreads, 0, cuda::stream()>>>(
      bits, bits.words + words, columns, query_tile, key_tile, q_tiles, tile_words, all_tiles);
  return o;
}

}  // namespace strata::attention_cuda
