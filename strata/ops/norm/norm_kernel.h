#pragma once
// Normalisation kernels on raw memory. Everything is contiguous. Statistics (mean, rstd) are f32, f64 for f64.
// Weights and biases have x's dtype, or f32; `affine` names it. Null weight means 1, null bias 0.

#include <cstdint>

#include "strata/core/tensor.h"

namespace strata {

/// What a kernel is given of an optional tensor: its elements in row-major order, or nullptr.
inline Tensor packed(const Tensor& t) {
  return t.defined() ? t.contiguous() : t;
}
inline void* data_or_null(const Tensor& t) {
  return t.defined() ? t.raw_data() : nullptr;
}

/// Normalisation of each of `rows` rows of n values: y = (x - mean) * rstd * weight + bias, the variance taken with
/// divisor n; with `rms` mean is 0 (and not stored): y = x / sqrt(mean(x^2) + eps) * weight. Where residual is given,
/// x + residual is normalised, before it is rounded and stored in sum.
struct RowNorm {
  DType dtype = DType::f32, affine = DType::f32;
  bool rms = false;
  int64_t rows = 0, n = 0;
  double eps = 1e-5;
  const void *x = nullptr, *weight = nullptr, *bias = nullptr, *residual = nullptr;
  void *y = nullptr, *sum = nullptr, *mean = nullptr, *rstd = nullptr;
  uint32_t* most = nullptr;  ///< cuda::magnitudes_beside(y)
};
void row_norm_cpu(const RowNorm& c);
void row_norm_cuda(const RowNorm& c);  ///< on the current stream

/// The gradients: of x (the normalised sum, where there was a residual) plus grad_sum if that is given, and, where
/// asked for, of weight and bias. Sums over rows have one order for any number of threads.
struct RowNormBackward {
  DType dtype = DType::f32, affine = DType::f32;
  bool rms = false;
  int64_t rows = 0, n = 0;
  const void *grad_y = nullptr, *x = nullptr, *weight = nullptr, *mean = nullptr, *rstd = nullptr, *grad_sum = nullptr;
  void *grad_x = nullptr, *grad_weight = nullptr, *grad_bias = nullptr;
  uint32_t* most = nullptr;  ///< cuda::magnitudes_beside(grad_x)
};
void row_norm_backward_cpu(const RowNormBackward& c);
void row_norm_backward_cuda(const RowNormBackward& c);  ///< on the current stream

/// x is [batch, channels, inner]. Group g of batch item b takes channels / groups channels; statistics are [batch,
/// groups]. Batch normalisation is the case `across_batch`: one statistic per channel, groups == channels.
struct ChannelNorm {
  DType dtype = DType::f32, affine = DType::f32;
  int64_t batch = 0, channels = 0, inner = 0, groups = 0;
  bool across_batch = false;
  double eps = 1e-5;
  const void *x = nullptr, *weight = nullptr, *bias = nullptr;
  void *y = nullptr, *mean = nullptr, *rstd = nullptr;
};
void channel_norm_cpu(const ChannelNorm& c);
void channel_norm_cuda(const ChannelNorm& c);  ///< on the current stream

struct ChannelNormBackward {
  DType dtype = DType::f32, affine = DType::f32;
  int64_t batch = 0, channels = 0, inner = 0, groups = 0;
  bool across_batch = false;
  const void *grad_y = nullptr, *x = nullptr, *weight = nullptr, *mean = nullptr, *rstd = nullptr;
  void *grad_x = nullptr, *grad_weight = nullptr, *grad_bias = nullptr;
};
void channel_norm_backward_cpu(const ChannelNormBackward& c);
void channel_norm_backward_cuda(const ChannelNormBackward& c);  ///< on the current stream

/// Group normalisation with inner 1.
void group_rows_cuda(const ChannelNorm& c);
void group_rows_backward_cuda(const ChannelNormBackward& c);

/// Batch normalisation of [batch, channels] with inner 1, which is how images lie whose channels are innermost.
void column_norm_cuda(const ChannelNorm& c);
void column_norm_backward_cuda(const ChannelNormBackward& c);

}  // namespace strata
