#pragma once
// Where the time and the bytes of a recorded step go, beside what the machine can do.

#include <cstdint>
#include <string>
#include <vector>

#include "strata/core/recording.h"
#include "strata/lab/bench.h"

namespace strata::lab {

/// By what the calls of a Recording are put together.
enum class CostBy : uint8_t { op, module, phase };

/// The calls of one op, module or phase.
struct CostRow {
  std::string name;
  int64_t calls = 0;
  double flops = 0;
  double bytes = 0;    ///< least that must move
  double seconds = 0;  ///< on the host while it was recorded; 0 for a Recording of the meta device
  double limit = 0;    ///< least seconds that the limits allow, call by call; 0 where they are not known
};

/// What a step does, largest first: by `limit` where the limits are known, else by bytes. Calls that are composed of
/// others count through those.
std::vector<CostRow> step_costs(const Recording& recording, CostBy by, const Limits& limits = {});

/// The same as text: a line a row (`rows` of them, the rest as one), shares of the whole; the sum last.
std::string step_cost_table(const Recording& recording, CostBy by, const Limits& limits = {}, size_t rows = 20);

}  // namespace strata::lab
