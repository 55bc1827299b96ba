#include "strata/autograd/function.h"

#include <algorithm>


namespace strata {

TensorList FunctionCtx::saved_tensors() const {
  if (!node_) return to_save_;  // still in forward()
  const Ref<Node> owner(node_);
  TensorList tensors;
  for (const SavedTensor& s : saved_) tensors.push_back(s.get(owner, node_->name()));
  return tensors;
}

void FunctionNode::begin(FunctionCtx& ctx, const TensorList& inputs) {
  for (const Tensor& x : inputs) {
    ctx.needs_.push_back(grad_enabled() && x.defined() && x.requires_grad());
    versions_.push_back(x.defined() ? x.version() : 0);
  }
}

void FunctionNode::record(FunctionCtx& ctx, const TensorList& inputs, const std::vector<Tensor*>& results) {
  for (size_t i = 0; i < inputs.size(); ++i)
    check<AutogradError>(!ctx.needs_[i] || inputs[i].version() == versions_[i], name_,
                         "forward wrote in place to input ", i, " (", inputs[i],
                         "), which wants a gradient; write to a clone");
  if (std::none_of(ctx.needs_.begin(), ctx.needs_.end(), [](bool b) { return b; })) return;

  num_results = static_cast<uint32_t>(results.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    edges.push_back(ctx.needs_[i] ? gradient_edge(inputs[i]) : Edge());
    input_metas_.push_back(inputs[i].defined() ? inputs[i].meta() : TensorMeta());
  }
  const auto is_one_of = [](const Tensor& t, const TensorList& list) {
    return std::any_of(list.begin(), list.end(), [&](const Tensor& o) { return o.defined() && o.same_as(t); });
  };
  const Ref<Node> self(this);
  TensorList seen;
  for (size_t i = 0; i < results.size(); ++i) {
    Tensor& r = *results[i];
    result_metas_.push_back(r.defined() ? r.meta() : TensorMeta());
    if (!r.defined()) continue;
    const bool differentiable = is_floating(r.dtype()) && !is_one_of(r, ctx.non_differentiable_);
    // An input that is returned, or a result that is returned twice, becomes a tensor of its own.
    if (is_one_of(r, inputs) || is_one_of(r, seen)) r = r.detach();
    seen.push_back(r);
    if (differentiable) set_history(r, self, static_cast<uint32_t>(i));
  }
  for (const Tensor& t : ctx.to_save_) {
    const bool result = t.defined() && is_one_of(t, seen);
    ctx.saved_.push_back(result ? SavedTensor::result(t, true) : SavedTensor(t, true));
  }
  ctx.to_save_.clear();
  ctx.non_differentiable_.clear();
  ctx.node_ = this;
}

void FunctionNode::apply(Grads& gy, Grads& gx) {
  if (ctx().materialize_) {
    for (size_t i = 0; i < gy.size(); ++i) {
      if (gy[i].defined() || !is_floating(result_metas_[i].dtype)) continue;
      gy[i] = empty(result_metas_[i]);
      gy[i].fill_(0);
    }
  }
  TensorList grads = call_backward(gy);
  check<AutogradError>(grads.size() == gx.size(), name_, "backward returned ", grads.size(), " gradients for ",
                       gx.size(), " tensor inputs; return an undefined tensor for an input without a gradient");
  for (size_t i = 0; i < gx.size(); ++i) {
    if (!edges[i].node || !grads[i].defined()) continue;
    check<ShapeError>(grads[i].shape() == input_metas_[i].shape, name_, "backward returned ", grads[i],
                      " as the gradient of input ", i, ", which is ", input_metas_[i].shape, ' ',
                      input_metas_[i].dtype);
    check<DeviceError>(grads[i].device() == input_metas_[i].device, name_, "backward returned ", grads[i],
                       " as the gradient of input ", i, ", which is on ", input_metas_[i].device);
    gx[i] = grads[i].to(input_metas_[i].dtype);
  }
}

void FunctionNode::list_packed(std::vector<PackedTensor>& all) const {
  for (const SavedTensor& s : ctx().saved_) s.list_packed(all);
}

void FunctionNode::release() {
  for (SavedTensor& s : ctx().saved_) s.reset();
}

}  // namespace strata
