#pragma once
// A decoder's step of generation for one text, all layers in one launch. Its time is that of the weights' bytes, so
// these never stop: each warp has its own rows of every matrix and a ring in shared memory, into which the copy engine
// brings them in the order in which they will be read, through all phases and layers. The blocks, one on each
// multiprocessor, meet between phases in a counter; while they do, and while a phase's small inputs are read, the rings
// fill with what the next phases want.
//
// Phases of a layer: norm and q, k, v; rotation, the cache, attention by stretches of positions, whose sums the last
// block of a group of heads adds up; output; norm, gate and up; down. Every block makes the norms itself. Sums are in
// f32 in an order that depends on nothing but sizes.

#include "strata/ops/decoder/decoder_ring.cuh"

namespace strata::decoder {

/// A block's part of a step.
template <Numbering kKind, int kHeadSize>
struct Step : Ring<kKind, kHeadSize> {
  using Base = Ring<kKind, kHeadSize>;
  using Base::block;
  using Base::blocks;
  using Base::first_unit;
  using Base::lane;
  using Base::memory;
  using Base::product;
  using Base::room;
  using Base::shrink;
  using Base::stretch;
  using Base::thread;
  using Base::unit_step;
  using Base::units;
  using Base::w;
  using Base::warp;
  static constexpr int kLaneDims = kHeadSize / 32;

  // Query heads of a key's head come in groups, positions in stretches.
  struct Item {
    int kv, group, split, begin, end;
  };

  unsigned met = 0;  // arrivals that the next meeting is behind
  int place = 0;     // this token's
  bool runs = true;  // it is written into the cache
  int splits = 1;    // stretches of positions
  Item own;          // this block's first, where there is one

  using Base::Base;

  __device__ void begin() {
    place = static_cast<int>(*w.place);
    runs = w.running == nullptr || *w.running > 0;
    const int most = max(1, min(kMostSplits, blocks / (w.kv_heads * groups())));
    splits = min(most, (place + kSplitPlaces) / kSplitPlaces);
    own = item_of(block);
    fetch_items(w.layers[0]);
    Base::begin();
  }

  // ---- phases ----

  // All blocks are here, and see what any has written.
  __device__ void meet() {
    __syncthreads();
    if (thread == 0) {
      tile::count_arrival(w.arrivals);
      met += static_cast<unsigned>(blocks);
      tile::wait_arrivals(w.arrivals, met);
    }
    __syncthreads();
  }

