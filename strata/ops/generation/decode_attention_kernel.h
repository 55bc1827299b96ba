#pragma once
// Attention of one query a text to the keys and values of a cache, on the CPU.

#include <cstdint>

#include "strata/core/dtype.h"

namespace strata::generation {

/// The operands of decode_attention: one query of each of `heads`, which share `kv_heads`.
struct DecodeAttention {
  /// Where a tensor's elements lie: batch, head and place apart by so many elements; those of a row one after another.
  struct Rows {
    const void* data = nullptr;
    int64_t batch = 0, head = 0, place = 0;
  };
  DType dtype = DType::f32;
  Rows q, k, v;
  void* out = nullptr;  ///< [batch, heads, dv], one after another
  int64_t batches = 0, heads = 0, kv_heads = 0, d = 0, dv = 0;
  /// Text b sees the places first[b] .. last[b].
  const int64_t *first = nullptr, *last = nullptr;
  double scale = 1, soft_cap = 0;
  const double* sinks = nullptr;  ///< [heads] or nullptr
};

/// Scores, softmax and sums in f32 (f64 of f64). The result of a text does not depend on the others.
void decode_attention_cpu(const DecodeAttention& call);

}  // namespace strata::generation
