#include "strata/optim/clip.h"

#include <cmath>
#include <vector>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/norm/weight_norm.h"
#include "strata/optim/optimizer.h"

namespace strata::optim {
namespace {

TensorList grads_of(const TensorList& params) {
  TensorList grads;
  for (const Tensor& p : params)
    if (const Tensor g = p.grad(); g.defined() && !g.is_meta()) grads.push_back(g.detach());
  return grads;
}

}  // namespace

double grad_norm(const TensorList& params, double p) {
  if (p == 2) return grad_norm(params);
  const NoGrad guard;
  return total_norm(grads_of(params), p).item();
}

double clip_grad_norm(const TensorList& params, double max_norm, double p) {
  if (p == 2) return clip_grad_norm(params, max_norm);
  check(max_norm > 0, "clip_grad_norm", "max_norm must be positive, got ", max_norm);
  const double norm = grad_norm(params, p);
  if (std::isfinite(norm)) clip_grads_with_norm(params, max_norm, full({}, norm, DType::f64));
  return norm;
}

void clip_grads_with_norm(const TensorList& params, double max_norm, const Tensor& total_norm) {
  check<ShapeError>(total_norm.numel() == 1, "clip_grads_with_norm", "the norm must be one number, got ", total_norm);
  const NoGrad guard;
  // The small summand keeps a norm of 0 from dividing; PyTorch's is the same.
  const Tensor share = clamp_max(max_norm / (total_norm.detach().reshape({}) + 1e-6), 1.0);
  for (Tensor& g : grads_of(params)) g.mul_(share.to(g.device()));
}

}  // namespace strata::optim