  __device__ float4 stream_at(int layer, int i) const {  // four of the residual stream
    if (layer > 0) {
      const uint4 v = tile::load_written(w.stream + i);
      return {__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z), __uint_as_float(v.w)};
    }
    const auto* const p = static_cast<const uint16_t*>(w.x) + i;
    return {float_of(p[0]), float_of(p[1]), float_of(p[2]), float_of(p[3])};
  }
  // The largest of all threads'.
  __device__ float largest(float v) {
    auto* const all = reinterpret_cast<float*>(memory + room.bytes - 128);
    for (int o = 16; o > 0; o /= 2) v = fmaxf(v, __shfl_xor_sync(0xffffffffu, v, o));
    if (lane == 0) all[warp] = v;
    __syncthreads();
    v = all[0];
    for (int i = 1; i < kWarps; ++i) v = fmaxf(v, all[i]);
    return v;
  }
  // From now on x is stored times `stretch`: a power of two that makes `most` almost as large as f16's numbers are.
  __device__ void stretch_to(float most) {
    if constexpr (kHalves<kKind>) {
      const int exponent = static_cast<int>(__float_as_uint(largest(most)) >> 23) - 127;
      const int by = max(-100, min(100, 14 - exponent));
      stretch = __uint_as_float(static_cast<uint32_t>(127 + by) << 23);
      shrink = __uint_as_float(static_cast<uint32_t>(127 - by) << 23);
    }
  }
  // Four of x, rounded to bf16, from column c on; for codes of four bits in the order of numbers_of().
  __device__ void put(int c, uint32_t low, uint32_t high) {
    if constexpr (kHalves<kKind>) {
      const float2 a = tile::unpack2<BFloat16>(low), b = tile::unpack2<BFloat16>(high);
      constexpr bool kTurned = kKind == Numbering::int4;
      const float by = kTurned && c % 32 >= 16 ? stretch / 16 : stretch;  // see numbers_of()
      const float2 one{a.x * by, a.y * by}, two{b.x * by, b.y * by};
      low = tile::pack2<Half>(one.x, kTurned ? two.x : one.y);
      high = tile::pack2<Half>(kTurned ? one.y : two.x, two.y);
    }
    auto* const to = reinterpret_cast<uint32_t*>(reinterpret_cast<uint16_t*>(memory) + place_of<kKind>(c));
    to[0] = low, to[1] = high;
  }
  // Behind the meeting of a block after x's n columns have been put.
  __device__ void sum_groups(int n) {
    if constexpr (kKind == Numbering::int4) {
      const bool high = lane % 8 >= 4;
#pragma unroll 1
      for (int g = warp; g < n / 128; g += kWarps) {
        const auto* const p = reinterpret_cast<const uint32_t*>(reinterpret_cast<const uint16_t*>(memory) +
                                                                place_of<kKind>(128 * g + 4 * lane));
        const float2 one = tile::unpack2<Half>(p[0]), two = tile::unpack2<Half>(p[1]);
        const float sum = one.x + one.y + two.x + two.y;
        const float all = warp_sum(sum), x = warp_sum(high ? 16 * sum : sum);
        if (lane == 0) this->group_sums()[g] = {1024 * all, x};
      }
      __syncthreads();
    }
  }
  __device__ static float most_of(uint32_t two) {
    const float2 v = tile::unpack2<BFloat16>(two);
    return fmaxf(fabsf(v.x), fabsf(v.y));
  }

  // x = RMSNorm of the stream (arXiv:1910.07467), where `wait` after all blocks have met. `from` tells where the stream
  // is: before the first output it is x.
  __device__ void norm(const void* weight, int from, bool wait) {
    constexpr int kMost = 2;  // quads of a thread, held from before the meeting and from the sum of squares on
    auto* const sums = reinterpret_cast<float*>(memory + room.bytes - 256);
    const auto* const weights = static_cast<const uint2*>(weight);
    uint2 factors[kMost];
    float4 held[kMost];
    float sum = 0;
    const int quads = w.dim / 4;
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      const int q = i * kThreads + thread;
      factors[i] = q < quads ? weights[q] : uint2{0, 0};
    }
    if (wait) meet();
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      const int q = i * kThreads + thread;
      held[i] = q < quads ? stream_at(from, 4 * q) : float4{0, 0, 0, 0};
    }
    const auto square = [](const float4& v) { return v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w; };
#pragma unroll
    for (int i = 0; i < kMost; ++i) sum += square(held[i]);
#pragma unroll 1
    for (int q = kMost * kThreads + thread; q < quads; q += kThreads) sum += square(stream_at(from, 4 * q));
    sum = warp_sum(sum);
    if (lane == 0) sums[warp] = sum;
    __syncthreads();
    sum = 0;
    for (int i = 0; i < kWarps; ++i) sum += sums[i];
    const float scale = 1.0f / sqrtf(sum / static_cast<float>(w.dim) + w.eps);
    const auto normed = [&](const float4& v, const uint2& factor) {
      const float2 low = tile::unpack2<BFloat16>(factor.x), high = tile::unpack2<BFloat16>(factor.y);
      return uint2{tile::pack2<BFloat16>(v.x * scale * low.x, v.y * scale * low.y),
                   tile::pack2<BFloat16>(v.z * scale * high.x, v.w * scale * high.y)};
    };
    float most = 0;
#pragma unroll
    for (int i = 0; i < kMost; ++i) {
      factors[i] = normed(held[i], factors[i]);
      most = fmaxf(most, fmaxf(most_of(factors[i].x), most_of(factors[i].y)));
    }
