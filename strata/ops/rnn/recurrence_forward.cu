#include "strata/core/dispatch.h"
#include "strata/cuda/current.h"
#include "strata/ops/rnn/recurrence.cuh"
#include "strata/ops/rnn/recurrence_cell.cuh"

namespace strata::recurrent {

void recurrence_cuda(const RecurrenceCall& given) {
  if (given.steps * given.batch * given.hidden == 0) return;
  if (given.counts == nullptr && units_alone(given.cell, given.t, given.tf32, given.hidden) > 0)
    return recurrence_alone(given);
  if (given.counts == nullptr &&
      by_products(given.cell, given.t, given.tf32, given.batch, given.hidden, card_limits(cuda::current_device())))
    return recurrence_by_products(given);
  const int64_t g = gates(given.cell);
  WalkCall call({given.batch, given.hidden, g, given.hidden, static_cast<int64_t>(size_of(given.t)), given.tf32},
                given.c == nullptr ? 0 : given.batch * given.hidden, given.counts == nullptr ? 0 : given.steps);
  RecurrenceCall r = given;
  call.place(r);
  dispatch_operands(r.t, r.tf32, "recurrence", [&]<class P>() {
    using T = stored_t<P>;
    using Step = ForwardStep<T>;
    call.prepare<P, false>(r.w, g, r.h, r.c);
    Step step{r, static_cast<compute_t<T>*>(call.own), static_cast<int>(g)};
    call.launch(walk_kernel_of<P, Step>(call.plan), streaming_kernel_of<P, Step>(call.plan), &step, r.steps);
  });
}

}  // namespace strata::recurrent
