// Data sets made of others, and the orders that samplers give.

#include "strata/data/combined.h"

#include <algorithm>
#include <numeric>
#include <set>

#include <gtest/gtest.h>

#include "strata/core/error.h"
#include "strata/ops/copy/copy.h"

namespace strata::data {
namespace {

std::shared_ptr<TensorDataset> rows(std::vector<int64_t> v) {
  const auto n = static_cast<int64_t>(v.size());
  return std::make_shared<TensorDataset>(std::vector<Tensor>{from_span<int64_t>(v, {n})});
}
std::vector<int64_t> drawn(const Dataset& set, const std::vector<int64_t>& indices) {
  std::vector<Sample> samples;
  for (const int64_t i : indices) samples.push_back({i, 0});
  return set.get_batch(samples)[0].to_vector<int64_t>();
}

TEST(CombinedDatasets, OneAfterTheOther) {
  const ConcatDataset all({rows({10, 11, 12}), rows({}), rows({20, 21})});
  EXPECT_EQ(all.size(), 5);
  EXPECT_EQ(drawn(all, {4, 0, 3, 2, 2}), std::vector<int64_t>({21, 10, 20, 12, 12}));
  EXPECT_EQ(drawn(all, {1, 0}), std::vector<int64_t>({11, 10}));
  EXPECT_EQ(drawn(all, {}), std::vector<int64_t>());
  EXPECT_THROW(drawn(all, {5}), IndexError);
  EXPECT_THROW(drawn(all, {-1}), IndexError);
  EXPECT_THROW(ConcatDataset({}), ValueError);
  const auto floats = std::make_shared<TensorDataset>(std::vector<Tensor>{empty(TensorMeta{Shape{2}, DType::f32})});
  EXPECT_THROW(drawn(ConcatDataset({rows({1}), floats}), {0, 1}), ShapeError);
}

TEST(CombinedDatasets, PartsOfOne) {
  const auto all = rows({10, 11, 12, 13, 14, 15, 16});
  EXPECT_EQ(drawn(Subset(all, {6, 0, 0}), {0, 2, 1}), std::vector<int64_t>({16, 10, 10}));
  EXPECT_THROW(Subset(all, {7}), IndexError);
  EXPECT_THROW(drawn(Subset(all, {1}), {1}), IndexError);
  const auto parts = random_split(all, {4, 3}, 9);
  std::set<int64_t> seen;
  for (const auto& part : parts) seen.insert(part->indices().begin(), part->indices().end());
  EXPECT_EQ(seen.size(), 7u);
  EXPECT_EQ(parts[1]->size(), 3);
  EXPECT_EQ(random_split(all, {4, 3}, 9)[0]->indices(), parts[0]->indices());
  EXPECT_THROW(random_split(all, {4, 4}), ValueError);
}

TEST(Samplers, EachIndexOnceOrAsOftenAsDrawn) {
  SequentialSampler in_order(3);
  EXPECT_EQ(in_order.epoch(), std::vector<int64_t>({0, 1, 2}));
  EXPECT_EQ(in_order.epoch(), std::vector<int64_t>({0, 1, 2}));

  RandomSampler random(100, 4);
  const std::vector<int64_t> first = random.epoch(), second = random.epoch();
  EXPECT_EQ(std::set<int64_t>(first.begin(), first.end()).size(), 100u);
  EXPECT_NE(first, second);
  EXPECT_EQ(RandomSampler(100, 4).epoch(), first);
  EXPECT_EQ(RandomSampler(100, 4, false, 7).epoch(), std::vector<int64_t>(first.begin(), first.begin() + 7));

  RandomSampler again(10, 4, true, 5000);
  std::vector<int64_t> counts(10);
  for (const int64_t i : again.epoch()) ++counts.at(static_cast<size_t>(i));
  EXPECT_EQ(std::accumulate(counts.begin(), counts.end(), int64_t{0}), 5000);
  EXPECT_GT(*std::min_element(counts.begin(), counts.end()), 400);
  EXPECT_THROW(RandomSampler(0), ValueError);
  EXPECT_THROW(RandomSampler(3, 0, false, 4), ValueError);
}

TEST(Samplers, WeightsDecideHowOften) {
  WeightedRandomSampler s({1, 0, 3, 0}, 8000, true, 2);
  std::vector<int64_t> counts(4);
  for (const int64_t i : s.epoch()) ++counts.at(static_cast<size_t>(i));
  EXPECT_EQ(counts[1] + counts[3], 0);
  EXPECT_NEAR(static_cast<double>(counts[2]), 6000, 200);

  WeightedRandomSampler once({5, 0, 1, 1}, 3, false, 2);
  int heavy_first = 0;
  for (int epoch = 0; epoch < 700; ++epoch) {
    const std::vector<int64_t> order = once.epoch();
    EXPECT_EQ(std::set<int64_t>(order.begin(), order.end()), std::set<int64_t>({0, 2, 3}));
    heavy_first += order[0] == 0 ? 1 : 0;
  }
  EXPECT_NEAR(heavy_first, 500, 60);
  EXPECT_THROW(WeightedRandomSampler({1, -1}, 1), ValueError);
  EXPECT_THROW(WeightedRandomSampler({0, 0}, 1), ValueError);
  EXPECT_THROW(WeightedRandomSampler({1, 0}, 2, false), ValueError);
}

TEST(Samplers, Batches) {
  BatchSampler kept(std::make_shared<SequentialSampler>(5), 2);
  EXPECT_EQ(kept.size(), 3);
  for (int epoch = 0; epoch < 2; ++epoch) {
    EXPECT_EQ(kept.next(), std::vector<int64_t>({0, 1}));
    EXPECT_EQ(kept.next(), std::vector<int64_t>({2, 3}));
    EXPECT_EQ(kept.next(), std::vector<int64_t>({4}));
    EXPECT_TRUE(kept.next().empty());
  }
  BatchSampler dropped(std::make_shared<SequentialSampler>(5), 2, true);
  EXPECT_EQ(dropped.size(), 2);
  for (int epoch = 0; epoch < 2; ++epoch) {
    EXPECT_EQ(dropped.next().size(), 2u);
    EXPECT_EQ(dropped.next().size(), 2u);
    EXPECT_TRUE(dropped.next().empty());
  }
  EXPECT_THROW(BatchSampler(nullptr, 2), ValueError);
  EXPECT_THROW(BatchSampler(std::make_shared<SequentialSampler>(5), 0), ValueError);
}

}  // namespace
}  // namespace strata::data
