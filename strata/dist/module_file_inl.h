#pragma once
// Where the engine's modules lie: shared libraries that it loads when it wants them, and does without.

#include <string>

namespace strata::distributed::detail {

/// The file of strata_NAME.so: beside the program or library that this code is in, or in lib/strata near it. Empty
/// where there is none; `tried` then names the places.
std::string module_file(const std::string& name, std::string& tried);

}  // namespace strata::distributed::detail
