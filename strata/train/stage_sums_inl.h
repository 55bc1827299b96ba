#pragma once
// parallel.exact of the stages of a pipeline: each one's micro-batches in the tree.

#include <map>
#include <utility>
#include <vector>

#include "strata/dist/exact_gradients.h"
#include "strata/nn/module.h"

namespace strata {

/// Adds up the gradients of each of a rank's stages, micro-batch by micro-batch, as one process adds those of the whole
/// model. A schedule may have several under way: what one action gives of a micro-batch waits until all of it is there.
class StageSums {
 public:
  /// The parameters of each stage that this rank has, and the ranks that share the step's micro-batches, nullptr for
  /// one. Throws as distributed::ExactGradients.
  StageSums(const std::map<int, nn::NamedTensors>& stages, distributed::Group* group, int64_t micro_batches);

  /// The number of this rank's first micro-batch, and how many it has.
  int64_t first() const { return first_; }
  int64_t count() const { return count_; }
  /// A step begins anew.
  void begin();
  /// A pass of a micro-batch through `stage` has left gradients, which are taken away; with `all` they are all of its
  /// micro-batch's, which come in order.
  void came(int stage, int micro, bool all);
  /// The parameters' gradients are the sums of all ranks' micro-batches. Throws as distributed::ExactGradients.
  void finish();

 private:
  struct Stage {
    Stage(const nn::NamedTensors& parameters, distributed::Group* group, int64_t micro_batches)
        : parameters(parameters), sums(parameters, group, micro_batches) {}
    nn::NamedTensors parameters;
    distributed::ExactGradients sums;
    int next = 0;  // micro-batch
  };
  std::map<int, Stage> stages_;
  // Parameters and gradients, by stage and micro-batch.
  std::map<std::pair<int, int>, std::vector<std::pair<Tensor, Tensor>>> waiting_;
  int64_t first_ = 0, count_ = 0;
};

}  // namespace strata
