#pragma once
// Cards that were measured, for forecasts on machines that have none.

#include <span>
#include <string_view>

#include "strata/lab/limits.h"

namespace strata::lab {

/// One of them, with the machine that it was in.
struct KnownCard {
  std::string_view name;  ///< "h200"
  std::string_view title;
  Limits limits;            ///< as measure_limits() found them
  double to_card_gb_s = 0;  ///< from page-locked host memory
  double from_card_gb_s = 0;
  double host_gb_s = 0;  ///< triad of the host's processor over all its threads
  double disk_write_gb_s = 0, disk_read_gb_s = 0;
  int64_t memory_bytes = 0;  ///< of the card, as cudaMemGetInfo gives them
  std::string_view when;     ///< the date, and how many cores
};

/// All of them; bench/README.md has the command that measures a further one.
std::span<const KnownCard> known_cards();
/// The one of that name. Throws ValueError listing the names.
const KnownCard& known_card(std::string_view name);

}  // namespace strata::lab
