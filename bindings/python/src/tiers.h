#pragma once

#include "py.h"

namespace strata::python {

/// Budgets, and the single parts that keep things elsewhere.
void bind_tiers(nanobind::module_& m);

}  // namespace strata::python
