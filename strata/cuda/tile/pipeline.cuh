#pragma once
// Stages of shared memory between one thread that fills them by copies and warpgroups that consume them, each at its
// own pace (the asynchronous pipeline of FlashAttention-3, arXiv 2407.08608, and of CUTLASS).

#include "strata/cuda/tile/cluster.cuh"

namespace strata::cuda::tile {

/// Every thread has one of these; what the threads share is in shared memory: kStages x kStageBytes for the tiles,
/// 16 x kStages for the barriers.
template <int kStages, int kStageBytes>
class Pipeline {
 public:
  static_assert(kStageBytes % 1024 == 0);
  static constexpr int kTileBytes = kStages * kStageBytes, kSharedBytes = kTileBytes + 16 * kStages;

  /// In kSharedBytes of shared memory that begin at a multiple of 1024 bytes.
  __device__ __forceinline__ explicit Pipeline(uint8_t* memory)
      : tiles_(memory), full_(reinterpret_cast<uint64_t*>(memory + kTileBytes)), empty_(full_ + kStages) {}

  /// By one thread, before the block's first barrier: each of `consumers` releases every stage.
  __device__ __forceinline__ void init(int consumers) {
    for (int i = 0; i < kStages; ++i) init_barrier(full_ + i, 1), init_barrier(empty_ + i, consumers);
    fence_barriers();
    fence_shared();
  }

  /// The producer's thread: fills the next stage once it is free. `copies(tile, barrier)` starts copies of kStageBytes.
  template <class Copies>
  __device__ __forceinline__ void fill(const Copies& copies) {
    wait(empty_ + at_.stage, at_.parity ^ 1);
    arrive_expecting(full_ + at_.stage, kStageBytes);
    copies(tiles_ + at_.stage * kStageBytes, full_ + at_.stage);
    at_.next();
  }

  /// A consumer: the next stage, once it is full.
  __device__ __forceinline__ const uint8_t* take() {
    wait(full_ + at_.stage, at_.parity);
    const uint8_t* const tile = tiles_ + at_.stage * kStageBytes;
    at_.next();
    return tile;
  }
  /// A consumer, by one of its threads or all: the oldest stage that it took and still holds is free; no product of it
  /// runs any more.
  __device__ __forceinline__ void release(bool arrives) {
    if (arrives) arrive(empty_ + released_);
    released_ = released_ + 1 == kStages ? 0 : released_ + 1;
  }
  /// The same where copies of other blocks land in the stage too: block `rank` of the cluster learns it. Each consumer
  /// tells every block whose copies do, itself among them, by a thread of its own.
  __device__ __forceinline__ void release_in(bool arrives, int rank) {
    if (arrives) arrive_in(empty_ + released_, rank);
    released_ = released_ + 1 == kStages ? 0 : released_ + 1;
  }

 private:
  uint8_t* tiles_;
  uint64_t *full_, *empty_;
  Ring<kStages> at_;
  int released_ = 0;
};

}  // namespace strata::cuda::tile
