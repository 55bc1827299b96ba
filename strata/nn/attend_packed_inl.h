#pragma once
// Self-attention behind its first product, for whoever computes that product together with what stands before it.

#include "strata/nn/attention.h"

namespace strata::nn::detail {

/// attention(x, places, cache) of packed = attention.qkv(x), [B, T, ..]. Throws ValueError with LatentSpec, whose keys
/// do not come from one product, and ShapeError.
Tensor attend_packed(const SelfAttention& attention, const Tensor& packed, const Places& places, KvCache* cache);

}  // namespace strata::nn::detail
