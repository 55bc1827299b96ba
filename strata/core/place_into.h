#pragma once
// Sharded tensors under tensors that others hold already.

#include "strata/core/placement.h"

namespace strata::detail {

/// Every handle to `t`, a plain tensor or one that this function has made sharded, is a sharded tensor's from now on:
/// of `whole`, with this process's part `local`. What wants its gradient still does; the gradient is dropped. What was
/// recorded with `t` before must not be differentiated any more. Throws ShapeError unless `local` is the part.
void place_into(const Tensor& t, const Tensor& local, const TensorMeta& whole, LayoutRef layout);

}  // namespace strata::detail
