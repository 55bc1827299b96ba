#pragma once
// Which options of attention are served where positions lie in parts.

#include <string_view>

#include "strata/core/error.h"
#include "strata/ops/attention/attention.h"

namespace strata::distributed::detail {

/// Throws ValueError naming the option that is not.
inline void check_context_options(const AttentionOptions& o, std::string_view op) {
  check(!o.alibi_slopes.defined() && !o.sinks.defined() && !o.key_lengths.defined() && o.query_offset == 0, op,
        "alibi_slopes, sinks, key_lengths and query_offset are not served where positions lie in parts");
}

}  // namespace strata::distributed::detail
