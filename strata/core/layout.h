#pragma once
// Results that lie in memory as their operands do: what is transposed or channels-last stays so through elementwise
// ops.

#include "strata/core/tensor.h"

namespace strata {
namespace detail {
std::optional<Strides> kept_strides(const Tensor* const* operands, int count);
}

/// like(x), laid out as x and `more` (all of x's shape) lie: the order of dimensions in memory is that of the first
/// operand that tells two of them apart, as in PyTorch's TensorIterator; broadcast dimensions tell nothing. Row-major
/// where all are, or nothing says otherwise. For the `infer` of ops whose kernels write results of any strides.
template <class... T>
TensorMeta laid_like(const Tensor& x, const T&... more) {
  TensorMeta m = x.meta();
  if (!x.is_contiguous() || (!more.is_contiguous() || ...)) [[unlikely]] {
    const Tensor* operands[] = {&x, &more...};
    m.strides = detail::kept_strides(operands, 1 + sizeof...(more));
  }
  return m;
}

/// Whether the elements of both, which have one shape, lie without gaps in the same order: element i in memory of one
/// belongs to element i in memory of the other.
bool lie_alike(const Tensor& a, const Tensor& b);

}  // namespace strata
