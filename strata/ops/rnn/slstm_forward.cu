#include "strata/core/dispatch.h"
#include "strata/ops/rnn/recurrence.cuh"
#include "strata/ops/rnn/slstm_walk.cuh"

namespace strata::recurrent {

void slstm_recurrence_cuda(const SlstmCall& s) {
  if (s.steps * s.batch * s.hidden == 0) return;
  WalkCall call({s.batch, s.hidden, 4, s.hidden, static_cast<int64_t>(size_of(s.t)), s.tf32}, 0);
  dispatch_operands(s.t, s.tf32, "slstm_recurrence", [&]<class P>() {
    using T = stored_t<P>;
    using Step = SlstmForwardStep<T>;
    call.prepare<P, false>(s.w, 4, s.h, nullptr);
    Step step{s};
    call.launch(walk_kernel_of<P, Step>(call.plan), streaming_kernel_of<P, Step>(call.plan), &step, s.steps);
  });
}

}  // namespace strata::recurrent
