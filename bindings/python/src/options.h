#pragma once
// Options of an optimizer, from Python.

#include "py.h"
#include "strata/optim/record.h"

namespace strata::python {

/// Options by name; numbers of Python of any kind where the record wants numbers. TypeError for other values.
optim::OptionValues options_of(const optim::OptimizerRecord& record, const nb::dict& d);
/// That of a core.Optimizer. TypeError for another object.
optim::Optimizer& optimizer_of(nb::handle o);

}  // namespace strata::python
