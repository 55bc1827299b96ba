#pragma once
// What this family's files for cards share. A row-major matrix is to cuSOLVER and cuBLAS its transpose; copies that
// turn matrices round are ops.

#include <algorithm>
#include <climits>

#include "strata/core/dispatch.h"
#include "strata/cuda/cusolver.h"
#include "strata/cuda/kernel.cuh"
#include "strata/ops/copy/copy.h"
#include "strata/ops/linalg/records.h"
#include "strata/ops/view/view.h"

namespace strata::linalg_cuda {

using cuda::check_dense;
using cuda::dense;
using linalg::batch_of;
using linalg::cols;
using linalg::Failure;
using linalg::mT;
using linalg::require_success;
using linalg::rows;

inline int as_int(std::string_view op, int64_t n) {
  check<ShapeError>(n <= INT_MAX, op, "a side of ", n, " is longer than cuSOLVER takes");
  return static_cast<int>(n);
}
template <class T>
T* at(const Tensor& t, int64_t offset = 0) {
  return static_cast<T*>(t.raw_data()) + offset;
}
inline Tensor made(const Tensor& beside, const Shape& shape, DType dtype) {
  return empty({shape, dtype, beside.device(), std::nullopt});
}
// A row-major copy that may be written over; of mT(A): A by columns.
inline Tensor copied(const Tensor& A) {
  const Tensor c = made(A, A.shape(), A.dtype());
  Tensor to = c;
  to.copy_(A);
  return c;
}
template <class F>
void wide(const Tensor& t, std::string_view op, F&& f) {
  dispatch_wide_floats(t.dtype(), op, f);
}

/// The addresses of the matrices of a row-major batch, on the device.
Tensor addresses(const Tensor& batch, int64_t count);

}  // namespace strata::linalg_cuda
