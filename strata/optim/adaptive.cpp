#include "strata/optim/adaptive.h"

#include <algorithm>

#include "strata/core/error.h"
#include "strata/optim/adam.h"
#include "strata/optim/kernels.h"

namespace strata::optim {
namespace {

void check_rates(std::string_view name, double lr, double eps, double weight_decay) {
  check(lr >= 0, name, "lr must not be negative, got ", lr);
  check(eps >= 0, name, "eps must not be negative, got ", eps);
  check(weight_decay >= 0, name, "weight_decay must not be negative, got ", weight_decay);
}
template <class Options>
void check_adam(std::string_view name, const Options& o) {
  check_rates(name, o.lr, o.eps, o.weight_decay);
  check(o.beta1 >= 0 && o.beta1 < 1, name, "beta1 lies in [0, 1), got ", o.beta1);
  check(o.beta2 >= 0 && o.beta2 < 1, name, "beta2 lies in [0, 1), got ", o.beta2);
  o.low.validate();
}
template <class Options>
AdamOptions adam_options(const Options& o) {
  return {.beta1 = o.beta1, .beta2 = o.beta2, .eps = o.eps, .weight_decay = o.weight_decay};
}
void set(Slab& s, std::initializer_list<double> k) {
  std::copy(k.begin(), k.end(), s.k);
}

}  // namespace

void RMSpropOptions::validate() const {
  check_rates("RMSprop", lr, eps, weight_decay);
  check(alpha >= 0 && alpha < 1, "RMSprop", "alpha lies in [0, 1), got ", alpha);
  check(momentum >= 0, "RMSprop", "momentum must not be negative, got ", momentum);
  low.validate();
}
std::vector<Optimizer::StateSpec> RMSprop::state_spec(const Param& p) const {
  const RMSpropOptions& o = options_of(p);
  const Shape& shape = p.tensor.shape();
  const DType dtype = moment_dtype(p);
  std::vector<StateSpec> spec{{"square_avg", shape, dtype}};
  if (o.momentum > 0 || o.centered) spec.push_back({"momentum_buffer", shape, dtype});
  if (o.centered) spec.push_back({"grad_avg", shape, dtype});
  return spec;
}
void RMSprop::update(const std::vector<Param*>& active, double grad_scale) {
  std::vector<Slab> plain, heavy, centered;
  for (Param* p : active) {
    const RMSpropOptions& o = options_of(*p);
    std::vector<Slab>& slabs = o.centered ? centered : o.momentum > 0 ? heavy : plain;
    slabs.push_back(slab_of(*p));
    set(slabs.back(), {grad_scale, lr(p->group), o.alpha, 1 - o.alpha, o.eps, o.weight_decay, o.momentum});
  }
  run(Rule::rmsprop, plain);
  run(Rule::rmsprop_momentum, heavy);
  run(Rule::rmsprop_centered, centered);
}

void AdagradOptions::validate() const {
  check_rates("Adagrad", lr, eps, weight_decay);
  check(lr_decay >= 0, "Adagrad", "lr_decay must not be negative, got ", lr_decay);
  check(initial_accumulator_value >= 0, "Adagrad", "initial_accumulator_value must not be negative, got ",
        initial_accumulator_value);
  low.validate();
}
std::vector<Optimizer::StateSpec> Adagrad::state_spec(const Param& p) const {
  return {{"step", {}, DType::i64},
          {"sum", p.tensor.shape(), moment_dtype(p), options_of(p).initial_accumulator_value}};
}
void Adagrad::update(const std::vector<Param*>& active, double grad_scale) {
  std::vector<Slab> slabs;
  for (Param* p : active) {
    const AdagradOptions& o = options_of(*p);
    slabs.push_back(slab_of(*p, 1));
    slabs.back().from_count = FromCount::adagrad;
    set(slabs.back(), {grad_scale, lr(p->group), o.eps, o.weight_decay, o.lr_decay});
  }
  run(Rule::adagrad, slabs);
}

void AdadeltaOptions::validate() const {
  check_rates("Adadelta", lr, eps, weight_decay);
  check(rho >= 0 && rho < 1, "Adadelta", "rho lies in [0, 1), got ", rho);
  low.validate();
}
std::vector<Optimizer::StateSpec> Adadelta::state_spec(const Param& p) const {
  return {{"square_avg", p.tensor.shape(), moment_dtype(p)}, {"acc_delta", p.tensor.shape(), moment_dtype(p)}};
}
void Adadelta::update(const std::vector<Param*>& active, double grad_scale) {
  std::vector<Slab> slabs;
  for (Param* p : active) {
    const AdadeltaOptions& o = options_of(*p);
    slabs.push_back(slab_of(*p));
    set(slabs.back(), {grad_scale, lr(p->group), o.rho, 1 - o.rho, o.eps, o.weight_decay});
  }
  run(Rule::adadelta, slabs);
}

void AdamaxOptions::validate() const {
  check_adam("Adamax", *this);
}
std::vector<Optimizer::StateSpec> Adamax::state_spec(const Param& p) const {
  return {{"step", {}, DType::i64},
          {"exp_avg", p.tensor.shape(), moment_dtype(p)},
          {"exp_inf", p.tensor.shape(), moment_dtype(p)}};
}
void Adamax::update(const std::vector<Param*>& active, double grad_scale) {
  std::vector<Slab> slabs;
  for (Param* p : active) {
    slabs.push_back(slab_of(*p, 1));
    set_adam(slabs.back(), adam_options(options_of(*p)), lr(p->group), false, grad_scale);
    slabs.back().from_count = FromCount::adamax;
  }
  run(Rule::adamax, slabs);
}

void NAdamOptions::validate() const {
  check_adam("NAdam", *this);
  check(momentum_decay >= 0, "NAdam", "momentum_decay must not be negative, got ", momentum_decay);
}
std::vector<Optimizer::StateSpec> NAdam::state_spec(const Param& p) const {
  return adam_spec(p);
}
void NAdam::update(const std::vector<Param*>& active, double grad_scale) {
  std::vector<Slab> slabs;
  for (Param* p : active) {
    const NAdamOptions& o = options_of(*p);
    slabs.push_back(slab_of(*p, 1));
    set_adam(slabs.back(), adam_options(o), lr(p->group), o.decoupled_weight_decay, grad_scale);
    slabs.back().from_count = FromCount::nadam;
    slabs.back().k[10] = o.momentum_decay;
  }
  run(Rule::nadam, slabs);
}

void RAdamOptions::validate() const {
  check_adam("RAdam", *this);
}
std::vector<Optimizer::StateSpec> RAdam::state_spec(const Param& p) const {
  return adam_spec(p);
}
void RAdam::update(const std::vector<Param*>& active, double grad_scale) {
  std::vector<Slab> slabs;
  for (Param* p : active) {
    const RAdamOptions& o = options_of(*p);
    slabs.push_back(slab_of(*p, 1));
    set_adam(slabs.back(), adam_options(o), lr(p->group), o.decoupled_weight_decay, grad_scale);
    slabs.back().from_count = FromCount::radam;
  }
  run(Rule::radam, slabs);
}

}  // namespace strata::optim
