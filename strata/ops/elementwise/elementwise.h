#pragma once
// Elementwise functions of one, two or three tensors. Arguments broadcast and promote as in PyTorch.

#include "strata/core/tensor.h"

namespace strata {

/// a + alpha * b.
Tensor add(const Tensor& a, const Tensor& b, Scalar alpha = 1);
Tensor mul(const Tensor& a, const Tensor& b);
Tensor neg(const Tensor& x);

inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator-(const Tensor& x) { return neg(x); }
inline Tensor operator+(const Tensor& a, Scalar b) { return add(a, wrap_number(b, a.device())); }
inline Tensor operator*(const Tensor& a, Scalar b) { return mul(a, wrap_number(b, a.device())); }
inline Tensor operator+(Scalar a, const Tensor& b) { return add(wrap_number(a, b.device()), b); }
inline Tensor operator*(Scalar a, const Tensor& b) { return mul(wrap_number(a, b.device()), b); }

}  // namespace strata
