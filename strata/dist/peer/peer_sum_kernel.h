#pragma once
// A small all_reduce by one kernel, over memory of each rank's card that the others write to (one shot, as in the
// low-latency all-reduce of TensorRT-LLM and vLLM): a rank sends its numbers to all, says so, waits until all have said
// so, and adds in the order of the ranks. For cards, and for a test on the host that runs the same source on threads.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "strata/dist/reduction.h"

#if defined(__CUDACC__)
#define STRATA_PEER __host__ __device__ inline
#else
#define STRATA_PEER inline
#endif

namespace strata::distributed::peer {

constexpr int kMostRanks = 8;
constexpr int kBlocks = 16, kThreads = 256;
constexpr int64_t kSlot = 16 << 10;              ///< bytes that a block takes of a rank in a call
constexpr int64_t kMostBytes = kBlocks * kSlot;  ///< of a call

/// One rank's memory, at the address at which this process sees it. All zeros at first.
struct Room {
  std::byte* data;  ///< [2][kBlocks][kMostRanks][kSlot]: what ranks sent, of even and odd calls
  uint32_t* sent;   ///< [kBlocks][kMostRanks]: the number of the last call of which a rank's numbers are there
};
constexpr int64_t kDataBytes = 2 * kBlocks * kMostRanks * kSlot;
constexpr int64_t kRoomBytes = kDataBytes + kBlocks * kMostRanks * static_cast<int64_t>(sizeof(uint32_t));

/// What a call is, the same for all of its blocks.
struct Call {
  Room rooms[kMostRanks];  ///< by rank
  int rank, size;
  int64_t count, per_block;          ///< elements: of all, of a block
  uint32_t* calls;                   ///< [kBlocks], of this rank alone: how many calls a block has had
  const volatile uint32_t* aborted;  ///< not 0: nobody is to be waited for any more; what comes out is garbage
};

struct alignas(16) Words {
  uint32_t w[4];
};

STRATA_PEER void say(uint32_t* flag, uint32_t value) {
#if defined(__CUDA_ARCH__)
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
#else
  std::atomic_ref(*flag).store(value, std::memory_order_release);
#endif
}
STRATA_PEER uint32_t heard(uint32_t* flag) {
#if defined(__CUDA_ARCH__)
  uint32_t value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
  return value;
#else
  return std::atomic_ref(*flag).load(std::memory_order_acquire);
#endif
}
// What other cards wrote: never from a cache that they do not reach.
STRATA_PEER Words fresh(const std::byte* from) {
  Words x;
#if defined(__CUDA_ARCH__)
  asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(x.w[0]), "=r"(x.w[1]), "=r"(x.w[2]), "=r"(x.w[3])
               : "l"(from));
#else
  x = *reinterpret_cast<const Words*>(from);
#endif
  return x;
}

/// Tells every other rank, at `theirs(p)`, that this one has come to call `number`, and waits until each has said so at
/// `ours(p)`, or somebody aborts. A rank may be one call ahead.
template <class Block, class Theirs, class Ours>
STRATA_PEER void meet(int rank, int size, uint32_t number, const volatile uint32_t* aborted, const Block& block,
                      const Theirs& theirs, const Ours& ours) {
  for (int p = block.thread; p < size; p += block.threads) {
    if (p != rank) say(theirs(p), number);
  }
  for (int p = block.thread; p < size; p += block.threads) {
    if (p == rank) continue;
    uint32_t* const flag = ours(p);
    for (int turn = 1; static_cast<int32_t>(heard(flag) - number) < 0; ++turn) {
      block.idle();
      if (turn % 256 == 0 && *aborted != 0) break;
    }
  }
}

template <class T>
using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// 16 bytes, as one and by their elements.
template <class T>
union Vector {
  Words words;
  T values[sizeof(Words) / sizeof(T)];
  STRATA_PEER Vector() : words{} {}
};

template <class W>
STRATA_PEER W joined(Reduction r, W a, W b) {
  switch (r) {
    case Reduction::min:
      return b < a ? b : a;
    case Reduction::max:
      return a < b ? b : a;
    case Reduction::product:
      return a * b;
    default:
      return a + b;
  }
}

