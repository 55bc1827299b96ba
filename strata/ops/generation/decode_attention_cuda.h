#pragma once
// Attention of one query a text on a CUDA device.

#include <cstdint>

#include "strata/core/tensor.h"

namespace strata::generation {

struct DecodeOptions {
  double scale = 1;
  int64_t window = 0;
  double soft_cap = 0;
  Tensor sinks = {};
};

/// Fills y [B, H, 1, Dv], dense, from q [B, H, 1, D] and a cache's k [B, Hkv, C, D] and v [B, Hkv, C, Dv], for a query
/// at places[b] (i64 [B], in device memory) that sees up to its own place. False, with nothing queued, for more than
/// one query, f64, and rows that are not whole pieces of 16 bytes, aligned, at most 32 of them.
bool decode_attention_cuda(Tensor& y, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& places,
                           const DecodeOptions& o);

}  // namespace strata::generation
