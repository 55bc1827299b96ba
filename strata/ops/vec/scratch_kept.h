#pragma once
// What ScratchFrame leaves with threads: for forecasts of memory, and to have it back.

#include <cstdint>

namespace strata {

/// Of `bytes` that frames of a thread took at once, what the thread keeps for the next call.
int64_t scratch_kept(int64_t bytes);

/// What threads kept.
struct KeptScratch {
  int threads = 0;
  int64_t bytes = 0, least = 0;  ///< of all of them, and of the one that kept least
  int width = 1;                 ///< threads that may have as much next time: those of the loops in which it was taken
};
/// Gives back what threads without an open frame keep.
KeptScratch release_scratch() noexcept;

}  // namespace strata
