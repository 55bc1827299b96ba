#include "strata/ops/sort/radix_inl.cuh"

namespace strata::sort_detail {

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
