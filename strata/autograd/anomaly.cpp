#include "strata/autograd/anomaly.h"

#include <cmath>

#include "strata/core/dispatch.h"
#include "strata/core/placement.h"

namespace strata {
namespace {

thread_local int t_depth = 0;
thread_local const Node* t_running = nullptr;

bool has_nan(const Tensor& t) {
  if (!t.defined() || t.is_meta() || !is_floating(t.dtype()) || t.numel() == 0) return false;
  NoGrad guard;
  if (t.device().is_cuda() || is_placed(t)) return t.detach().isnan().any().item<bool>();
  const Tensor c = t.detach().contiguous();
  return dispatch_floats(c.dtype(), "anomaly", [&]<class T>() {
    const T* p = c.data<T>();
    for (int64_t i = 0; i < c.numel(); ++i)
      if (std::isnan(static_cast<compute_t<T>>(p[i]))) return true;
    return false;
  });
}

}  // namespace

AnomalyScope::AnomalyScope() : scope_(watch_) {
  ++t_depth;
}
AnomalyScope::~AnomalyScope() {
  --t_depth;
}

void AnomalyScope::Watch::after(const Call& call, std::span<const Tensor> results) {
  const OpBase& op = call.op;
  for (size_t i = 0; i < results.size(); ++i) {
    const ThreadMode outer = t_mode;
    t_mode.unusual &= detail::kPlacements;  // the search itself is not searched
    const bool bad = has_nan(results[i]);
    t_mode = outer;
    if (bad && t_running)
      throw AutogradError(t_running->name(),
                          cat("its backward made a NaN: result ", i, " (", results[i], ") of ", op.name()));
    if (bad) throw AutogradError(op.name(), cat("result ", i, " (", results[i], ") of the forward op holds a NaN"));
  }
}

anomaly::BackwardOf::BackwardOf(const Node& node) : previous_(t_running) {
  t_running = &node;
}
anomaly::BackwardOf::~BackwardOf() {
  t_running = previous_;
}

void anomaly::check_gradients(const Node& node, const Grads& grads) {
  if (t_depth == 0) return;
  for (size_t i = 0; i < grads.size(); ++i) {
    const ThreadMode outer = t_mode;
    t_mode.unusual &= detail::kPlacements;
    const bool bad = has_nan(grads[i]);
    t_mode = outer;
    if (bad)
      throw AutogradError(node.name(),
                          cat("its backward made a NaN in the gradient of input ", i, " (", grads[i], ")"));
  }
}

}  // namespace strata
