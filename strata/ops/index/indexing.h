#pragma once
// What may stand between the brackets of x[...], as in NumPy and PyTorch.

#include <optional>
#include <vector>

#include "strata/core/tensor.h"

namespace strata {

/// A new dimension of size 1.
struct NoneIndex {};
inline constexpr NoneIndex None;
/// As many full slices as needed.
struct EllipsisIndex {};
inline constexpr EllipsisIndex Ellipsis;
/// start:stop:step; what is left out is the whole. Slice() is `:`.
struct Slice {
  std::optional<int64_t> start = {};
  std::optional<int64_t> stop = {};
  int64_t step = 1;

  Slice() = default;
  Slice(std::optional<int64_t> from, std::optional<int64_t> to, int64_t by = 1) : start(from), stop(to), step(by) {}
};

/// One entry: an integer (its dimension disappears), a Slice, None, Ellipsis, an integer tensor (the dimension is
/// replaced by its shape, all such tensors broadcasting against each other) or a bool mask (over as many dimensions as
/// it has; equal to the tensors that nonzero gives).
struct TensorIndex {
  /// Which of them it is.
  enum class Kind : uint8_t { none, ellipsis, integer, slice, tensor };

  TensorIndex(NoneIndex) : kind(Kind::none) {}
  TensorIndex(EllipsisIndex) : kind(Kind::ellipsis) {}
  TensorIndex(int index) : TensorIndex(static_cast<int64_t>(index)) {}
  TensorIndex(int64_t index) : kind(Kind::integer), integer(index) {}
  TensorIndex(Slice s) : kind(Kind::slice), slice(s) {}
  TensorIndex(Tensor t) : kind(Kind::tensor), tensor(std::move(t)) {}

  Kind kind;
  int64_t integer = 0;
  Slice slice;
  Tensor tensor;
};

/// The records behind Tensor::index and Tensor::index_put_: `indices` holds one integer tensor, or an undefined one for
/// `:`, for each leading dimension of x; negative indices count from the end. Where all tensors are neighbours their
/// common shape takes their place, else it comes first.
Tensor index(const Tensor& x, const TensorList& indices);
/// x with those elements replaced by (or, accumulating, increased by) `value`, which broadcasts to them.
Tensor index_put(const Tensor& x, const TensorList& indices, const Tensor& value, bool accumulate = false);
Tensor& index_put_(Tensor& x, const TensorList& indices, const Tensor& value, bool accumulate = false);

}  // namespace strata
