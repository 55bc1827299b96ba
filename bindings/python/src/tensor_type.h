#pragma once
// The parts that the Tensor type is put together from.

#include <span>

#include "py.h"

/// A slot of a type: its number and a function of whatever kind.
#define STRATA_SLOT(id, f) \
  { id, reinterpret_cast<void*>(f) }

namespace strata::python {

/// Operators and comparisons.
std::span<const PyType_Slot> operator_slots();
/// Attributes, ended by an empty entry.
PyGetSetDef* tensor_attributes();

}  // namespace strata::python
