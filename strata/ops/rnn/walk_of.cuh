#pragma once
// A Walk from its plan: what a launch and the tests of its kernels say alike.

#include "strata/ops/rnn/recurrence_cuda.h"
#include "strata/ops/rnn/recurrence_walk.cuh"

namespace strata::recurrent {

/// The walk of a product's plan through that memory, whose sizes stand at Walk.
inline Walk walk_of(const StepProduct& p, const RecurrencePlan& plan, const unsigned char* weight,
                    unsigned char* states, unsigned* arrivals) {
  return {.batch = p.batch,
          .hidden = p.hidden,
          .rows = plan.rows,
          .depth_bytes = plan.depth_bytes,
          .pitch = plan.pitch,
          .partial_bytes_at = plan.shared_bytes - plan.partial_bytes,
          .parts = static_cast<int>(plan.parts),
          .units = static_cast<int>(plan.units),
          .columns = static_cast<int>(plan.columns),
          .partial_pitch = static_cast<int>(plan.partial_pitch),
          .weight = weight,
          .states = states,
          .states_bytes = plan.groups * plan.rows * plan.depth_bytes,
          .arrivals = arrivals};
}

}  // namespace strata::recurrent
