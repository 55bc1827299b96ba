#include <algorithm>
#include <charconv>
#include <set>

#include "strata/core/error.h"
#include "strata/dist/group.h"

namespace strata::distributed {
namespace {

constexpr int kMostRanks = 1 << 20;

void check_name(std::string_view name) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  check(!name.empty() && letter(name[0]) && std::all_of(name.begin(), name.end(), [&](char c) {
    return letter(c) || (c >= '0' && c <= '9') || c == '_';
  }) && name != "world", "Mesh", "'", name, "' cannot be an axis: wanted letters, digits and '_', and not 'world'");
}

std::vector<Mesh::Axis> axes_of(std::string_view text) {
  std::vector<Mesh::Axis> axes;
  while (!text.empty()) {
    const size_t end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.empty()) continue;
    const size_t equals = word.find('=');
    check(equals != std::string_view::npos, "Mesh", "'", word, "' is no axis: wanted name=size");
    Mesh::Axis axis{std::string(word.substr(0, equals)), 0};
    const std::string_view number = word.substr(equals + 1);
    const auto [at, error] = std::from_chars(number.data(), number.data() + number.size(), axis.size);
    check(error == std::errc() && at == number.data() + number.size(), "Mesh", "'", number, "' in '", word,
          "' is no size");
    axes.push_back(std::move(axis));
  }
  return axes;
}

}  // namespace

Mesh::Mesh(std::string_view text) : Mesh(axes_of(text)) {}

Mesh::Mesh(std::vector<Axis> axes) : axes_(std::move(axes)) {
  std::set<std::string_view> seen;
  for (const Axis& a : axes_) {
    check_name(a.name);
    check(seen.insert(a.name).second, "Mesh", "axis ", a.name, " is given twice");
    check(a.size >= 1 && a.size <= kMostRanks / size_, "Mesh", "axis ", a.name, " has size ", a.size,
          ", wanted at least 1 and at most ", kMostRanks, " ranks in all");
    size_ *= a.size;
  }
}

std::vector<int> Mesh::ranks_of(std::string_view group, int rank) const {
  check(rank >= 0 && rank < size_, "Mesh", "there is no rank ", rank, " among ", size_);
  if (const size_t colon = group.find(':'); colon != std::string_view::npos) {
    const std::string_view axes = group.substr(0, colon), number = group.substr(colon + 1);
    const std::vector<int> all = ranks_of(axes, rank);
    int n = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), n);
    check(error == std::errc() && end == number.data() + number.size() && n >= 1 && all.size() % static_cast<size_t>(n) == 0,
          "Mesh", "'", group, "': wanted a number that divides the ", all.size(), " ranks of '", axes, "'");
    const auto place = std::ranges::find(all, rank) - all.begin(), begin = place - place % n;
    return {all.begin() + begin, all.begin() + begin + n};
  }
  std::vector<bool> chosen(axes_.size(), group == "world" || group.empty());
  while (!group.empty() && group != "world") {
    const size_t end = std::min(group.find('+'), group.size());
    const std::string_view name = group.substr(0, end);
    group.remove_prefix(std::min(end + 1, group.size()));
    const auto it = std::find_if(axes_.begin(), axes_.end(), [&](const Axis& a) { return a.name == name; });
    if (it == axes_.end()) {
      std::string have;
      for (const Axis& a : axes_) have += cat(have.empty() ? "" : ", ", a.name);
      throw ValueError("Mesh", cat("there is no axis '", name, "' (there are: ", have.empty() ? "none" : have, ")"));
    }
    chosen[static_cast<size_t>(it - axes_.begin())] = true;
  }
  // From the slowest axis on: each chosen one multiplies the ranks.
  std::vector<int> ranks{0};
  int stride = size_;
  for (size_t i = 0; i < axes_.size(); ++i) {
    stride /= axes_[i].size;
    const int own = rank / stride % axes_[i].size;
    std::vector<int> next;
    for (const int r : ranks) {
      for (int k = 0; k < axes_[i].size; ++k) {
        if (chosen[i] || k == own) next.push_back(r + k * stride);
      }
    }
    ranks = std::move(next);
  }
  return ranks;
}

}  // namespace strata::distributed
