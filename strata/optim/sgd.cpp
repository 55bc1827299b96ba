#include "strata/optim/sgd.h"

#include "strata/core/error.h"
#include "strata/optim/kernels.h"

namespace strata::optim {

void SGDOptions::validate() const {
  check(lr >= 0, "SGD", "lr must not be negative, got ", lr);
  check(momentum >= 0, "SGD", "momentum must not be negative, got ", momentum);
  check(weight_decay >= 0, "SGD", "weight_decay must not be negative, got ", weight_decay);
  check(!nesterov || (momentum > 0 && dampening == 0), "SGD",
        "nesterov needs momentum > 0 and dampening 0, got momentum ", momentum, " and dampening ", dampening);
  low.validate();
}

std::vector<Optimizer::StateSpec> SGD::state_spec(const Param& p) const {
  if (options_of(p).momentum == 0) return {};
  return {{"momentum_buffer", p.tensor.shape(), moment_dtype(p)}};
}

void SGD::update(const std::vector<Param*>& active, double grad_scale) {
  std::vector<Slab> plain, heavy;
  for (Param* p : active) {
    const SGDOptions& o = options_of(*p);
    Slab s = slab_of(*p);
    s.k[0] = grad_scale;
    s.k[1] = lr(p->group);
    s.k[2] = o.weight_decay;
    if (o.momentum == 0) {
      plain.push_back(s);
      continue;
    }
    s.k[3] = o.momentum;
    s.k[4] = p->first ? 1 : 1 - o.dampening;
    s.k[5] = o.nesterov;
    heavy.push_back(s);
  }
  run(Rule::sgd, plain);
  run(Rule::sgd_momentum, heavy);
}

}  // namespace strata::optim
