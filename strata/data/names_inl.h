#pragma once
// Enumerations by their names, in the enumeration's order.

#include <cstddef>
#include <string>
#include <string_view>

#include "strata/core/error.h"
#include "strata/io/files.h"

namespace strata::data {

/// The value called `name`. Throws ValueError that says there is no such `what`, and which there are.
template <class T, size_t N>
T parse_name(const std::string_view (&names)[N], std::string_view name, std::string_view what) {
  for (size_t i = 0; i < N; ++i)
    if (names[i] == name) return static_cast<T>(i);
  std::string all;
  for (const std::string_view n : names) all += cat(all.empty() ? "" : ", ", n);
  throw ValueError("data", cat("there is no ", what, " ", io::quote(name), "; there are ", all));
}

}  // namespace strata::data
