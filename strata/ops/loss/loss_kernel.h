#pragma once
// Loss kernels on raw memory; everything is contiguous.

#include <cstdint>

#include "strata/core/dtype.h"

namespace strata {

enum class Reduction : uint8_t { none, mean, sum };

/// Cross entropy of `rows` rows of `classes` logits against class indices. lse and grad_loss are f32, f64 for f64.
struct CrossEntropyCall {
  DType dtype = DType::f32;
  int64_t rows = 0, classes = 0, ignore_index = -100;
  double smoothing = 0;
  Reduction reduction = Reduction::mean;
  const void* x = nullptr;
  const int64_t* target = nullptr;
  void* loss = nullptr;  // of dtype: [rows] for none, else one value
  void* lse = nullptr;   // [rows], log of the sum of exponentials
  // Backward only.
  const void* grad_loss = nullptr;  // of dtype, as loss
  void* grad_x = nullptr;
};
/// Fills loss and lse. Throws IndexError where a target is neither a class nor ignore_index.
void cross_entropy_cpu(const CrossEntropyCall& c);
/// Fills grad_x from x, target, lse and grad_loss in one pass.
void cross_entropy_backward_cpu(const CrossEntropyCall& c);

}  // namespace strata
