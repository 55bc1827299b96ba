#pragma once
// Between a sharded tensor and each rank's part of it, with history: for what a rank computes by itself within a
// network of sharded tensors.

#include "strata/core/placement.h"

namespace strata::distributed::detail {

/// This rank's part of `x`, whose gradient is the part of x's gradient times `share`. x itself where it is plain.
Tensor own_part(const Tensor& x, double share = 1);
/// `part` of each rank as a sharded tensor of shape `whole` that lies as `layout` says, which shards or adds up. Its
/// gradient comes to lie so, or whole where the parts are added up, and is the part's. Throws ShapeError where the part
/// is not as large as the layout says.
Tensor joined_parts(const Tensor& part, const Shape& whole, const LayoutRef& layout);

}  // namespace strata::distributed::detail
