#include "strata/optim/adafactor/adafactor.h"

#include <algorithm>
#include <cmath>

#include "strata/core/error.h"
#include "strata/memory/allocator.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/optim/adafactor/adafactor_kernels.h"
#include "strata/optim/kernels.h"
#include "strata/optim/record_inl.h"
#include "strata/optim/rounding_inl.h"

namespace strata::optim {

const OptimizerRecord& AdafactorOptions::record() {
  using O = AdafactorOptions;
  using Kind = OptimizerState::Kind;
  static const OptimizerRecord r = finished<Adafactor, O>({
      .name = "adafactor",
      .title = "Adafactor",
      .doc =
          "Adafactor (Shazeer and Stern, 2018) with the relative step: means over rows and columns in place of second "
          "moments.",
      .options =
          {
              option<&O::lr>("lr", "Largest relative step: it is min(lr, 1 / sqrt(t)) times the parameter's scale.",
                             kNotNegative, "-"),
              option<&O::beta2_decay>("beta2_decay", "beta2 of update t is 1 - t^-beta2_decay.", kPositive, "-"),
              option<&O::eps1>("eps1", "Added to the squared gradients.", kPositive, "-"),
              option<&O::eps2>("eps2", "Least scale of a parameter.", kNotNegative, "-"),
              option<&O::clip_threshold>("clip_threshold", "Largest root mean square of an update.", kPositive, "-"),
              option<&O::weight_decay>("weight_decay", "Decay of the parameters, apart from the gradient.",
                                       kNotNegative, "-"),
          },
      .states =
          {
              {"step", "Updates.", Kind::count},
              {"row_var", "Of tensors: mean of the squares over the last dimension.", Kind::own},
              {"col_var", "Likewise over the last but one.", Kind::own},
              {"variance", "Of vectors: mean of the squares.", Kind::own},
          },
      .python = "lr, beta2_decay=-beta2_decay, eps=(eps1?, eps2), d=clip_threshold, weight_decay, *, foreach, maximize",
      .together =
          [](const void* options) {
            check(!static_cast<const O*>(options)->low.compensated_weights, "Adafactor",
                  "takes weights in one array: master_weights in place of compensated_weights");
          },
      .decoupled = of<O, [](const O&) { return true; }>,
      .unit = [](const void*, int) { return OptimizerRecord::Unit::whole; },
  });
  return r;
}
void AdafactorOptions::validate() const {
  record().validate(this);
}
const OptimizerRecord& records::adafactor() {
  return AdafactorOptions::record();
}

std::vector<Optimizer::StateSpec> Adafactor::state_spec(const Param& p) const {
  const Shape& shape = p.shape();
  if (shape.size() < 2) return {{"step", {}, DType::i64}, {"variance", shape, arithmetic_dtype(p)}};
  Shape row = shape, col = shape;
  row.erase(shape.size() - 1);
  col.erase(shape.size() - 2);
  return {{"step", {}, DType::i64}, {"row_var", row, arithmetic_dtype(p)}, {"col_var", col, arithmetic_dtype(p)}};
}

// A device's loops take each step's numbers (and whether there is a step) as constants; between them ordinary ops
// compute the means. Parameters go in batches, whose gradients are held twice, in f32 at least.
void Adafactor::update_on_device(std::span<Param* const> batch, double grad_scale) {
  memory::TagScope tag(memory::Tag::workspace);
  const auto constants = [&](Slab& s, Param& p) {
    const AdafactorOptions& o = options_of(p);
    s.k[0] = 1;
    s.k[1] = 1 - lr(p.group) * o.weight_decay;
    s.k[3] = o.eps1;
    s.k[7] = o.lr;
    s.k[8] = o.lr > 0 ? lr(p.group) / o.lr : 0;
    s.k[9] = o.beta2_decay;
  };
  TensorList grads, means;
  std::vector<Slab> take, blend, apply;
  for (Param* p : batch) {
    // Zeros stay where the step is left out.
    const Tensor weights = weights_of(*p);
    const DType dtype = arithmetic_dtype(*p);
    grads.push_back(refreshing() ? weights : empty({weights.shape(), dtype, weights.device(), std::nullopt}));
    if (!refreshing()) fill_elements(grads.back(), 0);
    Slab s = slab_of(*p);
    s.param = grads.back().raw_data();
    s.dtype = dtype;
    s.state[0] = s.state[1] = s.low = nullptr;
    s.most = nullptr;
    s.step = nullptr;
    s.k[0] = grad_scale;
    take.push_back(s);
  }
  run(Rule::adafactor_take, take);
  for (size_t i = 0; i < batch.size(); ++i) {
    Param& p = *batch[i];
    const bool factored = p.tensor.dim() >= 2;
    const Tensor squares = refreshing() ? Tensor() : grads[i] * grads[i];
    for (size_t k = 1; k < (factored ? 3 : 2); ++k) {
      const Tensor& v = p.state[k];
      means.push_back(refreshing() ? v : factored ? mean(squares, {k == 1 ? -1 : -2}) : squares);
      Slab s{.param = v.raw_data(),
             .grad = means.back().raw_data(),
             .numel = v.numel(),
             .dtype = v.dtype(),
             .grad_dtype = v.dtype(),
             .device = v.device(),
             .count = static_cast<const int64_t*>(p.state[0].raw_data())};
      constants(s, p);
      blend.push_back(s);
    }
  }
  run(Rule::adafactor_blend, blend);
  means.clear();
  for (size_t i = 0; i < batch.size(); ++i) {
    Param& p = *batch[i];
    const AdafactorOptions& o = options_of(p);
    Tensor& u = grads[i];
    if (!refreshing()) {
      if (p.tensor.dim() >= 2) {
        const Tensor rows = (mean(p.state[1], {-1}, true) / p.state[1]).sqrt();
        u.mul_(rows.unsqueeze(-1)).mul_(rsqrt(p.state[2]).unsqueeze(-2));
      } else {
        u.mul_(rsqrt(p.state[1]));
      }
      const Tensor w = weights_of(p).to(arithmetic_dtype(p));
      const Tensor excess = (mean(u * u).sqrt() * Scalar(1 / o.clip_threshold)).clamp(1.0, std::nullopt);
      u.mul_(mean(w * w).sqrt().clamp(o.eps2, std::nullopt) / excess);
    }
    Slab s = slab_of(p);
    s.grad = u.raw_data();
    s.grad_dtype = u.dtype();
    s.state[0] = s.state[1] = nullptr;
    constants(s, p);
    apply.push_back(s);
  }
  run(Rule::adafactor_apply, apply);
}

void Adafactor::update(const std::vector<Param*>& active, double grad_scale) {
  constexpr int64_t kMostElements = int64_t{1} << 26;
  std::vector<AdafactorJob> jobs;
  std::vector<Param*> batch;
  int64_t elements = 0;
  const auto flush = [&] {
    if (!batch.empty()) update_on_device(batch, grad_scale);
    batch.clear();
    elements = 0;
  };
  for (Param* p : active) {
    if (p->tensor.numel() == 0) continue;
    if (p->tensor.device().is_cuda()) {
      if (elements + p->tensor.numel() > kMostElements) flush();
      batch.push_back(p);
      elements += p->tensor.numel();
      continue;
    }
    const AdafactorOptions& o = options_of(*p);
    const Slab s = slab_of(*p);
    const double t = static_cast<double>(s.t);
    const Shape& shape = p->tensor.shape();
    const bool factored = shape.size() >= 2;
    AdafactorJob job;
    job.param = s.param;
    job.low = s.low;
    job.low_dtype = s.low_dtype;
    job.grad = s.grad;
    job.dtype = s.dtype;
    job.grad_dtype = s.grad_dtype;
    if (s.stochastic) job.rounding = {true, rounding_key(s.seed, static_cast<uint64_t>(s.t)), false, 0};
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
  flush();
  run_adafactor(jobs);
}

}  // namespace strata::optim
