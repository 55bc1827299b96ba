#pragma once
// parallel.check_replicas: what several ranks should have alike, they have alike.

#include <cstdint>
#include <string>
#include <vector>

#include "strata/nn/module.h"

namespace strata::detail {

/// What a rank has of a tensor.
struct Replica {
  uint64_t name = 0;  ///< a hash of the tensor's name
  uint64_t part = 0;  ///< which part of it: 0 of a whole one
  uint64_t hash = 0;  ///< as checkpoints have it: of the elements and their places in the whole
};

/// Of every rank what it has, by rank; `names` are this rank's. A sentence that names each rank that has another one
/// than most, and tensors (the first two, and how many more); where as many have one as another, that these ranks
/// differ. Empty where all that is the same part of the same tensor has the same hash. A tensor that `names` has not is
/// told by the hash of its name.
std::string differences(const std::vector<std::vector<Replica>>& ranks, const std::vector<std::string>& names);

/// All ranks of the job call it: compares parameters, buffers and the optimizer's states by their hashes, whichever
/// ranks have them alike. Throws DistributedError in every rank, naming `step`, ranks and tensors. The ranks' hashes
/// travel, 24 bytes for each tensor. Waits for the devices that the tensors are on.
void check_replicas(int64_t step, const nn::StateDict& model, const nn::StateDict& optimizer);

}  // namespace strata::detail
