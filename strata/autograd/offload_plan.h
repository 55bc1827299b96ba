#pragma once
// What becomes of each saved tensor between forward and backward, and how that is chosen from measured times.

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "strata/core/value.h"

namespace strata {

/// Where a saved tensor is between forward and backward.
enum class SavedPlace : uint8_t {
  keep,       ///< where it was made
  host,       ///< page-locked memory (of a tensor on the CPU: plain memory, for tests)
  disk,       ///< OffloadOptions::disk
  recompute,  ///< nowhere: its op runs again
};
/// "keep", "host", "disk", "recompute".
std::string_view name_of(SavedPlace place);

/// One storage that forward saved, in the order in which they were saved: what a planner has to know of it.
struct SavedRecord {
  int64_t bytes = 0;
  std::string name;  ///< who made it, or first saved it: "linear in blocks.3"; empty where that is not known
  SavedPlace place = SavedPlace::keep;
  double seconds = 0;  ///< since the forward pass began, without waiting for copies
  /// The call that can make it again from what is saved besides, or -1. Several results of one call have one number and
  /// cost one run of it.
  int32_t call = -1;
  Cost cost;                   ///< of that, what must be computed on the way to it included
  int64_t beside = 0;          ///< bytes of what is made on the way to it and not saved
  std::vector<int32_t> reads;  ///< which others it is made from then, by the order of saving
};

/// A forward and a backward pass, measured.
struct OffloadMeasured {
  std::vector<SavedRecord> saved;
  double forward_seconds = 0;   ///< until backward began, without waiting for copies
  double backward_seconds = 0;  ///< until the last saved tensor was used, without waiting and what was computed again
  double out_rate = 0, in_rate = 0;  ///< bytes a second of the link each way; 0 where nothing went
  /// Seconds that an operation and a byte of a call take, as forward's calls took them.
  double seconds_per_flop = 0, seconds_per_byte = 0;
};

/// What a plan may cost.
struct OffloadLimits {
  double slowdown = 1.02;  ///< times the measured step, at most
  int64_t keep_bytes = 0;  ///< no fewer bytes of saved tensors need to leave than so many stay; 0: as many as can
  bool recompute = false;  ///< whether tensors may be computed again
  SavedPlace away = SavedPlace::host;  ///< where others go: host or disk; keep: nothing leaves
};

/// A decision for each saved storage, by the order of saving; what is saved after those listed is kept.
struct OffloadPlan {
  /// No release_at.
  static constexpr int32_t kNever = std::numeric_limits<int32_t>::max();
  /// What becomes of one of them.
  struct Choice {
    SavedPlace place = SavedPlace::keep;
    /// The compute stream waits for the copy, and the memory is given back, when this many storages have been saved.
    /// kNever: when the copy is found to be done, or OffloadOptions::queue_bytes are on the way out.
    int32_t release_at = kNever;
    friend bool operator==(const Choice&, const Choice&) = default;
  };
  std::vector<Choice> choices;
  int64_t away_bytes = 0, recomputed_bytes = 0, kept_bytes = 0;
  double seconds = 0;  ///< of the step, expected

  /// Nothing but places: release_at is kNever.
  static OffloadPlan of(const std::vector<SavedPlace>& places);
};

/// What to send away and what to compute again, so that the least is left at the end of forward, which is where the
/// peak is. Copies take place in the order of saving, one after the other from when a tensor is saved; the first saved
/// go, which have the longest way back, as long as their copies end with forward and return within backward. What the
/// allowed slowdown leaves is spent on running calls again, as long as a second of that frees more than a second of the
/// link, of those that are there when most is held the ones of most bytes a second first, and then on waiting for the
/// link. What is made again from what is made again itself is there together with it, so such chains have at most three
/// links; and with `keep_bytes` no call runs again that would have backward hold more than those and the largest
/// storage, what it reads included.
OffloadPlan plan_offload(const OffloadMeasured& measured, const OffloadLimits& limits);
/// What the calls take that a measured pass ran again, by its rates.
double seconds_again(const OffloadMeasured& measured);

}  // namespace strata
