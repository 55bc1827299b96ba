#pragma once
// What the records of the losses share.

#include <string>
#include <string_view>

#include "strata/core/tensor.h"
#include "strata/ops/loss/loss_kernel.h"

namespace strata {

/// Throws ValueError naming `op` unless text is "none", "mean" or "sum".
Reduction parse_reduction(std::string_view text, std::string_view op);

namespace detail {
/// Throws ShapeError unless target has the shape of x [N, C, ...] (or [C]) without C.
void check_targets_fit(const Tensor& x, const Tensor& target, std::string_view op);
/// x [N, C, ...] (or [C]) as rows [N * ..., C], to go with target.reshape({target.numel()}). Throws ShapeError.
Tensor class_last(const Tensor& x, const Tensor& target, std::string_view op);
/// The fused losses of pairs (x, target), which broadcast; `param` is delta, beta or log_target.
Tensor pair_loss(PairLoss kind, const Tensor& x, const Tensor& target, const std::string& reduction, double param = 0);
/// cross_entropy of rows x [N, C] and i64 classes [N] without weights.
Tensor cross_entropy_rows(const Tensor& x, const Tensor& target, int64_t ignore_index, const std::string& reduction,
                          double smoothing);
/// nll_loss of the same; x may also be [N, C, I] and the classes [N I]. weight is undefined or of x's arithmetic dtype.
Tensor nll_rows(const Tensor& x, const Tensor& target, const Tensor& weight, int64_t ignore_index,
                const std::string& reduction);
/// Losses composed of ops compute in f32 where an argument is bf16 or f16, and round once: x as f32, or as it is.
Tensor widened(const Tensor& x);
/// `each` averaged, added or as it is, in `dtype`; `op` is who asks.
Tensor reduced(const Tensor& each, const std::string& reduction, DType dtype, std::string_view op);
/// [N, C] in `dtype`: 1 at each target [N], 0 elsewhere.
Tensor at_targets(const Tensor& target, int64_t classes, DType dtype);
/// [N, 1] in `dtype`: 1 in rows whose target is not ignore_index, or with the mean 1 over their number; else 0.
Tensor row_shares(const Tensor& target, int64_t ignore_index, bool mean, DType dtype);
/// x times a 0-dim factor of x's arithmetic dtype, rounded once.
Tensor scaled(const Tensor& x, const Tensor& factor);
/// What linear_cross_entropy takes beside its results while it runs on a CUDA device, in bytes: logits of a chunk of
/// the rows, and weight [classes, width] in `dtype` where it is f32.
int64_t linear_cross_entropy_workspace(int64_t rows, int64_t width, int64_t classes, DType dtype);
}  // namespace detail

}  // namespace strata