#pragma unroll 1
    for (int q = kMost * kThreads + thread; q < quads; q += kThreads) {
      const uint2 two = normed(stream_at(from, 4 * q), weights[q]);
      most = fmaxf(most, fmaxf(most_of(two.x), most_of(two.y)));
    }
    stretch_to(most);
#pragma unroll
    for (int i = 0; i < kMost; ++i)
      if (i * kThreads + thread < quads) put(4 * (i * kThreads + thread), factors[i].x, factors[i].y);
#pragma unroll 1
    for (int q = kMost * kThreads + thread; q < quads; q += kThreads) {
      const uint2 two = normed(stream_at(from, 4 * q), weights[q]);
      put(4 * q, two.x, two.y);
    }
    __syncthreads();
    sum_groups(w.dim);
  }
  // x = what blocks have written.
  __device__ void take(const uint16_t* from, int n) {
    constexpr int kMost = 4;  // pieces of a thread, held while the largest number is looked for
    uint4 v[kMost];
    float most = 0;
    const auto read = [&](int i) {
      const int c = 8 * (i * kThreads + thread);
      return c < n ? tile::load_written(from + c) : uint4{0, 0, 0, 0};
    };
    const auto look = [&](const uint4& p) {
      most = fmaxf(fmaxf(most, fmaxf(most_of(p.x), most_of(p.y))), fmaxf(most_of(p.z), most_of(p.w)));
    };
    const auto write = [&](int i, const uint4& p) {
      const int c = 8 * (i * kThreads + thread);
      if (c < n) put(c, p.x, p.y), put(c + 4, p.z, p.w);
    };
#pragma unroll
    for (int i = 0; i < kMost; ++i) v[i] = read(i);
    if constexpr (kHalves<kKind>) {
#pragma unroll
      for (int i = 0; i < kMost; ++i) look(v[i]);
#pragma unroll 1
      for (int i = kMost; i * 8 * kThreads < n; ++i) look(read(i));
    }
    stretch_to(most);
#pragma unroll
    for (int i = 0; i < kMost; ++i) write(i, v[i]);
#pragma unroll 1
    for (int i = kMost; i * 8 * kThreads < n; ++i) write(i, read(i));
    __syncthreads();
    sum_groups(n);
  }

  // A branch's row is added to the stream.
  __device__ float add(int row, float v, int from) {
    v += from > 0 ? word_at(w.stream + row) : float_of(static_cast<const uint16_t*>(w.x)[row]);
    w.stream[row] = v;
    return v;
  }

  // One loop over the matrices, so that the products stand in the code once: code for each matrix would not stay in the
  // instruction caches from layer to layer.
  __device__ void layer(int l) {
    const Layer& p = w.layers[l];
#pragma unroll 1
    for (int m = kQkv; m <= kDown; ++m) {
      if (m == kQkv || m == kGateUp) {
        norm(m == kQkv ? p.norm1 : p.norm2, m == kQkv ? l : 1, m != kQkv || l > 0);
        if (m == kGateUp && l + 1 < w.count) fetch_items(w.layers[l + 1]);
      } else {
        Held held = {};
        if (m == kOut && block < items()) hold(p, own, own.begin + warp, held);
        meet();
        if (m == kOut) {
          attend(p, held, l);
          meet();
        }
        take(m == kOut ? w.attended : w.inner, m == kOut ? w.heads * kHeadSize : w.width);
      }
      const Rows& r = this->rows_of(l, m);
      const int row_bytes = r.row_bytes;
      const bool zeros = r.zeros != nullptr;
      for (int u = first_unit(), n = units(m); u < n; u += unit_step()) {
        const float2 v = product(row_bytes, zeros);
        if (m == kGateUp) {
          if (lane == 0) w.inner[u] = bits_of(v.x / (1.0f + tile::fast_exp2(-1.4426950408889634f * v.x)) * v.y);
        } else if (lane < 2) {
          const int row = 2 * u + lane;
          const float own_row = lane == 0 ? v.x : v.y;
          if (m == kQkv) {
            w.qkv[row] = own_row;
          } else {
            const float now = add(row, own_row, m == kOut ? l : 1);
            if (m == kDown && l + 1 == w.count) static_cast<uint16_t*>(w.y)[row] = bits_of(now);
          }
        }
      }
    }
  }

  // ---- attention ----

  __device__ int groups() const {
    return (w.heads / w.kv_heads + kSharedHeads - 1) / kSharedHeads;
  }
  __device__ int items() const {
    return w.kv_heads * groups() * splits;
  }
  __device__ Item item_of(int item) const {
    const int split = item / (w.kv_heads * groups());
    const int keys = place + 1, each = (keys + splits - 1) / splits, begin = split * each;
    return {item % w.kv_heads, item / w.kv_heads % groups(), split, begin, min(keys, begin + each)};
  }
  // Asks for the keys and values that this block will read, and for norms.
  __device__ void fetch_items(const Layer& p) const {
    if (thread == 0) fetch(p.norm1, 2 * w.dim), fetch(p.norm2, 2 * w.dim);
#pragma unroll 1
    for (int item = block + thread * blocks; item < items(); item += kThreads * blocks) {
      const Item i = item_of(item);
      const int64_t from = (i.kv * w.head_stride + static_cast<int64_t>(i.begin) * kHeadSize) * 2;
      const int64_t bytes = static_cast<int64_t>(i.end - i.begin) * kHeadSize * 2;
      fetch(static_cast<const uint8_t*>(p.k) + from, bytes);
      fetch(static_cast<const uint8_t*>(p.v) + from, bytes);
    }
  }

  // Keys and values of some positions, a lane's elements in pairs.
  static constexpr int kAtOnce = 2;
  struct Held {
    uint32_t k[kAtOnce][kLaneDims / 2], v[kAtOnce][kLaneDims / 2];
  };
  __device__ void hold(const Layer& p, const Item& item, int at, Held& held) const {
    const int64_t head = item.kv * w.head_stride + lane * kLaneDims;
#pragma unroll
    for (int t = 0; t < kAtOnce; ++t) {
      const int64_t row = head + static_cast<int64_t>(min(at + t * kWarps, item.end - 1)) * kHeadSize;
#pragma unroll
      for (int d = 0; d < kLaneDims / 2; ++d) {
        held.k[t][d] = pair_at(static_cast<const uint16_t*>(p.k) + row + 2 * d);
        held.v[t][d] = pair_at(static_cast<const uint16_t*>(p.v) + row + 2 * d);
      }
    }
  }

  __device__ float turned(const float* head, int d) const {
    constexpr int kHalf = kHeadSize / 2;
    const int pair = d % kHalf;
    const float c = w.cos[pair], s = w.sin[pair];
    const float a = word_at(head + pair), b = word_at(head + pair + kHalf);
    return d < kHalf ? a * c - b * s : b * c + a * s;
  }

  // `held`: of this block's first item, the positions that each warp begins with.
  __device__ void attend(const Layer& p, Held held, int l) {
    const int shared = w.heads / w.kv_heads;
    float* const q = reinterpret_cast<float*>(memory);  // [kSharedHeads][kHeadSize]
    float* const found = q + kSharedHeads * kHeadSize;  // [kWarps / 2][kSharedHeads][kHeadSize + 4]
    constexpr int kFound = kHeadSize + 4;
    const float scale = 1.4426950408889634f / sqrtf(static_cast<float>(kHeadSize));
    for (int item = block; item < items(); item += blocks) {
      const Item at_work = item == block ? own : item_of(item);
      const auto [kv, group, split, begin, end] = at_work;
      const int first = kv * shared + group * kSharedHeads, heads = min(kSharedHeads, shared - group * kSharedHeads);
      auto* const k = static_cast<uint16_t*>(p.k) + kv * w.head_stride;
      auto* const v = static_cast<uint16_t*>(p.v) + kv * w.head_stride;
#pragma unroll 1
      for (int i = thread; i < kSharedHeads * kHeadSize; i += kThreads)
        q[i] =
            i / kHeadSize < heads ? scale * turned(w.qkv + (first + i / kHeadSize) * kHeadSize, i % kHeadSize) : 0.0f;
      if (begin <= place && place < end && runs) {
        const float* const from = w.qkv + (w.heads + kv) * kHeadSize;
#pragma unroll 1
        for (int d = thread; d < kHeadSize; d += kThreads) {
          k[static_cast<int64_t>(place) * kHeadSize + d] = bits_of(turned(from, d));
          v[static_cast<int64_t>(place) * kHeadSize + d] = bits_of(word_at(from + w.kv_heads * kHeadSize + d));
        }
      }
      __syncthreads();
      // What was held from before may have this token's place in it, which has been written since.
      if (item != block || (begin + warp <= place && place <= begin + warp + (kAtOnce - 1) * kWarps))
        hold(p, at_work, begin + warp, held);
      float mine[kSharedHeads][kLaneDims], sums[kSharedHeads][kLaneDims] = {}, top[kSharedHeads],
                                           weight[kSharedHeads] = {};
#pragma unroll
      for (int h = 0; h < kSharedHeads; ++h) {
        top[h] = -1e30f;
#pragma unroll
        for (int d = 0; d < kLaneDims; ++d) mine[h][d] = q[h * kHeadSize + lane * kLaneDims + d];
      }
      for (int at = begin + warp; at < end; at += kAtOnce * kWarps) {
        float keys_of[kAtOnce][kLaneDims], values[kAtOnce][kLaneDims];
#pragma unroll
        for (int t = 0; t < kAtOnce; ++t) {
#pragma unroll
          for (int d = 0; d < kLaneDims; d += 2) {
            const float2 a = tile::unpack2<BFloat16>(held.k[t][d / 2]), b = tile::unpack2<BFloat16>(held.v[t][d / 2]);
            keys_of[t][d] = a.x, keys_of[t][d + 1] = a.y, values[t][d] = b.x, values[t][d + 1] = b.y;
          }
        }
        if (at + kAtOnce * kWarps < end) hold(p, at_work, at + kAtOnce * kWarps, held);
#pragma unroll
        for (int h = 0; h < kSharedHeads; ++h) {
          float score[kAtOnce], high = top[h];
#pragma unroll
          for (int t = 0; t < kAtOnce; ++t) {
            float s = 0;
#pragma unroll
            for (int d = 0; d < kLaneDims; ++d) s += mine[h][d] * keys_of[t][d];
            s = warp_sum(s);
            score[t] = at + t * kWarps < end ? s : -1e30f;
            high = fmaxf(high, score[t]);
          }
          const float shrink = tile::fast_exp2(top[h] - high);
          top[h] = high;
          weight[h] *= shrink;
#pragma unroll
          for (int d = 0; d < kLaneDims; ++d) sums[h][d] *= shrink;
#pragma unroll
          for (int t = 0; t < kAtOnce; ++t) {
            const float e = score[t] > -1e29f ? tile::fast_exp2(score[t] - high) : 0.0f;
            weight[h] += e;
#pragma unroll
            for (int d = 0; d < kLaneDims; ++d) sums[h][d] += e * values[t][d];
          }
        }
      }
      // The second half of the warps hand theirs to the first.
      constexpr int kHalf = kWarps / 2;
      const auto hand = [&](int of) {
#pragma unroll
        for (int h = 0; h < kSharedHeads; ++h) {
          float* const to = found + (of * kSharedHeads + h) * kFound;
#pragma unroll
          for (int d = 0; d < kLaneDims; ++d) to[lane * kLaneDims + d] = sums[h][d];
          if (lane == 0) to[kHeadSize] = top[h], to[kHeadSize + 1] = weight[h];
        }
      };
      if (warp >= kHalf) hand(warp - kHalf);
      __syncthreads();
      if (warp < kHalf) {
#pragma unroll
        for (int h = 0; h < kSharedHeads; ++h) {
          const float* const one = found + (warp * kSharedHeads + h) * kFound;
          const float high = fmaxf(top[h], one[kHeadSize]), mine = tile::fast_exp2(top[h] - high),
                      other = tile::fast_exp2(one[kHeadSize] - high);
          top[h] = high, weight[h] = weight[h] * mine + one[kHeadSize + 1] * other;
#pragma unroll
          for (int d = 0; d < kLaneDims; ++d) sums[h][d] = sums[h][d] * mine + one[lane * kLaneDims + d] * other;
        }
        __syncwarp();
        hand(warp);
      }
      __syncthreads();
#pragma unroll 1
      for (int i = thread; i < heads * kHeadSize; i += kThreads) {
        const int h = i / kHeadSize, d = i % kHeadSize;
        float high = -1e30f, all = 0, total = 0;
        for (int o = 0; o < kHalf; ++o) high = fmaxf(high, found[(o * kSharedHeads + h) * kFound + kHeadSize]);
        for (int o = 0; o < kHalf; ++o) {
          const float* const one = found + (o * kSharedHeads + h) * kFound;
          const float share = tile::fast_exp2(one[kHeadSize] - high);
          all += share * one[d], total += share * one[kHeadSize + 1];
        }
        if (splits == 1) {
          w.attended[(first + h) * kHeadSize + d] = bits_of(all / total);
        } else {
          float* const to = w.parts + (static_cast<int64_t>(first + h) * kMostSplits + split) * kFound;
          to[d] = all;
          if (d == 0) to[kHeadSize] = high, to[kHeadSize + 1] = total;
        }
      }
      if (splits > 1 && is_last(kv * groups() + group, l)) merge(first, heads);
      __syncthreads();
    }
  }

  // Whether this block is the last of those that have a group's stretches; it then sees what all have written.
  __device__ bool is_last(int group, int l) {
    auto* const last = reinterpret_cast<int*>(memory + room.bytes - 128);
    __syncthreads();
    if (thread == 0) *last = add_one(w.done + group) == splits * (l + 1) - 1;
    __syncthreads();
    return *last != 0;
  }
  // The stretches' sums of some heads.
  __device__ void merge(int first, int heads) {
    constexpr int kFound = kHeadSize + 4;
#pragma unroll 1
    for (int i = thread; i < heads * kHeadSize; i += kThreads) {
      const int h = first + i / kHeadSize, d = i % kHeadSize;
      const float* const parts = w.parts + static_cast<int64_t>(h) * kMostSplits * kFound;
      // All are on their way before the first is looked at.
      float own_top[kMostSplits], own_weight[kMostSplits], own_sum[kMostSplits];
#pragma unroll
      for (int s = 0; s < kMostSplits; ++s) {
        const float* const one = parts + s * kFound;
        own_top[s] = s < splits ? word_at(one + kHeadSize) : -1e30f;
        own_weight[s] = s < splits ? word_at(one + kHeadSize + 1) : 0.0f;
        own_sum[s] = s < splits ? word_at(one + d) : 0.0f;
      }
      float high = -1e30f, all = 0, total = 0;
#pragma unroll
      for (int s = 0; s < kMostSplits; ++s) high = fmaxf(high, own_top[s]);
#pragma unroll
      for (int s = 0; s < kMostSplits; ++s) {
        const float share = tile::fast_exp2(own_top[s] - high);
        all += share * own_sum[s], total += share * own_weight[s];
      }
      w.attended[h * kHeadSize + d] = bits_of(all / total);
    }
  }
};

/// What a block does.
template <Numbering kKind, int kHeadSize>
__device__ __forceinline__ void walk_block(const Walk& w, const Room& room) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  Step<kKind, kHeadSize> step(w, room, tile::shared_memory(), static_cast<int>(gridDim.x), static_cast<int>(blockIdx.x),
                              static_cast<int>(threadIdx.x));
  step.begin();
  for (int l = 0; l < w.count; ++l) step.layer(l);
#endif
}

}  // namespace strata::decoder
