#include "strata/dist/pipeline/partition.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "strata/core/error.h"

namespace strata::distributed::pipeline {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class Search {
 public:
  Search(const std::vector<LayerCost>& layers, int stages, const std::vector<int>& live)
      : layers_(layers), stages_(static_cast<size_t>(stages)), live_(live) {
    check(stages >= 1 && layers.size() >= static_cast<size_t>(stages), "partition", layers.size(), " layers are not ",
          stages, " stages");
    if (live_.empty()) live_.assign(stages_, 1);
    check(live_.size() == stages_, "partition", "live has ", live_.size(), " entries for ", stages, " stages");
    for (const LayerCost& l : layers)
      for (const double cost : {l.seconds, l.bytes, l.activations})
        check(std::isfinite(cost) && cost >= 0, "partition", "a layer costs ", cost);
  }

  // The partition with the least of one goal while the other is below (not at) its bound; nothing where there is none.
  std::optional<Partition> fastest(double bytes_below) const {
    return least([&](double seconds, double bytes) { return bytes < bytes_below ? seconds : kInfinity; });
  }
  std::optional<Partition> smallest(double seconds_most) const {
    return least([&](double seconds, double bytes) { return seconds <= seconds_most ? bytes : kInfinity; });
  }

 private:
  // Dynamic programming over the first stages and layers: the least of the largest cost(stage).
  template <class Cost>
  std::optional<Partition> least(const Cost& cost) const {
    const size_t n = layers_.size();
    std::vector<std::vector<double>> best(stages_ + 1, std::vector<double>(n + 1, kInfinity));
    std::vector<std::vector<size_t>> begin(stages_ + 1, std::vector<size_t>(n + 1, 0));
    best[0][0] = 0;
    for (size_t s = 1; s <= stages_; ++s) {
      for (size_t end = s; end + (stages_ - s) <= n; ++end) {
        double seconds = 0, bytes = 0;
        for (size_t first = end; first-- > s - 1;) {
          add(s - 1, first, seconds, bytes);
          const double here = std::max(best[s - 1][first], cost(seconds, bytes));
          if (here >= best[s][end]) continue;
          best[s][end] = here;
          begin[s][end] = first;
        }
      }
    }
    if (best[stages_][n] == kInfinity) return std::nullopt;
    Partition p;
    size_t end = n;
    for (size_t s = stages_; s > 0; --s) {
      const size_t first = begin[s][end];
      p.begins.insert(p.begins.begin(), static_cast<int>(first));
      double seconds = 0, bytes = 0;
      for (size_t l = end; l-- > first;) add(s - 1, l, seconds, bytes);
      p.seconds = std::max(p.seconds, seconds);
      p.bytes = std::max(p.bytes, bytes);
      end = first;
    }
    return p;
  }
  void add(size_t stage, size_t layer, double& seconds, double& bytes) const {
    seconds += layers_[layer].seconds;
    bytes += layers_[layer].bytes + live_[stage] * layers_[layer].activations;
  }

  const std::vector<LayerCost>& layers_;
  size_t stages_;
  std::vector<int> live_;
};

}  // namespace

Partition fastest_partition(const std::vector<LayerCost>& layers, int stages, const std::vector<int>& live) {
  const Search search(layers, stages, live);
  return *search.smallest(search.fastest(kInfinity)->seconds);
}

// Each next point: the fastest of those that are smaller than the last, and then the smallest of those as fast.
std::vector<Partition> partition_front(const std::vector<LayerCost>& layers, int stages, const std::vector<int>& live) {
  const Search search(layers, stages, live);
  std::vector<Partition> front;
  double below = kInfinity;
  while (const std::optional<Partition> fast = search.fastest(below)) {
    front.push_back(*search.smallest(fast->seconds));
    below = front.back().bytes;
  }
  return front;
}

}  // namespace strata::distributed::pipeline
