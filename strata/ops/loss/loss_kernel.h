#pragma once
// Loss kernels on raw memory; everything is contiguous.

#include <cstdint>
#include <type_traits>

#include "strata/core/dtype.h"
#include "strata/core/tensor.h"

namespace strata {

enum class Reduction : uint8_t { none, mean, sum };

/// Cross entropy of `rows` rows of `classes` logits against class indices. loss, lse and grad_loss are f32, f64 for
/// f64.
struct CrossEntropyCall {
  DType dtype = DType::f32;
  int64_t rows = 0, classes = 0, ignore_index = -100;
  int64_t row_stride = 0;  // of x and grad_x in elements, 0 for classes; the CUDA kernels' alone
  double smoothing = 0;
  Reduction reduction = Reduction::mean;
  const void* x = nullptr;
  const int64_t* target = nullptr;
  void* loss = nullptr;  // [rows] for none, else one value
  void* lse = nullptr;   // [rows], log of the sum of exponentials
  // Backward only.
  const void* grad_loss = nullptr;  // as loss
  void* grad_x = nullptr;
};
/// Fills loss and lse. Throws IndexError where a target is neither a class nor ignore_index.
void cross_entropy_cpu(const CrossEntropyCall& c);
/// Fills grad_x from x, target, lse and grad_loss in one pass.
void cross_entropy_backward_cpu(const CrossEntropyCall& c);

/// Losses of pairs (x, target) of equal shape, `param` being delta (huber), beta (smooth_l1) or log_target (kl_div).
enum class PairLoss : uint8_t { mse, l1, smooth_l1, huber, bce_with_logits, kl_div };
/// f(integral constant) for the loss that `kind` names.
template <class F>
auto dispatch_pair_loss(PairLoss kind, F&& f) {
  switch (kind) {
    case PairLoss::mse:
      return f(std::integral_constant<PairLoss, PairLoss::mse>{});
    case PairLoss::l1:
      return f(std::integral_constant<PairLoss, PairLoss::l1>{});
    case PairLoss::smooth_l1:
      return f(std::integral_constant<PairLoss, PairLoss::smooth_l1>{});
    case PairLoss::huber:
      return f(std::integral_constant<PairLoss, PairLoss::huber>{});
    case PairLoss::bce_with_logits:
      return f(std::integral_constant<PairLoss, PairLoss::bce_with_logits>{});
    default:
      return f(std::integral_constant<PairLoss, PairLoss::kl_div>{});
  }
}

/// loss [n] for none, else one value: the sum over `divisor`. Sums have one order for any number of threads.
void pair_loss_cpu(PairLoss kind, DType t, const void* x, const void* target, int64_t n, double param,
                   Reduction reduction, double divisor, void* loss);

/// -(t log p + (1 - t) log(1 - p)) of each pair, logarithms being at least -100, on a CUDA device; of one floating
/// dtype.
void bce_pairs_cuda(Tensor& y, const Tensor& p, const Tensor& t);
void bce_pairs_backward_cuda(Tensor& y, const Tensor& g, const Tensor& p, const Tensor& t, bool of_target);

/// The same on the current stream of a CUDA device. Of a target that is no class the host hears later (cuda/range.cuh);
/// the loss and the row's gradient are NaN.
void cross_entropy_cuda(const CrossEntropyCall& c);
void cross_entropy_backward_cuda(const CrossEntropyCall& c);
/// grad_x [rows, classes] holds logits, and then their gradient for a loss that is the rows' sum times grad_loss, one
/// value (null: 1); loss and lse are [rows].
void cross_entropy_both_cuda(const CrossEntropyCall& c);
/// share, one value: 1 over the number of rows that count where c.reduction is mean, else 1.
void cross_entropy_share_cuda(const CrossEntropyCall& c, void* share);
/// loss, one value, from the losses `each` of all rows (f32, f64 for f64) by c.reduction, mean or sum.
void cross_entropy_total_cuda(const CrossEntropyCall& c, const void* each);
void pair_loss_cuda(PairLoss kind, DType t, const void* x, const void* target, int64_t n, double param,
                    Reduction reduction, double divisor, void* loss);

/// nll_loss of log-probabilities x [outer, classes, inner] with any strides against class indices [outer inner].
struct NllCall {
  DType dtype = DType::f32;
  int64_t outer = 0, classes = 0, inner = 1, ignore_index = -100;
  int64_t stride[3] = {};  // of x, in elements
  Reduction reduction = Reduction::mean;
  const void* x = nullptr;
  const int64_t* target = nullptr;
  const void* weight = nullptr;  // [classes] of dtype's arithmetic type; null: 1
#ifdef __CUDACC__
  __host__ __device__
#endif
      int64_t
      rows() const {
    return outer * inner;
  }
};
/// loss, of dtype: -x[target] weight[target] of each row, their sum, or their mean over the weights.
void nll_loss_cuda(const NllCall& c, void* loss);
/// grad_x [outer, classes, inner], row-major, from the loss's gradient, both of dtype.
void nll_loss_backward_cuda(const NllCall& c, const void* grad_loss, void* grad_x);

/// y = x * factor; factor, of x's arithmetic dtype, has any strides.
void scale_cuda(const Tensor& y, const Tensor& x, const Tensor& factor);
/// y *= factor for contiguous y and one value of its arithmetic dtype; where that is 1, y is not touched.
void scale_in_place_cuda(const Tensor& y, const Tensor& factor);

}  // namespace strata
