#pragma once
// What the CUDA attention kernels share: which keys a query sees, masks, dropout, rows of a call's operands.

#include "strata/core/dispatch.h"
#include "strata/cuda/tile/single.cuh"
#include "strata/ops/attention/attention_kernel.h"

namespace strata::attention_cuda {

constexpr double kLog2e = 1.4426950408889634, kLn2 = 0.6931471805599453;

/// Keys that some of the queries [q0, q1) see, masks aside.
__device__ __forceinline__ void visible_keys(const AttentionCall& c, int64_t q0, int64_t q1, int64_t& begin,
                                             int64_t& end) {
  begin = 0, end = c.tk;
  if (c.causal) end = min(end, q1 + c.offset);
  if (c.window > 0) {
    begin = max(int64_t{0}, q0 + c.offset - c.window + 1);
    end = min(end, q1 - 1 + c.offset + c.window);
  }
}
/// Queries that see some of the keys [k0, k1), masks aside.
__device__ __forceinline__ void visible_queries(const AttentionCall& c, int64_t k0, int64_t k1, int64_t& begin,
                                                int64_t& end) {
  begin = 0, end = c.tq;
  if (c.causal) begin = max(begin, k0 - c.offset);
  if (c.window > 0) {
    begin = max(begin, k0 - c.offset - c.window + 1);
    end = min(end, k1 - 1 - c.offset + c.window);
  }
}
/// Whether query i sees key j, masks aside; false where either does not exist.
__device__ __forceinline__ bool sees(const AttentionCall& c, int64_t i, int64_t j) {
  const int64_t at = i + c.offset;
  return i < c.tq && j < c.tk && (!c.causal || j <= at) && (c.window == 0 || (at - j < c.window && j - at < c.window));
}

/// What the mask adds to a score of an existing query and key, in units of log2(e).
template <class C>
__device__ C bias(const AttentionCall& c, int64_t b, int64_t h, int64_t i, int64_t j) {
  const int64_t at = b * c.mask_stride[0] + h * c.mask_stride[1] + i * c.mask_stride[2] + j * c.mask_stride[3];
  const C hidden = -static_cast<C>(INFINITY);
  C v = 0;
  switch (c.mask_dtype) {
    case DType::boolean:
      return static_cast<const bool*>(c.mask)[at] ? C(0) : hidden;
    case DType::f32:
      v = static_cast<C>(static_cast<const float*>(c.mask)[at]);
      break;
    case DType::f64:
      v = static_cast<C>(static_cast<const double*>(c.mask)[at]);
      break;
    case DType::bf16:
      v = static_cast<C>(cuda::widen(static_cast<const BFloat16*>(c.mask)[at]));
      break;
    default:
      v = static_cast<C>(cuda::widen(static_cast<const Half*>(c.mask)[at]));
      break;
  }
  // A finite bias stays finite in the other unit.
  constexpr C lowest = sizeof(C) == 8 ? C(-1.2e308) : C(-2.2e38);
  return v > hidden ? (v < lowest ? lowest : v) * C(kLog2e) : v;
}

/// What becomes of the product of an existing query and key that see each other, in units of log2(e): scale, soft cap,
/// distance, mask. `slope` is the soft cap's there.
template <class C>
__device__ __forceinline__ C score(const AttentionCall& c, int64_t b, int64_t h, int64_t i, int64_t j, C product,
                                   C& slope) {
  C x = product * static_cast<C>(c.scale * kLog2e);
  slope = 1;
  if (c.soft_cap > 0) {
    const C u = tanh(product * static_cast<C>(c.scale / c.soft_cap));
    x = u * static_cast<C>(c.soft_cap * kLog2e), slope = 1 - u * u;
  }
  if (c.alibi_slopes != nullptr) {
    const int64_t d = i + c.offset - j;
    x -= static_cast<const C*>(c.alibi_slopes)[b * c.alibi_batch + h] * static_cast<C>((d < 0 ? -d : d) * kLog2e);
  }
  return c.mask ? x + bias<C>(c, b, h, i, j) : x;
}

/// What a weight is multiplied by under dropout.
template <class C>
__device__ __forceinline__ C kept(const AttentionCall& c, int64_t b, int64_t h, int64_t i, int64_t j) {
  const C scale = static_cast<C>(1 / (1 - c.dropout));
  if (c.kept != nullptr)
    return (c.kept[((b * c.heads + h) * c.tq + i) * c.kept_words + j / 32] >> (j % 32) & 1) != 0 ? scale : C(0);
  const uint64_t index = c.numbers.of(b, h, i, j);
  const auto four = philox(c.key, index / 4);
  uint32_t bits = four[0];
#pragma unroll
  for (uint32_t k = 1; k < 4; ++k) bits = index % 4 == k ? four[k] : bits;
  return uniform_f32(bits) < static_cast<float>(c.dropout) ? C(0) : scale;
}

/// Row 0 of a head of an operand.
template <class T>
__device__ __forceinline__ T* head_of(const AttentionView& v, int64_t b, int64_t h) {
  return static_cast<T*>(v.data) + b * v.batch + h * v.head;
}

/// Terms of the gradient for each query, laid out as lse, of C: delta = sum(out grad_out) - grad_lse, and lse in
/// base 2, +inf for queries that see nothing.
template <class C>
struct RowTerms {
  C* delta;
  C* lse2;
};

/// [2, rows] of delta and of lse in units of `lse_unit` (+inf for queries that see nothing), by a kernel on the stream.
Tensor row_terms(const AttentionCall& c, double lse_unit, const Tensor& like_this);

/// One sequence of a call of several: its first query and key among all, its lengths, and how many tiles of queries and
/// of keys the sequences before it have.
struct Sequence {
  int q0, tq, k0, tk, q_tile, k_tile;
};
/// The sequences of a call and, for each tile of queries and of keys, which one it belongs to (-1: none; the lists are
/// as long as they can become). `all` is null for a batch of equal lengths.
struct Sequences {
  const Sequence* all = nullptr;
  const int *of_q = nullptr, *of_k = nullptr;
  int64_t q_tiles = 0, k_tiles = 0;
  int* ticket = nullptr;  // a count of 0, from which blocks may take their work
};
/// Makes them on the device, from lengths that only the device knows, for tiles of so many queries and keys; `space`
/// keeps their memory. Empty for a batch of equal lengths. Numbers that do not fit are brought within bounds.
Sequences sequences_of(const AttentionCall& c, int q_rows, int k_rows, const Tensor& like_this, Tensor& space);

/// Makes a call of all sequences that of tile `at` of queries (or keys) alone, and `at` the tile's number within it.
/// False behind the last.
template <class T, bool kOfQueries>
__device__ __forceinline__ bool take_sequence(AttentionCall& c, const Sequences& s, int64_t& at,
                                              RowTerms<compute_t<T>>* terms = nullptr) {
  const int of = (kOfQueries ? s.of_q : s.of_k)[at];
  if (of < 0) return false;
  const Sequence x = s.all[of];
  at -= kOfQueries ? x.q_tile : x.k_tile;
  const auto begin_at = [](AttentionView& v, int64_t row) { v.data = static_cast<T*>(v.data) + row * v.time; };
  begin_at(c.q, x.q0), begin_at(c.out, x.q0), begin_at(c.grad_out, x.q0), begin_at(c.grad_q, x.q0);
  begin_at(c.k, x.k0), begin_at(c.v, x.k0), begin_at(c.grad_k, x.k0), begin_at(c.grad_v, x.k0);
  c.lse = static_cast<compute_t<T>*>(c.lse) + x.q0;
  if (terms != nullptr) terms->delta += x.q0, terms->lse2 += x.q0;
  c.tq = x.tq, c.tk = x.tk;
  return true;
}

/// Two ends, both included, of what a row of a tile sees of the other side.
struct Seen {
  int first, last;
};
/// Keys that query i sees, masks aside.
__device__ __forceinline__ Seen seen_keys(const AttentionCall& c, int64_t i) {
  int64_t first = 0, last = c.tk - 1;
  if (c.causal) last = min(last, i + c.offset);
  if (c.window > 0) first = max(first, i + c.offset - c.window + 1), last = min(last, i + c.offset + c.window - 1);
  return {static_cast<int>(min(first, c.tk)), static_cast<int>(max(last, int64_t{-1}))};
}
/// Queries that see key j.
__device__ __forceinline__ Seen seen_queries(const AttentionCall& c, int64_t j) {
  int64_t first = 0, last = c.tq - 1;
  if (c.causal) first = max(first, j - c.offset);
  if (c.window > 0) first = max(first, j - c.offset - c.window + 1), last = min(last, j - c.offset + c.window - 1);
  return {static_cast<int>(min(first, c.tq)), static_cast<int>(max(last, int64_t{-1}))};
}

using cuda::tile::fast_exp2;

#ifndef STRATA_TILE_EMULATION
// Whether heads of a size by 8 up to 256, whose rows 16-byte copies of `piece` numbers can read, have what the
// tensor-core kernels take.
inline bool fits_copied_rows(const AttentionCall& c, bool backward, int64_t piece) {
  const bool size = c.d > 0 && c.d <= 256 && c.d % 8 == 0;
  const bool options = c.mask_dtype != DType::f64 && static_cast<float>(c.dropout) < 1 &&
                       (c.soft_cap == 0 || (c.soft_cap > 1e-3 && c.soft_cap < 1e6));
  const auto aligned = [&](const AttentionView& v, int64_t heads, int64_t time) {
    return cuda::aligned16(v.data) && (c.batch == 1 || v.batch % piece == 0) && (heads == 1 || v.head % piece == 0) &&
           (time == 1 || v.time % piece == 0);
  };
  return size && options && c.dv == c.d && c.scale > 0 && c.scale < 1e6 && c.tq > 0 && c.tk > 0 && c.tq < (1 << 30) &&
         c.tk < (1 << 30) && aligned(c.q, c.heads, c.tq) && aligned(c.k, c.kv_heads, c.tk) &&
         aligned(c.v, c.kv_heads, c.tk) && aligned(c.out, c.heads, c.tq) &&
         (!backward || (aligned(c.grad_out, c.heads, c.tq) && aligned(c.grad_q, c.heads, c.tq) &&
                        aligned(c.grad_k, c.kv_heads, c.tk) && aligned(c.grad_v, c.kv_heads, c.tk)));
}
/// Whether the tensor-core kernels take a call: in 16 bits, and in f32, where a block may have as much shared memory as
/// on Hopper.
inline bool fits_mma(const AttentionCall& c, bool backward) {
  return (c.dtype == DType::bf16 || c.dtype == DType::f16) && fits_copied_rows(c, backward, 8);
}
bool fits_mma_f32(const AttentionCall& c, bool backward);
/// Whether the Hopper kernels take a call that fits the tensor-core ones: a card of compute capability 9.0 and code for
/// it, heads above 32 up to 256, strides that bulk copies take.
bool fits_hopper(const AttentionCall& c, bool backward);
void forward_hopper(const AttentionCall& c, const Tensor& like_this);
void backward_hopper(const AttentionCall& c, const Tensor& like_this);

/// The tensor-core kernels, for calls that fit.
void forward_mma(const AttentionCall& c, const Tensor& like_this);
void backward_mma(const AttentionCall& c, RowTerms<float> terms, const Tensor& like_this);
/// The same for f32, whose products take three of TF32, and where that is allowed one.
void forward_mma_f32(const AttentionCall& c, const Tensor& like_this);
void forward_mma_tf32(const AttentionCall& c, const Tensor& like_this);
void backward_mma_f32(const AttentionCall& c, RowTerms<float> terms, const Tensor& like_this);
void backward_mma_tf32(const AttentionCall& c, RowTerms<float> terms, const Tensor& like_this);
#endif

}  // namespace strata::attention_cuda
