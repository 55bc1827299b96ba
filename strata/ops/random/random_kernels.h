#pragma once
// Kernels of the random ops. Element i of a result depends on the key and on i only.
#include "strata/core/rng.h"
#include "strata/core/tensor.h"

namespace strata {
/// Counter blocks that `n` elements of `dtype` use up.
uint64_t random_blocks(int64_t n, DType dtype);

void uniform_cpu(Tensor& y, const Shape& shape, double low, double high, RngKey key, DType dtype, Device device);
void normal_cpu(Tensor& y, const Shape& shape, double mean, double std, RngKey key, DType dtype, Device device);
void trunc_normal_cpu(Tensor& y, const Shape& shape, double mean, double std, double low, double high, RngKey key,
                      DType dtype, Device device);
void randint_cpu(Tensor& y, int64_t low, int64_t high, const Shape& shape, RngKey key, DType dtype, Device device);
void bernoulli_cpu(Tensor& y, const Tensor& p, RngKey key);
void multinomial_cpu(Tensor& y, const Tensor& weights, int64_t num_samples, bool replacement, RngKey key);
void randperm_cpu(Tensor& y, int64_t n, RngKey key, Device device);
}  // namespace strata
