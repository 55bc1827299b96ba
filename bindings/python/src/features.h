#pragma once

#include <nanobind/nanobind.h>

namespace strata::python {

/// FeatureTable and RowOptimizer.
void bind_features(nanobind::module_& m);

}  // namespace strata::python
