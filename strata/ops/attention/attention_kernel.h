#pragma once
// The tiled attention kernels on raw memory. Between tensors and instruction sets: attention.cpp describes a call with
// AttentionCall, attention_cpu.cpp runs it with the code for this processor.

#include <algorithm>
#include <cstdint>

#include "strata/core/dtype.h"
#include "strata/core/rng.h"
#include "strata/core/tensor.h"

namespace strata {

/// A [batch, heads, time, size] operand of any strides, counted in elements.
struct AttentionView {
  void* data = nullptr;
  int64_t batch = 0, head = 0, time = 0, size = 0;
};

/// Which of the key's random numbers dropout takes for the weight of query i and key j of head h of batch b: a whole
/// call's are row-major in [batch, heads, tq, tk]. A call that is a part of a larger one has those of its place in it.
struct WeightNumbers {
  int64_t first = 0, batch = 0, head = 0, query = 0;  ///< of the call's first weight, and how many lie between
  static constexpr WeightNumbers whole(int64_t heads, int64_t tq, int64_t tk) {
    return {0, heads * tq * tk, tq * tk, tk};
  }
  constexpr uint64_t of(int64_t b, int64_t h, int64_t i, int64_t j) const {
    return static_cast<uint64_t>(first + b * batch + h * head + i * query + j);
  }
  /// Whether each query's begin with a multiple of four, as philox() makes them.
  constexpr bool fours() const { return first % 4 == 0 && batch % 4 == 0 && head % 4 == 0 && query % 4 == 0; }
};

/// Dropout keeps a weight whose random number, as Philox draws it, is not below this; 0: there is no dropout. A
/// probability that f32 rounds to 1 still keeps the largest number.
constexpr uint32_t drop_below(double probability) {
  const double p = static_cast<double>(static_cast<float>(probability)) * 0x1p24;
  const auto whole = static_cast<uint64_t>(p);
  return static_cast<uint32_t>(std::min<uint64_t>((whole + (static_cast<double>(whole) < p ? 1 : 0)) << 8, UINT32_MAX));
}
/// Words of a row of dropout's bits for `tk` keys: whole 16 bytes, and as far as a tile of 128 keys that begins before
/// the last key is read, from any bit on.
constexpr int64_t kept_row_words(int64_t tk) {
  return ((tk + 128) / 32 + 2 + 3) / 4 * 4;
}
/// Those that forward leaves to backward: none where they would take more than 5/4 of the bytes that the queries, keys,
/// values and results of as many heads take in 16 bits, and more than 64 KiB a head. Says the same of every part of the
/// heads.
constexpr int64_t kept_words(double dropout, int64_t tq, int64_t tk, int64_t d, int64_t dv) {
  if (dropout == 0 || tk == 0) return 0;
  const int64_t words = kept_row_words(tk);
  return 4 * tq * words <= std::max<int64_t>((tq + tk) * (d + dv) * 5 / 2, 1 << 16) ? words : 0;
}

/// One call of the kernels. Query i sees key j where
///   j <= i + offset                         if causal,
///   |i + offset - j| < window               if window > 0,
///   j < key_lengths[b]                      if there are any,
///   and the boolean mask is true there;
/// scaled scores go through the soft cap; distances are then taken off, and an additive mask is added. A query that
/// sees nothing gives zeros (and lse -inf).
struct AttentionCall {
  DType dtype = DType::f32;
  int64_t batch = 0, heads = 0, kv_heads = 0, tq = 0, tk = 0;
  int64_t d = 0;   // size of a query and a key
  int64_t dv = 0;  // size of a value
  double scale = 1;
  bool causal = false;
  int64_t window = 0, offset = 0;

  const void* mask = nullptr;  // boolean, or of any floating dtype
  DType mask_dtype = DType::boolean;
  int64_t mask_stride[4] = {0, 0, 0, 0};  // batch, head, query, key

