#pragma once
// One step of a GRU or LSTM on raw memory.

#include <cstdint>

#include "strata/core/dtype.h"
#include "strata/ops/rnn/records.h"

namespace strata::recurrent {

/// h and (LSTM) c [batch, hidden] after a step, on a CUDA device: from_x and from_h [batch, gates hidden] are what the
/// input and the state give the gates, `before` is the h (GRU) or c (LSTM) before. Row-major, of one floating dtype,
/// rounded once.
void step_cuda(Cell cell, DType t, int64_t batch, int64_t hidden, const void* from_x, const void* from_h,
               const void* before, void* h, void* c);

}  // namespace strata::recurrent
