#pragma once
// Attention with ordinary arithmetic: every dtype, head size, mask and option. Tiles of 64 rows by 64 columns, in the
// order of FlashAttention-2 (Dao, arXiv:2307.08691). A thread has 8 by 4 scores and 8 rows of 4 or 8 columns of the
// result, so that 12 numbers read from shared memory serve 32 multiply-adds and 16 serve 64; what is read across is
// stored across. Gradients have one kernel for all three: each result's rows stay with their block, which computes
// weights again for every tile that it passes; so nothing is added across blocks, and results are the same every time.

#include <limits>

#include "strata/cuda/tile/shared_tile.cuh"
#include "strata/ops/attention/options.cuh"

namespace strata::attention_cuda::plain {
namespace {  // a program of tests has these kernels for the processor and for the card

using cuda::load_vec;
using cuda::narrow;
using cuda::store_vec;
using cuda::Vec;
using cuda::widen;

constexpr int kThreads = 128, kTile = 64;
constexpr int kRows = 8, kColumns = 4;  // of a thread's scores
constexpr int kAcross = 16;             // threads that share rows
constexpr int kStep = 32;               // columns of two operands, or rows of one, that are staged at a time

/// Operands' stages, over which a part of a third's rows lies later, and a tile of weights.
template <class C>
constexpr int kSharedBytes = 2 * kTile * kTile * static_cast<int>(sizeof(C));
static_assert(2 * kStep == kTile);

template <class T>
struct Rows {
  const T* p;  // row 0 of the tile
  int64_t stride;
  int64_t n;   // rows that exist
  bool whole;  // four neighbours are read at once
};
template <class T>
__device__ __forceinline__ Rows<T> rows_of(const AttentionView& v, int64_t b, int64_t h, int64_t first, int64_t end) {
  const T* const p = head_of<const T>(v, b, h) + first * v.time;
  return {p, v.time, end - first, v.time % 4 == 0 && reinterpret_cast<uintptr_t>(p) % (4 * sizeof(T)) == 0};
}

/// Four numbers of a row; what does not exist is 0.
template <class C, class T>
__device__ __forceinline__ Vec<C, 4> load_four(const Rows<T>& x, int64_t row, int64_t d, int64_t size) {
  Vec<C, 4> v{};
  if (row >= x.n || d >= size) return v;
  const T* const p = x.p + row * x.stride + d;
  if (x.whole && d + 4 <= size) {
    const Vec<T, 4> four = load_vec<4>(p);
#pragma unroll
    for (int e = 0; e < 4; ++e) v.v[e] = widen(four.v[e]);
  } else {
#pragma unroll
    for (int e = 0; e < 4; ++e)
      if (d + e < size) v.v[e] = widen(p[e]);
  }
  return v;
}

// to[column][row] of 32 columns from d0 on. Rows are exchanged by fours, in another way for every four columns, so that
// neither those who store nor those who read four rows of a column are in each other's banks.
template <class C, class T>
__device__ __forceinline__ void stage_across(const Rows<T>& x, int64_t d0, int64_t size, C* to) {
  constexpr int kFours = kStep / 4;
#pragma unroll
  for (int u = 0; u < kTile * kFours / kThreads; ++u) {
    const int i = static_cast<int>(threadIdx.x) + u * kThreads, row = i / kFours, d = i % kFours * 4;
    const Vec<C, 4> v = load_four<C>(x, row, d0 + d, size);
#pragma unroll
    for (int e = 0; e < 4; ++e) to[(d + e) * kTile + (row ^ d)] = v.v[e];
  }
}

/// s[r][c] = A[row r] . B[row c] for this thread's rows of both.
template <class T, class C>
__device__ __forceinline__ void products(const Rows<T>& a, const Rows<T>& b, int64_t size, C* stages,
                                         C (&s)[kRows][kColumns]) {
  C *const sa = stages, *const sb = stages + kStep * kTile;
  const int row = static_cast<int>(threadIdx.x) / kAcross * kRows, column = static_cast<int>(threadIdx.x) % kAcross * 4;
#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int c = 0; c < kColumns; ++c) s[r][c] = 0;
  for (int64_t d0 = 0; d0 < size; d0 += kStep) {
    __syncthreads();
    stage_across(a, d0, size, sa);
    stage_across(b, d0, size, sb);
    __syncthreads();
    const int steps = static_cast<int>(size - d0 < kStep ? size - d0 : kStep);
    for (int d = 0; d < steps; d += 4) {  // columns behind the last are zeros
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const C *const pa = sa + (d + e) * kTile, *const pb = sb + (d + e) * kTile;
        const Vec<C, 4> x[2] = {load_vec<4>(pa + (row ^ d)), load_vec<4>(pa + ((row + 4) ^ d))};
        const Vec<C, 4> y = load_vec<4>(pb + (column ^ d));
#pragma unroll
        for (int r = 0; r < kRows; ++r)
#pragma unroll
          for (int c = 0; c < kColumns; ++c) s[r][c] += x[r / 4].v[r % 4] * y.v[c];
      }
    }
  }
}

// Where a thread's number (r, c) of a tile lies, [column][row], exchanged as above.
__device__ __forceinline__ int spot(int r, int c) {
  const int row = static_cast<int>(threadIdx.x) / kAcross * kRows, column = static_cast<int>(threadIdx.x) % kAcross * 4;
  return (column + c) * kTile + ((row + r) ^ column);
}
template <class C>
__device__ __forceinline__ void store_tile(const C (&s)[kRows][kColumns], C* to) {
#pragma unroll
  for (int c = 0; c < kColumns; ++c)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      Vec<C, 4> v;
#pragma unroll
      for (int e = 0; e < 4; ++e) v.v[e] = s[4 * half + e][c];
      store_vec(to + spot(4 * half, c), v);
    }
}
template <class C>
__device__ __forceinline__ void load_tile(const C* from, C (&s)[kRows][kColumns]) {
#pragma unroll
  for (int c = 0; c < kColumns; ++c)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const Vec<C, 4> v = load_vec<4>(from + spot(4 * half, c));
#pragma unroll
      for (int e = 0; e < 4; ++e) s[4 * half + e][c] = v.v[e];
    }
}

