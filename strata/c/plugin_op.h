#pragma once
// An op of a plugin: what Op<> is for the engine's own records, over values instead of a C++ signature.

#include <string>
#include <vector>

#include "strata/c/handles.h"
#include "strata/core/op_base.h"
#include "strata/core/op_call.h"

/// Where a record puts its samples: what strata_api's samples_... get.
struct strata_samples {
  strata::Samples* samples;
  const strata::OpBase* op;
  std::string failure;  ///< of a call that could not say so otherwise
};

namespace strata::c {

/// The table that plugins get.
const strata_api& plugin_api();

/// Texts of a record, copied: OpBase keeps views.
struct RecordTexts {
  std::string schema, doc, file, tolerance_reason;
};

class PluginOp final : private RecordTexts, public OpBase {
 public:
  /// Throws PluginError or ValueError for a record that is not allowed. `file` gives the family: "plugin/NAME/...".
  PluginOp(const strata_op_record& record, std::string file);

  bool is_view() const override { return false; }
  bool is_dynamic() const override { return false; }
  bool is_composed() const override { return false; }
  bool has_kernel(DeviceType d) const override {
    return d == DeviceType::cpu ? r_.cpu != nullptr : d == DeviceType::cuda && r_.cuda != nullptr;
  }
  bool has_backward() const override { return r_.backward != nullptr; }
  bool has_reference() const override { return r_.reference != nullptr; }
  bool has_composed() const override { return false; }
  bool can_inplace() const override { return r_.inplace; }
  bool has_samples() const override { return r_.samples != nullptr; }

  std::vector<Value> call_boxed(std::span<const Value> args) const override;
  std::vector<Value> inplace_boxed(std::span<const Value> args) const override;
  std::vector<Value> reference_boxed(std::span<const Value> args) const override;
  Cost cost_boxed(std::span<const Value> args) const override;
  void samples(Samples& s) const override;

  /// The arguments by the schema: defaults filled in, each of the type that it must be (an int where a float is wanted
  /// becomes one, None an undefined tensor). Throws ValueError naming the argument.
  std::vector<Value> normalised(std::span<const Value> given) const;

 private:
  class PluginNode;

  void check_schema();
  Value normalised(size_t i, const Value& v) const;
  // Calls a function of the plugin's; throws where it throws or says that it failed.
  template <class F>
  void ask(const char* function, F&& f) const;
  std::vector<TensorMeta> infer(std::span<const Value> args) const;
  std::vector<Tensor> call(std::span<const Value> args) const;
  std::vector<Tensor> call_adapted(std::vector<Value> args) const;
  std::vector<Tensor> compute(std::span<const Value> args) const;
  // `fresh` results are memory that nothing else shows.
  void run(Device device, std::vector<Tensor>& results, std::span<const Value> args, bool fresh) const;
  void run_guarded(std::vector<Tensor>& results, std::span<const Value> args, bool fresh) const;
  void run_kernel(Device device, const std::vector<Tensor>& results, std::span<const Value> args) const;
  Ref<Node> make_node(std::span<const Value> args) const;
  void inplace_call(Tensor& self, std::span<const Value> args) const;

  strata_op_record r_;
  std::vector<SchemaType> types_;
  size_t num_results_ = 0;
  detail::SavePlan saves_;
};

}  // namespace strata::c
