#pragma once
// JSON as text, for descriptions that are written in order and read by other programs.

#include <string>
#include <string_view>

namespace strata::detail {

/// `s` as a JSON string with its quotes; control characters are escaped, UTF-8 is left as it is.
std::string json_string(std::string_view s);

/// [f(first), f(second), ...]; f gives JSON text.
template <class List, class F>
std::string json_list(const List& list, F&& f) {
  std::string s = "[";
  for (const auto& one : list) {
    if (s.size() > 1) s += ", ";
    s += f(one);
  }
  return s + "]";
}

}  // namespace strata::detail
