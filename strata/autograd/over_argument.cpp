#include "strata/autograd/over_argument.h"

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/core/rebind.h"

namespace strata {

Tensor set_aside(const Tensor& x, uint32_t holders) {
  check(x.defined(), "set_aside", "there is no tensor");
  const TensorImpl& impl = x.impl();
  if (x.is_leaf() || impl.view_base || x.ref().use_count() > holders || x.storage().use_count() > 1) return {};
  Tensor same = x.detach();
  set_history(same, impl.autograd->grad_fn, impl.autograd->result_index);
  return same;
}

void put_over(const Tensor& x, const Tensor& y) {
  check(x.defined() && y.defined(), "put_over", "there is no tensor");
  check(y.shape() == x.shape() && y.dtype() == x.dtype() && y.device() == x.device(), "put_over", "the result is ", y,
        ", the tensor ", x);
  rebind(x, y);
  AutogradMeta& meta = autograd_meta(x);
  meta.low = {};
  if (!y.requires_grad()) {
    meta.grad_fn = {};
    x.impl().requires_grad = false;
    return;
  }
  set_history(x, y.grad_fn(), y.impl().autograd->result_index);
}

}  // namespace strata
