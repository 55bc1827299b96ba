#include "strata/memory/budget.h"

#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "strata/core/error.h"

namespace strata::memory {

int64_t parse_bytes(std::string_view text, std::string_view what) {
  const auto refuse = [&](std::string_view why) {
    throw ValueError(what, cat("'", text, "' ", why, ": write bytes as in 20GiB, 512MiB, 1.5TB or 4096"));
  };
  std::string_view rest = text;
  double number = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), number, std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(number)) refuse("is no number of bytes");
  if (number < 0) refuse("is negative");
  rest.remove_prefix(static_cast<size_t>(end - rest.data()));
  if (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  std::string unit;
  for (const char c : rest) unit += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  double factor = 0;
  if (unit.empty() || unit == "b") factor = 1;
  constexpr std::string_view kPrefixes = "kmgt";
  for (size_t i = 0; i < kPrefixes.size(); ++i) {
    const auto power = static_cast<double>(i + 1);
    if (unit == std::string{kPrefixes[i]} + "ib") factor = std::pow(1024.0, power);
    if (unit == std::string{kPrefixes[i]} + "b") factor = std::pow(1000.0, power);
  }
  if (factor == 0) refuse("has no unit that is known");
  const double bytes = std::round(number * factor);
  if (bytes > static_cast<double>(int64_t{1} << 62)) refuse("is more than any machine has");
  return static_cast<int64_t>(bytes);
}

std::string bytes_text(int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto v = static_cast<double>(bytes);
  size_t unit = 0;
  while (std::abs(v) >= 1000 && unit + 1 < std::size(kUnits)) {
    v /= 1024;
    ++unit;
  }
  char s[32];
  std::snprintf(s, sizeof s, unit == 0 ? "%.0f %s" : std::abs(v) < 100 ? "%.2f %s" : "%.1f %s", v, kUnits[unit]);
  return s;
}

std::vector<std::string> parse_folders(std::string_view text) {
  std::vector<std::string> folders;
  while (!text.empty()) {
    const size_t end = std::min(text.find(':'), text.size());
    check(end > 0, "disk", "an empty folder in '", text, "'");
    folders.emplace_back(text.substr(0, end));
    check(end + 1 != text.size(), "disk", "an empty folder at the end of '", text, "'");
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return folders;
}

}  // namespace strata::memory
