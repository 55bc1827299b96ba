// What the CUDA loops are in a build without CUDA, where no tensor can be on such a device.

#include "strata/core/error.h"
#include "strata/optim/kernels.h"

namespace strata::optim {

void run_rule_cuda(Rule, std::span<const Slab>, Device, DeviceClip) {
  throw DeviceError("optimizer", "this build has no CUDA");
}
Tensor sum_of_squares_cuda(std::span<const Slab>, Device) {
  throw DeviceError("optimizer", "this build has no CUDA");
}

}  // namespace strata::optim
