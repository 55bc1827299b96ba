#include "strata/data/feature_loader.h"

#include <gtest/gtest.h>

#include "strata/core/error_test_util.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/index/index.h"

namespace strata::data {
namespace {

using Ids = std::vector<int64_t>;

// A table that writes down what it is asked for.
class Noted final : public FeatureSource {
 public:
  explicit Noted(int64_t rows) : table(arange(rows).to(DType::f32).view({rows, 1})) {}
  Tensor gather(const Tensor& indices) override {
    for (const int64_t i : indices.to_vector<int64_t>()) check<IoError>(i != bad, "Noted", "row ", i, " is unreadable");
    gathered.push_back(indices.to_vector<int64_t>());
    return index_select(table, 0, indices);
  }
  void prefetch(const Tensor& indices) override { begun.push_back(indices.to_vector<int64_t>()); }

  Tensor table;
  std::vector<Ids> gathered, begun;
  int64_t bad = -1;
};

// Samples are their numbers, and ten times these.
class Numbers final : public Dataset {
 public:
  int64_t size() const override { return 7; }
  Batch get_batch(std::span<const Sample> samples) const override {
    std::vector<int64_t> index, tens;
    for (const Sample& s : samples) {
      index.push_back(s.index);
      tens.push_back(10 * s.index);
    }
    const auto n = static_cast<int64_t>(index.size());
    return {from_span<int64_t>(tens, {n}), from_span<int64_t>(index, {n})};
  }
};

DataLoader numbers(int64_t batch_size = 3) {
  return DataLoader(std::make_shared<Numbers>(), {.batch_size = batch_size});
}

TEST(FeatureLoader, BatchesHaveTheirRowsAtTheEnd) {
  for (const int64_t ahead : {0, 1, 2, 10}) {
    const auto table = std::make_shared<Noted>(70);
    FeatureLoader loader(numbers(), table, {.indices = 0, .ahead = ahead});
    EXPECT_EQ(loader.batches_per_epoch(), 3);
    for (int epoch = 0; epoch < 2; ++epoch) {
      for (const Ids& want : {Ids{0, 1, 2}, Ids{3, 4, 5}, Ids{6}}) {
        const auto batch = loader.next();
        ASSERT_TRUE(batch.has_value());
        ASSERT_EQ(batch->size(), 3u);
        EXPECT_EQ((*batch)[1].to_vector<int64_t>(), want);
        EXPECT_EQ((*batch)[2].to_vector<int64_t>(), (*batch)[0].to_vector<int64_t>());
      }
      EXPECT_FALSE(loader.next());
    }
    EXPECT_EQ(table->gathered.size(), 6u);
    if (ahead == 0) {
      EXPECT_TRUE(table->begun.empty());
    } else {
      ASSERT_GE(table->begun.size(), 6u);
      for (size_t i = 0; i < 6; ++i) EXPECT_EQ(table->begun[i], table->gathered[i]);
    }
  }
}

TEST(FeatureLoader, BeginsAsManyAsItIsTold) {
  const auto table = std::make_shared<Noted>(70);
  FeatureLoader loader(numbers(1), table, {.ahead = 3});
  loader.next();
  EXPECT_EQ(table->begun.size(), 4u);  // this one and three more
  EXPECT_EQ(table->gathered.size(), 1u);
  loader.next();
  EXPECT_EQ(table->begun.size(), 5u);
}

TEST(FeatureLoader, GoesOnFromAPlaceAsItWent) {
  const auto table = std::make_shared<Noted>(70);
  FeatureLoader loader(numbers(2), table, {.ahead = 2});
  loader.next();
  const SamplerState place = loader.state();
  const auto second = loader.next();
  loader.next();
  loader.set_state(place);
  EXPECT_EQ(loader.state(), place);
  EXPECT_EQ((*loader.next())[1].to_vector<int64_t>(), (*second)[1].to_vector<int64_t>());
}

TEST(FeatureLoader, AnErrorComesWithItsBatch) {
  const auto table = std::make_shared<Noted>(70);
  table->bad = 40;
  FeatureLoader loader(numbers(2), table, {.ahead = 2});
  loader.next();
  loader.next();
  EXPECT_NE(message<IoError>([&] { loader.next(); }).find("row 40"), std::string::npos);
  EXPECT_EQ((*loader.next())[1].to_vector<int64_t>(), (Ids{6}));

  FeatureLoader wrong(numbers(), table, {.indices = 2});
  EXPECT_NE(message<IndexError>([&] { wrong.next(); }).find("none at 2"), std::string::npos);
  EXPECT_NE(message<ValueError>([&] { FeatureLoader(numbers(), std::shared_ptr<FeatureSource>()); }).find("needs a table"), std::string::npos);
  EXPECT_NE(message<ValueError>([&] { FeatureLoader(numbers(), table, {.ahead = -1}); }).find("ahead"),
            std::string::npos);
}

}  // namespace
}  // namespace strata::data
