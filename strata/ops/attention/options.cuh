#pragma once
// Masks, dropout and what else a call may ask for in the tensor-core kernels. All of them hold a tile of scores alike:
// a thread has two rows, 8 apart, and of each 8 columns two neighbours, s[4 j + 2 r + e] being row r's column 8 j + 2
// (lane % 4) + e. Rows are queries and columns keys, or, where scores are transposed, the other way round.
//
// A mask is first turned into bits, one for each query and key, in rows of the kernel's orientation; what no query of a
// tile sees is known from them before the tile is copied. Additive masks are read where they lie.

#include "strata/ops/attention/attention.cuh"
#include "strata/ops/attention/score_options.cuh"

namespace strata::attention_cuda {

/// What a call's options are to a kernel. Scores are products of queries and keys; under a soft cap they become
/// hyperbolic tangents, with an additive mask what the definition calls them.
struct Options {
  /// A bit for each query and key, in rows of the kernel's orientation: seen, or given more than -inf. Null: no mask.
  const uint32_t* seen = nullptr;
  int64_t seen_batch = 0, seen_head = 0,
          seen_row = 0;  ///< words from one to the next; 0 where the mask has one for all
  int seen_word = 1;     ///< likewise along a row
  /// For each tile of queries a bit for each tile of keys: something of it is seen.
  const uint32_t* tiles = nullptr;
  int64_t tiles_batch = 0, tiles_head = 0;
  int tiles_row = 0;
  bool additive = false;    ///< the mask is added to scores, which are scaled first
  bool copied = false;      ///< and its tiles come by the copy engine (mask_tile.cuh)
  bool one_query = false;   ///< such a mask has one row for all queries
  float cap_in = 0;         ///< scores times this are what the soft cap's tangent is taken of; 0: none
  float scale = 1;          ///< of scores before an additive mask
  float factor = 1;         ///< weights are 2 to the power of this times a score, once it is complete
  float lse_factor = 1;     ///< what a score counts in lse, a natural logarithm
  float per_lse = 1;        ///< 1 / lse_factor: what slopes and sinks are multiplied by
  uint32_t drop_below = 0;  ///< a weight whose random number is below is dropped; 0: no dropout
  float kept_scale = 1;     ///< what the others are multiplied by
  bool fours = false;       ///< keys come in whole groups of four random numbers
  /// A bit for each weight, drawn before the kernel, in rows of its orientation: kept. Null: the kernel draws.
  const uint32_t* kept = nullptr;
  int64_t kept_head = 0;  ///< words from one head of all batches to the next
  int kept_row = 0;
  /// For each head how far a score falls with distance, and one more score; null: none. As the call has them.
  const float *slopes = nullptr, *sinks = nullptr;
  int slopes_batch = 0;

  __device__ __forceinline__ const uint32_t* seen_of(int64_t b, int64_t h) const {
    return seen + b * seen_batch + h * seen_head;
  }
  __device__ __forceinline__ float slope_of(int64_t b, int64_t h) const {
    return slopes == nullptr ? 0.f : slopes[b * slopes_batch + h] * per_lse;
  }
  /// A row's maximum and sum to begin with, where there are sinks; a lane of four has the sum.
  __device__ __forceinline__ void begin_with_sink(int64_t h, float (&m)[2], float (&l)[2]) const {
    if (sinks == nullptr) return;
    const float sink = sinks[h];
    if (sink == -INFINITY) return;
    m[0] = m[1] = sink * per_lse;
    l[0] = l[1] = threadIdx.x % 4 == 0 ? 1.f : 0.f;
  }
  /// The bits of tiles of keys for tile `i` of queries.
  __device__ __forceinline__ const uint32_t* tiles_of(int64_t b, int64_t h, int64_t i) const {
    return tiles + b * tiles_batch + h * tiles_head + i * tiles_row;
  }
};

/// What a kernel is compiled for: exactly these, or whatever a call may ask for.
enum OptionSet : int {
  kNoOptions = 0,
  kSeenKeys = 1,   ///< a boolean mask
  kAddedMask = 2,  ///< an additive one, whose tiles are copied
  kDropped = 4,    ///< dropout, whose bits are drawn beforehand
  kEveryOption = 255,
};
/// What kernels for the set `kSet` ask at run time, which is a constant where the set says it.
template <int kSet>
struct OptionsIn {
  static constexpr bool kAny = kSet != kNoOptions, kEvery = kSet == kEveryOption;
  static constexpr bool kMasks = (kSet & (kSeenKeys | kAddedMask)) != 0, kDrops = (kSet & kDropped) != 0;
  /// Scores are products of queries and keys, of which nothing is so low that a multiple of it is no number.
  static constexpr bool kPlainScores = (kSet & kAddedMask) == 0;

