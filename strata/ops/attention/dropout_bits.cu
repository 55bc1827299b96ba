// Dropout's bits, drawn before the kernels of attention that need them: the numbers of philox() for (batch, head,
// query, key), 32 keys of a query a thread.

#include "strata/ops/attention/options.cuh"

namespace strata::attention_cuda {
namespace {

constexpr int kThreads = 256;

struct KeptCall {
  uint32_t* words;
  int64_t head_words;  // of a head of the result
  int row_words;       // of a row of it
  int batch_heads, heads, tq, tk;  // heads of a batch, and of all batches
  int key_words, query_words;
  uint32_t drop_below;
  RngKey key;
  WeightNumbers numbers;

  __device__ __forceinline__ uint64_t number(uint32_t head, int64_t query, int64_t first_key) const {
    return numbers.of(head / batch_heads, head % batch_heads, query, first_key);
  }
};

// Bit i: number `first` + i is kept.
template <bool kFours>
__device__ __forceinline__ uint32_t kept_word(uint32_t below, RngKey key, uint64_t first) {
  uint64_t bits = 0;
#pragma unroll
  for (int i = 0; i < (kFours ? 8 : 9); ++i) {
    uint32_t four[4];
    draw_four(four, key, first / 4 + i);
    uint32_t nibble = 0;
#pragma unroll
    for (int k = 0; k < 4; ++k) nibble |= four[k] >= below ? 1u << k : 0u;
    bits |= static_cast<uint64_t>(nibble) << (4 * i);
  }
  return static_cast<uint32_t>(kFours ? bits : bits >> (first % 4));
}

// Rows of queries: a thread a word.
template <bool kFours>
__global__ void __launch_bounds__(kThreads) kept_kernel(const __grid_constant__ KeptCall c) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x, row = i / c.key_words, word = i % c.key_words;
  const uint32_t head = row / c.tq, query = row % c.tq;
  if (head >= c.heads) return;
  c.words[head * c.head_words + static_cast<int64_t>(query) * c.row_words + word] =
      kept_word<kFours>(c.drop_below, resolved(c.key), c.number(head, query, 32 * word));
}

// Rows of keys: a warp has 32 keys by 128 queries, a lane a query at a time; then each lane has a key's 128.
template <bool kFours>
__global__ void __launch_bounds__(kThreads) kept_transposed_kernel(const __grid_constant__ KeptCall c) {
  const int lane = threadIdx.x % 32, parts = c.query_words / 4;
  uint32_t i = (blockIdx.x * kThreads + threadIdx.x) / 32;
  const uint32_t part = i % parts;
  i /= parts;
  const uint32_t key_word = i % c.key_words, head = i / c.key_words;
  if (head >= c.heads) return;
  const RngKey key = resolved(c.key);
  uint32_t words[4];
#pragma unroll 1
  for (int w = 0; w < 4; ++w) {
    const uint64_t query = 128 * part + 32 * w + lane;
    uint32_t x = kept_word<kFours>(c.drop_below, key, c.number(head, query, 32 * key_word));
    // The 32 by 32 bits of the lanes are turned round: blocks beside the diagonal change places, by halves.
#pragma unroll
    for (int s = 16; s > 0; s /= 2) {
      const uint32_t low = s == 16  ? 0x0000ffffu
                           : s == 8 ? 0x00ff00ffu
                           : s == 4 ? 0x0f0f0f0fu
                           : s == 2 ? 0x33333333u
                                    : 0x55555555u;
      const uint32_t y = __shfl_xor_sync(0xffffffffu, x, s);
      x = (lane & s) != 0 ? (x & ~low) | (y & ~low) >> s : (x & low) | (y & low) << s;
    }
#pragma unroll
    for (int at = 0; at < 4; ++at)
      if (at == w) words[at] = x;
  }
  const int64_t row = 32 * key_word + lane;
  if (row < c.tk)
    *reinterpret_cast<uint4*>(c.words + head * c.head_words + row * c.row_words + 4 * part) =
        uint4{words[0], words[1], words[2], words[3]};
}

}  // namespace

void draw_kept(Options& o, const AttentionCall& c, int query_tile, int key_tile, bool transposed,
               const Tensor& like_this, Tensor& space) {
  if (o.drop_below == 0) return;
  const int64_t heads = c.batch * c.heads, rows = transposed ? c.tk : c.tq, columns = transposed ? c.tq : c.tk;
  // Tiles may end behind the last column, and a tile's first one need not begin a word; rows begin 16 bytes apart.
  const int64_t row_words = ((columns + (transposed ? query_tile : key_tile)) / 32 + 2 + 3) / 4 * 4;
  const int64_t words = heads * rows * row_words, key_words = (c.tk + 31) / 32, query_words = (c.tq + 127) / 128 * 4;
  const int64_t operands = 2 * (c.batch * c.heads * c.tq * 2 * c.d + c.batch * c.kv_heads * c.tk * 2 * c.d);
  const int64_t threads = transposed ? heads * key_words * (query_words / 4) * 32 : heads * c.tq * key_words;
  // Short rows have more words of their own than bits that are wanted: up to 64 KiB do no harm either.
  if (words * 4 > std::max<int64_t>(operands, 1 << 16) || threads >= INT32_MAX) return;
  space = empty({Shape{words}, DType::i32, like_this.device(), std::nullopt});
  const KeptCall k{static_cast<uint32_t*>(space.raw_data()),
                   rows * row_words,
                   static_cast<int>(row_words),
                   static_cast<int>(c.heads),
                   static_cast<int>(heads),
                   static_cast<int>(c.tq),
                   static_cast<int>(c.tk),
                   static_cast<int>(key_words),
                   static_cast<int>(query_words),
                   o.drop_below,
                   c.key,
                   c.numbers};
  o.kept = k.words, o.kept_head = k.head_words, o.kept_row = k.row_words;
  const auto queue = [&](auto kernel) {
    kernel<<<cuda::blocks_for(threads, kThreads), kThreads, 0, cuda::stream()>>>(k);
  };
  if (transposed) {
    o.fours ? queue(kept_transposed_kernel<true>) : queue(kept_transposed_kernel<false>);
  } else {
    o.fours ? queue(kept_kernel<true>) : queue(kept_kernel<false>);
  }
}

}  // namespace strata::attention_cuda
