#pragma once
// copy_elements() and fill_elements() by device.

#include "strata/core/tensor.h"

namespace strata {

void copy_elements_cpu(const Tensor& dst, const Tensor& src);
void fill_elements_cpu(const Tensor& dst, Scalar value);
/// to[i] = from[2 i] for n elements of `size` bytes (1, 2, 4 or 8).
void gather_second(int64_t size, void* to, const char* from, int64_t n);
/// to[r][c] = from[c][r] for elements of `size` bytes: lines of `from` have `rows` elements side by side and are
/// from_step bytes apart, those of `to` have `cols` and are to_step bytes apart.
void transpose_elements(int64_t size, const char* from, int64_t from_step, char* to, int64_t to_step, int64_t rows,
                        int64_t cols);
/// The same where a CUDA device takes part.
void copy_elements_cuda(const Tensor& dst, const Tensor& src);
void fill_elements_cuda(const Tensor& dst, Scalar value);
/// The same on the device that a record's body is compiled for, where all of it lies there.
template <class On>
void copy_elements(On on, const Tensor& dst, const Tensor& src) {
  if constexpr (on.cuda)
    copy_elements_cuda(dst, src);
  else
    copy_elements_cpu(dst, src);
}
template <class On>
void fill_elements(On on, const Tensor& dst, Scalar value) {
  if constexpr (on.cuda)
    fill_elements_cuda(dst, value);
  else
    fill_elements_cpu(dst, value);
}

}  // namespace strata
