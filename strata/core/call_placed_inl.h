#pragma once
// One call with sharded arguments.

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "strata/core/call_path_inl.h"
#include "strata/core/placement.h"
#include "strata/core/sharding.h"

namespace strata::detail {

class CallPath::Placed {
 public:
  /// Whether any tensor argument is sharded.
  static bool any(const CallPath& op, ArgsAt at);
  /// Throws ValueError for an op without a rule, or arguments on different meshes.
  Placed(const CallPath& op, ArgsAt at);
  /// In the place of call_plain(); false where the op makes and reads handles itself.
  bool call(const Seen& seen, const Results& into);
  /// Computes, and writes over `self`, which stays as it lies; nothing is recorded.
  void inplace(Tensor& self);

 private:
  static std::string axes_text(const MeshPlace& m);
  static void place_elements(const Tensor& all, const Tensor& part, const Layout& layout);
  void composed_whole(const Results& into);
  void compute(const Results& into);
  void find_metas();
  void choose();
  void choose_axis(size_t axis);
  bool fits(const Sharding::Possibility& p, size_t axis) const;
  static bool even(const Layout& chosen, size_t axis, const Shape& shape);
  Tensor local(size_t i) const;
  void spread(std::vector<Tensor>& locals) const;

  const CallPath& op_;
  ArgsAt at_;
  const ShardRule& rule_;
  std::shared_ptr<const MeshPlace> mesh_;
  std::vector<Value> values_;
  std::vector<Tensor> tensors_;  // arguments, lists flattened
  std::vector<int> arg_of_;      // which argument of the schema each is in
  std::vector<TensorMeta> metas_;
  std::vector<Layout> from_, to_, of_results_;
  bool whole_size_ = false;
  LocalChange before_, after_;
  std::vector<std::string> changing_;  // the axes that they are for
};

}  // namespace strata::detail
