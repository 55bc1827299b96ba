#pragma once
// The reference page of the ways to exchange gradients.

#include <string>

namespace strata::distributed {

/// docs/reference/exchanges.md, from the records.
std::string exchanges_markdown();

}  // namespace strata::distributed
