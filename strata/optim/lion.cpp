#include "strata/optim/lion.h"

#include <algorithm>

#include "strata/core/error.h"
#include "strata/optim/kernels.h"

namespace strata::optim {

void LionOptions::validate() const {
  check(lr >= 0, "Lion", "lr must not be negative, got ", lr);
  check(beta1 >= 0 && beta1 < 1, "Lion", "beta1 lies in [0, 1), got ", beta1);
  check(beta2 >= 0 && beta2 < 1, "Lion", "beta2 lies in [0, 1), got ", beta2);
  check(weight_decay >= 0, "Lion", "weight_decay must not be negative, got ", weight_decay);
  low.validate();
}

std::vector<Optimizer::StateSpec> Lion::state_spec(const Param& p) const {
  return {{"exp_avg", p.tensor.shape(), moment_dtype(p)}};
}

void Lion::update(const std::vector<Param*>& active, double grad_scale) {
  std::vector<Slab> slabs;
  for (Param* p : active) {
    const LionOptions& o = options_of(*p);
    const double rate = lr(p->group);
    slabs.push_back(slab_of(*p));
    const double k[] = {grad_scale, o.beta1, 1 - o.beta1, o.beta2, 1 - o.beta2, rate, 1 - rate * o.weight_decay};
    std::copy(std::begin(k), std::end(k), slabs.back().k);
  }
  run(Rule::lion, slabs);
}

}  // namespace strata::optim
