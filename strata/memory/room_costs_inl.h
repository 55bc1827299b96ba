#pragma once
// What it has cost so far to get room for tensors, beside what moves: for those who ask why steps take longer than
// planned.

#include <cstdint>

namespace strata::memory {

/// Totals of this process. Seconds are of the threads that asked.
struct RoomCosts {
  int64_t mapped_bytes = 0,
          unmapped_bytes = 0;  ///< of cards' memory, which goes from one stream's heap to another's by that
  double map_seconds = 0;      ///< of both, with waiting for the card before
  int64_t locked_bytes = 0, unlocked_bytes = 0;  ///< of the host's pages
  double lock_seconds = 0;                       ///< of both
};
RoomCosts room_costs();

/// For who gets or gives room: adds to the totals. Any thread may call them.
void count_mapped(int64_t mapped, int64_t unmapped, double seconds) noexcept;
void count_locked(int64_t locked, int64_t unlocked, double seconds) noexcept;

}  // namespace strata::memory
