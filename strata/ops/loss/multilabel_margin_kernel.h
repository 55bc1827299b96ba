#pragma once
// The rows of multilabel_margin_loss by all pairs of a target class and another: for rows of no more classes than
// these.

#include "strata/core/tensor.h"

namespace strata {

inline constexpr int64_t kMostPairedClasses = 4096;

namespace detail {
/// For scores x [N, C] and targets [N, C] (i64, up to the first negative one) the sum over pairs of a target t and a
/// class c that is none of max(0, 1 - x[t] + x[c]), [N]. NaN among the scores makes its row NaN.
Tensor multilabel_margin_rows(const Tensor& x, const Tensor& target);
}  // namespace detail

void multilabel_margin_rows_cpu(Tensor& y, const Tensor& x, const Tensor& target);
void multilabel_margin_rows_cuda(Tensor& y, const Tensor& x, const Tensor& target);
void multilabel_margin_rows_backward_cpu(Tensor& gx, const Tensor& g, const Tensor& x, const Tensor& target);
void multilabel_margin_rows_backward_cuda(Tensor& gx, const Tensor& g, const Tensor& x, const Tensor& target);

}  // namespace strata