/// acc[r][4 n + e] += the sum over j of w[j][row r] X[j][first + 64 n + column + e], for the tile's rows j of X.
template <class T, class C, int N>
__device__ __forceinline__ void accumulate(const C* w, const Rows<T>& x, int64_t first, int64_t size, C* stages,
                                           C (&acc)[kRows][4 * N]) {
  constexpr int kWide = kTile * N, kFours = kWide / 4;
  // As many rows as lie in the stages' memory.
  constexpr int kStaged = kStep / N * 2;
  const int row = static_cast<int>(threadIdx.x) / kAcross * kRows, column = static_cast<int>(threadIdx.x) % kAcross * 4;
  for (int j0 = 0; j0 < kTile && j0 < x.n; j0 += kStaged) {
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kStaged * kFours; i += kThreads) {
      const int j = i / kFours, d = i % kFours * 4;
      store_vec(stages + j * kWide + d, load_four<C>(x, j0 + j, first + d, size));
    }
    __syncthreads();
#pragma unroll 4
    for (int j = 0; j < kStaged; ++j) {
      const C* const of_w = w + (j0 + j) * kTile;
      const int turn = (j0 + j) / 4 * 4;
      const Vec<C, 4> p[2] = {load_vec<4>(of_w + (row ^ turn)), load_vec<4>(of_w + ((row + 4) ^ turn))};
#pragma unroll
      for (int n = 0; n < N; ++n) {
        const Vec<C, 4> y = load_vec<4>(stages + j * kWide + n * kTile + column);
#pragma unroll
        for (int r = 0; r < kRows; ++r)
#pragma unroll
          for (int e = 0; e < 4; ++e) acc[r][4 * n + e] += p[r / 4].v[r % 4] * y.v[e];
      }
    }
  }
}