  static __device__ __forceinline__ bool seen(const Options& o) {
    return kEvery ? !o.additive && o.seen != nullptr : (kSet & kSeenKeys) != 0;
  }
  static __device__ __forceinline__ bool copied(const Options& o) {
    return kEvery ? o.copied : (kSet & kAddedMask) != 0;
  }
  static __device__ __forceinline__ bool drops(const Options& o) { return kEvery ? o.drop_below != 0 : kDrops; }
  static __device__ __forceinline__ bool drawn(const Options& o) { return kEvery ? o.kept != nullptr : kDrops; }
  static __device__ __forceinline__ bool flags(const Options& o) { return kEvery ? o.tiles != nullptr : kMasks; }
};

/// Makes them for kernels whose flags are of `query_tile` by `key_tile`, and whose scores are transposed or not;
/// `space` keeps their memory. One small kernel on the stream where there is a mask.
Options options_of(const AttentionCall& c, int query_tile, int key_tile, bool transposed, const Tensor& like_this,
                   Tensor& space);
/// Points to the call's bits of dropout, or turns them for rows of keys; where it has none, draws them for such kernels
/// beforehand if they take at most the memory of the operands and the result. `space` keeps what is made. A kernel of nothing else draws faster than one that has registers for few warps.
void draw_kept(Options& o, const AttentionCall& c, int query_tile, int key_tile, bool transposed,
               const Tensor& like_this, Tensor& space);
/// Whether a call has any.
inline bool has_options(const AttentionCall& c) {
  return c.mask != nullptr || c.dropout > 0 || c.alibi_slopes != nullptr || c.soft_cap > 0 || c.sinks != nullptr ||
         c.key_lengths != nullptr;
}
/// The smallest of the sets that kernels are compiled for which has all that a call asks for.
inline OptionSet set_of(const AttentionCall& c, const Options& o) {
  if (c.alibi_slopes != nullptr || c.soft_cap > 0 || c.sinks != nullptr || c.key_lengths != nullptr)
    return kEveryOption;
  const int mask = c.mask == nullptr ? 0 : o.additive ? kAddedMask : kSeenKeys, drops = c.dropout > 0 ? kDropped : 0;
  if ((o.additive && (!o.copied || drops != 0)) || (drops != 0 && o.kept == nullptr)) return kEveryOption;
  return static_cast<OptionSet>(mask | drops);
}
/// Calls f with the set of a call's kernel. Where not kSets, there is one kernel for every option.
template <bool kSets, class F>
void with_set(const AttentionCall& c, const Options& o, F&& f) {
  if constexpr (kSets) {
    switch (static_cast<int>(set_of(c, o))) {
      case kSeenKeys:
        return f.template operator()<kSeenKeys>();
      case kAddedMask:
        return f.template operator()<kAddedMask>();
      case kDropped:
        return f.template operator()<kDropped>();
      case kSeenKeys | kDropped:
        return f.template operator()<(kSeenKeys | kDropped)>();
      default:
        break;
    }
  }
  f.template operator()<kEveryOption>();
}
/// What a complete score of these kernels counts in lse.
inline double score_unit(const AttentionCall& c) {
  return c.mask != nullptr && c.mask_dtype != DType::boolean ? 1 : c.soft_cap > 0 ? c.soft_cap : c.scale;
}

/// Bits [begin, end) of `words` that are set.
__device__ __forceinline__ int count_bits(const uint32_t* words, int begin, int end) {
  int n = 0;
  for (int i = begin / 32; 32 * i < end; ++i) {
    uint32_t w = words[i];
    if (32 * i < begin) w &= ~0u << (begin - 32 * i);
    if (end - 32 * i < 32) w &= ~0u >> (32 - (end - 32 * i));
    n += __popc(w);
  }
  return n;
}

/// Bits of a thread's part of a tile. Bit 8 j + e of word c of row r is its column 32 c + 8 j + e.
template <int kBlocks>
struct TileBits {
  static constexpr int kWords = (kBlocks + 3) / 4;
  uint32_t words[kWords][2];

