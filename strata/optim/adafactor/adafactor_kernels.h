#pragma once
// The loops of Adafactor over many tensors.

#include <cstdint>
#include <span>

#include "strata/core/dtype.h"
#include "strata/optim/storage_cpu.h"

namespace strata::optim {

/// One tensor as `batch` matrices of rows x cols. Without `columns`, `variance` has an element for each of the
/// tensor's; with it, `variance` has batch x rows means over columns and `columns` batch x cols means over rows.
struct AdafactorJob {
  void* param = nullptr;
  const void* grad = nullptr;
  void* variance = nullptr;
  void* columns = nullptr;
  int64_t batch = 1, rows = 1, cols = 1;
  DType dtype = DType::f32;       ///< of param; the moments are f64 beside f64, else f32
  DType grad_dtype = DType::f32;  ///< f64 beside f64, else f32, bf16 or f16
  void* low = nullptr;            ///< a copy of an f32 param in low_dtype that is written with it
  DType low_dtype = DType::bf16;
  Rounding rounding = {};  ///< of a param of 16 bits
  double grad_scale = 1, keep = 0, eps1 = 0, eps2 = 0, clip_threshold = 1, rate = 0, decay = 1;
};
/// Updates parameters and states; the result does not depend on the number of threads.
void run_adafactor(std::span<const AdafactorJob> jobs);

}  // namespace strata::optim
