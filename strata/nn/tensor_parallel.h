#pragma once
// Tensor and sequence parallelism: a module's weights cut among the ranks of a mesh's axis. Its forward stays as it is
// written; where its weights lie says who computes what. docs/design/placements.md, docs/guide/parallel.md

#include <string>
#include <vector>

#include "strata/core/placement.h"
#include "strata/nn/module.h"

namespace strata::distributed {

/// How the weights of a module may be cut, and where what was computed in parts comes together.
/// models/tensor_parallel.h has that of language models.
///
///     distributed::ShardPlan plan;                        // Megatron-LM's feed-forward part
///     plan.weights = {{"up.weight", Placement::sharded(0)}, {"up.bias", Placement::sharded(0)},
///                     {"down.weight", Placement::sharded(1)}};
///     plan.branches = {""};                               // the module itself: x whole, its result a sum of parts
struct ShardPlan {
  /// A parameter, and what of it a rank has.
  struct Weight {
    std::string name;
    Placement placement;  ///< a shard
  };
  std::vector<Weight> weights;  ///< the parameters that are cut; the others stay whole
  /// Modules (by their names; "" is the module itself) whose input is whole for their first product, and whose last
  /// product gives a sum: one exchange before and one behind in each direction.
  std::vector<std::string> branches;
  /// The first and the last product (Linear) of branches that begin and end with one: with ShardOptions::sequence their
  /// exchanges lie beside the products (all_gather_matmul, matmul_reduce_scatter), where parts are even and not tiny.
  std::vector<std::string> first, last;
  /// Modules that give a sum of what each rank looks up: a table of embeddings whose rows are cut.
  std::vector<std::string> tables;
};

/// Options of shard_module().
struct ShardOptions {
  /// Between the branches the ranks have parts of dimension 1 (of [batch, time, ..]) instead of all of it: all_gather
  /// and reduce_scatter instead of all_reduce, which is as many bytes; norms, additions and what they keep for backward
  /// are shared out (Korthikanti et al., arXiv:2205.05198).
  bool sequence = true;
};

/// Makes the parameters that `plan` names sharded tensors along `axis` of the mesh: every handle to them shows the
/// whole shape from now on, and this process keeps its part. All ranks of the axis must have the same values;
/// parameters that are one tensor (tied embeddings) stay one. The module's branches and tables get hooks. With an axis
/// of one rank nothing happens. Throws ValueError naming the parameter that is not there, or that the ranks do not
/// divide; then nothing was changed.
///
///     distributed::shard_module(*model, shard_plan(*model), "tp");
void shard_module(const nn::Module& module, const ShardPlan& plan, const std::string& axis,
                  const ShardOptions& options = {});

/// `x` as a product with `weight` wants it whose rows are cut: whole along the axes that cut them, its gradient, a sum
/// of the ranks', as x lies. x itself where weight is not cut so.
Tensor whole_for(const Tensor& x, const Tensor& weight);

}  // namespace strata::distributed
