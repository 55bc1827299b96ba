#pragma once
// Samplers of distributions: element i of y depends on the key, i, and a's (and b's) element i.

#include "strata/core/tensor.h"
#include "strata/ops/distributions/samplers_inl.h"

namespace strata {

/// y from contiguous f64 tensors a and b of y's number of elements (b undefined where the kind takes one), y f64.
void sample_cpu(sampler::Kind kind, RngKey key, Tensor& y, const Tensor& a, const Tensor& b);
/// The same on a CUDA device, the last bits of logarithms and cosines aside, from and to tensors of one floating dtype;
/// rounded once.
void sample_cuda(sampler::Kind kind, RngKey key, Tensor& y, const Tensor& a, const Tensor& b);

}  // namespace strata
