#include "strata/optim/sparse_adam/sparse_adam.h"

#include <algorithm>
#include <vector>

#include "strata/core/parallel.h"
#include "strata/memory/allocator.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/ops/view/view.h"
#include "strata/optim/kernels.h"
#include "strata/optim/record_inl.h"

namespace strata::optim {

const OptimizerRecord& SparseAdamOptions::record() {
  using O = SparseAdamOptions;
  using Kind = OptimizerState::Kind;
  static const OptimizerRecord r = finished<SparseAdam, O>({
      .name = "sparse_adam",
      .title = "SparseAdam",
      .doc = "Adam that leaves rows without a gradient as they are, moments too: for tables of which a step uses a few "
             "rows.",
      .options =
          {
              option<&O::lr>("lr", "Learning rate.", kPositive, "-"),
              option<&O::beta1>("beta1", "Decay of the first moment.", kDecay),
              option<&O::beta2>("beta2", "Decay of the second moment.", kDecay),
              option<&O::eps>("eps", "Added to the denominator.", kPositive),
          },
      .states =
          {
              {"step", "Updates.", Kind::count},
              {"exp_avg", "Mean of the gradients."},
              {"exp_avg_sq", "Mean of their squares."},
          },
      .python = "lr, betas=(beta1, beta2), eps, maximize, *",
      .in_training = false,
      .rule = of<O, [](const O&) { return Rule::sparse_adam; }>,
      .constants = constants_of<O,
                                [](double* k, const O& o, double lr, bool) {
                                  k[1] = o.beta1;
                                  k[2] = 1 - o.beta1;
                                  k[3] = o.beta2;
                                  k[4] = 1 - o.beta2;
                                  k[5] = lr;
                                  k[7] = o.eps;
                                }>,
      .unit = [](const void*, int) { return OptimizerRecord::Unit::row; },
  });
  return r;
}
void SparseAdamOptions::validate() const {
  record().validate(this);
}
namespace {
// Which of the rows of `width` numbers have one that is not 0.
std::vector<uint8_t> used_rows(const float* g, int64_t rows, int64_t width) {
  std::vector<uint8_t> used(static_cast<size_t>(rows));
  parallel_for(0, rows, std::max<int64_t>(1, 16384 / std::max<int64_t>(width, 1)), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const float* v = g + row * width;
      uint8_t found = 0;
      constexpr int64_t kBlock = 64;
      for (int64_t i = 0; i < width && !found; i += kBlock)
        for (int64_t j = i; j < std::min(width, i + kBlock); ++j) found |= v[j] != 0.f;
      used[static_cast<size_t>(row)] = found;
    }
  });
  return used;
}
}  // namespace

// The rule looks at one element; which rows are used stands beside it as a third state, 0 or 1 for each element.
void SparseAdam::update(const std::vector<Param*>& active, double grad_scale) {
  memory::TagScope tag(memory::Tag::workspace);
  TensorList used;
  std::vector<Slab> slabs;
  for (Param* p : active) {
    // A card's loops advance the count, of a parameter without elements too; the host has done it already.
    if (p->tensor.numel() == 0 && p->tensor.device().is_cpu()) continue;
    slabs.push_back(slab_of(*p, 1));
    Slab& s = slabs.back();
    s.k[0] = grad_scale;
    record()->constants(s.k, &options_of(*p), lr(p->group), p->first);
    if (refreshing() || p->tensor.numel() == 0) continue;
    // On the host one loop a row that is used; the others are not touched.
    if (s.device.is_cpu() && !s.tensors && !s.stochastic && s.grad_dtype == DType::f32 && p->grad.is_contiguous() &&
        p->grad.dim() > 0) {
      const Slab whole = s;
      slabs.pop_back();
      const int64_t rows = p->grad.size(0), width = p->grad.numel() / rows;
      used.push_back(full({width}, 1.0, whole.state_dtype));
      const std::vector<uint8_t> named = used_rows(static_cast<const float*>(whole.grad), rows, width);
      for (int64_t row = 0; row < rows; ++row) {
        if (!named[static_cast<size_t>(row)]) continue;
        const auto at = [&](void* from, DType t) { return static_cast<char*>(from) + row * width * size_of(t); };
        Slab& one = slabs.emplace_back(whole);
        one.numel = width;
        one.param = at(whole.param, whole.dtype);
        one.grad = at(whole.grad, whole.grad_dtype);
        for (int i = 0; i < 2; ++i) one.state[i] = at(whole.state[i], whole.state_dtype);
        one.state[2] = used.back().raw_data();
        if (whole.low) one.low = at(whole.low, whole.low_dtype);
      }
      continue;
    }
    const Tensor rows = p->grad.dim() > 1 ? p->grad.reshape({p->grad.size(0), -1}) : p->grad.reshape({-1, 1});
    used.push_back(contiguous(to(any(rows != 0.0, {1}, true), s.state_dtype).expand(rows.shape())));
    s.state[2] = used.back().raw_data();
    if (s.tensors) s.tensors->state[2] = used.back();
  }
  run(Rule::sparse_adam, slabs);
}

const OptimizerRecord& records::sparse_adam() {
  return SparseAdamOptions::record();
}

}  // namespace strata::optim
