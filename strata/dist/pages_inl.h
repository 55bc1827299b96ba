#pragma once
// The coordinator's pages. Neither holds the job's secret nor a value of its store.

#include <string>
#include <vector>

#include "strata/dist/coordinator.h"

namespace strata::distributed::detail {

/// HTML for people: every rank, where it runs, how it is, what it does.
std::string status_page(const std::vector<RankState>& ranks);
/// Prometheus' text format, version 0.0.4.
std::string metrics_page(const std::vector<RankState>& ranks);

}  // namespace strata::distributed::detail