  AttentionView q, k, v, out;
  void* lse = nullptr;   // [batch, heads, tq], f32 (f64 for f64): log of the sum of exponentials
  int64_t lse_head = 0;  // elements between its heads: tq, but where the call is one sequence of several

  /// Weights are set to 0 with this probability and the others divided by its complement, each by its number of the
  /// key's stream, as ops/dropout does.
  double dropout = 0;
  RngKey key;
  WeightNumbers numbers;
  /// Dropout's bits, [batch, heads, tq, kept_words], which the kernels then read for its numbers; null: they draw. Bit
  /// j % 32 of word j / 32: causal and window let the query see key j, and its weight is kept.
  const uint32_t* kept = nullptr;
  int64_t kept_words = 0;

  /// Bit k: what is causal and the window let query i see key first + k, of those that there are.
  constexpr uint32_t seen_word(int64_t i, int64_t first) const {
    const int64_t at = i + offset - first;
    int64_t low = 0, high = std::min<int64_t>(31, tk - 1 - first);
    if (causal) high = std::min(high, at);
    if (window > 0) low = std::max(low, at - window + 1), high = std::min(high, at + window - 1);
    return high < low ? 0 : (~0u >> (31 - high)) & (~0u << low);
  }

  // Backward only.
  AttentionView grad_out, grad_q, grad_k, grad_v;
  const void* grad_lse = nullptr;  // as lse; null means 0

  /// Sequences of different lengths that lie one after another in a batch of 1, on a CUDA device alone: sequence i has
  /// the queries from cu_seqlens_q[i] up to cu_seqlens_q[i + 1], its keys likewise (numbers in device memory), and sees
  /// itself only; offset and window count within it. Queries and keys behind the last see nothing. 0: one sequence.
  int64_t sequences = 0;
  const int64_t *cu_seqlens_q = nullptr, *cu_seqlens_k = nullptr;

  /// A score falls by alibi_slopes[b * alibi_batch + h] * |i + offset - j|; in lse's dtype, null: none.
  const void* alibi_slopes = nullptr;
  int64_t alibi_batch = 0;
  double soft_cap = 0;          ///< scaled scores become soft_cap * tanh(score / soft_cap); 0: none
  const void* sinks = nullptr;  ///< forward: for each head one more score, without a value; in lse's dtype
  /// How many keys of each batch there are, at most tk. Kernels then take that for tk, with the rest in hidden_keys.
  const int64_t* key_lengths = nullptr;
  int64_t hidden_keys = 0;
};

/// Fills out and lse.
void attention_forward_cpu(const AttentionCall& c);
/// Fills grad_q, grad_k and grad_v from q, k, v, out, lse and grad_out. The same bits for any number of threads.
void attention_backward_cpu(const AttentionCall& c);
/// Fills `to` as AttentionCall::kept is to be.
void attention_draw_kept_cpu(const AttentionCall& c, uint32_t* to);
/// The same on the current CUDA device, which is like_this's. The same bits every time.
void attention_forward_cuda(const AttentionCall& c, const Tensor& like_this);
void attention_backward_cuda(const AttentionCall& c, const Tensor& like_this);
void attention_draw_kept_cuda(const AttentionCall& c, uint32_t* to);

/// What each query and key have, of a call with lse (and for gradients out and grad_out) given: weights as dropout
/// leaves them, or gradients of what is added to the scores; row-major of `shape` [batch, heads, tq, tk], a 1 in which
/// stands for the sum over all, times a factor.
struct AttentionPairs {
  void* to = nullptr;
  DType dtype = DType::f32;
  int64_t shape[4] = {1, 1, 1, 1};
  bool gradient = false;
  double factor = 1;
};
/// False, and nothing done, for a call that the tensor-core kernels do not take.
bool attention_pairs_cuda(const AttentionCall& c, const AttentionPairs& what, const Tensor& like_this);

}  // namespace strata
