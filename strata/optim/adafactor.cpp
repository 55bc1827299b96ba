#include "strata/optim/adafactor.h"

#include <algorithm>
#include <cmath>

#include "strata/core/error.h"
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
    jobs.push_back(job);
  }
  run_adafactor(jobs);
}

}  // namespace strata::optim
