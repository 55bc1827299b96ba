#pragma once
// Sums and products of an f32 tensor and one of another dtype, without an f32 copy of that.

#include "strata/core/arg_type.h"

namespace strata {

/// y = a + alpha * b and y = a * b; y and a f32, b of any dtype but f64 (f32 too), of one shape and any strides. y may
/// be a.
void add_mixed_cpu(Tensor& y, const Tensor& a, const Tensor& b, float alpha);
void mul_mixed_cpu(Tensor& y, const Tensor& a, const Tensor& b);
/// y = a * b, rounded once; a and b f32, y bf16 or f16.
void mul_narrow_cpu(Tensor& y, const Tensor& a, const Tensor& b);
/// y = a * b, rounded once; a f32, b and y both bf16 or both f16.
void mul_rounded_cpu(Tensor& y, const Tensor& a, const Tensor& b);

// The same on a CUDA device.
void add_mixed_cuda(Tensor& y, const Tensor& a, const Tensor& b, float alpha);
void mul_mixed_cuda(Tensor& y, const Tensor& a, const Tensor& b);
void mul_narrow_cuda(Tensor& y, const Tensor& a, const Tensor& b);

// The ways (core/mixed_way.h) of add and mul for an f32 tensor and one whose dtype f32 absorbs, on one device. Shapes
// that differ are broadcast.
bool add_mixed_way(detail::ArgsAt at, const detail::Results& into);
bool add_mixed_way_inplace(Tensor& self, detail::ArgsAt at);
bool mul_mixed_way(detail::ArgsAt at, const detail::Results& into);
bool mul_mixed_way_inplace(Tensor& self, detail::ArgsAt at);

}  // namespace strata
