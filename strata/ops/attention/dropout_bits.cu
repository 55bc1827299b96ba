// Dropout's bits, drawn before the kernels of attention that need them: the numbers of philox() for (batch, head,
// query, key), 32 keys of a query a thread. Backward turns what forward drew, where it was left to it.

#include "strata/ops/attention/options.cuh"

namespace strata {
namespace attention_cuda {
namespace {

constexpr int kThreads = 256;

struct KeptCall {
  uint32_t* words;
  int64_t head_words;  // of a head of the result
  int row_words;       // of a row of it
  int first_head, heads, query_words;
  uint32_t drop_below;
  int64_t first_row = 0;

  // Bit k: weight (query, first_key + k) of a head of all batches is kept, and what limits keys in the call lets it be
  // seen; words that nothing of is seen are not drawn.
  template <bool kFours>
  __device__ __forceinline__ uint32_t word(const AttentionCall& c, RngKey key, uint32_t head, int64_t query,
                                           int64_t first_key) const;
};

// Twice `bits`, and 1 more where the number is not below 2^32 - `complement`: a sum's carry, two instructions.
__device__ __forceinline__ void append_kept(uint32_t& bits, uint32_t number, uint32_t complement) {
  asm("{\n.reg .u32 sum;\nadd.cc.u32 sum, %1, %2;\naddc.u32 %0, %0, %0;\n}"
      : "+r"(bits)
      : "r"(number), "r"(complement));
}

// draw_four() of the counter {low, high}, of which `second` is the first product of the second round, the same for all
// counters of one high word. The first round multiplies one word, as the others are 0.
__device__ __forceinline__ void draw_four_of(uint32_t (&c)[4], uint32_t low, const uint32_t (&second)[2], uint32_t k0,
                                             uint32_t k1) {
  using cuda::tile::multiply_wide;
  uint32_t low0, high0, low1, high1;
  multiply_wide<0xD2511F53>(low, low0, high0);
  multiply_wide<0xCD9E8D57>(high0 ^ k1, low1, high1);
  k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  c[0] = high1 ^ k0, c[1] = low1, c[2] = second[1] ^ low0 ^ k1, c[3] = second[0];
#pragma unroll
  for (int round = 2; round < 10; ++round) {
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    multiply_wide<0xD2511F53>(c[0], low0, high0);
    multiply_wide<0xCD9E8D57>(c[2], low1, high1);
    c[0] = high1 ^ c[1] ^ k0, c[2] = high0 ^ c[3] ^ k1;
    c[1] = low1, c[3] = low0;
  }
}

// Bit i: number `first` + i is kept.
template <bool kFours>
__device__ __forceinline__ uint32_t kept_word(uint32_t below, RngKey key, uint64_t first) {
  constexpr int kBlocks = kFours ? 8 : 9;
  const uint64_t counter = key.offset + first / 4;
  const auto low = static_cast<uint32_t>(counter), high = static_cast<uint32_t>(counter >> 32);
  const uint32_t k0 = static_cast<uint32_t>(key.seed), k1 = static_cast<uint32_t>(key.seed >> 32);
  uint32_t bits = 0, more = 0;  // of the first eight blocks, of the last
  const auto append = [&](uint32_t(&four)[4], uint32_t& to) {
#pragma unroll
    for (int k = 3; k >= 0; --k) append_kept(to, four[k], 0 - below);
  };
  if (low <= UINT32_MAX - kBlocks) {
    uint32_t second[2];
    cuda::tile::multiply_wide<0xD2511F53>(high ^ k0, second[0], second[1]);
#pragma unroll
    for (int i = kBlocks - 1; i >= 0; --i) {
      uint32_t four[4];
      draw_four_of(four, low + i, second, k0, k1);
      append(four, i < 8 ? bits : more);
    }
  } else {
#pragma unroll 1
    for (int i = kBlocks - 1; i >= 0; --i) {
      uint32_t four[4];
      draw_four(four, key, first / 4 + i);
      append(four, i < 8 ? bits : more);
    }
  }
  return kFours ? bits : __funnelshift_r(bits, more, static_cast<uint32_t>(first % 4));
}

template <bool kFours>
__device__ __forceinline__ uint32_t KeptCall::word(const AttentionCall& c, RngKey key, uint32_t head, int64_t query,
                                                   int64_t first_key) const {
  // Where nothing limits keys, all but the last word are seen.
  const bool whole = !c.causal && c.window == 0 && first_key + 32 <= c.tk;
  const uint32_t seen = query >= c.tq ? 0 : whole ? ~0u : c.seen_word(query, first_key);
  if (seen == 0) return 0;
  return seen & kept_word<kFours>(drop_below, key, c.numbers.of(head / c.heads, head % c.heads, query, first_key));
}

// Rows of queries: a block has 8 words of 32 of them, a warp one word, so that a warp whose keys no query sees has
// nothing to draw; a row's 8 words are written together. A block's place is its number's parts: what divides it would
// be a tenth of a thread's work.
constexpr int kRows = 32, kRowWords = kThreads / kRows;
template <bool kFours>
__global__ void __launch_bounds__(kThreads)
    kept_kernel(const __grid_constant__ AttentionCall c, const __grid_constant__ KeptCall to) {
  __shared__ uint32_t tile[kRowWords][kRows + 1];
  const int first_word = static_cast<int>(blockIdx.x) * kRowWords;
  const int64_t first_row = to.first_row + static_cast<int>(blockIdx.y) * kRows;
  const int64_t head = to.first_head + static_cast<int>(blockIdx.z);
  {
    const int lane = static_cast<int>(threadIdx.x) % kRows, word = static_cast<int>(threadIdx.x) / kRows;
    tile[word][lane] =
        to.word<kFours>(c, resolved(c.key), static_cast<uint32_t>(head), first_row + lane, 32 * (first_word + word));
  }
  __syncthreads();
  const int row = static_cast<int>(threadIdx.x) / kRowWords, word = static_cast<int>(threadIdx.x) % kRowWords;
  if (first_row + row < c.tq && first_word + word < to.row_words)
    to.words[head * to.head_words + (first_row + row) * to.row_words + first_word + word] = tile[word][row];
}
// Heads from to.first_head to to.heads, as many of them and of their rows a launch as a grid has.
void queue_kept(const AttentionCall& c, const KeptCall& of, bool fours) {
  constexpr int64_t kMost = 65535;
  const auto kernel = fours ? kept_kernel<true> : kept_kernel<false>;
  for (KeptCall to = of; to.first_head < to.heads; to.first_head += static_cast<int>(kMost))
    for (to.first_row = 0; to.first_row < c.tq; to.first_row += kMost * kRows) {
      const dim3 grid(cuda::blocks_for(to.row_words, kRowWords),
                      cuda::blocks_for(std::min(c.tq - to.first_row, kMost * kRows), kRows),
                      static_cast<unsigned>(std::min<int64_t>(kMost, to.heads - to.first_head)));
      kernel<<<grid, kThreads, 0, cuda::stream()>>>(c, to);
    }
}

// The 32 by 32 bits of the warp's lanes turned round: blocks beside the diagonal change places, by halves.
__device__ __forceinline__ uint32_t turned(uint32_t x) {
  const int lane = threadIdx.x % 32;
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
  return x;
}

// Rows of keys: a warp has 32 keys by 128 queries, a lane a query at a time; then each lane has a key's 128.
template <bool kFours>
__global__ void __launch_bounds__(kThreads)
    kept_transposed_kernel(const __grid_constant__ AttentionCall c, const __grid_constant__ KeptCall to) {
  const int lane = threadIdx.x % 32, parts = to.query_words / 4, key_words = static_cast<int>((c.tk + 31) / 32);
  uint32_t i = (blockIdx.x * kThreads + threadIdx.x) / 32;
  const uint32_t part = i % parts;
  i /= parts;
  const uint32_t key_word = i % key_words, head = i / key_words;
  if (head >= to.heads) return;
  const RngKey key = resolved(c.key);
  uint32_t words[4];
#pragma unroll 1
  for (int w = 0; w < 4; ++w) {
    const int64_t query = 128 * part + 32 * w + lane;
    const uint32_t x = turned(to.word<kFours>(c, key, head, query, 32 * static_cast<int64_t>(key_word)));
#pragma unroll
    for (int at = 0; at < 4; ++at)
      if (at == w) words[at] = x;
  }
  const int64_t row = 32 * key_word + lane;
  if (row < c.tk)
    *reinterpret_cast<uint4*>(to.words + head * to.head_words + row * to.row_words + 4 * part) =
        uint4{words[0], words[1], words[2], words[3]};
}

// Rows of keys from rows of queries: a warp has 128 by 128 bits.
__global__ void __launch_bounds__(kThreads)
    turn_kernel(const __grid_constant__ AttentionCall c, const __grid_constant__ KeptCall to) {
  const int lane = threadIdx.x % 32, parts = to.query_words / 4, key_parts = static_cast<int>((c.tk + 127) / 128);
  int64_t i = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) / 32;
  const int part = static_cast<int>(i % parts), key_part = static_cast<int>(i / parts % key_parts);
  const int64_t head = i / parts / key_parts;
  if (head >= to.heads) return;
  uint4 rows[4];
#pragma unroll
  for (int w = 0; w < 4; ++w) {
    const int64_t query = 128 * part + 32 * w + lane;
    rows[w] = query < c.tq
                  ? *reinterpret_cast<const uint4*>(c.kept + (head * c.tq + query) * c.kept_words + 4 * key_part)
                  : uint4{0, 0, 0, 0};
  }
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    uint32_t words[4];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const uint4& x = rows[w];
      words[w] = turned(k == 0 ? x.x : k == 1 ? x.y : k == 2 ? x.z : x.w);
    }
    const int64_t row = 128 * key_part + 32 * k + lane;
    if (row < c.tk)
      *reinterpret_cast<uint4*>(to.words + head * to.head_words + row * to.row_words + 4 * part) =
          uint4{words[0], words[1], words[2], words[3]};
  }
}

}  // namespace

