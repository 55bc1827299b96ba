#include "strata/train/startup.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

namespace strata::detail {

std::string startup_text(double seconds, const std::vector<std::pair<const char*, double>>& before,
                         const std::vector<std::pair<const char*, double>>& now) {
  constexpr double kWorthTelling = 0.005;
  std::vector<std::pair<const char*, double>> parts;
  for (const auto& [name, total] : now) {
    const auto was = std::ranges::find_if(before, [&](const auto& p) { return std::string_view(p.first) == name; });
    const double here = total - (was == before.end() ? 0 : was->second);
    if (here >= kWorthTelling) parts.emplace_back(name, here);
  }
  std::ranges::stable_sort(parts, [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text = fmt::format("the first step ended after {:.2f} s", seconds);
  for (size_t i = 0; i < parts.size(); ++i)
    text += fmt::format("{} {} {:.2f}", i == 0 ? ":" : ",", parts[i].first, parts[i].second);
  return text;
}

}  // namespace strata::detail
