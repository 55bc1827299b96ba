// What the CUDA loops are in a build without CUDA, where no tensor can be on such a device.

#include "strata/core/error.h"
#include "strata/optim/ahead_inl.h"
#include "strata/optim/kernels.h"

namespace strata::optim {

void run_rule_cuda(Rule, std::span<const Slab>, const Tensor&, const double*) {
  throw DeviceError("optimizer", "this build has no CUDA");
}
Tensor empty_constants(size_t, Device) {
  throw DeviceError("optimizer", "this build has no CUDA");
}
void write_constants(Rule, const Tensor&, std::span<const Slab>) {
  throw DeviceError("optimizer", "this build has no CUDA");
}
void judge_cuda(const Tensor&, const Tensor&, const Tensor&, double, ScaleRule) {
  throw DeviceError("optimizer", "this build has no CUDA");
}
Tensor sum_of_squares_cuda(std::span<const Slab>, Device) {
  throw DeviceError("optimizer", "this build has no CUDA");
}

void squares_cuda(const Slab&, double*) {
  throw DeviceError("optimizer", "this build has no CUDA");
}
Tensor total_cuda(const Tensor&) {
  throw DeviceError("optimizer", "this build has no CUDA");
}
int64_t square_parts_cuda(int64_t) {
  throw DeviceError("optimizer", "this build has no CUDA");
}
std::unique_ptr<AheadCard> make_ahead_card(Device) {
  throw DeviceError("optimizer", "this build has no CUDA");
}

}  // namespace strata::optim
