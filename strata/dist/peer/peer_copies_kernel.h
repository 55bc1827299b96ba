#pragma once
// What multiprocessors do of gathers and sums that copy engines move (peer_copies_inl.h): ranks meet, and a rank adds
// up what has come. For cards, and for a test on the host that runs the same source on threads.

#include "strata/dist/peer/peer_sum_kernel.h"

namespace strata::distributed::peer {

/// What ranks put there for others to fetch, each of two halves; and what was fetched to be added up.
constexpr int64_t kHalf = 16 << 20;

/// One meeting of a group's ranks, the same for all of them.
struct Meeting {
  uint32_t* met[kMostRanks];  ///< of each rank [kMostRanks]: the number of the last meeting to which a rank has come
  int rank, size;
  uint32_t* meetings;  ///< of this rank alone: how many there were
  const volatile uint32_t* aborted;
};

/// Returns when every rank has come: what they queued before it is done. One block. Numbers are the card's, so a
/// graph's replays count too.
template <class Block>
STRATA_PEER void meet_block(const Meeting& m, const Block& block) {
  const uint32_t number = *m.meetings + 1;
  block.sync();
  meet(
      m.rank, m.size, number, m.aborted, block, [&](int p) { return m.met[p] + m.rank; },
      [&](int p) { return m.met[m.rank] + p; });
  if (block.thread == 0) *m.meetings = number;
}

/// out[0, count) = the sum, times `scale`, of parts[p][0, count) in the order of the ranks, in f32 or f64, rounded
/// once. Places are of whole vectors where `count` is. `Block` as all_reduce_block() has it, of any number.
template <class T, class Block>
STRATA_PEER void add_block(const T* const (&parts)[kMostRanks], int size, int64_t count, Wide<T> scale, T* out,
                           const Block& block, int blocks) {
  constexpr int kEach = static_cast<int>(sizeof(Words) / sizeof(T));
  using W = Wide<T>;
  using Vector = peer::Vector<T>;
  bool aligned = reinterpret_cast<uintptr_t>(out) % sizeof(Words) == 0;
  for (int p = 0; p < size; ++p) aligned = aligned && reinterpret_cast<uintptr_t>(parts[p]) % sizeof(Words) == 0;
  const int64_t step = static_cast<int64_t>(blocks) * block.threads * kEach;
  for (int64_t at = (static_cast<int64_t>(block.index) * block.threads + block.thread) * kEach; at < count;
       at += step) {
    const bool whole = aligned && at + kEach <= count;
    W sums[kEach] = {};
    for (int p = 0; p < size; ++p) {
      Vector x;
      if (whole) {
        x.words = *reinterpret_cast<const Words*>(parts[p] + at);
      } else {
        for (int i = 0; i < kEach; ++i) {
          if (at + i < count) x.values[i] = parts[p][at + i];
        }
      }
      for (int i = 0; i < kEach; ++i) {
        const W value = block.widen(x.values[i]);
        sums[i] = p == 0 ? value : sums[i] + value;
      }
    }
    Vector y;
    for (int i = 0; i < kEach; ++i) y.values[i] = block.template narrow<T>(sums[i] * scale);
    if (whole) {
      *reinterpret_cast<Words*>(out + at) = y.words;
    } else {
      for (int i = 0; i < kEach; ++i) {
        if (at + i < count) out[at + i] = y.values[i];
      }
    }
  }
}

/// Elements of a rank's part that one turn of a reduce_scatter moves: as many of each of `size` ranks as half a room
/// holds, whole vectors.
inline int64_t turn_of(int size, int64_t item) {
  return kHalf / size / static_cast<int64_t>(sizeof(Words)) * static_cast<int64_t>(sizeof(Words)) / item;
}

}  // namespace strata::distributed::peer
