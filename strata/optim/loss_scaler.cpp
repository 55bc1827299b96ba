#include "strata/optim/loss_scaler.h"

#include <vector>

#include "strata/core/error.h"
#include "strata/core/node.h"
#include "strata/memory/allocator.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"

namespace strata::optim {

void LossScalerOptions::validate() const {
  check(init > 0, "LossScaler", "init must be positive, got ", init);
  check(growth >= 1, "LossScaler", "growth must be at least 1, got ", growth);
  check(backoff > 0 && backoff <= 1, "LossScaler", "backoff lies in (0, 1], got ", backoff);
  check(growth_interval >= 1, "LossScaler", "growth_interval must be at least 1, got ", growth_interval);
}

LossScaler::LossScaler(Device device, const LossScalerOptions& options) : options_(options) {
  options_.validate();
  memory::TagScope tag(memory::Tag::optimizer);
  state_ = from_span<double>(std::vector<double>{options_.init, 0}, {2}).to(device);
}

Tensor LossScaler::scale(const Tensor& loss) const {
  const DType dtype = loss.dtype() == DType::f64 ? DType::f64 : DType::f32;
  return to(loss, dtype) * to(state_.select(0, 0), dtype);
}

double LossScaler::value() const {
  return state_.select(0, 0).item();
}

void LossScaler::load_state(const Tensor& state) {
  check<ShapeError>(state.shape() == state_.shape(), "LossScaler", "a state is [2], got ", state);
  check<DTypeError>(state.dtype() == DType::f64, "LossScaler", "a state is f64, got ", state);
  NoGrad guard;
  copy_elements(state_, state);
}

}  // namespace strata::optim
