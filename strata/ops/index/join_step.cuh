#pragma once
// A warp's step along a line of elements that are joined at the places they name (join_lines.cu), apart from the launch
// so that a test on the processor runs the same text.

#include "strata/ops/index/join_inl.h"

namespace strata {

/// Places of a tile from which on elements mostly have one each, so that trying pays.
constexpr int64_t kLeastTags = 256;

/// Joins a warp's elements to their totals, as if one after the other. `place` is negative where there is nothing;
/// `tag`, where given, has a byte for each place, whatever is in it.
///
/// Mostly no two of 32 elements meet: each lane leaves its number at its place, and where all of them find their own
/// again, each joins its element by itself. That is two accesses of shared memory and a vote, where telling who meets
/// whom (`__match_any_sync`) and counting turns are several times as long. Where some meet, all lanes of a place read
/// the total and take the elements in turn, and the first of them writes.
template <bool kCounted, class C>
__device__ __forceinline__ void join_step(Join join, int32_t place, C value, C* total, int32_t* count, uint8_t* tag) {
  constexpr unsigned kAll = 0xffffffffu;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (tag != nullptr) {
    if (place >= 0) tag[place] = static_cast<uint8_t>(lane);
    __syncwarp();
    C now = C(0);
    int32_t had = 1;
    bool alone = true;
    if (place >= 0) {
      alone = tag[place] == lane;
      now = total[place];
      if constexpr (kCounted) had = count[place];
    }
    if (__all_sync(kAll, alone)) {
      if (place >= 0) {
        total[place] = kCounted && had == 0 ? value : joined(join, now, value);
        if constexpr (kCounted) count[place] = had + 1;
      }
      __syncwarp();
      return;
    }
  }
  const unsigned same = __match_any_sync(kAll, place < 0 ? -1 - lane : place);
  const int turns = __reduce_max_sync(kAll, __popc(same));
  C now = C(0);
  int32_t had = 1;
  if (place >= 0) {
    now = total[place];
    if constexpr (kCounted) had = count[place];
  }
  unsigned rest = same;
  for (int t = 0; t < turns; ++t) {
    const int from = rest == 0 ? lane : __ffs(static_cast<int>(rest)) - 1;
    const C next = turns == 1 ? value : __shfl_sync(kAll, value, from);
    if (rest != 0) {
      now = kCounted && had == 0 ? next : joined(join, now, next);
      ++had;
    }
    rest &= rest - 1;
  }
  __syncwarp();  // all have read: shuffles order no memory
  if (place >= 0 && lane == __ffs(static_cast<int>(same)) - 1) {
    total[place] = now;
    if constexpr (kCounted) count[place] = had;
  }
  __syncwarp();
}

}  // namespace strata
