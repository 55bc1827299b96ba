#include "strata/train/startup.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

#include "strata/core/parallel.h"
#include "strata/cuda/runtime.h"
#include "strata/train/progress.h"

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

std::string run_text(const TrainConfig& config, const nn::Module& model, const TrainData& data, Device device) {
  const auto count = [](int64_t n) { return format_count(static_cast<double>(n)); };
  const int64_t all = model.num_parameters(), trained = model.num_parameters(true);
  return fmt::format("{}, {} parameters{}; {} training tokens{}; {}", config.model.family, count(all),
                     trained == all ? "" : fmt::format(", {} of them trained", count(trained)), count(data.train_tokens),
                     data.valid ? fmt::format(", {} for validation", count(data.valid_tokens)) : "",
                     device.is_cuda() ? fmt::format("on {}", cuda::properties(device.index).name)
                                      : fmt::format("{} threads", num_threads()));
}

std::string unsigned_text(double v) {
  return std::isnan(v) ? "nan" : fmt::format("{}", v);
}

}  // namespace strata::detail
