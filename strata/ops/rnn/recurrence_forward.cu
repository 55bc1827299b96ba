#include "strata/core/dispatch.h"
#include "strata/ops/rnn/recurrence.cuh"
#include "strata/ops/rnn/recurrence_cell.cuh"

namespace strata::recurrent {

void recurrence_cuda(const RecurrenceCall& r) {
  if (r.steps * r.batch * r.hidden == 0) return;
  check_counts(r);
  const int64_t g = gates(r.cell);
  WalkCall call(r, {r.batch, r.hidden, g, r.hidden, static_cast<int64_t>(size_of(r.t))},
                r.c == nullptr ? 0 : r.batch * r.hidden);
  dispatch_floats(r.t, "recurrence", [&]<class T>() {
    using Step = ForwardStep<T>;
    call.prepare<T, false>(r, r.h, r.c);
    Step step{r, static_cast<compute_t<T>*>(call.own), static_cast<int>(g)};
    call.launch(walk_kernel_of<T, Step>(call.plan), streaming_kernel_of<T, Step>(call.plan), &step, r.steps);
  });
}

}  // namespace strata::recurrent
