// Radix sorts of signed numbers as they lie: CUB turns their signs on the way, so that neither keys are made of them
// beforehand nor values of the keys in the end.

#include "strata/ops/sort/radix_inl.cuh"

namespace strata::sort_detail {

template <class T>
void radix_sort_signed(const T* from, T* to, int64_t n, Device device) {
  with_workspace(device, [&](void* workspace, size_t& bytes) {
    return cub::DeviceRadixSort::SortKeys(workspace, bytes, from, to, static_cast<uint32_t>(n), 0,
                                          8 * static_cast<int>(sizeof(T)), cuda::stream());
  });
}

template <class T>
void radix_sort_signed(const T* from, T* to, const uint32_t* values, uint32_t* sorted, int64_t n, Device device) {
  with_workspace(device, [&](void* workspace, size_t& bytes) {
    return cub::DeviceRadixSort::SortPairs(workspace, bytes, from, to, values, sorted, static_cast<uint32_t>(n), 0,
                                           8 * static_cast<int>(sizeof(T)), cuda::stream());
  });
}

template void radix_sort_signed(const int32_t*, int32_t*, int64_t, Device);
template void radix_sort_signed(const int64_t*, int64_t*, int64_t, Device);
template void radix_sort_signed(const int32_t*, int32_t*, const uint32_t*, uint32_t*, int64_t, Device);
template void radix_sort_signed(const int64_t*, int64_t*, const uint32_t*, uint32_t*, int64_t, Device);

}  // namespace strata::sort_detail
