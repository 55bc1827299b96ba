#pragma once
// Attention of one query a text as one kernel with the rotation before it and the writes of the cache.

#include <cstdint>

#include "strata/core/tensor.h"

namespace strata::generation {

/// Of texts that each have one token more: packed [B, 1, (H + 2 Hkv) D], queries, keys and values of heads beside one
/// another; cos and sin [B, P], of each token's place, which is starts[b] (i64 [B]); counts i64 [B] or undefined.
struct StepAttention {
  Tensor packed, cos, sin, starts, counts;
  double scale = 1, soft_cap = 0;
  int64_t window = 0;
};

/// Fills y [B, 1, H D] with attention of the turned queries to the places before theirs in k and v [B, Hkv, C, D] and
/// to the turned keys and the values beside them, and writes those at starts[b] of k and v, where counts[b] is above 0
/// and the place is one. All on the device; sums as in decode_attention_cuda(). False, with nothing queued, for f32 and
/// f64, rows that are not whole, aligned pieces of 16 bytes, and P that is no multiple of a piece.
bool step_attention_cuda(Tensor& y, Tensor& k, Tensor& v, const StepAttention& s);

}  // namespace strata::generation