  /// Of a thread's two rows and the columns from `column` on; rows of bits are `row_step` words apart.
  __device__ __forceinline__ void load(const uint32_t* bits, int64_t row_step, int word_step, const int (&row)[2],
                                       int column) {
    const int shift = column % 32;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const uint32_t* const p = bits + row[r] * row_step + column / 32 * word_step;
#pragma unroll
      for (int c = 0; c < kWords; ++c) {
        const uint32_t low = p[c * word_step], high = shift == 0 ? 0 : p[(c + 1) * word_step];
        words[c][r] = __funnelshift_r(low, high, shift) >> (2 * (threadIdx.x % 4));
      }
    }
  }
  /// Of score i.
  __device__ __forceinline__ bool operator[](int i) const {
    return (words[i / 16][i / 2 % 2] >> (8 * (i / 4 % 4) + i % 2) & 1) != 0;
  }
  /// Whether all of the warp's are set.
  __device__ __forceinline__ bool whole() const {
    uint32_t all = ~0u;
#pragma unroll
    for (int c = 0; c < kWords; ++c) {
      constexpr uint32_t kPairs = 0x03030303u;
      const uint32_t mine = kBlocks - 4 * c >= 4 ? kPairs : kPairs >> 8 * (4 - (kBlocks - 4 * c));
      all &= (words[c][0] & words[c][1]) | ~mine;
    }
    return __all_sync(0xffffffffu, all == ~0u) != 0;
  }
};

/// Such bits as masks of what they stand for: the last bit of a byte, repeated.
template <int kBlocks>
struct TileMasks {
  static constexpr int kWords = TileBits<kBlocks>::kWords;
  uint32_t first[kWords][2], second[kWords][2];  // the last bits of bytes are those of columns 8 j, and 8 j + 1

  __device__ __forceinline__ explicit TileMasks(const TileBits<kBlocks>& bits) {
#pragma unroll
    for (int c = 0; c < kWords; ++c)
#pragma unroll
      for (int r = 0; r < 2; ++r) first[c][r] = bits.words[c][r] << 7, second[c][r] = bits.words[c][r] << 6;
  }
  /// Of scores 4 j + 2 r and the next, packed to 16 bits each.
  __device__ __forceinline__ uint32_t pair(int j, int r) const {
    return cuda::tile::permute_bytes(first[j / 4][r], second[j / 4][r], 0xcc88u + 0x1111u * (j % 4));
  }
  /// Of score i in 32 bits.
  __device__ __forceinline__ uint32_t one(int i) const {
    const uint32_t w = i % 2 == 0 ? first[i / 16][i / 2 % 2] : second[i / 16][i / 2 % 2];
    return cuda::tile::permute_bytes(w, w, 0x8888u + 0x1111u * (i / 4 % 4));
  }
};

/// What the mask lets a thread's part of a tile see.
template <int kBlocks>
struct SeenBits : TileBits<kBlocks> {
  /// Of rows that exist.
  __device__ __forceinline__ void load(const Options& o, const uint32_t* seen, const int (&row)[2], int column) {
    TileBits<kBlocks>::load(seen, o.seen_row, o.seen_word, row, column);
  }
  __device__ __forceinline__ void hide(float (&s)[4 * kBlocks]) const {
    if (this->whole()) return;  // as most tiles are under a mask for padding or order
#pragma unroll
    for (int i = 0; i < 4 * kBlocks; ++i)
      if (!(*this)[i]) s[i] = -INFINITY;
  }
};

