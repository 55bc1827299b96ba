#pragma once
// Which storages of a recorded step are weights, and how they are read: what a plan that has weights elsewhere asks of
// it.

#include <cstdint>
#include <vector>

#include "strata/core/recording.h"

namespace strata {

/// Weights of a recorded step, as places in Recording::storages.
struct StepWeights {
  std::vector<int32_t> by_turns;  ///< read as a whole in forward or backward: they come and go with the layers
  std::vector<int32_t> in_place;  ///< of which rows are read, or that are only converted
  std::vector<int32_t> at_rest;   ///< that the update alone reads
  std::vector<int32_t> casts;     ///< the calls that make low-precision copies, which no warm step has on a card
  int64_t bytes = 0;              ///< of all parameters
  int64_t copied = 0;             ///< of their low-precision copies
  int64_t largest_turn = 0;       ///< of what one block, or another module, reads of `by_turns`
  int64_t largest_head = 0;       ///< of one of `by_turns` that the head's loss reads
  int64_t largest = 0;            ///< of one parameter
};

/// Finds them. With `renewed` the optimizer renews low-precision copies as it updates: those that the recording's
/// forward makes are then there from the beginning, and what they replace is gone; the copy that the head's loss keeps
/// for itself, which a dry run does not make, is added, read by that call.
StepWeights find_weights(Recording& step, bool renewed);

}  // namespace strata
