#pragma once
// SwiGLU, and GEGLU on cards, on raw memory; everything is contiguous unless a stride is named.

#include <cstdint>

#include "strata/core/dtype.h"

namespace strata {

/// What is made of a before it is multiplied by b.
enum class Gate : uint8_t { silu, gelu, gelu_tanh };

/// y = gate(a) * b for `rows` rows of n values; a_row, b_row: elements between rows. y is contiguous.
struct SwigluCall {
  DType dtype = DType::f32;
  Gate gate = Gate::silu;  // others on a CUDA device alone
  int64_t rows = 0, n = 0, a_row = 0, b_row = 0;
  const void *a = nullptr, *b = nullptr;
  void* y = nullptr;
  // Backward only.
  const void* grad_y = nullptr;  // contiguous
  void *grad_a = nullptr, *grad_b = nullptr;
  int64_t grad_a_row = 0, grad_b_row = 0;
  // Where the largest magnitudes go (cuda::magnitudes_beside): of y, or of a tensor that grad_a and grad_b fill.
  uint32_t* most = nullptr;
};
void swiglu_cpu(const SwigluCall& c);
void swiglu_backward_cpu(const SwigluCall& c);

// The same on a CUDA device.
void swiglu_cuda(const SwigluCall& c);
void swiglu_backward_cuda(const SwigluCall& c);

}  // namespace strata
