#pragma once
// For a record's `reference`: a function of numbers, applied element by element in a plain loop.

#include <tuple>

#include "strata/core/dtype.h"
#include "strata/core/tensor.h"

namespace strata {
namespace detail {

// What element i of a call sees of one argument: a tensor's element as a double, anything else itself.
template <class T>
struct ReferenceArg {
  const T& value;
  ReferenceArg(const T& v, const Shape&) : value(v) {}
  const T& operator()(int64_t) const { return value; }
};
template <>
struct ReferenceArg<Tensor> {
  Tensor dense;
  const double* at;
  ReferenceArg(const Tensor& t, const Shape& shape)
      : dense(t.to(DType::f64).expand(shape).contiguous()), at(dense.numel() > 0 ? dense.data<double>() : nullptr) {}
  double operator()(int64_t i) const { return at[i]; }
};

}  // namespace detail

/// F of each element of the tensors among the arguments, which broadcast; F takes what the op takes, tensors' elements
/// as doubles, and its result is read as one.
template <auto F, class... A>
Tensor pointwise(A... args) {
  Shape shape;
  const auto see = [&](const auto& arg) {
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(arg)>, Tensor>)
      shape = broadcast_shapes(shape, arg.shape(), "pointwise");
  };
  (see(args), ...);
  const std::tuple<detail::ReferenceArg<std::remove_cvref_t<A>>...> lanes{
      detail::ReferenceArg<std::remove_cvref_t<A>>(args, shape)...};
  Tensor y = empty({shape, DType::f64, Device::cpu(), std::nullopt});
  double* out = y.numel() > 0 ? y.data<double>() : nullptr;
  for (int64_t i = 0; i < y.numel(); ++i)
    out[i] = static_cast<double>(std::apply([&](const auto&... lane) { return F(lane(i)...); }, lanes));
  return y;
}

}  // namespace strata
