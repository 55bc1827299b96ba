#pragma once
// Jacobians, Hessians and their products with vectors: PyTorch's torch.autograd.functional.

#include <utility>
#include <vector>

#include "strata/autograd/gradcheck.h"

namespace strata {

namespace detail {
using Products = std::pair<TensorList, TensorList>;
Products vjp(TensorFnRef fn, const TensorList& inputs, const TensorList& v, bool create_graph, bool strict);
Products jvp(TensorFnRef fn, const TensorList& inputs, const TensorList& v, bool create_graph, bool strict);
Products hvp(TensorFnRef fn, const TensorList& inputs, const TensorList& v, bool create_graph, bool strict);
std::vector<TensorList> jacobian(TensorFnRef fn, const TensorList& inputs, bool create_graph, bool strict);
std::vector<TensorList> hessian(TensorFnRef fn, const TensorList& inputs, bool create_graph, bool strict);
}  // namespace detail

/// fn(inputs), a Tensor or TensorList, and its Jacobian multiplied by `v` from the left: the gradients of
/// sum_i <output i, v[i]> for each input, zeros where the result does not depend on it. Without v each output counts 1
/// and must have one element. Results can be differentiated with `create_graph` only. Throws AutogradError, ShapeError;
/// with `strict`, here and below, AutogradError also where a result does not depend on all inputs.
///     auto [y, g] = vjp([](const TensorList& in) { return in[0] * in[1]; }, {a, b}, {ones_like(a)});
template <class F>
std::pair<TensorList, TensorList> vjp(const F& fn, const TensorList& inputs, const TensorList& v = {},
                                      bool create_graph = false, bool strict = false) {
  return detail::vjp(detail::tensor_fn_ref(fn), inputs, v, create_graph, strict);
}
/// fn(inputs) and its Jacobian multiplied by `v`, of the inputs' shapes (ones where not given), from the right: one
/// tensor of each output's shape. Differentiates twice.
template <class F>
std::pair<TensorList, TensorList> jvp(const F& fn, const TensorList& inputs, const TensorList& v = {},
                                      bool create_graph = false, bool strict = false) {
  return detail::jvp(detail::tensor_fn_ref(fn), inputs, v, create_graph, strict);
}
/// fn(inputs), one number, and its Hessian times `v`, of the inputs' shapes (ones where not given).
template <class F>
std::pair<TensorList, TensorList> hvp(const F& fn, const TensorList& inputs, const TensorList& v = {},
                                      bool create_graph = false, bool strict = false) {
  return detail::hvp(detail::tensor_fn_ref(fn), inputs, v, create_graph, strict);
}
/// [output][input]: the derivatives of every element of an output by every element of an input, of the output's shape
/// and then the input's. One backward pass for each element of the outputs.
template <class F>
std::vector<TensorList> jacobian(const F& fn, const TensorList& inputs, bool create_graph = false,
                                 bool strict = false) {
  return detail::jacobian(detail::tensor_fn_ref(fn), inputs, create_graph, strict);
}
/// [input][input]: the second derivatives of the one number fn(inputs). Throws ShapeError for another result.
template <class F>
std::vector<TensorList> hessian(const F& fn, const TensorList& inputs, bool create_graph = false, bool strict = false) {
  return detail::hessian(detail::tensor_fn_ref(fn), inputs, create_graph, strict);
}

}  // namespace strata
