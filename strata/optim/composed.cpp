#include "strata/optim/composed.h"

#include <algorithm>
#include <cmath>

#include "strata/core/error.h"
#include "strata/memory/allocator.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/optim/kernels.h"

namespace strata::optim {
namespace {

// The fused loop that takes a finished direction, param = decay param - rate direction, rounds as LowPrecision says.
Slab take(Slab s, const Tensor& direction, double decay, double rate) {
  s.grad = direction.raw_data();
  s.grad_dtype = direction.dtype();
  if (s.tensors) s.tensors->grad = direction;
  s.k[0] = 1;
  s.k[1] = decay;
  s.k[2] = rate;
  return s;
}

}  // namespace

void RpropOptions::validate() const {
  check(lr >= 0, "Rprop", "lr must not be negative, got ", lr);
  check(etaminus > 0 && etaminus < 1, "Rprop", "etaminus lies in (0, 1), got ", etaminus);
  check(etaplus > 1, "Rprop", "etaplus must be above 1, got ", etaplus);
  check(step_size_min >= 0 && step_size_min <= step_size_max, "Rprop",
        "step_size_min must lie between 0 and step_size_max, got ", step_size_min, " and ", step_size_max);
  low.validate();
}

std::vector<Optimizer::StateSpec> Rprop::state_spec(const Param& p) const {
  return {{"step", {}, DType::i64},
          {"prev", p.tensor.shape(), moment_dtype(p)},
          {"step_size", p.tensor.shape(), moment_dtype(p), lr(p.group)}};
}

void Rprop::update(const std::vector<Param*>& active, double grad_scale) {
  memory::TagScope tag(memory::Tag::workspace);
  for (Param* p : active) {
    if (p->tensor.numel() == 0) continue;
    const RpropOptions& o = options_of(*p);
    const DType dtype = arithmetic_dtype(*p);
    Tensor prev = p->state[1], size = p->state[2];
    const Tensor g = to(p->grad, dtype) * grad_scale;
    const Tensor turned = sign(g) * sign(to(prev, dtype));
    const Tensor stays = to(turned >= 0.0, dtype);
    const Tensor factor = 1.0 + to(turned > 0.0, dtype) * (o.etaplus - 1) + (1.0 - stays) * (o.etaminus - 1);
    size.copy_(clamp(to(size, dtype) * factor, o.step_size_min, o.step_size_max));
    prev.copy_(g * stays);
    const Tensor direction = contiguous(sign(g) * stays * to(size, dtype));
    run(Rule::muon_apply, {take(slab_of(*p, p->state.size()), direction, 1, 1)});
  }
}

void ASGDOptions::validate() const {
  check(lr >= 0, "ASGD", "lr must not be negative, got ", lr);
  check(lambd >= 0, "ASGD", "lambd must not be negative, got ", lambd);
  check(alpha >= 0, "ASGD", "alpha must not be negative, got ", alpha);
  check(t0 >= 0, "ASGD", "t0 must not be negative, got ", t0);
  check(weight_decay >= 0, "ASGD", "weight_decay must not be negative, got ", weight_decay);
  low.validate();
}

std::vector<Optimizer::StateSpec> ASGD::state_spec(const Param& p) const {
  return {{"step", {}, DType::i64}, {"ax", p.tensor.shape(), moment_dtype(p)}};
}

void ASGD::update(const std::vector<Param*>& active, double grad_scale) {
  memory::TagScope tag(memory::Tag::workspace);
  for (Param* p : active) {
    if (p->tensor.numel() == 0) continue;
    const ASGDOptions& o = options_of(*p);
    const DType dtype = arithmetic_dtype(*p);
    const double rate = lr(p->group);
    const auto before = static_cast<double>(*p->state[0].data<int64_t>() - 1);  // updates
    const double eta = rate / std::pow(1 + o.lambd * rate * before, o.alpha);
    const double mu = 1 / std::max(1.0, before - o.t0);
    Tensor direction = to(p->grad, dtype) * grad_scale;
    if (o.weight_decay != 0) direction = direction + to(weights_of(*p), dtype) * o.weight_decay;
    direction = contiguous(direction);
    run(Rule::muon_apply, {take(slab_of(*p, p->state.size()), direction, 1 - o.lambd * eta, eta)});
    Tensor ax = p->state[1];
    const Tensor now = to(weights_of(*p), dtype), mean = to(ax, dtype);
    ax.copy_(mu == 1 ? now : mean + (now - mean) * mu);
  }
}

}  // namespace strata::optim
