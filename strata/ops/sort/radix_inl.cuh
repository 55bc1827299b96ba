#pragma once
// What the files have in common that build CUB's radix sorts.

#include <algorithm>

#include <cub/device/device_radix_sort.cuh>

#include "strata/core/tensor.h"
#include "strata/cuda/check.cuh"
#include "strata/ops/sort/radix.cuh"

namespace strata::sort_detail {

/// f(workspace, bytes) as CUB's functions take them: asked without a workspace for its size first.
template <class F>
void with_workspace(Device device, F&& f) {
  constexpr const char* what = "cub::DeviceRadixSort";
  size_t bytes = 0;
  cuda::check_cuda(f(nullptr, bytes), "sort", what);
  const Tensor workspace =
      empty({{std::max<int64_t>(1, static_cast<int64_t>(bytes))}, DType::u8, device, std::nullopt});
  cuda::check_cuda(f(workspace.raw_data(), bytes), "sort", what);
}

}  // namespace strata::sort_detail
