#pragma once
// The steps of one direction of a recurrent layer, on raw memory. A kernel has all steps: the recurrent weight is read
// in one layout, and nothing is allocated or recorded between them.

#include <cstdint>

#include "strata/core/dtype.h"
#include "strata/ops/rnn/records.h"

namespace strata::recurrent {

/// What a kernel keeps of each step beside the states: activated gates i, f, g, o of the LSTM; r, z, n and the part of
/// n that r multiplies of the GRU; nothing of the others, whose states say it.
constexpr int64_t kept_gates(Cell cell) {
  return cell == Cell::lstm || cell == Cell::gru ? 4 : 0;
}

/// A forward call. All is contiguous and of dtype t; G is gates(cell), H hidden. Arrays of rows have one for each
/// sequence that has the step, step after step.
struct RecurrenceCall {
  Cell cell;
  DType t;
  int64_t steps, batch, hidden;
  bool reverse;           ///< from the last step to the first
  bool tf32;              ///< on a card f32 operands of products are rounded to TF32
  const int64_t* counts;  ///< [steps]: how many sequences, the first ones, have each step; nullptr: all
  const int64_t* firsts;  ///< [steps], with counts: how many rows of from_x are those of earlier steps
  int64_t rows;           ///< of from_x and of gates: steps batch, with counts their sum
  const void* from_x;     ///< [rows, G H]: what the input gives the gates
  const void *h, *c;      ///< [batch, H]: the first states; c of the LSTM only
  const void *w, *bias;   ///< [G H, H], [G H] or nullptr
  void *y, *states;       ///< [steps, batch, H]: h and c after each step. A sequence that lacks a step keeps its state.
  void* gates;            ///< [rows, kept_gates H], or nullptr where no gradient is wanted
};
void recurrence_cpu(const RecurrenceCall& r);

/// Its gradient, from the gradients gy and (nullptr: zero) gstates of y and states.
struct RecurrenceBackwardCall {
  RecurrenceCall forward;  ///< y, states and gates are read; from_x and bias are none
  const void *gy, *gstates;
  void* gfrom_x;  ///< [rows, G H]
  void* gfrom_h;  ///< GRU: the same of what h gives the gates, where n differs; else nullptr, since it is gfrom_x
  void *gh, *gc;  ///< [batch, H]
};
void recurrence_backward_cpu(const RecurrenceBackwardCall& r);

/// One step of n sequences, for the copy of each processor level: rows of `hidden` elements, or of as many as there are
/// gates, one after the other; of the call's dtype but for sums and carry, which are f32 (f64 for f64).
struct StepRows {
  Cell cell;
  int64_t n, hidden;
  const void* from_x;
  void* sums;         ///< forward: what h gives the gates. Backward: the gradient of h, as far as it is known
  void* carry;        ///< LSTM: c (backward: its gradient) in f32, from step to step
  const void *h, *c;  ///< the states before
  void *y, *states, *gates;
  const void *gy, *gstates;
  void *gfrom_x, *gfrom_h;
};

}  // namespace strata::recurrent
