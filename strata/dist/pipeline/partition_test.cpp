#include "strata/dist/pipeline/partition.h"

#include <algorithm>
#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "strata/core/error.h"

namespace strata::distributed::pipeline {
namespace {

// Every way to cut, one by one.
std::vector<Partition> all_partitions(const std::vector<LayerCost>& layers, int stages, const std::vector<int>& live) {
  std::vector<Partition> all;
  const auto n = static_cast<int>(layers.size());
  std::vector<int> begins{0};
  const auto go = [&](const auto& self) -> void {
    if (static_cast<int>(begins.size()) == stages) {
      Partition p{.begins = begins};
      for (int s = 0; s < stages; ++s) {
        double seconds = 0, bytes = 0;
        const int end = s + 1 < stages ? begins[static_cast<size_t>(s) + 1] : n;
        for (int l = begins[static_cast<size_t>(s)]; l < end; ++l) {
          const LayerCost& c = layers[static_cast<size_t>(l)];
          seconds += c.seconds;
          bytes += c.bytes + c.activations * (live.empty() ? 1 : live[static_cast<size_t>(s)]);
        }
        p.seconds = std::max(p.seconds, seconds);
        p.bytes = std::max(p.bytes, bytes);
      }
      all.push_back(p);
      return;
    }
    for (int b = begins.back() + 1; b < n; ++b) {
      begins.push_back(b);
      self(self);
      begins.pop_back();
    }
  };
  go(go);
  return all;
}

using Points = std::vector<std::pair<double, double>>;
Points front_of(const std::vector<Partition>& all) {
  Points points;
  for (const Partition& p : all) {
    const bool beaten = std::ranges::any_of(all, [&](const Partition& q) {
      return q.seconds <= p.seconds && q.bytes <= p.bytes && (q.seconds < p.seconds || q.bytes < p.bytes);
    });
    if (!beaten) points.emplace_back(p.seconds, p.bytes);
  }
  std::ranges::sort(points);
  points.erase(std::unique(points.begin(), points.end()), points.end());
  return points;
}

TEST(Partition, FrontIsThatOfBruteForce) {
  std::mt19937 random(3);
  size_t longest = 0;
  for (int round = 0; round < 400; ++round) {
    const int n = 1 + static_cast<int>(random() % 10),
              stages = 1 + static_cast<int>(random() % static_cast<uint32_t>(n));
    std::vector<LayerCost> layers;
    // Whole numbers: sums are exact in any order, and points often equal.
    for (int i = 0; i < n; ++i)
      layers.push_back(
          {static_cast<double>(random() % 20), static_cast<double>(random() % 20), static_cast<double>(random() % 5)});
    std::vector<int> live;
    if (round % 2 == 0)
      for (int s = 0; s < stages; ++s) live.push_back(stages - s);
    const std::vector<Partition> all = all_partitions(layers, stages, live);
    const std::vector<Partition> front = partition_front(layers, stages, live);
    Points got;
    for (const Partition& p : front) {
      got.emplace_back(p.seconds, p.bytes);
      EXPECT_TRUE(std::ranges::find(all, p) != all.end()) << "what it says of itself is not so";
    }
    EXPECT_EQ(got, front_of(all)) << "round " << round;
    EXPECT_EQ(fastest_partition(layers, stages, live), front[0]);
    longest = std::max(longest, front.size());
  }
  EXPECT_GE(longest, 4U);
}

TEST(Partition, AHeavyEndTakesLayersFromItsStage) {
  std::vector<LayerCost> layers(12, {1, 1, 0});
  layers.back().seconds = 3;
  EXPECT_EQ(fastest_partition(layers, 2).begins, (std::vector<int>{0, 7}));
  EXPECT_EQ(fastest_partition(layers, 2).seconds, 7);
}

TEST(Partition, OfManyLayers) {
  const std::vector<LayerCost> layers(130, {1, 1, 1});
  const auto front = partition_front(layers, 8, {8, 7, 6, 5, 4, 3, 2, 1});
  ASSERT_GE(front.size(), 2U);
  EXPECT_EQ(front[0].seconds, 17);
  for (size_t i = 1; i < front.size(); ++i) {
    EXPECT_GT(front[i].seconds, front[i - 1].seconds);
    EXPECT_LT(front[i].bytes, front[i - 1].bytes);
  }
}

TEST(Partition, RefusesWhatCannotBeCut) {
  EXPECT_THROW(fastest_partition({{1, 1, 1}}, 2), ValueError);
  EXPECT_THROW(partition_front({{1, 1, 1}}, 0), ValueError);
  EXPECT_THROW(partition_front({{-1, 1, 1}}, 1), ValueError);
  EXPECT_THROW(partition_front({{NAN, 1, 1}}, 1), ValueError);
  EXPECT_THROW(partition_front({{1, 1, 1}, {1, 1, 1}}, 2, {1}), ValueError);
}

}  // namespace
}  // namespace strata::distributed::pipeline
