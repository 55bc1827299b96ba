#pragma once
// What the kernels of low-bit products read, on any device.

#include <cstdint>

#include "strata/core/tensor.h"
#include "strata/ops/lowbit/weight_format.h"

namespace strata {

/// A packed matrix on raw memory, its blocks resolved. All parts lie densely on one device.
struct PackedView {
  WeightCodes kind;
  DType scale_dtype;  ///< floating, or u8 where `nested`
  int64_t rows, columns;
  int64_t row_bytes;
  int64_t block_rows, block_columns, grid_columns;
  const uint8_t* codes;
  const void* scales;    ///< null where the codes hold them
  const uint8_t* zeros;  ///< u8, of int8 i8; or null
  const int32_t* order;  ///< or null
  const float* nested;   ///< or null

  /// Whether codes are unsigned and stand for (code - zero), 8 where there are no zeros.
  float default_zero() const { return kind == WeightCodes::int4 ? 8.0f : 0.0f; }
};

/// Rows of x up to which a card's product decodes W as it goes, and a processor's rounds no number of W.
inline constexpr int64_t kMostFusedRows = 32;
/// Bytes of W that are decoded at a time for the engine's products: of a card, where layers of 8B models are one panel
/// (a gradient of several adds them up in f32, as much memory again for each as the gradient has), and of a processor,
/// whose memory a budget counts to the last MiB.
inline constexpr int64_t kPanelBytesCuda = int64_t{256} << 20, kPanelBytesCpu = int64_t{8} << 20;

namespace cpu {
/// W's rows [begin, end) as `dtype` into `to`, `stride` elements apart, in W's order of columns. On the calling thread.
void lowbit_decode(const PackedView& w, int64_t begin, int64_t end, DType dtype, void* to, int64_t stride);
/// Rows of x of `dtype` up to which lowbit_product() is faster than decoding W for the engine's product.
int64_t lowbit_most_rows(DType dtype);
/// y[i, n] = the sum over k of x[i, k] W[n, k], plus bias[n] unless null: x [m, columns], y [m, rows] and bias dense,
/// of `dtype`, which is not f64; m and columns > 0. Sums in f32 of W's numbers in f32; of bf16 past kMostFusedRows rows
/// they may be rounded to bf16. The same bits for any number of threads. On all threads.
void lowbit_product(const PackedView& w, DType dtype, const void* x, int64_t m, const void* bias, void* y);
/// For forecasts: the most bytes that packed_linear of m rows of x with a matrix [rows, columns], and its gradient,
/// take besides arguments and results on the thread that calls them.
int64_t lowbit_workspace(int64_t rows, int64_t columns, DType dtype, int64_t m);
}  // namespace cpu

/// The same on a card: W's rows from `begin` on into `y` [some rows, columns], and the product for x [.., columns].
void lowbit_decode_cuda(const PackedView& w, int64_t begin, const Tensor& y);
void lowbit_product_cuda(const PackedView& w, const Tensor& x, const Tensor& bias, const Tensor& y);

}  // namespace strata
