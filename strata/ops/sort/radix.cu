#include "strata/ops/sort/radix.cuh"

#include <algorithm>

#include <cub/device/device_radix_sort.cuh>

#include "strata/core/tensor.h"
#include "strata/cuda/check.cuh"

namespace strata::sort_detail {
namespace {

// f(workspace, bytes) as CUB's functions take them: asked without a workspace for its size first.
template <class F>
void with_workspace(Device device, F&& f) {
  constexpr const char* what = "cub::DeviceRadixSort";
  size_t bytes = 0;
  cuda::check_cuda(f(nullptr, bytes), "sort", what);
  const Tensor workspace =
      empty({{std::max<int64_t>(1, static_cast<int64_t>(bytes))}, DType::u8, device, std::nullopt});
  cuda::check_cuda(f(workspace.raw_data(), bytes), "sort", what);
}

}  // namespace

template <class K>
void radix_sort(TwoBuffers<K>& keys, int64_t n, int bits, Device device) {
  if (bits == 0) return;
  cub::DoubleBuffer<K> both(keys.now, keys.other);
  with_workspace(device, [&](void* workspace, size_t& bytes) {
    return cub::DeviceRadixSort::SortKeys(workspace, bytes, both, static_cast<uint32_t>(n), 0, bits, cuda::stream());
  });
  keys = {both.Current(), both.Alternate()};
}

template <class K>
void radix_sort(TwoBuffers<K>& keys, TwoBuffers<uint32_t>& values, int64_t n, int bits, Device device) {
  if (bits == 0) return;
  cub::DoubleBuffer<K> both(keys.now, keys.other);
  cub::DoubleBuffer<uint32_t> pairs(values.now, values.other);
  with_workspace(device, [&](void* workspace, size_t& bytes) {
    return cub::DeviceRadixSort::SortPairs(workspace, bytes, both, pairs, static_cast<uint32_t>(n), 0, bits,
                                           cuda::stream());
  });
  keys = {both.Current(), both.Alternate()};
  values = {pairs.Current(), pairs.Alternate()};
}

template void radix_sort(TwoBuffers<uint32_t>&, int64_t, int, Device);
template void radix_sort(TwoBuffers<uint64_t>&, int64_t, int, Device);
template void radix_sort(TwoBuffers<uint32_t>&, TwoBuffers<uint32_t>&, int64_t, int, Device);
template void radix_sort(TwoBuffers<uint64_t>&, TwoBuffers<uint32_t>&, int64_t, int, Device);

}  // namespace strata::sort_detail