/// An additive mask's part of a tile, added to the scores, which are scaled first.
template <int kBlocks>
struct Bias {
  // Where the mask lies. Columns from `end` on are given the last one's.
  template <class M>
  static __device__ __forceinline__ void add_read(float (&s)[4 * kBlocks], float scale, const M* mask, int64_t row_step,
                                                  int64_t column_step, const int (&row)[2], int column, int end) {
    const int first = column + 2 * (threadIdx.x % 4);
    const bool whole = column + 8 * kBlocks <= end;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const M* p = mask + row[r] * row_step + first * column_step;
      if (whole) {
#pragma unroll
        for (int j = 0; j < kBlocks; ++j) {
          float& x = s[4 * j + 2 * r];
          float& y = s[4 * j + 2 * r + 1];
          x = fmaf(x, scale, cuda::widen(p[0])), y = fmaf(y, scale, cuda::widen(p[column_step]));
          p += 8 * column_step;
        }
      } else {
#pragma unroll
        for (int j = 0; j < kBlocks; ++j)
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            const int64_t at = min(first + 8 * j + e, end - 1);
            s[4 * j + 2 * r + e] =
                fmaf(s[4 * j + 2 * r + e], scale, cuda::widen(mask[row[r] * row_step + at * column_step]));
          }
      }
    }
  }
  static __device__ __forceinline__ void add(float (&s)[4 * kBlocks], const AttentionCall& c, const Options& o,
                                             const void* mask, bool transposed, const int (&row)[2], int column) {
    const int64_t row_step = c.mask_stride[transposed ? 3 : 2], column_step = c.mask_stride[transposed ? 2 : 3];
    const int end = static_cast<int>(transposed ? c.tq : c.tk);
    const auto with = [&]<class M>(const M* of) { add_read(s, o.scale, of, row_step, column_step, row, column, end); };
    if (c.mask_dtype == DType::f32) {
      with(static_cast<const float*>(mask));
    } else if (c.mask_dtype == DType::bf16) {
      with(static_cast<const BFloat16*>(mask));
    } else {
      with(static_cast<const Half*>(mask));
    }
  }
};

/// Row 0, column 0 of a head's mask.
__device__ __forceinline__ const void* mask_of(const AttentionCall& c, int64_t b, int64_t h) {
  const int64_t at = b * c.mask_stride[0] + h * c.mask_stride[1];
  return static_cast<const char*>(c.mask) + at * (c.mask_dtype == DType::f32 ? 4 : 2);
}

/// The mask and distances of a tile's scores, of a thread's rows `row` (which exist) and the columns from `column` on;
/// `from` is row 0's position less that of its first column.
template <int kBlocks>
__device__ __forceinline__ void mask_scores(float (&s)[4 * kBlocks], const AttentionCall& c, const Options& o,
                                            int64_t b, int64_t h, bool transposed, const int (&row)[2], int column,
                                            int64_t from) {
  if (o.additive) {
    Bias<kBlocks>::add(s, c, o, mask_of(c, b, h), transposed, row, column);
  } else if (o.seen != nullptr) {
    SeenBits<kBlocks> visible;
    visible.load(o, o.seen_of(b, h), row, column);
    visible.hide(s);
  }
  if (o.slopes != nullptr) Distances(o.slope_of(b, h), from).take(s);
}