void draw_kept(Options& o, const AttentionCall& c, int query_tile, int key_tile, bool transposed,
               const Tensor& like_this, Tensor& space) {
  if (o.drop_below == 0) return;
  if (c.kept != nullptr && !transposed) {
    o.kept = c.kept, o.kept_head = c.tq * c.kept_words, o.kept_row = static_cast<int>(c.kept_words);
    return;
  }
  const int64_t heads = c.batch * c.heads, rows = transposed ? c.tk : c.tq, columns = transposed ? c.tq : c.tk;
  // Tiles may end behind the last column, and a tile's first one need not begin a word; rows begin 16 bytes apart.
  const int64_t row_words = ((columns + (transposed ? query_tile : key_tile)) / 32 + 2 + 3) / 4 * 4;
  const int64_t words = heads * rows * row_words, key_words = (c.tk + 31) / 32, query_words = (c.tq + 127) / 128 * 4;
  const int64_t operands = 2 * (c.batch * c.heads * c.tq * 2 * c.d + c.batch * c.kv_heads * c.tk * 2 * c.d);
  const int64_t threads = heads * key_words * (query_words / 4) * 32;
  // Short rows have more words of their own than bits that are wanted: up to 64 KiB do no harm either.
  if (c.kept == nullptr && (words * 4 > std::max<int64_t>(operands, 1 << 16) || (transposed && threads >= INT32_MAX)))
    return;
  space = empty({Shape{words}, DType::i32, like_this.device(), std::nullopt});
  const KeptCall to{static_cast<uint32_t*>(space.raw_data()),
                    rows * row_words,
                    static_cast<int>(row_words),
                    0,
                    static_cast<int>(heads),
                    static_cast<int>(query_words),
                    o.drop_below};
  o.kept = to.words, o.kept_head = to.head_words, o.kept_row = to.row_words;
  if (c.kept != nullptr) {
    turn_kernel<<<cuda::blocks_for(heads * (query_words / 4) * ((c.tk + 127) / 128) * 32, kThreads), kThreads, 0,
                  cuda::stream()>>>(c, to);
    return;
  }
  if (!transposed) return queue_kept(c, to, o.fours);
  const auto kernel = o.fours ? kept_transposed_kernel<true> : kept_transposed_kernel<false>;
  kernel<<<cuda::blocks_for(threads, kThreads), kThreads, 0, cuda::stream()>>>(c, to);
}

}  // namespace attention_cuda

void attention_draw_kept_cuda(const AttentionCall& c, uint32_t* to) {
  using namespace attention_cuda;
  const int64_t heads = c.batch * c.heads, head_words = c.tq * c.kept_words;
  if (heads * head_words == 0) return;
  queue_kept(c, {to, head_words, static_cast<int>(c.kept_words), 0, static_cast<int>(heads), 0, drop_below(c.dropout)},
             c.numbers.fours());
}

}  // namespace strata
