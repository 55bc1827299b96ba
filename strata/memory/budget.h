#pragma once
// How much of each tier a program may take, as users write it.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace strata::memory {

/// "20GiB", "1.5 GiB", "800MB", "4096": bytes. KiB, MiB, GiB, TiB are powers of 1024, kB, MB, GB, TB of 1000; case does
/// not matter, a space before the unit is allowed. Throws ValueError naming `what` for anything else, for a negative
/// number and for more than 2^62 bytes.
int64_t parse_bytes(std::string_view text, std::string_view what);
/// "20.00 GiB", "512.0 MiB", "17 B": four digits at most.
std::string bytes_text(int64_t bytes);

/// Bytes that a run may hold in each tier. 0: as much as there is.
struct Budget {
  int64_t device = 0;             ///< of the device's own memory: of a card, or of the host where that computes
  int64_t host = 0;               ///< of the host beside a card
  std::vector<std::string> disk;  ///< folders on disks that may be used; none: no disk
  /// Whether anything is bounded or a disk is offered.
  bool any() const { return device > 0 || host > 0 || !disk.empty(); }
  bool operator==(const Budget&) const = default;
};

/// The folders of "/scratch:/fast", in order. Throws ValueError for an empty one among several.
std::vector<std::string> parse_folders(std::string_view text);

}  // namespace strata::memory
