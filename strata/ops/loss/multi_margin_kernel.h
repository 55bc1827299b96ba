#pragma once
// The rows of multi_margin_loss.

#include "strata/core/tensor.h"

namespace strata {

namespace detail {
/// For scores x [N, C] (f32 or f64) and classes target [N] (i64) the sums over the other classes c of max(0, margin -
/// x[target] + x[c])^p / C, [N]; p is 1 or 2.
Tensor multi_margin_rows(const Tensor& x, const Tensor& target, int64_t p, double margin);
}  // namespace detail

void multi_margin_rows_cpu(Tensor& y, const Tensor& x, const Tensor& target, int64_t p, double margin);
void multi_margin_rows_backward_cpu(Tensor& gx, const Tensor& g, const Tensor& x, const Tensor& target, int64_t p,
                                    double margin);
void multi_margin_rows_cuda(Tensor& y, const Tensor& x, const Tensor& target, int64_t p, double margin);
void multi_margin_rows_backward_cuda(Tensor& gx, const Tensor& g, const Tensor& x, const Tensor& target, int64_t p,
                                     double margin);

}  // namespace strata
