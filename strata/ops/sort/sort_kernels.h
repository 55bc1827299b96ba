#pragma once
#include <tuple>

#include "strata/core/tensor.h"

namespace strata {
void sort_cpu(Tensor& values, Tensor& indices, const Tensor& x, int64_t dim, bool descending);
void topk_cpu(Tensor& values, Tensor& indices, const Tensor& x, int64_t k, int64_t dim, bool largest);
void kthvalue_cpu(Tensor& values, Tensor& indices, const Tensor& x, int64_t k, int64_t dim, bool keepdim);
std::tuple<Tensor, Tensor, Tensor> unique_cpu(const Tensor& x, bool return_inverse, bool return_counts);
void searchsorted_cpu(Tensor& y, const Tensor& sorted, const Tensor& values, bool right);

// On a CUDA device; in a build without CUDA unique_cuda throws and the others are not there.
void sort_cuda(Tensor& values, Tensor& indices, const Tensor& x, int64_t dim, bool descending);
void topk_cuda(Tensor& values, Tensor& indices, const Tensor& x, int64_t k, int64_t dim, bool largest);
void kthvalue_cuda(Tensor& values, Tensor& indices, const Tensor& x, int64_t k, int64_t dim, bool keepdim);
std::tuple<Tensor, Tensor, Tensor> unique_cuda(const Tensor& x, bool return_inverse, bool return_counts);
void searchsorted_cuda(Tensor& y, const Tensor& sorted, const Tensor& values, bool right);
}  // namespace strata