/// Where a block works: which tile of rows of which head, and from which column of the result on.
struct Place {
  int64_t b, h, row0, column;
};
__device__ __forceinline__ Place place_of(int64_t heads, int64_t tiles, int64_t parts, int columns) {
  int64_t i = blockIdx.x;
  const int64_t part = i % parts;
  i /= parts;
  const int64_t tile = i % tiles;
  i /= tiles;
  return {i / heads, i % heads, tile * kTile, part * columns};
}
/// The same for a call of several sequences, whose tiles have been counted through.
template <class T, bool kOfQueries>
__device__ __forceinline__ bool take_place(AttentionCall& c, const Sequences& sequences, Place& at,
                                           RowTerms<compute_t<T>>* terms = nullptr) {
  int64_t tile = at.row0 / kTile;
  const bool there = take_sequence<T, kOfQueries>(c, sequences, tile, terms);
  at.row0 = tile * kTile;
  return there;
}

/// Whether scores are products times the scale and nothing else, weights are not dropped, and all 64 queries from q0 on
/// are there and see all 64 keys from k0 on.
__device__ __forceinline__ bool is_plain(const AttentionCall& c, int64_t q0, int64_t k0) {
  const int64_t q1 = q0 + kTile - 1, k1 = k0 + kTile - 1;
  return c.mask == nullptr && c.soft_cap == 0 && c.alibi_slopes == nullptr && c.dropout == 0 && q1 < c.tq && k1 < c.tk &&
         (!c.causal || k1 <= q0 + c.offset) &&
         (c.window == 0 || (q1 + c.offset - k0 < c.window && k1 - (q0 + c.offset) < c.window));
}

template <class C, class F>
__device__ __forceinline__ C across(C v, F&& f) {
#pragma unroll
  for (int o = kAcross / 2; o > 0; o /= 2) v = f(v, __shfl_xor_sync(0xffffffffu, v, o));
  return v;
}

// Blocks that share a multiprocessor forward, which bounds registers; backward, with two tiles of scores, two do.
template <class C>
constexpr int kBlocks = sizeof(C) == 4 ? 3 : 2;

