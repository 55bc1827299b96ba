#pragma once
// The call path: from a call's arguments to its results, and what is recorded of it. Compiled once, for every record.

#include <span>
#include <string_view>
#include <vector>

#include "strata/core/arg_type.h"
#include "strata/core/op_call.h"
#include "strata/core/shard_rule.h"

namespace strata::detail {

/// A record's functions without their types, and what is needed to call them.
struct RecordFacts {
  bool inplace;
  AnyFunction infer, view, composed, backward, draws, cost, reference;
  ByDevice<AnyFunction> kernels, dynamic;
  void (*samples)(Samples&);
  ShardRule shard;
  const TypedCalls* calls;
  const ArgType* const* types;
  int args, results;  ///< results: -1 for a list
};

/// A record that can be called: Op adds the C++ types.
class CallPath : public OpBase {
 public:
  bool is_view() const final { return facts_.view != nullptr; }
  bool is_dynamic() const final { return static_cast<bool>(facts_.dynamic); }
  bool is_composed() const final { return facts_.composed && !facts_.infer; }
  bool has_kernel(DeviceType d) const final { return facts_.kernels.has(d) || facts_.dynamic.has(d); }
  bool has_backward() const final { return facts_.backward != nullptr || facts_.composed != nullptr; }
  bool has_reference() const final { return facts_.reference != nullptr; }
  bool has_composed() const final { return facts_.composed != nullptr; }
  bool can_inplace() const final { return facts_.inplace; }
  bool has_samples() const final { return facts_.samples != nullptr; }
  void samples(Samples& s) const final;
  std::vector<Value> call_boxed(std::span<const Value> args) const final;
  std::vector<Value> inplace_boxed(std::span<const Value> args) const final;
  std::vector<Value> reference_boxed(std::span<const Value> args) const final;
  Cost cost_boxed(std::span<const Value> args) const final;
  uint64_t draws_boxed(std::span<const Value> args) const final;
  /// As the record gives it; empty where it gives none.
  const ShardRule& shard() const { return facts_.shard; }

 protected:
  CallPath(std::string_view schema, std::string_view doc, std::string_view example, const char* file,
           std::string_view saves, const Policies& policies, const RecordFacts& facts);
  /// The op's result for the arguments, into undefined tensors or an empty list.
  void call(ArgsAt at, const Results& into) const;
  /// The same with the next numbers of `g` for the RngKey.
  void call_drawn(Generator& g, ArgsAt at, const Results& into) const;
  void call_out(Tensor& result, ArgsAt at) const;
  void call_inplace(Tensor& self, ArgsAt at) const;
  const RecordFacts& facts() const { return facts_; }

 private:
  class RecordedNode;
  class Arguments;
  class Substitutes;
  class Slots;
  class Placed;  // calls with sharded arguments: call_placed.cpp
  struct Given;

  template <class F>
  void each_tensor(ArgsAt at, F&& f) const;
  struct Seen;
  Seen see(ArgsAt at) const;
  DeviceType device_of(ArgsAt at) const;
  void check_devices(ArgsAt at) const;
  bool composes(bool record) const { return facts_.composed && (!facts_.infer || (record && !facts_.backward)); }
  void infer(ArgsAt at) const;

  void call_unusual(ArgsAt at, const Results& into) const;
  void call_cast(ArgsAt at, const Results& into) const;
  void call_adapted(ArgsAt at, const Results& into) const;
  void call_observed(ArgsAt at, const Results& into) const;
  void call_plain(const Seen& seen, ArgsAt at, const Results& into) const;
  void compute(const Seen& seen, ArgsAt at, const Results& into) const;
  void run(Device device, const Results& into, ArgsAt at) const;
  void launch(AnyFunction k, Device device, const Results& into, ArgsAt at) const;
  void run_composed(Device device, const Results& into, ArgsAt at) const;
  void out_plain(Tensor& result, ArgsAt at) const;
  void inplace_observed(const Seen& seen, Tensor& self, ArgsAt at) const;
  void inplace_plain(const Seen& seen, Tensor& self, ArgsAt at) const;

  Ref<RecordedNode> make_node(ArgsAt at) const;
  void record(const Results& result, ArgsAt at) const;
  void note_views(const Results& result, ArgsAt at) const;

  static const Call::Reader kReader;

  RecordFacts facts_;
  SavePlan saves_;
  uint32_t tensors_ = 0, lists_ = 0;       // bit i: argument i is a tensor or a list of them; is a list
  uint32_t node_offsets_[kMostArgs] = {};  // where a node keeps each argument
  uint32_t node_bytes_ = 0;
};

}  // namespace strata::detail
