#pragma once
// Cross entropy of logits whose classes lie planes apart, as an image's do.

#include <string>

#include "strata/ops/loss/loss_kernel.h"

namespace strata {

/// Logits [rows / inner, classes, inner], contiguous, against class indices [rows]; what CrossEntropyCall says of lse,
/// loss and grad_loss. `share`, one value of the arithmetic dtype: what each row's loss is multiplied by, 1 over the
/// number of rows that count where the mean is wanted; written by the forward pass, read by the backward.
struct PlanesCall {
  CrossEntropyCall rows;
  int64_t inner = 1;
  void* share = nullptr;
};
/// Fill loss, lse and share, and grad_x, on a CUDA device's current stream. Of a target that is no class the host hears
/// later (cuda/range.cuh); the loss and the row's gradient are NaN.
void cross_entropy_planes_cuda(const PlanesCall& c);
void cross_entropy_planes_backward_cuda(const PlanesCall& c);

namespace detail {
/// Whether logits x [N, C, ..] lie so, and have as many rows as a card has threads at work.
bool lies_in_planes(const Tensor& x);
/// cross_entropy of them and i64 classes [N, ..] without weights.
Tensor cross_entropy_planes(const Tensor& x, const Tensor& target, int64_t ignore_index, const std::string& reduction,
                            double smoothing);
}  // namespace detail

}  // namespace strata
