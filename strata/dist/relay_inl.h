#pragma once
// How a sharded tensor comes to lie otherwise: what is sent, and what is only cut.

#include "strata/core/placement.h"

namespace strata::distributed {

/// detail::PlacementRoom::relay: strata/core/placement.h.
Tensor relay(const Tensor& local, const Shape& whole, const Layout& from, const Layout& to);

}  // namespace strata::distributed
