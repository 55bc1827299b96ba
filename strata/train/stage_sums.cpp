#include "strata/train/stage_sums_inl.h"

#include "strata/core/error.h"
#include "strata/core/node.h"

namespace strata {

StageSums::StageSums(const std::map<int, nn::NamedTensors>& stages, distributed::Group* group, int64_t micro_batches) {
  for (const auto& [stage, parameters] : stages) stages_.try_emplace(stage, parameters, group, micro_batches);
  if (stages_.empty()) return;
  first_ = stages_.begin()->second.sums.first();
  count_ = stages_.begin()->second.sums.count();
}

void StageSums::begin() {
  waiting_.clear();
  for (auto& [stage, s] : stages_) {
    s.sums.begin();
    s.next = 0;
  }
}

void StageSums::came(int stage, int micro, bool all) {
  const NoGrad guard;
  Stage& s = stages_.at(stage);
  if (!all) {
    for (const auto& [name, t] : s.parameters) {
      const Tensor g = t.grad();
      if (!g.defined()) continue;
      waiting_[{stage, micro}].emplace_back(t, g);
      Tensor(t).set_grad({});
    }
    return;
  }
  check(micro == s.next, "StageSums", "micro-batch ", micro, " came to stage ", stage, ", whose next one is ", s.next);
  if (const auto parts = waiting_.extract({stage, micro}))
    for (const auto& [parameter, gradient] : parts.mapped()) {
      check(!parameter.grad().defined(), "StageSums", "a gradient of shape ", parameter.shape(),
            " came twice in a micro-batch");  // a pass gives all of a leaf's at once
      Tensor(parameter).set_grad(gradient);
    }
  s.sums.add();
  ++s.next;
}

void StageSums::finish() {
  for (auto& [stage, s] : stages_) s.sums.finish();
}

}  // namespace strata
