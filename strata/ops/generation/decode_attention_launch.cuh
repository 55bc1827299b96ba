#pragma once
// How kernels of decode_attention.cuh are chosen and queued.

#include <algorithm>

#include "strata/cuda/tile/launch.cuh"
#include "strata/ops/generation/decode_attention.cuh"

namespace strata::generation::decode {

constexpr int kMostBlocks = 8;   // of a cluster
constexpr int kLeastKeys = 128;  // places that are worth a block of their own

template <bool kNew, class T, int kLanes, int kHeads>
void launch(DecodeCall c, int64_t batch) {
  c.parts = (c.group + kHeads - 1) / kHeads;
  const int64_t blocks = batch * c.kv_heads * c.parts;
  int device = 0;
  cuda::check_cuda(cudaGetDevice(&device), "cache_attention", "cudaGetDevice");
  const cuda::DeviceProperties& card = cuda::properties(device);
  // Enough blocks to keep the memory busy, none with too little to read.
  int ranks = 1;
  while (card.major >= 9 && ranks < kMostBlocks && blocks * ranks < 2 * card.multiprocessors &&
         c.capacity > ranks * kLeastKeys)
    ranks *= 2;
  constexpr auto kKernel = decode_kernel<T, kLanes, kHeads, kNew>;
  constexpr size_t kShared = sizeof(DecodeShared<T, kLanes, kHeads>);
  // A multiprocessor divides its memory as the products beside this kernel want it, so that they can be there together.
  cuda::tile::prepare<kKernel>(static_cast<int>(kShared));
  cuda::launch_early(kKernel, cuda::blocks_for(blocks * ranks, 1), kThreads, kShared, ranks, c);
}

// Lanes have 16 bytes each; of heads as many as there are, but enough that an addition covers no more than kKeys keys.
template <bool kNew, class T>
void by_size(const DecodeCall& c, int64_t batch) {
  const int widest = std::max(c.d, c.dv) / (16 / static_cast<int>(sizeof(T)));
  const auto heads = [&]<int kLanes>() {
    constexpr int kLeast = kLanes <= kKeys ? 1 : kLanes / kKeys;
    if constexpr (kLeast <= 1)
      if (c.group == 1) return launch<kNew, T, kLanes, 1>(c, batch);
    if constexpr (kLeast <= 2)
      if (c.group <= 2) return launch<kNew, T, kLanes, 2>(c, batch);
    if (c.group <= 4 || kLanes < 8) return launch<kNew, T, kLanes, 4>(c, batch);
    if constexpr (kLanes >= 8) launch<kNew, T, kLanes, 8>(c, batch);
  };
  if (widest <= 4) return heads.template operator()<4>();
  if (widest <= 8) return heads.template operator()<8>();
  if (widest <= 16) return heads.template operator()<16>();
  heads.template operator()<32>();
}

}  // namespace strata::generation::decode
