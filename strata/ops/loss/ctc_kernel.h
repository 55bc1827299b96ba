#pragma once
// Kernels of the CTC loss (Graves et al., 2006, https://doi.org/10.1145/1143844.1143891) on raw memory.

#include <cstdint>

#include "strata/core/dtype.h"

namespace strata {

/// A batch of sequences. State s of a sequence is a blank where s is even, else label s / 2; with `labels` labels at
/// most there are 2 labels + 1. Rows of log_probs lie apart as the strides say, their classes side by side; everything
/// else is contiguous. R below is f32, f64 for f64.
struct CtcCall {
  DType dtype = DType::f32;
  int64_t steps = 0, batch = 0, classes = 0, labels = 0;
  int64_t step_stride = 0, batch_stride = 0;  // of log_probs [steps, batch, classes], in elements
  int64_t blank = 0;
  bool zero_infinity = false;
  const void* log_probs = nullptr;
  const int64_t *targets = nullptr, *input_lengths = nullptr, *target_lengths = nullptr;  // [batch, labels], [batch] x2
  void* loss = nullptr;                                                                   // R [batch]
  void* alpha = nullptr;  // R [batch, steps, states]: log-probability of the prefixes that end in a state
  // Backward only.
  const void* grad_loss = nullptr;  // R [batch]
  void* grad = nullptr;             // [steps, batch, classes]

  constexpr int64_t states() const { return 2 * labels + 1; }
};
/// Fills loss and alpha; alpha is -inf outside a sequence. Throws ValueError for lengths and IndexError for labels out
/// of range.
void ctc_forward_cpu(const CtcCall& c);
/// Fills grad from alpha and grad_loss: -grad_loss times the probability that a step has a class, given the labels.
void ctc_backward_cpu(const CtcCall& c);

/// The same on the current stream of a CUDA device, where a sequence with a length or label out of range, of
/// which the host hears later, has the loss and gradient NaN; so has one whose labels hold the blank.
void ctc_forward_cuda(const CtcCall& c);
void ctc_backward_cuda(const CtcCall& c);

}  // namespace strata
