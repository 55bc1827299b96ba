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
  const double share = options_.decay ? 1 - *options_.decay : 1 / static_cast<double>(updates_);
  for (auto& [name, average] : averages_) {
    const Tensor& value = now.at(name);
    if (!is_floating(value.dtype()) || (buffers.contains(name) && !options_.use_buffers)) {
      average.copy_(value);
    } else {
      average.copy_(lerp(average, value, share));
    }
  }
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
