#pragma once
// Context parallelism: the positions of sequences lie in parts on the ranks of a mesh's axis. docs/design/context.md
//
//     const distributed::ContextParallel cp{.group = "cp"};
//     Tensor own = distributed::context_part(tokens, 1, cp);               // [B, T] -> [B, T/n]
//     Tensor y = distributed::context_attention(q, k, v, {.is_causal = true}, cp);

#include <cstdint>
#include <string>

#include "strata/core/tensor.h"
#include "strata/ops/attention/attention.h"

namespace strata::distributed {

/// How attention meets the positions of other ranks.
enum class ContextKind : uint8_t {
  ring,     ///< keys and values go round: ring_attention(); any number of heads
  ulysses,  ///< heads are exchanged for positions: ulysses_attention(); fewer bytes, the ranks divide the heads
};
/// "ring" or "ulysses". Throws ValueError for another name.
ContextKind context_kind(const std::string& name);

/// Which ranks share sequences, and how: the rank's part of a sequence are two chunks of 2n (ring: chunk r and chunk
/// 2n - 1 - r), or one of n (ulysses: chunk r).
struct ContextParallel {
  std::string group = "cp";
  ContextKind kind = ContextKind::ring;
};

/// Throws ShapeError where a sequence of `length` positions cannot be shared out: it must be a multiple of 2n (ring) or
/// of n (ulysses), n the group's ranks; of one rank any length is.
void check_context(int64_t length, const ContextParallel& context);
/// This rank's part along `dim` of x, which every rank has alike. Differentiable: the gradient is zero in other ranks'
/// parts. Throws ShapeError as check_context().
Tensor context_part(const Tensor& x, int64_t dim, const ContextParallel& context);
/// All ranks' parts along `dim` in the order of their positions, in every rank. Differentiable: a part's gradient is
/// the sum of the ranks'.
Tensor context_whole(const Tensor& part, int64_t dim, const ContextParallel& context);
/// Attention of this rank's positions with those of all: ring_attention() or ulysses_attention(), of some of the
/// `heads` where that is not empty.
Tensor context_attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options,
                         const ContextParallel& context, const Dims& heads = {});

}  // namespace strata::distributed
