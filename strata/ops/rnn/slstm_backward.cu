#include "strata/core/dispatch.h"
#include "strata/ops/rnn/recurrence.cuh"
#include "strata/ops/rnn/slstm_walk.cuh"

namespace strata::recurrent {

void slstm_recurrence_backward_cuda(const SlstmBackwardCall& s) {
  const SlstmCall& f = s.forward;
  if (f.batch * f.hidden == 0) return;
  WalkCall call({f.batch, f.hidden, 1, 4 * f.hidden, static_cast<int64_t>(size_of(f.t)), f.tf32},
                2 * f.batch * f.hidden);
  dispatch_operands(f.t, f.tf32, "slstm_recurrence_backward", [&]<class P>() {
    using T = stored_t<P>;
    using Step = SlstmBackwardStep<T>;
    call.prepare<P, true>(f.w, 4, nullptr, nullptr);
    Step step{s, static_cast<compute_t<T>*>(call.own)};
    call.launch(walk_kernel_of<P, Step>(call.plan), streaming_kernel_of<P, Step>(call.plan), &step, f.steps + 1);
  });
}

}  // namespace strata::recurrent
