#pragma once
// One call with sharded arguments.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "strata/core/call_path_inl.h"
#include "strata/core/placed_plans_inl.h"
#include "strata/core/placement.h"
#include "strata/core/sharding.h"

namespace strata::detail {

class CallPath::Placed {
 public:
  /// Whether any tensor argument is sharded.
  static bool any(const CallPath& op, ArgsAt at);
  Placed(const CallPath& op, ArgsAt at) : op_(op), at_(at) {}
  /// In the place of call_plain(); false where the op makes and reads handles itself. Throws ValueError for an op
  /// without a rule, or arguments on different meshes.
  bool call(const Seen& seen, const Results& into);
  /// Computes, and writes over `self`, which stays as it lies; nothing is recorded.
  void inplace(Tensor& self);

 private:
  class Planner;  // call_plan.cpp
  using Key = std::vector<uint64_t>;

  // The plan of an earlier call like this one, where this thread has it; what tells calls apart is left in key_
  // otherwise.
  void find_plan();
  bool write_key(Key& key) const;
  void check_arguments();
  void composed_whole(const Results& into);
  void compute(const Results& into);
  void run(const Results& into) const;
  bool run_boxed(const Results& into, std::vector<std::pair<int, Value>>* set) const;
  void finish(const Results& into) const;
  Tensor local(size_t i, const Tensor& t) const;
  void spread(const std::vector<Tensor>& wholes, std::vector<Tensor>& locals) const;

  const CallPath& op_;
  ArgsAt at_;
  std::shared_ptr<const MeshPlace> mesh_;  // once the arguments were checked
  std::shared_ptr<const PlacedPlan> plan_;
  Key key_;  // empty where the plan is for this call alone
};

}  // namespace strata::detail
