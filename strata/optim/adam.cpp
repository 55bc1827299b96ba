#include "strata/optim/adam.h"

#include "strata/core/error.h"
#include "strata/optim/kernels.h"

namespace strata::optim {

void AdamOptions::validate() const {
  check(lr >= 0, "Adam", "lr must not be negative, got ", lr);
  check(beta1 >= 0 && beta1 < 1, "Adam", "beta1 lies in [0, 1), got ", beta1);
  check(beta2 >= 0 && beta2 < 1, "Adam", "beta2 lies in [0, 1), got ", beta2);
  check(eps >= 0, "Adam", "eps must not be negative, got ", eps);
  check(weight_decay >= 0, "Adam", "weight_decay must not be negative, got ", weight_decay);
  low.validate();
}

void set_adam(Slab& s, const AdamOptions& o, double lr, bool decoupled, double grad_scale) {
  s.from_count = FromCount::adam;
  s.k[0] = grad_scale;
  s.k[1] = o.beta1;
  s.k[2] = 1 - o.beta1;
  s.k[3] = o.beta2;
  s.k[4] = 1 - o.beta2;
  s.k[5] = lr;
  s.k[7] = o.eps;
  s.k[8] = decoupled ? 1 - lr * o.weight_decay : 1;
  s.k[9] = decoupled ? 0 : o.weight_decay;
}

std::vector<Optimizer::StateSpec> Optimizer::adam_spec(const Param& p, bool amsgrad) {
  const Shape& shape = p.tensor.shape();
  const DType dtype = moment_dtype(p);
  std::vector<StateSpec> spec{{"step", {}, DType::i64}, {"exp_avg", shape, dtype}, {"exp_avg_sq", shape, dtype}};
  if (amsgrad) spec.push_back({"max_exp_avg_sq", shape, dtype});
  return spec;
}
std::vector<Optimizer::StateSpec> Adam::state_spec(const Param& p) const {
  return adam_spec(p, options_of(p).amsgrad);
}
std::vector<Optimizer::StateSpec> AdamW::state_spec(const Param& p) const {
  return adam_spec(p, options_of(p).amsgrad);
}

void Adam::update(const std::vector<Param*>& active, double grad_scale) {
  std::vector<Slab> plain, most;
  for (Param* p : active) {
    std::vector<Slab>& slabs = options_of(*p).amsgrad ? most : plain;
    slabs.push_back(slab_of(*p, 1));
    set_adam(slabs.back(), options_of(*p), lr(p->group), false, grad_scale);
  }
  run(Rule::adam, plain);
  run(Rule::amsgrad, most);
}
void AdamW::update(const std::vector<Param*>& active, double grad_scale) {
  std::vector<Slab> plain, most;
  for (Param* p : active) {
    std::vector<Slab>& slabs = options_of(*p).amsgrad ? most : plain;
    slabs.push_back(slab_of(*p, 1));
    set_adam(slabs.back(), options_of(*p), lr(p->group), true, grad_scale);
  }
  run(Rule::adam, plain);
  run(Rule::amsgrad, most);
}

}  // namespace strata::optim
