#pragma once
// weight_norm of rows and its gradient on raw memory, row-major, of one floating dtype, sums in f32 or f64.

#include <cstdint>

#include "strata/core/dtype.h"
#include "strata/core/tensor.h"

namespace strata {

/// For each of `rows` rows of n elements: along = the sum of gy * v, gg = along / |v| and gv = g / |v| (gy - v along /
/// |v|^2).
void weight_norm_backward_cpu(DType t, const void* gy, const void* v, const void* g, int64_t rows, int64_t n, void* gv,
                              void* gg);
void weight_norm_backward_cuda(DType t, const void* gy, const void* v, const void* g, int64_t rows, int64_t n, void* gv,
                               void* gg);
/// y = g / |v| v for each row.
void weight_norm_cpu(DType t, const void* v, const void* g, int64_t rows, int64_t n, void* y);
void weight_norm_cuda(DType t, const void* v, const void* g, int64_t rows, int64_t n, void* y);

/// Whether rows are many or short enough for a block of a card to have one each.
inline bool blocks_have_rows(int64_t rows, int64_t n) {
  return rows > 0 && n > 0 && rows < (int64_t{1} << 31) && (n <= 65536 || rows >= 128);
}

/// y = v times g, which broadcasts, over the lengths of v's slices along `kept`, in one launch on a CUDA device. False,
/// with nothing done, where v or y has gaps, dtypes differ, or a length has too many elements for a block.
bool weight_norm_across_cuda(const Tensor& y, const Tensor& v, const Tensor& g, int64_t kept);

}  // namespace strata
