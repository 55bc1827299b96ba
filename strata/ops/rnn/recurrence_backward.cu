#include "strata/core/dispatch.h"
#include "strata/cuda/current.h"
#include "strata/ops/rnn/recurrence.cuh"
#include "strata/ops/rnn/recurrence_cell.cuh"

namespace strata::recurrent {

void recurrence_backward_cuda(const RecurrenceBackwardCall& given) {
  RecurrenceBackwardCall b = given;
  RecurrenceCall& r = b.forward;
  if (r.batch * r.hidden == 0) return;
  if (r.counts == nullptr && by_products(r.cell, r.t, r.tf32, r.batch, r.hidden, card_limits(cuda::current_device())))
    return recurrence_backward_by_products(b);
  const int64_t g = gates(r.cell);
  const bool beside = r.cell == Cell::gru || r.counts != nullptr;
  WalkCall call({r.batch, r.hidden, 1, g * r.hidden, static_cast<int64_t>(size_of(r.t)), r.tf32},
                2 * r.batch * r.hidden, r.counts == nullptr ? 0 : r.steps);
  call.place(r);
  dispatch_operands(r.t, r.tf32, "recurrence_backward", [&]<class P>() {
    using T = stored_t<P>;
    using Step = BackwardStep<T>;
    call.prepare<P, true>(r.w, g, nullptr, nullptr);
    Step step{b, static_cast<compute_t<T>*>(call.own), static_cast<int>(g), beside};
    call.launch(walk_kernel_of<P, Step>(call.plan), streaming_kernel_of<P, Step>(call.plan), &step, r.steps + 1);
  });
}

}  // namespace strata::recurrent
