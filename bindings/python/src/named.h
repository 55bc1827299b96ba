#pragma once
// Calls by PyTorch's argument names.

#include "py.h"

namespace strata::python {

/// function(*args, **names) by way of strata/_signatures.py, for keywords that the function does not take by itself:
/// PyTorch's names, `out=`. `args` holds `count` arguments, then the values of `names` (a tuple, or null). A new
/// reference, or null with an error set.
PyObject* call_by_names(PyObject* function, PyObject* const* args, size_t count, PyObject* names);
/// What x.f is, where f is a method without one of Python's own types. A new reference.
PyObject* bound_method(PyObject* function, PyObject* instance);

}  // namespace strata::python
