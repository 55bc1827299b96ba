#pragma once
// Running the tape backwards.

#include <span>
#include <vector>

#include "strata/core/node.h"
#include "strata/core/tensor.h"

namespace strata {

/// Accumulates the gradients of sum_i <outputs[i], grad_outputs[i]> into the `grad` of every leaf.
/// An undefined grad output stands for 1 and needs a one-element output. With `create_graph` the gradients can be
/// differentiated again. Unless `retain_graph` (create_graph implies it), saved tensors are released on the way and a
/// second call is an error. Throws AutogradError.
void backward(const TensorList& outputs, const TensorList& grad_outputs = {}, bool retain_graph = false,
              bool create_graph = false);

/// The same gradients with respect to `inputs` (leaves or not), returned instead of accumulated. An input that the
/// outputs do not depend on gives an undefined tensor with `allow_unused`, else an AutogradError.
TensorList grad(const TensorList& outputs, const TensorList& inputs, const TensorList& grad_outputs = {},
                bool create_graph = false, bool retain_graph = false, bool allow_unused = false);

}  // namespace strata
