#pragma once
// Lookup tables, and the gated activation of feed-forward blocks.

#include <optional>

#include "strata/core/tensor.h"

namespace strata {

/// Rows of `weight` [V, D] at `indices` (i64 of any shape): shape indices.shape() + [D]. Row padding_idx, where given
/// (it may count from the end), gets no gradient. Gradient rows of equal indices are added in f32 in the order of the
/// indices. Throws IndexError for an index outside the table (on a CUDA device it ends all work there and later
/// calls throw DeviceError), DTypeError, ShapeError.
///   Tensor tokens = embedding(ids, table);
Tensor embedding(const Tensor& indices, const Tensor& weight, std::optional<int64_t> padding_idx = {});

/// silu(a) * b = a * sigmoid(a) * b, for a and b of one shape and dtype (Shazeer, arXiv:2002.05202). Throws ShapeError.
///   Tensor h = swiglu(gate(x), up(x));
Tensor swiglu(const Tensor& a, const Tensor& b);
/// The same of the two halves of x's last dimension: x [..., 2 N] gives [..., N]. The gradient is one tensor like x.
Tensor swiglu(const Tensor& x);

}  // namespace strata
