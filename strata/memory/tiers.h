#pragma once
// The tiers beside a device's own memory, by name. docs/design/tiers.md says what each is and which device has which.

#include <cstdint>
#include <string_view>

#include "strata/core/backend.h"

namespace strata::memory {

/// Page-locked host memory mapped into a card: tensors of a CUDA device whose kernels read and write it in place, over
/// the bus. Never CUDA managed memory.
inline const Tier kUnified = Tier::named("unified");
/// A file: the bytes are near (in the device's own memory) only while a tensor is pinned. For `cpu` and `cuda`.
inline const Tier kDisk = Tier::named("disk");

/// The tier of that name, of those that this program has memory of for any device: "own" (Tier()), "host", "pinned",
/// "disk", ... Throws ValueError listing them for another.
Tier parse_tier(std::string_view name);

/// What moved between a tier's home and a device's own memory so far.
struct NearStats {
  int64_t limit = 0;       ///< bytes near at most; 0: none was set
  int64_t bytes = 0;       ///< near now, those on their way out included
  int64_t pinned = 0;      ///< of them, pinned now
  int64_t peak = 0;        ///< the most that were near at once
  int64_t hits = 0;        ///< first pins that found the bytes near, or on their way
  int64_t fetches = 0;     ///< first pins in all
  int64_t waits = 0;       ///< fetches whose bytes had not arrived, or that waited for room
  int64_t prefetches = 0;  ///< blocks brought because somebody asked ahead
  int64_t bytes_in = 0;    ///< copied from home
  int64_t bytes_out = 0;   ///< copied home
  double seconds_waited = 0;  ///< of threads; a card's streams wait by themselves
};
/// Of a tier whose blocks move (`disk`, and `pinned` of a card). Throws ValueError for another, DeviceError where there
/// is no such memory.
NearStats near_stats(Device device, Tier tier);
/// At most this many bytes of the device's own memory for tensors of that tier, pinned ones included: a pin that cannot
/// keep to it throws MemoryError. 0 (the default): what is pinned is bounded by the device's memory alone, and what nobody
/// pins, kept for the next use, by an eighth of it. Returns the previous value. Throws as near_stats(), and ValueError for
/// a negative number.
int64_t set_near_limit(int64_t bytes, Device device, Tier tier);

}  // namespace strata::memory
