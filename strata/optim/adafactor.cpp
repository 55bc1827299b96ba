#include "strata/optim/adafactor.h"

#include <algorithm>
#include <cmath>

#include "strata/core/error.h"
#include "strata/memory/allocator.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/optim/adafactor_kernels.h"

namespace strata::optim {

void AdafactorOptions::validate() const {
  check(lr >= 0, "Adafactor", "lr must not be negative, got ", lr);
  check(beta2_decay > 0, "Adafactor", "beta2_decay must be positive, got ", beta2_decay);
  check(eps1 > 0 && eps2 >= 0, "Adafactor", "eps1 must be positive and eps2 not negative, got ", eps1, " and ", eps2);
  check(clip_threshold > 0, "Adafactor", "clip_threshold must be positive, got ", clip_threshold);
  check(weight_decay >= 0, "Adafactor", "weight_decay must not be negative, got ", weight_decay);
}

std::vector<Optimizer::StateSpec> Adafactor::state_spec(const Param& p) const {
  const Shape& shape = p.tensor.shape();
  if (shape.size() < 2) return {{"step", {}, DType::i64}, {"variance", shape, p.tensor.dtype()}};
  Shape row = shape, col = shape;
  row.erase(shape.size() - 1);
  col.erase(shape.size() - 2);
  return {{"step", {}, DType::i64}, {"row_var", row, p.tensor.dtype()}, {"col_var", col, p.tensor.dtype()}};
}

namespace {

// The same update with ordinary ops, for devices without fused loops; nothing waits for the device.
void update_with_ops(const AdafactorJob& job, Tensor param, const Tensor& grad, std::vector<Tensor>& state) {
  memory::TagScope tag(memory::Tag::workspace);
  const Scalar keep(job.keep), rest(1 - job.keep);
  const Tensor g = to(grad, param.dtype()) * Scalar(job.grad_scale), squares = g * g;
  const Tensor param_rms = mean(param * param).sqrt();
  const auto blend = [&](Tensor& v, const Tensor& now) { v.mul_(keep).add_((now + Scalar(job.eps1)) * rest); };
  Tensor u;
  if (!job.columns) {
    blend(state[1], squares);
    u = g / state[1].sqrt();
  } else {
    blend(state[1], mean(squares, {-1}));
    blend(state[2], mean(squares, {-2}));
    const Tensor rows = (mean(state[1], {-1}, true) / state[1]).sqrt();
    u = g * rows.unsqueeze(-1) * rsqrt(state[2]).unsqueeze(-2);
  }
  const Tensor excess = (mean(u * u).sqrt() * Scalar(1 / job.clip_threshold)).clamp(1.0, std::nullopt);
  const Tensor step = param_rms.clamp(job.eps2, std::nullopt) * Scalar(job.rate) / excess;
  param.mul_(Scalar(job.decay)).add_(u * step, -1);
}

}  // namespace

void Adafactor::update(const std::vector<Param*>& active, double grad_scale) {
  std::vector<AdafactorJob> jobs;
  for (Param* p : active) {
    if (p->tensor.numel() == 0) continue;
    const AdafactorOptions& o = options_of(*p);
    const double t = static_cast<double>(step_count(*p));
    const Shape& shape = p->tensor.shape();
    const bool factored = shape.size() >= 2;
    AdafactorJob job;
    job.param = p->tensor.raw_data();
    job.grad = p->grad.raw_data();
    job.dtype = p->tensor.dtype();
    job.grad_dtype = p->grad.dtype();
    job.cols = shape.empty() ? 1 : shape.back();
    job.rows = factored ? shape[shape.size() - 2] : 1;
    job.batch = p->tensor.numel() / (job.rows * job.cols);
    job.variance = p->state[1].raw_data();
    job.columns = factored ? p->state[2].raw_data() : nullptr;
    job.grad_scale = grad_scale;
    job.keep = 1 - std::pow(t, -o.beta2_decay);
    job.eps1 = o.eps1;
    job.eps2 = o.eps2;
    job.clip_threshold = o.clip_threshold;
    // lr_scale applies to the whole step, not only to its upper limit.
    const double rate = std::min(o.lr, 1 / std::sqrt(t)) * (o.lr > 0 ? lr(p->group) / o.lr : 0);
    job.rate = rate;
    job.decay = 1 - lr(p->group) * o.weight_decay;
    if (p->tensor.device().is_cpu()) {
      jobs.push_back(job);
    } else {
      update_with_ops(job, p->tensor.detach(), p->grad, p->state);
    }
  }
  run_adafactor(jobs);
}

}  // namespace strata::optim
