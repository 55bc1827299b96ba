#pragma once
// How cross entropy of rows is computed where rows, classes or both lie in parts.

#include "strata/core/sharding.h"

namespace strata::detail {

/// The shard rule of cross_entropy_rows and its gradient. Rows may be cut, and a mean counts those of all ranks.
/// Classes may be cut (Shoeybi et al., arXiv:1909.08053, section 3): each rank has the logarithm of its own classes'
/// sum of exponentials and the logit of the target where it is its own; three numbers a row travel, the logits never.
void shard_cross_entropy(Sharding& s);

}  // namespace strata::detail
