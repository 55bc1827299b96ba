#include "strata/nn/name_pattern.h"

#include <algorithm>

namespace strata::nn {
namespace {

std::vector<std::string_view> parts_of(std::string_view name) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('.', begin), name.size());
    parts.push_back(name.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

}  // namespace

bool is_named(std::string_view name, std::string_view pattern) {
  if (pattern.empty()) return false;
  const std::vector<std::string_view> all = parts_of(name), wanted = parts_of(pattern);
  const auto same = [](std::string_view part, std::string_view want) { return want == "*" || part == want; };
  return std::search(all.begin(), all.end(), wanted.begin(), wanted.end(), same) != all.end();
}

bool is_named(std::string_view name, const std::vector<std::string>& patterns) {
  return std::ranges::any_of(patterns, [&](const std::string& p) { return is_named(name, p); });
}

std::vector<std::string> words_of(std::string_view text) {
  constexpr std::string_view kBetween = " ,\t\r\n";
  std::vector<std::string> words;
  for (size_t at = text.find_first_not_of(kBetween); at != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_of(kBetween, at), text.size());
    words.emplace_back(text.substr(at, end - at));
    at = text.find_first_not_of(kBetween, end);
  }
  return words;
}

}  // namespace strata::nn
