#pragma once
// Shard rules of heads that lie packed in one tensor, and of attention that draws random numbers.

#include <string_view>

#include "strata/core/sharding.h"

namespace strata::detail {

/// What a tensor of such a call holds, for HeadRoles: the queries of all heads, then the keys, then the values of
/// theirs, in dimension 2 of [B, T, (heads + 2 kv_heads) D] (p); heads' results side by side, [B, T, heads D] (o); a
/// number for each query, [B, heads, T] (l); something else (_).
using HeadRoles = std::string_view;

/// Adds that heads may be cut, where each rank gets as many of the queries' and of the others': "S(2,unit=D,
/// segments=q+k+v)" of packed tensors. `rule` is what else may be.
void shard_heads(Sharding& s, const ShardRule& rule, HeadRoles args, HeadRoles results);

/// `rule` of an op whose argument dropout_p says whether it draws numbers, which are the elements' of the whole: the
/// call is then made on the whole's size.
void shard_with_dropout(Sharding& s, const ShardRule& rule);

}  // namespace strata::detail
