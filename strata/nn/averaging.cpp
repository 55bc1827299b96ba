#include "strata/nn/averaging.h"

#include <set>

#include "strata/core/error.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"

namespace strata::nn {
namespace {

StateDict cloned(const StateDict& state) {
  StateDict copy;
  for (const auto& [name, t] : state) copy.emplace(name, t.clone());
  return copy;
}
void write(const StateDict& from, StateDict to) {
  for (auto& [name, t] : to) t.copy_(from.at(name));
}

}  // namespace

void update_averages(const TensorList& means, const TensorList& values, int64_t count, std::optional<double> decay) {
  constexpr std::string_view op = "update_averages";
  check(!decay || (*decay >= 0 && *decay <= 1), op, "decay must be in [0, 1], got ", decay.value_or(0));
  check(count >= 0, op, "count must not be negative, got ", count);
  check<ShapeError>(means.size() == values.size(), op, means.size(), " means for ", values.size(), " values");
  for (size_t i = 0; i < means.size(); ++i)
    check<ShapeError>(means[i].shape() == values[i].shape(), op, "mean ", i, " is ", means[i], ", its value ",
                      values[i]);
  const NoGrad guard;
  const double share = decay ? 1 - *decay : 1 / (static_cast<double>(count) + 1);
  for (size_t i = 0; i < means.size(); ++i) {
    Tensor mean = means[i].detach();
    const Tensor value = values[i].detach().to(mean.device());
    if (share == 1 || !is_floating(mean.dtype()))
      mean.copy_(value);
    else if (value.dtype() == mean.dtype())
      lerp_(mean, value, share);
    else
      mean.copy_(lerp(mean, value, share));
  }
}

AveragedModel::AveragedModel(const Module& model, const AveragingOptions& options) : model_(model), options_(options) {
  check(!options.decay || (*options.decay >= 0 && *options.decay <= 1), "AveragedModel",
        "decay must be in [0, 1], got ", options.decay.value_or(0));
}

void AveragedModel::update() {
  const NoGrad guard;
  const StateDict now = model_.state_dict();
  if (updates_++ == 0) {
    averages_ = cloned(now);
    return;
  }
  std::set<std::string> buffers;
  for (const auto& [name, t] : model_.named_buffers()) buffers.insert(name);
  TensorList means, values;
  for (auto& [name, average] : averages_) {
    const Tensor& value = now.at(name);
    if (buffers.contains(name) && !options_.use_buffers) {
      average.copy_(value);
    } else {
      means.push_back(average);
      values.push_back(value);
    }
  }
  update_averages(means, values, updates_ - 1, options_.decay);
}

void AveragedModel::copy_to_model() const {
  check(updates_ > 0, "AveragedModel", "there is no average before the first update()");
  const NoGrad guard;
  write(averages_, model_.state_dict());
}

AveragedModel::Scope::Scope(const AveragedModel& average) : average_(average) {
  check(average.updates_ > 0, "AveragedModel", "there is no average before the first update()");
  const NoGrad guard;
  own_ = cloned(average.model_.state_dict());
  average.copy_to_model();
}
AveragedModel::Scope::~Scope() {
  const NoGrad guard;
  write(own_, average_.model_.state_dict());
}

}  // namespace strata::nn