/// 64 N columns of the result are a block's. lse is written by the block of the first.
template <class T, int N>
__global__ void __launch_bounds__(kThreads, kBlocks<compute_t<T>>)
    forward_kernel(AttentionCall c, Sequences sequences, int64_t tiles, int64_t parts) {
  using C = compute_t<T>;
  C* const stages = reinterpret_cast<C*>(cuda::tile::shared_memory());
  C* const w = stages + kTile * kTile;
  const int across_at = static_cast<int>(threadIdx.x) % kAcross;
  Place at = place_of(c.heads, tiles, parts, kTile * N);
  if (sequences.all != nullptr && !take_place<T, true>(c, sequences, at)) return;
  take_length(c, at.b);
  const int64_t hk = at.h / (c.heads / c.kv_heads), q0 = at.row0;
  const int64_t row = q0 + static_cast<int>(threadIdx.x) / kAcross * kRows;
  const auto q = rows_of<T>(c.q, at.b, at.h, q0, c.tq);
  const C hidden = -std::numeric_limits<C>::infinity(), factor = static_cast<C>(c.scale * kLog2e);

  C m[kRows], l[kRows], acc[kRows][4 * N] = {};  // l: of this thread's columns
  const C sink = c.sinks ? static_cast<const C*>(c.sinks)[at.h] : hidden;
  const bool sunk = sink > hidden;
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    m[r] = sunk ? sink * C(kLog2e) : std::numeric_limits<C>::lowest(), l[r] = sunk && across_at == 0;
  int64_t begin, end;
  visible_keys(c, q0, min(q0 + kTile, c.tq), begin, end);
  for (int64_t k0 = begin; k0 < end; k0 += kTile) {
    C s[kRows][kColumns];
    products(q, rows_of<T>(c.k, at.b, hk, k0, c.tk), c.d, stages, s);
    const int64_t key = k0 + 4 * across_at;
    const bool is_all = is_plain(c, q0, k0);
    __syncthreads();  // the weights of the tile before have been read
    if (is_all) {
#pragma unroll
      for (int r = 0; r < kRows; ++r)
#pragma unroll
        for (int k = 0; k < kColumns; ++k) s[r][k] *= factor;
    } else {
      store_tile(s, w);
#pragma unroll 1
      for (int e = 0; e < kRows * kColumns; ++e) {
        C& x = w[spot(e / kColumns, e % kColumns)];
        const int64_t i = row + e / kColumns, j = key + e % kColumns;
        C slope;
        x = sees(c, i, j) ? score<C>(c, at.b, at.h, i, j, x, slope) : hidden;
      }
      load_tile(w, s);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      C top = m[r];
#pragma unroll
      for (int k = 0; k < kColumns; ++k) top = s[r][k] > top ? s[r][k] : top;
      top = across(top, [](C x, C y) { return x > y ? x : y; });
      const C alpha = exp2(m[r] - top);
      m[r] = top;
      l[r] *= alpha;
#pragma unroll
      for (int k = 0; k < kColumns; ++k) s[r][k] = exp2(s[r][k] - top), l[r] += s[r][k];
#pragma unroll
      for (int n = 0; n < 4 * N; ++n) acc[r][n] *= alpha;
    }
    store_tile(s, w);
    if (c.dropout > 0) {
#pragma unroll 1
      for (int e = 0; e < kRows * kColumns; ++e) {
        const int64_t i = row + e / kColumns, j = key + e % kColumns;
        if (sees(c, i, j)) w[spot(e / kColumns, e % kColumns)] *= kept<C>(c, at.b, at.h, i, j);
      }
    }
    accumulate<T, C, N>(w, rows_of<T>(c.v, at.b, hk, k0, c.tk), at.column, c.dv, stages, acc);
  }

  T* const out = head_of<T>(c.out, at.b, at.h);
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const C sum = across(l[r], [](C x, C y) { return x + y; });
    const int64_t i = row + r;
    if (i >= c.tq) continue;
    const C inverse = sum == 0 ? C(0) : 1 / sum;
#pragma unroll
    for (int n = 0; n < 4 * N; ++n) {
      const int64_t d = at.column + n / 4 * kTile + 4 * across_at + n % 4;
      if (d < c.dv) out[i * c.out.time + d] = narrow<T>(acc[r][n] * inverse);
    }
    if (across_at == 0 && at.column == 0)
      static_cast<C*>(c.lse)[(at.b * c.heads + at.h) * c.lse_head + i] =
          sum == 0 ? hidden : (m[r] + log2(sum)) * C(kLn2);
  }
}

enum class Gradient { query, key, value };

