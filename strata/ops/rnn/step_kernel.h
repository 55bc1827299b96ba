#pragma once
// What one step of the LSTM or the GRU is behind its products, on contiguous memory.

#include <string>

#include "strata/core/tensor.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/rnn/recurrence_kernel.h"

namespace strata::recurrent {

/// A step of n sequences. Gates are of dtype t, states of dtype `own`: t, or f32 where t has 16 bits.
struct StepCall {
  Cell cell;
  DType t, own;
  int64_t n, hidden;
  const void *from_x, *from_h;  ///< [n, gates hidden]
  const void* before;           ///< [n, hidden]: c of the LSTM, h of the GRU
  void *h, *c;                  ///< [n, hidden]; c of the LSTM only
  void* gates;                  ///< [n, 4 hidden], or nullptr
};
void step_forward_cpu(const StepCall& s);
void step_forward_cuda(const StepCall& s);

/// Its gradient, from those of h and (nullptr: zero) c.
struct StepBackwardCall {
  Cell cell;
  DType t, own;
  int64_t n, hidden;
  const void *gh, *gc, *before, *c, *gates;
  void *gfrom_x, *gfrom_h;  ///< [n, gates hidden]; gfrom_h of the GRU only
  void* gbefore;            ///< [n, hidden]: for the GRU what does not come through from_h
};
void step_backward_cpu(const StepBackwardCall& s);
void step_backward_cuda(const StepBackwardCall& s);

template <auto Kernel>
void step_forward(Tensor& h, Tensor& c, Tensor& gates, const Tensor& from_x, const Tensor& from_h, const Tensor& before,
                  const std::string& cell, bool) {
  if (h.numel() == 0) return;
  const Tensor x = contiguous(from_x), y = contiguous(from_h), b = contiguous(before);
  Kernel({.cell = cell == "lstm" ? Cell::lstm : Cell::gru,
          .t = x.dtype(),
          .own = b.dtype(),
          .n = b.size(0),
          .hidden = b.size(1),
          .from_x = x.raw_data(),
          .from_h = y.raw_data(),
          .before = b.raw_data(),
          .h = h.raw_data(),
          .c = c.numel() > 0 ? c.raw_data() : nullptr,
          .gates = gates.numel() > 0 ? gates.raw_data() : nullptr});
}

template <auto Kernel>
void step_backward(Tensor& gfrom_x, Tensor& gfrom_h, Tensor& gbefore, const Tensor& gh, const Tensor& gc,
                   const Tensor& before, const Tensor& c, const Tensor& gates, const std::string& cell) {
  if (gh.numel() == 0) return;
  const Tensor dh = contiguous(gh), b = contiguous(before), states = contiguous(c), kept = contiguous(gates),
               dc = gc.defined() ? contiguous(gc) : Tensor();
  Kernel({.cell = cell == "lstm" ? Cell::lstm : Cell::gru,
          .t = kept.dtype(),
          .own = b.dtype(),
          .n = b.size(0),
          .hidden = b.size(1),
          .gh = dh.raw_data(),
          .gc = dc.defined() ? dc.raw_data() : nullptr,
          .before = b.raw_data(),
          .c = states.numel() > 0 ? states.raw_data() : nullptr,
          .gates = kept.raw_data(),
          .gfrom_x = gfrom_x.raw_data(),
          .gfrom_h = gfrom_h.numel() > 0 ? gfrom_h.raw_data() : nullptr,
          .gbefore = gbefore.raw_data()});
}

}  // namespace strata::recurrent
