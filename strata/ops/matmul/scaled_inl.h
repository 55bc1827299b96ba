#pragma once
// Products of eight-bit operands, as the records' kernels call them.

#include "strata/core/by_device.h"
#include "strata/core/tensor.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/matmul/gemm_scaled.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/matmul/scaled_kernels.h"
#include "strata/ops/view/view.h"

namespace strata::products {

inline Tensor make(const Shape& shape, DType t, const Tensor& x) {
  return empty({shape, t, x.device(), std::nullopt});
}

// Dense f32 values of codes.
template <class On>
Tensor decode(On on, const Tensor& codes, Fp8 format) {
  const Tensor dense = contiguous(codes), y = make(codes.shape(), DType::f32, codes);
  if constexpr (on.cuda)
    fp8_decode_cuda(y, dense, format);
  else
    fp8_decode_cpu(y, dense, format);
  return y;
}

// A [m, k] with dense rows, B [k, n] with dense columns, as cuBLASLt wants eight-bit operands: copied where they lie
// otherwise.
struct Operands {
  Tensor a, b;
  cuda::ScaledGemm g;
};
template <class On>  // a card's only
Operands operands(On, const Tensor& a, const Tensor& b) {
  const auto dense = [](const Tensor& t) { return t.strides()[1] == 1 && t.strides()[0] >= t.size(1); };
  Operands o{dense(a) ? a : contiguous(a), dense(b.t()) ? b : contiguous(b.t()).t(), {}};
  o.g.m = a.size(0), o.g.k = a.size(1), o.g.n = b.size(1);
  o.g.lda = o.a.strides()[0], o.g.ldb = o.b.strides()[1];
  o.g.a = o.a.raw_data(), o.g.b = o.b.raw_data();
  return o;
}

// fp8 codes a [m, k] and b [k, n] with scales of one element, or [m, 1] and [1, n].
struct ScaledCodes {
  const Tensor &a, &b, &scale_a, &scale_b;
  Fp8 a_format, b_format;
  bool fast = false;  // sums may stay in the tensor cores' own precision all the way
};

// y = a b in the library's kernel, with the scales inside unless `plain`; false where it has none.
template <class On>
bool library_product(On on, const Tensor& y, const ScaledCodes& p, const Tensor& bias, bool plain) {
  const bool by_row = p.scale_a.numel() != 1 || p.scale_b.numel() != 1;
  const auto type = [](Fp8 f) {
    return f.mantissa_bits == kE4m3.mantissa_bits ? cuda::EightBit::e4m3 : cuda::EightBit::e5m2;
  };
  Operands o = operands(on, p.a, p.b);
  o.g.a_type = type(p.a_format), o.g.b_type = type(p.b_format);
  o.g.out = y.dtype();
  o.g.c = y.raw_data();
  o.g.ldc = y.strides()[0];
  o.g.fast = p.fast;
  Tensor scale_a, scale_b, dense_bias;
  if (!plain) {
    // One scale beside many is not what the library takes; as many as there are rows it is.
    if (by_row && (p.scale_a.numel() != p.a.size(0) || p.scale_b.numel() != p.b.size(1))) return false;
    scale_a = contiguous(p.scale_a), scale_b = contiguous(p.scale_b);
    o.g.scale_a = static_cast<const float*>(scale_a.raw_data());
    o.g.scale_b = static_cast<const float*>(scale_b.raw_data());
    o.g.by_row = by_row;
  }
  if (bias.defined()) {
    dense_bias = contiguous(bias);
    o.g.bias = dense_bias.raw_data();
  }
  return cuda::scaled_gemm(o.g, y.device());
}

// y = (a b) scale_a scale_b + bias, rounded once.
template <class On>
void fp8_product(On on, Tensor& y, const ScaledCodes& p, const Tensor& bias) {
  if (y.numel() == 0) return;
  Tensor sums;
  if constexpr (on.cuda) {
    if (y.strides()[1] == 1 && p.a.size(1) > 0) {
      if ((!bias.defined() || y.dtype() != DType::f32) && library_product(on, y, p, bias, false)) return;
      sums = make(y.shape(), DType::f32, y);
      if (!library_product(on, sums, p, {}, true)) sums = {};
    }
  }
  if (!sums.defined()) {
    const Tensor a = decode(on, p.a, p.a_format), b = decode(on, p.b, p.b_format);
    if constexpr (on.cuda)  // bf16 holds every code's number
      sums = matmul_f32(to(a, DType::bf16), to(b, DType::bf16));
    else
      sums = matmul(a, b);
  }
  const auto factor = [](const Tensor& scale) { return scale.numel() == 1 ? reshape(scale, {}) : scale; };
  Tensor v = sums * factor(p.scale_a) * factor(p.scale_b);
  if (bias.defined()) v = v + to(bias, DType::f32);
  copy_elements(y, v);
}

}  // namespace strata::products