/// The gradient of one operand: a block has 64 of its rows and passes over the tiles of the other side, keys for
/// Gradient::query, else the queries of every head that reads the key head.
template <class T, int N, Gradient kOf>
__global__ void __launch_bounds__(kThreads, 2)
    gradient_kernel(AttentionCall c, RowTerms<compute_t<T>> terms, Sequences sequences, int64_t tiles, int64_t parts) {
  using C = compute_t<T>;
  constexpr bool kOfQuery = kOf == Gradient::query, kOfValue = kOf == Gradient::value;
  C* const stages = reinterpret_cast<C*>(cuda::tile::shared_memory());
  C* const tile = stages + kTile * kTile;
  const int across_at = static_cast<int>(threadIdx.x) % kAcross;
  Place at = place_of(kOfQuery ? c.heads : c.kv_heads, tiles, parts, kTile * N);
  if (sequences.all != nullptr && !take_place<T, kOfQuery>(c, sequences, at, &terms)) return;
  const int64_t keys = c.tk;  // which have gradients
  take_length(c, at.b);
  const int64_t group = c.heads / c.kv_heads, row0 = at.row0;
  const int64_t row = row0 + static_cast<int>(threadIdx.x) / kAcross * kRows;
  const int64_t hk = kOfQuery ? at.h / group : at.h;
  const C factor = static_cast<C>(c.scale * kLog2e);

  C acc[kRows][4 * N] = {};
  for (int64_t g = 0; g < (kOfQuery ? 1 : group); ++g) {
    const int64_t h = kOfQuery ? at.h : hk * group + g, first = (at.b * c.heads + h) * c.lse_head;
    int64_t begin, end;
    if constexpr (kOfQuery) {
      visible_keys(c, row0, min(row0 + kTile, c.tq), begin, end);
    } else {
      visible_queries(c, row0, min(row0 + kTile, c.tk), begin, end);
    }
    for (int64_t c0 = begin; c0 < end; c0 += kTile) {
      const int64_t q0 = kOfQuery ? row0 : c0, k0 = kOfQuery ? c0 : row0;
      const auto q = rows_of<T>(c.q, at.b, h, q0, c.tq), go = rows_of<T>(c.grad_out, at.b, h, q0, c.tq);
      const auto k = rows_of<T>(c.k, at.b, hk, k0, c.tk), v = rows_of<T>(c.v, at.b, hk, k0, c.tk);
      C s[kRows][kColumns], dp[kRows][kColumns] = {};
      products(kOfQuery ? q : k, kOfQuery ? k : q, c.d, stages, s);
      if constexpr (!kOfValue) products(kOfQuery ? go : v, kOfQuery ? v : go, c.dv, stages, dp);
      __syncthreads();  // the stages and the weights of the tile before have been read
      if (is_plain(c, q0, k0)) {
#pragma unroll
        for (int r = 0; r < kRows; ++r)
#pragma unroll
          for (int n = 0; n < kColumns; ++n) {
            const int64_t i = first + (kOfQuery ? row + r : c0 + 4 * across_at + n);
            s[r][n] = exp2(s[r][n] * factor - terms.lse2[i]);
            if constexpr (!kOfValue) s[r][n] *= dp[r][n] - terms.delta[i];
          }
        store_tile(s, tile);
      } else {
        store_tile(s, tile);
        if constexpr (!kOfValue) store_tile(dp, stages);
#pragma unroll 1
        for (int e = 0; e < kRows * kColumns; ++e) {
          const int r = e / kColumns, n = e % kColumns;
          const int64_t other = c0 + 4 * across_at + n, i = kOfQuery ? row + r : other, j = kOfQuery ? other : row + r;
          C weight = 0;
          if (sees(c, i, j)) {
            C slope;
            weight = exp2(score<C>(c, at.b, h, i, j, tile[spot(r, n)], slope) - terms.lse2[first + i]);
            const C keep = c.dropout > 0 ? kept<C>(c, at.b, h, i, j) : C(1);
            weight *= kOfValue ? keep : (stages[spot(r, n)] * keep - terms.delta[first + i]) * slope;
          }
          tile[spot(r, n)] = weight;
        }
      }
      accumulate<T, C, N>(tile, kOfQuery ? k : kOfValue ? go : q, at.column, kOfValue ? c.dv : c.d, stages, acc);
    }
  }

  const AttentionView& to = kOfQuery ? c.grad_q : kOfValue ? c.grad_v : c.grad_k;
  const int64_t time = kOfQuery ? c.tq : keys, size = kOfValue ? c.dv : c.d;
  const C scale = kOfValue ? C(1) : static_cast<C>(c.scale);
  T* const out = head_of<T>(to, at.b, at.h);
#pragma unroll
  for (int r = 0; r < kRows; ++r)
#pragma unroll
    for (int n = 0; n < 4 * N; ++n) {
      const int64_t d = at.column + n / 4 * kTile + 4 * across_at + n % 4;
      if (row + r < time && d < size) out[(row + r) * to.time + d] = narrow<T>(acc[r][n] * scale);
    }
}

}  // namespace
}  // namespace strata::attention_cuda::plain
