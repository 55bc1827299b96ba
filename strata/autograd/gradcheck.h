#pragma once
// Comparing gradients with central differences, in double precision.

#include <string>
#include <type_traits>

#include "strata/core/tensor.h"

namespace strata {

/// How close is close enough.
struct GradcheckOptions {
  double eps = 1e-6;   ///< the step of the differences
  double atol = 1e-5;  ///< |analytic - numerical| <= atol + rtol * max(|analytic|, |numerical|)
  double rtol = 1e-3;
};

/// What gradcheck() found. `report` is empty when `ok`; otherwise it names the worst element.
struct GradcheckResult {
  bool ok = true;
  double worst_error = 0;  ///< the largest |analytic - numerical|
  std::string report;
  explicit operator bool() const { return ok; }
};

namespace detail {
/// A function of tensors that lives as long as the call it is passed to.
struct TensorFnRef {
  void* fn;
  TensorList (*call)(void* fn, const TensorList& inputs);
};
/// From a callable that takes `const TensorList&` and returns a Tensor or a TensorList.
template <class F>
TensorFnRef tensor_fn_ref(F& fn) {
  return {const_cast<void*>(static_cast<const void*>(&fn)), [](void* f, const TensorList& inputs) -> TensorList {
            using R = std::remove_cvref_t<decltype((*static_cast<F*>(f))(inputs))>;
            if constexpr (std::is_same_v<R, Tensor>) {
              return {(*static_cast<F*>(f))(inputs)};
            } else {
              return (*static_cast<F*>(f))(inputs);
            }
          }};
}
GradcheckResult gradcheck(TensorFnRef fn, const TensorList& inputs, const GradcheckOptions& options);
GradcheckResult gradgradcheck(TensorFnRef fn, const TensorList& inputs, const GradcheckOptions& options);
}  // namespace detail

/// Compares the gradients of `fn(inputs)`, a Tensor or TensorList, with central differences: for every element of every
/// input that requires a gradient, of the sum of all outputs weighted with fixed random numbers of both signs. Outputs
/// that are not floating are left out. The inputs must be f64, on any device, and are not changed; choose values of
/// both signs, away from kinks. Also fails when `fn` gives different values for equal inputs, and when an output does
/// not record a gradient that the differences show. Throws DTypeError for an input that wants a gradient and is not
/// f64.
///
///     Tensor x = randn({3, 4}, DType::f64).set_requires_grad();
///     GradcheckResult r = gradcheck([](const TensorList& in) { return exp(in[0]); }, {x});
///     if (!r) std::puts(r.report.c_str());
template <class F>
GradcheckResult gradcheck(const F& fn, const TensorList& inputs, const GradcheckOptions& options = {}) {
  return detail::gradcheck(detail::tensor_fn_ref(fn), inputs, options);
}

/// The same for the gradients of the gradients: checks the function (inputs, weights) -> gradients of `fn`.
template <class F>
GradcheckResult gradgradcheck(const F& fn, const TensorList& inputs, const GradcheckOptions& options = {}) {
  return detail::gradgradcheck(detail::tensor_fn_ref(fn), inputs, options);
}

}  // namespace strata
