#pragma once
// Makes the plan of one call with sharded arguments.

#include <memory>
#include <vector>

#include "strata/core/call_placed_inl.h"
#include "strata/core/sharding.h"

namespace strata::detail {

class CallPath::Placed::Planner {
 public:
  Planner(const CallPath& op, ArgsAt at, const std::shared_ptr<const MeshPlace>& mesh);
  /// Throws what the op's infer throws.
  std::shared_ptr<PlacedPlan> plan();

 private:
  void find_metas();
  void choose();
  void choose_axis(size_t axis);
  bool fits(const Sharding::Possibility& p, size_t axis) const;
  static bool even(const Layout& chosen, size_t axis, const Shape& shape);

  const CallPath& op_;
  ArgsAt at_;
  const ShardRule& rule_;
  const std::shared_ptr<const MeshPlace>& mesh_;
  std::shared_ptr<PlacedPlan> plan_;
  std::vector<TensorMeta>& metas_;  // of plan_, as to_
  std::vector<Layout>& to_;
  std::vector<Value> values_;
  std::vector<Tensor> tensors_;  // arguments, lists flattened
  std::vector<int> arg_of_;      // which argument of the schema each is in
  std::vector<Layout> from_, of_results_;
};

}  // namespace strata::detail
