#include <utility>

#include "strata/core/node.h"
#include "strata/core/rebind.h"
#include "strata/memory/allocator.h"
#include "strata/nn/late_weights_inl.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/factory/factory.h"

namespace strata::nn::detail {
namespace {
thread_local LateWeights* t_late = nullptr;
}  // namespace

LateWeights::LateWeights() : device_(default_device()) {
  check(t_late == nullptr, "LateWeights", "one lives on this thread already");
  t_late = this;
}
LateWeights::~LateWeights() {
  t_late = nullptr;
}

void LateWeights::come(const Module& module) {
  for (const auto& [name, p] : module.named_parameters()) detail::come(p);
  memory::backend(device_).release_cached();
}

bool is_late(const Tensor& parameter) {
  return t_late != nullptr && parameter.is_meta() && t_late->weights_.contains(&parameter.impl());
}

void come(const Tensor& parameter) {
  if (!is_late(parameter)) return;
  const NoGrad guard;
  const memory::TagScope tag(memory::Tag::parameter);
  const LateWeights::Weight late = std::move(t_late->weights_.extract(&parameter.impl()).mapped());
  const DeviceScope there(t_late->device_);
  rebind(parameter, late.make ? late.make(parameter.dtype()) : empty(parameter.shape(), parameter.dtype()));
}

void never_come(const Tensor& parameter) {
  if (is_late(parameter)) t_late->weights_.erase(&parameter.impl());
}

Tensor new_weight(const Shape& shape) {
  const bool late = t_late != nullptr && t_late->making_ && shape.size() > 1 && default_device() == t_late->device_;
  if (!late) return empty(shape);
  const Tensor weight = empty(TensorMeta{shape, default_dtype(), Device::meta(), std::nullopt});
  t_late->weights_.emplace(&weight.impl(), LateWeights::Weight{weight, {}});
  return weight;
}

void make_later(const Tensor& parameter, std::function<Tensor(DType)> make) {
  if (is_late(parameter)) {
    t_late->weights_.at(&parameter.impl()).make = std::move(make);
    return;
  }
  check(t_late == nullptr || !t_late->making_ || !parameter.is_meta() || default_device().is_meta(), "init",
        "a part of a weight whose memory comes later cannot be filled by itself");
}

void fill_later(const Tensor& parameter, std::function<void(const Tensor&)> fill) {
  make_later(parameter, [fill = std::move(fill), shape = parameter.shape(), drawn = parameter.dtype()](DType as) {
    const Tensor bytes = empty(shape, drawn);
    fill(bytes);
    return bytes.to(as);
  });
}

}  // namespace strata::nn::detail
