#pragma once
// Where the time until the first step went.

#include <string>
#include <utility>
#include <vector>

namespace strata::detail {

/// "the first step ended after 3.40 s: memory 1.90, step 0.80, model 0.31": the parts of 0.01 s and more that came to
/// `now` since `before` (both of once_seconds()), the longest first.
std::string startup_text(double seconds, const std::vector<std::pair<const char*, double>>& before,
                         const std::vector<std::pair<const char*, double>>& now);

}  // namespace strata::detail
