#pragma once
// Attention over sequences whose positions lie in parts on the ranks of a group (context parallelism).
// docs/design/context.md

#include <string>

#include "strata/core/tensor.h"
#include "strata/ops/attention/attention.h"

namespace strata::distributed {

/// Ring attention (Liu et al., arXiv:2310.01889). Of a sequence that is cut into 2n chunks the group's rank r of n has
/// chunks r and 2n - 1 - r, one behind the other, so that every rank computes as much under a causal mask (zig-zag): q
/// [B, H, T/n, D], k [B, Hkv, T/n, D], v [B, Hkv, T/n, Dv], all of those positions. Keys and values go round the ring
/// while the ranks compute with those that they have; what comes out is put together by the logarithms of the sums of
/// exponentials. The result [B, H, T/n, Dv] is this rank's part of scaled_dot_product_attention() of the whole, up to
/// rounding; backward sends keys, values and their gradients round. No rank has more than two ranks' keys at a time.
/// `options`: is_causal, scale, window, logit_soft_cap, and dropout_p: where the ranks' default
/// generators are in one state the weights are dropped that one process drops. `heads` says, where q has some of the
/// heads alone, the first of them and how many there are: [first, all], and dropout's numbers are those of all. Throws
/// ShapeError (T/n is odd, q and k have other lengths), DTypeError, ValueError (an option that is not served).
///
///     Tensor y = distributed::ring_attention(q, k, v, {.is_causal = true}, "cp");
Tensor ring_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options = {},
                      const std::string& group = "world", const Dims& heads = {});

/// Ulysses (Jacobs et al., arXiv:2309.14509). The group's rank r of n has positions r T/n to (r + 1) T/n: q
/// [B, H, T/n, D], k [B, Hkv, T/n, D], v [B, Hkv, T/n, Dv]. An all_to_all each gives a rank all positions of its part
/// of the heads, and one behind attention gives it its positions of all heads back: the result [B, H, T/n, Dv] is its
/// part of scaled_dot_product_attention() of the whole. n divides H, and divides Hkv or is a multiple of it (heads of
/// keys and values are then copied). `options` and `heads` as of ring_attention(). Throws ShapeError, DTypeError,
/// ValueError.
///
///     Tensor y = distributed::ulysses_attention(q, k, v, {.is_causal = true}, "cp");
Tensor ulysses_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options = {},
                         const std::string& group = "world", const Dims& heads = {});

}  // namespace strata::distributed
