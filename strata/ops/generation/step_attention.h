#pragma once
// What a decoder's step does between the product that makes queries, keys and values and the one that takes what
// attention gives, as one op.

#include <optional>
#include <tuple>

#include "strata/core/tensor.h"

namespace strata {

/// Of rotary_cache_attention().
struct RotaryCacheAttentionOptions {
  std::optional<double> scale = {};  ///< of the scores; 1 / sqrt(D) where not given
  int64_t window = 0;                ///< where > 0: the query's place and the window - 1 before it are seen
  double logit_soft_cap = 0;         ///< as AttentionOptions'
};

/// One token more of each text of a cache k, v [B, Hkv, C, D]: packed [B, 1, (H + 2 Hkv) D] has queries, keys and
/// values of heads beside one another; queries and keys turn by cos and sin [B, P] (packed_rotary's), keys and values
/// stand at place starts[b] (i64 [B]), and the queries attend to the places up to that: [B, 1, H D]. With it the cache
/// with keys and values written, where counts[b] > 0 (i64 [B]) if there are counts. Throws ShapeError, DTypeError,
/// IndexError (on the CPU) where a place is not below C.
///   auto [y, keys, values] = rotary_cache_attention(k, v, packed, cos, sin, starts);
std::tuple<Tensor, Tensor, Tensor> rotary_cache_attention(const Tensor& k, const Tensor& v, const Tensor& packed,
                                                          const Tensor& cos, const Tensor& sin, const Tensor& starts,
                                                          const Tensor& counts = {},
                                                          const RotaryCacheAttentionOptions& options = {});
/// The same with the cache written where it lies, as one kernel. Undefined, with nothing done, where there is none: on
/// the CPU, for f32 and f64, and rows that are not whole, aligned pieces of 16 bytes.
Tensor rotary_cache_attention_(Tensor& k, Tensor& v, const Tensor& packed, const Tensor& cos, const Tensor& sin,
                               const Tensor& starts, const Tensor& counts = {},
                               const RotaryCacheAttentionOptions& options = {});

}  // namespace strata
