#include <algorithm>
#include <map>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "strata/nn/row_cache_inl.h"

namespace strata::nn {
namespace {

using Ids = std::vector<int64_t>;

TEST(RowCache, MissesAreNamedOnceInOrder) {
  RowCache cache(10, 3);
  const auto plan = cache.ask(Ids{7, 2, 7, 5}, true);
  EXPECT_EQ(plan.missing, (Ids{7, 2, 5}));
  EXPECT_EQ(plan.slots, (Ids{0, 1, 2}));
  EXPECT_EQ(plan.local, (Ids{0, 1, 0, 2}));
  EXPECT_EQ(plan.hits, 0);
  EXPECT_TRUE(plan.found.empty());
  const auto again = cache.ask(Ids{5, 5, 7, 1}, false);
  EXPECT_EQ(again.hits, 3);
  EXPECT_EQ(again.missing, (Ids{1}));
  EXPECT_EQ(again.slots, (Ids{RowCache::kNone}));
  EXPECT_EQ(again.found, (Ids{2, 0}));
  EXPECT_EQ(again.local, (Ids{1, 1, 2, 0}));  // behind the one that is missing
  EXPECT_EQ(cache.slot(1), -1);
}

TEST(RowCache, WhatIsAskedForAgainStays) {
  RowCache cache(100, 4);
  cache.ask(Ids{0, 1, 2, 3}, true);
  cache.ask(Ids{1, 3}, true);
  cache.ask(Ids{50, 51}, true);
  EXPECT_GE(cache.slot(1), 0);
  EXPECT_GE(cache.slot(3), 0);
  EXPECT_EQ(cache.slot(0), -1);
  EXPECT_EQ(cache.slot(2), -1);
}

TEST(RowCache, ABatchNeverReplacesWhatItAsksFor) {
  RowCache cache(10, 2);
  cache.ask(Ids{4, 5}, true);
  const auto plan = cache.ask(Ids{6, 5, 7, 4}, true);  // both are hits: no slot is free
  EXPECT_EQ(plan.hits, 2);
  EXPECT_EQ(plan.slots, (Ids{RowCache::kNone, RowCache::kNone}));
  EXPECT_EQ(cache.slot(4), 0);
  EXPECT_EQ(cache.slot(5), 1);
  const auto large = cache.ask(Ids{0, 1, 2, 3}, true);
  EXPECT_EQ(large.slots, (Ids{0, 1, RowCache::kNone, RowCache::kNone}));
}

TEST(RowCache, WithoutSlotsNothingIsKept) {
  RowCache cache(4, 0);
  for (int i = 0; i < 3; ++i) {
    const auto plan = cache.ask(Ids{1, 1, 3}, true);
    EXPECT_EQ(plan.missing, (Ids{1, 3}));
    EXPECT_EQ(plan.hits, 0);
  }
}

// Against what it must mean: slots and rows name each other, a plan says of every position where its row is, and what
// the books call kept is what the plans have put there.
TEST(RowCache, BooksAgreeWithPlans) {
  std::mt19937 random(7);
  for (const int64_t slots : {1, 2, 5, 30, 64}) {
    const int64_t rows = 60;
    RowCache cache(rows, std::min(slots, rows));
    std::map<int64_t, int64_t> bytes;  // of a slot: which row's
    for (int batch = 0; batch < 300; ++batch) {
      Ids asked(random() % 40);
      for (int64_t& r : asked) r = static_cast<int64_t>(random() % 4 == 0 ? random() % rows : random() % 8);
      const bool admit = random() % 5 != 0;
      const auto plan = cache.ask(asked, admit);
      EXPECT_EQ(std::set<int64_t>(plan.missing.begin(), plan.missing.end()).size(), plan.missing.size());
      std::map<int64_t, int64_t> before = bytes;
      for (size_t m = 0; m < plan.missing.size(); ++m)
        if (plan.slots[m] != RowCache::kNone) bytes[plan.slots[m]] = plan.missing[m];
      int64_t hits = 0;
      for (size_t i = 0; i < asked.size(); ++i) {
        const auto at = static_cast<size_t>(plan.local[i]);
        if (at < plan.missing.size()) {
          ASSERT_EQ(plan.missing[at], asked[i]);
        } else {
          const int64_t slot = plan.found.at(at - plan.missing.size());
          ASSERT_EQ(before.at(slot), asked[i]);
          ASSERT_EQ(bytes.at(slot), asked[i]);
          ++hits;
        }
      }
      EXPECT_EQ(plan.hits, hits);
      int64_t kept = 0;
      for (int64_t r = 0; r < rows; ++r) {
        if (cache.slot(r) < 0) continue;
        ++kept;
        ASSERT_EQ(bytes.at(cache.slot(r)), r);
      }
      EXPECT_LE(kept, cache.size());
    }
  }
}

}  // namespace
}  // namespace strata::nn
