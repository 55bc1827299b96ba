#pragma once
#include "strata/core/tensor.h"

namespace strata {
namespace detail {

/// y[k] = b[k] + a[k] y[k - 1] along dim, y[0] = b[0]; with reverse from the end, y[k] = b[k] + a[k + 1] y[k + 1]: a[k]
/// links k - 1 and k both ways, and a[0] links nothing. Each is the gradient of the other.
Tensor linear_recurrence(const Tensor& a, const Tensor& b, int64_t dim, bool reverse = false);
/// x, a place later along dim, which has elements; the first become `value`.
Tensor shifted(const Tensor& x, int64_t dim, double value);

}  // namespace detail

void linear_recurrence_cpu(Tensor& y, const Tensor& a, const Tensor& b, int64_t dim, bool reverse);
void linear_recurrence_cuda(Tensor& y, const Tensor& a, const Tensor& b, int64_t dim, bool reverse);
/// y = g added up over runs of equal neighbours in indices along dim, at a run's first element; elsewhere 0. On a CUDA
/// device.
void put_runs_cuda(Tensor& y, const Tensor& g, const Tensor& indices, int64_t dim);
void logcumsumexp_cpu(Tensor& y, const Tensor& x, int64_t dim);
void logcumsumexp_cuda(Tensor& y, const Tensor& x, int64_t dim);

}  // namespace strata
