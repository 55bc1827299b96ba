#include "strata/text/nearest.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace strata::text {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, substituted}));
    }
  }
  return row[b.size()];
}

std::string_view nearest(std::string_view word, std::span<const std::string> known) {
  constexpr size_t kLongest = 100;  // longer ones are no mistyped names
  if (word.size() > kLongest) return {};
  size_t least = std::max<size_t>(2, word.size() / 3) + 1;
  std::string_view best;
  for (const std::string& name : known) {
    const size_t d = edit_distance(word, name);
    // Of a short word most letters would have to be others.
    if (d < least && d < std::max(word.size(), name.size())) least = d, best = name;
  }
  return best;
}

}  // namespace strata::text