/// philox() in fewer instructions.
__device__ __forceinline__ void draw_four(uint32_t (&c)[4], RngKey key, uint64_t block) {
  const uint64_t counter = key.offset + block;
  c[0] = static_cast<uint32_t>(counter), c[1] = static_cast<uint32_t>(counter >> 32), c[2] = c[3] = 0;
  uint32_t k0 = static_cast<uint32_t>(key.seed), k1 = static_cast<uint32_t>(key.seed >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    uint32_t low0, high0, low1, high1;
    cuda::tile::multiply_wide<0xD2511F53>(c[0], low0, high0);
    cuda::tile::multiply_wide<0xCD9E8D57>(c[2], low1, high1);
    c[0] = high1 ^ c[1] ^ k0, c[2] = high0 ^ c[3] ^ k1;
    c[1] = low1, c[3] = low0;
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
}
/// Which weights of a thread's part of a tile dropout keeps: read where they were drawn before the kernel, or drawn.
template <int kBlocks>
struct KeptBits : TileBits<kBlocks> {
  static constexpr int kDrawn = (kBlocks + 7) / 8;  // words of bits as they are drawn

  /// Of the head `number` of all.
  __device__ __forceinline__ void load(const Options& o, int64_t number, const int (&row)[2], int column) {
    TileBits<kBlocks>::load(o.kept + number * o.kept_head, o.kept_row, 1, row, column);
  }
  /// Rows are queries; number[r] is that of row r's first column.
  __device__ __forceinline__ void draw(const Options& o, RngKey key, const uint64_t (&number)[2], bool fours) {
    const int t = threadIdx.x % 4;
    if (!fours) {
      draw_each(o, key, [&](int j, int r, int e) { return number[r] + (8 * j + 2 * t + e); });
      return;
    }
    // Two lanes need the same four numbers of two rows: each draws one row's.
    const uint64_t block = (number[t % 2] + 4 * (t / 2)) / 4;
    uint32_t mine[kDrawn];
    draw_fours(o, mine, key, [&](int j) { return block + 2 * j; });
#pragma unroll
    for (int w = 0; w < kDrawn; ++w) {
      const uint32_t other = __shfl_xor_sync(0xffffffffu, mine[w], 1);
      const uint32_t first = t % 2 ? other : mine[w], second = t % 2 ? mine[w] : other;
      put(w, (first >> (2 * (t % 2)) & 0x33333333u) | (second >> (2 * (t % 2)) & 0x33333333u) << 2);
    }
  }
  /// Rows are keys; `number` is that of the first column and the row that lane 0 has, from which rows come in fours;
  /// `step` lies between queries.
  __device__ __forceinline__ void draw_transposed(const Options& o, RngKey key, uint64_t number, int64_t step,
                                                  bool fours) {
    const int lane = threadIdx.x % 32, t = lane % 4, u = lane / 4 % 4;
    if (!fours) {
      draw_each(o, key, [&](int j, int r, int e) { return number + lane / 4 + 8 * r + (8 * j + 2 * t + e) * step; });
      return;
    }
    // Four lanes need one each of the same four numbers: each draws those of one place, 2 r + e = u, for all.
    const uint64_t from = number + lane / 16 * 4 + 8 * (u / 2) + (2 * t + u % 2) * step;
    uint32_t mine[kDrawn];
    draw_fours(o, mine, key, [&](int j) { return (from + 8 * j * step) / 4; });
#pragma unroll
    for (int w = 0; w < kDrawn; ++w) {
      uint32_t all = 0;
#pragma unroll
      for (int place = 0; place < 4; ++place)
        all |= (__shfl_sync(0xffffffffu, mine[w], (lane & ~12) | place << 2) >> u & 0x11111111u) << place;
      put(w, all);
    }
  }

 private:
  // Bit 4 j + 2 r + e of `drawn` is that of score 32 w + 4 j + 2 r + e: four bits become a byte's lowest pairs.
  __device__ __forceinline__ void put(int w, uint32_t drawn) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (2 * w + half >= TileBits<kBlocks>::kWords) break;
      uint32_t x = drawn >> (16 * half) & 0xffffu;
      x = (x | x << 8) & 0x00ff00ffu;
      x = (x | x << 4) & 0x0f0f0f0fu;
      this->words[2 * w + half][0] = x, this->words[2 * w + half][1] = x >> 2;
    }
  }
  // Bit 4 j + k of `mine`: number k of block_of(j) is kept.
  template <class F>
  static __device__ __forceinline__ void draw_fours(const Options& o, uint32_t (&mine)[kDrawn], RngKey key,
                                                    const F& block_of) {
#pragma unroll
    for (int w = 0; w < kDrawn; ++w) {
      mine[w] = 0;
#pragma unroll
      for (int j = 0; j < (8 * w + 8 <= kBlocks ? 8 : kBlocks - 8 * w); ++j) {
        uint32_t four[4];
        draw_four(four, key, block_of(8 * w + j));
#pragma unroll
        for (int k = 0; k < 4; ++k) mine[w] |= four[k] >= o.drop_below ? 1u << (4 * j + k) : 0u;
      }
    }
  }
  template <class F>
  __device__ __forceinline__ void draw_each(const Options& o, RngKey key, const F& number_of) {
#pragma unroll
    for (int w = 0; w < kDrawn; ++w) {
      uint32_t drawn = 0;
#pragma unroll 1
      for (int i = 0; i < (8 * w + 8 <= kBlocks ? 32 : 4 * (kBlocks - 8 * w)); ++i) {
        const uint64_t number = number_of(8 * w + i / 4, i / 2 % 2, i % 2);
        const auto four = philox(key, number / 4);
        uint32_t bits = four[0];
#pragma unroll
        for (uint32_t k = 1; k < 4; ++k) bits = number % 4 == k ? four[k] : bits;
        drawn |= (bits >= o.drop_below ? 1u : 0u) << i;
      }
      put(w, drawn);
    }
  }
};

}  // namespace strata::attention_cuda
