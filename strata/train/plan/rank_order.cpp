#include "strata/train/plan/rank_order.h"

#include <algorithm>
#include <numeric>

#include "strata/train/plan/forecast_inl.h"

namespace strata::plan {
namespace {

constexpr int kExactly = 8;

}  // namespace

RankOrder order_ranks(const TrainConfig& config, const ParallelLayout& layout, const Machine& machine) {
  const RandomKept random;
  const Profile profile(config, machine);
  Forecaster forecaster(profile);
  const auto n = static_cast<int>(layout.ranks());
  std::vector<int> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  RankOrder best{order, forecaster.seconds(layout, order), 0};
  best.as_they_come = best.seconds;
  if (machine.links.pairs.empty()) return best;
  const auto better = [&](const std::vector<int>& o) {
    const double seconds = forecaster.seconds(layout, o);
    if (seconds >= best.seconds) return false;
    best.ranks = o, best.seconds = seconds;
    return true;
  };
  if (n <= kExactly) {
    while (std::ranges::next_permutation(order).found) better(order);
    return best;
  }
  for (bool again = true; again;) {
    again = false;
    for (size_t a = 0; a < order.size(); ++a)
      for (size_t b = a + 1; b < order.size(); ++b) {
        std::vector<int> other = best.ranks;
        std::swap(other[a], other[b]);
        again |= better(other);
      }
  }
  return best;
}

}  // namespace strata::plan
