// The CUDA kernel that a build without CUDA refuses.

#include "strata/core/error.h"
#include "strata/ops/sort/sort_kernels.h"

namespace strata {

std::tuple<Tensor, Tensor, Tensor> unique_cuda(const Tensor&, bool, bool) {
  throw DeviceError("unique", "this build has no CUDA");
}

}  // namespace strata