/// One block's share of data[0, count), in place. `Block` has index, thread, threads, sync(), idle() for a turn of
/// waiting, and widen() and narrow() between elements (of 2, 4 or 8 bytes) and what is added, f32 or f64; rounded once.
/// Why two halves of a room are enough: who is at call n + 2 has heard of everybody's call n + 1, which begins when
/// call n has ended.
template <class T, class Block>
STRATA_PEER void all_reduce_block(const Call& c, Reduction r, T* data, const Block& block) {
  constexpr int kEach = static_cast<int>(sizeof(Words) / sizeof(T));
  using W = Wide<T>;
  using Vector = peer::Vector<T>;
  const int64_t begin = block.index * c.per_block;
  const int64_t n = c.count - begin < c.per_block ? c.count - begin : c.per_block;
  const bool aligned = reinterpret_cast<uintptr_t>(data + begin) % sizeof(Words) == 0;
  const uint32_t number = c.calls[block.index] + 1;
  const auto place = [&](int by, int64_t at) {  // of element `at` of what rank `by` sent, within a room
    return ((static_cast<int64_t>(number & 1) * kBlocks + block.index) * kMostRanks + by) * kSlot +
           at * static_cast<int64_t>(sizeof(T));
  };
  const auto own = [&](int64_t at) {
    Vector x;
    T* const from = data + begin + at;
    if (aligned && at + kEach <= n) {
      x.words = *reinterpret_cast<const Words*>(from);
    } else {
      for (int i = 0; i < kEach; ++i) {
        if (at + i < n) x.values[i] = from[i];
      }
    }
    return x;
  };
  const int64_t step = static_cast<int64_t>(block.threads) * kEach, first = static_cast<int64_t>(block.thread) * kEach;
  for (int64_t at = first; at < n; at += step) {
    const Vector x = own(at);
    for (int k = 1; k < c.size; ++k) {  // not all to one card at once
      const int to = (c.rank + k) % c.size;
      *reinterpret_cast<Words*>(c.rooms[to].data + place(c.rank, at)) = x.words;
    }
  }
  block.sync();
  meet(
      c.rank, c.size, number, c.aborted, block,
      [&](int p) { return c.rooms[p].sent + block.index * kMostRanks + c.rank; },
      [&](int p) { return c.rooms[c.rank].sent + block.index * kMostRanks + p; });
  block.sync();
  const W scale = r == Reduction::avg ? W{1} / static_cast<W>(c.size) : W{1};
  for (int64_t at = first; at < n; at += step) {
    const Vector mine = own(at);
    W sums[kEach];
    for (int p = 0; p < c.size; ++p) {
      Vector x = mine;
      if (p != c.rank) x.words = fresh(c.rooms[c.rank].data + place(p, at));
      for (int i = 0; i < kEach; ++i) {
        const W value = block.widen(x.values[i]);
        sums[i] = p == 0 ? value : joined(r, sums[i], value);
      }
    }
    Vector out;
    for (int i = 0; i < kEach; ++i)
      out.values[i] = block.template narrow<T>(r == Reduction::avg ? sums[i] * scale : sums[i]);
    T* const to = data + begin + at;
    if (aligned && at + kEach <= n) {
      *reinterpret_cast<Words*>(to) = out.words;
    } else {
      for (int i = 0; i < kEach; ++i) {
        if (at + i < n) to[i] = out.values[i];
      }
    }
  }
  if (block.thread == 0) c.calls[block.index] = number;
}

/// How many blocks a call takes, and elements of each: whole vectors of 16 bytes, one a thread as long as there are
/// enough blocks.
struct Shares {
  int blocks;
  int64_t per_block;
};
inline Shares shares_of(int64_t count, int64_t item) {
  const int64_t each = static_cast<int64_t>(sizeof(Words)) / item;
  const int64_t vectors = (count + each - 1) / each;
  int64_t per_block = (vectors + kBlocks - 1) / kBlocks;
  per_block = per_block < kThreads ? kThreads : per_block;
  const int64_t blocks = (vectors + per_block - 1) / per_block;
  return {static_cast<int>(blocks), per_block * each};
}

}  // namespace strata::distributed::peer
