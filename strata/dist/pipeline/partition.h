#pragma once
// Which layers of a model are which stage.

#include <vector>

namespace strata::distributed::pipeline {

/// A layer, or anything else that no stage has a part of.
struct LayerCost {
  double seconds = 0;      ///< of all its passes over a micro-batch, or any unit
  double bytes = 0;        ///< kept all the time: weights, gradients, the optimizer's state
  double activations = 0;  ///< bytes kept for each micro-batch that is live
};

/// Layers as stages, one behind the other.
struct Partition {
  std::vector<int> begins;  ///< each stage's first layer
  double seconds = 0;       ///< of the slowest stage: what a micro-batch more takes
  double bytes = 0;         ///< of the largest stage
  bool operator==(const Partition&) const = default;
};

/// The partition into `stages` whose slowest stage is the fastest, and among those the one whose largest stage is the
/// smallest. `live` has how many micro-batches each stage keeps at most (Proof::live); empty: one. Throws ValueError
/// where there are fewer layers than stages, or a cost is negative or not finite.
Partition fastest_partition(const std::vector<LayerCost>& layers, int stages, const std::vector<int>& live = {});

/// Every partition that no other one beats in time and memory, the fastest first: the front of (seconds, bytes),
/// exactly (the two goals of ParetoPipe, arXiv:2509.02112). One partition for each point.
std::vector<Partition> partition_front(const std::vector<LayerCost>& layers, int stages,
                                       const std::vector<int>& live = {});

}  // namespace strata::distributed::pipeline
